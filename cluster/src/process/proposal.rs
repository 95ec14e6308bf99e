//! Proposals that are repeated until the ledger has accepted them.
//!
//! Used for settles (by the settler and by recovery) and for `NodeUp`. These commands may be applied twice without
//! harm, so a proposal with an unknown outcome is repeated. A settle that is too large for one entry is halved.

use std::time::{Duration, Instant};

use reveille_ledger::command::{ClaimOutcome, Command};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use reveille_raft::ProposeError;
use tokio_util::sync::CancellationToken;

use super::context::NodeContext;

/// Maximum time that one proposal waits for its answer.
const PROPOSAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between two proposals.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Number of failed proposals after which an error is logged, each time: about a minute without a quorum.
const LOUD_AFTER: u32 = 20;

/// Reason why a command was not accepted. It did not happen, or the caller stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAccepted {
    /// The caller stopped waiting.
    Cancelled,
    /// The replica stops.
    Stopped,
    /// The command is too large for one entry.
    TooLarge,
}

/// Accepts proposals. Tests use another implementation.
pub(crate) trait Propose: Sync {
    fn propose(&self, command: &Command) -> impl Future<Output = Result<CommandReply, ProposeError>> + Send;
}

impl Propose for NodeContext {
    fn propose(&self, command: &Command) -> impl Future<Output = Result<CommandReply, ProposeError>> + Send {
        self.replica.propose(command, Instant::now() + PROPOSAL_TIMEOUT)
    }
}

/// Settles outcomes of claims until the ledger has accepted all of them, in as few entries as possible. Returns the
/// index of the last entry.
pub(crate) async fn settle(
    ledger: &impl Propose,
    outcomes: Vec<ClaimOutcome>,
    cancel: &CancellationToken,
) -> Result<Option<u64>, NotAccepted> {
    let (mut left, mut last) = (vec![outcomes], None);
    while let Some(outcomes) = left.pop() {
        if outcomes.is_empty() {
            continue;
        }
        let command = Command::Settle(outcomes);
        // A refusal is about the stamp only, never about the settle, so the proposal is repeated.
        match propose_until_accepted(ledger, &command, |_| false, cancel).await {
            Ok(reply) => last = Some(reply.index),
            Err(NotAccepted::TooLarge) => {
                let Command::Settle(outcomes) = command else { continue };
                match halves(outcomes) {
                    Some(halves) => left.extend(halves),
                    // The other outcomes are settled nevertheless.
                    None => tracing::error!("the outcomes of one claim exceed an entry: this is a defect of Reveille"),
                }
            }
            Err(other) => return Err(other),
        }
    }
    Ok(last)
}

/// Splits outcomes in the middle. The first half comes last, since the caller pops from the end. `None` for a single
/// claim: its outcomes always fit into an entry.
fn halves(mut outcomes: Vec<ClaimOutcome>) -> Option<[Vec<ClaimOutcome>; 2]> {
    if outcomes.len() < 2 {
        return None;
    }
    let second = outcomes.split_off(outcomes.len() / 2);
    Some([second, outcomes])
}

/// Proposes a command until the ledger accepts it, or refuses it for a reason that `is_final`.
pub(crate) async fn propose_until_accepted(
    ledger: &impl Propose,
    command: &Command,
    is_final: fn(&CommandRefusal) -> bool,
    cancel: &CancellationToken,
) -> Result<CommandReply, NotAccepted> {
    let mut tries: u32 = 0;
    loop {
        let cause = match cancel.run_until_cancelled(ledger.propose(command)).await {
            None => return Err(NotAccepted::Cancelled),
            Some(Err(ProposeError::Stopped)) => return Err(NotAccepted::Stopped),
            Some(Err(ProposeError::TooLarge { .. })) => return Err(NotAccepted::TooLarge),
            Some(Err(error)) => error.to_string(),
            Some(Ok(reply)) => match &reply.outcome {
                CommandOutcome::Refused(refusal) if !is_final(refusal) => refusal.to_string(),
                _ => return Ok(reply),
            },
        };
        tries = tries.saturating_add(1);
        if tries.is_multiple_of(LOUD_AFTER) {
            tracing::error!(cause, tries, "the ledger did not accept a proposal; retrying");
        } else {
            tracing::debug!(cause, tries, "the ledger did not accept a proposal; retrying");
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use reveille_ledger::ids::{Epoch, Fence, PageId, RunId};

    use super::*;

    fn outcome(number: u64) -> ClaimOutcome {
        let page = PageId(RunId { index: 1, place: 0 });
        ClaimOutcome::empty(page.chunk(0), Fence { group: 1, epoch: Epoch(1), index: number, place: 0 })
    }

    /// A ledger that accepts at most `outcomes_max` outcomes in an entry, and each entry at the second try.
    #[derive(Default)]
    struct Fake {
        outcomes_max: usize,
        tries: Mutex<u32>,
        entries: Mutex<Vec<Vec<u64>>>,
    }

    impl Propose for Fake {
        async fn propose(&self, command: &Command) -> Result<CommandReply, ProposeError> {
            let Command::Settle(outcomes) = command else { return Err(ProposeError::Stopped) };
            if outcomes.len() > self.outcomes_max {
                return Err(ProposeError::TooLarge { bytes: outcomes.len(), bound: self.outcomes_max });
            }
            *self.tries.lock() += 1;
            if *self.tries.lock() % 2 == 1 {
                return Err(ProposeError::Unknown);
            }
            let mut entries = self.entries.lock();
            entries.push(outcomes.iter().map(|outcome| outcome.fence.index).collect());
            let index = entries.len() as u64;
            Ok(CommandReply { index, is_repeat: false, outcome: CommandOutcome::Changed(0) })
        }
    }

    async fn settled(outcomes_max: usize, outcomes: u64) -> (Result<Option<u64>, NotAccepted>, Vec<Vec<u64>>) {
        let fake = Fake { outcomes_max, ..Fake::default() };
        let settled = settle(&fake, (0..outcomes).map(outcome).collect(), &CancellationToken::new()).await;
        (settled, fake.entries.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn settle_above_entry_bound_is_halved_until_it_fits() {
        let (settled, entries) = settled(3, 10).await;
        assert_eq!(settled, Ok(Some(4)));
        assert_eq!(entries, [vec![0, 1], vec![2, 3, 4], vec![5, 6], vec![7, 8, 9]], "each outcome once, in order");
    }

    #[tokio::test(start_paused = true)]
    async fn single_row_above_entry_bound_is_not_asked_for_ever() {
        let (settled, entries) = settled(0, 4).await;
        assert_eq!((settled, entries.len()), (Ok(None), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn proposal_ends_with_the_stop_of_the_replica_or_of_the_caller() {
        let (fake, cancel) = (Fake::default(), CancellationToken::new());
        assert_eq!(propose_until_accepted(&fake, &Command::Tick, |_| false, &cancel).await, Err(NotAccepted::Stopped));
        cancel.cancel();
        assert_eq!(
            propose_until_accepted(&fake, &Command::Tick, |_| false, &cancel).await,
            Err(NotAccepted::Cancelled)
        );
    }
}

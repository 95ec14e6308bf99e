//! Observes the nodes during a run: the leader that can act, the open claims, and when everything is drained.

use std::collections::BTreeSet;
use std::sync::Arc;

use reveille_check::events::{EpochStarted, Event, OpenClaim, Outage};
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::{Ledger, RecipientState};
use tokio::time::Duration;

use crate::recorder::{HistoryRecorder, name};

/// Interval between observations.
pub const EVERY: Duration = Duration::from_millis(500);
/// Time without an acknowledgement of a quorum after which a leader cannot act.
const QUORUM_WITHIN: Duration = Duration::from_secs(2);

/// Records leaders, outages, open claims and the draining of the backlog.
pub struct Observer {
    recorder: HistoryRecorder,
    epochs: BTreeSet<u64>,
    /// Time at which a quorum last acknowledged a leader that could act. An outage starts here.
    acted_ns: u64,
    is_out: bool,
    is_drained: bool,
}

impl Observer {
    /// Creates an observer. The run begins with an outage.
    pub fn new(recorder: HistoryRecorder) -> Observer {
        Observer { recorder, epochs: BTreeSet::new(), acted_ns: 0, is_out: true, is_drained: false }
    }

    /// Makes one observation. `is_quiet`: nothing more becomes due, and no client calls.
    pub fn observe(&mut self, contexts: &[Arc<NodeContext>], is_quiet: bool) {
        let now_ns = self.recorder.now_ns();
        let acting = contexts.iter().find_map(|context| Some((context, acts(context)?)));
        let Some((context, (epoch, heard))) = acting else {
            self.is_out = true;
            return;
        };
        if std::mem::take(&mut self.is_out) {
            self.recorder.record(Event::Outage(Outage { from_ns: self.acted_ns, until_ns: now_ns }));
        }
        self.acted_ns = now_ns.saturating_sub(heard.as_nanos() as u64);
        if self.epochs.insert(epoch) {
            self.recorder.record(Event::EpochStarted(EpochStarted { at_ns: now_ns, epoch }));
        }
        let (rows, is_done) = context.replica.read(|ledger| (open_claims(ledger, now_ns), is_done(ledger)));
        rows.into_iter().for_each(|row| self.recorder.record(Event::OpenClaim(row)));
        if is_quiet && is_done && !self.is_drained {
            self.is_drained = true;
            self.recorder.record(Event::Drained { at_ns: now_ns });
        }
    }

    /// Ends the observation. A current outage lasts until now.
    pub fn end(&mut self) {
        if self.is_out {
            let until_ns = self.recorder.now_ns();
            self.recorder.record(Event::Outage(Outage { from_ns: self.acted_ns, until_ns }));
        }
    }
}

/// Returns the epoch of this node and the time since a quorum last acknowledged it, if the node can act as leader: a
/// quorum acknowledges it, the clocks agree, and its epoch is current.
fn acts(context: &NodeContext) -> Option<(u64, Duration)> {
    let leadership = context.leadership().filter(|leadership| !leadership.ended() && leadership.clocks_agree())?;
    let heard = context.replica.last_quorum_acked()?.elapsed();
    let current = context.replica.read(|ledger| ledger.head().current_epoch());
    (heard < QUORUM_WITHIN && current == Some(leadership.epoch())).then_some((leadership.epoch().0, heard))
}

fn open_claims(ledger: &Ledger, at_ns: u64) -> Vec<OpenClaim> {
    let claimed = ledger.claims().iter().filter(|(_, row)| !row.claimed.is_empty());
    let seen = claimed.map(|(fence, row)| OpenClaim {
        at_ns,
        fence: fence_of(fence),
        node: name(row.owner.node),
        incarnation: row.owner.incarnation.0,
        claimed: row.claimed.len(),
    });
    seen.collect()
}

/// Returns true if nothing is pending or claimed.
fn is_done(ledger: &Ledger) -> bool {
    let unfinished = |counts: &reveille_ledger::RecipientCounts| {
        counts.get(RecipientState::Pending) + counts.get(RecipientState::Claimed)
    };
    ledger.runs().all(|(_, _, run)| unfinished(&run.counts) == 0)
}

/// Returns the fence in the format of histories.
pub fn fence_of(fence: &reveille_ledger::ids::Fence) -> reveille_check::events::Fence {
    reveille_check::events::Fence { group: fence.group, epoch: fence.epoch.0, index: fence.index, place: fence.place }
}

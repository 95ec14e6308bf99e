//! The history of each recipient, as `explain` shows it at the end: its claims with their owners, their outcomes, and
//! its state.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use reveille_check::events::{Claim, Event, Fence, FinalState, OpenClaim, Outcome, OutcomeKind, Resumption};
use reveille_check::names::Name;
use reveille_harness::AdminClient;
use reveille_proto::admin::v1 as api;
use reveille_proto::admin::v1::ExplainedEventKind as Kind;
use tokio::task::JoinSet;

use super::recorder::Recorder;
use super::{millis, same_name};

/// Number of events of a run as a whole (pause, resumption, requeue) that the ledger keeps.
const RUN_EVENTS_KEPT: usize = 64;
/// Number of clients that read at the same time.
const READERS: usize = 8;

/// Records what the ledger shows at the end, with ledger time converted to the time of the history.
#[derive(Clone)]
pub struct LedgerRecorder {
    recorder: Recorder,
    /// Civil time at the beginning of the history. `None`: the nodes' clocks are set wrong.
    began_unix_ms: Option<i64>,
    /// Resumptions that were recorded: run and log index.
    resumptions: Arc<Mutex<HashSet<(String, u64)>>>,
}

/// A recipient: the tenant of its run, the run, the address, and its number if it may be erased.
pub type RecipientPath = (String, String, String, Option<u32>);

impl LedgerRecorder {
    /// Records in this history, with civil time at its beginning if that can be compared.
    pub fn new(recorder: Recorder, began_unix_ms: Option<i64>) -> LedgerRecorder {
        LedgerRecorder { recorder, began_unix_ms, resumptions: Arc::default() }
    }

    /// Records an event.
    pub fn event(&self, event: &Event) {
        self.recorder.event(event);
    }

    /// Returns true if no other recipient of the run has shown this resumption.
    fn is_new(&self, run: &str, index: u64) -> bool {
        let mut known = self.resumptions.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((run.to_owned(), index))
    }

    /// Returns the ledger time at which an entry was proposed, as time of the history.
    fn ns(&self, event: &api::ExplainedEvent) -> Option<u64> {
        Some(u64::try_from(ledger_unix_ms(event)? - self.began_unix_ms?).ok()? * 1_000_000)
    }

    /// Records the history of each of these recipients. Returns false if the time was over before.
    pub async fn recipients(&self, admin: &AdminClient, all: Vec<RecipientPath>, until: Instant) -> Result<bool> {
        let mut readers = JoinSet::new();
        for reader in 0..READERS {
            let (admin, ledger) = (admin.another(reader)?, self.clone());
            let own: Vec<_> = all.iter().skip(reader).step_by(READERS).cloned().collect();
            readers.spawn(async move {
                for (tenant, run, recipient, number) in own {
                    if Instant::now() > until {
                        return anyhow::Ok(false);
                    }
                    let admin = admin.of_tenant(&tenant);
                    let history = match (admin.explain(&run, &recipient).await, number) {
                        (Err(_), Some(number)) => admin.explain(&run, &format!("#{number}")).await?,
                        (history, _) => history?,
                    };
                    ledger.record(&run, &recipient, &history)?;
                }
                Ok(true)
            });
        }
        let mut whole = true;
        while let Some(ended) = readers.join_next().await {
            whole &= ended??;
        }
        Ok(whole)
    }

    fn record(&self, run: &str, recipient: &str, history: &api::ExplainResponse) -> Result<()> {
        let state = same_name(history.state().as_str_name(), "RECIPIENT_STATE_");
        let state = state.with_context(|| format!("{recipient} of {run} has no state"))?;
        let (run_name, recipient) = (run.into(), recipient.into());
        // If no event was dropped, the first resumption that is shown is the first of the run.
        let run_events = history.events.iter().filter(|event| event.fence.is_empty()).count();
        for (position, event) in history.events.iter().enumerate() {
            if event.kind() == Kind::RunResumed && run_events < RUN_EVENTS_KEPT && self.is_new(run, event.index) {
                self.event(&Event::Resumption(Resumption { run: run_name, index: event.index }));
            }
            let fence: Option<Fence> = event.fence.parse().ok();
            let later = history.events.get(position + 1..).unwrap_or_default();
            if event.kind() == Kind::Claimed
                && let Some(fence) = fence
            {
                let incarnation = event.incarnation;
                if let Some(at_ns) = self.open_until(event, later) {
                    let node = event.node.clone();
                    self.event(&Event::OpenClaim(OpenClaim { at_ns, fence, node, incarnation, claimed: 1 }));
                }
                self.event(&Event::Claim(Claim {
                    fence,
                    node: Name::from(&event.node),
                    incarnation,
                    run: run_name,
                    recipient,
                    committed_ns: None,
                    proposed_ns: self.ns(event),
                    ledger_unix_ms: ledger_unix_ms(event),
                }));
            }
            // A recipient that was suppressed when its run opened had no claim.
            if let Some(kind) = outcome_kind(event).filter(|_| fence.is_some()) {
                let kind = if is_joined_refusal(event, later) { OutcomeKind::Refused } else { kind };
                let (index, proposed_ns, detail) = (event.index, self.ns(event), answer(event));
                let code = u16::try_from(event.code).ok().filter(|code| *code > 0);
                let outcome = Outcome { index, fence, run: run_name, recipient, kind, code, proposed_ns, detail };
                self.event(&Event::Outcome(outcome));
            }
        }
        let number = Some(history.number);
        self.event(&Event::FinalState(FinalState { run: run_name, recipient, number, state }));
        Ok(())
    }

    /// Returns the time until which the recipient was claimed under this fence: the first outcome that ended the claim.
    /// `None`: that outcome has no instant.
    fn open_until(&self, claimed: &api::ExplainedEvent, later: &[api::ExplainedEvent]) -> Option<u64> {
        let ends = later.iter().find(|event| event.fence == claimed.fence && outcome_kind(event).is_some());
        self.ns(ends?)
    }
}

/// Returns the ledger time at which an entry was proposed, which has milliseconds.
fn ledger_unix_ms(event: &api::ExplainedEvent) -> Option<i64> {
    event.time.as_ref().map(millis)
}

/// Returns the answer of the relay, or why the recipient is in doubt, for people.
fn answer(event: &api::ExplainedEvent) -> String {
    let code = if event.code > 0 { event.code.to_string() } else { String::new() };
    let doubt = if event.kind() == Kind::InDoubt { event.doubt_cause().as_str_name() } else { "" };
    let parts = [code.as_str(), &event.enhanced, &event.text, doubt];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the outcome for an event of `explain` that ends a handoff or decides a doubt.
fn outcome_kind(event: &api::ExplainedEvent) -> Option<OutcomeKind> {
    Some(match event.kind() {
        Kind::Sent | Kind::SentTwice | Kind::SentAfterAll => OutcomeKind::Sent,
        Kind::Refused => OutcomeKind::Refused,
        Kind::GivenBack | Kind::NotComposed | Kind::Suppressed | Kind::GivenUp => OutcomeKind::Released,
        Kind::InDoubt => OutcomeKind::InDoubt,
        Kind::ToBeResent => OutcomeKind::Resent(same_name(event.decider().as_str_name(), "DECIDER_")?),
        Kind::Assumed => OutcomeKind::Assumed,
        _ => return None,
    })
}

/// Returns true if this event stands for refusals with different answers that made recipients dead. `later` are the
/// events after it. The ledger joins such refusals in a claim with many events, and `explain` shows them as recipients
/// that were given back.
fn is_joined_refusal(event: &api::ExplainedEvent, later: &[api::ExplainedEvent]) -> bool {
    let is_end = |other: &api::ExplainedEvent| {
        other.kind() == Kind::Dead && (&other.fence, other.index) == (&event.fence, event.index)
    };
    event.release_reason() == api::ReleaseReason::Unavailable && event.entries > 1 && later.iter().any(is_end)
}

#[cfg(test)]
mod tests {
    use reveille_check::History;
    use reveille_check::events::{FORMAT, Header, RecipientState};

    use super::*;

    fn event(kind: Kind, fence: &str, index: u64) -> api::ExplainedEvent {
        let time = Some(prost_types::Timestamp { seconds: index as i64, nanos: 0 });
        let (fence, node, incarnation) = (fence.to_owned(), "n1".to_owned(), 3);
        api::ExplainedEvent { kind: kind.into(), fence, index, node, incarnation, time, ..Default::default() }
    }

    /// Returns the history of a recipient that `explain` shows so.
    fn recorded(state: api::RecipientState, events: Vec<api::ExplainedEvent>) -> History {
        let explained = api::ExplainResponse { number: 7, state: state.into(), events, ..Default::default() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let recorder = Recorder::begin(&path, &Header { format: FORMAT, ..Header::default() }).unwrap();
        LedgerRecorder::new(recorder.clone(), Some(0)).record("r1.0", "a", &explained).unwrap();
        recorder.end(Vec::new()).unwrap();
        History::read(std::fs::read(&path).unwrap().as_slice()).unwrap()
    }

    #[test]
    fn claims_and_outcomes_are_recorded_with_fences_and_times() {
        let refused = api::ExplainedEvent { code: 451, ..event(Kind::Refused, "1.1.30.0", 31) };
        let events = vec![
            event(Kind::Suppressed, "", 9),
            event(Kind::Claimed, "1.1.10.0", 10),
            event(Kind::GivenBack, "1.1.10.0", 12),
            event(Kind::Claimed, "1.1.20.0", 20),
            event(Kind::Suppressed, "1.1.20.0", 21),
            event(Kind::Claimed, "1.1.30.0", 30),
            refused,
            event(Kind::Claimed, "1.1.40.0", 40),
            event(Kind::Sent, "1.1.40.0", 42),
        ];
        let history = recorded(api::RecipientState::Sent, events);
        let claims: Vec<_> = history.claims.iter().map(|claim| (claim.fence.index, claim.proposed_ns)).collect();
        let ns = |seconds: u64| Some(seconds * 1_000_000_000);
        assert_eq!(claims, [(10, ns(10)), (20, ns(20)), (30, ns(30)), (40, ns(40))]);
        let outcomes =
            history.outcomes.iter().map(|outcome| (outcome.fence.unwrap().index, outcome.kind, outcome.code));
        let outcomes: Vec<_> = outcomes.collect();
        let released = |fence| (fence, OutcomeKind::Released, None);
        let last = [(30, OutcomeKind::Refused, Some(451)), (40, OutcomeKind::Sent, None)];
        assert_eq!(outcomes, [[released(10), released(20)], last].concat());
        let open: Vec<_> = history.open_claims.iter().map(|claim| (claim.fence.index, claim.at_ns)).collect();
        assert_eq!(open, [(10, 12), (20, 21), (30, 31), (40, 42)].map(|(fence, at_s)| (fence, at_s * 1_000_000_000)));
        let FinalState { number, state, .. } = history.final_states[0];
        assert_eq!((number, state), (Some(7), RecipientState::Sent));
    }

    /// A dead letter needs a refusal as its cause (I4).
    #[test]
    fn refusals_that_ledger_joined_are_a_cause_of_the_dead_letter() {
        let kind = |entries, ends: Kind| {
            let release_reason = api::ReleaseReason::Unavailable.into();
            let joined = api::ExplainedEvent { entries, release_reason, ..event(Kind::GivenBack, "1.1.10.0", 12) };
            let events = vec![event(Kind::Claimed, "1.1.10.0", 10), joined, event(ends, "1.1.10.0", 12)];
            recorded(api::RecipientState::Dead, events).outcomes[0].kind
        };
        assert_eq!(kind(2, Kind::Dead), OutcomeKind::Refused);
        assert_eq!(kind(1, Kind::Dead), OutcomeKind::Released, "no relay could be asked, and the deadline passed");
        assert_eq!(kind(2, Kind::Expired), OutcomeKind::Released);
    }
}

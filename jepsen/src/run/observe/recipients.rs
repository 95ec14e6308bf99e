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
use super::same_name;

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

    /// Returns the ledger time at which an entry was proposed.
    fn ns(&self, event: &api::ExplainedEvent) -> Option<u64> {
        let at = event.time.as_ref()?;
        let unix_ns = i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos);
        u64::try_from(unix_ns - i128::from(self.began_unix_ms?) * 1_000_000).ok()
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
            if event.kind() == Kind::Claimed
                && let Some(fence) = fence
            {
                let incarnation = event.incarnation;
                let later = history.events.get(position + 1..).unwrap_or_default();
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
                }));
            }
            if let Some(kind) = outcome_kind(event.kind()) {
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
        let ends = later.iter().find(|event| event.fence == claimed.fence && outcome_kind(event.kind()).is_some());
        self.ns(ends?)
    }
}

/// Returns the answer of the relay, or why the recipient is in doubt, for people.
fn answer(event: &api::ExplainedEvent) -> String {
    let code = if event.code > 0 { event.code.to_string() } else { String::new() };
    let doubt = if event.kind() == Kind::InDoubt { event.doubt_cause().as_str_name() } else { "" };
    let parts = [code.as_str(), &event.enhanced, &event.text, doubt];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the outcome for an event of `explain` that ends a handoff or decides a doubt.
fn outcome_kind(kind: Kind) -> Option<OutcomeKind> {
    Some(match kind {
        Kind::Sent | Kind::SentTwice | Kind::SentAfterAll => OutcomeKind::Sent,
        Kind::Refused => OutcomeKind::Refused,
        Kind::GivenBack | Kind::NotComposed => OutcomeKind::Released,
        Kind::InDoubt => OutcomeKind::InDoubt,
        Kind::ToBeResent => OutcomeKind::Resent,
        Kind::Assumed => OutcomeKind::Assumed,
        _ => return None,
    })
}

//! The history of each recipient, as `explain` shows it at the end: its claims with their owners, their outcomes, and
//! its state.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use reveille_check::events::{
    Claim, Event, Fence, FinalState, OpenClaim, Outcome, OutcomeKind, RecipientState, Resumption,
};
use reveille_check::names::Name;
use reveille_harness::AdminClient;
use reveille_proto::admin::v1 as api;
use tokio::task::JoinSet;

use super::recorder::Recorder;

/// Number of events of a run as a whole (pause, resumption, requeue) that the ledger keeps.
const RUN_EVENTS_KEPT: usize = 64;
/// Number of clients that read at the same time.
const READERS: usize = 8;

/// Converts ledger time to the time of the history.
#[derive(Clone)]
pub struct LedgerTimeline {
    /// Civil time at the beginning of the history. `None`: the nodes' clocks are set wrong.
    began_unix_ms: Option<i64>,
    /// Resumptions that were recorded: run and log index.
    resumptions: Arc<Mutex<HashSet<(String, u64)>>>,
}

impl LedgerTimeline {
    /// Creates a timeline from civil time at the beginning of the history, if that can be compared.
    pub fn new(began_unix_ms: Option<i64>) -> LedgerTimeline {
        LedgerTimeline { began_unix_ms, resumptions: Arc::default() }
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
}

/// A recipient.
#[derive(Clone, Debug)]
pub struct RecipientPath {
    /// Tenant of the run.
    pub tenant: String,
    pub run: String,
    pub recipient: String,
}

/// Records the history of each of these recipients. Returns false if the time was over before.
pub async fn read(
    admin: &AdminClient,
    recorder: &Recorder,
    clock: &LedgerTimeline,
    wanted: Vec<RecipientPath>,
    until: Instant,
) -> Result<bool> {
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (admin, recorder, clock) = (admin.another(reader)?, recorder.clone(), clock.clone());
        let own: Vec<_> = wanted.iter().skip(reader).step_by(READERS).cloned().collect();
        readers.spawn(async move {
            for RecipientPath { tenant, run, recipient } in own {
                if Instant::now() > until {
                    return anyhow::Ok(false);
                }
                let history = admin.of_tenant(&tenant).explain(&run, &recipient).await?;
                let recipient_state =
                    recipient_state(history.state()).with_context(|| format!("{recipient} of {run} has no state"))?;
                record(&recorder, &clock, (&run, &recipient), &history, recipient_state)?;
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

fn record(
    recorder: &Recorder,
    clock: &LedgerTimeline,
    (run, recipient): (&str, &str),
    history: &api::ExplainResponse,
    state: RecipientState,
) -> Result<()> {
    // If no event was dropped, the first resumption that is shown is the first of the run.
    let run_events = history.events.iter().filter(|event| event.fence.is_empty()).count();
    for (position, event) in history.events.iter().enumerate() {
        if event.what == "run resumed" && run_events < RUN_EVENTS_KEPT && clock.is_new(run, event.index) {
            recorder.event(&Event::Resumption(Resumption { run: run.into(), index: event.index }));
        }
        let fence: Option<Fence> = event.fence.parse().ok();
        if event.what == "claimed"
            && let Some(fence) = fence
        {
            let incarnation = incarnation(event).with_context(|| format!("claim {fence} shows no incarnation"))?;
            let later = history.events.get(position + 1..).unwrap_or_default();
            if let Some(at_ns) = open_until(clock, event, later) {
                let node = event.node.clone();
                recorder.event(&Event::OpenClaim(OpenClaim { at_ns, fence, node, incarnation, claimed: 1 }));
            }
            recorder.event(&Event::Claim(Claim {
                fence,
                node: Name::from(&event.node),
                incarnation,
                run: run.into(),
                recipient: recipient.into(),
                committed_ns: None,
                proposed_ns: clock.ns(event),
            }));
        }
        if let Some(kind) = outcome_kind(&event.what) {
            recorder.event(&Event::Outcome(Outcome {
                index: event.index,
                fence,
                run: run.into(),
                recipient: recipient.into(),
                kind,
                proposed_ns: clock.ns(event),
                detail: event.detail.clone(),
            }));
        }
    }
    let (run, recipient, number) = (run.into(), recipient.into(), Some(history.number));
    recorder.event(&Event::FinalState(FinalState { run, recipient, number, state }));
    Ok(())
}

/// Returns the incarnation that owns a claim, from the text of `explain`.
fn incarnation(claimed: &api::ExplainedEvent) -> Option<u64> {
    claimed.detail.strip_prefix("life ")?.parse().ok()
}

/// Returns the time until which the recipient was claimed under this fence: the first outcome that ended the claim.
/// `None`: that outcome has no instant.
fn open_until(clock: &LedgerTimeline, claimed: &api::ExplainedEvent, later: &[api::ExplainedEvent]) -> Option<u64> {
    let ends = later.iter().find(|event| event.fence == claimed.fence && outcome_kind(&event.what).is_some());
    clock.ns(ends?)
}

/// Returns the outcome for a text of `explain` that ends a handoff or decides a doubt.
fn outcome_kind(what: &str) -> Option<OutcomeKind> {
    Some(match what {
        "sent" | "sent twice" | "sent after all" => OutcomeKind::Sent,
        "refused" => OutcomeKind::Refused,
        "given back" | "not composed" => OutcomeKind::Released,
        "in doubt" => OutcomeKind::InDoubt,
        "to be resent" => OutcomeKind::Resent,
        "assumed" => OutcomeKind::Assumed,
        _ => return None,
    })
}

fn recipient_state(state: api::RecipientState) -> Option<RecipientState> {
    Some(match state {
        api::RecipientState::Unspecified => return None,
        api::RecipientState::Pending => RecipientState::Pending,
        api::RecipientState::Claimed => RecipientState::Claimed,
        api::RecipientState::Sent => RecipientState::Sent,
        api::RecipientState::Assumed => RecipientState::Assumed,
        api::RecipientState::Dead => RecipientState::Dead,
        api::RecipientState::Suppressed => RecipientState::Suppressed,
        api::RecipientState::Expired => RecipientState::Expired,
        api::RecipientState::Cancelled => RecipientState::Cancelled,
        api::RecipientState::InDoubt => RecipientState::InDoubt,
    })
}

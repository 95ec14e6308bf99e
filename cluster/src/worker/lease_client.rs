//! The lease client: requests the node lease from the leader once a second (P9). The request carries this node's
//! measurements of its relays (P12); after a large change it is sent sooner.
//!
//! A node that stops gives up its lease at once. It keeps sending requests, marked as stopping. Leases granted to them
//! open no gate. They only keep the leader from revoking the node's claims until these are settled.

use std::sync::Arc;
use std::time::Duration;

use reveille_raft::crash;
use tokio_util::sync::CancellationToken;

use crate::file_store::fetcher::open_parts;
use crate::process::context::NodeContext;
use crate::process::lease::ASK_EVERY;
use crate::process::peer_messages::{self, GrantedLease, LeaseRequest, NodeMeasurements};

/// Pause after a refused or failed request. No email is sent until a new leader's epoch is applied and it grants a
/// lease.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Interval at which the measurements of relays are compared with those last sent. For this long the leader works with
/// its assumption about a new relay.
const COMPARE_EVERY: Duration = Duration::from_millis(100);

/// The steps of a stop, for the lease client and the workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSignals {
    /// The node stops; nothing new begins.
    pub stop_requested: CancellationToken,
    /// The leader knows of the stop, and all claims that it granted before are in the log.
    pub leader_knows: CancellationToken,
    /// Every outcome is settled, so the leader may forget this process.
    pub all_settled: CancellationToken,
}

/// Keeps the lease until the node stops, and the claims until they are settled.
pub(crate) async fn run(context: Arc<NodeContext>, stopping: StopSignals) {
    let mut role = context.replica.role();
    while !stopping.all_settled.is_cancelled() {
        let (sent, stops) = (context.measured(), stopping.stop_requested.is_cancelled());
        if stops {
            context.lease.end();
            crash::point("lifecycle.drain");
        }
        let granted = tokio::select! {
            granted = request_lease(&context, sent.clone(), stops) => granted,
            () = stopping.stop_requested.cancelled(), if !stops => continue,
            () = stopping.all_settled.cancelled() => break,
        };
        if granted && stops {
            stopping.leader_knows.cancel();
        }
        tokio::select! {
            () = until_next(&context, granted, &sent) => {}
            () = stopping.stop_requested.cancelled(), if !stops => {}
            // A new leader has granted no lease yet, so the node asks at once.
            changed = role.changed() => if changed.is_err() {
                // The replica has stopped and the node is about to stop, so there is no leader to ask.
                context.lease.end();
                stopping.all_settled.cancelled().await;
            },
            () = stopping.all_settled.cancelled() => break,
        }
    }
    context.lease.end();
}

/// Sends one request; returns true if the lease was granted.
async fn request_lease(context: &Arc<NodeContext>, measured: NodeMeasurements, stopping: bool) -> bool {
    let applied = context.replica.read(|ledger| ledger.head().applied);
    let missing =
        if context.files.any_missing() { context.files.named_missing(&open_parts(context)) } else { Vec::new() };
    let lacks_archive = !context.replica.missing_blocks().is_empty();
    let space = context.disk.space();
    let request = LeaseRequest { owner: context.me, applied, missing, lacks_archive, space, measured, stopping };
    let sent_at = context.lease_clock();
    let Some(peer) = context.leader().and_then(|leader| context.replica.peer(leader)) else { return false };
    match peer_messages::ask(&peer, request, ASK_EVERY).await {
        Ok(Ok(GrantedLease { length, floor })) => {
            if !stopping {
                context.lease.prolong(sent_at, length, floor);
            }
            return true;
        }
        Ok(Err(refusal)) => tracing::debug!(refusal, "no lease"),
        Err(error) => tracing::debug!(%error, "the lease could not be asked for"),
    }
    false
}

/// Waits until the next request is due.
async fn until_next(context: &NodeContext, granted: bool, sent: &NodeMeasurements) {
    if !granted {
        return tokio::time::sleep(ASK_AGAIN).await;
    }
    let ask_at = tokio::time::Instant::now() + ASK_EVERY;
    while tokio::time::Instant::now() < ask_at {
        tokio::time::sleep(COMPARE_EVERY).await;
        if must_report(sent, &context.measured()) {
            return;
        }
    }
}

/// Returns true if a relay became known, or is at least twice as fast or as slow as it was when last reported.
fn must_report(sent: &NodeMeasurements, now: &NodeMeasurements) -> bool {
    let differs = |one: u128, other: u128| one != other && one.max(other) >= 2 * one.min(other);
    now.relays.iter().any(|(name, flow)| {
        let Some(before) = sent.relays.get(name) else { return true };
        let other_pace = differs(before.rate_milli.into(), flow.rate_milli.into());
        match (before.dialogue, flow.dialogue) {
            (Some(before), Some(now)) => other_pace || differs(before.as_micros(), now.as_micros()),
            (None, Some(_)) => true,
            // A measurement that this node dropped need not be reported.
            (_, None) => other_pace,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::peer_messages::RelayFlow;

    fn measured(dialogue_ms: Option<u64>, rate_milli: u64) -> NodeMeasurements {
        let flow = RelayFlow { dialogue: dialogue_ms.map(Duration::from_millis), rate_milli };
        NodeMeasurements { relays: [("mailbox".to_owned(), flow)].into(), settle: None }
    }

    #[test]
    fn relay_speed_is_reported_when_first_known_or_changed_twofold() {
        let sent = measured(Some(100), 1_000);
        assert!(!must_report(&sent, &sent));
        assert!(!must_report(&sent, &measured(Some(199), 501)));
        assert!(must_report(&sent, &measured(Some(200), 1_000)));
        assert!(must_report(&sent, &measured(Some(50), 1_000)));
        assert!(must_report(&sent, &measured(Some(100), 500)), "it is throttled");
        assert!(!must_report(&sent, &measured(None, 1_000)), "it was not used for a while");
        assert!(must_report(&measured(None, 1_000), &sent));
        assert!(must_report(&NodeMeasurements::default(), &sent), "it is new");
    }

    #[test]
    fn blocked_relay_is_reported_once() {
        assert!(must_report(&measured(Some(1), 1_000), &measured(Some(1), 0)));
        assert!(!must_report(&measured(Some(1), 0), &measured(Some(1), 0)));
    }
}

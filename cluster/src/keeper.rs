//! The keeper of the node lease: asks the leader once a second, for as long as this life may send (P9).

use std::sync::Arc;

use reveille_raft::peer::{LeaseAnswer, LeaseQuestion};
use tokio_util::sync::CancellationToken;

use crate::barrier;
use crate::lease::ASK_EVERY;
use crate::site::Site;

/// Keeps the lease until `stop`; then gives it up.
pub(crate) async fn run(site: Arc<Site>, stop: CancellationToken) {
    let mut beat = tokio::time::interval(ASK_EVERY);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut epochs = site.replica.role();
    while !stop.is_cancelled() {
        tokio::select! {
            _ = beat.tick() => {}
            // A new leader knows of no lease: ask it at once.
            changed = epochs.changed() => if changed.is_err() { break },
            () = stop.cancelled() => break,
        }
        ask(&site).await;
    }
    site.lease.end();
}

async fn ask(site: &Arc<Site>) {
    let applied = site.replica.read(|ledger| ledger.head().applied);
    let question = LeaseQuestion { holder: site.me, applied, lacking: Vec::new() };
    let sent_at = site.clock.boot();
    let Some(peer) = barrier::leader(site).and_then(|leader| site.replica.peer(leader)) else { return };
    let answer = peer.renew_lease(question, ASK_EVERY).await;
    match answer {
        Ok(LeaseAnswer::Granted { lease, floor, .. }) => site.lease.prolong(sent_at, lease, floor),
        Ok(LeaseAnswer::Refused(refusal)) => tracing::debug!(refusal, "no lease"),
        Err(error) => tracing::debug!(%error, "the lease could not be asked for"),
    }
}

//! The keeper of the node lease: asks the leader once a second, for as long as this life may send (P9).

use std::sync::Arc;
use std::time::Duration;

use reveille_raft::peer::{LeaseAnswer, LeaseQuestion};
use tokio_util::sync::CancellationToken;

use crate::barrier;
use crate::lease::ASK_EVERY;
use crate::site::Site;

/// How soon it asks again when it got none: a new leader grants once its epoch is applied, and until then
/// nobody sends.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Keeps the lease until `stop`; then gives it up.
pub(crate) async fn run(site: Arc<Site>, stop: CancellationToken) {
    let mut role = site.replica.role();
    while !stop.is_cancelled() {
        let granted = ask(&site).await;
        tokio::select! {
            () = tokio::time::sleep(if granted { ASK_EVERY } else { ASK_AGAIN }) => {}
            // A new leader knows of no lease: ask it at once.
            changed = role.changed() => if changed.is_err() {
                // The replica is gone, and the node is about to stop: nobody is left to ask.
                site.lease.end();
                stop.cancelled().await;
            },
            () = stop.cancelled() => break,
        }
    }
    site.lease.end();
}

/// Asks once; was it granted?
async fn ask(site: &Arc<Site>) -> bool {
    let applied = site.replica.read(|ledger| ledger.head().applied);
    let question = LeaseQuestion { holder: site.me, applied, lacking: Vec::new() };
    let sent_at = site.clock.boot();
    let Some(peer) = barrier::leader(site).and_then(|leader| site.replica.peer(leader)) else { return false };
    match peer.renew_lease(question, ASK_EVERY).await {
        Ok(LeaseAnswer::Granted { lease, floor, .. }) => {
            site.lease.prolong(sent_at, lease, floor);
            return true;
        }
        Ok(LeaseAnswer::Refused(refusal)) => tracing::debug!(refusal, "no lease"),
        Err(error) => tracing::debug!(%error, "the lease could not be asked for"),
    }
    false
}

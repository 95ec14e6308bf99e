//! The actor that keeps the relays of this node as the ledger's table of relays says.

use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::effect::Effect;
use reveille_raft::Hint;
use tokio_util::sync::CancellationToken;

use super::registry::RelayRegistry;
use crate::process::context::NodeContext;

/// Maximum time that the relays may differ from the ledger after a hint was lost. Also the interval of their gauges.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Updates the relays after each change, and once a second, until `stop`.
pub(crate) async fn run(context: Arc<NodeContext>, relays: Arc<RelayRegistry>, stop: CancellationToken) {
    let mut hints = context.replica.hints();
    while !stop.is_cancelled() {
        follow(&context, &relays);
        let changed = async {
            loop {
                match hints.next().await {
                    Some(Hint::Resync | Hint::Effect { effect: Effect::RelaysChanged, .. }) | None => return,
                    Some(Hint::Effect { .. }) => {}
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Updates the relays to the applied state, and writes their gauges.
pub(crate) fn follow(context: &NodeContext, relays: &RelayRegistry) {
    context.replica.read(|ledger| relays.follow(ledger, ledger.relay_shares()));
    relays.measure();
}

//! The actor that logs the ledger's alarms, on every node.

use std::sync::Arc;

use reveille_ledger::effect::Effect;
use reveille_raft::Hint;
use tokio_util::sync::CancellationToken;

use crate::process::context::NodeContext;

/// Logs and counts each alarm until `stop`.
pub(crate) async fn run(context: Arc<NodeContext>, stop: CancellationToken) {
    let mut hints = context.replica.hints();
    while let Some(Some(hint)) = stop.run_until_cancelled(hints.next()).await {
        if let Hint::Effect { index, effect: Effect::Alarm(text) } = hint {
            tracing::warn!(index, "{text}");
            metrics::counter!("reveille_alarms_total").increment(1);
        }
    }
}

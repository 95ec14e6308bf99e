//! The actor that watches the space on the data volume, on every node.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::monitoring::disk_reserve::DiskSpace;
use crate::process::context::NodeContext;

/// Interval of the checks: short against the time in which a disk writes as much as a small reserve.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Checks until `stop`. Logs each change, and writes the gauge.
pub(crate) async fn run(context: Arc<NodeContext>, stop: CancellationToken) {
    let (mut before, mut failing) = (DiskSpace::Ample, false);
    while !stop.is_cancelled() {
        let own = Arc::clone(&context);
        let checked = context.replica.blocking(move || own.disk.check()).await;
        match checked {
            Ok(Ok(space)) => {
                failing = false;
                if space != before {
                    log(&context, space);
                    before = space;
                }
                metrics::gauge!("reveille_disk_short").set(match space {
                    DiskSpace::Ample => 0.0,
                    DiskSpace::Short => 1.0,
                    DiskSpace::Exhausted => 2.0,
                });
            }
            Ok(Err(error)) if !failing => {
                failing = true;
                tracing::warn!(%error, "the reserve on the data volume cannot be kept");
            }
            Ok(Err(_)) => {}
            Err(_) => return,
        }
        stop.run_until_cancelled(tokio::time::sleep(CHECK_EVERY)).await;
    }
}

fn log(context: &NodeContext, space: DiskSpace) {
    let why = context.disk.shortage().map(|shortage| shortage.to_string()).unwrap_or_default();
    match space {
        DiskSpace::Ample => tracing::info!("there is space on the data volume again"),
        DiskSpace::Short => {
            tracing::warn!(why, "the data volume is nearly full: new work is refused; free space there")
        }
        DiskSpace::Exhausted => {
            tracing::error!(
                why,
                "the data volume is full: this node gets no claims, uses its reserve, and then stops; free space there"
            );
        }
    }
}

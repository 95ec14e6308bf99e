//! Streams to watchers: bounded in number and memory, and ended by the watcher, by its token or by the node's stop.

use std::time::Duration;

use reveille_ledger::ids::RunId;
use reveille_proto::admin::v1::WatchRunResponse;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::server::admin::places::Place;
use crate::server::admin::{Admin, ApiResult, Call, error_texts};

/// The stream that a watcher receives.
pub type Watched<T> = ReceiverStream<Result<T, Status>>;
/// Sends to a watcher.
pub type Watcher<T> = mpsc::Sender<Result<T, Status>>;

/// Minimum time between two reads of the state: at most four per second.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of answers that wait for a watcher. A slow watcher of a run misses states in between.
const WAITING_MAX: usize = 1;
/// The error at the end of a stream of a node that stops.
pub const STOPPING: &str = "this node is stopping";

impl Admin {
    /// Returns the place of one stream.
    ///
    /// # Errors
    /// If this node or a tenant of the caller has too many.
    pub(crate) fn stream_place(&self, call: &Call) -> ApiResult<Place> {
        self.streams.try_take(call.tenants(), "streams")
    }

    /// Returns a stream of what `follow` sends. It ends with `follow`, when the watcher disconnects, or when the node
    /// stops.
    pub(crate) fn stream<T, F, Following>(&self, call: &Call, follow: F) -> ApiResult<Watched<T>>
    where
        T: Send + 'static,
        F: FnOnce(Admin, Watcher<T>) -> Following,
        Following: Future<Output = ()> + Send + 'static,
    {
        let place = self.stream_place(call)?;
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let (following, gone, stop) = (follow(self.clone(), sender.clone()), sender, self.stop.clone());
        tokio::spawn(async move {
            let _place = place;
            tokio::select! {
                () = following => {}
                () = gone.closed() => {}
                () = stop.cancelled() => {
                    // If the watcher has not received the last answer yet, the stream ends without this error.
                    let _ = gone.try_send(Err(error_texts::stopping(STOPPING).into()));
                }
            }
        });
        Ok(ReceiverStream::new(receiver))
    }
}

/// Sends a run until none of its recipients is pending or claimed, the watcher disconnects, or its token is no longer
/// valid. An archived run is sent once.
pub async fn follow_run(admin: &Admin, run: RunId, call: &Call, watcher: &Watcher<WatchRunResponse>) {
    let mut applied = admin.context.replica.applied();
    let mut known = None;
    loop {
        let poll_at = Instant::now() + POLL_EVERY;
        applied.mark_unchanged();
        let permitted = admin.context.replica.read(|ledger| call.check(ledger));
        let state = match permitted {
            Ok(()) => admin.show_run(run).await,
            Err(refused) => Err(refused),
        };
        let state = match state {
            Ok(state) => state,
            Err(gone) => {
                // The watcher may have disconnected.
                let _ = watcher.send(Err(gone.into())).await;
                return;
            }
        };
        let over = state.counts.is_none_or(|counts| counts.pending == 0 && counts.claimed == 0);
        if known.as_ref() != Some(&state) {
            known = Some(state.clone());
            if watcher.send(Ok(WatchRunResponse { run: Some(state) })).await.is_err() {
                return;
            }
        }
        if over {
            return;
        }
        sleep_until(poll_at).await;
        if applied.changed().await.is_err() {
            return;
        }
    }
}

//! Lets this node follow a rotation of the certificate authority (P22): it fetches the new one from a member, uses it,
//! and forgets the former one.
//!
//! The ledger says which step all members have reached. A node that was down learns it like any other entry.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::AuthorityState;
use reveille_ledger::ids::AuthorityId;
use reveille_raft::tls::{Followed, NodeTls};
use tokio_util::sync::CancellationToken;

use super::context::NodeContext;
use super::peer_messages::{self, AuthorityFile, FetchAuthority};

/// Interval of the checks.
const CHECK_EVERY: Duration = Duration::from_millis(200);
/// Pause after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Limit of one request, and of the read before it.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// Follows the ledger until `stop`.
pub(crate) async fn run(context: Arc<NodeContext>, tls: NodeTls, stop: CancellationToken) {
    stop.run_until_cancelled(run_forever(&context, &tls)).await;
}

async fn run_forever(context: &NodeContext, tls: &NodeTls) {
    let mut done = None;
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let now = (state(context), tls.generation());
        if done == Some(now) {
            continue;
        }
        match follow(context, tls).await {
            // What was read may be newer than `now`: then it is checked again.
            Ok(true) => done = Some((now.0, tls.generation())),
            Ok(false) => {}
            Err(why) => {
                tracing::warn!(why, "this node does not follow the rotation of the certificate authority yet");
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }
}

fn state(context: &NodeContext) -> Option<AuthorityState> {
    context.replica.read(|ledger| ledger.head().authority)
}

/// Does what the ledger says. Returns true if nothing is left to do.
async fn follow(context: &NodeContext, tls: &NodeTls) -> Result<bool, String> {
    if alone(context, tls).await? == Followed::Done {
        return Ok(true);
    }
    // After a restart the state may be older than what this node has followed before.
    let read = context.replica.linearizable(Instant::now() + REQUEST_LIMIT).await;
    read.map_err(|error| error.to_string())?;
    match alone(context, tls).await? {
        Followed::Done => return Ok(true),
        Followed::Prepared => {}
        Followed::Surplus(id) => {
            let tls = tls.clone();
            blocking(context, move || tls.discard_next(id)).await?;
            tracing::info!(authority = %id, "the rotation to this certificate authority was aborted");
        }
        Followed::Lacks(id) => {
            let AuthorityFile(text) = fetch(context, id).await.ok_or_else(|| format!("no member gives {id}"))?;
            let tls = tls.clone();
            blocking(context, move || tls.store_next(id, &text)).await?;
            tracing::info!(authority = %id, "this node trusts another certificate authority");
        }
    }
    Ok(false)
}

async fn alone(context: &NodeContext, tls: &NodeTls) -> Result<Followed, String> {
    let (tls, state) = (tls.clone(), state(context));
    blocking(context, move || tls.follow(state.as_ref())).await
}

async fn blocking<T: Send + 'static, E: ToString + Send + 'static>(
    context: &NodeContext,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, String> {
    let done = context.replica.blocking(work).await;
    done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Asks one member after the other.
async fn fetch(context: &NodeContext, id: AuthorityId) -> Option<AuthorityFile> {
    for node in context.replica.members().into_keys().filter(|node| *node != context.me.node) {
        let Some(peer) = context.replica.peer(node) else { continue };
        match peer_messages::ask(&peer, FetchAuthority(id), REQUEST_LIMIT).await {
            Ok(Some(file)) => return Some(file),
            Ok(None) => {}
            Err(error) => tracing::debug!(%node, %error, "a member gives no certificate authority"),
        }
    }
    None
}

//! Replaces a node that is lost for good, as its operator does: removes it, and starts a new one with a join token.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reveille_node_client::{AdminClient, CallResult, wait};

/// Maximum time until a lost node is removed, and until a new one votes. Other faults may leave no majority for long.
const REPLACED_WITHIN: Duration = Duration::from_secs(240);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(300);

/// Removes a lost node, until it is done. Returns a token for a new node.
///
/// # Errors
/// Fails if the node is not removed within four minutes.
pub async fn remove_lost(admin: AdminClient, lost: String) -> Result<String> {
    let until = Instant::now() + REPLACED_WITHIN;
    loop {
        let last = match admin.remove_dead_member(&lost).await {
            CallResult::Done(()) => return admin.join_token().await,
            CallResult::Refused(why) => why,
            CallResult::Unknown => "no answer".to_owned(),
        };
        ensure!(Instant::now() < until, "it is not removed: {last}");
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
    }
}

/// Waits until the new node votes, at most four minutes. Returns true if it does.
pub async fn wait_for_vote(admin: AdminClient, new: String) -> bool {
    wait::until(REPLACED_WITHIN, || async { admin.votes(&new).await.is_ok_and(|votes| votes) }).await
}

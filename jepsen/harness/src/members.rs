//! Changes the members of a cluster, as its operator does.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reveille_node_client::{AdminClient, CallResult, wait};

/// Maximum time until a member is removed, and until a new one votes. Other faults may leave no majority for long.
const CHANGED_WITHIN: Duration = Duration::from_secs(240);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(300);

/// Removes a member, until it is done. `dead`: it is lost for good; otherwise it runs, and is drained first.
///
/// # Errors
/// Fails if it is not removed within four minutes.
pub async fn remove(admin: AdminClient, member: String, dead: bool) -> Result<()> {
    let until = Instant::now() + CHANGED_WITHIN;
    loop {
        let last = match admin.remove_member(&member, dead).await {
            CallResult::Done(()) => return Ok(()),
            CallResult::Refused(why) => why,
            CallResult::Unknown => "no answer".to_owned(),
        };
        ensure!(Instant::now() < until, "it is not removed: {last}");
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
    }
}

/// Removes a node that is lost for good. Returns a token for a new one.
///
/// # Errors
/// As [`remove`].
pub async fn remove_lost(admin: AdminClient, lost: String) -> Result<String> {
    remove(admin.clone(), lost, true).await?;
    admin.join_token().await
}

/// Waits until the new node votes, at most four minutes. Returns true if it does.
pub async fn wait_for_vote(admin: AdminClient, new: String) -> bool {
    wait::until(CHANGED_WITHIN, || async { admin.votes(&new).await.is_ok_and(|votes| votes) }).await
}

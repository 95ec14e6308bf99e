//! Which members have the parts of audiences, after the members have changed.

use std::time::Duration;

use anyhow::{Result, ensure};
use reveille_harness::{Cluster, http, wait};

/// The gauge of the parts that a node lacks.
const MISSING: &str = "reveille_files_missing";
/// Maximum time until the nodes have fetched what they lack.
const FETCHED_WITHIN: Duration = Duration::from_secs(20);

/// Waits until a majority of the members has every part of every sealed audience (P20).
///
/// # Errors
/// Fails if it has not.
pub async fn on_majority(cluster: &Cluster, members: &[String]) -> Result<()> {
    let have_all = || async {
        let mut have_all = 0;
        for node in cluster.nodes().iter().filter(|node| members.contains(&node.name)) {
            have_all += usize::from(http::metric(&node.http, MISSING).await == Some(0.0));
        }
        2 * have_all > members.len()
    };
    ensure!(wait::until(FETCHED_WITHIN, have_all).await, "parts of audiences are not on a majority of {members:?}");
    Ok(())
}

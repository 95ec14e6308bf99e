//! How long a killed follower takes until it serves again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reveille_harness::measure::rounded;
use reveille_harness::{Cluster, http};
use reveille_proto::admin::v1::{GetClusterStatusResponse, MemberStatus};
use serde_json::{Value, json};

/// A node is ready, and has caught up, within this time.
const RESTARTED_WITHIN: Duration = Duration::from_secs(300);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Kills a follower and starts it again. Returns the seconds until the follower is ready, and until it has applied the
/// entries of the leader.
pub async fn follower(cluster: &mut Cluster) -> Result<Value> {
    let leader = cluster.leader().await.context("no node leads")?;
    let mut names = cluster.nodes().iter().map(|node| node.name.clone());
    let name = names.find(|name| *name != leader).context("no node follows")?;
    eprintln!("restarting the follower {name}");
    cluster.node_mut(&name)?.kill()?;
    let begun = Instant::now();
    cluster.node_mut(&name)?.start()?;
    let page = cluster.node(&name)?.http.clone();
    while !http::is_ready(&page).await {
        ensure!(
            begun.elapsed() < RESTARTED_WITHIN,
            "{name} was not ready {} s after its start",
            begun.elapsed().as_secs()
        );
        tokio::time::sleep(POLL_EVERY).await;
    }
    let ready = begun.elapsed();
    loop {
        let status = cluster.admin().status().await?;
        let applied = applied_index(&status, &name).zip(applied_index(&status, &leader));
        if applied.is_some_and(|(own, leaders)| own >= leaders) {
            break;
        }
        ensure!(
            begun.elapsed() < RESTARTED_WITHIN,
            "{name} lags behind {} s after its start",
            begun.elapsed().as_secs()
        );
        tokio::time::sleep(POLL_EVERY).await;
    }
    let seconds = |took: Duration| rounded(took.as_secs_f64());
    Ok(json!({"ready": seconds(ready), "caught_up": seconds(begun.elapsed())}))
}

/// Returns the index that a node has applied.
pub fn applied_index(status: &GetClusterStatusResponse, name: &str) -> Option<u64> {
    let is_named = |status: &&MemberStatus| status.member.as_ref().is_some_and(|member| member.name == name);
    status.members.iter().find(is_named)?.applied_index
}

//! How long a killed follower takes until it serves again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reveille_harness::measure::rounded;
use reveille_harness::{Cluster, http, wait};
use reveille_proto::admin::v1::MemberStatus;
use serde_json::{Value, json};

/// A node is ready, and has caught up, within this time.
const RESTARTED_WITHIN: Duration = Duration::from_secs(300);

/// Kills a follower and starts it again. Returns the seconds until the follower is ready, and until it has applied the
/// entries of the leader.
pub async fn follower(cluster: &mut Cluster) -> Result<Value> {
    let name = cluster.follower().await?;
    eprintln!("restarting the follower {name}");
    cluster.node_mut(&name)?.kill()?;
    let begun = Instant::now();
    cluster.node_mut(&name)?.start()?;
    let page = cluster.node(&name)?.http.clone();
    let is_ready = wait::until(RESTARTED_WITHIN, || http::is_ready(&page)).await;
    ensure!(is_ready, "{name} was not ready {} s after its start", RESTARTED_WITHIN.as_secs());
    let ready = begun.elapsed();
    let caught_up = || async { lag(cluster, &name).await.is_ok_and(|lag| lag == Some(0)) };
    ensure!(
        wait::until(RESTARTED_WITHIN, caught_up).await,
        "{name} lags {} s after its start",
        begun.elapsed().as_secs()
    );
    let seconds = |took: Duration| rounded(took.as_secs_f64());
    Ok(json!({"ready": seconds(ready), "caught_up": seconds(begun.elapsed())}))
}

/// Returns the number of entries that a node has not applied and the leader has. `None`: one of them does not answer.
pub async fn lag(cluster: &Cluster, name: &str) -> Result<Option<u64>> {
    let status = cluster.admin().status().await?;
    let applied = |name: &str| {
        let is_named = |status: &&MemberStatus| status.member.as_ref().is_some_and(|member| member.name == name);
        status.members.iter().find(is_named)?.applied_index
    };
    Ok(applied(&status.leader).zip(applied(name)).map(|(leaders, own)| leaders.saturating_sub(own)))
}

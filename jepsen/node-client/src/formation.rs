//! Forms a cluster of new nodes, as an operator does: the first node makes it, and the others join by token.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{AdminClient, NodeProcess, http};

/// Maximum time until a started process answers, and until a changed cluster is ready.
const HEALTHY_WITHIN: Duration = Duration::from_secs(90);
/// Interval of polls.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Starts the nodes, none of which has run yet, and returns when all of them vote and are ready. With `test_clock` the
/// cluster gets a test clock.
pub async fn form_cluster(nodes: &mut [NodeProcess], admin: &AdminClient, test_clock: bool) -> Result<()> {
    form_of(nodes, admin, |first| first.init(test_clock)).await
}

/// As [`form_cluster`]. `begin` makes the folder of the first node.
pub async fn form_of(
    nodes: &mut [NodeProcess],
    admin: &AdminClient,
    begin: impl FnOnce(&NodeProcess) -> Result<()>,
) -> Result<()> {
    let count = nodes.len();
    let Some((first, others)) = nodes.split_first_mut() else { bail!("a cluster without nodes") };
    begin(first)?;
    first.start()?;
    until_healthy(std::slice::from_mut(first), "the first node is ready", async |nodes| {
        http::is_ready(&nodes[0].http).await
    })
    .await?;
    for node in others {
        node.join_token = Some(admin.join_token().await?);
        node.start()?;
    }
    until_healthy(nodes, "every node votes and is ready", async |nodes| {
        for node in nodes {
            if !http::is_ready(&node.http).await {
                return false;
            }
        }
        admin.voters().await.is_ok_and(|voters| voters == count)
    })
    .await
}

async fn until_healthy(
    nodes: &mut [NodeProcess],
    what: &str,
    holds: impl AsyncFn(&[NodeProcess]) -> bool,
) -> Result<()> {
    let until = Instant::now() + HEALTHY_WITHIN;
    while !holds(nodes).await {
        for node in nodes.iter_mut() {
            if let Some(status) = node.ended() {
                bail!("{} ended by itself ({status}); the end of its log:\n{}", node.name, node.log_end());
            }
        }
        if Instant::now() > until {
            bail!("waited {} s until {what}", HEALTHY_WITHIN.as_secs());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    Ok(())
}

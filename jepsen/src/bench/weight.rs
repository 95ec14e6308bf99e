//! What the ledger weighs on each node, by its own gauge.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::cluster::Cluster;
use crate::pages;

/// A node weighs its ledger every two seconds.
const WEIGHED_WITHIN: Duration = Duration::from_secs(3);
/// How often it is looked at again while it still changes.
const LOOKS_MAX: u32 = 20;

/// Bytes in memory and on disk, of each node, when they no longer change.
pub async fn ledgers(cluster: &Cluster) -> Result<Vec<[u64; 2]>> {
    let mut former = None;
    for _ in 0..LOOKS_MAX {
        let mut weighed = Vec::new();
        for node in cluster.nodes() {
            let of = async |kind| pages::counter(node.http, &format!("reveille_ledger_bytes{{kind=\"{kind}\"}}")).await;
            let both = of("memory").await.zip(of("disk").await);
            let (memory, disk) = both.with_context(|| format!("{} shows no metrics", node.name))?;
            weighed.push([memory, disk]);
        }
        if former.as_ref() == Some(&weighed) {
            return Ok(weighed);
        }
        former = Some(weighed);
        tokio::time::sleep(WEIGHED_WITHIN).await;
    }
    former.context("no node was looked at")
}

/// The most that any of them grew by.
pub fn most_grown(before: &[[u64; 2]], after: &[[u64; 2]]) -> u64 {
    let pairs = before.iter().flatten().zip(after.iter().flatten());
    pairs.map(|(before, after)| after.saturating_sub(*before)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_that_grew_most_is_told_by_its_larger_half() {
        assert_eq!(most_grown(&[[500, 100], [500, 100]], &[[900, 130], [700, 650]]), 550);
        assert_eq!(most_grown(&[[500, 100]], &[[400, 90]]), 0);
    }
}

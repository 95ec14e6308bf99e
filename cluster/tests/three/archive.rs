//! Blocks of the archive that a node lost: fetched from a node that has them, else named (P24).

use std::path::PathBuf;

use reveille_cluster::ops::archive::archived;
use reveille_ledger::ArchivePart;
use reveille_ledger::command::{Advance, Command};
use reveille_ledger::ids::{Hash, RunId};
use reveille_ledger::policy::DAY_MS;
use reveille_raft::ArchiveError;

use crate::cluster::*;
use crate::reconciliation::*;

const RECIPIENTS: u32 = 20;

fn file(cluster: &Cluster, index: usize, block: Hash) -> PathBuf {
    cluster.nodes[index].data().join("snapshots").join("blocks").join(block.to_string())
}

/// Makes each node build a snapshot.
async fn make_snapshots(cluster: &Cluster, leads: usize, pool: &str) {
    let before: Vec<u64> = (0..3).map(|index| cluster.nodes[index].context().replica.status().snapshot_index).collect();
    for number in 0..70 {
        cluster.put(leads, relay_named(cluster, &format!("{pool} {number}"), pool, 1)).await;
    }
    let is_new = |index: usize| cluster.nodes[index].context().replica.status().snapshot_index > before[index];
    until("each node makes a snapshot", || (0..3).all(is_new).then_some(())).await;
}

/// Sends a run, archives it, and saves its part on all nodes. Returns the run and the part.
pub async fn archive_run(cluster: &Cluster, leads: usize) -> (RunId, ArchivePart) {
    cluster.put(leads, Command::TestClock).await;
    open(cluster, leads, RECIPIENTS, 0).await;
    let replica = &cluster.nodes[leads].context().replica;
    until("all are sent", || is_all_sent(cluster.nodes[leads].context(), RECIPIENTS).then_some(())).await;
    let (run, now) = replica.read(|ledger| (ledger.runs().next().map(|(id, ..)| id), ledger.head().now));
    cluster.put(leads, Command::Advance(Advance { to: now.plus_ms(2 * DAY_MS), jump: true })).await;
    let part = || replica.read(|ledger| ledger.parts().iter().next().map(|(_, part)| part.clone()));
    let part = until("the run is archived", part).await;
    make_snapshots(cluster, leads, "spare").await;
    let blocks: Vec<Hash> = part.all_blocks().map(|block| block.hash).collect();
    let is_saved = |index| blocks.iter().all(|block| file(cluster, index, *block).exists());
    until("each node has it on disk", || (0..3).all(is_saved).then_some(())).await;
    (run.expect("a run"), part)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_block_of_archive_is_fetched_from_peer_else_named() {
    let cluster = Cluster::start_with(|options| {
        options.snapshot_every = 50;
    })
    .await;
    let leads = cluster.leader().await;
    let (run, part) = archive_run(&cluster, leads).await;
    let (details, summaries) = (part.details[0].hash, part.summaries[0].hash);
    let (harmed, other) = ((leads + 1) % 3, (leads + 2) % 3);
    let read = async |index: usize| archived(cluster.nodes[index].context(), run).await;
    let lacking = |index: usize| cluster.nodes[index].context().replica.lacking_blocks();

    // A read repairs the block that it needs.
    let whole = std::fs::read(file(&cluster, harmed, details)).expect("a block");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    std::fs::write(file(&cluster, harmed, details), &flipped).expect("it is damaged");
    let (_, opened) = read(harmed).await.expect("it is fetched").expect("a part has the run");
    assert_eq!(opened.run(run).map(|run| run.count), Some(RECIPIENTS));
    assert_eq!(std::fs::read(file(&cluster, harmed, details)).expect("a block"), whole);
    assert_eq!(lacking(harmed), []);

    // So does a copy, as a backup makes one.
    std::fs::write(file(&cluster, harmed, details), &flipped).expect("it is damaged");
    assert!(cluster.nodes[harmed].context().replica.block_file(details).is_err());
    let is_repaired = || std::fs::read(file(&cluster, harmed, details)).is_ok_and(|bytes| bytes == whole);
    until("the block is fetched", || is_repaired().then_some(())).await;

    // A snapshot finds that a block is missing, and no read is needed.
    let whole = std::fs::read(file(&cluster, other, summaries)).expect("a block");
    std::fs::remove_file(file(&cluster, harmed, summaries)).expect("it is there");
    make_snapshots(&cluster, leads, "more").await;
    let is_whole = || std::fs::read(file(&cluster, harmed, summaries)).is_ok_and(|bytes| bytes == whole);
    until("the block is fetched", || is_whole().then_some(())).await;

    // Without a copy the part and the block are named, until a copy is back.
    let copy = std::fs::read(file(&cluster, leads, details)).expect("a block");
    (0..3).for_each(|index| std::fs::remove_file(file(&cluster, index, details)).expect("it is there"));
    let error = read(other).await.expect_err("no node has it");
    assert!(matches!(&error, ArchiveError::Damaged { what, .. } if what.contains(&details.to_string())), "{error}");
    assert_eq!(lacking(other), [details]);
    std::fs::write(file(&cluster, leads, details), copy).expect("it is back");
    until("the block is fetched", || lacking(other).is_empty().then_some(())).await;
    assert!(read(other).await.expect("it is readable").is_some());
    cluster.end().await;
}

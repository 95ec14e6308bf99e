//! Blocks of the archive that a node lost: fetched from a node that has them, else named, and accepted as lost (P24).

use std::path::PathBuf;
use std::sync::Arc;

use reveille_cluster::backup::{BackupError, BackupTarget, FolderTarget};
use reveille_cluster::maintenance::archive_loss::{self, ArchiveLoss};
use reveille_cluster::maintenance::archive_reader::archived;
use reveille_ledger::ArchivePart;
use reveille_ledger::command::{Advance, Command, LostBlocks};
use reveille_ledger::ids::{Hash, RunId};
use reveille_ledger::policy::DAY_MS;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::ArchiveError;

use super::backups::make;
use super::cluster::*;
use super::reconciliation::*;

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

/// Starts a cluster, sends a run, archives it, and saves its part on all nodes. Returns the cluster, its leader, the
/// run and the part. The nodes make backups into the folder, if one is given.
pub async fn archive_run(backups: Option<PathBuf>) -> (Cluster, usize, RunId, ArchivePart) {
    let target = backups.map(|folder| Arc::new(FolderTarget::new(&folder)) as Arc<dyn BackupTarget>);
    let cluster = Cluster::start_with_backups(|options| options.snapshot_every = 50, target).await;
    let leads = cluster.leader().await;
    cluster.put(leads, Command::TestClock).await;
    open(&cluster, leads, RECIPIENTS, 0).await;
    let replica = &cluster.nodes[leads].context().replica;
    until("all are sent", || is_all_sent(cluster.nodes[leads].context(), RECIPIENTS).then_some(())).await;
    let (run, now) = replica.read(|ledger| (ledger.runs().next().map(|(id, ..)| id), ledger.head().now));
    cluster.put(leads, Command::Advance(Advance { to: now.plus_ms(2 * DAY_MS), jump: true })).await;
    let part = || replica.read(|ledger| ledger.parts().iter().next().map(|(_, part)| part.clone()));
    let part = until("the run is archived", part).await;
    make_snapshots(&cluster, leads, "spare").await;
    let blocks: Vec<Hash> = part.all_blocks().map(|block| block.hash).collect();
    let is_saved = |index| blocks.iter().all(|block| file(&cluster, index, *block).exists());
    until("each node has it on disk", || (0..3).all(is_saved).then_some(())).await;
    (cluster, leads, run.expect("a run"), part)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_block_of_archive_is_fetched_from_peer_else_named() {
    let (cluster, leads, run, part) = archive_run(None).await;
    let (details, summaries) = (part.details[0].hash, part.summaries[0].hash);
    let (harmed, other) = ((leads + 1) % 3, (leads + 2) % 3);
    let read = async |index: usize| archived(cluster.nodes[index].context(), run, None).await;
    let missing = |index: usize| cluster.nodes[index].context().replica.missing_blocks();

    // A read repairs the block that it needs.
    let whole = std::fs::read(file(&cluster, harmed, details)).expect("a block");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    std::fs::write(file(&cluster, harmed, details), &flipped).expect("it is damaged");
    let (_, opened) = read(harmed).await.expect("it is fetched").expect("a part has the run");
    assert_eq!(opened.run(run).map(|run| run.count), Some(RECIPIENTS));
    assert_eq!(std::fs::read(file(&cluster, harmed, details)).expect("a block"), whole);
    assert_eq!(missing(harmed), []);

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
    assert_eq!(missing(other), [details]);
    std::fs::write(file(&cluster, leads, details), copy).expect("it is back");
    until("the block is fetched", || missing(other).is_empty().then_some(())).await;
    assert!(read(other).await.expect("it is readable").is_some());
    cluster.end().await;
}

/// Removes the file of a block on each node.
fn lose(cluster: &Cluster, block: Hash) {
    (0..3).for_each(|index| std::fs::remove_file(file(cluster, index, block)).expect("it is there"));
}

/// Returns the blocks that are found to be lost.
fn lost(loss: &ArchiveLoss) -> Vec<Hash> {
    loss.parts.iter().flat_map(|part| part.blocks.iter().copied()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_lost_on_all_nodes_fails_backups_until_its_loss_is_accepted() {
    let (cluster, leads, run, part) = archive_run(None).await;
    let (details, summaries) = (part.details[0].hash, part.summaries[0].hash);
    let (other, third) = ((leads + 1) % 3, (leads + 2) % 3);
    let find = async |index: usize| archive_loss::find(cluster.nodes[index].context()).await;
    assert_eq!(find(other).await, ArchiveLoss::default());
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let [first, second] = folders.each_ref().map(|folder| FolderTarget::new(folder.path()));

    // Whatever a backup does not find is not lost while a member has it, or does not say.
    let copy = std::fs::read(file(&cluster, third, details)).expect("a block");
    lose(&cluster, details);
    let failed = make(&cluster, leads, &first);
    assert!(matches!(&failed, Err(BackupError::Source(why)) if why.contains(&details.to_string())), "{failed:?}");
    let silent = cluster.nodes[third].id;
    cluster.network.lose_requests(cluster.nodes[leads].id, silent, "FindUnreadableBlocks");
    let unsure = find(leads).await;
    assert_eq!(lost(&unsure), [details]);
    assert!(matches!(unsure.silent.as_slice(), [why] if why.starts_with("n")), "{:?}", unsure.silent);
    cluster.network.heal();
    for asker in [leads, other] {
        cluster.network.lose_requests(cluster.nodes[asker].id, silent, "FetchFile");
    }
    std::fs::write(file(&cluster, third, details), copy).expect("it is back");
    assert_eq!(find(leads).await, ArchiveLoss::default());
    cluster.network.heal();
    let is_back = |index| file(&cluster, index, details).exists();
    until("the others fetch it", || (0..3).all(is_back).then_some(())).await;

    // After the acceptance the run has its summary on all nodes, and backups are made.
    lose(&cluster, details);
    make(&cluster, leads, &first).expect_err("no node has it");
    let loss = find(other).await;
    assert_eq!((lost(&loss), loss.silent.len()), (vec![details], 0));
    let accept = |block| {
        let lost = LostBlocks { part: loss.parts[0].key, blocks: vec![block] };
        cluster.put(leads, Command::ArchiveLossAccept(vec![lost]))
    };
    let accepted = accept(details).await;
    assert_eq!(accepted.outcome, CommandOutcome::Changed(1));
    assert!(matches!(accept(details).await.outcome, CommandOutcome::Refused(_)), "nothing names it any more");
    make(&cluster, leads, &first).expect("a backup");
    for index in 0..3 {
        let context = cluster.nodes[index].context();
        context.replica.wait_applied(accepted.index, soon()).await.expect("it is applied");
        let (_, opened) = archived(context, run, None).await.expect("it is readable").expect("a part has the run");
        assert!(opened.run(run).is_none() && opened.summaries().contains(&run), "the counts are left");
        until("nothing is looked for", || context.replica.missing_blocks().is_empty().then_some(())).await;
    }

    // Without any block its reads say that it is lost. A former backup is of no use to another target.
    lose(&cluster, summaries);
    make(&cluster, leads, &second).expect_err("no node has it");
    assert_eq!(lost(&find(leads).await), [summaries]);
    assert_eq!(accept(summaries).await.outcome, CommandOutcome::Changed(1));
    make(&cluster, leads, &second).expect("a backup");
    let error = archived(cluster.nodes[leads].context(), run, None).await.expect_err("it is lost");
    assert!(matches!(error, ArchiveError::Lost { .. }), "{error}");
    let unknown = RunId { index: run.index + 1_000_000, place: 0 };
    assert!(archived(cluster.nodes[leads].context(), unknown, None).await.expect("no part may have it").is_none());
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_lost_on_all_nodes_is_restored_from_a_backup() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cluster, leads, run, part) = archive_run(Some(folder.path().to_owned())).await;
    let details = part.details[0].hash;
    make(&cluster, leads, &FolderTarget::new(folder.path())).expect("a backup");
    lose(&cluster, details);
    let other = cluster.nodes[(leads + 1) % 3].context();
    other.replica.block_file(details).expect_err("it is lost");
    assert_eq!(archive_loss::find(other).await, ArchiveLoss::default());
    assert!(archived(other, run, None).await.expect("it is readable").is_some());
    cluster.end().await;
}

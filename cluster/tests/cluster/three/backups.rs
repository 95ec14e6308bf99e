//! Backups of a running cluster: whole, incremental, repaired, and never worse for a writer that died (P21).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use reveille_cluster::backup::{
    self, BackupError, BackupSource, BackupTarget, BackupTask, BucketAccess, BucketTarget, FolderTarget, MadeBackup,
    StoredFile, TargetAddress, create, list, prune, read_manifest, verify,
};
use reveille_cluster::file_store::GeneratedAudience;
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::secret::Secret;
use reveille_ledger::command::{Command, OptOut};
use reveille_raft::ClusterId;

use super::archive::archive_run;
use super::attachments::{stored, template_with_file};
use super::cluster::*;
use super::reconciliation::*;
use crate::support::s3_server::{BUCKET, S3Server};

const CLUSTER: ClusterId = ClusterId(7);
const KEEP: usize = 1;

fn source(context: &NodeContext) -> BackupSource<'_> {
    BackupSource {
        cluster: CLUSTER,
        replica: &context.replica,
        parts: &context.files,
        node: &context.introduction.name,
        version: "test",
        now: context.clock.wall(),
    }
}

pub fn make(cluster: &Cluster, index: usize, target: &dyn BackupTarget) -> Result<MadeBackup, BackupError> {
    let context = cluster.nodes[index].context();
    tokio::task::block_in_place(|| create(&source(context), target, &mut BackupTask::new(|_| ())))
}

/// Changes the state.
async fn opt_out(cluster: &Cluster, index: usize, recipient: &str) {
    let keys = vec![recipient.to_owned()];
    cluster.put(index, Command::OptOut(OptOut { tenant: "default".to_owned(), keys })).await;
}

fn count_files(target: &dyn BackupTarget) -> usize {
    ["backups", "blocks", "optouts"].iter().map(|folder| target.list(folder).expect("a list").len()).sum()
}

fn verify_newest(target: &dyn BackupTarget) -> Result<(), BackupError> {
    let newest = list(target)?.first().expect("a backup").id;
    verify(target, &read_manifest(target, newest)?, &mut BackupTask::new(|_| ())).map(drop)
}

/// A target whose writer dies at a write: this one and all later ones do not happen. It may be called by tasks.
struct DyingTarget {
    inner: Arc<dyn BackupTarget>,
    left: AtomicUsize,
}

impl DyingTarget {
    fn new(inner: &Arc<dyn BackupTarget>, left: usize) -> DyingTarget {
        DyingTarget { inner: Arc::clone(inner), left: AtomicUsize::new(left) }
    }
}

impl BackupTarget for DyingTarget {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let alive = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if !alive {
            return Err(io::Error::other("the writer is dead"));
        }
        tokio::task::block_in_place(|| self.inner.put(name, bytes))
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        tokio::task::block_in_place(|| self.inner.get(name))
    }

    fn stat(&self, name: &str) -> io::Result<Option<StoredFile>> {
        tokio::task::block_in_place(|| self.inner.stat(name))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        tokio::task::block_in_place(|| self.inner.list(folder))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        tokio::task::block_in_place(|| self.inner.delete(name))
    }

    fn place(&self, name: &str) -> String {
        self.inner.place(name)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_is_whole_and_incremental_and_survives_its_writers_and_names_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    check_target(&(Arc::new(FolderTarget::new(folder.path())) as Arc<dyn BackupTarget>)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bucket_of_a_real_service_keeps_backups_as_a_folder_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(server) = S3Server::start(folder.path(), &[]) else { return };
    let Ok(TargetAddress::Bucket(address)) = format!("s3://{BUCKET}/cluster/one").parse() else { panic!("it is one") };
    let access = BucketAccess {
        endpoint: format!("http://{}", server.address).parse().expect("loopback"),
        region: "us-east-1".to_owned(),
        credentials: Secret::File(server.credentials.to_str().expect("a path").to_owned()),
    };
    let target: Arc<dyn BackupTarget> = Arc::new(BucketTarget::new(address, access).expect("a target"));
    check_target(&target).await;

    // A list of more than one page.
    let target = DyingTarget::new(&target, usize::MAX);
    for file in 0..1_001 {
        target.put(&format!("pages/{file}"), b"x").expect("it is written");
    }
    let listed = target.list("pages").expect("a list");
    let mut names: Vec<&str> = listed.iter().map(|file| file.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 1_001);
    assert!(target.list("page").expect("a list").is_empty(), "a folder is no prefix of a name");
    let known = target.stat("pages/7").expect("it answers").expect("it is there");
    let age = SystemTime::now().duration_since(known.modified).unwrap_or_default();
    assert!(known.bytes == 1 && age < Duration::from_secs(600), "{known:?}");
}

async fn check_target(inner: &Arc<dyn BackupTarget>) {
    let target = DyingTarget::new(inner, usize::MAX);
    let (cluster, leads, run, _) = archive_run(None).await;
    let audience = GeneratedAudience { seed: 7, recipients: 600, columns: vec!["name".to_owned()] };
    let (part, _) = sealed(&cluster, leads, &audience).await;
    let file = stored(&cluster, leads, b"terms").await;
    cluster.put(leads, template_with_file(file, 5)).await;

    // The first one is whole: state, archive, audiences and attachments.
    let first = make(&cluster, leads, &target).expect("a backup");
    let manifest = read_manifest(&target, first.id).expect("its manifest");
    let has = |wanted| manifest.parts.iter().any(|(name, _)| *name == wanted);
    assert!(!manifest.archive.is_empty() && has(part) && has(file));
    let loaded = verify(&target, &manifest, &mut BackupTask::new(|_| ())).expect("it is whole");
    assert!(loaded.run(run).is_none() && !loaded.parts().is_empty(), "the run is in the archive");
    assert_eq!(first.copied_files, first.files - 1, "all but the manifest are copied");

    // The next one copies what changed, on any node.
    opt_out(&cluster, leads, "first@example.net").await;
    let other = (leads + 1) % 3;
    let applied = cluster.nodes[leads].context().replica.read(|ledger| ledger.head().applied);
    let reaches = || cluster.nodes[other].context().replica.read(|ledger| ledger.head().applied >= applied);
    until("the other node has applied it", || reaches().then_some(())).await;
    let second = make(&cluster, other, &target).expect("a backup");
    assert!(second.id > first.id && (1..second.files / 2).contains(&second.copied_files), "{second:?}");

    // A writer that dies at any write leaves the former ones whole, and the next one completes.
    for left in 0.. {
        opt_out(&cluster, leads, &format!("r{left}@example.net")).await;
        let dying = DyingTarget::new(inner, left);
        let died = make(&cluster, leads, &dying);
        let listed = list(&target).expect("a list");
        assert!(listed.iter().all(|backup| backup.manifest.is_ok()));
        assert!(listed.iter().any(|backup| backup.verified), "a verified one is there");
        verify_newest(&target).expect("what has a manifest is whole");
        match died {
            Err(BackupError::Target { .. }) => {}
            made => {
                made.expect("it outlived all writes");
                assert!(left > 3, "it wrote blocks, a manifest and the mark");
                break;
            }
        }
    }

    // Each damaged file is named, and never loads.
    let newest = list(&target).expect("a list").remove(0);
    let hashes = newest.manifest.as_ref().expect("a manifest").hashes();
    let names: Vec<String> = hashes.map(|hash| format!("blocks/{hash}")).chain([newest.id.manifest()]).collect();
    for name in names {
        let (whole, place) = (target.get(&name).expect("a file"), target.place(&name));
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 4;
        for harm in [flipped.as_slice(), &whole[..whole.len() / 2], b""] {
            target.put(&name, harm).expect("it is damaged");
            let error = verify_newest(&target).expect_err("it is damaged").to_string();
            assert!(error.contains(&place), "{error}");
        }
        target.delete(&name).expect("it is there");
        if name.starts_with("blocks") {
            let error = verify_newest(&target).expect_err("it is gone").to_string();
            assert!(error.contains(&place) && error.contains("is missing"), "{error}");
        }
        target.put(&name, &whole).expect("it is whole again");
    }
    verify_newest(&target).expect("it is whole");

    // The next backup repairs what it needs.
    target.put(&format!("blocks/{part}"), b"damaged").expect("it is damaged");
    opt_out(&cluster, leads, "last@example.net").await;
    make(&cluster, leads, &target).expect("it repairs the part");
    verify_newest(&target).expect("it is whole");

    // Pruning keeps what the newest verified backup needs, and young files.
    let count = count_files(&target);
    let pruned = prune(&target, CLUSTER, KEEP, SystemTime::now()).expect("it prunes");
    assert!(pruned.backups > 2 && pruned.files == 0, "{pruned:?}");
    assert!(count_files(&target) < count);
    let in_two_days = SystemTime::now() + Duration::from_secs(2 * 86_400);
    let pruned = prune(&target, CLUSTER, KEEP, in_two_days).expect("it prunes");
    assert!(pruned.backups == 0 && pruned.files > 0, "{pruned:?}");
    verify_newest(&target).expect("it is whole");
    assert_eq!(backup::list(&target).expect("a list").len(), KEEP);
    // What was not verified never replaces what was.
    let marks = target.list("backups").expect("a list");
    let mark = marks.iter().find(|file| file.name.ends_with(".verified")).expect("a mark");
    target.delete(&mark.name).expect("it is there");
    opt_out(&cluster, leads, "more@example.net").await;
    let newest = make(&cluster, leads, &target).expect("a backup");
    target.delete(&newest.id.manifest().replace(".manifest", ".verified")).expect("no mark");
    prune(&target, CLUSTER, KEEP, in_two_days).expect("it prunes");
    assert_eq!(backup::list(&target).expect("a list").len(), 2, "none was verified, so none is removed");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_makes_backups_and_the_next_one_goes_on_with_opt_outs() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = FolderTarget::new(folder.path());
    let mut cluster = Cluster::start_with_backups(|_| {}, Some(Arc::new(target.clone()))).await;
    let leads = cluster.leader().await;
    opt_out(&cluster, leads, "early@example.net").await;
    let recorded = |cluster: &Cluster, index: usize| {
        cluster.nodes[index].context().replica.read(|ledger| ledger.head().backups.last)
    };
    let first = until("a backup is made and recorded", || recorded(&cluster, leads)).await;
    let streamed = |after: u64| {
        let found = backup::opt_outs::read(&target, CLUSTER, after).expect("there is no gap");
        found.changes.into_iter().map(|change| change.recipient).collect::<Vec<String>>()
    };
    opt_out(&cluster, leads, "one@example.net").await;
    until("it is at the target", || streamed(first.index).contains(&"one@example.net".to_owned()).then_some(())).await;
    cluster.kill(leads).await;
    let next = cluster.leader_but(Some(leads)).await;
    opt_out(&cluster, next, "two@example.net").await;
    until("it is at the target", || streamed(first.index).contains(&"two@example.net".to_owned()).then_some(())).await;
    assert_eq!(recorded(&cluster, next), Some(first), "the next one is due in an hour");
    assert_eq!(list(&target).expect("a list").len(), 1);
    let all = streamed(first.index);
    assert!(all.contains(&"one@example.net".to_owned()), "{all:?}");
    cluster.end().await;
}

/// A target whose writes do not end while it hangs, as on a mount whose server is gone.
struct HangingTarget {
    inner: FolderTarget,
    hangs: AtomicBool,
    /// The next write panics.
    panics: AtomicBool,
    /// Writes that wait.
    waiting: AtomicUsize,
}

impl BackupTarget for HangingTarget {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        assert!(!self.panics.swap(false, Ordering::SeqCst), "a defect of the target");
        self.inner.put(name, bytes)
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        self.inner.get(name)
    }

    fn stat(&self, name: &str) -> io::Result<Option<StoredFile>> {
        self.inner.stat(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        self.inner.list(folder)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.inner.delete(name)
    }

    fn place(&self, name: &str) -> String {
        self.inner.place(name)
    }
}

/// Counts the failures to add opt-outs, and nothing else.
#[derive(Clone, Default)]
struct StreamFailures(Arc<AtomicU64>);

impl metrics::Recorder for StreamFailures {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}
    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        match key.name() {
            "reveille_opt_out_stream_failures_total" => metrics::Counter::from_arc(Arc::clone(&self.0)),
            _ => metrics::Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::noop()
    }

    fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_target_fails_backups_and_opt_outs_and_holds_one_thread_of_each() {
    let failures = StreamFailures::default();
    metrics::set_global_recorder(failures.clone()).expect("no other test has one");
    let folder = tempfile::tempdir().expect("a folder");
    let inner = FolderTarget::new(folder.path());
    let (hangs, panics) = (AtomicBool::new(true), AtomicBool::new(false));
    let target = Arc::new(HangingTarget { inner, hangs, panics, waiting: AtomicUsize::new(0) });
    let waiting = || target.waiting.load(Ordering::SeqCst);
    let cluster = Cluster::start_with_backups(|_| {}, Some(Arc::clone(&target) as Arc<dyn BackupTarget>)).await;
    let leads = cluster.leader().await;
    let history = || cluster.nodes[leads].context().replica.read(|ledger| ledger.head().backups);
    let failed = until("the backup counts as failed", || history().failed_at).await;
    until("and again", || history().failed_at.filter(|at| *at > failed)).await;
    assert_eq!((waiting(), history().last), (1, None));
    target.hangs.store(false, Ordering::SeqCst);
    let first = until("it ends", || history().last).await;
    assert_eq!(history().failed_at, None);

    target.hangs.store(true, Ordering::SeqCst);
    opt_out(&cluster, leads, "one@example.net").await;
    until("the write hangs", || (waiting() == 1).then_some(())).await;
    let before = failures.0.load(Ordering::SeqCst);
    until("it counts as failed twice", || (failures.0.load(Ordering::SeqCst) >= before + 2).then_some(())).await;
    assert_eq!(waiting(), 1, "each tick waits for the same write");
    target.hangs.store(false, Ordering::SeqCst);
    let streamed = |recipient: &str| {
        let found = backup::opt_outs::read(&*target, CLUSTER, first.index).expect("there is no gap");
        found.changes.iter().any(|change| change.recipient == recipient).then_some(())
    };
    until("it is at the target", || streamed("one@example.net")).await;

    let before = failures.0.load(Ordering::SeqCst);
    target.panics.store(true, Ordering::SeqCst);
    opt_out(&cluster, leads, "two@example.net").await;
    until("it is at the target after a panic", || streamed("two@example.net")).await;
    assert!(failures.0.load(Ordering::SeqCst) > before, "the panic counts as a failure");
    cluster.end().await;
}

//! Group commit: appends that arrive during a sync share the next one, within the limit of the queue.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::{Condvar, Mutex};

use crate::support::*;
use reveille_raft::wal::{Disk, DiskFile, FolderDisk, MemoryDisk, QUEUE_BYTES_MAX, Wal, WalOptions};

/// A disk whose syncs wait at a gate.
#[derive(Clone)]
pub struct Gate {
    disk: Arc<dyn Disk>,
    bar: Arc<Bar>,
}

#[derive(Default)]
struct Bar {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// Number of callers whose append is not answered yet. A sync waits until `awaited` callers have one.
    waiting: usize,
    awaited: usize,
}

impl Gate {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Gate { disk, bar: Arc::default() }
    }

    pub fn close(&self) {
        self.change(|state| state.closed = true);
    }

    pub fn open(&self) {
        self.change(|state| state.closed = false);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.bar.state.lock());
        self.bar.changed.notify_all();
    }
}

impl Bar {
    fn pass(&self) {
        let mut state = self.state.lock();
        while state.closed || state.waiting < state.awaited {
            let late = self.changed.wait_for(&mut state, Duration::from_secs(60)).timed_out();
            assert!(!late, "the gate was not opened");
        }
    }
}

impl Disk for Gate {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(GatedFile { file: self.disk.create(name)?, bar: Arc::clone(&self.bar) }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(GatedFile { file: self.disk.open(name)?, bar: Arc::clone(&self.bar) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.disk.sync_folder()
    }
}

struct GatedFile {
    file: Arc<dyn DiskFile>,
    bar: Arc<Bar>,
}

impl DiskFile for GatedFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.file.cut(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.bar.pass();
        self.file.sync()
    }
}

const THREADS: u64 = 64;
const APPENDS: u64 = 10_000;

/// The gate makes the result independent of the disk's speed: a sync lasts until all threads have requested the next
/// one. So 10,000 appends need about twice 10,000 / 64 syncs, even on the slowest disk.
#[test]
fn sixty_four_threads_share_their_syncs() {
    let folder = tempfile::tempdir().expect("a folder");
    let gate = Gate::new(Arc::new(FolderDisk::open(folder.path()).expect("a disk")));
    let (wal, _) = Wal::open(Arc::new(gate.clone()), &WalOptions::new(NODE)).expect("opens");
    let health = wal.health();
    let syncs_at_start = health.counters().syncs;
    let next = tokio::sync::Mutex::new(1);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    gate.change(|state| state.awaited = THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while runtime.handle().block_on(append_one(&wal, &gate, &next)) {}
                gate.change(|state| state.awaited -= 1);
            });
        }
    });
    let (counters, syncs) = (health.counters(), health.counters().syncs - syncs_at_start);
    println!(
        "{APPENDS} appends from {THREADS} threads: {syncs} syncs, {} batches, {} bytes",
        counters.batches, counters.bytes
    );
    assert_eq!(wal.state().last, Some(point(1, APPENDS)));
    assert!(syncs < APPENDS / 4, "{syncs} syncs");
    drop(wal);
    let (wal, report) = Wal::open(Arc::new(gate), &WalOptions::new(NODE)).expect("opens");
    assert_eq!((content(&wal).entries.len() as u64, report.records), (APPENDS, APPENDS));
}

/// Appends the next entry and waits until it is durable. Returns false when all are done.
async fn append_one(wal: &Wal, gate: &Gate, next: &tokio::sync::Mutex<u64>) -> bool {
    let (told, heard) = tokio::sync::oneshot::channel();
    let bar = Arc::clone(&gate.bar);
    let done = Box::new(move |outcome| {
        bar.state.lock().waiting -= 1;
        drop(told.send(outcome));
    });
    {
        let mut next = next.lock().await;
        if *next > APPENDS {
            return false;
        }
        // Counts the append before it is submitted, because the answer may come before the call returns.
        gate.change(|state| state.waiting += 1);
        wal.append(vec![entry(1, *next, 200)], done).await.expect("accepted");
        *next += 1;
    }
    heard.await.expect("answered").expect("written");
    true
}

#[tokio::test]
async fn append_waits_for_room_in_queue() {
    let gate = Gate::new(Arc::new(MemoryDisk::new()));
    let (wal, _) = Wal::open(Arc::new(gate.clone()), &WalOptions::new(NODE)).expect("opens");
    gate.close();
    let length = 1 << 20;
    let mut index = 1;
    let stuck = loop {
        let mut append = Box::pin(wal.append(vec![entry(1, index, length)], Box::new(|_| ())));
        match append.as_mut().now_or_never() {
            Some(answer) => answer.expect("accepted"),
            None => break append,
        }
        index += 1;
    };
    assert!(index as usize * length <= QUEUE_BYTES_MAX + length, "{index} MiB in the queue");
    gate.open();
    stuck.await.expect("accepted when there is room");
    assert_eq!(wal.state().last, Some(point(1, index)));
}

#[tokio::test]
async fn unawaited_commit_is_written_with_next_group_or_soon() {
    let disk = MemoryDisk::new();
    let (wal, _) = Wal::open(Arc::new(disk.clone()), &WalOptions::new(NODE)).expect("opens");
    wal.append(vec![entry(1, 1, 10)], Box::new(|_| ())).await.expect("accepted");
    wal.commit(Some(point(1, 1))).await.expect("accepted");
    let health = wal.health();
    let written = async {
        while health.counters().records < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("written without company");
    drop(wal);
    assert_eq!(open(&disk.crash(3), &inline()).0.state().committed, Some(point(1, 1)));
}

#[tokio::test]
async fn dropped_log_writes_submitted_entries() {
    let disk = MemoryDisk::new();
    let (wal, _) = Wal::open(Arc::new(disk.clone()), &WalOptions::new(NODE)).expect("opens");
    for index in 1..=50 {
        wal.append(vec![entry(1, index, 10)], Box::new(|_| ())).await.expect("accepted");
    }
    wal.commit(Some(point(1, 50))).await.expect("accepted");
    let (before, failure) = (content(&wal), wal.health().failure());
    drop(wal);
    assert_eq!(content(&open(&disk.crash(1), &inline()).0), before);
    assert!(failure.borrow().is_none());
}

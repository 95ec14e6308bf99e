//! A leader that cannot do its work hands over.

use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use reveille_cluster::site::Site;
use reveille_cluster::station::Station;
use reveille_ledger::ids::NodeId;
use reveille_raft::Role;
use reveille_raft::wal::{Disk, DiskFile, MemoryDisk};

use crate::three::{started, stopped, until};

/// A disk that answers no sync while it hangs.
#[derive(Clone, Default)]
struct Hanging {
    disk: MemoryDisk,
    hangs: Arc<(Mutex<bool>, Condvar)>,
}

impl Hanging {
    fn set(&self, hangs: bool) {
        *self.hangs.0.lock() = hangs;
        self.hangs.1.notify_all();
    }

    fn wait(&self) {
        let mut hangs = self.hangs.0.lock();
        self.hangs.1.wait_while(&mut hangs, |hangs| *hangs);
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(HangingFile { file, disk: self.clone() })
    }
}

impl Disk for Hanging {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.disk.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(self.disk.open(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.wait();
        self.disk.sync_folder()
    }
}

struct HangingFile {
    file: Arc<dyn DiskFile>,
    disk: Hanging,
}

impl DiskFile for HangingFile {
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
        self.disk.wait();
        self.file.sync()
    }
}

/// Who leads an epoch that is in force.
fn leader(stations: &[Station]) -> Option<NodeId> {
    let leads =
        |site: &Arc<Site>| matches!(*site.replica.role().borrow(), Role::Leader { .. }) && site.term().is_some();
    stations.iter().map(|station| &station.site).find(|site| leads(site)).map(|site| site.me.node)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_disk_hangs_hands_over_though_its_heartbeats_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let disks: Vec<Hanging> = (0..3).map(|_| Hanging::default()).collect();
    let stations = started(folder.path(), |options| {
        options.log_disk = Some(Arc::new(disks[options.node.0 as usize - 1].clone()));
    })
    .await;
    tokio::task::block_in_place(|| {
        until("somebody leads", || leader(&stations).is_some());
        let former = leader(&stations).expect("it leads still");
        let disk = &disks[former.0 as usize - 1];
        disk.set(true);
        let others = || stations.iter().filter(|station| station.site.me.node != former);
        until("another one leads", || others().any(|station| station.site.term().is_some()));
        disk.set(false);
        until("the former follows", || leader(&stations).is_some_and(|leader| leader != former));
    });
    stopped(stations).await;
}

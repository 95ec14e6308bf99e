//! What the scrub of this node has found (`maintenance/scrub.rs`), and requests for it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reveille_ledger::ids::{Hash, Time};
use reveille_raft::{FileAtRest, FileDamage};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Maximum number of damaged files in a report.
const REPORTED_MAX: usize = 20;

/// A file that the scrub checks. It is shown as its path in the data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
pub(crate) enum ScrubbedFile {
    /// A file of the replica.
    Replica(FileAtRest),
    /// A part of a sealed audience.
    #[display("parts/{_0}")]
    AudiencePart(Hash),
}

impl ScrubbedFile {
    /// Returns how the file is repaired.
    pub fn repair(self) -> FileRepair {
        match self {
            ScrubbedFile::AudiencePart(_) | ScrubbedFile::Replica(FileAtRest::ArchiveBlock(_)) => FileRepair::FromPeer,
            ScrubbedFile::Replica(_) => FileRepair::BySnapshots,
        }
    }
}

/// How a damaged file is repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRepair {
    /// New snapshots of this node replace it. Until then the node may not be able to start.
    BySnapshots,
    /// Another node sends it.
    FromPeer,
}

/// A damaged file of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFile {
    /// Path in the data folder.
    pub path: String,
    /// What is wrong with it.
    pub damage: FileDamage,
    /// How it is repaired.
    pub repair: FileRepair,
}

/// Result of checks of all files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Number of the last requested pass.
    pub requested: u64,
    /// Number of the last requested pass that has ended. Less than `requested`: one is running.
    pub ended: u64,
    /// The last pass that has ended, requested or not.
    pub last: Option<ScrubPass>,
    /// Files that are damaged now, at most 20.
    pub damaged: Vec<DamagedFile>,
    /// Number of files that are damaged now.
    pub damaged_count: u64,
    /// Number of files that were damaged and are intact or gone, since the process started.
    pub repaired: u64,
}

/// A check of all files that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPass {
    /// Wall clock at its end.
    pub at: Time,
    /// Number of checked files.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// State of the scrub of a node.
pub struct Scrub {
    requested: watch::Sender<u64>,
    found: Mutex<ScrubState>,
}

#[derive(Default)]
struct ScrubState {
    ended: u64,
    last: Option<ScrubPass>,
    damaged: BTreeMap<ScrubbedFile, FileDamage>,
    repaired: u64,
}

impl Default for Scrub {
    fn default() -> Scrub {
        Scrub { requested: watch::Sender::new(0), found: Mutex::default() }
    }
}

impl Scrub {
    /// Requests a pass at full speed. A pass that is running is given up.
    pub fn request(&self) {
        self.requested.send_modify(|number| *number += 1);
    }

    /// Returns the number of the last requested pass, which changes with each request.
    pub(crate) fn requested(&self) -> watch::Receiver<u64> {
        self.requested.subscribe()
    }

    /// Returns what is known now.
    pub fn report(&self) -> ScrubReport {
        let found = self.found.lock();
        let damaged = found.damaged.iter().take(REPORTED_MAX).map(|(file, damage)| DamagedFile {
            path: file.to_string(),
            damage: damage.clone(),
            repair: file.repair(),
        });
        ScrubReport {
            requested: *self.requested.borrow(),
            ended: found.ended,
            last: found.last,
            damaged: damaged.collect(),
            damaged_count: found.damaged.len() as u64,
            repaired: found.repaired,
        }
    }

    /// Records the end of a pass. `requested` is the number that [`Scrub::requested`] had when the pass began.
    pub(crate) fn pass_ended(&self, requested: u64, pass: ScrubPass) {
        let mut found = self.found.lock();
        (found.ended, found.last) = (requested, Some(pass));
    }

    /// Records a damaged file. Returns true if it was not known.
    pub(crate) fn damaged(&self, file: ScrubbedFile, damage: FileDamage) -> bool {
        let mut found = self.found.lock();
        let is_new = found.damaged.insert(file, damage).is_none();
        metrics::gauge!("reveille_damaged_files").set(found.damaged.len() as f64);
        is_new
    }

    /// Records an intact file. Returns true if it was damaged.
    pub(crate) fn intact(&self, file: ScrubbedFile) -> bool {
        let mut found = self.found.lock();
        let was_damaged = found.damaged.remove(&file).is_some();
        found.repaired += u64::from(was_damaged);
        metrics::gauge!("reveille_damaged_files").set(found.damaged.len() as f64);
        was_damaged
    }

    /// Returns the files that are damaged now.
    pub(crate) fn all_damaged(&self) -> Vec<ScrubbedFile> {
        self.found.lock().damaged.keys().copied().collect()
    }
}

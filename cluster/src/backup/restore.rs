//! Makes the first data folder of a cluster from a state: that of a backup, or that of the best node that is left.
//!
//! Everything is read and checked before anything is written. The caller applies the entry of the restore between
//! [`verify()`](super::verify()) and [`write_folder`], and makes identity and keys of the folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reveille_ledger::Ledger;
use reveille_ledger::command::{Actor, Command, Entry, OPT_OUTS_MAX, OptOut, OptOutTakeBack};
use reveille_ledger::ids::{Hash, NodeId};
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::Member;
use reveille_raft::offline::{FirstFolder, OfflineFolder};
use reveille_raft::snapshot::content_of_block;

use super::manifest::block_name;
use super::opt_outs::{OptOutChange, OptOutKind};
use super::target::BackupTarget;
use super::verify::{parts_of, target_error};
use super::work::{BackupError, BackupPhase, BackupTask};
use crate::file_store::{self, FileStore};

/// Folder of audience parts in a data folder.
const PARTS: &str = "parts";

/// Applies opt-outs after a backup, as entries that follow the last one. Returns how many recipients changed.
pub fn apply_opt_outs(ledger: &mut Ledger, changes: &[OptOutChange]) -> u64 {
    let joins = |one: &OptOutChange, other: &OptOutChange| {
        one.kind == OptOutKind::OptedOut && other.kind == one.kind && one.tenant == other.tenant
    };
    let groups = changes.chunk_by(joins).flat_map(|group| group.chunks(OPT_OUTS_MAX));
    groups.map(|group| apply_group(ledger, group)).sum()
}

/// Applies changes of one kind and tenant.
fn apply_group(ledger: &mut Ledger, group: &[OptOutChange]) -> u64 {
    let Some(OptOutChange { index, tenant, recipient, kind }) = group.first() else { return 0 };
    let command = match kind {
        OptOutKind::OptedOut => {
            let keys = group.iter().map(|change| change.recipient.clone()).collect();
            Command::OptOut(OptOut { tenant: tenant.clone(), keys })
        }
        OptOutKind::TakenBack => {
            // It opted out after the backup, and took that back.
            let place = (tenant.clone(), recipient.clone());
            let Some(last) = ledger.opt_out_of(&place).map(|known| known.last) else { return 0 };
            // It opted out again after that: the state of a survivor may be newer than the change.
            if last > *index && ledger.head().restored.is_some_and(|restored| last < restored.index) {
                return 0;
            }
            let (tenant, key) = place;
            let reason = format!("taken back by entry {index} of the former cluster");
            Command::OptOutTakeBack(OptOutTakeBack { tenant, key, last, reason })
        }
    };
    let head = ledger.head();
    let (at, now) = (head.applied + 1, head.real_now());
    let epoch = head.current_epoch().unwrap_or_default();
    match ledger.apply(at, &Entry { epoch, now, actor: Actor::System, command }).reply.outcome {
        CommandOutcome::Changed(moved) => moved,
        _ => 0,
    }
}

/// Where the files are that a state names.
pub trait StateFiles {
    /// Returns a block of the archive, uncompressed. `None`: it is lost.
    ///
    /// # Errors
    /// [`BackupError`].
    fn archive_block(&self, hash: Hash) -> Result<Option<Vec<u8>>, BackupError>;

    /// Returns the file of an audience part. `None`: it is lost.
    ///
    /// # Errors
    /// [`BackupError`].
    fn part(&self, part: Hash) -> Result<Option<Vec<u8>>, BackupError>;
}

/// The files of a backup, which was verified.
pub struct BackupFiles {
    /// Where they are.
    pub target: Arc<dyn BackupTarget>,
    /// Parts that the backup lacks.
    pub lost: Vec<Hash>,
}

impl BackupFiles {
    fn get(&self, hash: Hash) -> Result<Vec<u8>, BackupError> {
        let name = block_name(hash);
        self.target.get(&name).map_err(|source| target_error(self.target.as_ref(), "read", &name, source))
    }
}

impl StateFiles for BackupFiles {
    fn archive_block(&self, hash: Hash) -> Result<Option<Vec<u8>>, BackupError> {
        Ok(Some(content_of_block(hash, &self.get(hash)?)?))
    }

    fn part(&self, part: Hash) -> Result<Option<Vec<u8>>, BackupError> {
        if self.lost.contains(&part) { Ok(None) } else { self.get(part).map(Some) }
    }
}

/// Files that a state names, and that are nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostFiles {
    /// Blocks of the archive.
    pub archive: u64,
    /// Audience parts.
    pub parts: u64,
}

/// Writes a state and all its files into a new data folder, whose node is the only member of its cluster.
///
/// # Errors
/// [`BackupError`]. The folder is then not complete.
pub fn write_folder(
    data_dir: &Path,
    member: (NodeId, &Member),
    ledger: &Ledger,
    files: &dyn StateFiles,
    work: &mut BackupTask<'_>,
) -> Result<LostFiles, BackupError> {
    let (archive, parts) = (ledger.archive_blocks(), parts_of(ledger));
    work.begin(BackupPhase::Copy, archive.len() + parts.len());
    let mut lost = LostFiles::default();
    let folder = data_dir.join(PARTS);
    let failed = |source| BackupError::Target { doing: "write", place: folder.display().to_string(), source };
    let store = FileStore::open(folder.clone()).map_err(failed)?;
    for part in parts {
        let file = files.part(part)?;
        match &file {
            Some(file) => drop(store.put(file).map_err(failed)?),
            None => lost.parts += 1,
        }
        work.count_file(file.map_or(0, |file| file.len() as u64))?;
    }
    let first = FirstFolder::create(data_dir)?;
    // Bytes of the archive that no snapshot has yet are in the state.
    for hash in archive.into_iter().filter(|hash| ledger.unsaved_block(hash).is_none()) {
        let block = files.archive_block(hash)?;
        match &block {
            Some(block) => first.put_archive_block(hash, block)?,
            None => lost.archive += 1,
        }
        work.count_file(block.map_or(0, |block| block.len() as u64))?;
    }
    first.finish(member, ledger)?;
    Ok(lost)
}

/// Folders of nodes of a lost cluster, which do not run. Each file is taken from the first one that has it whole.
pub struct SurvivorFiles {
    /// The data folders.
    pub folders: Vec<(PathBuf, OfflineFolder)>,
}

impl StateFiles for SurvivorFiles {
    fn archive_block(&self, hash: Hash) -> Result<Option<Vec<u8>>, BackupError> {
        Ok(self.folders.iter().find_map(|(_, folder)| folder.archive_block(hash).ok()))
    }

    fn part(&self, part: Hash) -> Result<Option<Vec<u8>>, BackupError> {
        let read = |(folder, _): &(PathBuf, OfflineFolder)| {
            let file = std::fs::read(folder.join(PARTS).join(part.to_string())).ok()?;
            (file_store::verify(&file) == Ok(part)).then_some(file)
        };
        Ok(self.folders.iter().find_map(read))
    }
}

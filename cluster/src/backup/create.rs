//! Makes a backup of a running node: a snapshot, the blocks of the archive and the audience parts that it names. Lost
//! parts are named in the manifest.
//!
//! A file that the target has is not copied again. Because pruning may run on another machine at the same time, a file
//! counts as present only if the newest verified backup names it, which no pruning removes, or if it is younger than
//! what pruning removes. The manifest is written last. Then everything is read back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

use reveille_ledger::ids::{Hash, Time};
use reveille_ledger::{ArchivePart, ArchivePartKey, Ledger, Table};
use reveille_raft::{ClusterId, Replica};

use super::list;
use super::manifest::{BLOCKS, BackupId, BackupManifest, block_name, time_text};
use super::target::{BackupTarget, StoredFile, put_new};
use super::verify::{parts_of, read_manifest, target_error, verify};
use super::work::{BackupError, BackupPhase, BackupTask, FileFault};
use crate::file_store::{self, FileStore};

/// Maximum age of a file that no verified backup names, and that is not copied again. Much below the age of pruning.
const REUSED_FOR: Duration = Duration::from_secs(12 * 3_600);
/// Number of snapshots that are tried: a block of the archive may reach the end of its retention while it is copied.
const ATTEMPTS: usize = 3;

/// What a backup is made of.
pub struct BackupSource<'s> {
    /// The cluster.
    pub cluster: ClusterId,
    /// The replica of this node.
    pub replica: &'s Replica,
    /// The audience parts of this node.
    pub parts: &'s FileStore,
    /// Name of this node.
    pub node: &'s str,
    /// Release of this node.
    pub version: &'s str,
    /// The wall clock.
    pub now: Time,
}

/// A backup that was made and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeBackup {
    /// Which backup it is.
    pub id: BackupId,
    /// Ledger time of its state.
    pub ledger_time: Time,
    /// Size of its content in bytes, uncompressed.
    pub bytes: u64,
    /// Number of its files.
    pub files: u64,
    /// Parts that it lacks, because every voter lacks them.
    pub lost: Vec<Hash>,
    /// Number of files that were copied.
    pub copied_files: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
}

/// The snapshot of this node, as a manifest.
struct StateFacts {
    now: Time,
    level: u32,
    incarnation: u64,
    audit_head: Hash,
    parts: BTreeSet<Hash>,
    archive: Table<ArchivePartKey, ArchivePart>,
}

impl StateFacts {
    fn of(ledger: &Ledger) -> StateFacts {
        let head = ledger.head();
        StateFacts {
            now: head.now,
            level: head.level,
            incarnation: head.cluster_incarnation,
            audit_head: head.audit,
            parts: parts_of(ledger),
            archive: ledger.parts().clone(),
        }
    }
}

/// Makes a backup of the applied state, and verifies it. Blocks.
///
/// # Errors
/// [`BackupError`]. Former backups stay as they are.
pub fn create(
    source: &BackupSource<'_>,
    target: &dyn BackupTarget,
    work: &mut BackupTask<'_>,
) -> Result<MadeBackup, BackupError> {
    let mut attempts = 1;
    loop {
        match create_once(source, target, work) {
            Err(BackupError::Source(why)) if attempts < ATTEMPTS => {
                tracing::info!(why, "the backup begins again with a newer snapshot");
                attempts += 1;
            }
            made => return made,
        }
    }
}

fn create_once(
    source: &BackupSource<'_>,
    target: &dyn BackupTarget,
    work: &mut BackupTask<'_>,
) -> Result<MadeBackup, BackupError> {
    let (pinned, facts) = source.replica.pinned_snapshot(StateFacts::of)?;
    let id = BackupId { cluster: source.cluster, index: pinned.manifest.index };
    let archive = facts.archive.iter().flat_map(|(_, part)| part.all_blocks()).copied();
    let lost = lost_for_good(source, target, &facts.parts)?;
    let mut manifest = BackupManifest {
        id,
        incarnation: facts.incarnation,
        node: source.node.to_owned(),
        version: source.version.to_owned(),
        ledger_time: facts.now,
        written: source.now,
        level: facts.level,
        audit_head: facts.audit_head,
        state: pinned.manifest.blocks.clone(),
        archive: archive.collect(),
        parts: facts.parts.difference(&lost).map(|part| (*part, 0)).collect(),
        lost: lost.into_iter().collect(),
    };
    let mut copy = FileCopier::new(source, target, manifest.parts.iter().map(|(part, _)| *part).collect())?;
    copy.all(&mut manifest, work)?;
    let name = id.manifest();
    match put_new(target, &name, &manifest.to_bytes()) {
        Ok(()) => {}
        // It was made before, perhaps by another node.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if read_manifest(target, id)?.state_hash() != manifest.state_hash() {
                return Err(BackupError::OtherState { place: target.place(&name) });
            }
        }
        Err(error) => return Err(target_error(target, "write", &name, error)),
    }
    let manifest = read_manifest(target, id)?;
    match verify(target, &manifest, work) {
        Err(BackupError::Damaged(faults)) => {
            copy.repair(&faults, work)?;
            verify(target, &manifest, work).map(drop)?;
        }
        verified => verified.map(drop)?,
    }
    let name = id.verified();
    let verified = format!("read back whole by {} at {}\n", source.node, time_text(source.now));
    target.put(&name, verified.as_bytes()).map_err(|error| target_error(target, "write", &name, error))?;
    Ok(MadeBackup {
        id,
        ledger_time: manifest.ledger_time,
        bytes: manifest.bytes(),
        lost: manifest.lost.clone(),
        files: manifest.hashes().collect::<BTreeSet<Hash>>().len() as u64 + 1,
        copied_files: copy.files,
        copied_bytes: copy.bytes,
    })
}

/// Stores lost parts that the target has on this node again, from where the others fetch them. Returns the other lost
/// parts of the state.
fn lost_for_good(
    source: &BackupSource<'_>,
    target: &dyn BackupTarget,
    parts: &BTreeSet<Hash>,
) -> Result<BTreeSet<Hash>, BackupError> {
    let mut lost = BTreeSet::new();
    for part in source.parts.lost().intersection(parts).copied() {
        let name = block_name(part);
        match target.get(&name) {
            Ok(file) if file_store::verify(&file) == Ok(part) => {
                source.parts.put(&file).map_err(|error| BackupError::Source(error.to_string()))?;
                tracing::info!(%part, "a part of an audience that every voter lacked is restored from a backup");
            }
            Ok(_) => drop(lost.insert(part)),
            Err(error) if error.kind() == ErrorKind::NotFound => drop(lost.insert(part)),
            Err(error) => return Err(target_error(target, "read", &name, error)),
        }
    }
    Ok(lost)
}

/// Copies files to the target.
struct FileCopier<'c> {
    source: &'c BackupSource<'c>,
    target: &'c dyn BackupTarget,
    /// Files at the target that need not be copied, by name.
    present: BTreeMap<String, u64>,
    /// Names that are audience parts; the others are blocks.
    parts: BTreeSet<Hash>,
    files: u64,
    bytes: u64,
}

impl<'c> FileCopier<'c> {
    fn new(
        source: &'c BackupSource<'c>,
        target: &'c dyn BackupTarget,
        parts: BTreeSet<Hash>,
    ) -> Result<FileCopier<'c>, BackupError> {
        let newest = list::newest_verified(target, source.cluster)?;
        let kept: BTreeSet<String> = newest.iter().flat_map(BackupManifest::hashes).map(block_name).collect();
        let now = SystemTime::now();
        let stays = |file: &StoredFile| {
            let is_young = now.duration_since(file.modified).map_or(true, |age| age < REUSED_FOR);
            file.bytes > 0 && (is_young || kept.contains(&file.name))
        };
        let listed = target.list(BLOCKS).map_err(|error| target_error(target, "list", BLOCKS, error))?;
        let present = listed.into_iter().filter(stays).map(|file| (file.name, file.bytes)).collect();
        Ok(FileCopier { source, target, present, parts, files: 0, bytes: 0 })
    }

    /// Copies what the target lacks, and sets the sizes of audience parts.
    fn all(&mut self, manifest: &mut BackupManifest, work: &mut BackupTask<'_>) -> Result<(), BackupError> {
        let blocks: BTreeSet<Hash> = manifest.state.iter().chain(&manifest.archive).map(|block| block.hash).collect();
        work.begin(BackupPhase::Copy, blocks.len() + manifest.parts.len());
        for hash in blocks {
            self.copy_unless_present(hash, work)?;
        }
        for (part, bytes) in &mut manifest.parts {
            *bytes = self.copy_unless_present(*part, work)?;
        }
        Ok(())
    }

    /// Returns the size of the file at the target.
    fn copy_unless_present(&mut self, hash: Hash, work: &mut BackupTask<'_>) -> Result<u64, BackupError> {
        match self.present.get(&block_name(hash)) {
            Some(bytes) => work.count_file(0).map(|()| *bytes),
            None => self.copy(hash, work),
        }
    }

    fn copy(&mut self, hash: Hash, work: &mut BackupTask<'_>) -> Result<u64, BackupError> {
        let BackupSource { replica, parts, .. } = self.source;
        let file = match self.parts.contains(&hash) {
            true => parts.whole(hash).map_err(|fault| BackupError::Source(fault.to_string()))?,
            false => replica.block_file(hash).map_err(|error| BackupError::Source(error.to_string()))?,
        };
        let (name, bytes) = (block_name(hash), file.len() as u64);
        self.target.put(&name, &file).map_err(|error| target_error(self.target, "write", &name, error))?;
        (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
        work.count_file(bytes).map(|()| bytes)
    }

    /// Writes damaged and missing files again.
    fn repair(&mut self, faults: &[FileFault], work: &mut BackupTask<'_>) -> Result<(), BackupError> {
        work.begin(BackupPhase::Copy, faults.len());
        for FileFault { hash, what } in faults {
            tracing::warn!(what, "a file of the backup is written again");
            if let Some(hash) = hash {
                self.copy(*hash, work)?;
            }
        }
        Ok(())
    }
}

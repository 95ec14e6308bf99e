//! Reads a backup back: every file is checked, and the state is loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};

use reveille_ledger::ids::Hash;
use reveille_ledger::invariants::violations;
use reveille_ledger::storage::{Row, unpack_block};
use reveille_ledger::{Ledger, level};
use reveille_raft::snapshot::content_of_block;

use super::manifest::{BackupId, BackupManifest, block_name};
use super::target::BackupTarget;
use super::work::{BackupError, BackupPhase, BackupTask, FileFault};
use crate::file_store;

/// Reads the manifest of a backup.
///
/// # Errors
/// [`BackupError::Target`], or [`BackupError::Damaged`] with its name.
pub fn read_manifest(target: &dyn BackupTarget, id: BackupId) -> Result<BackupManifest, BackupError> {
    let name = id.manifest();
    let fault = |what: String| {
        let what = format!("{} is damaged: {what}", target.place(&name));
        BackupError::Damaged(vec![FileFault { hash: None, what }])
    };
    let bytes = target.get(&name).map_err(|source| target_error(target, "read", &name, source))?;
    let manifest = BackupManifest::from_bytes(&bytes).map_err(&fault)?;
    if manifest.id == id { Ok(manifest) } else { Err(fault("it is the manifest of another backup".to_owned())) }
}

/// Returns a block of the archive. `None`: the target does not have it intact.
///
/// # Errors
/// The target fails.
pub fn archive_block(target: &dyn BackupTarget, hash: Hash) -> io::Result<Option<Vec<u8>>> {
    match target.get(&block_name(hash)) {
        Ok(file) => Ok(content_of_block(hash, &file).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads all files of a backup, loads its state, and checks it. Returns the state. Parts that were lost when it was made
/// are no damage: the manifest names them.
///
/// # Errors
/// [`BackupError`]; `Damaged` names the files.
pub fn verify(
    target: &dyn BackupTarget,
    manifest: &BackupManifest,
    work: &mut BackupTask<'_>,
) -> Result<Ledger, BackupError> {
    let (index, highest) = (manifest.id.index, level::highest());
    if manifest.level > highest {
        return Err(BackupError::AboveLevel { index, level: manifest.level, highest });
    }
    let mut reader = Reader { target, work, faults: Vec::new() };
    let distinct: BTreeSet<Hash> = manifest.hashes().collect();
    reader.work.begin(BackupPhase::Verify, distinct.len());
    let ledger = reader.load(manifest)?;
    let state: BTreeSet<Hash> = manifest.state.iter().map(|entry| entry.hash).collect();
    let archive: BTreeMap<Hash, u64> = manifest.archive.iter().map(|entry| (entry.hash, entry.bytes)).collect();
    for hash in archive.keys().filter(|hash| !state.contains(hash)) {
        reader
            .read_checked(*hash, |file| content_of_block(*hash, file).map(drop).map_err(|error| error.to_string()))?;
    }
    let parts: BTreeSet<Hash> = manifest.parts.iter().map(|(part, _)| *part).collect();
    for part in &parts {
        reader.read_checked(*part, |file| match file_store::verify(file)? {
            name if name == *part => Ok(()),
            _ => Err("it does not match its name".to_owned()),
        })?;
    }
    if !reader.faults.is_empty() {
        return Err(BackupError::Damaged(reader.faults));
    }
    let unsound = |what: String| BackupError::Unsound { index, what };
    // Without a fault the state was loaded.
    let ledger = ledger.ok_or_else(|| unsound("it has no state".to_owned()))?;
    let (has_archive, has_parts) = (archive.into_keys().collect(), parts);
    check_whole(&ledger, manifest, &has_archive, &has_parts).map_err(unsound)?;
    Ok(ledger)
}

/// Checks that the state is that of the manifest, that it breaks no rule, and that the backup has all files that it
/// names and that were not lost.
fn check_whole(
    ledger: &Ledger,
    manifest: &BackupManifest,
    has_archive: &BTreeSet<Hash>,
    has_parts: &BTreeSet<Hash>,
) -> Result<(), String> {
    let head = ledger.head();
    if (head.applied, head.level) != (manifest.id.index, manifest.level) {
        return Err(format!("its rows are those of entry {} at level {}", head.applied, head.level));
    }
    if ledger.state_hash() != manifest.state_hash() {
        return Err("its rows have another hash than the state that was saved".to_owned());
    }
    if let Some(lacks) = ledger.archive_blocks().difference(has_archive).next() {
        return Err(format!("it lacks block {lacks} of the archive"));
    }
    if let Some(lacks) = parts_of(ledger).difference(has_parts).find(|part| !manifest.lost.contains(part)) {
        return Err(format!("it lacks file {lacks} of an audience or an attachment"));
    }
    match violations(ledger).first() {
        None => Ok(()),
        Some(broken) => Err(format!("its state breaks a rule: {broken}")),
    }
}

/// Returns the audience parts and attachments that a state names.
pub(super) fn parts_of(ledger: &Ledger) -> BTreeSet<Hash> {
    ledger.needed_files().collect()
}

struct Reader<'r, 'w> {
    target: &'r dyn BackupTarget,
    work: &'r mut BackupTask<'w>,
    faults: Vec<FileFault>,
}

impl Reader<'_, '_> {
    /// Returns the state. `None`: a file of it is missing or damaged.
    fn load(&mut self, manifest: &BackupManifest) -> Result<Option<Ledger>, BackupError> {
        let mut rows: Vec<Row> = Vec::new();
        for entry in &manifest.state {
            self.read_checked(entry.hash, |file| {
                let bytes = content_of_block(entry.hash, file).map_err(|error| error.to_string())?;
                let block = unpack_block(&bytes).map_err(|error| error.to_string())?;
                if block.len() as u64 != u64::from(entry.rows) {
                    return Err("it has another number of rows".to_owned());
                }
                rows.extend(block);
                Ok(())
            })?;
        }
        if !self.faults.is_empty() {
            return Ok(None);
        }
        let index = manifest.id.index;
        let ledger = Ledger::from_rows(rows);
        ledger.map(Some).map_err(|error| BackupError::Unsound { index, what: error.to_string() })
    }

    /// Reads a file and checks it. A missing or damaged file is recorded, and the work goes on.
    fn read_checked(
        &mut self,
        hash: Hash,
        mut check: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), BackupError> {
        let name = block_name(hash);
        let (checked, bytes) = match self.target.get(&name) {
            Ok(file) => (check(&file).map_err(|what| format!("is damaged: {what}")), file.len() as u64),
            Err(error) if error.kind() == ErrorKind::NotFound => (Err("is missing".to_owned()), 0),
            Err(error) => return Err(target_error(self.target, "read", &name, error)),
        };
        if let Err(what) = checked {
            let what = format!("{} {what}", self.target.place(&name));
            self.faults.push(FileFault { hash: Some(hash), what });
        }
        self.work.count_file(bytes)
    }
}

pub(super) fn target_error(
    target: &dyn BackupTarget,
    doing: &'static str,
    name: &str,
    source: io::Error,
) -> BackupError {
    BackupError::Target { doing, place: target.place(name), source }
}

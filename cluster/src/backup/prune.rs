//! Removes old backups, and files that no backup names.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use reveille_raft::ClusterId;

use super::list::{delete, ids};
use super::manifest::{BACKUPS, BLOCKS, block_name};
use super::opt_outs;
use super::target::{BackupTarget, StoredFile};
use super::verify::{read_manifest, target_error};
use super::work::BackupError;

/// Age from which a file that no manifest names is removed. A backup that is being made is younger.
const UNNAMED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// What pruning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrunedBackups {
    /// Backups.
    pub backups: u64,
    /// Files of the state, the archive and audiences that no backup names any more.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Removes the backups of a cluster that are older than its `keep` newest verified ones, then files that no backup of
/// any cluster names. A backup is never removed for one that was not verified; with `keep` 0 all go, and all opt-outs of
/// the cluster. While a manifest of another cluster is damaged, it is not known what that one names, and only files of
/// the removed backups go. Safe beside a node that makes a backup.
///
/// # Errors
/// [`BackupError`]; `Damaged` if a manifest of this cluster cannot be read.
pub fn prune(
    target: &dyn BackupTarget,
    cluster: ClusterId,
    keep: usize,
    now: SystemTime,
) -> Result<PrunedBackups, BackupError> {
    let mut pruned = PrunedBackups::default();
    let mut own: BTreeSet<String> = BTreeSet::new();
    let (manifests, verified) = ids(target)?;
    let before = match keep.checked_sub(1) {
        Some(newer) => verified.iter().rev().filter(|id| id.cluster == cluster).nth(newer).map(|id| id.index),
        None => Some(u64::MAX),
    };
    if let Some(before) = before {
        for id in manifests.iter().filter(|id| id.cluster == cluster && id.index < before) {
            match read_manifest(target, *id) {
                Ok(manifest) => own.extend(manifest.hashes().map(block_name)),
                Err(BackupError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
            // The mark goes first: a backup whose manifest is gone must not count as verified.
            delete(target, &id.verified())?;
            delete(target, &id.manifest())?;
            pruned.backups += 1;
        }
        opt_outs::prune(target, cluster, before)?;
    }
    // Listed before the manifests are read: a file that is written later is not in the list.
    let listed = target.list(BLOCKS).map_err(|error| target_error(target, "list", BLOCKS, error))?;
    let (mut named, mut all_known) = (BTreeSet::<String>::new(), true);
    for id in ids(target)?.0 {
        match read_manifest(target, id) {
            Ok(manifest) => named.extend(manifest.hashes().map(block_name)),
            Err(error @ BackupError::Damaged(_)) if id.cluster != cluster => {
                let next = "remove it, if no backup of that cluster is needed";
                tracing::warn!(%error, next, "a manifest of another cluster keeps files that no other backup names");
                all_known = false;
            }
            Err(error) => return Err(error),
        }
    }
    let is_old = |file: &StoredFile| now.duration_since(file.modified).is_ok_and(|age| age >= UNNAMED_FOR);
    let may_go = |file: &StoredFile| (all_known || own.contains(&file.name)) && !named.contains(&file.name);
    for file in listed.iter().filter(|file| may_go(file) && is_old(file)) {
        // A backup may have written it again since.
        let again = target.stat(&file.name).map_err(|error| target_error(target, "read", &file.name, error))?;
        if again.is_some_and(|again| is_old(&again)) {
            delete(target, &file.name)?;
            (pruned.files, pruned.bytes) = (pruned.files + 1, pruned.bytes + file.bytes);
        }
    }
    for folder in [BACKUPS, opt_outs::OPT_OUTS] {
        let files = target.list(folder).map_err(|error| target_error(target, "list", folder, error))?;
        for file in files.iter().filter(|file| file.is_unfinished() && is_old(file)) {
            delete(target, &file.name)?;
        }
    }
    Ok(pruned)
}

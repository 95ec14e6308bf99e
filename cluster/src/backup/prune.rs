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
/// any cluster names. A backup is never removed for one that was not verified. Safe beside a node that makes a backup.
///
/// # Errors
/// [`BackupError`]; `Damaged` if a manifest cannot be read: then it is not known what it names.
pub fn prune(
    target: &dyn BackupTarget,
    cluster: ClusterId,
    keep: usize,
    now: SystemTime,
) -> Result<PrunedBackups, BackupError> {
    let mut pruned = PrunedBackups::default();
    let (manifests, verified) = ids(target)?;
    let oldest_kept = verified.iter().rev().filter(|id| id.cluster == cluster).nth(keep.max(1) - 1);
    if let Some(oldest_kept) = oldest_kept {
        for id in manifests.iter().filter(|id| id.cluster == cluster && *id < oldest_kept) {
            // The mark goes first: a backup whose manifest is gone must not count as verified.
            delete(target, &id.verified())?;
            delete(target, &id.manifest())?;
            pruned.backups += 1;
        }
        opt_outs::prune(target, cluster, oldest_kept.index)?;
    }
    // Listed before the manifests are read: a file that is written later is not in the list.
    let listed = target.list(BLOCKS).map_err(|error| target_error(target, "list", BLOCKS, error))?;
    let mut named: BTreeSet<String> = BTreeSet::new();
    for id in ids(target)?.0 {
        named.extend(read_manifest(target, id)?.hashes().map(block_name));
    }
    let is_old = |file: &StoredFile| now.duration_since(file.modified).is_ok_and(|age| age >= UNNAMED_FOR);
    for file in listed.iter().filter(|file| !named.contains(&file.name) && is_old(file)) {
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

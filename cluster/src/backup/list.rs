//! The backups at a target.

use std::collections::BTreeSet;

use reveille_raft::ClusterId;

use super::manifest::{BACKUPS, BackupId, BackupManifest, MANIFEST, VERIFIED};
use super::target::BackupTarget;
use super::verify::{read_manifest, target_error};
use super::work::BackupError;

/// A backup at a target.
#[derive(Debug)]
pub struct ListedBackup {
    /// Which backup it is.
    pub id: BackupId,
    /// True if it was read back whole after it was made.
    pub verified: bool,
    /// Its manifest, or why it cannot be read.
    pub manifest: Result<BackupManifest, BackupError>,
}

/// Returns all backups at a target: of each cluster the newest first.
///
/// # Errors
/// [`BackupError::Target`].
pub fn list(target: &dyn BackupTarget) -> Result<Vec<ListedBackup>, BackupError> {
    let (ids, verified) = ids(target)?;
    let listed = ids.into_iter().rev().map(|id| ListedBackup {
        id,
        verified: verified.contains(&id),
        manifest: read_manifest(target, id),
    });
    Ok(listed.collect())
}

/// Returns the ids of all backups, and of those that were verified.
pub(super) fn ids(target: &dyn BackupTarget) -> Result<(BTreeSet<BackupId>, BTreeSet<BackupId>), BackupError> {
    let files = target.list(BACKUPS).map_err(|error| target_error(target, "list", BACKUPS, error))?;
    let of = |ending| files.iter().filter_map(|file| BackupId::of_file(&file.name, ending)).collect();
    let (manifests, verified): (BTreeSet<BackupId>, BTreeSet<BackupId>) = (of(MANIFEST), of(VERIFIED));
    let verified = verified.intersection(&manifests).copied().collect();
    Ok((manifests, verified))
}

/// Returns the newest verified backup of a cluster. A damaged manifest counts as none.
pub(super) fn newest_verified(
    target: &dyn BackupTarget,
    cluster: ClusterId,
) -> Result<Option<BackupManifest>, BackupError> {
    let (_, verified) = ids(target)?;
    let newest = verified.into_iter().rfind(|id| id.cluster == cluster);
    match newest.map(|id| read_manifest(target, id)) {
        None | Some(Err(BackupError::Damaged(_))) => Ok(None),
        Some(manifest) => manifest.map(Some),
    }
}

/// Returns the index of the oldest backup of a cluster, verified or not.
pub(super) fn oldest_index(target: &dyn BackupTarget, cluster: ClusterId) -> Result<Option<u64>, BackupError> {
    let (manifests, _) = ids(target)?;
    Ok(manifests.into_iter().find(|id| id.cluster == cluster).map(|id| id.index))
}

pub(super) fn delete(target: &dyn BackupTarget, name: &str) -> Result<(), BackupError> {
    target.delete(name).map_err(|error| target_error(target, "remove", name, error))
}

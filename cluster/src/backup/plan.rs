//! Where and when a node makes backups.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::address::{BucketAccess, TargetAddress};
use super::bucket::BucketTarget;
use super::target::{BackupTarget, FolderTarget};

/// Interval in which opt-outs are added, unless a test sets another. Together with the write it is within a minute.
const OPT_OUTS_EVERY: Duration = Duration::from_secs(20);

/// Settings of backups, from the configuration of the node.
pub struct BackupPlan {
    /// Where they are kept.
    pub target: Arc<dyn BackupTarget>,
    /// Interval between two of them.
    pub every: Duration,
    /// Number of verified backups that are kept.
    pub keep: usize,
    /// Interval in which the leader adds opt-outs.
    pub opt_outs_every: Duration,
    /// One permit: a node makes one backup at a time.
    pub(super) running: Arc<Semaphore>,
}

impl BackupPlan {
    /// Returns the settings.
    pub fn new(target: Arc<dyn BackupTarget>, every: Duration, keep: usize) -> BackupPlan {
        BackupPlan { target, every, keep, opt_outs_every: OPT_OUTS_EVERY, running: Arc::new(Semaphore::new(1)) }
    }
}

/// Opens a target. Makes no request. `access` is needed for a bucket.
///
/// # Errors
/// Returns why a bucket cannot be opened.
pub fn open(address: &TargetAddress, access: Option<&BucketAccess>) -> io::Result<Arc<dyn BackupTarget>> {
    match (address, access) {
        (TargetAddress::Folder(folder), _) => Ok(Arc::new(FolderTarget::new(folder))),
        (TargetAddress::Bucket(bucket), Some(access)) => {
            Ok(Arc::new(BucketTarget::new(bucket.clone(), access.clone())?))
        }
        (TargetAddress::Bucket(_), None) => Err(io::Error::other("a bucket needs an endpoint and credentials")),
    }
}

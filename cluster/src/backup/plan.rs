//! Where and when a node makes backups.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::address::{BucketAccess, TargetAddress};
use super::bucket::BucketTarget;
use super::target::{BackupTarget, FolderTarget};

/// Interval in which opt-outs are added, unless a test sets another. Together with the write it is within a minute.
const OPT_OUTS_EVERY: Duration = Duration::from_secs(20);
/// Duration of a write of opt-outs after which it counts as failed, unless a test sets another.
const OPT_OUTS_WITHIN: Duration = Duration::from_secs(60);
/// Time without progress after which a backup counts as failed, unless a test sets another: much above the time of a
/// snapshot, and of loading a state.
const STALLED_AFTER: Duration = Duration::from_secs(10 * 60);

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
    /// Duration of a write of opt-outs after which it counts as failed. It is waited for further.
    pub opt_outs_within: Duration,
    /// Time without progress after which a backup counts as failed. It is waited for further.
    pub stalled_after: Duration,
    /// One permit: a target that hangs holds one thread, however many leaderships write opt-outs.
    pub(crate) streaming: Arc<Semaphore>,
    /// One permit: a node makes one backup at a time.
    pub(super) running: Arc<Semaphore>,
    /// Changes with each file of the backup that is being made.
    pub(super) moves: watch::Sender<()>,
}

impl BackupPlan {
    /// Returns the settings.
    pub fn new(target: Arc<dyn BackupTarget>, every: Duration, keep: usize) -> BackupPlan {
        BackupPlan {
            target,
            every,
            keep,
            opt_outs_every: OPT_OUTS_EVERY,
            opt_outs_within: OPT_OUTS_WITHIN,
            stalled_after: STALLED_AFTER,
            streaming: Arc::new(Semaphore::new(1)),
            running: Arc::new(Semaphore::new(1)),
            moves: watch::Sender::new(()),
        }
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

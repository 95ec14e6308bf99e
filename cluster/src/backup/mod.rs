//! Backups: copies of the whole state at another place, from which a new cluster can be made.
//!
//! A node makes a backup of its snapshot ([`create()`]) at a [`BackupTarget`] that its configuration names, and reads
//! it back whole ([`verify()`]). Between backups the leader adds each opt-out to the same target ([`opt_outs`]). The
//! commands that restore use the same functions, without a node.
//!
//! Invariants: a backup has a manifest only after all its files are there; what another backup needs is never changed
//! or removed; keys and passwords are in no backup. Everything blocks, and runs on threads of its own.
//!
//! Reading order: `target`, `address`, `bucket`, `manifest`, `verify`, `create`, `list`, `prune`, `opt_outs`,
//! `stream`, `runner` (in a node), `restore`.

mod address;
mod bucket;
mod create;
mod list;
mod manifest;
pub mod opt_outs;
mod plan;
mod prune;
mod restore;
mod runner;
mod stream;
mod target;
mod verify;
mod work;

pub use address::{BucketAccess, BucketAddress, Endpoint, NoAddress, TargetAddress};
pub use bucket::{BucketTarget, check_credentials};
pub use create::{BackupSource, MadeBackup, create};
pub use list::{ListedBackup, list};
pub use manifest::{BackupId, BackupManifest, time_text};
pub use plan::{BackupPlan, open};
pub use prune::{PrunedBackups, prune};
pub use restore::{BackupFiles, LostFiles, StateFiles, SurvivorFiles, apply_opt_outs, write_folder};
pub use runner::make;
pub use stream::{OptOutStream, OptOutTables};
pub use target::{BackupTarget, FolderTarget, StoredFile};
pub use verify::{archive_block, read_manifest, verify};
pub use work::{BackupError, BackupPhase, BackupProgress, BackupTask, FileFault};

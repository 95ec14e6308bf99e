//! What is known of a cluster that was restored from a backup, and the readers of it (P21).
//!
//! The former cluster went on after its backup, so nothing that it had not sent by then is known to be unsent.

use serde::{Deserialize, Serialize};

use crate::model::{CommandRefusal, Fence, Ledger, Time, TokenGrant, TokenId};

/// Arguments of [`crate::command::Command::Restore`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// Id of the cluster that made the backup.
    pub former_cluster: u128,
    /// Id of the only token from now on.
    pub token: TokenId,
    /// What that token permits.
    pub grant: TokenGrant,
}

/// The last restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Log index of its entry.
    pub index: u64,
    /// Ledger time of the backup.
    pub backup_at: Time,
    /// Ledger time of the restore.
    pub at: Time,
    /// Ledger time at which an operator accepted it: the former cluster sends nothing any more. `None`: it is held.
    pub accepted_at: Option<Time>,
}

impl Ledger {
    /// Returns the restore that no operator has accepted yet. Until then nothing opens or is handed off.
    pub fn unaccepted_restore(&self) -> Option<&Restored> {
        self.head.restored.as_ref().filter(|restored| restored.accepted_at.is_none())
    }

    pub(crate) fn check_not_held(&self) -> Result<(), CommandRefusal> {
        self.unaccepted_restore().map_or(Ok(()), |_| Err(CommandRefusal::RestoreNotAccepted))
    }

    /// Returns the end of the time of which a former cluster may have sent any instant: the calendar opens none of
    /// them, only a backfill does. `None`: there is no such time.
    pub fn maybe_sent_through(&self) -> Option<Time> {
        self.head.restored.map(|restored| restored.accepted_at.unwrap_or(self.head.now))
    }

    /// True if a doubt in this claim is older than the last restore, or made by it. Only an operator decides it.
    pub fn only_operator_decides(&self, claim: Fence) -> bool {
        self.head.restored.is_some_and(|restored| claim.index <= restored.index)
    }

    /// Returns the id of the cluster in a former incarnation, which is in the Message-IDs of its pages. `None`: it is
    /// the present one.
    pub fn former_cluster(&self, incarnation: u64) -> Option<u128> {
        self.head.former_clusters.get(usize::try_from(incarnation.checked_sub(1)?).ok()?).copied()
    }
}

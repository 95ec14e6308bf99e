//! The record of how the last backups ended.

use super::Context;
use crate::model::{BackupHistory, BackupResult, CommandOutcome, Ledger};

impl Ledger {
    /// Records how the making of a backup ended. Two nodes may make one at the same time.
    pub(super) fn backup_ended(&mut self, context: &Context, result: &BackupResult) -> CommandOutcome {
        let history = &mut self.head.backups;
        match result {
            BackupResult::Verified(made) if history.last.is_none_or(|last| last.index <= made.index) => {
                *history = BackupHistory { last: Some(*made), failed_at: None };
            }
            BackupResult::Verified(_) => {}
            BackupResult::Failed => history.failed_at = Some(context.now),
        }
        CommandOutcome::Done
    }
}

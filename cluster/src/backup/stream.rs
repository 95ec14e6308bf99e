//! Finds new opt-outs in the state, and adds them to the target.
//!
//! Belongs to one leadership. Each call compares the tables with those of the last call, and reads only leaves that
//! changed. So a million opt-outs cost nothing while none is added.

use std::sync::Arc;

use reveille_ledger::ids::Time;
use reveille_ledger::{Ledger, OptedOut, SharedRows, TakenBack};
use reveille_raft::ClusterId;

use super::opt_outs::{self, OptOutChange, OptOutKind};
use super::target::BackupTarget;
use super::work::BackupError;

type OptOutKey = (String, String);

/// The tables at one log index.
#[derive(Clone, Default)]
pub struct OptOutTables {
    applied: u64,
    opted_out: SharedRows<OptOutKey, OptedOut>,
    taken_back: SharedRows<OptOutKey, TakenBack>,
}

impl OptOutTables {
    /// Reads the tables. Costs some pointers.
    pub fn of(ledger: &Ledger) -> OptOutTables {
        let (opted_out, taken_back) = (ledger.opted_out().share(), ledger.taken_back().share());
        OptOutTables { applied: ledger.head().applied, opted_out, taken_back }
    }

    /// Returns the changes since the former tables, of entries above the index `after`.
    fn changes(&self, former: &OptOutTables, after: u64) -> Vec<OptOutChange> {
        let change = |(tenant, recipient): &OptOutKey, index, kind| {
            let (tenant, recipient) = (tenant.clone(), recipient.clone());
            (index > after).then_some(OptOutChange { index, tenant, recipient, kind })
        };
        let opted_out = self.opted_out.changed_since(&former.opted_out);
        let opted_out = opted_out.filter_map(|(key, row)| change(key, row.index, OptOutKind::OptedOut));
        let taken_back = self.taken_back.changed_since(&former.taken_back);
        let taken_back = taken_back.filter_map(|(key, row)| change(key, row.index, OptOutKind::TakenBack));
        opted_out.chain(taken_back).collect()
    }
}

/// The opt-outs that are at the target.
pub struct OptOutStream {
    target: Arc<dyn BackupTarget>,
    cluster: ClusterId,
    former: OptOutTables,
    /// Last entry whose changes are written. `None`: not known yet, or there is no backup yet.
    written: Option<u64>,
}

impl OptOutStream {
    /// Returns a stream that finds its place at the target.
    pub fn new(target: Arc<dyn BackupTarget>, cluster: ClusterId) -> OptOutStream {
        OptOutStream { target, cluster, former: OptOutTables::default(), written: None }
    }

    /// Writes the opt-out changes up to these tables, and nothing before the first backup. Blocks.
    ///
    /// # Errors
    /// [`BackupError::Target`]. The next call writes the same.
    pub fn write(&mut self, tables: OptOutTables, now: Time) -> Result<(), BackupError> {
        if self.written.is_none() {
            self.written = opt_outs::written_through(&*self.target, self.cluster)?;
        }
        let Some(after) = self.written else { return Ok(()) };
        let changes = tables.changes(&self.former, after);
        if !changes.is_empty() {
            opt_outs::write(&*self.target, self.cluster, (after, tables.applied), changes, now)?;
            self.written = Some(tables.applied);
        }
        self.former = tables;
        Ok(())
    }
}

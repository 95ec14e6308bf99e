//! `min_gap` for the instants of a backfill, which open in one entry (P17).

use std::collections::BTreeMap;

use super::search::{ArchivedTimes, CLAIMED, GapLookups};
use crate::model::{Bitmap, Ledger, RecipientState, RunState, ScheduleId, Time};

/// The instants of one backfill, oldest first, with the recipients that they will send to (P17).
pub struct BackfillBatch {
    /// Cost and mappings of the lookups.
    pub lookups: GapLookups,
    schedule: ScheduleId,
    /// Recipients that a run will send to, by its due time: of open runs, and of instants of this batch.
    to_mail: BTreeMap<Time, Bitmap>,
    archived: ArchivedTimes,
}

impl Ledger {
    /// Begins a backfill of a schedule with the unfinished runs that have recipients to send to (P17). So a second
    /// backfill of a range opens no instant next to a run of the first.
    pub fn backfill_batch(&self, id: ScheduleId) -> BackfillBatch {
        let mut batch = BackfillBatch {
            lookups: GapLookups::default(),
            schedule: id,
            to_mail: BTreeMap::new(),
            archived: self.archived_times(id),
        };
        let Some((query, all)) = self.query(id, Time(0), None) else { return batch };
        for (other, run) in self.all_unfinished(id) {
            let goes_on =
                matches!(run.state, RunState::Open | RunState::Paused { .. }) && run.finish_by > self.head.now;
            let states: &[RecipientState] =
                if goes_on { &[RecipientState::Pending, RecipientState::Claimed] } else { &CLAIMED };
            batch.lookups.runs += 1;
            let mapping = self.mapping(&mut batch.lookups, query.audience, run.audience);
            let to_mail = self.recipients_in(other, run, (states, &all, mapping));
            batch.to_mail.entry(run.due).or_default().add(&to_mail);
        }
        batch
    }

    /// True if an instant of a backfill may open (P17). It must send to at least one recipient: one without an email of
    /// a run, an open run or an instant of the batch within the gap. An instant near an archived run does not open.
    ///
    /// `apply` and the dry run ask this for each instant of the batch, in order.
    pub fn may_backfill(&self, batch: &mut BackfillBatch, due: Time) -> bool {
        let Some((query, mut left)) = self.query(batch.schedule, due, None) else { return true };
        if batch.archived.any_within_gap(&query) {
            return false;
        }
        for (_, mailed) in batch.to_mail.range(query.instants()).rev() {
            left.remove(mailed);
            if left.is_empty() {
                return false;
            }
        }
        left.remove(&self.nearby_recipients(&mut batch.lookups, &query, &left).mailed);
        let opens = !left.is_empty();
        if opens {
            batch.to_mail.entry(due).or_default().add(&left);
        }
        opens
    }
}

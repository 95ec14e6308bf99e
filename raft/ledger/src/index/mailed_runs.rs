//! Runs that sent an email, may have sent one, or may be sending one: what a `min_gap` check reads (P17).
//!
//! A schedule may be triggered thousands of times within its gap, each time for other recipients. So a check for a small
//! list finds the small runs to one of its recipients, and reads no other small run. Messages have no gap, and are not
//! here.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::index::recipient_mapping::keys_of;
use crate::model::{Hash, Recipient, Run, RunId, ScheduleId, Time};

/// Maximum number of recipients of a small list: a run to it has a row of 40 bytes for each.
const SMALL_MAX: u32 = 16;

/// Whose run a row is, besides the hash of a recipient's address key, which is below both.
const ANYONE: u64 = u64::MAX - 1;
const EVERY_RUN: u64 = u64::MAX;

type Row = (ScheduleId, u64, Time, RunId);

/// Rows of runs: each run has one under [`EVERY_RUN`], and one for each recipient of its small list or one under
/// [`ANYONE`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MailedRuns(BTreeSet<Row>);

impl MailedRuns {
    /// Returns the rows of a run to this list.
    pub fn rows(id: RunId, run: &Run, list: Option<&[u8]>) -> Vec<Row> {
        if run.cause.is_message() {
            return Vec::new();
        }
        let recipients = small_list(list, run.count).filter(|_| run.policies.min_gap_ms > 0);
        let groups = recipients.unwrap_or_else(|| vec![ANYONE]).into_iter().chain([EVERY_RUN]);
        groups.map(|group| (run.schedule, group, run.due, id)).collect()
    }

    pub fn insert(&mut self, rows: Vec<Row>) {
        self.0.extend(rows);
    }

    pub fn remove(&mut self, rows: &[Row]) {
        for row in rows {
            self.0.remove(row);
        }
    }

    /// Notes that the recipient of this key was erased from the list of a run.
    pub fn erase(&mut self, (schedule, due, run): (ScheduleId, Time, RunId), key: &str) {
        if self.0.remove(&(schedule, hash(key), due, run)) {
            self.0.insert((schedule, hash(&Recipient::erased().key), due, run));
        }
    }

    /// Returns the runs of a schedule with a nominal instant in this range, latest first.
    pub fn within(&self, schedule: ScheduleId, instants: Range<Time>) -> impl Iterator<Item = RunId> + '_ {
        self.group((schedule, EVERY_RUN), instants).rev().map(|(_, run)| run)
    }

    /// Returns those of them that may have a recipient of a list of so many.
    pub fn to_list(
        &self,
        schedule: ScheduleId,
        instants: Range<Time>,
        (list, recipients): (Option<&[u8]>, u32),
    ) -> Vec<RunId> {
        let Some(of_list) = small_list(list, recipients) else { return self.within(schedule, instants).collect() };
        let groups = of_list.into_iter().chain([ANYONE]);
        let found: BTreeSet<_> = groups.flat_map(|group| self.group((schedule, group), instants.clone())).collect();
        found.into_iter().rev().map(|(_, run)| run).collect()
    }

    /// Returns the last run of a schedule, with its nominal instant.
    pub fn last(&self, schedule: ScheduleId) -> Option<(RunId, Time)> {
        let last = self.group((schedule, EVERY_RUN), Time(i64::MIN)..Time(i64::MAX)).next_back();
        last.map(|(due, run)| (run, due))
    }

    fn group(
        &self,
        (schedule, group): (ScheduleId, u64),
        instants: Range<Time>,
    ) -> impl DoubleEndedIterator<Item = (Time, RunId)> + '_ {
        let from = |time| (schedule, group, time, RunId { index: 0, place: 0 });
        self.0.range(from(instants.start)..from(instants.end)).map(|(_, _, due, run)| (*due, *run))
    }
}

/// Returns a hash of each address key of a small list; `None` for a larger one.
fn small_list(list: Option<&[u8]>, recipients: u32) -> Option<Vec<u64>> {
    let list = list.filter(|_| recipients <= SMALL_MAX)?;
    Some(keys_of(list).iter().map(|key| hash(key)).collect())
}

fn hash(key: &str) -> u64 {
    let bytes = Hash::of(key.as_bytes()).0;
    u64::from_le_bytes(std::array::from_fn(|place| bytes[place])) >> 1
}

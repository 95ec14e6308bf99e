//! Events for programs that follow the ledger: runs that opened, paused or ended, and recipients that reached a state.
//!
//! An event is named by the log index of its entry and its place in it. So events have one order on every node, and a
//! reader continues at any node after the last name that it has read. The events of an entry are one row, grouped by
//! run. Rows are packed: most are never read again from the state. Full tables become parts of the archive
//! (`apply/events.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::closed_claims::as_bytes;
use crate::model::{
    ArchivePart, ArchivePartKey, Bitmap, BlockCause, CHUNK, Ledger, OccurrenceName, OpeningCause, PageId, PauseReason,
    RecipientCounts, RecipientState, Run, RunId, ScheduleId, Time,
};
use crate::storage::form::{self, Unreadable};

/// Key of a row of events: log index of the entry, and place of the row's first event in it.
pub type EventKey = (u64, u32);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// The run opened, with this number of recipients.
    RunOpened(u32),
    /// No recipient of the run is pending or claimed any more. It happens again if recipients are sent again.
    RunFinished(RecipientCounts),
    /// The run was paused, or is paused for another reason.
    RunPaused(PauseReason),
    /// The run was resumed.
    RunResumed,
    /// The run was cancelled: by an operator, or because this run opened.
    RunCancelled(Option<RunId>),
    /// The run reached its deadline.
    RunExpired,
    /// Recipients of the run reached a state.
    Recipients {
        /// The state: terminal or in doubt; pending if they are sent again.
        state: RecipientState,
        /// Number of the recipients' chunk in the audience.
        chunk: u32,
        /// The recipients: their numbers, less `chunk * 65,536`.
        numbers: Bitmap,
    },
    /// This number of addresses opted out. The addresses are in the table of opt-outs, under the log index.
    OptedOut(u32),
    /// The schedule is blocked.
    ScheduleBlocked(BlockCause),
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventSubject {
    /// A run.
    Run {
        /// The run.
        run: RunId,
        /// Name of its schedule.
        schedule: Arc<str>,
        /// Name of the occurrence.
        occurrence: OccurrenceName,
        /// Why it opened.
        cause: OpeningCause,
    },
    /// A schedule.
    Schedule(ScheduleId, Arc<str>),
    /// The opt-outs of the tenant.
    OptOuts,
}

/// Events of one entry about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventGroup {
    /// The tenant.
    pub tenant: Arc<str>,
    /// What they are about.
    pub subject: EventSubject,
    /// The events, in order.
    pub events: Vec<EventKind>,
}

/// Events of one entry, packed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedEvents {
    /// Ledger time of the entry.
    pub at: Time,
    /// Number of events.
    pub count: u32,
    /// The groups, in the form of the ledger.
    #[serde(serialize_with = "as_bytes")]
    packed: Vec<u8>,
}

impl PackedEvents {
    /// Packs groups of events.
    pub(crate) fn of(at: Time, groups: &[EventGroup]) -> PackedEvents {
        let count = groups.iter().map(|group| group.events.len()).sum::<usize>() as u32;
        PackedEvents { at, count, packed: form::encode(groups) }
    }

    /// Unpacks the groups, in order. The first event has the place in the row's key.
    ///
    /// # Errors
    /// If another build wrote them.
    pub fn groups(&self) -> Result<Vec<EventGroup>, Unreadable> {
        form::decode(&self.packed)
    }

    /// Size in bytes.
    pub fn packed_len(&self) -> usize {
        self.packed.len()
    }
}

/// Size of a row from which the next event begins another row, in bytes: far below the limit of all rows.
pub(crate) const ROW_BYTES: usize = 128 * 1_024;

/// Events that an entry has caused so far.
#[derive(Debug, Default)]
pub(crate) struct EntryEvents {
    groups: Vec<EventGroup>,
    /// Positions of the groups of runs.
    of_runs: BTreeMap<RunId, usize>,
}

impl EntryEvents {
    /// Adds an event of a run of this page and tenant.
    pub fn add(&mut self, page: (PageId, &Arc<str>), run: &Run, event: EventKind) {
        self.of_run(page, run).push(event);
    }

    /// Adds recipients of a run that reached a state, as slots of a chunk of the run's page. Joins them with those that
    /// reached it before by the same entry.
    pub fn add_recipients(
        &mut self,
        page: (PageId, &Arc<str>),
        run: &Run,
        state: RecipientState,
        (chunk, slots): (u32, &Bitmap),
    ) {
        let (chunk, own) = numbers_of(run, chunk, slots);
        let events = self.of_run(page, run);
        for event in events.iter_mut().rev() {
            match event {
                EventKind::Recipients { state: known, chunk: of, numbers } if (*known, *of) == (state, chunk) => {
                    numbers.add(&own);
                    return;
                }
                // The states of one recipient stay in their order.
                EventKind::Recipients { chunk: of, numbers, .. } if *of == chunk && !numbers.and(&own).is_empty() => {
                    break;
                }
                _ => {}
            }
        }
        events.push(EventKind::Recipients { state, chunk, numbers: own });
    }

    /// Adds an event that is about no run.
    pub fn add_other(&mut self, tenant: &str, subject: EventSubject, event: EventKind) {
        self.groups.push(EventGroup { tenant: tenant.into(), subject, events: vec![event] });
    }

    fn of_run(&mut self, (page, tenant): (PageId, &Arc<str>), run: &Run) -> &mut Vec<EventKind> {
        let (id, next) = (page.run_id(run), self.groups.len());
        let at = *self.of_runs.entry(id).or_insert(next);
        if at == next {
            let (schedule, occurrence, cause) = (Arc::clone(&run.name), run.occurrence.clone(), run.cause);
            let subject = EventSubject::Run { run: id, schedule, occurrence, cause };
            self.groups.push(EventGroup { tenant: Arc::clone(tenant), subject, events: Vec::new() });
        }
        &mut self.groups[at].events
    }

    /// Returns the rows, each with the place of its first event. None is much larger than [`ROW_BYTES`].
    pub fn into_rows(self, at: Time) -> Vec<(u32, PackedEvents)> {
        let (mut rows, mut open, mut bytes, mut place) = (Vec::new(), Vec::new(), 0, 0);
        let mut close = |open: &mut Vec<EventGroup>| {
            let row = PackedEvents::of(at, &std::mem::take(open));
            let next = place + row.count;
            rows.push((std::mem::replace(&mut place, next), row));
        };
        for EventGroup { tenant, subject, events } in self.groups {
            let head_bytes = form::encoded_len(&(&tenant, &subject));
            let group = |events| EventGroup { tenant: Arc::clone(&tenant), subject: subject.clone(), events };
            let mut own = Vec::new();
            bytes += head_bytes;
            for event in events {
                bytes += form::encoded_len(&event);
                own.push(event);
                if bytes > ROW_BYTES {
                    open.push(group(std::mem::take(&mut own)));
                    close(&mut open);
                    bytes = head_bytes;
                }
            }
            if !own.is_empty() {
                open.push(group(own));
            }
        }
        if !open.is_empty() {
            close(&mut open);
        }
        rows
    }
}

/// Returns the recipients of a run that have these slots of a chunk of its page: chunk and numbers in the audience. A
/// run that shares its page has few recipients, so all its numbers are in the first chunk.
fn numbers_of(run: &Run, chunk: u32, slots: &Bitmap) -> (u32, Bitmap) {
    let base = chunk * CHUNK;
    if run.first == 0 {
        return (chunk, slots.and(&Bitmap::range(0, run.count.saturating_sub(base))));
    }
    let numbers = slots.iter().filter_map(|slot| (base + u32::from(slot)).checked_sub(run.first));
    let numbers = numbers.filter(|number| *number < run.count).filter_map(|number| u16::try_from(number).ok());
    (0, numbers.collect())
}

impl Ledger {
    /// Iterates over the parts of the archive with events, oldest first.
    pub fn event_parts(&self) -> impl DoubleEndedIterator<Item = (ArchivePartKey, &ArchivePart)> + '_ {
        self.derived.event_parts.iter().filter_map(|key| Some((*key, self.parts.get(key)?)))
    }
}

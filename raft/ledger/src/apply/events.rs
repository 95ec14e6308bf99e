//! Stores the events of an entry, and moves them to the archive when there are enough.
//!
//! The events are part of the state, so they exist if and only if their entry was applied, and a new leader continues
//! them without a gap. The state has at most one part of them. The oldest part is removed when it is too old (P24), or
//! when there are too many; the head says up to where events are gone.

use std::sync::Arc;

use super::Context;
use crate::model::{ArchivePartKey, EventKind, EventSubject, Ledger, PartContent, RunId, ScheduleId};

/// Position of a part of events in its entry: above those of all parts with runs, and below that of audit records.
const PLACE: u32 = u32::MAX - 1;

impl Ledger {
    /// Stores what the entry has caused.
    pub(super) fn store_events(&mut self, context: &mut Context) {
        for (place, row) in std::mem::take(&mut context.events).into_rows(self.head.now) {
            self.derived.event_bytes += row.packed_len();
            self.events.put((context.index, place), row);
        }
        // An entry that raises the level may change the limits.
        let limits = self.limits();
        if self.events.len() >= limits.event_part_rows || self.derived.event_bytes >= limits.event_part_bytes {
            self.archive_events(context);
        }
    }

    /// Moves the events to a new part of the archive.
    fn archive_events(&mut self, context: &Context) {
        let (first, last) = (self.events.iter().next(), self.events.iter().next_back());
        let (Some((&(first, _), _)), Some((&(last, _), row))) = (first, last) else { return };
        let until = row.at.plus_ms(self.limits().event_kept_ms);
        let part = Ledger { events: std::mem::take(&mut self.events), ..Ledger::new() };
        self.derived.event_bytes = 0;
        let key = ArchivePartKey { index: context.index, place: PLACE };
        self.add_part_of_rows(key, PartContent::Events { first, last }, part, until);
        self.derived.event_parts.insert(key);
        while self.derived.event_parts.len() > self.limits().event_parts_max
            && let Some(oldest) = self.derived.event_parts.first().copied()
        {
            self.remove_part(oldest);
        }
    }

    /// Adds an event of a run, if it is in the state.
    pub(super) fn add_run_event(&self, context: &mut Context, run: RunId, event: EventKind) {
        if let Some((id, page, position)) = self.page_of(run) {
            context.events.add((id, &page.tenant), &page.runs[position], event);
        }
    }

    /// Adds that a schedule is blocked.
    pub(super) fn add_blocked_event(&self, context: &mut Context, id: ScheduleId, event: EventKind) {
        if let Some(schedule) = self.schedules.get(&id) {
            let subject = EventSubject::Schedule(id, Arc::clone(&schedule.name));
            context.events.add_other(&schedule.settings.tenant, subject, event);
        }
    }
}

//! Reads a page of events: from the state, and from parts of the archive.
//!
//! A page is bounded by its events and bytes, and by what is examined for it. The lock of the state is held only to
//! copy some rows. Between two reads rows may leave the state for a part; the cursor finds them there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use prost::Message;
use reveille_ledger::erased::is_erased_key;
use reveille_ledger::events::{EventGroup, EventKey, EventKind, EventSubject, PackedEvents};
use reveille_ledger::ids::RunId;
use reveille_ledger::{ArchivePartKey, Ledger, PartContent};
use reveille_proto::admin::v1::{self, EventType};

use super::cursor::EventCursor;
use crate::server::admin::access::PII;
use crate::server::admin::archive::unless_lost;
use crate::server::admin::blobs::Blobs;
use crate::server::admin::paging::EXAMINED_MAX;
use crate::server::admin::{Admin, ApiResult, Call, error_texts, views};

/// Size of a page in bytes after which no event is added.
const PAGE_BYTES: usize = 1024 * 1024;
/// Size of an event without its texts, in bytes, for [`PAGE_BYTES`].
const EVENT_BYTES: usize = 128;
/// Size that an address is counted with.
const ADDRESS_BYTES: usize = 64;
/// Rows and bytes that are copied under the lock of the state at once.
const ROWS_MAX: usize = 512;
const ROW_BYTES_MAX: usize = 256 * 1024;
/// Number of opt-outs that are read under the lock at once.
const OPT_OUTS_READ: usize = 20_000;

/// Which events are read, and how they are shown.
pub struct EventQuery {
    /// The only tenant whose events are shown.
    pub tenant: String,
    /// Types of events; empty for all.
    pub types: BTreeSet<EventType>,
    /// One event for each recipient.
    pub single: bool,
    /// Maximum number of events.
    pub size: usize,
}

/// A page of events.
pub struct EventPage {
    pub events: Vec<v1::Event>,
    /// The place up to which events were read.
    pub cursor: EventCursor,
    /// True if the end of the log was not reached.
    pub more: bool,
    bytes: usize,
    examined: usize,
    /// Recipients and opt-outs whose addresses are shown, by the position of their event.
    recipients: Vec<(usize, RunId, u32)>,
    opt_outs: Vec<(usize, u64)>,
}

/// Where the events after a cursor are.
enum EventSource {
    /// In a part of the archive, up to this log index.
    Part(ArchivePartKey, u64),
    /// In the state. `end`: the log index up to which these rows have all events; `None`: there are more rows.
    State { rows: Vec<(EventKey, PackedEvents)>, end: Option<u64> },
}

impl EventPage {
    /// An empty page after this place.
    pub fn after(cursor: EventCursor) -> EventPage {
        let (events, recipients, opt_outs) = (Vec::new(), Vec::new(), Vec::new());
        EventPage { events, cursor, more: false, bytes: 0, examined: 0, recipients, opt_outs }
    }

    fn is_full(&self, query: &EventQuery) -> bool {
        self.events.len() >= query.size || self.bytes >= PAGE_BYTES
    }

    /// Adds the events of a row that are after the cursor. Returns false if the page is full or long enough.
    fn take(&mut self, query: &EventQuery, (index, first): EventKey, row: &PackedEvents) -> ApiResult<bool> {
        let groups = row.groups().map_err(|error| error_texts::broken(format!("events of entry {index}: {error}")))?;
        let mut place = first;
        for EventGroup { tenant, subject, events } in groups {
            let is_own = *tenant == *query.tenant;
            for kind in events {
                let at = place;
                place += 1;
                if EventCursor::after_event(index, at) <= self.cursor {
                    continue;
                }
                let is_wanted = || query.types.is_empty() || query.types.contains(&views::event::event_type(&kind));
                if is_own && is_wanted() && !self.add(query, (index, at), (&subject, &kind), row) {
                    self.more = true;
                    return Ok(false);
                }
                self.cursor = EventCursor::after_event(index, at);
            }
        }
        self.examined += row.count as usize;
        self.more = self.examined >= EXAMINED_MAX;
        Ok(!self.more)
    }

    /// Adds an event, or those of its recipients that are after the cursor. Returns false if the page is full before
    /// all are added.
    fn add(
        &mut self,
        query: &EventQuery,
        (index, place): (u64, u32),
        (subject, kind): (&EventSubject, &EventKind),
        row: &PackedEvents,
    ) -> bool {
        let event = |cursor: EventCursor| v1::Event {
            cursor: cursor.to_string(),
            time: Some(views::timestamp(row.at)),
            ..views::event::event(&query.tenant, subject, kind)
        };
        let EventKind::Recipients { chunk, numbers, .. } = kind else {
            if self.is_full(query) {
                return false;
            }
            if let EventKind::OptedOut(count) = kind {
                self.opt_outs.push((self.events.len(), index));
                self.bytes += *count as usize * ADDRESS_BYTES;
            }
            self.push(event(EventCursor::after_event(index, place)));
            return true;
        };
        let (runs, after) = (numbers.runs(), self.cursor.within(index, place));
        if !query.single {
            if self.is_full(query) {
                return false;
            }
            let (numbers, count) = views::event::numbers(*chunk, &runs, after);
            // A reader of single recipients had the last one already.
            if count == 0 {
                return true;
            }
            self.push(v1::Event { numbers, count, ..event(EventCursor::after_event(index, place)) });
            return true;
        }
        let EventSubject::Run { run, .. } = subject else { return true };
        for number in views::event::each_number(*chunk, &runs, after) {
            if self.is_full(query) {
                return false;
            }
            self.recipients.push((self.events.len(), *run, number));
            self.cursor = EventCursor::after_recipient(index, place, number);
            self.push(v1::Event { numbers: number.to_string(), count: 1, ..event(self.cursor) });
        }
        true
    }

    fn push(&mut self, event: v1::Event) {
        let block = event.block.as_ref().map_or(0, Message::encoded_len);
        self.bytes += EVENT_BYTES + event.numbers.len() + block;
        self.events.push(event);
    }
}

impl Admin {
    /// Reads the next events after a place. With the right to read addresses, it also reads those.
    pub(super) async fn read_events(
        &self,
        query: &EventQuery,
        call: &Call,
        after: EventCursor,
    ) -> ApiResult<EventPage> {
        let mut page = EventPage::after(after);
        self.fill(query, call, &mut page).await?;
        if call.has(PII) {
            self.add_recipients(&mut page).await?;
            self.add_opt_outs(&query.tenant, &mut page).await;
        }
        Ok(page)
    }

    async fn fill(&self, query: &EventQuery, call: &Call, page: &mut EventPage) -> ApiResult<()> {
        loop {
            let source = self.context.replica.read(|ledger| -> ApiResult<EventSource> {
                call.check(ledger)?;
                check_is_kept(ledger, page.cursor)?;
                Ok(source(ledger, page.cursor))
            })?;
            match source {
                EventSource::Part(key, last) => {
                    // The retention of the part may have ended. Then the next look says that the cursor is too old.
                    let Some(part) = self.open_part(key).await? else { continue };
                    for (key, row) in part.events().range(first_row(&part, page.cursor)..) {
                        if !page.take(query, *key, row)? {
                            return Ok(());
                        }
                    }
                    page.cursor = EventCursor::after_entry(last);
                }
                EventSource::State { rows, end } => {
                    for (key, row) in &rows {
                        if !page.take(query, *key, row)? {
                            return Ok(());
                        }
                    }
                    if let Some(end) = end {
                        page.cursor = page.cursor.max(EventCursor::after_entry(end));
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Adds the addresses of single recipients. Those of runs whose lists are too large for one page are left to the
    /// next page.
    async fn add_recipients(&self, page: &mut EventPage) -> ApiResult<()> {
        let (mut blobs, mut audiences, mut wanted) = (Blobs::default(), BTreeMap::new(), Vec::new());
        for (position, run, number) in std::mem::take(&mut page.recipients) {
            let audience = match audiences.get(&run) {
                Some(audience) => *audience,
                None if blobs.is_full() => {
                    page.cut(position);
                    break;
                }
                None => {
                    let audience = self.read_run(run, |at| {
                        let audience = at.own.run(run)?.audience;
                        blobs.take_of_run(at, audience);
                        Some(audience)
                    });
                    // Of a lost run no address is known.
                    *audiences.entry(run).or_insert(unless_lost(audience.await)?.unwrap_or_default())
                }
            };
            wanted.extend(audience.map(|audience| (position, (audience, number))));
        }
        let (positions, wanted): (Vec<usize>, Vec<_>) = wanted.into_iter().unzip();
        for (position, recipient) in positions.into_iter().zip(self.recipients(&blobs, &wanted).await) {
            let known = recipient.filter(|recipient| !recipient.is_erased());
            if let (Some(event), Some(recipient)) = (page.events.get_mut(position), known) {
                event.addresses.push(recipient.address);
            }
        }
        Ok(())
    }

    /// Adds the addresses of opt-outs. An event has none, so an erasure need not change events.
    async fn add_opt_outs(&self, tenant: &str, page: &mut EventPage) {
        let positions: BTreeMap<u64, usize> =
            page.opt_outs.iter().map(|(position, index)| (*index, *position)).collect();
        let mut from = Bound::Included((tenant.to_owned(), String::new()));
        while !positions.is_empty() {
            let (found, last) = self.context.replica.read(|ledger| {
                let rows = ledger.opted_out().range((from.clone(), Bound::Unbounded));
                let rows = rows.take_while(|((of, _), _)| of == tenant).take(OPT_OUTS_READ);
                let (mut found, mut last) = (Vec::new(), None);
                for (key, row) in rows {
                    last = Some(key);
                    if positions.contains_key(&row.index) && !is_erased_key(&key.1) {
                        found.push((row.index, key.1.clone()));
                    }
                }
                (found, last.cloned())
            });
            for (index, address) in found {
                if let Some(event) = positions.get(&index).and_then(|position| page.events.get_mut(*position)) {
                    event.addresses.push(address);
                }
            }
            match last {
                Some(last) => from = Bound::Excluded(last),
                None => return,
            }
        }
    }
}

impl EventPage {
    /// Leaves the events from this position on to the next page. There is one before it.
    fn cut(&mut self, position: usize) {
        self.events.truncate(position);
        self.opt_outs.retain(|(of, _)| *of < position);
        let last = self.events.last().and_then(|event| event.cursor.parse().ok());
        (self.cursor, self.more) = (last.unwrap_or(self.cursor), true);
    }
}

/// Checks that all events after the cursor are kept.
pub fn check_is_kept(ledger: &Ledger, cursor: EventCursor) -> ApiResult<()> {
    let oldest = oldest(ledger);
    if cursor < oldest { Err(cursor.too_old(oldest)) } else { Ok(()) }
}

/// The place before the oldest event that is kept.
pub fn oldest(ledger: &Ledger) -> EventCursor {
    EventCursor::after_entry(ledger.head().dropped_events_index)
}

/// Returns the last row that begins at or before the cursor, or the first one of all.
fn first_row(ledger: &Ledger, cursor: EventCursor) -> EventKey {
    ledger.events().range(..=cursor.key()).next_back().map_or((0, 0), |(key, _)| *key)
}

/// Returns where the next events are, and some of those in the state.
fn source(ledger: &Ledger, cursor: EventCursor) -> EventSource {
    let parts = ledger.event_parts().filter_map(|(key, part)| match part.content {
        PartContent::Events { last, .. } => Some((key, last)),
        _ => None,
    });
    if let Some((key, last)) = parts.into_iter().find(|(_, last)| EventCursor::after_entry(*last) > cursor) {
        return EventSource::Part(key, last);
    }
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for (key, row) in ledger.events().range(first_row(ledger, cursor)..) {
        // The first row may have been read before.
        if rows.len() >= ROWS_MAX || bytes >= ROW_BYTES_MAX && rows.len() > 1 {
            return EventSource::State { rows, end: None };
        }
        bytes += row.packed_len();
        rows.push((*key, row.clone()));
    }
    EventSource::State { rows, end: Some(ledger.head().applied) }
}

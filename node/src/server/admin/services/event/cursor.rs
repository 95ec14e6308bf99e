//! The place of a reader in the order of events.

use std::fmt;
use std::str::FromStr;

use reveille_ledger::events::EventKey;
use reveille_proto::admin::v1::ErrorReason;
use tonic::Code;

use crate::server::admin::ApiError;

/// A place in the order of events: all events up to it were read. Its text has the log index of an entry, the place of
/// an event in it, and the number of a recipient in that: `1042.3.17`. Without the last ones it is the place after the
/// whole event or entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventCursor {
    /// Log index of the entry.
    pub index: u64,
    /// Place of the event in the entry.
    place: u32,
    /// Number of the recipient.
    number: u32,
}

/// Place and number after all others.
const ALL: u32 = u32::MAX;

impl EventCursor {
    /// The place after all events of an entry.
    pub fn after_entry(index: u64) -> EventCursor {
        EventCursor { index, place: ALL, number: ALL }
    }

    /// The place after an event.
    pub fn after_event(index: u64, place: u32) -> EventCursor {
        EventCursor { index, place, number: ALL }
    }

    /// The place after one recipient of an event.
    pub fn after_recipient(index: u64, place: u32, number: u32) -> EventCursor {
        EventCursor { index, place, number }
    }

    /// The place of the event, as rows of events are named.
    pub fn key(&self) -> EventKey {
        (self.index, self.place)
    }

    /// The error of a reader that has been away for too long.
    pub fn too_old(&self, oldest: EventCursor) -> ApiError {
        let message = format!(
            "events after {self} are no longer kept; the oldest ones are after {oldest}: read the state anew, and continue there"
        );
        ApiError::new(Code::OutOfRange, ErrorReason::CursorTooOld, message).index(oldest.index)
    }

    /// Number of the last recipient that was read, if the place is within this event.
    pub fn within(&self, index: u64, place: u32) -> Option<u32> {
        ((self.index, self.place) == (index, place)).then_some(self.number)
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.place, self.number) {
            (ALL, _) => write!(f, "{}", self.index),
            (place, ALL) => write!(f, "{}.{place}", self.index),
            (place, number) => write!(f, "{}.{place}.{number}", self.index),
        }
    }
}

impl FromStr for EventCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<EventCursor, ()> {
        let mut parts = text.splitn(3, '.');
        let index = parts.next().and_then(|index| index.parse().ok()).ok_or(())?;
        let mut number = || parts.next().map_or(Ok(ALL), |number| number.parse().map_err(|_| ()));
        let cursor = EventCursor { index, place: number()?, number: number()? };
        // Each place has one text.
        (cursor.to_string() == text).then_some(cursor).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_back_in_their_order() {
        let all = [
            EventCursor::after_entry(6),
            EventCursor::after_recipient(7, 0, 0),
            EventCursor::after_recipient(7, 0, 65_536),
            EventCursor::after_event(7, 0),
            EventCursor::after_event(7, 1),
            EventCursor::after_entry(7),
            EventCursor::after_entry(u64::MAX),
        ];
        assert!(all.is_sorted());
        for cursor in all {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        assert_eq!(all[2].to_string(), "7.0.65536");
        assert_eq!((all[2].within(7, 0), all[2].within(7, 1), all[2].within(8, 0)), (Some(65_536), None, None));
        for text in ["", "x", "-1", "+7", "07", "7.", "7.x", "7.1.2.3", "7.4294967295", "7.1.4294967295", " 7", "7.1 "]
        {
            assert_eq!(text.parse::<EventCursor>(), Err(()), "{text:?}");
        }
    }
}

//! History of a claim: what happened to its recipients, event by event. It is kept with the claim, so `explain` works
//! after the log was purged.
//!
//! A small claim keeps each event. In a larger claim, entries with the same effect are merged: index and time are those
//! of the last entry, and texts that differ are dropped. A claim of 256 that was sent in twenty portions takes a dozen
//! bytes. Two events merge only if no event between them has a recipient in common with them. The order changes only if
//! more than 32 events leave no other pair to join.

use serde::{Deserialize, Serialize};

use crate::model::{
    Bitmap, Decider, EnhancedCode, RecipientState, RefusalEffect, RelayReply, ReleaseReason, Time, Unsendable,
};

/// Maximum number of events in a claim. There are fewer kinds of events, so two events can always be merged.
pub const CLAIM_EVENTS_MAX: usize = 32;
/// Maximum number of recipients of a claim that keeps each event separately while it has room.
pub const EXACT_HISTORY_MAX: u32 = 16;

/// Why it is unknown whether an email was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DoubtReason {
    /// The owner is alive and received no answer after the final dot.
    NoAnswer,
    /// The owner's lease is over, and the owner has reported nothing since.
    OwnerLost,
    /// A later incarnation of the node read the owner's journal: the handoff began, and no answer is recorded.
    Begun,
    /// A later incarnation of the node found no journal that proves anything.
    NoJournal,
    /// The cluster was restored from a backup, and the former cluster may have sent the email since (P21).
    Restored,
}

/// Kinds of events of a claim's recipients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimEventKind {
    /// A relay accepted the email.
    Accepted,
    /// A relay accepted the email, after another accept under another fence.
    KnownDuplicate,
    /// A relay accepted the email, although the recipient was closed as something else.
    Contradiction,
    /// A relay refused the email. If `code` is 0, no relay could be asked.
    Refused {
        /// Basic code.
        code: u16,
        /// Enhanced status code; `None` if the answer had none.
        enhanced: Option<EnhancedCode>,
        /// Effect of the refusal.
        effect: RefusalEffect,
        /// Text of the answer; empty if merged answers differ.
        text: String,
    },
    /// The email was not handed off. `None`: merged events have different reasons.
    Released(Option<ReleaseReason>),
    /// The email was not handed off, because the recipient had opted out.
    Suppressed,
    /// The email cannot be given to any relay.
    Unsendable(Unsendable),
    /// It is unknown whether the relay accepted the email.
    InDoubt(DoubtReason),
    /// The recipient was closed as assumed while in doubt.
    Assumed(Decider),
    /// The recipient is sent again, although it was in doubt.
    Resent(Decider),
    /// An accept under another claim took the recipient out of this claim.
    AcceptedElsewhere,
    /// A relay accepted the email, with this reply. Only for test emails, whose claim has one recipient.
    TestAccepted(RelayReply),
    /// This relay was asked and did not accept the email; the outcome is the next event. Only for test emails.
    TestRelay(String),
    /// A relay accepted the email, as its log shows, which an operator read.
    AcceptedByLog,
}

impl ClaimEventKind {
    /// Merges two events that differ at most in their texts; `None` if they differ in more.
    fn merge_texts(&self, other: &ClaimEventKind) -> Option<ClaimEventKind> {
        match (self, other) {
            (
                ClaimEventKind::Refused { code, enhanced, effect, text },
                ClaimEventKind::Refused { code: c, enhanced: e, effect: s, text: t },
            ) if (code, enhanced, effect) == (c, e, s) => {
                let text = if text == t { text.clone() } else { String::new() };
                Some(ClaimEventKind::Refused { code: *code, enhanced: *enhanced, effect: *effect, text })
            }
            (one, other) if one == other => Some(one.clone()),
            (ClaimEventKind::Unsendable(_), ClaimEventKind::Unsendable(_)) => {
                Some(ClaimEventKind::Unsendable(Unsendable::NotComposed(String::new())))
            }
            _ => None,
        }
    }

    /// Merges two events of one kind; `None` if their kinds differ.
    fn merge_details(&self, other: &ClaimEventKind) -> Option<ClaimEventKind> {
        self.merge_texts(other).or_else(|| match (self, other) {
            (ClaimEventKind::Refused { .. }, ClaimEventKind::Refused { .. }) => Some(ClaimEventKind::Refused {
                code: 0,
                enhanced: None,
                effect: RefusalEffect::NextWave,
                text: String::new(),
            }),
            (ClaimEventKind::Released(_), ClaimEventKind::Released(_)) => Some(ClaimEventKind::Released(None)),
            _ => None,
        })
    }
}

/// Effect of one entry, or of several merged ones, on recipients of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimEvent {
    /// Log index of the entry; of merged entries, the last.
    pub index: u64,
    /// Ledger time of the entry; of merged entries, the last.
    pub at: Time,
    /// Kind of the event.
    pub what: ClaimEventKind,
    /// State of the recipients after it.
    pub to: RecipientState,
    /// Number of entries that are merged here.
    pub entries: u32,
    /// The recipients' slots. `None`: all slots that the claim was granted.
    slots: Option<Bitmap>,
}

impl ClaimEvent {
    /// Returns the slots of its recipients. `granted` are the slots that the claim was granted.
    pub fn slots<'a>(&'a self, granted: &'a Bitmap) -> &'a Bitmap {
        self.slots.as_ref().unwrap_or(granted)
    }
}

/// True if none of the events has one of these slots.
fn none_has(events: &[ClaimEvent], slots: &Bitmap, granted: &Bitmap) -> bool {
    events.iter().all(|event| event.slots(granted).and(slots).is_empty())
}

/// Events of a claim, in the order of their log indices; at most [`CLAIM_EVENTS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimHistory(Vec<ClaimEvent>);

impl ClaimHistory {
    /// Iterates over the events, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ClaimEvent> + ExactSizeIterator {
        self.0.iter()
    }

    /// Returns the history with all indices and times shifted by these offsets. Overflow wraps, so the opposite shift
    /// restores the values.
    pub(crate) fn moved_by(&self, index: u64, at: i64) -> ClaimHistory {
        let moved = |event: &ClaimEvent| ClaimEvent {
            index: event.index.wrapping_add(index),
            at: Time(event.at.0.wrapping_add(at)),
            ..event.clone()
        };
        ClaimHistory(self.0.iter().map(moved).collect())
    }

    /// Returns the slots in doubt because the owner was lost, of which neither the owner nor its journal has reported
    /// since.
    pub fn given_up(&self, granted: &Bitmap) -> Bitmap {
        let mut slots = Bitmap::new();
        // The owner or its journal reports each recipient once, so a later report ends the doubt of a lost owner. A
        // claim has one `OwnerLost`, so this holds also where events were joined out of order.
        for event in &self.0 {
            match event.what {
                ClaimEventKind::InDoubt(DoubtReason::OwnerLost) => slots.add(event.slots(granted)),
                ClaimEventKind::InDoubt(_) => slots.remove(event.slots(granted)),
                _ => {}
            }
        }
        slots
    }

    /// Adds what the entry at `index` did to `slots`. `granted` are the slots that the claim was granted.
    pub(crate) fn record(
        &mut self,
        (index, at): (u64, Time),
        (what, to): (ClaimEventKind, RecipientState),
        slots: &Bitmap,
        granted: &Bitmap,
    ) {
        if slots.is_empty() {
            return;
        }
        let is_exact = granted.len() <= EXACT_HISTORY_MAX;
        let as_one = |known: &ClaimEvent| match known.index == index || !is_exact {
            true if is_exact => (known.what == what).then(|| what.clone()),
            true => known.what.merge_texts(&what),
            false => None,
        };
        let found = (0..self.0.len()).rev().find_map(|position| {
            let known = &self.0[position];
            let joined = as_one(known).filter(|_| known.to == to)?;
            let in_order = none_has(&self.0[position..], slots, granted)
                && none_has(&self.0[position + 1..], known.slots(granted), granted);
            in_order.then_some((position, joined))
        });
        let mut fresh = ClaimEvent { index, at, what, to, entries: 1, slots: None };
        let mut all = slots.clone();
        if let Some((position, joined)) = found {
            let known = self.0.remove(position);
            all.add(known.slots(granted));
            fresh = ClaimEvent { what: joined, entries: known.entries + u32::from(known.index != index), ..fresh };
        }
        self.0.push(ClaimEvent { slots: (all != *granted).then_some(all), ..fresh });
        while self.0.len() > CLAIM_EVENTS_MAX && self.shorten(granted) {}
    }

    /// Merges the two oldest events of one kind. Prefers a pair that keeps the order of each recipient's events.
    fn shorten(&mut self, granted: &Bitmap) -> bool {
        let pairs = (0..self.0.len()).flat_map(|one| (one + 1..self.0.len()).map(move |other| (one, other)));
        let joined = |(one, other): (usize, usize)| {
            let (one, other) = (&self.0[one], &self.0[other]);
            one.what.merge_details(&other.what).filter(|_| one.to == other.to)
        };
        let in_order =
            |(one, other): (usize, usize)| none_has(&self.0[one + 1..=other], self.0[one].slots(granted), granted);
        let found = pairs.clone().filter(|pair| in_order(*pair)).find_map(|pair| Some((pair, joined(pair)?)));
        let Some(((one, other), what)) = found.or_else(|| pairs.clone().find_map(|pair| Some((pair, joined(pair)?))))
        else {
            return false;
        };
        let mut slots = self.0[one].slots(granted).clone();
        slots.add(self.0[other].slots(granted));
        let entries = self.0[one].entries.saturating_add(self.0[other].entries);
        let later = &mut self.0[other];
        (later.what, later.entries, later.slots) = (what, entries, (slots != *granted).then_some(slots));
        self.0.remove(one);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(slots: impl IntoIterator<Item = u16>) -> Bitmap {
        slots.into_iter().collect()
    }

    fn refused(code: u16, text: &str) -> ClaimEventKind {
        ClaimEventKind::Refused { code, enhanced: None, effect: RefusalEffect::Dead, text: text.to_owned() }
    }

    /// Returns the events of a slot: log index and number of entries.
    fn of(history: &ClaimHistory, slot: u16, granted: &Bitmap) -> Vec<(u64, u32)> {
        let mine = history.iter().filter(|event| event.slots(granted).contains(slot));
        mine.map(|event| (event.index, event.entries)).collect()
    }

    #[test]
    fn large_claim_sent_in_portions_is_one_event_of_a_dozen_bytes() {
        let granted = Bitmap::range(512, 256);
        let mut history = ClaimHistory::default();
        for (position, slot) in granted.iter().enumerate() {
            let stamp = (70_000 + position as u64 / 10, Time(1_772_409_600_000));
            history.record(stamp, (ClaimEventKind::Accepted, RecipientState::Sent), &set([slot]), &granted);
        }
        assert_eq!(of(&history, 512, &granted), [(70_025, 26)]);
        let bytes = postcard::to_stdvec(&history).expect("plain data");
        assert!(bytes.len() <= 16, "{} bytes: {bytes:?}", bytes.len());
    }

    #[test]
    fn small_claim_keeps_one_event_per_entry() {
        let granted = Bitmap::range(0, 16);
        let mut history = ClaimHistory::default();
        for slot in granted.iter() {
            history.record(
                (7 + u64::from(slot / 8), Time(1)),
                (ClaimEventKind::Accepted, RecipientState::Sent),
                &set([slot]),
                &granted,
            );
        }
        let events: Vec<(u64, u32, u32)> =
            history.iter().map(|event| (event.index, event.entries, event.slots(&granted).len())).collect();
        assert_eq!(events, [(7, 1, 8), (8, 1, 8)]);
    }

    #[test]
    fn large_claim_drops_differing_texts_but_keeps_order() {
        let granted = Bitmap::range(0, 100);
        let mut history = ClaimHistory::default();
        history.record((1, Time(1)), (refused(550, "no such user ann"), RecipientState::Dead), &set([1]), &granted);
        history.record((2, Time(2)), (refused(550, "no such user bob"), RecipientState::Dead), &set([2]), &granted);
        history.record((3, Time(3)), (refused(450, "busy"), RecipientState::Pending), &set([3]), &granted);
        assert_eq!(
            history.iter().map(|event| event.what.clone()).collect::<Vec<_>>(),
            [refused(550, ""), refused(450, "busy"),]
        );
        // A later event has slot 2, so events after it are not merged into events before it.
        history.record((4, Time(4)), (ClaimEventKind::Contradiction, RecipientState::Dead), &set([2]), &granted);
        history.record((5, Time(5)), (refused(550, "x"), RecipientState::Dead), &set([2]), &granted);
        assert_eq!(of(&history, 2, &granted), [(2, 2), (4, 1), (5, 1)]);
    }

    #[test]
    fn event_of_one_recipient_keeps_order_of_events_of_another() {
        let granted = Bitmap::range(0, 100);
        let mut history = ClaimHistory::default();
        let doubt = || (ClaimEventKind::InDoubt(DoubtReason::NoAnswer), RecipientState::InDoubt);
        history.record((1, Time(1)), doubt(), &set([1]), &granted);
        history.record((2, Time(2)), (ClaimEventKind::Accepted, RecipientState::Sent), &set([1]), &granted);
        history.record((3, Time(3)), doubt(), &set([2]), &granted);
        assert_eq!(of(&history, 1, &granted), [(1, 1), (2, 1)]);
        let last = |slot| history.iter().rfind(|event| event.slots(&granted).contains(slot)).map(|event| event.to);
        assert_eq!((last(1), last(2)), (Some(RecipientState::Sent), Some(RecipientState::InDoubt)));
    }

    #[test]
    fn any_events_stay_bounded_and_name_all_recipients() {
        let granted = Bitmap::range(0, 8);
        let mut history = ClaimHistory::default();
        for index in 1..500_u64 {
            let slot = (index % 8) as u16;
            let (what, to) = match index % 5 {
                0 => (refused(400 + (index % 100) as u16, &index.to_string()), RecipientState::Pending),
                1 => (ClaimEventKind::InDoubt(DoubtReason::OwnerLost), RecipientState::InDoubt),
                2 => (ClaimEventKind::Released(Some(ReleaseReason::Stopping)), RecipientState::Pending),
                3 => (ClaimEventKind::Unsendable(Unsendable::NotComposed(index.to_string())), RecipientState::Dead),
                _ => (ClaimEventKind::Released(Some(ReleaseReason::LeaseOver)), RecipientState::Expired),
            };
            history.record((index, Time(index as i64)), (what, to), &set([slot]), &granted);
            assert!(history.iter().len() <= CLAIM_EVENTS_MAX);
            assert!(history.iter().is_sorted_by_key(|event| event.index));
            assert_eq!(of(&history, slot, &granted).last().map(|(last, _)| *last), Some(index));
        }
        assert!((0..8).all(|slot| !of(&history, slot, &granted).is_empty()));
    }

    #[test]
    fn given_up_recipient_stays_so_until_owner_or_journal_answers() {
        let granted = Bitmap::range(0, 4);
        let mut history = ClaimHistory::default();
        history.record(
            (5, Time(5)),
            (ClaimEventKind::InDoubt(DoubtReason::NoAnswer), RecipientState::InDoubt),
            &set([0]),
            &granted,
        );
        history.record(
            (6, Time(6)),
            (ClaimEventKind::InDoubt(DoubtReason::OwnerLost), RecipientState::InDoubt),
            &set([1, 2, 3]),
            &granted,
        );
        assert_eq!(history.given_up(&granted), set([1, 2, 3]));
        history.record(
            (7, Time(7)),
            (ClaimEventKind::InDoubt(DoubtReason::Begun), RecipientState::InDoubt),
            &set([1]),
            &granted,
        );
        assert_eq!(history.given_up(&granted), set([2, 3]));
    }
}

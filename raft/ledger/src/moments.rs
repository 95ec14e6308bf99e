//! What became of the recipients of a row, moment by moment. It stays with the row as long as the row does,
//! so that a story can be told after the log was purged.
//!
//! A row of a few recipients is told exactly. In a larger one, entries that did the same one after the other
//! are told as one, with the index and the instant of the last, and texts that differ are left out: a row of
//! 256 that was sent in twenty portions keeps a dozen bytes. Recipients never change their order: a moment is
//! joined with an earlier one only where nothing in between concerns anybody of it.

use serde::{Deserialize, Serialize};

use crate::bitmap::Bitmap;
use crate::command::{Decider, Said, Scope, Unsendable, Why};
use crate::ids::Time;
use crate::state::Standing;

/// Moments that a row keeps at most: above the number of their kinds, so that two can always be joined.
pub const MOMENTS_MAX: usize = 32;
/// A row of at most so many recipients keeps each moment by itself as long as there is room.
pub const TOLD_EXACTLY_MAX: u32 = 16;

/// Why nobody knows whether a mail was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Doubt {
    /// Its holder lives, and heard no answer after the final dot.
    NoAnswer,
    /// The lease of its holder is over, and nothing has come from it since.
    HolderLost,
    /// A later life of its node read the holder's journal: the hand-off began, and no answer is written.
    Begun,
    /// A later life of its node found no journal that proves anything.
    NoJournal,
}

/// What became of a recipient in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The relay took it.
    Accepted,
    /// The relay took it, and has taken it under another fence before.
    KnownDuplicate,
    /// The relay took it, though it had been closed as something else.
    Contradiction,
    /// The relay refused it; where `code` is 0 no relay could be asked.
    Refused {
        /// Basic code.
        code: u16,
        /// Enhanced status code.
        enhanced: Option<(u8, u16, u16)>,
        /// Whom it concerns.
        scope: Scope,
        /// Its text; empty where this stands for answers that differ.
        text: String,
    },
    /// It was not handed off; none where this stands for several reasons.
    Released(Option<Why>),
    /// It was not handed off, because it had opted out.
    Suppressed,
    /// No relay can be given its email.
    Unsendable(Unsendable),
    /// Nobody knows.
    InDoubt(Doubt),
    /// It was closed while in doubt.
    Assumed(Decider),
    /// It is to be sent again, though in doubt.
    Resent(Decider),
    /// Another row's accept came, and took it out of this one.
    AcceptedElsewhere,
    /// The relay took it, and this is what it said: of test mails, whose row is of one.
    Taken(Said),
    /// This relay was asked, and did not take it; what came of it is the next moment. Of test mails too.
    Asked(String),
}

impl What {
    /// Both as one that differs from them in texts at most; none where more differs.
    fn but_for_texts(&self, other: &What) -> Option<What> {
        match (self, other) {
            (
                What::Refused { code, enhanced, scope, text },
                What::Refused { code: c, enhanced: e, scope: s, text: t },
            ) if (code, enhanced, scope) == (c, e, s) => {
                let text = if text == t { text.clone() } else { String::new() };
                Some(What::Refused { code: *code, enhanced: *enhanced, scope: *scope, text })
            }
            (one, other) if one == other => Some(one.clone()),
            (What::Unsendable(_), What::Unsendable(_)) => {
                Some(What::Unsendable(Unsendable::NotComposed(String::new())))
            }
            _ => None,
        }
    }

    /// Both as one of their kind; none where they are of different kinds.
    fn but_for_details(&self, other: &What) -> Option<What> {
        self.but_for_texts(other).or_else(|| match (self, other) {
            (What::Refused { .. }, What::Refused { .. }) => {
                Some(What::Refused { code: 0, enhanced: None, scope: Scope::Relay, text: String::new() })
            }
            (What::Released(_), What::Released(_)) => Some(What::Released(None)),
            _ => None,
        })
    }
}

/// What an entry did to recipients of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Log index of the entry.
    pub index: u64,
    /// Ledger time of the entry.
    pub at: Time,
    /// What it did.
    pub what: What,
    /// Where they stood after it.
    pub to: Standing,
    /// Entries that are told here as one: index and instant are those of the last.
    pub entries: u32,
    /// Whom; none: all that the row was granted.
    slots: Option<Bitmap>,
}

impl Moment {
    /// The recipients that it tells of, in a row that was granted `granted`.
    pub fn slots<'a>(&'a self, granted: &'a Bitmap) -> &'a Bitmap {
        self.slots.as_ref().unwrap_or(granted)
    }

    /// The recipients that it tells of, where these are not all.
    pub(crate) fn some(&self) -> Option<&Bitmap> {
        self.slots.as_ref()
    }
}

/// The moments of a row, in the order of log indices; at most [`MOMENTS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments(Vec<Moment>);

impl Moments {
    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Moment> + ExactSizeIterator {
        self.0.iter()
    }

    /// The same, told by indices and instants that are so much later; whatever wraps around comes back.
    pub(crate) fn moved_by(&self, index: u64, at: i64) -> Moments {
        let moved = |moment: &Moment| Moment {
            index: moment.index.wrapping_add(index),
            at: Time(moment.at.0.wrapping_add(at)),
            ..moment.clone()
        };
        Moments(self.0.iter().map(moved).collect())
    }

    /// Those in whose doubt nothing was heard of the holder, or of its journal, since its lease was over.
    pub fn given_up(&self, granted: &Bitmap) -> Bitmap {
        let mut slots = Bitmap::new();
        // A holder or its journal has one word about each: after it nothing is said of a doubt any more.
        for moment in &self.0 {
            match moment.what {
                What::InDoubt(Doubt::HolderLost) => slots.add(moment.slots(granted)),
                What::InDoubt(_) => slots.remove(moment.slots(granted)),
                _ => {}
            }
        }
        slots
    }

    /// Adds what the entry at `index` did to `slots` of a row that was granted `granted`.
    pub(crate) fn note(
        &mut self,
        (index, at): (u64, Time),
        (what, to): (What, Standing),
        slots: &Bitmap,
        granted: &Bitmap,
    ) {
        if slots.is_empty() {
            return;
        }
        let told_exactly = granted.len() <= TOLD_EXACTLY_MAX;
        let as_one = |known: &Moment| match known.index == index || !told_exactly {
            true if told_exactly => (known.what == what).then(|| what.clone()),
            true => known.what.but_for_texts(&what),
            false => None,
        };
        let found = (0..self.0.len()).rev().find_map(|place| {
            let known = &self.0[place];
            let joined = as_one(known).filter(|_| known.to == to)?;
            self.is_free(place, slots, granted).then_some((place, joined))
        });
        let mut fresh = Moment { index, at, what, to, entries: 1, slots: None };
        let mut all = slots.clone();
        if let Some((place, joined)) = found {
            let known = self.0.remove(place);
            all.add(known.slots(granted));
            fresh = Moment { what: joined, entries: known.entries + u32::from(known.index != index), ..fresh };
        }
        self.0.push(Moment { slots: (all != *granted).then_some(all), ..fresh });
        while self.0.len() > MOMENTS_MAX && self.shorten(granted) {}
    }

    /// Tells nothing from `place` on of any of these?
    fn is_free(&self, place: usize, slots: &Bitmap, granted: &Bitmap) -> bool {
        self.0[place..].iter().all(|moment| moment.slots(granted).and(slots).is_empty())
    }

    /// Joins the two oldest of a kind, if it can without changing anybody's order; else the two oldest.
    fn shorten(&mut self, granted: &Bitmap) -> bool {
        let pairs = (0..self.0.len()).flat_map(|one| (one + 1..self.0.len()).map(move |other| (one, other)));
        let joined = |(one, other): (usize, usize)| {
            let (one, other) = (&self.0[one], &self.0[other]);
            one.what.but_for_details(&other.what).filter(|_| one.to == other.to)
        };
        let in_order = |(one, other): (usize, usize)| {
            let slots = self.0[one].slots(granted);
            self.0[one + 1..=other].iter().all(|moment| moment.slots(granted).and(slots).is_empty())
        };
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

    fn refused(code: u16, text: &str) -> What {
        What::Refused { code, enhanced: None, scope: Scope::Mailbox, text: text.to_owned() }
    }

    /// What is told of a slot: index and entries of each moment.
    fn of(moments: &Moments, slot: u16, granted: &Bitmap) -> Vec<(u64, u32)> {
        let mine = moments.iter().filter(|moment| moment.slots(granted).contains(slot));
        mine.map(|moment| (moment.index, moment.entries)).collect()
    }

    #[test]
    fn a_large_row_that_was_sent_in_portions_is_one_moment_of_a_dozen_bytes() {
        let granted = Bitmap::range(512, 256);
        let mut moments = Moments::default();
        for (place, slot) in granted.iter().enumerate() {
            let stamp = (70_000 + place as u64 / 10, Time(1_772_409_600_000));
            moments.note(stamp, (What::Accepted, Standing::Sent), &set([slot]), &granted);
        }
        assert_eq!(of(&moments, 512, &granted), [(70_025, 26)]);
        let bytes = postcard::to_stdvec(&moments).expect("plain data");
        assert!(bytes.len() <= 16, "{} bytes: {bytes:?}", bytes.len());
    }

    #[test]
    fn a_small_row_is_told_exactly_and_one_entry_is_one_moment() {
        let granted = Bitmap::range(0, 16);
        let mut moments = Moments::default();
        for slot in granted.iter() {
            moments.note((7 + u64::from(slot / 8), Time(1)), (What::Accepted, Standing::Sent), &set([slot]), &granted);
        }
        let told: Vec<(u64, u32, u32)> =
            moments.iter().map(|moment| (moment.index, moment.entries, moment.slots(&granted).len())).collect();
        assert_eq!(told, [(7, 1, 8), (8, 1, 8)]);
    }

    #[test]
    fn a_large_row_leaves_out_texts_that_differ_and_never_anybodys_order() {
        let granted = Bitmap::range(0, 100);
        let mut moments = Moments::default();
        moments.note((1, Time(1)), (refused(550, "no such user ann"), Standing::Dead), &set([1]), &granted);
        moments.note((2, Time(2)), (refused(550, "no such user bob"), Standing::Dead), &set([2]), &granted);
        moments.note((3, Time(3)), (refused(450, "busy"), Standing::Pending), &set([3]), &granted);
        assert_eq!(
            moments.iter().map(|moment| moment.what.clone()).collect::<Vec<_>>(),
            [refused(550, ""), refused(450, "busy"),]
        );
        // 2 is told of by a later moment: what comes after that stays after it.
        moments.note((4, Time(4)), (What::Contradiction, Standing::Dead), &set([2]), &granted);
        moments.note((5, Time(5)), (refused(550, "x"), Standing::Dead), &set([2]), &granted);
        assert_eq!(of(&moments, 2, &granted), [(2, 2), (4, 1), (5, 1)]);
    }

    #[test]
    fn whatever_comes_the_list_stays_bounded_and_tells_of_everybody() {
        let granted = Bitmap::range(0, 8);
        let mut moments = Moments::default();
        for index in 1..500_u64 {
            let slot = (index % 8) as u16;
            let (what, to) = match index % 5 {
                0 => (refused(400 + (index % 100) as u16, &index.to_string()), Standing::Pending),
                1 => (What::InDoubt(Doubt::HolderLost), Standing::InDoubt),
                2 => (What::Released(Some(Why::Stopping)), Standing::Pending),
                3 => (What::Unsendable(Unsendable::NotComposed(index.to_string())), Standing::Dead),
                _ => (What::Released(Some(Why::LeaseOver)), Standing::Expired),
            };
            moments.note((index, Time(index as i64)), (what, to), &set([slot]), &granted);
            assert!(moments.iter().len() <= MOMENTS_MAX);
            assert!(moments.iter().is_sorted_by_key(|moment| moment.index));
            assert_eq!(of(&moments, slot, &granted).last().map(|(last, _)| *last), Some(index));
        }
        assert!((0..8).all(|slot| !of(&moments, slot, &granted).is_empty()));
    }

    #[test]
    fn who_was_given_up_is_so_until_its_holder_or_its_journal_is_heard() {
        let granted = Bitmap::range(0, 4);
        let mut moments = Moments::default();
        moments.note((5, Time(5)), (What::InDoubt(Doubt::NoAnswer), Standing::InDoubt), &set([0]), &granted);
        moments.note((6, Time(6)), (What::InDoubt(Doubt::HolderLost), Standing::InDoubt), &set([1, 2, 3]), &granted);
        assert_eq!(moments.given_up(&granted), set([1, 2, 3]));
        moments.note((7, Time(7)), (What::InDoubt(Doubt::Begun), Standing::InDoubt), &set([1]), &granted);
        assert_eq!(moments.given_up(&granted), set([2, 3]));
    }

    /// P23: what is stored keeps its ordinal; another kind is added at the end.
    #[test]
    fn every_kind_keeps_its_ordinal() {
        let ordinal = |what: &What| postcard::to_stdvec(what).expect("plain data")[0];
        let kinds = [
            What::Accepted,
            What::KnownDuplicate,
            What::Contradiction,
            refused(550, "no"),
            What::Released(Some(Why::Busy)),
            What::Suppressed,
            What::Unsendable(Unsendable::NotComposed("no address".to_owned())),
            What::InDoubt(Doubt::NoAnswer),
            What::Assumed(Decider::Operator),
            What::Resent(Decider::Policy),
            What::AcceptedElsewhere,
            What::Taken(Said { relay: "main".to_owned(), code: 250, enhanced: None, text: "ok".to_owned() }),
            What::Asked("main".to_owned()),
        ];
        assert_eq!(kinds.iter().map(ordinal).collect::<Vec<u8>>(), (0..13).collect::<Vec<u8>>());
        let doubts = [Doubt::NoAnswer, Doubt::HolderLost, Doubt::Begun, Doubt::NoJournal];
        let bytes = postcard::to_stdvec(&doubts).expect("plain data");
        assert_eq!(bytes, [0, 1, 2, 3]);
        let whys = [
            Why::Busy,
            Why::Paced,
            Why::SessionEnded,
            Why::NotInRow,
            Why::RunPaused,
            Why::RunEnded,
            Why::PastDeadline,
            Why::LeaseOver,
            Why::JournalFailed,
            Why::Stopping,
            Why::HolderDied,
            Why::HolderDiedPreparing,
        ];
        assert_eq!(postcard::to_stdvec(&whys).expect("plain data"), (0..12).collect::<Vec<u8>>());
    }
}

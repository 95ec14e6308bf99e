//! What must be true of rows: of those that are open, and of those that are closed and lie packed.

use std::collections::BTreeMap;

use super::{Violation, report};
use crate::bitmap::Bitmap;
use crate::evidence::{Sheet, SheetKey};
use crate::ids::{Fence, RunId};
use crate::moments::{MOMENTS_MAX, What};
use crate::state::{Ledger, Row, Standing};

/// What was read of sheets of closed rows. A sheet that is the same as then says the same; of one that is not, it is
/// read again. It holds a copy of each sheet of the state that was looked at last.
#[derive(Debug, Default)]
pub struct Seen {
    sheets: BTreeMap<SheetKey, Told>,
}

/// What the rows of one sheet say, whatever else the state is.
#[derive(Debug, Default)]
struct Told {
    sheet: Sheet,
    fences: Vec<Fence>,
    /// Whose accept its rows have seen; in the second set those of whom it did twice, and so on.
    sent: Vec<Bitmap>,
    wrong: Vec<Violation>,
}

impl Seen {
    /// Reads what it does not know yet, and forgets what is no longer there.
    pub(super) fn read(&mut self, ledger: &Ledger) {
        self.sheets.retain(|place, _| ledger.evidence().contains(place));
        for (place, sheet) in ledger.evidence().iter() {
            if self.sheets.get(place).is_none_or(|told| told.sheet != *sheet) {
                self.sheets.insert(*place, Told::by(*place, sheet));
            }
        }
    }
}

impl Told {
    fn by((page, chunk, _): SheetKey, sheet: &Sheet) -> Told {
        let mut told = Told { sheet: sheet.clone(), ..Told::default() };
        for (fence, row) in sheet.rows((page, chunk)) {
            told.fences.push(fence);
            note_sent(&mut told.sent, &row.sent);
            check_row(fence, &row, &mut told.wrong);
        }
        told
    }
}

/// Counts each of `slots` once more.
fn note_sent(counted: &mut Vec<Bitmap>, slots: &Bitmap) {
    let mut slots = slots.clone();
    for known in counted.iter_mut() {
        let again = known.and(&slots);
        known.add(&slots);
        slots = again;
    }
    if !slots.is_empty() {
        counted.push(slots);
    }
}

/// P14: every accept that a row has seen is somebody sent, a known duplicate or a contradiction.
pub(super) fn check_accepts(ledger: &Ledger, seen: &Seen, found: &mut Vec<Violation>) {
    let mut accepts: BTreeMap<RunId, u64> = BTreeMap::new();
    let open = ledger.rows().iter().map(|(_, row)| ((row.page, row.chunk), &row.sent));
    let told = seen.sheets.iter().flat_map(|((page, chunk, _), told)| {
        let place = (*page, *chunk);
        told.sent.iter().map(move |slots| (place, slots))
    });
    for ((id, chunk), slots) in open.chain(told) {
        let Some(page) = ledger.pages().get(&id) else { continue };
        for (number, run) in page.runs.iter().enumerate() {
            let own = slots.and(&Ledger::slots_of_run(run.first, run.count, chunk)).len();
            if own > 0 {
                let run = RunId { index: id.index, place: id.place + number as u32 };
                *accepts.entry(run).or_default() += u64::from(own);
            }
        }
    }
    for (id, _, run) in ledger.runs() {
        let seen = accepts.get(&id).copied().unwrap_or(0);
        let doubled = u64::from(run.known_duplicates) + u64::from(run.contradictions);
        let counted = u64::from(run.counts.get(Standing::Sent)) + doubled;
        report(found, "P14", seen == counted, || format!("{id}: {seen} accepts, {counted} counted"));
    }
}

/// P4: whoever is claimed or in doubt is so in exactly one open row, and rows hold nobody else.
pub(super) fn check_open(ledger: &Ledger, found: &mut Vec<Violation>) {
    let mut held: BTreeMap<(RunId, u32), (Bitmap, Bitmap)> = BTreeMap::new();
    for (fence, row) in ledger.rows().iter() {
        report(found, "P4", !row.is_closed(), || format!("row {fence} is closed but among the open ones"));
        check_row(*fence, row, found);
        let chunk = ledger.chunks().get(&(row.page, row.chunk));
        let mut held_now = row.claimed.clone();
        held_now.add(&row.in_doubt);
        let of_one_pool = chunk.is_none_or(|chunk| chunk.by_pool(&held_now).len() <= 1);
        report(found, "P4", of_one_pool, || format!("row {fence} is of several pools"));
        let (claimed, in_doubt) = held.entry((row.page, row.chunk)).or_default();
        let twice = claimed.and(&row.claimed).is_empty() && in_doubt.and(&row.in_doubt).is_empty();
        report(found, "P4", twice, || format!("row {fence} holds a recipient of another row"));
        claimed.add(&row.claimed);
        in_doubt.add(&row.in_doubt);
        let suspects = ledger.chunks().get(&(row.page, row.chunk)).map(|chunk| &chunk.suspects);
        let holds_one =
            suspects.is_some_and(|set| !set.and(&row.claimed).is_empty() || !set.and(&row.in_doubt).is_empty());
        report(found, "P12", !holds_one || row.granted.len() == 1, || format!("row {fence}: a suspect among others"));
    }
    let none = (Bitmap::new(), Bitmap::new());
    for (place, chunk) in ledger.chunks().iter() {
        let (claimed, in_doubt) = held.get(place).unwrap_or(&none);
        let same = chunk.set(Standing::Claimed) == claimed && chunk.set(Standing::InDoubt) == in_doubt;
        report(found, "P4", same, || format!("chunk {place:?}: rows and standings disagree"));
    }
}

/// P4: a closed row lies on the sheet on which it is looked for, and is not open too.
pub(super) fn check_closed(ledger: &Ledger, seen: &Seen, found: &mut Vec<Violation>) {
    let mut former = None;
    for ((page, chunk, first), told) in &seen.sheets {
        for fence in &told.fences {
            let is_there = former < Some((*page, *chunk, *fence)) && first <= fence;
            report(found, "P4", is_there, || format!("row {fence} of chunk {chunk} of {page} is on the wrong sheet"));
            report(found, "P4", !ledger.rows().contains(fence), || format!("row {fence} is open and closed"));
            former = Some((*page, *chunk, *fence));
        }
        found.extend(told.wrong.iter().cloned());
    }
}

fn check_row(fence: Fence, row: &Row, found: &mut Vec<Violation>) {
    let parts = [&row.claimed, &row.in_doubt, &row.sent, &row.assumed];
    let granted = parts.iter().all(|part| part.and_not(&row.granted).is_empty());
    report(found, "P4", granted, || format!("row {fence} holds more than was granted"));
    report(found, "P4", row.claimed.and(&row.in_doubt).is_empty(), || format!("row {fence}: claimed and in doubt"));
    check_moments(fence, row, found);
}

/// P4: a row tells what became of everybody who is not claimed in it any more, and it tells what its sets say.
fn check_moments(fence: Fence, row: &Row, found: &mut Vec<Violation>) {
    let bounded = row.moments.iter().len() <= MOMENTS_MAX;
    report(found, "P4", bounded, || format!("row {fence} keeps {} moments", row.moments.iter().len()));
    let ordered = row.moments.iter().is_sorted_by_key(|moment| (moment.index, moment.at));
    let after = row.moments.iter().all(|moment| moment.index > fence.index && moment.at >= row.claimed_at);
    report(found, "P4", ordered && after, || format!("row {fence}: moments out of order: {:?}", row.moments));
    let (mut told, mut sent, mut in_doubt, mut assumed) = <(Bitmap, Bitmap, Bitmap, Bitmap)>::default();
    for moment in row.moments.iter() {
        let slots = moment.slots(&row.granted);
        told.add(slots);
        match moment.what {
            What::Accepted | What::Taken(_) | What::KnownDuplicate | What::Contradiction => sent.add(slots),
            What::InDoubt(_) => in_doubt.add(slots),
            What::Assumed(_) => assumed.add(slots),
            _ => {}
        }
    }
    let all = told == row.granted.and_not(&row.claimed);
    report(found, "P4", all, || format!("row {fence} tells of {told:?}, claimed are {:?}", row.claimed));
    report(found, "P14", sent == row.sent, || format!("row {fence} tells of {sent:?} accepted, {:?} are", row.sent));
    let held = row.in_doubt.and_not(&in_doubt).is_empty() && row.assumed.and_not(&assumed).is_empty();
    report(found, "P14", held, || {
        format!("row {fence} holds somebody in doubt or assumed, and does not say since when")
    });
}

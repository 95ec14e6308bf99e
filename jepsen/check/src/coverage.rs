//! Did the run exercise the system? Each fault that was asked for is installed and seen to have an effect, mail flowed
//! meanwhile, and kills fell between final dots and their answers. A run that did not is no proof, whatever else holds.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::book::Book;
use crate::history::{Fault, FaultKind, FaultStatus, Part};
use crate::verdict::Inquiry;

/// What became of the faults of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// They came about.
    pub installed: u32,
    /// And an effect was seen.
    pub observed: u32,
    /// They were left out, with a word.
    pub skipped: u32,
    /// Of those, because the machine cannot do them.
    pub cannot: u32,
    /// Unknown.
    pub indeterminate: u32,
    /// They ended a life between a final dot and its answer.
    pub inside_data: u32,
}

/// Faults by kind.
pub fn tallies(book: &Book) -> BTreeMap<FaultKind, Tally> {
    let mut tallies: BTreeMap<FaultKind, Tally> = BTreeMap::new();
    for fault in &book.faults {
        let tally = tallies.entry(fault.kind).or_default();
        match fault.status {
            FaultStatus::Installed => tally.installed += 1,
            FaultStatus::Skipped => tally.skipped += 1,
            FaultStatus::Indeterminate => tally.indeterminate += 1,
        }
        let installed = fault.status == FaultStatus::Installed;
        tally.cannot += u32::from(!fault.may_have_struck() && fault.cannot);
        tally.observed += u32::from(installed && fault.observed == Some(true));
        tally.inside_data += u32::from(installed && fault.inside_data == Some(true));
    }
    tallies
}

/// How often each fault had an effect that was seen, by the name that it was given.
pub fn by_name(book: &Book) -> BTreeMap<String, u32> {
    let mut seen = BTreeMap::new();
    let installed = book.faults.iter().filter(|fault| fault.status == FaultStatus::Installed);
    for fault in installed.filter(|fault| fault.observed == Some(true)) {
        *seen.entry(fault.name.clone()).or_default() += 1;
    }
    seen
}

/// Did the run exercise enough? False: observed and too little. Unknown: not observed.
///
/// A kind of fault that this machine cannot inject is reported and ignored, as long as another kind that was asked for
/// came about. A fault that found no target makes the run invalid.
pub fn exercised(book: &Book, inquiry: &mut Inquiry) {
    inquiry.needs(book, &[Part::Faults, Part::Accepts]);
    let tallies = tallies(book);
    let asked = &book.header.coverage;
    for (kind, wanted) in &asked.faults {
        let tally = tallies.get(kind).copied().unwrap_or_default();
        if tally.observed >= *wanted || (tally.cannot > 0 && tally.installed + tally.indeterminate == 0) {
            continue;
        }
        let unseen =
            book.faults.iter().any(|fault| fault.kind == *kind && fault.may_have_struck() && fault.observed.is_none());
        let Tally { installed, observed, skipped, cannot, indeterminate, .. } = tally;
        let told = format!(
            "{kind:?}: {wanted} asked for, {installed} installed, {observed} with an effect, {skipped} skipped \
             ({cannot} that this machine cannot do), {indeterminate} indeterminate"
        );
        if unseen { inquiry.lacks(told) } else { inquiry.offends(|| told) }
    }
    let came_about = tallies.values().any(|tally| tally.installed + tally.indeterminate > 0);
    if (came_about || !asked.faults.is_empty()) && tallies.values().all(|tally| tally.observed == 0) {
        let unseen = |fault: &Fault| fault.may_have_struck() && fault.observed.is_none();
        let told = "no fault at all was seen to have an effect".to_owned();
        if book.faults.iter().any(unseen) { inquiry.lacks(told) } else { inquiry.offends(|| told) }
    }
    kills_inside(book, &tallies, inquiry);
    emails(book, inquiry);
}

fn kills_inside(book: &Book, tallies: &BTreeMap<FaultKind, Tally>, inquiry: &mut Inquiry) {
    let wanted = book.header.coverage.kills_inside_data;
    // A process that is stopped for a while, or asked to end, loses nothing.
    let ends = [FaultKind::Kill, FaultKind::Upgrade, FaultKind::CrashPoint, FaultKind::PowerCut];
    let inside: u32 = ends.iter().filter_map(|kind| tallies.get(kind)).map(|tally| tally.inside_data).sum();
    if inside < wanted {
        inquiry.offends(|| format!("{inside} lives ended between a final dot and its 250; {wanted} were asked for"));
    }
}

fn emails(book: &Book, inquiry: &mut Inquiry) {
    let wanted = f64::from(book.header.coverage.mails_per_second);
    if wanted == 0.0 {
        return;
    }
    let Some(from_ns) = book.faults_from_ns else { return inquiry.lacks("when the faults began") };
    let until_ns = book.healed_ns.unwrap_or(book.ended_ns());
    let accepts = book.accepts().filter(|dot| (from_ns..until_ns).contains(&dot.at_ns)).count();
    let rate = accepts as f64 / (until_ns.saturating_sub(from_ns).max(1) as f64 / 1e9);
    if rate < wanted {
        inquiry.offends(|| format!("{rate:.1} emails a second while faults were in force; {wanted} were asked for"));
    }
}

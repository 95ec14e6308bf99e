//! Bugs that tests inject into composing, the gate and the journal, to prove that the judge finds them
//! (`reveille_ledger::injected_bugs`). A build without the feature `injected-bugs` has none of them.

use reveille_ledger::content::Recipients;
use reveille_ledger::injected_bugs::{self, Bug};

use super::journal::{Act, Place, Record};
use crate::compose::{Compiled, Composed, Stamp};

/// The place in an entry of a claim that no entry has granted.
pub(crate) const NOT_GRANTED: u32 = u32::MAX;

/// [`Bug::ClaimAfterSend`]: whether the gate lets a hand-off of a claim pass that was never granted.
pub(crate) fn passes_gate(place: Place) -> bool {
    injected_bugs::is(Bug::ClaimAfterSend) && place.fence.place == NOT_GRANTED
}

/// [`Bug::SwapContents`]: of two neighbours in an inline audience each gets the content of the other.
pub(crate) fn swap_contents(
    (compiled, recipients): (&Compiled, &Recipients),
    recipient: u32,
    stamp: &Stamp,
    composed: &mut Composed,
) {
    if injected_bugs::is(Bug::SwapContents)
        && let Recipients::Inline(audience) = recipients
        && let Some(other) = audience.recipients.get(recipient as usize ^ 1)
        && let Ok(swapped) = compiled.compose(other, stamp)
    {
        composed.data = swapped.data;
    }
}

/// The records that announce an act. [`Bug::JournalAfterAct`]: `begin` is written when the answer is there.
pub(crate) fn records(place: Place, act: Act) -> Vec<Record> {
    let record = |act| Record { place, act };
    match act {
        Act::Begin if injected_bugs::is(Bug::JournalAfterAct) => Vec::new(),
        Act::Accepted | Act::Refused(_) if injected_bugs::is(Bug::JournalAfterAct) => {
            vec![record(Act::Begin), record(act)]
        }
        act => vec![record(act)],
    }
}

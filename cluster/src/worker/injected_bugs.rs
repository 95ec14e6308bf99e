//! Bugs that tests inject into composing and the journal, to prove that the judge finds them
//! (`reveille_ledger::injected_bugs`). A build without the feature `injected-bugs` has none of them.

use reveille_ledger::content::Recipients;
use reveille_ledger::injected_bugs::{self, Bug};

use super::journal::{Act, Place, Record};
use crate::compose::{Compiled, Composed, Stamp};

/// [`Bug::SwapContents`]: swaps the contents of two neighbours in an inline audience.
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

/// Returns the records that announce an act. With [`Bug::JournalAfterAct`], `begin` is written only together with the
/// answer.
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

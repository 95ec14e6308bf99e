//! Bugs that tests inject into the workers, to prove that the judge finds them (`reveille_ledger::injected_bugs`). A
//! build without the feature `injected-bugs` has none of them.

use std::time::Duration;

use reveille_ledger::command::ReleaseReason;
use reveille_ledger::content::Recipients;
use reveille_ledger::ids::Fence;
use reveille_ledger::injected_bugs::{self, Bug};

use super::journal::{ClaimedSlot, Journal, JournalFault, JournalStep, Record};
use super::outcome::{DeliveryOutcome, RecipientOutcome};
use super::settler::Settler;
use crate::compose::{Compiled, Composed, Stamp};

/// Returns the fence that goes into the email. With [`Bug::AnotherFence`] no claim has it.
pub(crate) fn fence(fence: Fence) -> Fence {
    if injected_bugs::is(Bug::AnotherFence) { Fence { place: u32::MAX, ..fence } } else { fence }
}

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

/// [`Bug::JournalAfterAct`]: writes `handoff` only together with the answer.
pub(crate) fn append_after_act(journal: &mut Journal, record: &Record) -> Result<(), JournalFault> {
    match &record.step {
        JournalStep::Handoff => return Ok(()),
        JournalStep::Accepted | JournalStep::Refused(_) => {
            journal.append(&Record { step: JournalStep::Handoff, ..record.clone() })?;
        }
        JournalStep::Composing | JournalStep::Composed => {}
    }
    journal.append(record)
}

/// Returns true if [`Bug::IdleClaim`] delays the recipient at this position of its claim: the last of several.
pub(crate) fn idles(position: usize, recipients: usize) -> bool {
    position > 0 && position + 1 == recipients && injected_bugs::is(Bug::IdleClaim)
}

/// [`Bug::IdleClaim`]: keeps a recipient claimed for a minute without a handoff.
pub(crate) async fn idle(settler: Settler, claimed_slot: ClaimedSlot) {
    tokio::time::sleep(Duration::from_secs(60)).await;
    settler.settle(RecipientOutcome::new(claimed_slot, DeliveryOutcome::Released(ReleaseReason::Busy))).await;
}

//! Invariants of open claims, and of closed claims in their blocks.

use std::collections::BTreeMap;

use super::{InvariantViolation, report};
use crate::model::{
    Bitmap, CLAIM_EVENTS_MAX, ChunkKey, Claim, ClaimEventKind, ClosedClaimBlock, ClosedClaimKey, Fence, Ledger,
    RecipientState, RunId,
};

/// Results for the blocks of closed claims that were read last. A block that has not changed has the same results; a
/// changed block is read again. It holds a copy of each block.
#[derive(Debug, Default)]
pub struct CheckedState {
    blocks: BTreeMap<ClosedClaimKey, CheckedBlock>,
}

/// Results for the claims of one block. They depend on nothing else in the state.
#[derive(Debug, Default)]
struct CheckedBlock {
    block: ClosedClaimBlock,
    fences: Vec<Fence>,
    /// Slots that its claims accepted. The second set has slots that were accepted twice, and so on.
    sent: Vec<Bitmap>,
    wrong: Vec<InvariantViolation>,
}

impl CheckedState {
    /// Reads blocks that are new or changed, and forgets blocks that are gone.
    pub(super) fn read(&mut self, ledger: &Ledger) {
        self.blocks.retain(|key, _| ledger.closed_claim_blocks().contains(key));
        for (key, block) in ledger.closed_claim_blocks().iter() {
            if self.blocks.get(key).is_none_or(|checked| checked.block != *block) {
                self.blocks.insert(*key, CheckedBlock::by(*key, block));
            }
        }
    }
}

impl CheckedBlock {
    fn by((chunk, _): ClosedClaimKey, block: &ClosedClaimBlock) -> CheckedBlock {
        let mut checked = CheckedBlock { block: block.clone(), ..CheckedBlock::default() };
        for (fence, claim) in block.claims(chunk) {
            checked.fences.push(fence);
            count_sent(&mut checked.sent, &claim.sent);
            check_claim(fence, &claim, &mut checked.wrong);
        }
        checked
    }
}

/// Counts one more accept for each of `slots`.
fn count_sent(counted: &mut Vec<Bitmap>, slots: &Bitmap) {
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

/// Each accept of a claim is a sent recipient, a known duplicate or a contradiction (P14).
pub(super) fn check_accepts(ledger: &Ledger, seen: &CheckedState, found: &mut Vec<InvariantViolation>) {
    let mut accepts: BTreeMap<RunId, u64> = BTreeMap::new();
    let open = ledger.claims().iter().map(|(_, claim)| (claim.chunk, &claim.sent));
    let checked = seen.blocks.iter().flat_map(|((key, _), checked)| checked.sent.iter().map(|slots| (*key, slots)));
    for (key, slots) in open.chain(checked) {
        let Some(page) = ledger.pages().get(&key.page) else { continue };
        for run in &page.runs {
            let own = slots.and(&run.slots_in(key.number)).len();
            if own > 0 {
                *accepts.entry(key.page.run_id(run)).or_default() += u64::from(own);
            }
        }
    }
    for (id, _, run) in ledger.runs() {
        let seen = accepts.get(&id).copied().unwrap_or(0);
        let doubled = u64::from(run.known_duplicates) + u64::from(run.contradictions);
        let counted = u64::from(run.counts.get(RecipientState::Sent)) + doubled;
        report(found, "P14", seen == counted, || format!("{id}: {seen} accepts, {counted} counted"));
    }
}

/// A recipient that is claimed or in doubt is in exactly one open claim, and claims have no other recipients (P4).
pub(super) fn check_open(ledger: &Ledger, found: &mut Vec<InvariantViolation>) {
    let mut held: BTreeMap<ChunkKey, (Bitmap, Bitmap)> = BTreeMap::new();
    for (fence, claim) in ledger.claims().iter() {
        report(found, "P4", !claim.is_closed(), || format!("claim {fence} is closed but among the open ones"));
        check_claim(*fence, claim, found);
        let chunk = ledger.chunks().get(&claim.chunk);
        let mut held_now = claim.claimed.clone();
        held_now.add(&claim.in_doubt);
        let of_one_pool = chunk.is_none_or(|chunk| chunk.by_pool(&held_now).len() <= 1);
        report(found, "P4", of_one_pool, || format!("claim {fence} is of several pools"));
        let (claimed, in_doubt) = held.entry(claim.chunk).or_default();
        let twice = claimed.and(&claim.claimed).is_empty() && in_doubt.and(&claim.in_doubt).is_empty();
        report(found, "P4", twice, || format!("claim {fence} holds a recipient of another claim"));
        claimed.add(&claim.claimed);
        in_doubt.add(&claim.in_doubt);
        let crash_suspects = ledger.chunks().get(&claim.chunk).map(|chunk| &chunk.crash_suspects);
        let holds_one = crash_suspects
            .is_some_and(|set| !set.and(&claim.claimed).is_empty() || !set.and(&claim.in_doubt).is_empty());
        report(found, "P12", !holds_one || claim.granted.len() == 1, || {
            format!("claim {fence}: a suspect among others")
        });
    }
    let none = (Bitmap::new(), Bitmap::new());
    for (key, chunk) in ledger.chunks().iter() {
        let (claimed, in_doubt) = held.get(key).unwrap_or(&none);
        let same = chunk.set(RecipientState::Claimed) == claimed && chunk.set(RecipientState::InDoubt) == in_doubt;
        report(found, "P4", same, || format!("chunk {key:?}: claims and states disagree"));
    }
}

/// A closed claim is in the block in which it is searched, and is not open (P4).
pub(super) fn check_closed(ledger: &Ledger, seen: &CheckedState, found: &mut Vec<InvariantViolation>) {
    let mut former = None;
    for ((chunk, first), checked) in &seen.blocks {
        for fence in &checked.fences {
            let is_there = former < Some((*chunk, *fence)) && first <= fence;
            report(found, "P4", is_there, || format!("claim {fence} of {chunk:?} is in the wrong block"));
            report(found, "P4", !ledger.claims().contains(fence), || format!("claim {fence} is open and closed"));
            former = Some((*chunk, *fence));
        }
        found.extend(checked.wrong.iter().cloned());
    }
}

fn check_claim(fence: Fence, claim: &Claim, found: &mut Vec<InvariantViolation>) {
    let parts = [&claim.claimed, &claim.in_doubt, &claim.sent, &claim.assumed];
    let granted = parts.iter().all(|part| part.and_not(&claim.granted).is_empty());
    report(found, "P4", granted, || format!("claim {fence} holds more than was granted"));
    report(found, "P4", claim.claimed.and(&claim.in_doubt).is_empty(), || {
        format!("claim {fence}: claimed and in doubt")
    });
    check_history(fence, claim, found);
}

/// The history of a claim covers each recipient that is no longer claimed in it, and agrees with its sets (P4).
fn check_history(fence: Fence, claim: &Claim, found: &mut Vec<InvariantViolation>) {
    let bounded = claim.history.iter().len() <= CLAIM_EVENTS_MAX;
    report(found, "P4", bounded, || format!("claim {fence} keeps {} events", claim.history.iter().len()));
    let ordered = claim.history.iter().is_sorted_by_key(|event| (event.index, event.at));
    let after = claim.history.iter().all(|event| event.index >= fence.index && event.at >= claim.claimed_at);
    report(found, "P4", ordered && after, || format!("claim {fence}: events out of order: {:?}", claim.history));
    let (mut covered, mut sent, mut in_doubt, mut assumed) = <(Bitmap, Bitmap, Bitmap, Bitmap)>::default();
    for event in claim.history.iter() {
        let slots = event.slots(&claim.granted);
        covered.add(slots);
        match event.what {
            ClaimEventKind::Accepted
            | ClaimEventKind::AcceptedByLog
            | ClaimEventKind::TestAccepted(_)
            | ClaimEventKind::KnownDuplicate
            | ClaimEventKind::Contradiction => sent.add(slots),
            ClaimEventKind::InDoubt(_) => in_doubt.add(slots),
            ClaimEventKind::Assumed(_) => assumed.add(slots),
            _ => {}
        }
    }
    let all = covered == claim.granted.and_not(&claim.claimed);
    report(found, "P4", all, || format!("claim {fence} has events of {covered:?}, claimed are {:?}", claim.claimed));
    report(found, "P14", sent == claim.sent, || {
        format!("claim {fence} has accepts of {sent:?}, sent are {:?}", claim.sent)
    });
    let held = claim.in_doubt.and_not(&in_doubt).is_empty() && claim.assumed.and_not(&assumed).is_empty();
    report(found, "P14", held, || format!("claim {fence} has a recipient in doubt or assumed, and no time since when"));
}

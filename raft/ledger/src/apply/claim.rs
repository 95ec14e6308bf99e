//! Claims (P4): the right to send a slice, granted to one life of one node; and its end when the
//! holder's lease is over (P9).

use super::Context;
use crate::bitmap::Bitmap;
use crate::command::Claim;
use crate::effect::Effect;
use crate::ids::{Fence, GROUP, NodeId, Time};
use crate::impossible::Bounded;
use crate::moments::{Doubt, Moments, What};
use crate::planted::{self, Bug};
use crate::refusal::Refusal;
use crate::reply::Outcome;
use crate::state::{Ledger, Page, Row, RunState, Standing};

impl Ledger {
    pub(super) fn claim(&mut self, context: &mut Context, claims: &[Claim]) -> Outcome {
        let answers = claims.iter().enumerate().map(|(place, claim)| self.claim_one(context, place as u32, claim));
        Outcome::Claimed(answers.collect())
    }

    fn claim_one(&mut self, context: &mut Context, place: u32, claim: &Claim) -> Result<Fence, Refusal> {
        let most = self.limits().slice;
        if claim.slice.len() > most {
            return Err(Refusal::TooLarge { what: Bounded::Slice, bound: u64::from(most) });
        }
        if !self.is_current(claim.holder) {
            return Err(Refusal::HolderGone);
        }
        let mut granted = self.claimable(claim, context.now);
        granted.remove(&self.keep_apart(context, (claim.page, claim.chunk), &granted));
        if granted.is_empty() {
            return Err(Refusal::NothingPending);
        }
        let granted = self.within_concurrency(claim.page, granted)?;
        let granted = self.within_cap((claim.page, claim.chunk), granted, context.now)?;
        let epoch = self.head.epoch.map(|epoch| epoch.epoch).unwrap_or_default();
        let fence = Fence { group: GROUP, epoch, index: context.index, place };
        let row = Row {
            page: claim.page,
            chunk: claim.chunk,
            holder: claim.holder,
            claimed_at: context.now,
            granted: granted.clone(),
            claimed: granted.clone(),
            in_doubt: Bitmap::new(),
            sent: Bitmap::new(),
            assumed: Bitmap::new(),
            moments: Moments::default(),
        };
        self.shift(context, (claim.page, claim.chunk), &granted, Standing::Pending, Standing::Claimed);
        self.rows.put(fence, row);
        self.note_alive(claim.holder.node);
        context.emit(Effect::RowGranted { fence, holder: claim.holder });
        Ok(fence)
    }

    /// A life that claims has come back, whatever it lost before (P12).
    fn note_alive(&mut self, node: NodeId) {
        if self.nodes.get(&node).is_some_and(|node| node.lost)
            && let Some(node) = self.nodes.edit(&node)
        {
            node.lost = false;
        }
    }

    /// What of a claim is pending, has come in, belongs to runs that send, and goes by one pool: its lowest slot's.
    fn claimable(&self, claim: &Claim, now: Time) -> Bitmap {
        let (Some(page), Some(chunk)) = (self.pages.get(&claim.page), self.chunks.get(&(claim.page, claim.chunk)))
        else {
            return Bitmap::new();
        };
        let mut slots = claim.slice.and(&chunk.claimable(now));
        slots.remove(&closed_slots(page, claim.chunk, now));
        if let Some(lowest) = slots.min().filter(|_| !chunk.elsewhere.is_empty()) {
            // A row is worked by one pool.
            let parts = chunk.by_pool(&slots).into_iter().map(|(_, slots)| slots);
            slots = parts.into_iter().find(|slots| slots.contains(lowest)).unwrap_or_default();
        }
        if claim.slice.len() > 1 {
            // P12: a suspect has a row of its own.
            slots.remove(&chunk.suspects);
        }
        slots
    }

    /// P9: the leader regards these holders' leases as over. What they had claimed is in doubt until they
    /// come back with their journal, or somebody decides.
    pub(super) fn revoke(&mut self, context: &mut Context, fences: &[Fence]) -> Outcome {
        let mut moved = 0;
        for fence in fences {
            if planted::is(Bug::SendAgain) {
                moved += self.give_back(context, *fence);
                continue;
            }
            let Some(row) = self.rows.edit(fence) else { continue };
            let claimed = std::mem::take(&mut row.claimed);
            if claimed.is_empty() {
                continue;
            }
            row.in_doubt.add(&claimed);
            row.note(context, (What::InDoubt(Doubt::HolderLost), Standing::InDoubt), &claimed);
            let (place, holder) = ((row.page, row.chunk), row.holder);
            self.shift(context, place, &claimed, Standing::Claimed, Standing::InDoubt);
            if let Some(node) = self.nodes.edit(&holder.node) {
                node.revoked_index = context.index;
                node.lost |= node.incarnation == holder.incarnation;
            }
            context.emit(Effect::RowClosed { fence: *fence, holder });
            moved += u64::from(claimed.len());
        }
        Outcome::Moved(moved)
    }
}

impl Ledger {
    /// Planted: as if a lost holder had never begun anything.
    fn give_back(&mut self, context: &mut Context, fence: Fence) -> u64 {
        let Some(mut row) = self.rows.get(&fence).cloned() else { return 0 };
        let (claimed, place) = (std::mem::take(&mut row.claimed), (row.page, row.chunk));
        if claimed.is_empty() {
            return 0;
        }
        row.note(context, (What::Released(None), Standing::Pending), &claimed);
        context.emit(Effect::RowClosed { fence, holder: row.holder });
        self.put_row(fence, row, true);
        self.shift(context, place, &claimed, Standing::Claimed, Standing::Pending);
        u64::from(claimed.len())
    }
}

/// Slots of a chunk whose run is paused, ended or past its deadline, or that wait for its canary: nothing of them is
/// claimed.
pub fn closed_slots(page: &Page, chunk: u32, now: Time) -> Bitmap {
    let mut slots = Bitmap::new();
    for run in page.runs.iter().filter(|run| run.state != RunState::Open || run.finish_by <= now) {
        slots.add(&Ledger::slots_of_run(run.first, run.count, chunk));
    }
    for run in page.runs.iter().filter(|run| run.waits_for_canary()) {
        slots.add(&run.slots_behind_canary(chunk));
    }
    slots
}

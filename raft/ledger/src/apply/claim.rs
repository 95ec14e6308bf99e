//! Claims (P4): the right to send to a slice of recipients, granted to one incarnation of one node; and its revocation
//! when the lease of the owner is over (P9).

use super::Context;
use super::bounds::{bounded, refuse_if};
use crate::command::ClaimRequest;
use crate::effect::Effect;
use crate::injected_bugs::{self, Bug};
use crate::model::{
    Bitmap, CHUNK, Claim, ClaimEventKind, ClaimHistory, CommandOutcome, CommandRefusal, DoubtReason, Fence, GROUP,
    Impossible, Ledger, LimitedQuantity, NodeId, Page, RecipientState, Run, RunState, Time,
};

impl Ledger {
    pub(super) fn claim(&mut self, context: &mut Context, requests: &[ClaimRequest]) -> CommandOutcome {
        let answers =
            requests.iter().enumerate().map(|(place, request)| self.claim_one(context, place as u32, request));
        CommandOutcome::Claimed(answers.collect())
    }

    fn claim_one(
        &mut self,
        context: &mut Context,
        place: u32,
        request: &ClaimRequest,
    ) -> Result<Fence, CommandRefusal> {
        bounded(LimitedQuantity::Slice, request.slice.len() as usize, self.limits().slice_recipients_max as usize)?;
        refuse_if(!self.is_current(request.owner), CommandRefusal::OwnerGone)?;
        let node = request.owner.node;
        refuse_if(self.nodes.get(&node).is_some_and(|node| node.drains), Impossible::NodeDrains(node))?;
        let mut granted = self.claimable(request, context.now);
        granted.remove(&self.hold_back_inside_gap(context, request.chunk, &granted));
        refuse_if(granted.is_empty(), CommandRefusal::NothingPending)?;
        let granted = self.within_concurrency(request.chunk.page, granted)?;
        let granted = self.within_daily_cap(request.chunk, granted, context.now)?;
        let epoch = self.head.current_epoch().unwrap_or_default();
        let fence = Fence { group: GROUP, epoch, index: context.index, place };
        let claim = Claim {
            chunk: request.chunk,
            owner: request.owner,
            claimed_at: context.now,
            granted: granted.clone(),
            claimed: granted.clone(),
            in_doubt: Bitmap::new(),
            sent: Bitmap::new(),
            assumed: Bitmap::new(),
            history: ClaimHistory::default(),
        };
        self.transition(context, request.chunk, &granted, RecipientState::Pending, RecipientState::Claimed);
        self.claims.put(fence, claim);
        self.mark_alive(request.owner.node);
        context.emit(Effect::ClaimGranted { fence, owner: request.owner });
        Ok(fence)
    }

    /// Notes that the node's incarnation claims again, so revoked claims do not count as a crash (P12).
    fn mark_alive(&mut self, node: NodeId) {
        if self.nodes.get(&node).is_some_and(|node| node.has_revoked_claims)
            && let Some(node) = self.nodes.edit(&node)
        {
            node.has_revoked_claims = false;
        }
    }

    /// Returns the slots of a request that can be granted: pending, not waiting, of runs that send. They are of one
    /// pool, that of the lowest slot.
    fn claimable(&self, request: &ClaimRequest, now: Time) -> Bitmap {
        let (Some(page), Some(chunk)) = (self.pages.get(&request.chunk.page), self.chunks.get(&request.chunk)) else {
            return Bitmap::new();
        };
        let mut slots = request.slice.and(&chunk.claimable(now));
        slots.remove(&unclaimable_slots(page, request.chunk.number, now));
        if let Some(lowest) = slots.min().filter(|_| !chunk.pool_overrides.is_empty()) {
            // All recipients of a claim have one pool.
            let parts = chunk.by_pool(&slots).into_iter().map(|(_, slots)| slots);
            slots = parts.into_iter().find(|slots| slots.contains(lowest)).unwrap_or_default();
        }
        if request.slice.len() > 1 {
            // A crash suspect has a claim of its own (P12).
            slots.remove(&chunk.crash_suspects);
        }
        slots
    }

    /// Revokes claims whose owners' leases are over, as the leader decided (P9). Claimed recipients are in doubt until
    /// the owner returns with its journal, or the operator decides.
    pub(super) fn revoke(&mut self, context: &mut Context, fences: &[Fence]) -> CommandOutcome {
        let mut moved = 0;
        for fence in fences {
            if injected_bugs::is(Bug::SendAgain) {
                moved += self.return_to_pending(context, *fence);
                continue;
            }
            let Some(claim) = self.claims.edit(fence) else { continue };
            let claimed = std::mem::take(&mut claim.claimed);
            if claimed.is_empty() {
                continue;
            }
            claim.in_doubt.add(&claimed);
            claim.record(context, (ClaimEventKind::InDoubt(DoubtReason::OwnerLost), RecipientState::InDoubt), &claimed);
            let (key, owner) = (claim.chunk, claim.owner);
            self.transition(context, key, &claimed, RecipientState::Claimed, RecipientState::InDoubt);
            if let Some(node) = self.nodes.edit(&owner.node) {
                node.revoked_index = context.index;
                node.has_revoked_claims |= node.incarnation == owner.incarnation;
            }
            context.emit(Effect::ClaimEmptied { fence: *fence, owner });
            moved += u64::from(claimed.len());
        }
        CommandOutcome::Changed(moved)
    }
}

/// Returns slots of a chunk that must not be claimed: their run is not due, paused, ended or past its deadline, or they
/// wait for its canary. Runs without pending recipients are left out: a page may have 512 runs of one recipient,
/// and most of them are finished.
pub fn unclaimable_slots(page: &Page, chunk: u32, now: Time) -> Bitmap {
    if page.due > now {
        return Bitmap::range(0, CHUNK);
    }
    let mut slots = Bitmap::new();
    let sends_nothing = |run: &&Run| run.state != RunState::Open || run.finish_by <= now;
    let with_pending = page.runs.iter().filter(|run| run.counts.get(RecipientState::Pending) > 0);
    for run in with_pending.filter(sends_nothing) {
        slots.add(&run.slots_in(chunk));
    }
    for run in page.runs.iter().filter(|run| run.waits_for_canary()) {
        slots.add(&run.slots_behind_canary(chunk));
    }
    slots
}

//! Restore (P21): makes the state of a backup the first state of another cluster, which sends nothing until an operator
//! accepts it.
//!
//! The former cluster may have sent all that was pending and claimed, may have opened any instant, and may still run.
//! So every recipient without an outcome is in doubt, in claims that have no owner, and only an operator decides.

use std::collections::BTreeMap;

use super::Context;
use super::bounds::refuse_if;
use crate::injected_bugs::{self, Bug};
use crate::model::{
    AdminToken, Bitmap, ChunkKey, Claim, ClaimEventKind, ClaimHistory, ClaimOwner, CommandOutcome, CommandRefusal, Day,
    DoubtReason, Epoch, EpochState, Fence, GROUP, Impossible, Ledger, NodeId, Page, PageId, RecipientState,
    RemovedNode, Restore, Restored, RunEventKind, RunId,
};
use crate::storage::Table;

impl Ledger {
    /// Begins another cluster with this state. The entry's index is so far above all others that no id is ever used
    /// twice; an entry of a log never is.
    pub(super) fn restore(
        &mut self,
        context: &mut Context,
        restore: &Restore,
    ) -> Result<CommandOutcome, CommandRefusal> {
        refuse_if(context.ahead < self.limits().restore_ahead, Impossible::RestoreOfRunningCluster)?;
        let backup_at = self.head.now;
        context.now = context.now.max(backup_at);
        let (index, at) = (context.index, context.now);
        self.head.now = at;
        self.head.epoch =
            Some(EpochState { epoch: Epoch(index), leader: ClaimOwner::NONE, base: at, clocks_agree: false });
        self.head.sole_clock = None;
        self.head.forbidden_index = index;
        self.head.cluster_incarnation += 1;
        self.head.former_clusters.push(restore.former_cluster);
        self.head.restored = Some(Restored { index, backup_at, at, accepted_at: None });
        (self.head.authority, self.head.backups) = Default::default();
        self.hold_canaries(context);
        self.doubt_what_is_claimed(context);
        if !injected_bugs::is(Bug::PendingAfterRestore) {
            self.doubt_what_is_pending(context);
        }
        let nodes: Vec<(NodeId, String)> = self.nodes.iter().map(|(id, node)| (*id, node.name.clone())).collect();
        for (id, name) in nodes {
            self.nodes.remove(&id);
            self.removed_nodes.put(id, RemovedNode { name, index, at });
        }
        self.tokens = Table::default();
        let token = AdminToken { grant: restore.grant.clone(), creator: None, created_at: at, index, revoked_at: None };
        self.tokens.put(restore.token, token);
        Ok(CommandOutcome::Done)
    }

    /// An operator says that the former cluster sends nothing any more. Today's cap of each warm-up counts as used up:
    /// the former cluster may have sent as much.
    pub(super) fn restore_accept(&mut self, context: &Context) -> Result<CommandOutcome, CommandRefusal> {
        let restored = self.head.restored.as_mut().ok_or(Impossible::NotRestored)?;
        if restored.accepted_at.is_some() {
            return Ok(CommandOutcome::Done);
        }
        refuse_if(!self.head.epoch.is_some_and(|epoch| epoch.clocks_agree), CommandRefusal::ClocksDisagree)?;
        restored.accepted_at = Some(context.now);
        let today = Day::of(context.now);
        let capped = self.pools.iter().filter_map(|(pool, row)| Some((pool.clone(), row.cap(today)?)));
        for (pool, cap) in capped.collect::<Vec<_>>() {
            if let Some(row) = self.pools.edit(&pool) {
                row.spend(today, cap.saturating_sub(row.spent(today)));
            }
        }
        Ok(CommandOutcome::Done)
    }

    /// Holds each run that waits for its canary: an operator who sends to its recipients again must overrule it (P6).
    fn hold_canaries(&mut self, context: &mut Context) {
        let waiting = |(id, page): (PageId, &Page)| {
            let runs = page.runs.iter().filter(|run| run.waits_for_canary());
            runs.map(|run| id.run_id(run)).collect::<Vec<_>>()
        };
        let waiting: Vec<RunId> = self.open_pages().flat_map(waiting).collect();
        for run in waiting {
            let mut reason = None;
            let held = self.change_run(context, run, |run| {
                reason = run.hold_canary();
                Ok(())
            });
            if let (Ok(_), Some(reason)) = (held, reason) {
                self.record_run_event(context, run, RunEventKind::Paused(reason), BTreeMap::new());
            }
        }
    }

    /// Leaves recipients of open claims in doubt there. A doubt of before the backup may have been decided since, and
    /// its email sent again.
    fn doubt_what_is_claimed(&mut self, context: &mut Context) {
        let open: Vec<Fence> = self.claims.iter().map(|(fence, _)| *fence).collect();
        for fence in open {
            let Some(claim) = self.claims.edit(&fence) else { continue };
            let claimed = std::mem::take(&mut claim.claimed);
            claim.in_doubt.add(&claimed);
            let all = claim.in_doubt.clone();
            claim.record(context, (ClaimEventKind::InDoubt(DoubtReason::Restored), RecipientState::InDoubt), &all);
            let key = claim.chunk;
            self.transition(context, key, &claimed, RecipientState::Claimed, RecipientState::InDoubt);
        }
    }

    /// Puts pending recipients in doubt, also those of paused runs, which the former cluster may have resumed. A claim
    /// has one pool, and a crash suspect a claim of its own.
    fn doubt_what_is_pending(&mut self, context: &mut Context) {
        let pages: Vec<PageId> = self.open_pages().map(|(id, _)| id).collect();
        let mut place = 0;
        for page in pages {
            let keys: Vec<ChunkKey> = self.chunks.range(page.chunks()).map(|(key, _)| *key).collect();
            for key in keys {
                for slots in self.pending_by_claim(key) {
                    let fence = Fence { group: GROUP, epoch: Epoch(context.index), index: context.index, place };
                    self.doubt_pending(context, (fence, key), slots);
                    place += 1;
                }
            }
        }
    }

    /// Returns the pending recipients of a chunk, those together that one claim can have.
    fn pending_by_claim(&self, key: ChunkKey) -> Vec<Bitmap> {
        let Some(chunk) = self.chunks.get(&key) else { return Vec::new() };
        let pending = chunk.set(RecipientState::Pending);
        let suspects = pending.and(&chunk.crash_suspects);
        let others = chunk.by_pool(&pending.and_not(&suspects)).into_iter().map(|(_, slots)| slots);
        others.chain(suspects.iter().map(|slot| [slot].into_iter().collect())).collect()
    }

    fn doubt_pending(&mut self, context: &mut Context, (fence, chunk): (Fence, ChunkKey), slots: Bitmap) {
        let mut claim = Claim {
            chunk,
            owner: ClaimOwner::NONE,
            claimed_at: context.now,
            granted: slots.clone(),
            claimed: Bitmap::new(),
            in_doubt: slots.clone(),
            sent: Bitmap::new(),
            assumed: Bitmap::new(),
            history: ClaimHistory::default(),
        };
        claim.record(context, (ClaimEventKind::InDoubt(DoubtReason::Restored), RecipientState::InDoubt), &slots);
        self.claims.put(fence, claim);
        self.transition(context, chunk, &slots, RecipientState::Pending, RecipientState::InDoubt);
    }
}

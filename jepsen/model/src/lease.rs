//! Leases and revocation without a clock (P9).
//!
//! By P9 the node counts from the time when it *sent* the request, the leader waits a margin longer, and no grant reaches
//! beyond the last quorum acknowledgement. All this has one purpose: when a leader treats a lease as ended, it has ended on
//! the node. The model assumes exactly that. A lease runs until a leader acts on its end, and ends in that step
//! ([`wait_out`]). A lease that ended earlier, or was refused, would only let the node do less. So a leader may grant or not
//! at any time, and a node renews without applying anything. Each broken variant removes one reason why a lease has ended.

use crate::broken::{BrokenRule, Rules};
use crate::entry::Entry;
use crate::names::{Epoch, Fence, Index, Node};
use crate::process::Lease;
use crate::state::ModelState;

/// Returns the leader on `leader` grants the process on `node` a lease, or extends it. The grant carries a floor: the
/// last index, in the state that the leader has applied, that removed a right of the node. False if the leader must
/// not, or if nothing changes.
pub fn grant(rules: Rules, state: &mut ModelState, leader: Node, node: Node) -> bool {
    let Some(epoch) = state.process(leader).term else { return false };
    let is_backed = epoch == state.log.tip().epoch;
    if !is_backed && rules.enforces(BrokenRule::GrantWithoutQuorum) {
        return false;
    }
    if revocation_is_under_way(state, leader, node) && rules.enforces(BrokenRule::GrantDuringRevocation) {
        return false;
    }
    let floor =
        if rules.enforces(BrokenRule::GrantWithoutFloor) { state.view(leader).floor[node.position()] } else { 0 };
    state.process_mut(node).take_lease(Lease { epoch, floor, is_backed })
}

/// Returns true if a revocation against `node` is committed that this leader has not applied yet.
fn revocation_is_under_way(state: &ModelState, leader: Node, node: Node) -> bool {
    let applied = state.process(leader).applied;
    state.log.after(applied).any(|(index, entry)| match entry {
        Entry::Revoke { claim, .. } => state.log.at(index).claim(*claim).is_some_and(|claim| claim.owner.node == node),
        _ => false,
    })
}

/// The leader of `epoch` waits until the leases of `node` that it must consider have ended: its own, by its record of grants;
/// its predecessors', by waiting after its own `EpochStart`. Meanwhile the node may have renewed with `floor`, if there is one.
pub fn wait_out(rules: Rules, state: &mut ModelState, epoch: Epoch, node: Node, floor: Option<Index>) {
    let waits_for_predecessors = rules.enforces(BrokenRule::NewLeaderDoesNotWait);
    let is_over = |lease: &Lease| {
        let is_predecessors = lease.epoch < epoch && lease.is_backed && waits_for_predecessors;
        (lease.epoch == epoch || is_predecessors) && floor.is_none_or(|floor| lease.floor < floor)
    };
    let process = state.process_mut(node);
    for lease in std::mem::take(&mut process.leases) {
        match floor {
            _ if !is_over(&lease) => process.take_lease(lease),
            Some(floor) => process.take_lease(Lease { floor, ..lease }),
            None => false,
        };
    }
}

/// Returns the leader revokes a claim that it knows of, when every lease of the owner's node has ended.
pub fn revoke(rules: Rules, state: &mut ModelState, leader: Node, claim: Fence) -> bool {
    let Some(epoch) = state.process(leader).term else { return false };
    let Some(owner) = state.view(leader).claim(claim).map(|claim| claim.owner) else { return false };
    let by_ledger_time = !rules.enforces(BrokenRule::LeaseByLedgerTime) && state.view(leader).now > 0;
    if !state.commit(rules, Entry::Revoke { epoch, claim }) {
        return false;
    }
    state.observations.revoked = true;
    if rules.enforces(BrokenRule::RevokeByAge) && !by_ledger_time {
        wait_out(rules, state, epoch, owner.node, None);
    }
    true
}

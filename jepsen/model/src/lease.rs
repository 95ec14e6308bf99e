//! Leases and revocation without a clock (P9).
//!
//! By P9 the node counts from the time at which it *sent* the request, the leader waits a margin longer, and no grant
//! reaches beyond the last quorum acknowledgement. All of this has one purpose: when a leader treats a lease as ended,
//! the lease has ended on the node. The model assumes exactly this purpose. A lease runs until a leader acts on its
//! end, and ends in that step ([`wait_out`]). If it ended earlier or were refused, the node could only do less. So a
//! leader may grant or refuse at any time, and a node renews without applying an entry. Each broken variant removes one
//! reason why a lease has ended.

use crate::broken::{BrokenRule, Rules};
use crate::entry::Entry;
use crate::names::{Epoch, Fence, Index, Node};
use crate::process::Lease;
use crate::state::ModelState;

/// Lets the leader on `leader` grant a lease to the process on `node`, or extend it. The grant carries a floor: the
/// last index, in the state that the leader has applied, that removed a right of the node. Returns false if the leader
/// must not grant, or if nothing changes.
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

/// Lets the leader of `epoch` wait until the leases of `node` have ended: its own grants by its record, and those of
/// its predecessors by waiting after its own `EpochStart`. Meanwhile the node may have renewed with `floor`, if there
/// is one.
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

/// Lets the leader on `leader` revoke a claim that it knows, when every lease of the owner's node has ended. Returns
/// false if nothing changes.
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

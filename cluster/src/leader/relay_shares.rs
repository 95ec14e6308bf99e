//! Gives each voter a share of the relays' rates (P25), one after the other.
//!
//! First the share is reserved: the shares of the other nodes become smaller. The new one is used only when no gate of
//! another node decides by a state without the reservation: each has confirmed it, or its older leases are over, as at
//! a barrier (P15). So the sum never exceeds a rate. The ledger keeps how far this is, for the next leader.

use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::command::{Command, NodeShare};
use reveille_ledger::ids::{ClaimOwner, NodeId};
use reveille_ledger::{Ledger, RelayShare};

use super::barrier;
use super::leadership::Leadership;
use crate::process::context::NodeContext;
use crate::process::peer_messages::BarrierSubject;

/// Interval of the checks.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Reserve(NodeId),
    /// Open the share of this node when these processes know the entry that reserved it.
    Open(NodeId, u64, Vec<ClaimOwner>),
}

/// Gives shares until the leadership ends.
pub(crate) async fn run(context: Arc<NodeContext>, leadership: Arc<Leadership>) {
    while !leadership.ended() {
        leadership.sleep(CHECK_EVERY).await;
        let voters = context.voters();
        match context.replica.read(|ledger| next_step(ledger, &voters)) {
            Some(Step::Reserve(node)) => {
                leadership.propose(Command::NodeShare(NodeShare { node, opens: false })).await;
            }
            Some(Step::Open(node, index, others)) => {
                barrier::ask_each(&context, &leadership, others, index, &BarrierSubject::RelayShares).await;
                if leadership.is_in_force() {
                    leadership.propose(Command::NodeShare(NodeShare { node, opens: true })).await;
                }
            }
            None => {}
        }
    }
}

/// Returns the next step: a reserved share is opened before another one is reserved.
fn next_step(ledger: &Ledger, voters: &[NodeId]) -> Option<Step> {
    let reserved = ledger.nodes().iter().find_map(|(id, node)| match node.share {
        RelayShare::Reserved(index) => Some((*id, index)),
        RelayShare::None | RelayShare::Open => None,
    });
    if let Some((node, index)) = reserved {
        let others = ledger.nodes().iter().filter(|(id, known)| **id != node && known.share != RelayShare::None);
        return Some(Step::Open(node, index, others.map(|(id, known)| known.owner(*id)).collect()));
    }
    let mut without = ledger.nodes().iter().filter(|(id, node)| node.share == RelayShare::None && voters.contains(id));
    without.next().map(|(node, _)| Step::Reserve(*node))
}

#[cfg(test)]
mod tests {
    use reveille_ledger::command::{Actor, Entry, EpochStart, NodeUp, VoterClock};
    use reveille_ledger::ids::{Epoch, Incarnation, Time};

    use super::*;

    #[test]
    fn learner_gets_no_share_and_each_voter_gets_one_after_the_other() {
        let mut ledger = Ledger::new();
        let put = |ledger: &mut Ledger, command| {
            let index = ledger.head().applied + 1;
            ledger.apply(index, &Entry { epoch: Epoch(1), now: Time(0), actor: Actor::System, command });
        };
        let owner = |node| ClaimOwner { node: NodeId(node), incarnation: Incarnation(1) };
        let readings = vec![VoterClock { node: NodeId(1), wall: Time(0) }];
        put(&mut ledger, Command::EpochStart(EpochStart::new(owner(1), 1, readings)));
        for node in 1..=3 {
            let (owner, name) = (owner(node), format!("n{node}"));
            put(&mut ledger, Command::NodeUp(NodeUp { owner, name, level: 1, process_nonce: node }));
        }
        let voters = [NodeId(1), NodeId(2)];
        assert_eq!(next_step(&ledger, &voters), Some(Step::Reserve(NodeId(1))));
        put(&mut ledger, Command::NodeShare(NodeShare { node: NodeId(1), opens: false }));
        assert!(ledger.nodes().get(&NodeId(1)).is_some_and(reveille_ledger::Node::takes_claims), "it is alone");
        assert_eq!(next_step(&ledger, &voters), Some(Step::Reserve(NodeId(2))));
        put(&mut ledger, Command::NodeShare(NodeShare { node: NodeId(2), opens: false }));
        assert!(!ledger.nodes().get(&NodeId(2)).is_some_and(reveille_ledger::Node::takes_claims));
        assert_eq!(next_step(&ledger, &voters), Some(Step::Open(NodeId(2), 6, vec![owner(1)])));
        put(&mut ledger, Command::NodeShare(NodeShare { node: NodeId(2), opens: true }));
        assert_eq!(next_step(&ledger, &voters), None, "the third one learns");
    }
}

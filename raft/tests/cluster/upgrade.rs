//! A rolling upgrade to the next level, and a return while that is still possible (P23).

use reveille_ledger::command::{Actor, Command, Entry, NodeUp, RaiseLevel};
use reveille_ledger::ids::{ClaimOwner, Epoch, Hash, Incarnation, NodeId, Time};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{LEVEL, Ledger, level};
use reveille_proto::peer::v1::{Blank, log_entry::Payload};
use reveille_raft::peer::{Destination, Transport};
use reveille_raft::{FatalError, ProposeError, ReplicaOptions};

use crate::fatal_errors::entries;
use crate::memory::MemoryNetwork;
use crate::support::*;

/// Entries between two snapshots, few enough for a test.
const EVERY: u64 = 40;

fn release(level: u32) -> impl Fn(&mut ReplicaOptions) {
    move |options| {
        options.highest_level = level;
        options.snapshot_every = EVERY;
    }
}

fn state(node: &Node) -> (u64, Hash) {
    node.replica().read(|ledger: &Ledger| (ledger.head().applied, ledger.state_hash()))
}

/// Announces the node's level, as the cluster crate does when a node has started.
async fn announce(node: &Node) {
    let replica = node.replica();
    let owner = ClaimOwner { node: node.id, incarnation: Incarnation(replica.process_nonce()) };
    let name = format!("n{}", node.id.0);
    let process_nonce = replica.process_nonce();
    let up = NodeUp { owner, name, level: replica.highest_level(), process_nonce };
    let taken = replica.propose(&Command::NodeUp(up), soon()).await.expect("an answer").outcome;
    assert_eq!(taken, CommandOutcome::Done);
}

async fn marks(node: &Node, name: &str, count: usize) {
    for number in 0..count {
        propose(node.replica(), &format!("{name} {number}")).await.expect("it is applied");
    }
}

async fn start(node: &mut Node, level: u32) -> Result<(), FatalError> {
    let transport = rebind(&node.address);
    node.start_with(transport, release(level)).await
}

async fn restart(node: &mut Node, level: u32) {
    node.stop().await;
    start(node, level).await.expect("it starts");
    announce(node).await;
}

/// Checks that replicas of both releases are equal at an equal index. A new leader may append an entry meanwhile, so
/// the replicas are read until all have applied the same entries.
async fn compare(nodes: &[Node]) {
    nodes[0].replica().linearizable(soon()).await.expect("a quorum runs");
    let states = until("all have applied the same entries", || {
        let states: Vec<_> = nodes.iter().map(state).collect();
        states.iter().all(|(index, _)| *index == states[0].0).then_some(states)
    })
    .await;
    for (node, state) in nodes.iter().zip(&states) {
        assert_eq!(*state, states[0], "n{} and n{}", node.id.0, nodes[0].id.0);
    }
}

async fn raise(nodes: &[Node]) -> CommandOutcome {
    let voters = nodes.iter().map(|node| node.id).collect();
    let raise = Command::RaiseLevel(RaiseLevel { level: level::KNOWN, voters });
    nodes[0].replica().propose(&raise, soon()).await.expect("an answer").outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_two_releases_are_equal_until_the_former_one_must_stop() {
    let mut nodes = three_over_tcp_with(release(LEVEL)).await;
    for node in &nodes {
        announce(node).await;
    }
    marks(&nodes[0], "former release", 50).await;

    // Upgrades one node, then another, takes the first one back, and upgrades the third.
    for (place, level) in [(0, level::KNOWN), (1, level::KNOWN), (0, LEVEL), (2, level::KNOWN)] {
        restart(&mut nodes[place], level).await;
        marks(&nodes[place], &format!("n{place} has level {level}"), 30).await;
        compare(&nodes).await;
        assert!(
            matches!(raise(&nodes).await, CommandOutcome::Refused(CommandRefusal::NotPossible(_))),
            "one node is in the way"
        );
    }
    let above = nodes[1].replica().propose(&Command::OfNextLevel, soon()).await;
    assert_eq!(above, Err(ProposeError::AboveLevel { needs: level::KNOWN, ledger: LEVEL }));
    restart(&mut nodes[0], level::KNOWN).await;
    assert_eq!(raise(&nodes).await, CommandOutcome::Done);
    compare(&nodes).await;
    let of_next = nodes[1].replica().propose(&Command::OfNextLevel, soon()).await.expect("an answer").outcome;
    assert_eq!(of_next, CommandOutcome::Done);

    // Entries and snapshots written afterwards are readable, too.
    for place in [2, 0] {
        restart(&mut nodes[place], level::KNOWN).await;
        marks(&nodes[place], &format!("n{place} after it"), 30).await;
        compare(&nodes).await;
    }

    nodes[1].stop().await;
    let former = start(&mut nodes[1], LEVEL).await;
    assert_eq!(former, Err(FatalError::AboveLevel { level: level::KNOWN, highest: LEVEL }));
    start(&mut nodes[1], level::KNOWN).await.expect("nothing is lost");
    compare(&nodes).await;
    stop_all(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_of_the_former_release_does_not_go_on_from_a_snapshot_of_the_next_one() {
    let mut nodes = three_over_tcp_with(release(level::KNOWN)).await;
    for node in &nodes {
        announce(node).await;
    }
    marks(&nodes[0], "before it leaves", 5).await;
    compare(&nodes).await;
    let leads = leader(&nodes).await;
    let away = (leads + 1) % 3;
    let seen = nodes[away].replica().status().last_index;
    nodes[away].stop().await;

    let voters = nodes.iter().map(|node| node.id).collect();
    let raise = Command::RaiseLevel(RaiseLevel { level: level::KNOWN, voters });
    let raised = nodes[leads].replica().propose(&raise, soon()).await.expect("an answer").outcome;
    assert_eq!(raised, CommandOutcome::Done);
    marks(&nodes[leads], "without it", 100).await;
    until("the log that the absent node would need is gone", || {
        (nodes[leads].replica().status().purged_index > seen).then_some(())
    })
    .await;

    let started = start(&mut nodes[away], LEVEL).await;
    let expected = FatalError::AboveLevel { level: level::KNOWN, highest: LEVEL };
    match started {
        Ok(()) => {
            let mut fatal_error = nodes[away].replica().fatal_error();
            let fatal_error =
                tokio::time::timeout(PATIENCE, fatal_error.wait_for(Option::is_some)).await.expect("a fatal_error");
            assert_eq!(*fatal_error.expect("it is kept"), Some(expected));
            nodes[away].stop().await;
        }
        Err(fatal_error) => assert_eq!(fatal_error, expected),
    }
    start(&mut nodes[away], level::KNOWN).await.expect("nothing is lost");
    compare(&nodes).await;
    stop_all(&mut nodes).await;
}

/// A leader of the next release that forgets its gate appends a command of the next level before the level is raised.
#[tokio::test(flavor = "multi_thread")]
async fn command_without_its_gate_stops_the_former_release_and_no_other() {
    for highest in [LEVEL, level::KNOWN] {
        let network = MemoryNetwork::default();
        let mut node = Node::new(1, MemoryNetwork::address_of(NodeId(1)));
        node.start_with(network.transport(node.id), release(highest)).await.expect("a new node starts");
        let ungated = Entry { epoch: Epoch(0), now: Time(0), actor: Actor::System, command: Command::OfNextLevel };
        let [first, second, last] = [(); 3].map(|()| Payload::Blank(Blank {}));
        let payloads = vec![first, second, Payload::Command(ungated.to_bytes().into()), last];
        let to = Destination { node: node.id, address: node.address.clone(), key: None };
        // The response may be lost, so it is not checked.
        let _ = network.transport(NodeId(2)).call(&to, entries(payloads), PATIENCE).await;
        if highest == LEVEL {
            let mut fatal_error = node.replica().fatal_error();
            let stopped = tokio::time::timeout(PATIENCE, fatal_error.wait_for(Option::is_some)).await;
            let fatal_error = stopped.expect("a fatal error").expect("it is kept").clone();
            assert!(matches!(fatal_error, Some(FatalError::Unreadable { index: 2, .. })), "{fatal_error:?}");
            assert!(*node.replica().applied().borrow() < 2, "neither it nor what follows was applied");
        } else {
            node.replica().wait_applied(3, soon()).await.expect("it is applied");
            assert_eq!(*node.replica().fatal_error().borrow(), None);
        }
        node.stop().await;
    }
}

//! Archived runs are read from memory, from disk, after a restart, and on a node that got them with a snapshot.

use reveille_ledger::command::{Advance, Archive, Command, Trigger};
use reveille_ledger::content::{Audience, Recipient};
use reveille_ledger::ids::{PageId, RunId};
use reveille_ledger::policy::DAY_MS;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::ReplicaOptions;

use crate::plain;
use crate::support::*;

fn often(options: &mut ReplicaOptions) {
    options.snapshot_every = 40;
}

async fn done(node: &Node, command: Command) -> CommandOutcome {
    let outcome = node.replica().propose(&command, soon()).await.expect("it is applied").outcome;
    assert!(!matches!(outcome, CommandOutcome::Refused(_)), "{outcome:?}");
    outcome
}

/// Opens a run, ends it, and archives it a day later.
async fn archive_run(node: &Node) -> RunId {
    done(node, Command::TestClock).await;
    let recipient = Recipient { address: "a@example.org".into(), key: "a@example.org".into(), values: vec![] };
    let create = plain::schedule("daily", Audience { columns: vec![], recipients: vec![recipient] }, wall());
    let CommandOutcome::Schedule(schedule) = done(node, Command::ScheduleCreate(Box::new(create))).await else {
        panic!("a schedule")
    };
    let trigger = Command::Trigger(Trigger::new(schedule, "now"));
    let CommandOutcome::Run { run, .. } = done(node, trigger).await else { panic!("a run") };
    done(node, Command::RunCancel(run)).await;
    done(node, Command::Advance(Advance { to: wall().plus_ms(2 * DAY_MS), jump: false })).await;
    let archive = Archive { pages: vec![PageId(run)], after_ms: DAY_MS, ..Archive::default() };
    assert_eq!(done(node, Command::Archive(archive)).await, CommandOutcome::Archived(1));
    run
}

async fn assert_archived(node: &Node, run: RunId) {
    let replica = node.replica();
    assert!(replica.read(|ledger| ledger.run(run).is_none()), "it left the state");
    let (_, part) = replica.archived(run, None).await.expect("its part is readable").expect("a part has it");
    assert_eq!(part.run(run).map(|run| run.count), Some(1));
}

fn unsaved_bytes(node: &Node) -> usize {
    node.replica().read(|ledger| ledger.unsaved_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_run_is_read_from_memory_from_disk_and_from_a_snapshot_of_another_node() {
    let mut nodes = three_over_tcp_with(often).await;
    let leads = leader(&nodes).await;
    let away = (leads + 1) % 3;
    nodes[away].replica().linearizable(soon()).await.expect("a quorum runs");
    let seen = nodes[away].replica().status().last_index;
    nodes[away].stop().await;

    let run = archive_run(&nodes[leads]).await;
    assert!(unsaved_bytes(&nodes[leads]) > 0, "no snapshot has it yet");
    assert_archived(&nodes[leads], run).await;

    let mut last = 0;
    for number in 0..100 {
        last = propose(nodes[leads].replica(), &format!("mark {number}")).await.expect("it is applied").index;
    }
    until("snapshots have it, and the log is cut", || {
        let is_saved = |node: &&Node| unsaved_bytes(node) == 0 && node.replica().status().purged_index > seen;
        nodes.iter().filter(|node| node.replica.is_some()).all(|node| is_saved(&node)).then_some(())
    })
    .await;
    assert_archived(&nodes[leads], run).await;

    let transport = rebind(&nodes[away].address);
    nodes[away].start_with(transport, often).await.expect("it returns");
    nodes[away].replica().wait_applied(last, soon()).await.expect("it catches up");
    assert!(nodes[away].replica().status().snapshot_index > seen, "by a snapshot");
    let missing = nodes[away].replica().missing_blocks();
    assert!(!missing.is_empty(), "the archive does not come with the snapshot");
    for block in missing {
        let bytes = nodes[leads].replica().block(block).expect("another node has it");
        nodes[away].replica().put_block(block, &bytes).expect("it is stored");
    }
    assert_eq!(nodes[away].replica().missing_blocks(), []);
    assert_archived(&nodes[away], run).await;

    nodes[leads].stop().await;
    let transport = rebind(&nodes[leads].address);
    nodes[leads].start_with(transport, often).await.expect("it starts again");
    assert_archived(&nodes[leads], run).await;
    stop_all(&mut nodes).await;
}

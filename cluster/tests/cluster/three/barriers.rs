//! After the reply to an opt-out, no gate passes an email to that recipient. Emails that may still arrive are listed
//! (P15).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reveille_cluster::leader::barrier;
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::peer_messages::{self, BarrierAnswer, BarrierReport, BarrierRequest, BarrierSubject};
use reveille_ledger::RecipientState;
use reveille_ledger::command::{ClaimOutcome, Command, Decide, Decider, Decision, OptOut};
use reveille_ledger::ids::NodeId;
use reveille_ledger::policy::Policies;
use reveille_raft::peer::Response;

use super::cluster::*;
use super::reconciliation::*;

fn about(number: u32) -> BarrierSubject {
    BarrierSubject::OptedOut { tenant: "default".into(), keys: [address(number)].into() }
}

/// Opts a recipient out at this node: the entry, then the barrier. Returns the barrier's report.
async fn opt_out(context: &Arc<NodeContext>, number: u32) -> BarrierReport {
    let command = Command::OptOut(OptOut { tenant: "default".into(), keys: vec![address(number)] });
    let reply = context.replica.propose(&command, soon()).await.expect("an answer");
    barrier::through_leader(context, reply.index, about(number), soon()).await.expect("a report")
}

fn names(report: &BarrierReport, number: u32) -> bool {
    report.crossed.iter().any(|crossed| crossed.recipient == number)
}

/// A cluster in which an owner, not the leader, has one email past its gate and the next one before it.
struct Halfway {
    cluster: Cluster,
    leads: usize,
    owner: usize,
    held: reveille_sink::Held,
}

async fn halfway() -> Halfway {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let owner = (leads + 1) % 3;
    cluster.nodes[owner].valve.close_after(1);
    let mut hold = cluster.hold_a_mail_of(owner);
    open_with(&cluster, leads, 200, Policies::default()).await;
    let held = hold.next(STEP_TIMEOUT).await.expect("the owner sends");
    let valve = &cluster.nodes[owner].valve;
    until("a dialogue is short of its gate", || (valve.stopped() > 0).then_some(())).await;
    Halfway { cluster, leads, owner, held }
}

/// Returns the recipients that a node has claimed, except the one that is past its gate.
fn waiting(context: &NodeContext, node: NodeId, crossed: u32) -> Vec<u32> {
    claimed_by(context, node).into_keys().filter(|number| *number != crossed).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opt_out_is_known_to_every_gate_before_it_is_answered() {
    let Halfway { cluster, leads, owner, held } = halfway().await;
    let (me, third) = (&cluster.nodes[owner], cluster.nodes[(leads + 2) % 3].context());
    let crossed = number_of(&held.accepted.recipient);
    let waiting = waiting(me.context(), me.id, crossed);
    assert!(waiting.len() > 1, "{waiting:?}");
    for number in &waiting {
        let report = opt_out(third, *number).await;
        assert_eq!(report, BarrierReport::default(), "all nodes answer, and nothing has crossed");
    }
    let report = opt_out(third, crossed).await;
    assert!(names(&report, crossed) && report.unconfirmed.is_empty(), "{report:?}");

    me.valve.open();
    held.release();
    let context = cluster.nodes[leads].context();
    until("nothing is left to send", || is_over(context).then_some(())).await;
    assert_eq!(count(context, RecipientState::Suppressed) as usize, waiting.len());
    assert_eq!(count(context, RecipientState::Sent) as usize, 200 - waiting.len());
    assert_consistent(&cluster, 200).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswering_node_is_waited_out_and_named() {
    let Halfway { cluster, leads, owner, held } = halfway().await;
    let (me, node, context) = (&cluster.nodes[owner], cluster.nodes[owner].id, cluster.nodes[leads].context());
    let crossed = number_of(&held.accepted.recipient);
    let number = *waiting(me.context(), node, crossed).first().expect("a recipient waits");
    cluster.isolate(owner);
    let report = opt_out(context, number).await;
    assert_eq!(report.unconfirmed, [node]);
    assert!(names(&report, number), "its progress is not known: {report:?}");
    assert!(!me.may_send(), "P15: no gate passes there by the time of the answer");
    me.valve.open();
    until("what was short of its gate has met it", || (me.relay().counters.gate_closed > 0).then_some(())).await;

    held.release();
    cluster.network.heal();
    until("nothing is left in doubt", || (count(context, RecipientState::Sent) == 199).then_some(())).await;
    assert_eq!(count(context, RecipientState::Suppressed), 1);
    assert_eq!(opt_out(context, number).await, BarrierReport::default(), "asked again, every node answers");
    assert_consistent(&cluster, 200).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn barrier_is_confirmed_only_by_the_asked_incarnation() {
    let Halfway { mut cluster, leads, owner, held } = halfway().await;
    let node = cluster.nodes[owner].id;
    let context = Arc::clone(cluster.nodes[leads].context());
    let crossed = number_of(&held.accepted.recipient);
    cluster.kill(owner).await;
    let before = cluster.network.requests(node, "Barrier");
    let asking = tokio::spawn(async move { opt_out(&context, crossed).await });
    until("the barrier is open", || (cluster.network.requests(node, "Barrier") > before).then_some(())).await;

    cluster.nodes[owner].valve.open();
    cluster.restart(owner).await;
    let report = asking.await.expect("it does not panic");
    assert_eq!(report.unconfirmed, [node], "its next life knows nothing of its handoffs");
    assert!(names(&report, crossed), "what may have arrived is named: {report:?}");

    let context = cluster.nodes[leads].context();
    until("nothing is left to send", || is_over(context).then_some(())).await;
    assert_eq!(in_doubt_of(context, node).into_keys().collect::<Vec<_>>(), [crossed]);
    assert_consistent(&cluster, 200).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_in_progress_is_named_despite_later_decisions() {
    let Halfway { cluster, leads, owner, held } = halfway().await;
    let (me, context) = (&cluster.nodes[owner], cluster.nodes[leads].context());
    let crossed = number_of(&held.accepted.recipient);
    me.valve.open();
    cluster.isolate(owner);
    let state = |context: &NodeContext| context.replica.read(|ledger| ledger.state(run(context), crossed));
    until("its row is revoked", || (state(context) == Some(RecipientState::InDoubt)).then_some(())).await;
    let (run, recipients) = (run(context), vec![crossed]);
    let (decision, by) = (Decision::Assume, Decider::Operator);
    let assume = Decide { run, recipients, decision, by, up_to: None, request: None };
    context.replica.propose(&Command::Decide(assume), soon()).await.expect("an answer");
    until("the doubt is decided", || (state(context) == Some(RecipientState::Assumed)).then_some(())).await;
    cluster.network.heal();
    until("its owner knows", || (state(me.context()) == Some(RecipientState::Assumed)).then_some(())).await;
    // As long as its workers take to read the state.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let report = opt_out(context, crossed).await;
    assert!(report.unconfirmed.is_empty(), "{report:?}");
    assert!(names(&report, crossed), "P15: it may still arrive");

    assert!(held.release(), "its answer is still waited for");
    until("its answer is there, and it is named no longer", || {
        me.context().handoffs.about(|handoff| handoff.recipient == crossed).is_empty().then_some(())
    })
    .await;
    cluster.end().await;
}

/// Returns the `Settle` of the recipient's owner if the outcome of its handoff is unknown.
fn no_answer(context: &NodeContext, number: u32) -> Command {
    let run = run(context);
    let outcome = context.replica.read(|ledger| {
        let (chunk, slot) = ledger.slot_of(run, number)?;
        let (fence, _) = ledger.claims().iter().find(|(_, row)| row.chunk == chunk && row.claimed.contains(slot))?;
        Some(ClaimOutcome { in_doubt: [slot].into_iter().collect(), ..ClaimOutcome::empty(chunk, *fence) })
    });
    Command::Settle(vec![outcome.expect("a node holds it")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_handoffs_come_from_a_state_as_new_as_all_confirmations() {
    let Halfway { cluster, leads, owner, held } = halfway().await;
    let (node, context) = (cluster.nodes[owner].id, Arc::clone(cluster.nodes[leads].context()));
    let crossed = number_of(&held.accepted.recipient);
    // Simulates an owner whose state is ahead of the leader's: there the handoff is in doubt and no longer listed.
    let ahead = Arc::new(AtomicU64::new(u64::MAX));
    let its_state = Arc::clone(&ahead);
    cluster.network.change_answers(node, "Barrier", move |response| {
        let Response::Application(mut response) = response else { return response };
        let mut answer: BarrierAnswer = serde_json::from_slice(&response.payload).expect("an answer to a barrier");
        answer.crossed.clear();
        answer.applied = its_state.load(Ordering::Relaxed);
        response.payload = peer_messages::reply::<BarrierRequest>(&answer).expect("it is written").into();
        Response::Application(response)
    });
    let before = cluster.network.requests(node, "Barrier");
    let leader = Arc::clone(&context);
    let asking = tokio::spawn(async move { opt_out(&leader, crossed).await });
    let has_asked_again = || cluster.network.requests(node, "Barrier") > before + 1;
    until("it is asked again", || (has_asked_again() || asking.is_finished()).then_some(())).await;
    assert!(!asking.is_finished(), "the leader has answered by a state that does not know of the doubt");

    let settled = context.replica.propose(&no_answer(&context, crossed), soon()).await.expect("an answer");
    ahead.store(settled.index, Ordering::Relaxed);
    let report = asking.await.expect("it does not panic");
    assert!(report.unconfirmed.is_empty(), "{report:?}");
    assert!(names(&report, crossed), "P15: it may still arrive: {report:?}");
    cluster.end().await;
}

//! Random opt-outs from any node during a run to a sealed audience, while leaders change. By the mailbox's clock, no
//! email arrives after the reply unless the reply listed it (P15, I6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use reveille_cluster::file_store::GeneratedAudience;
use reveille_cluster::leader::{barrier, transfer};
use reveille_cluster::process::clock::{Clock, SystemClock};
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::peer_messages::{BarrierReport, BarrierSubject};
use reveille_ledger::RecipientState;
use reveille_ledger::command::{Command, OptOut};

use super::cluster::*;
use super::reconciliation::*;
use crate::support::schedule_to;

const RECIPIENTS: u32 = 2_400;
/// Emails per second, low enough that the run lasts through the whole test.
const RATE: u64 = 240;
/// Number of clients that opt out at the same time.
const CLIENTS: usize = 4;

/// The ledger holds none of these recipients: each node reads addresses and keys from its own file (P20).
fn generated() -> GeneratedAudience {
    GeneratedAudience { seed: 11, recipients: RECIPIENTS, columns: vec!["name".to_owned()] }
}

/// An opt-out with its reply.
struct Answered {
    number: u32,
    /// Time of the reply, on the clock of the mailbox's record.
    at: Duration,
    report: BarrierReport,
}

/// Opts out one recipient. Repeats the entry and its barrier until both are answered, each time at a random node.
async fn opt_out(contexts: &[Arc<NodeContext>], dice: &mut StdRng, number: u32) -> Answered {
    let key = generated().recipient(number).key;
    let about = BarrierSubject::OptedOut { tenant: "default".into(), keys: [key.clone()].into() };
    let end = soon();
    loop {
        assert!(Instant::now() < end, "no node answers the opt-out of {number} within {STEP_TIMEOUT:?}");
        let context = &contexts[dice.random_range(0..contexts.len())];
        let command = Command::OptOut(OptOut { tenant: "default".into(), keys: vec![key.clone()] });
        let within = || Instant::now() + Duration::from_secs(10);
        let Ok(reply) = context.replica.propose(&command, within()).await else { continue };
        let Ok(report) = barrier::through_leader(context, reply.index, about.clone(), within()).await else { continue };
        return Answered { number, at: SystemClock.boot(), report };
    }
}

/// Opts out one recipient after another until the run is over.
async fn opt_out_all(
    contexts: Vec<Arc<NodeContext>>,
    numbers: Vec<u32>,
    seed: u64,
    over: Arc<AtomicBool>,
) -> Vec<Answered> {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut answered = Vec::new();
    for number in numbers {
        if over.load(Ordering::Relaxed) {
            break;
        }
        answered.push(opt_out(&contexts, &mut dice, number).await);
        tokio::time::sleep(Duration::from_millis(dice.random_range(0..40))).await;
    }
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handoff_starts_after_opt_out_is_answered() {
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let (_, to) = sealed(&cluster, leads, &generated()).await;
    cluster.put(leads, relay(&cluster, RATE)).await;
    cluster.put(leads, schedule_to(to)).await;
    until("the run is under way", || (cluster.sink.accepted_count() > 100).then_some(())).await;

    let mut numbers: Vec<u32> = (0..RECIPIENTS).collect();
    numbers.shuffle(&mut dice);
    let contexts: Vec<Arc<NodeContext>> = cluster.nodes.iter().map(|node| Arc::clone(node.context())).collect();
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = numbers
        .chunks(numbers.len().div_ceil(CLIENTS))
        .map(|chunk| tokio::spawn(opt_out_all(contexts.clone(), chunk.to_vec(), dice.random(), Arc::clone(&over))))
        .collect();

    // One leader hands over, the next one is cut off for longer than its lease, and the one after hands over as well.
    let mut leaders = BTreeSet::from([leads]);
    let mut next = (leads + 1) % 3;
    for cut in [false, true, false] {
        let now = cluster.leader().await;
        leaders.insert(now);
        if cut {
            cluster.isolate(now);
            let other = cluster.leader_but(Some(now)).await;
            leaders.insert(other);
            tokio::time::sleep(Duration::from_secs(6)).await;
            cluster.network.heal();
        } else {
            next = if next == now { (now + 1) % 3 } else { next };
            // The transfer may be refused while the leader changes; then another node leads anyway.
            let _ = transfer::request_transfer(&contexts[now], cluster.nodes[next].id, soon()).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    until("nothing is left to send", || contexts.iter().all(|context| is_over(context)).then_some(())).await;
    over.store(true, Ordering::Relaxed);
    let mut answered = Vec::new();
    for client in clients {
        answered.extend(client.await.expect("it does not panic"));
    }
    until("no doubt is left", || (count(&contexts[0], RecipientState::InDoubt) == 0).then_some(())).await;

    let arrived: BTreeMap<u32, Duration> = cluster
        .sink
        .emails()
        .iter()
        .map(|(_, accept)| (number_of(&accept.recipient), Duration::from_micros(accept.accept_monotonic_us)))
        .collect();
    let (mut early, mut named) = (0, 0);
    for Answered { number, at, report } in &answered {
        match arrived.get(number) {
            Some(accepted) if accepted > at => {
                let is_named = report.crossed.iter().any(|crossed| crossed.recipient == *number);
                assert!(is_named, "I6: {number} arrived {:?} after the answer and was not named", *accepted - *at);
                named += 1;
            }
            Some(_) => {}
            None => early += 1,
        }
    }
    eprintln!("{} opt-outs, {early} in time, {named} named and arrived later, leaders {leaders:?}", answered.len());
    assert!(leaders.len() > 1, "leadership has moved");
    assert!(early >= 20, "of {} opt-outs {early} came before their mail", answered.len());
    assert_eq!(count(&contexts[0], RecipientState::Suppressed), early, "only opted-out recipients got no email");
    drop(contexts);
    assert_consistent(&cluster, RECIPIENTS).await;
    cluster.end().await;
}

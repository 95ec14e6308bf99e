//! Nodes whose wall clocks are 400 days off: longer than any certificate for clients, token or schedule waits (P18).

use std::time::{Duration, Instant};

use reveille_cluster::process::clock::{Clock, SystemClock};
use reveille_ledger::ScheduleTiming;
use reveille_ledger::calendar::When;
use reveille_ledger::command::{Command, NextInstant, ScheduleCreate};
use reveille_ledger::ids::{Hash, NodeId, OccurrenceName, Time, TokenId};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::token::{Rights, TenantScope, TokenCreate, TokenGrant};

use super::cluster::*;
use super::reconciliation::*;

const DAY_MS: i64 = 86_400_000;
const OFF_MS: i64 = 400 * DAY_MS;
/// Bound on the difference of ledger time and the right time, far above the age of the last entry.
const NEAR_MS: i64 = 3_600_000;
const TOKEN: TokenId = TokenId(7);

/// Creates a schedule with one recipient that is due then.
async fn create(cluster: &Cluster, index: usize, name: &str, due: Time) {
    let Command::ScheduleCreate(create) = schedule(1) else { unreachable!("it is a create") };
    let create = ScheduleCreate {
        name: name.to_owned(),
        timing: ScheduleTiming::new(When::At { instant_ms: due.0 }, "UTC"),
        next: Some(NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms: 0 }),
        ..*create
    };
    let created = cluster.put(index, Command::ScheduleCreate(Box::new(create))).await;
    assert!(matches!(created.outcome, CommandOutcome::Schedule(_)), "{created:?}");
}

/// Creates the relay, a schedule that is due tomorrow, and a token that is valid until then.
async fn prepare(cluster: &Cluster, index: usize) {
    let tomorrow = SystemClock.wall().plus_ms(DAY_MS);
    cluster.put(index, relay(cluster, 0)).await;
    create(cluster, index, "tomorrow", tomorrow).await;
    let (hash, tenants) = (Hash([7; 32]), TenantScope::All);
    let grant = TokenGrant { name: "day".to_owned(), hash, rights: Rights(1), tenants, expires_at: Some(tomorrow) };
    let token = TokenCreate { id: TOKEN, grant, revokes: Rights::default() };
    assert_eq!(cluster.put(index, Command::TokenCreate(Box::new(token))).await.outcome, CommandOutcome::Done);
}

fn now() -> Time {
    SystemClock.wall()
}

/// Asserts that on this node ledger time is near the right time, that `runs` have opened, and that the token is valid.
fn assert_undisturbed(cluster: &Cluster, index: usize, runs: usize) {
    cluster.nodes[index].context().replica.read(|ledger| {
        let time = ledger.head().now;
        assert!(time.since_ms(now()).abs() < NEAR_MS, "ledger time is {time:?}");
        assert_eq!(ledger.runs().count(), runs, "what is due tomorrow has not fired");
        assert!(ledger.tokens().get(&TOKEN).is_some_and(|token| token.is_valid(time)), "the token");
    });
}

/// Returns the leader of the newest epoch, as one of the nodes knows it.
fn leader_of_epoch(cluster: &Cluster) -> Option<NodeId> {
    let epochs = cluster.nodes.iter().map(|node| node.context().replica.read(|ledger| ledger.head().epoch));
    epochs.flatten().max_by_key(|state| state.epoch).map(|state| state.leader.node)
}

/// Makes the node leader, until it has begun an epoch. It may hand over at once.
async fn make_leader(cluster: &Cluster, index: usize) {
    let (node, end) = (cluster.nodes[index].id, soon());
    loop {
        assert!(Instant::now() < end, "it begins no epoch");
        let leads = cluster.leader().await;
        let deadline = Instant::now() + Duration::from_secs(3);
        let _ = cluster.nodes[leads].context().replica.transfer_leader(node, deadline).await;
        for _ in 0..1_000 {
            if leader_of_epoch(cluster) == Some(node) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_clock_400_days_off_fires_nothing_early_and_is_not_locked_out() {
    let mut cluster = Cluster::start().await;
    let first = cluster.leader().await;
    prepare(&cluster, first).await;
    let wrong = (first + 1) % 3;
    for (runs, ahead_ms) in [OFF_MS, -OFF_MS].into_iter().enumerate() {
        cluster.kill(wrong).await;
        cluster.nodes[wrong].clock.set_ahead(ahead_ms);
        cluster.restart(wrong).await;
        until("it may send", || cluster.nodes[wrong].may_send().then_some(())).await;
        assert_undisturbed(&cluster, wrong, runs);

        make_leader(&cluster, wrong).await;
        assert_undisturbed(&cluster, wrong, runs);
        let node = cluster.nodes[wrong].id;
        until("it hands over", || leader_of_epoch(&cluster).filter(|leads| *leads != node)).await;
        create(&cluster, wrong, &format!("now {runs}"), now().plus_ms(300)).await;
        until("it fires and is sent", || (cluster.sink.accepted_count() > runs as u64).then_some(())).await;
        for index in 0..3 {
            let context = cluster.nodes[index].context();
            until("it is known here", || (context.replica.read(|ledger| ledger.runs().count()) > runs).then_some(()))
                .await;
            assert_undisturbed(&cluster, index, runs + 1);
        }
        assert!(cluster.nodes[wrong].may_send(), "it is a member like the others");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_clocks_400_days_apart_stop_all_firing_until_two_agree() {
    let mut cluster = Cluster::start().await;
    let right = cluster.leader().await;
    prepare(&cluster, right).await;
    let (early, late) = ((right + 1) % 3, (right + 2) % 3);
    cluster.nodes[early].clock.set_ahead(-OFF_MS);
    cluster.nodes[late].clock.set_ahead(OFF_MS);
    // Another epoch begins.
    cluster.kill(right).await;
    cluster.restart(right).await;
    let leads = cluster.leader().await;
    let disagree = || cluster.nodes[leads].context().leadership().is_some_and(|leads| !leads.clocks_agree());
    until("no two clocks agree", || disagree().then_some(())).await;
    create(&cluster, leads, "now", now().plus_ms(300)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_undisturbed(&cluster, leads, 0);

    cluster.nodes[early].clock.set_ahead(0);
    until("it fires and is sent", || (cluster.sink.accepted_count() == 1).then_some(())).await;
    for index in 0..3 {
        let context = cluster.nodes[index].context();
        until("it is known here", || (context.replica.read(|ledger| ledger.runs().count()) > 0).then_some(())).await;
        assert_undisturbed(&cluster, index, 1);
    }
    cluster.end().await;
}

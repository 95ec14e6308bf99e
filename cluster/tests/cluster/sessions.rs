//! How a pool's sessions are shared, on whole nodes: with slow relays, and with tenants of different shares.
//!
//! If the turns ignored shares, the test of shares would fail.

use std::path::Path;
use std::time::{Duration, Instant};

use reveille_ledger::command::{Command, Relay, RunPause};
use reveille_ledger::limits::limits;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::tenant::TenantSet;
use reveille_ledger::{LEVEL, RecipientState};
use reveille_sink::Sink;

use crate::support::one_node::{Node, count, mailbox, relay};
use crate::support::{STEP_TIMEOUT, schedule};

impl Node {
    async fn put_relay(&self, (pool, name): (&str, &str), sink: &Sink, max_sessions: u32) {
        assert_eq!(
            self.put(Command::RelayPut(relay_of(pool, name, sink, max_sessions).into())).await,
            CommandOutcome::Done
        );
    }

    /// Opens one run of a tenant with this share, in a pool.
    async fn open(&self, (tenant, share): (&str, u32), pool: &str, recipients: u32) {
        let (request, rate_milli, concurrency) = (None, None, None);
        let (name, share) = (tenant.into(), Some(share));
        let set = TenantSet { request, name, rate_milli, concurrency, share, pools: None, expected: None };
        assert_eq!(self.put(Command::TenantSet(set)).await, CommandOutcome::Done);
        let Command::ScheduleCreate(mut create) = schedule(recipients) else { panic!("a schedule") };
        (create.tenant, create.pool) = (tenant.into(), pool.into());
        assert!(matches!(self.put(Command::ScheduleCreate(create)).await, CommandOutcome::Schedule(_)));
    }

    fn sent(&self, tenant: &str) -> u32 {
        self.context.replica.read(|ledger| {
            let runs = ledger.runs().filter(|(_, page, _)| *page.tenant == *tenant);
            runs.map(|(_, _, run)| run.counts.get(RecipientState::Sent)).sum()
        })
    }

    fn claimed(&self) -> u32 {
        count(&self.context, RecipientState::Claimed)
    }

    async fn until_sent(&self, tenant: &str, count: u32) {
        let end = Instant::now() + STEP_TIMEOUT;
        while self.sent(tenant) < count {
            assert!(Instant::now() < end, "not within a minute: {} of {count} of {tenant}", self.sent(tenant));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn relay_of(pool: &str, name: &str, sink: &Sink, max_sessions: u32) -> Relay {
    Relay { name: name.into(), pool: pool.into(), max_sessions, ..relay(sink) }
}

/// Starts a mailbox that delays its reply to each email.
fn mailbox_that_answers_after(delay: &str) -> Sink {
    let sink = mailbox();
    sink.set_faults(format!("answer:stall={delay}").parse().expect("a plan"));
    sink
}

/// The sessions of both relays are always full, and each free session takes the next email. So a relay gets emails
/// according to its speed. No email waits for the slow relay while the fast one has a free session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_relay_delays_no_email_that_another_could_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let (slow, fast) = (mailbox_that_answers_after("6s"), mailbox());
    let node = Node::start(folder.path(), 1).await;
    node.put_relay(("default", "slow"), &slow, 4).await;
    node.put_relay(("default", "fast"), &fast, 4).await;
    node.open(("default", 1), "default", 400).await;
    node.until_sent("default", 400).await;
    let (slowly, quickly) = (slow.accepted_count(), fast.accepted_count());
    assert_eq!(slowly + quickly, 400, "and none twice");
    assert!(slowly * 20 < quickly, "{slowly} by the slow one, {quickly} by the fast one");
    node.stop().await;
    slow.stop().await;
    fast.stop().await;
}

/// One pool's relay has no free session. Emails that wait for it do not delay emails of another pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_without_room_delays_no_other_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let (slow, fast) = (mailbox_that_answers_after("3s"), mailbox());
    let node = Node::start(folder.path(), 1).await;
    node.put_relay(("full", "slow"), &slow, 1).await;
    node.put_relay(("default", "fast"), &fast, 4).await;
    node.open(("waits", 1), "full", 100).await;
    node.until_sent("waits", 1).await;
    node.open(("default", 1), "default", 200).await;
    node.until_sent("default", 200).await;
    let slowly = slow.accepted_count();
    assert!(slowly * 10 < 200, "{slowly} by the slow one, while the fast one took 200");
    node.stop().await;
    slow.stop().await;
    fast.stop().await;
}

/// A relay without a free session, and two tenants with more emails than it can take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_slow_relay_are_shared_by_waiting_tenants() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = mailbox_that_answers_after("400ms");
    let node = Node::start(folder.path(), 1).await;
    node.put_relay(("default", "slow"), &sink, 10).await;
    node.open(("large", limits(LEVEL).tenant_share_max), "default", 900).await;
    node.open(("small", 1), "default", 900).await;
    // The measurement begins when both have sent for a while, because the first tenant had all sessions at first.
    node.until_sent("small", 6).await;
    let before = [node.sent("large"), node.sent("small")];
    node.until_sent("large", before[0] + 320).await;
    let (large, small) = (node.sent("large") - before[0], node.sent("small") - before[1]);
    let ratio = f64::from(large) / f64::from(small.max(1));
    // Shares of 16 and 1. Where claims of the large tenant come late, on a loaded machine, the small one uses the free
    // sessions: six such tests at a time measured 6. Without shares both would get as much.
    assert!((4.0..=20.0).contains(&ratio), "{large} and {small}: {ratio}");
    node.stop().await;
    sink.stop().await;
}

/// A stop is no reply of a relay, so the recipients are claimable at once. Earlier they waited until the next retry, as
/// after a refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_before_gate_leaves_recipients_pending_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let slow = mailbox();
    slow.set_faults("rcpt:stall=60s".parse().expect("a plan"));
    let node = Node::start(folder.path(), 1).await;
    node.put_relay(("default", "slow"), &slow, 4).await;
    node.open(("default", 1), "default", 4).await;
    let end = Instant::now() + STEP_TIMEOUT;
    while slow.connections().len() < 4 {
        assert!(Instant::now() < end, "not within a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(node.node_runtime.stop(STEP_TIMEOUT).await, "nothing is left open");
    let claimable = node.context.replica.read(|ledger| {
        let chunks = ledger.chunks().iter().map(|(_, chunk)| chunk.claimable(ledger.head().now).len());
        chunks.sum::<u32>()
    });
    assert_eq!(claimable, 4, "all of them, now");
    assert!(node.context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await, "the replica stops");
    slow.stop().await;
}

/// A paused run gives its claims back at once. It does not wait for sessions and pace that its recipients cannot use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_run_gives_claims_back_without_spending_pace() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = mailbox();
    let node = Node::start(folder.path(), 1).await;
    let paced = Relay { rate_milli: 1_000, ..relay(&sink) };
    assert_eq!(node.put(Command::RelayPut(paced.into())).await, CommandOutcome::Done);
    node.open(("default", 1), "default", 50).await;
    node.until_sent("default", 1).await;
    let run = node.context.replica.read(|ledger| ledger.runs().next().map(|(run, _, _)| run).expect("a run"));
    let pause = RunPause { run, reason: "a test".into() };
    node.put(Command::RunPause(pause)).await;
    let (paused_at, claimed) = (Instant::now(), node.claimed());
    assert!(claimed > 4, "{claimed} are claimed: more than the relay takes in four seconds");
    while node.claimed() > 0 {
        assert!(paused_at.elapsed() < Duration::from_secs(4), "{} of {claimed} still wait", node.claimed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.stop().await;
    sink.stop().await;
}

/// Starts a node with one session. Returns it when its relay has become silent after a final dot, while more recipients
/// wait.
async fn node_that_waits_for_an_answer(folder: &Path, sink: &Sink, answer: &str) -> Node {
    let node = Node::start(folder, 1).await;
    node.put_relay(("default", "one"), sink, 1).await;
    node.open(("default", 1), "default", 1_000).await;
    node.until_sent("default", 100).await;
    sink.set_faults(answer.parse().expect("a plan"));
    let end = Instant::now() + STEP_TIMEOUT;
    while sink.fault_tally().iter().all(|hits| *hits == 0) {
        assert!(Instant::now() < end, "no answer is late");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node
}

/// A recipient that was taken for a session waits like the others: without an answer to the email before it, it goes
/// back within ten seconds of its claim (P5.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_recipient_goes_back_in_time_while_an_answer_is_awaited() {
    let (folder, sink) = (tempfile::tempdir().expect("a folder"), mailbox_that_answers_after("5ms"));
    let node = node_that_waits_for_an_answer(folder.path(), &sink, "answer:stall=20s").await;
    let run = node.context.replica.read(|ledger| ledger.runs().next().map(|(run, _, _)| run).expect("a run"));
    node.put(Command::RunPause(RunPause { run, reason: "a test".into() })).await;
    let begun = Instant::now();
    while node.claimed() != 1 {
        assert!(begun.elapsed() < Duration::from_secs(15), "{} are claimed", node.claimed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while node.claimed() > 0 {
        assert!(begun.elapsed() < STEP_TIMEOUT, "the answer is awaited, and counts");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(node.sent("default"), sink.accepted_count() as u32);
    node.stop().await;
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_gives_next_recipient_back_while_an_answer_is_awaited() {
    let (folder, sink) = (tempfile::tempdir().expect("a folder"), mailbox_that_answers_after("5ms"));
    let Node { context, node_runtime } = node_that_waits_for_an_answer(folder.path(), &sink, "answer:stall=8s").await;
    let count =
        |state| context.replica.read(|ledger| ledger.runs().map(|(_, _, run)| run.counts.get(state)).sum::<u32>());
    let begun = Instant::now();
    let only_one_is_claimed = async {
        while count(RecipientState::Claimed) != 1 {
            assert!(begun.elapsed() < Duration::from_secs(6), "{} are claimed", count(RecipientState::Claimed));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (stopped, ()) = tokio::join!(node_runtime.stop(STEP_TIMEOUT), only_one_is_claimed);
    assert!(stopped, "nothing is left open");
    assert_eq!((count(RecipientState::Claimed), count(RecipientState::InDoubt)), (0, 0));
    assert_eq!(count(RecipientState::Sent), sink.accepted_count() as u32);
    assert!(context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await, "the replica stops");
    sink.stop().await;
}

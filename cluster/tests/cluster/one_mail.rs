//! A cluster of one node, a mailbox and one schedule: one email. Also what a killed node leaves behind.

use std::backtrace::Backtrace;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use reveille_cluster::file_store::{GeneratedAudience, encode};
use reveille_cluster::process::clock::{Clock, SystemClock};
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::command::{AudienceSeal, Command, Relay};
use reveille_ledger::content::{AudienceChoice, NamedAudience, Seal};
use reveille_ledger::deferral::Deferral;
use reveille_ledger::ids::Time;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Ledger, RecipientState, RunState};
use reveille_sink::{Sink, SinkOptions};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use crate::support::one_node::{Node, count, mailbox, relay};
use crate::support::{STEP_TIMEOUT, schedule, schedule_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_of_one_recipient_sends_one_email() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = mailbox();
    let node = Node::start(folder.path(), 1).await;
    node.put(Command::RelayPut(relay(&sink).into())).await;
    assert!(matches!(node.put(schedule(1)).await, CommandOutcome::Schedule(_)));
    node.until("the run finishes", |context| count(context, RecipientState::Sent) == 1).await;
    assert_eq!(sink.accepted_count(), 1);
    let emails = sink.emails();
    let (_, mail) = emails.iter().next().expect("an email");
    assert_eq!(mail.recipient, "r0@example.net");
    assert!(mail.fence.as_ref().is_some_and(|fence| fence.starts_with("1.")), "{:?}", mail.fence);
    assert!(mail.message_id.as_ref().is_some_and(|id| id.contains("@example.org")), "{:?}", mail.message_id);
    let state = node.context.replica.read(|ledger| ledger.runs().next().map(|(_, _, run)| run.state.clone()));
    assert_eq!(state, Some(RunState::Finished));
    node.stop().await;
    sink.stop().await;
}

/// Starts a node and a relay with this fault. The schedule has one recipient with one attempt.
async fn with_faulty_relay(folder: &Path, fault: &str) -> (Node, Sink) {
    let options = SinkOptions { faults: fault.parse().expect("a fault"), ..SinkOptions::default() };
    let sink = Sink::start(options).expect("a mailbox");
    let node = Node::start(folder, 1).await;
    node.put(Command::RelayPut(relay(&sink).into())).await;
    let Command::ScheduleCreate(mut create) = schedule(1) else { panic!("a schedule") };
    create.policies.max_attempts = 1;
    assert!(matches!(node.put(Command::ScheduleCreate(create)).await, CommandOutcome::Schedule(_)));
    (node, sink)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dialogue_broken_at_rcpt_uses_up_attempt() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, sink) = with_faulty_relay(folder.path(), "rcpt:close").await;
    node.until("it is dead", |context| count(context, RecipientState::Dead) == 1).await;
    let letter = node.context.replica.read(|ledger| ledger.dead().iter().next().map(|(_, letter)| letter.clone()));
    let letter = letter.expect("a dead letter");
    assert_eq!((letter.code, letter.attempts), (0, 1), "{letter:?}");
    assert!(letter.text().starts_with("lost at Rcpt: "), "{letter:?}");
    assert_eq!(sink.accepted_count(), 0);
    node.stop().await;
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_trouble_at_rcpt_defers_recipient() {
    let folder = tempfile::tempdir().expect("a folder");
    let (node, sink) = with_faulty_relay(folder.path(), "rcpt:452=4.3.1 Insufficient system storage").await;
    let deferred = |context: &NodeContext| {
        let of_first = |ledger: &Ledger| ledger.chunks().iter().find_map(|(_, chunk)| chunk.deferrals.get(0));
        context.replica.read(of_first)
    };
    node.until("it is deferred", |context| deferred(context).is_some()).await;
    assert_eq!(deferred(&node.context), Some(Deferral { step: 1, code: 452 }));
    assert_eq!((count(&node.context, RecipientState::Pending), sink.accepted_count()), (1, 0));
    node.stop().await;
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_recipients_each_get_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = mailbox();
    let node = Node::start(folder.path(), 1).await;
    node.put(Command::RelayPut(relay(&sink).into())).await;
    node.put(schedule(500)).await;
    node.until("all are sent", |context| count(context, RecipientState::Sent) == 500).await;
    let emails = sink.emails();
    let mut arrived: Vec<&str> = emails.iter().map(|(_, mail)| mail.recipient.as_str()).collect();
    assert_eq!(arrived.len(), 500);
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), 500, "I1: no recipient got two");
    node.stop().await;
    sink.stop().await;
}

/// Opens a port that accepts connections and never sends a byte. Counts the connections that were given up.
async fn silence(given_up: Arc<AtomicU32>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let given_up = Arc::clone(&given_up);
            tokio::spawn(async move {
                let _ = stream.read_to_end(&mut Vec::new()).await;
                given_up.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    port
}

/// An email is held for at most the ten seconds in which it must begin, and no email is sent twice (P12).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn email_at_silent_relay_is_released_in_time_for_another_relay() {
    let folder = tempfile::tempdir().expect("a folder");
    let (sink, given_up) = (mailbox(), Arc::new(AtomicU32::new(0)));
    let node = Node::start(folder.path(), 1).await;
    node.put(Command::RelayPut(relay(&sink).into())).await;
    let port = silence(Arc::clone(&given_up)).await;
    node.put(Command::RelayPut(Relay { name: "silent".into(), port, ..relay(&sink) }.into())).await;
    node.put(schedule(8)).await;
    node.until("some are claimed", |context| count(context, RecipientState::Claimed) > 0).await;
    let begun = Instant::now();
    node.until("none is held", |context| count(context, RecipientState::Claimed) == 0).await;
    assert!(begun.elapsed() < Duration::from_secs(40), "P12: {:?}", begun.elapsed());
    let met = 8 - count(&node.context, RecipientState::Sent);
    assert!(met > 0, "no email met it");
    node.until("who met it has left it", |_| given_up.load(Ordering::SeqCst) >= met).await;
    node.until("all are sent", |context| count(context, RecipientState::Sent) == 8).await;
    let granted: u32 =
        node.context.replica.read(|ledger| ledger.closed_claims().map(|(_, row)| row.granted.len()).sum());
    assert_eq!(granted, 8 + met, "an email that met it once does not meet it again");
    assert_eq!(sink.accepted_count(), 8, "I1: no recipient got two");
    node.stop().await;
    sink.stop().await;
}

/// A part that blocks every read, as on a hanging disk: a pipe without a writer.
struct Hanging(PathBuf);

impl Hanging {
    fn instead_of(part: PathBuf) -> Hanging {
        std::fs::remove_file(&part).expect("it is there");
        mknodat(CWD, &part, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        Hanging(part)
    }
}

impl Drop for Hanging {
    /// Releases the blocked reads, because a runtime waits for its threads.
    fn drop(&mut self) {
        let writer = open(&self.0, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty());
        let _ = std::fs::remove_file(&self.0);
        drop(writer);
    }
}

/// Starts a node that is about to send to an audience whose only part blocks reads. Returns the node, and the part.
async fn node_whose_disk_hangs(folder: &Path, sink: &Sink) -> (Node, Hanging, Vec<u8>) {
    let node = Node::start(folder, 1).await;
    node.put(Command::RelayPut(relay(sink).into())).await;
    let bytes = encode(&GeneratedAudience { seed: 7, recipients: 8, columns: vec!["name".to_owned()] }.list());
    let part = node.context.files.put(&bytes).expect("it is written");
    let seal = Seal { name: "all".to_owned(), columns: vec!["name".to_owned()], rows: 8, parts: vec![part] };
    let named = NamedAudience { name: seal.name.clone(), seal: seal.blob().hash, rows: 8 };
    let seal = AudienceSeal { request: None, tenant: "default".to_owned(), seal };
    assert_eq!(node.put(Command::AudienceSeal(seal)).await, CommandOutcome::Done);
    let hanging = Hanging::instead_of(folder.join("data").join("parts").join(part.to_string()));
    assert!(matches!(node.put(schedule_to(AudienceChoice::Sealed(named))).await, CommandOutcome::Schedule(_)));
    node.until("all are claimed", |context| count(context, RecipientState::Claimed) == 8).await;
    (node, hanging, bytes)
}

/// No recipient is held longer than the time in which it must begin (P12, I13).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recipients_with_part_on_hanging_disk_are_released_in_time() {
    let (folder, sink) = (tempfile::tempdir().expect("a folder"), mailbox());
    let (node, hanging, bytes) = node_whose_disk_hangs(folder.path(), &sink).await;
    node.until("they went back", |context| count(context, RecipientState::Claimed) == 0).await;
    assert_eq!(
        (count(&node.context, RecipientState::Pending), sink.connections().len()),
        (8, 0),
        "and no relay was asked"
    );
    drop(hanging);
    // Otherwise the blocked read could fail after the part is there again, and the node would look for it at peers.
    node.until("the blocked read has failed", |context| !context.files.missing().is_empty()).await;
    node.context.files.put(&bytes).expect("the disk answers again");
    node.until("all are sent", |context| count(context, RecipientState::Sent) == 8).await;
    node.stop().await;
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_disk_hanging_in_a_part_stops() {
    let (folder, sink) = (tempfile::tempdir().expect("a folder"), mailbox());
    let (node, _hanging, _) = node_whose_disk_hangs(folder.path(), &sink).await;
    node.stop().await;
    sink.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_relay_gets_two_recipients_per_session_and_releases_none_unbegun() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = mailbox();
    // Each reply comes one second after the end of the email: fifteen seconds for all. What has waited for ten seconds
    // goes back.
    sink.set_faults("after-commit:stall=1s".parse().expect("a plan"));
    let node = Node::start(folder.path(), 1).await;
    node.put(Command::RelayPut(relay(&sink).into())).await;
    node.put(schedule(60)).await;
    let (mut most_at_first, mut most_later) = (0, 0);
    node.until("all are sent", |context| {
        let (sent, claimed) = (count(context, RecipientState::Sent), count(context, RecipientState::Claimed));
        let most = if sent < 20 { &mut most_at_first } else { &mut most_later };
        *most = claimed.max(*most);
        sent == 60
    })
    .await;
    assert_eq!(most_at_first, 16, "P12: four for each of four sessions");
    assert_eq!(most_later, 8, "P12: two, once it is known how slow it is");
    let granted: u32 =
        node.context.replica.read(|ledger| ledger.closed_claims().map(|(_, row)| row.granted.len()).sum());
    assert_eq!(granted, 60, "P12: each recipient was granted once");
    assert_eq!(sink.accepted_count(), 60, "I1: no recipient got two");
    node.stop().await;
    sink.stop().await;
}

/// A clock that panics once when a feeder reads it, and for no other reader.
#[derive(Default)]
struct Trap(AtomicBool);

impl Clock for Trap {
    fn wall(&self) -> Time {
        SystemClock.wall()
    }

    fn boot(&self) -> Duration {
        let of_feeder = || Backtrace::force_capture().to_string().contains("reveille_cluster::worker::feeder");
        assert!(!(self.0.load(Ordering::SeqCst) && of_feeder() && self.0.swap(false, Ordering::SeqCst)), "the trap");
        SystemClock.boot()
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_at_a_claim_stops_node_and_next_incarnation_sends_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = mailbox();
    let trap = Arc::new(Trap::default());
    let first = Node::start_with(folder.path(), 1, trap.clone()).await;
    first.put(Command::RelayPut(relay(&sink).into())).await;
    let mut failed = first.node_runtime.failed();
    assert_eq!(*failed.borrow_and_update(), None);
    trap.0.store(true, Ordering::SeqCst);
    first.put(schedule(3)).await;
    let why = tokio::time::timeout(STEP_TIMEOUT, failed.wait_for(Option::is_some)).await;
    assert!(
        why.expect("P1: the node stops")
            .is_ok_and(|why| why.as_deref().is_some_and(|why| why.contains("a worker task panicked")))
    );
    assert!(!first.node_runtime.stop(STEP_TIMEOUT).await, "the row is left open");
    assert!(first.context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await, "the replica stops");

    let second = Node::start(folder.path(), 2).await;
    second.until("all are sent", |context| count(context, RecipientState::Sent) == 3).await;
    assert_eq!(sink.accepted_count(), 3, "I1: no recipient got two");
    second.stop().await;
    sink.stop().await;
}

//! Crash suspects: recipients that were being prepared when their owner crashed (P12). A suspect is composed alone, and
//! is dead after a second crash in which nothing else was open. Crashes are simulated by writing the journal that a
//! killed process leaves. Each incarnation has its own runtime, which ends with it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::process::clock::SystemClock;
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::lifecycle::NodeRuntime;
use reveille_cluster::worker::journal::{ClaimedSlot, Journal, JournalOwner, JournalStep, Reading, Record, boot_id};
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{
    ClaimRequest, Command, Decide, Decider, Decision, NodeUp, PickedRecipients, Relay, Requeue,
};
use reveille_ledger::ids::{Fence, PageId};
use reveille_ledger::invariants::violations;
use reveille_ledger::reply::{ChangedRecipients, CommandOutcome};
use reveille_ledger::{Ledger, RecipientState};
use reveille_sink::Sink;
use tokio::runtime::{Builder, Runtime};

use crate::support::one_node::{count, mailbox, only_context, put, relay, start_node_runtime};
use crate::support::{STEP_TIMEOUT, schedule};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// One incarnation of the only node: its replica, without actors.
struct Life {
    context: Arc<NodeContext>,
    owner: JournalOwner,
    boot: String,
    journal_dir: std::path::PathBuf,
}

impl Life {
    async fn start(folder: &Path, incarnation: u64) -> Life {
        let context = only_context(folder, incarnation, Arc::new(SystemClock)).await;
        let owner = JournalOwner { cluster: context.cluster(), process: context.me };
        Life { context, owner, boot: boot_id().expect("a boot id"), journal_dir: folder.join("journal") }
    }

    async fn put(&self, command: Command) -> CommandOutcome {
        put(&self.context, command).await
    }

    async fn until<T>(&self, what: &str, probe: impl Fn(&NodeContext) -> Option<T>) -> T {
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            if let Some(found) = probe(&self.context) {
                return found;
            }
            assert!(Instant::now() < end, "not within a minute: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes this incarnation known to the ledger, and settles what the former one left, as recovery does.
    async fn enlist(&self) {
        let up = NodeUp {
            owner: self.owner.process,
            name: "n1".into(),
            level: 1,
            process_nonce: self.owner.process.incarnation.0,
        };
        assert_eq!(self.put(Command::NodeUp(up)).await, CommandOutcome::Done);
        let outcomes = self.context.replica.read(|ledger| {
            let former = ledger.claims().iter().filter(|(_, row)| row.owner < self.owner.process);
            let outcome = |(fence, row): (&Fence, &reveille_ledger::Claim)| {
                let owner = JournalOwner { process: row.owner, ..self.owner };
                Journal::read(&self.journal_dir, &owner, &self.boot).outcome(row.chunk, *fence, &row.claimed)
            };
            former.map(outcome).collect()
        });
        self.put(Command::Settle(outcomes)).await;
    }

    async fn page(&self) -> PageId {
        self.until("the run opens", |context| context.replica.read(|ledger| Some(ledger.open_pages().next()?.0))).await
    }

    /// Claims a slice for this incarnation, and writes into its journal which recipients were open.
    async fn claim_and_open(&self, page: PageId, slice: Bitmap, open: &[u16]) {
        let claim = ClaimRequest { chunk: page.chunk(0), slice: slice.clone(), owner: self.owner.process };
        let outcome = self.put(Command::Claim(vec![claim])).await;
        let CommandOutcome::Claimed(answers) = outcome else { panic!("{outcome:?}") };
        let fence = *answers[0].as_ref().expect("a row");
        let granted = self.context.replica.read(|ledger| ledger.claims().get(&fence).map(|row| row.granted.clone()));
        assert_eq!(granted, Some(slice));
        let record = |slot: &u16| Record {
            claimed_slot: ClaimedSlot { chunk: page.chunk(0), fence, slot: *slot },
            step: JournalStep::Composing,
        };
        let records: Vec<Record> = open.iter().map(record).collect();
        let mut journal = Journal::create(&self.journal_dir, &self.owner, &self.boot).expect("a journal");
        records.iter().for_each(|record| journal.append(record).expect("it is written"));
    }

    fn count(&self, state: RecipientState) -> u32 {
        count(&self.context, state)
    }

    async fn until_counted(&self, state: RecipientState, count: u32) {
        let what = format!("{count} {state:?}");
        self.until(&what, |_| (self.count(state) == count).then_some(())).await;
    }
}

/// Runs an incarnation that recovers from the former one, then does `work` and crashes.
fn crash(folder: &Path, incarnation: u64, work: impl AsyncFnOnce(&Life)) {
    die_before_recovery(folder, incarnation, async |life: &Life| {
        life.enlist().await;
        work(life).await;
    });
}

/// Runs an incarnation that does `work` and crashes, without recovery.
fn die_before_recovery(folder: &Path, incarnation: u64, work: impl AsyncFnOnce(&Life)) {
    let runtime = runtime();
    runtime.block_on(async {
        let life = Life::start(folder, incarnation).await;
        let _leadership = NodeRuntime::start_leadership_actor(&life.context);
        work(&life).await;
        assert!(life.context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await, "the replica stops");
    });
    runtime.shutdown_background();
}

/// Runs an incarnation with all actors until `work` is done, then stops it.
async fn live(folder: &Path, incarnation: u64, work: impl AsyncFnOnce(&Life)) {
    let life = Life::start(folder, incarnation).await;
    let leadership_handle = NodeRuntime::start_leadership_actor(&life.context);
    let node_runtime = start_node_runtime(&life.context, leadership_handle, &life.journal_dir).await;
    work(&life).await;
    assert_eq!(life.context.replica.read(violations), []);
    assert!(node_runtime.stop(STEP_TIMEOUT).await, "nothing is left open");
    assert!(life.context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await, "the replica stops");
}

/// A relay that takes 20 s to reply to RCPT.
fn tarpit() -> Sink {
    let sink = mailbox();
    sink.set_faults("rcpt:stall=20s".parse().expect("a plan"));
    sink
}

fn relay_of(sink: &Sink, pool: &str, max_sessions: u32) -> Command {
    Command::RelayPut(Relay { name: pool.into(), pool: pool.into(), max_sessions, ..relay(sink) }.into())
}

#[test]
fn crash_suspect_is_sent_in_a_claim_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime();
    let sink = runtime.block_on(async { mailbox() });
    crash(folder.path(), 1, async |life: &Life| {
        life.put(relay_of(&sink, "default", 4)).await;
        life.put(schedule(6)).await;
        let page = life.page().await;
        life.claim_and_open(page, Bitmap::range(0, 6), &[2, 4]).await;
    });
    runtime.block_on(live(folder.path(), 2, async |life: &Life| {
        life.until_counted(RecipientState::Sent, 6).await;
        assert_eq!(sink.accepted_count(), 6, "I1: no recipient got two");
        let granted = |slot: u16| {
            life.context.replica.read(|ledger| {
                let claims =
                    ledger.closed_claims().map(|(_, claim)| claim).filter(|claim| claim.owner == life.owner.process);
                claims.map(|claim| claim.granted.clone()).filter(|granted| granted.contains(slot)).collect::<Vec<_>>()
            })
        };
        assert_eq!((granted(2), granted(4)), (vec![Bitmap::range(2, 1)], vec![Bitmap::range(4, 1)]));
        assert!(granted(0).iter().all(|granted| !granted.contains(2) && !granted.contains(4)));
    }));
    runtime.block_on(sink.stop());
}

#[test]
fn assumed_recipients_of_dead_incarnation_are_settled_when_journal_returns() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime();
    let sink = runtime.block_on(async { mailbox() });
    crash(folder.path(), 1, async |life: &Life| {
        life.put(relay_of(&sink, "default", 4)).await;
        life.put(schedule(4)).await;
        let page = life.page().await;
        let claim = ClaimRequest { chunk: page.chunk(0), slice: Bitmap::range(0, 4), owner: life.owner.process };
        let outcome = life.put(Command::Claim(vec![claim])).await;
        let CommandOutcome::Claimed(answers) = outcome else { panic!("{outcome:?}") };
        let fence = *answers[0].as_ref().expect("a row");
        let claimed_slot = |slot| ClaimedSlot { chunk: page.chunk(0), fence, slot };
        let steps = [
            (0, JournalStep::Composing),
            (0, JournalStep::Handoff),
            (1, JournalStep::Composing),
            (1, JournalStep::Handoff),
            (1, JournalStep::Accepted),
        ];
        let records: Vec<Record> = steps.map(|(slot, step)| Record { claimed_slot: claimed_slot(slot), step }).into();
        let mut journal = Journal::create(&life.journal_dir, &life.owner, &life.boot).expect("a journal");
        records.iter().for_each(|record| journal.append(record).expect("it is written"));
    });
    // The node is away until the policy decides: the claim is revoked, assumed as sent, and so closed.
    die_before_recovery(folder.path(), 2, async |life: &Life| {
        let (fence, run) = life.context.replica.read(|ledger| {
            let (fence, row) = ledger.claims().iter().next().expect("a row");
            (*fence, row.chunk.page.0)
        });
        assert_eq!(life.put(Command::Revoke(vec![fence])).await, CommandOutcome::Changed(4));
        let (decision, by) = (Decision::Assume, Decider::Policy);
        let assume = Decide { run, recipients: vec![], decision, by, up_to: None, request: None };
        let moved = ChangedRecipients { recipients: 4, inside_gap: 0 };
        assert_eq!(life.put(Command::Decide(assume)).await, CommandOutcome::ChangedByRun(vec![Ok(moved)]));
        assert!(life.context.replica.read(|ledger| ledger.claims().is_empty()), "nothing of it is open");
    });
    runtime.block_on(live(folder.path(), 3, async |life: &Life| {
        // One was accepted, one is unknown, and two were never begun: these two are sent now.
        life.until_counted(RecipientState::Sent, 3).await;
        assert_eq!(life.count(RecipientState::Assumed), 1);
        assert_eq!(sink.accepted_count(), 2);
        let disproved = |ledger: &Ledger| ledger.runs().map(|(_, _, run)| run.assumptions_disproved).sum::<u32>();
        assert_eq!(life.context.replica.read(disproved), 2);
    }));
    runtime.block_on(sink.stop());
}

#[test]
fn recipient_alone_at_second_crash_is_dead_until_requeued() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime();
    let sink = runtime.block_on(async { mailbox() });
    crash(folder.path(), 1, async |life: &Life| {
        life.put(relay_of(&sink, "default", 4)).await;
        life.put(schedule(3)).await;
        let page = life.page().await;
        life.claim_and_open(page, Bitmap::range(0, 3), &[1]).await;
    });
    crash(folder.path(), 2, async |life: &Life| {
        let page = life.page().await;
        life.claim_and_open(page, Bitmap::range(1, 1), &[1]).await;
    });
    runtime.block_on(live(folder.path(), 3, async |life: &Life| {
        life.until_counted(RecipientState::Dead, 1).await;
        life.until_counted(RecipientState::Sent, 2).await;
        let letters = life.context.replica.read(|ledger| {
            let letters = ledger.dead().iter().map(|(dead, letter)| (dead.run, dead.number, letter.text().to_owned()));
            letters.collect::<Vec<_>>()
        });
        let [(run, 1, text)] = &letters[..] else { panic!("{letters:?}") };
        assert_eq!(text, "node crashed composing it");
        let letters = vec![PickedRecipients { run: *run, recipients: vec![] }].into();
        life.put(Command::Requeue(Requeue { letters, pool: None })).await;
        life.until_counted(RecipientState::Sent, 3).await;
        assert_eq!(sink.accepted_count(), 3);
    }));
    runtime.block_on(sink.stop());
}

impl Life {
    /// Returns the longest time from an email's command to its acceptance, for five emails of another tenant with its
    /// own relay.
    async fn latency_of_other_tenant(&self, sink: &Sink, name: &str) -> Duration {
        let mut latencies = Vec::new();
        for number in 0..5 {
            let Command::ScheduleCreate(mut create) = schedule(1) else { panic!("a schedule") };
            (create.tenant, create.pool) = ("other".into(), "healthy".into());
            create.name = format!("{name}-{number}");
            let (before, began) = (sink.accepted_count(), Instant::now());
            assert!(matches!(self.put(Command::ScheduleCreate(create)).await, CommandOutcome::Schedule(_)));
            self.until("it is accepted", |_| (sink.accepted_count() > before).then_some(())).await;
            latencies.push(began.elapsed());
        }
        latencies.into_iter().max().expect("five")
    }
}

/// Largest difference between two latencies of an email that the machine causes. An email takes about five synced
/// entries; a sync on a busy disk takes up to 200 ms. One suspect that occupies the node delays others by 20 s.
const NOISE: Duration = Duration::from_secs(1);

/// A suspect is composed alone, and then dials beside all others (P12). In an earlier version it occupied the node
/// until its gate.
#[test]
fn suspects_behind_tarpit_relay_do_not_delay_other_tenant() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime();
    let (slow, healthy) = runtime.block_on(async { (tarpit(), mailbox()) });
    crash(folder.path(), 1, async |life: &Life| {
        life.put(relay_of(&healthy, "healthy", 4)).await;
        life.put(schedule(32)).await;
        let page = life.page().await;
        let all: Vec<u16> = (0..32).collect();
        life.claim_and_open(page, Bitmap::range(0, 32), &all).await;
    });
    runtime.block_on(live(folder.path(), 2, async |life: &Life| {
        let idle = life.latency_of_other_tenant(&healthy, "idle").await;
        life.put(relay_of(&slow, "default", 32)).await;
        life.until("a suspect is at the tarpit", |_| (!slow.connections().is_empty()).then_some(())).await;
        let beside = life.latency_of_other_tenant(&healthy, "beside").await;
        assert!(beside <= 2 * idle + NOISE, "{beside:?} beside suspects, {idle:?} without");
        let open = slow.connections().len();
        assert!(open > 1, "{open} suspects at the tarpit: they wait for each other");
    }));
    runtime.block_on(slow.stop());
    runtime.block_on(healthy.stop());
}

/// Only composing can be killed by a recipient (P12). Recipients in dialogues of a killed node are no suspects.
#[test]
fn recipients_in_dialogue_are_not_open_in_journal() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime();
    let slow = runtime.block_on(async { tarpit() });
    runtime.block_on(live(folder.path(), 1, async |life: &Life| {
        life.put(relay_of(&slow, "default", 4)).await;
        life.put(schedule(8)).await;
        life.until("four are at the relay", |_| (slow.connections().len() == 4).then_some(())).await;
        let Reading::Whole(claims) = Journal::read(&life.journal_dir, &life.owner, &life.boot) else {
            panic!("a whole journal")
        };
        let steps = life.context.replica.read(|ledger| {
            let slots = ledger.claims().iter().flat_map(|(fence, row)| row.claimed.iter().map(|slot| (*fence, slot)));
            slots.filter_map(|(fence, slot)| claims.step(fence, slot).cloned()).collect::<Vec<_>>()
        });
        assert_eq!(steps, vec![JournalStep::Composed; 4], "what kill -9 would find");
    }));
    runtime.block_on(slow.stop());
}

//! Measures the cost of entries that change a whole run of 50 million recipients.
//!
//! `cargo run --release -p reveille-ledger --example huge`
//!
//! It pauses, cancels and expires the run, each in one entry: before anything is sent, when half is sent, and when a
//! million recipients are deferred. It also measures a dispatcher's read of all 763 chunks. The output is in
//! `docs/performance.md`. The argument `sent`, `tried` or `canaries` runs only that part.
#![allow(clippy::print_stdout, clippy::disallowed_types)]

#[path = "../tests/ledger/plain/mod.rs"]
mod plain;

use std::time::Instant;

use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::calendar::When;
use reveille_ledger::canary::Canary;
use reveille_ledger::command::{
    Actor, AudienceSeal, ClaimOutcome, ClaimRequest, Command, EnhancedCode, Entry, EpochStart, NodeUp, RefusalEffect,
    RelayRefusal, RunPause, ScheduleCreate, Trigger, VoterClock,
};
use reveille_ledger::content::{AudienceChoice, NamedAudience, Seal};
use reveille_ledger::ids::{ClaimOwner, Hash, Incarnation, NodeId, PageId, RunId, Time};
use reveille_ledger::limits::limits;
use reveille_ledger::policy::{DAY_MS, Policies};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{LEVEL, Ledger, ScheduleTiming, unclaimable_slots};

const OWNER: ClaimOwner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
const SLICE: u32 = limits(LEVEL).slice_recipients_max;
const NOW: Time = Time(1_800_000_000_000);
const RECIPIENTS: u32 = 50_000_000;
/// Number of recipients that were deferred once.
const TRIED: u32 = 1_000_000;
const TRIES: u32 = 5;

#[derive(Clone)]
struct TestLedger {
    ledger: Ledger,
    now: Time,
}

impl TestLedger {
    fn new() -> TestLedger {
        let mut test = TestLedger { ledger: Ledger::new(), now: NOW };
        test.lead();
        test.put(Command::NodeUp(NodeUp { owner: OWNER, name: "one".into(), level: LEVEL, process_nonce: 1 }));
        test
    }

    fn lead(&mut self) {
        let readings = vec![VoterClock { node: OWNER.node, wall: self.now }];
        self.put(Command::EpochStart(EpochStart::new(OWNER, 1, readings)));
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        self.ledger
            .apply(head.applied + 1, &Entry { epoch, now: self.now, actor: Actor::System, command })
            .reply
            .outcome
    }

    /// Opens a run of all recipients by a trigger.
    fn open(&mut self, canary: Option<Canary>) -> RunId {
        let parts = (0..RECIPIENTS.div_ceil(CHUNK)).map(|part| Hash::of(&part.to_be_bytes())).collect();
        let seal = Seal { name: "all".into(), columns: vec![], rows: RECIPIENTS, parts };
        let named = NamedAudience { name: "all".into(), seal: seal.blob().hash, rows: RECIPIENTS };
        self.put(Command::AudienceSeal(AudienceSeal { request: None, tenant: "default".into(), seal }));
        let policies = Policies { canary, ..Policies::default() };
        let timing = ScheduleTiming::new(When::At { instant_ms: NOW.0 + DAY_MS }, "UTC");
        let create = ScheduleCreate { timing, policies, ..plain::schedule("all", AudienceChoice::Sealed(named), NOW) };
        let CommandOutcome::Schedule(schedule) = self.put(Command::ScheduleCreate(Box::new(create))) else {
            panic!("created")
        };
        match self.put(Command::Trigger(Trigger::new(schedule, "once"))) {
            CommandOutcome::Run { run, .. } => run,
            other => panic!("{other:?}"),
        }
    }

    /// Claims and sends what is claimable in these chunks.
    fn send(&mut self, run: RunId, chunks: std::ops::Range<u32>) {
        for chunk in chunks {
            let claimable = claimable(&self.ledger, run, chunk);
            let slices: Vec<Bitmap> = (0..CHUNK)
                .step_by(SLICE as usize)
                .map(|first| Bitmap::range(first, SLICE).and(&claimable))
                .filter(|slice| !slice.is_empty())
                .collect();
            let claim =
                |slice: &Bitmap| ClaimRequest { chunk: PageId(run).chunk(chunk), slice: slice.clone(), owner: OWNER };
            let CommandOutcome::Claimed(fences) = self.put(Command::Claim(slices.iter().map(claim).collect())) else {
                panic!("no claims")
            };
            let settled = fences.into_iter().zip(slices).map(|(fence, accepted)| ClaimOutcome {
                accepted,
                ..ClaimOutcome::empty(PageId(run).chunk(chunk), fence.expect("granted"))
            });
            self.put(Command::Settle(settled.collect()));
        }
    }

    /// Claims the first recipients, and a relay defers all of them.
    fn defer(&mut self, run: RunId, recipients: u32) {
        for first in (0..recipients).step_by(SLICE as usize) {
            let (chunk, slots) = (first / CHUNK, Bitmap::range(first % CHUNK, SLICE));
            let claim = ClaimRequest { chunk: PageId(run).chunk(chunk), slice: slots.clone(), owner: OWNER };
            let CommandOutcome::Claimed(fences) = self.put(Command::Claim(vec![claim])) else { panic!("no claim") };
            let refused = slots.iter().map(|slot| RelayRefusal {
                slot,
                code: 450,
                enhanced: EnhancedCode::parse("4.2.1"),
                effect: RefusalEffect::BackOff,
                text: "busy".into(),
            });
            let fence = fences.into_iter().next().and_then(Result::ok).expect("granted");
            let outcome =
                ClaimOutcome { refused: refused.collect(), ..ClaimOutcome::empty(PageId(run).chunk(chunk), fence) };
            self.put(Command::Settle(vec![outcome]));
            // So they wait in as many retry buckets as a slow relay would cause.
            self.now = self.now.plus_ms(1_000);
        }
    }

    /// Prints the longest of several tries, each on a copy.
    fn timed(&self, what: &str, prepare: impl Fn(&mut TestLedger), command: &Command) {
        let mut worst = 0_f64;
        let mut outcome = CommandOutcome::Done;
        for _ in 0..TRIES {
            let mut test = self.clone();
            prepare(&mut test);
            let begun = Instant::now();
            outcome = test.put(command.clone());
            worst = worst.max(begun.elapsed().as_secs_f64());
        }
        println!("  {what}: {:.2} ms, {outcome:?}", worst * 1_000.0);
    }

    fn as_a_whole(&self, run: RunId) {
        let pause = Command::RunPause(RunPause { run, reason: "look".into() });
        self.timed("pause", |_| {}, &pause);
        self.timed("cancel", |_| {}, &Command::RunCancel(run));
        self.timed("expiry", late, &Command::Expire(vec![run]));
    }

    /// Measures how long it takes to find what is claimable in every chunk.
    fn look(&self, run: RunId) {
        let mut worst = 0_f64;
        let mut found = 0;
        for _ in 0..TRIES {
            let begun = Instant::now();
            found = (0..RECIPIENTS.div_ceil(CHUNK)).map(|chunk| claimable(&self.ledger, run, chunk).len()).sum();
            worst = worst.max(begun.elapsed().as_secs_f64());
        }
        println!("  a look at all chunks: {:.2} ms, {found} are claimable", worst * 1_000.0);
    }
}

/// Advances time beyond every deadline.
fn late(test: &mut TestLedger) {
    test.now = NOW.plus_ms(30 * DAY_MS);
    test.lead();
}

/// Returns what can be claimed of a chunk now.
fn claimable(ledger: &Ledger, run: RunId, number: u32) -> Bitmap {
    let page = ledger.pages().get(&PageId(run)).expect("the run's page");
    let chunk = ledger.chunks().get(&PageId(run).chunk(number)).expect("a chunk of it");
    let mut slots = chunk.claimable(NOW);
    slots.remove(&unclaimable_slots(page, number, NOW));
    chunk.by_pool(&slots).into_iter().map(|(_, slots)| slots).next().unwrap_or_default()
}

fn sent() {
    let chunks = RECIPIENTS.div_ceil(CHUNK);
    println!("{RECIPIENTS} recipients, nothing sent");
    let mut test = TestLedger::new();
    let run = test.open(None);
    test.as_a_whole(run);
    test.look(run);
    println!("the first half sent");
    test.send(run, 0..chunks / 2);
    test.as_a_whole(run);
    test.look(run);
    println!("all but the last chunk sent");
    test.send(run, chunks / 2..chunks - 1);
    test.as_a_whole(run);
    test.look(run);
}

fn tried() {
    println!("{TRIED} of {RECIPIENTS} were tried once, and wait");
    let mut test = TestLedger::new();
    let run = test.open(None);
    test.defer(run, TRIED);
    let waves = test.ledger.chunks().get(&PageId(run).chunk(0)).map_or(0, |chunk| chunk.waves.len());
    println!("  the first chunk waits for {waves} instants");
    test.as_a_whole(run);
    late(&mut test);
    test.put(Command::Expire(vec![run]));
    let letters = test.ledger.dead().len() as u64;
    println!("  {letters} letters");
}

fn canaries() {
    let chunks = RECIPIENTS.div_ceil(CHUNK);
    for share in [1, 100, 1_000, 5_000] {
        println!("a canary of {share} in 10,000 is out");
        let mut test = TestLedger::new();
        let run = test.open(Some(Canary { share, limit: 0 }));
        test.look(run);
        test.as_a_whole(run);
        println!("half of it is sent");
        test.send(run, 0..chunks / 2);
        test.look(run);
        test.as_a_whole(run);
    }
}

fn main() {
    let only = std::env::args().nth(1);
    let parts: [(&str, fn()); 3] = [("sent", sent), ("tried", tried), ("canaries", canaries)];
    for (name, part) in parts {
        if only.as_ref().is_none_or(|only| only == name) {
            part();
        }
    }
}

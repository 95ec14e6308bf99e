//! Storage of a recipient of a large run after its end (P4): at most one byte of rows, with their keys, on disk and in
//! snapshots. Memory of a small schedule: what it has in common with others is there once.

use std::sync::Arc;

use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::calendar::{Pattern, When};
use reveille_ledger::command::{
    Actor, AudienceSeal, ClaimOutcome, ClaimRequest, Command, EnhancedCode, Entry, EpochStart, NextInstant, NodeUp,
    RefusalEffect, RelayRefusal, RunPause, ScheduleCreate, Trigger, VoterClock,
};
use reveille_ledger::content::{Audience, AudienceChoice, NamedAudience, Recipient, Seal};
use reveille_ledger::ids::{
    ChunkKey, ClaimOwner, Fence, Hash, Incarnation, NodeId, OccurrenceName, PageId, RunId, ScheduleId, Time,
};
use reveille_ledger::invariants::violations;
use reveille_ledger::limits::limits;
use reveille_ledger::planning::catch_up::plan_fire;
use reveille_ledger::planning::timing::Zone;
use reveille_ledger::policy::DAY_MS;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{LEVEL, Ledger, RecipientState, RunState, Schedule, ScheduleTiming};

use crate::plain;

/// Tag of the table of events.
const EVENTS: u8 = 24;
const START: i64 = 1_800_000_000_000;
/// Largest size of a row, in bytes.
const ROW_BYTES_MAX: usize = 1024 * 1024;
/// Log entries before the run, so that its indexes are those of a cluster that has run for a while.
const BEFORE: u64 = 3_000_000;

/// Returns one of three nodes with realistic random ids.
fn owner(number: u32) -> ClaimOwner {
    let nodes = [0x9e37_79b9_7f4a_7c15, 0xd192_ed03_9acb_a2f1, 0xa54f_f53a_5f1d_36f1];
    ClaimOwner { node: NodeId(nodes[number as usize % 3]), incarnation: Incarnation(7) }
}

struct TestLedger {
    ledger: Ledger,
    now: i64,
}

impl TestLedger {
    /// Returns a cluster that has run for a while and has sealed an audience.
    fn new(recipients: u32) -> TestLedger {
        let mut test = TestLedger { ledger: Ledger::new(), now: START };
        let readings = vec![VoterClock { node: owner(0).node, wall: Time(START) }];
        test.put(Command::EpochStart(EpochStart::new(owner(0), 1, readings)));
        for number in 0..3 {
            let name = format!("node {number}");
            test.put(Command::NodeUp(NodeUp { owner: owner(number), name, level: LEVEL, process_nonce: 1 }));
        }
        (test.ledger.head().applied + 1..BEFORE).for_each(|index| test.ledger.skip(index));
        let parts = (0..recipients.div_ceil(CHUNK)).map(|part| Hash::of(&part.to_be_bytes())).collect();
        let seal = Seal { name: "all".into(), columns: vec![], rows: recipients, parts };
        let named = NamedAudience { name: "all".into(), seal: seal.blob().hash, rows: recipients };
        let sealed = AudienceSeal { request: None, tenant: "default".into(), seal };
        assert_eq!(test.put(Command::AudienceSeal(sealed)), CommandOutcome::Done);
        let created = test.put(Command::ScheduleCreate(Box::new(schedule(AudienceChoice::Sealed(named)))));
        assert!(matches!(created, CommandOutcome::Schedule(_)), "{created:?}");
        test
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        self.ledger
            .apply(head.applied + 1, &Entry { epoch, now: Time(self.now), actor: Actor::System, command })
            .reply
            .outcome
    }

    fn open(&mut self) -> RunId {
        let (schedule, _) = self.ledger.schedules().iter().next().expect("the schedule");
        let schedule: ScheduleId = *schedule;
        match self.put(Command::Trigger(Trigger::new(schedule, "once"))) {
            CommandOutcome::Run { run, .. } => run,
            other => panic!("{other:?}"),
        }
    }

    /// Sends all of a run in slices of this size, two at a time on each node. Each claim is settled in five portions,
    /// and one in `refused` recipients is refused.
    fn send(&mut self, page: PageId, recipients: u32, slice: u32, refused: Option<u32>) {
        for chunk in 0..recipients.div_ceil(CHUNK) {
            let slots = CHUNK.min(recipients - chunk * CHUNK);
            for first in (0..slots).step_by(6 * slice as usize) {
                let slices: Vec<Bitmap> = (0..6)
                    .map(|number| first + number * slice)
                    .filter(|first| *first < slots)
                    .map(|first| Bitmap::range(first, slice.min(slots - first)))
                    .collect();
                let claim = |(number, slice): (usize, &Bitmap)| ClaimRequest {
                    chunk: page.chunk(chunk),
                    slice: slice.clone(),
                    owner: owner(number as u32),
                };
                let CommandOutcome::Claimed(fences) =
                    self.put(Command::Claim(slices.iter().enumerate().map(claim).collect()))
                else {
                    panic!("no claim")
                };
                let rows: Vec<(Fence, Bitmap)> =
                    fences.into_iter().map(|fence| fence.expect("granted")).zip(slices).collect();
                for portion in 0..5 {
                    self.now += 20;
                    // A portion of each claim, in another order than they were granted.
                    for (fence, slice) in rows.iter().rev() {
                        self.put(Command::Settle(vec![settled((page.chunk(chunk), *fence), slice, portion, refused)]));
                    }
                }
            }
        }
    }
}

fn settled((chunk, fence): (ChunkKey, Fence), slice: &Bitmap, portion: u16, refused: Option<u32>) -> ClaimOutcome {
    let mine = slice.iter().filter(|slot| slot % 5 == portion);
    let is_refused = |slot: &u16| refused.is_some_and(|every| u32::from(*slot) % every == 0);
    let (no, yes): (Vec<u16>, Vec<u16>) = mine.partition(is_refused);
    let refuse = |slot: u16| RelayRefusal {
        slot,
        code: 550,
        enhanced: EnhancedCode::parse("5.1.1"),
        effect: RefusalEffect::Dead,
        text: "no such user".into(),
    };
    ClaimOutcome {
        accepted: yes.into_iter().collect(),
        refused: no.into_iter().map(refuse).collect(),
        ..ClaimOutcome::empty(chunk, fence)
    }
}

fn schedule(audience: AudienceChoice) -> ScheduleCreate {
    let timing = ScheduleTiming::new(When::At { instant_ms: START + DAY_MS }, "UTC");
    ScheduleCreate { timing, ..plain::schedule("all", audience, Time(START)) }
}

/// Returns the bytes of rows for each recipient of a finished run.
fn cost(recipients: u32, slice: u32, refused: Option<u32>) -> f64 {
    let mut test = TestLedger::new(recipients);
    let before = row_bytes(&test.ledger);
    let run = test.open();
    test.send(PageId(run), recipients, slice, refused);
    let counts = test.ledger.run(run).expect("the run").counts;
    let dead = counts.get(RecipientState::Dead);
    assert_eq!(counts.get(RecipientState::Sent) + dead, recipients);
    assert_eq!(dead > 0, refused.is_some());
    assert!(test.ledger.claims().is_empty(), "no row is open");
    assert_eq!(violations(&test.ledger), []);
    let read = Ledger::from_rows(test.ledger.all_rows()).expect("the rows read back");
    assert_eq!(read.state_hash(), test.ledger.state_hash());

    let bytes = (row_bytes(&test.ledger) - before) as f64 / f64::from(recipients);
    println!("{recipients} recipients in claims of {slice}, {dead} dead: {bytes:.3} B");
    bytes
}

/// Size of all rows but events, which leave the state on the way.
fn row_bytes(ledger: &Ledger) -> usize {
    let rows = ledger.all_rows().filter(|(key, _)| key.first() != Some(&EVENTS));
    rows.map(|(key, value)| key.len() + value.len()).sum()
}

/// Each settle names about fifty scattered recipients of one claim; a real one names more, and more of them in a row.
#[test]
fn events_of_campaign_take_few_bytes_and_hardly_any_state() {
    const RECIPIENTS: u32 = 1_000_000;
    let mut test = TestLedger::new(RECIPIENTS);
    let run = test.open();
    test.send(PageId(run), RECIPIENTS, 256, Some(100));
    let archived: u64 =
        test.ledger.event_parts().flat_map(|(_, part)| part.all_blocks()).map(|block| block.bytes).sum();
    let (rows, parts) = (test.ledger.events().len(), test.ledger.event_parts().count());
    let kept: usize = test.ledger.events().iter().map(|(_, row)| row.packed_len()).sum();
    let each = (archived + kept as u64) as f64 / f64::from(RECIPIENTS);
    println!("{each:.2} B of events a recipient, {parts} parts; {rows} rows of {kept} B stay");
    assert!(each <= 4.0, "{each}");
    assert!(rows < limits(LEVEL).event_part_rows && kept < limits(LEVEL).event_part_bytes, "{rows} rows, {kept} B");
    let largest = test.ledger.event_parts().flat_map(|(_, part)| part.all_blocks()).map(|block| block.bytes).max();
    assert!(largest.is_some_and(|bytes| bytes <= 2 * limits(LEVEL).event_part_bytes as u64), "{largest:?}");
}

#[test]
fn recipient_of_finished_run_costs_less_than_a_byte() {
    for (recipients, slice) in [(1_000_000, 256), (1_000_000, 60), (1_000, 256)] {
        let bytes = cost(recipients, slice, None);
        // A page, a chunk and a run have about 2 KB, whatever their size.
        let fixed = 3_000.0 / f64::from(recipients);
        assert!(bytes <= 1.0 + fixed, "claims of {slice}: {bytes}");
    }
}

/// The largest audience is cancelled or reaches its deadline while the pending recipients are scattered over all 1,024
/// chunks. The run events together exceed one mebibyte, and no row does.
#[test]
fn run_event_over_largest_audience_makes_no_row_above_one_mebibyte() {
    const CHUNKS: u32 = 1_024;
    let slice: Bitmap = (0..=u16::MAX).step_by(257).collect();
    for is_cancelled in [true, false] {
        let mut test = TestLedger::new(CHUNKS * CHUNK);
        let run = test.open();
        let page = PageId(run);
        for first in (0..CHUNKS).step_by(64) {
            let claim = |chunk| ClaimRequest { chunk: page.chunk(chunk), slice: slice.clone(), owner: owner(0) };
            let claimed = test.put(Command::Claim((first..first + 64).map(claim).collect()));
            assert!(
                matches!(&claimed, CommandOutcome::Claimed(fences) if fences.iter().all(Result::is_ok)),
                "{claimed:?}"
            );
        }
        let finish_by = test.ledger.run(run).expect("the run").finish_by.0;
        let event = match is_cancelled {
            true => Command::RunCancel(run),
            false => {
                while test.now < finish_by {
                    test.now = (test.now + 60_000).min(finish_by);
                    test.put(Command::Tick);
                }
                Command::Expire(vec![run])
            }
        };
        let moved = test.put(event);
        assert!(matches!(moved, CommandOutcome::Changed(moved) if moved > 66_000_000), "{moved:?}");
        assert_eq!(test.ledger.run_events().iter().count(), CHUNKS as usize);
        let largest = test.ledger.all_rows().map(|(_, value)| value.len()).max();
        assert!(largest.is_some_and(|bytes| bytes <= ROW_BYTES_MAX), "{largest:?}");
    }
}

/// 512 small runs of one page, with the longest names and reasons that the API allows, in four-byte characters.
#[test]
fn page_whose_runs_are_all_paused_stays_below_one_mebibyte() {
    let mut test = TestLedger::new(1);
    let due = Time(START + 60_000);
    let when = When::At { instant_ms: due.0 };
    let next = Some(NextInstant { occurrence: OccurrenceName::Civil { civil_ms: due.0, fold: 0 }, due, jitter_ms: 0 });
    let recipient = Recipient { address: "a@x.org".into(), key: "a@x.org".into(), values: vec![] };
    let audience = Audience { columns: vec![], recipients: vec![recipient] };
    let mut schedules = Vec::new();
    for number in 0..limits(LEVEL).page_runs_max {
        let name = format!("{number:04}{}", "\u{1d11e}".repeat(124));
        let create = plain::schedule(&name, audience.clone(), Time(START));
        let created = test.put(Command::ScheduleCreate(Box::new(ScheduleCreate {
            timing: ScheduleTiming::new(when.clone(), "UTC"),
            next: next.clone(),
            ..create
        })));
        let CommandOutcome::Schedule(id) = created else { panic!("{created:?}") };
        schedules.push(id);
    }
    test.now = due.0;
    let (pattern, zone) = (Pattern::compile(&when).expect("a pattern"), jiff::tz::TimeZone::UTC);
    let zone = Zone { rules: zone, tzdb: "test".into() };
    let fire = |id: &ScheduleId| plan_fire(&test.ledger, *id, &pattern, &zone, due).expect("it is due");
    let fires = schedules.iter().map(fire).collect();
    assert!(
        matches!(test.put(Command::Fire(fires)), CommandOutcome::Fired(answers) if answers.iter().all(Result::is_ok))
    );
    assert_eq!(test.ledger.pages().len(), 1, "they share a page");

    let runs: Vec<RunId> = test.ledger.runs().map(|(id, _, _)| id).collect();
    let words = "\u{1d11e}".repeat(500);
    for run in &runs {
        assert_eq!(test.put(Command::RunPause(RunPause { run: *run, reason: words.clone() })), CommandOutcome::Done);
    }
    assert_eq!(violations(&test.ledger), []);
    let reason = |run: &RunId| match &test.ledger.run(*run).expect("it is there").state {
        RunState::Paused { reason } => reason.to_string(),
        state => panic!("{state:?}"),
    };
    assert_eq!((reason(&runs[0]), reason(&runs[511])), (words, String::new()), "the first ones fit");
    let page = test.ledger.all_rows().map(|(_, value)| value.len()).max().expect("rows");
    assert!((ROW_BYTES_MAX / 2..=ROW_BYTES_MAX).contains(&page), "{page}");
}

#[test]
fn schedules_share_timings_and_settings_also_after_a_restore() {
    let mut test = TestLedger::new(1);
    for name in ["one", "other"] {
        let recipient = Recipient { address: format!("{name}@x.org"), key: format!("{name}@x.org"), values: vec![] };
        let audience = Audience { columns: vec![], recipients: vec![recipient] };
        let create = plain::schedule(name, audience, Time(START));
        test.put(Command::ScheduleCreate(Box::new(create)));
    }
    let (schedule, _) = test.ledger.schedule_named("default", "one").expect("a schedule");
    test.put(Command::Trigger(Trigger::new(schedule, "now")));
    let restored = Ledger::from_rows(test.ledger.all_rows()).expect("rows");
    assert_eq!(restored.state_hash(), test.ledger.state_hash());
    for ledger in [&test.ledger, &restored] {
        let [one, other] = ["one", "other"].map(|name| ledger.schedule_named("default", name).expect("a schedule").1);
        assert!(Arc::ptr_eq(&one.timing, &other.timing) && Arc::ptr_eq(&one.settings, &other.settings));
        assert!(Arc::ptr_eq(&one.plan.tzdb, &other.plan.tzdb));
    }
    let (_, schedule) = test.ledger.schedule_named("default", "one").expect("a schedule");
    let (_, page, run) = test.ledger.runs().next().expect("a run");
    assert!(Arc::ptr_eq(&run.policies, &schedule.settings.policies));
    assert!(Arc::ptr_eq(&page.tenant, &schedule.settings.tenant));
    // A million schedules are to take 1.0 GB at most, and this is less than a third of it.
    assert!(size_of::<Schedule>() <= 304, "{} B", size_of::<Schedule>());
}

#[test]
fn table_sizes_are_those_of_the_rows() {
    let test = TestLedger::new(1);
    let sizes = test.ledger.freeze().table_sizes();
    assert_eq!(sizes.values().map(|size| size.rows).sum::<u64>(), test.ledger.row_count() as u64);
    assert_eq!((sizes["nodes"].rows, sizes["schedules"].rows, sizes["pages"].rows), (3, 1, 0));
    let bytes: usize = test.ledger.all_rows().map(|(key, value)| key.len() + value.len()).sum();
    assert!(sizes.values().map(|size| size.bytes).sum::<u64>() >= bytes as u64);
}

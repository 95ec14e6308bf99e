//! Events: their order, their rows and parts, and what is dropped. The interleavings compare them with the state.

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::causes::PauseReason;
use reveille_ledger::command::{
    Actor, ClaimOutcome, ClaimRequest, Command, Entry, EpochStart, NodeUp, OptOut, Quarantine, Quarantined, RunPause,
    RunResume, Trigger, VoterClock,
};
use reveille_ledger::content::{Audience, Recipient};
use reveille_ledger::events::{EventKind, EventSubject};
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId, PageId, RunId, Time};
use reveille_ledger::invariants::violations;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{LEVEL, Ledger, RecipientState};

use crate::plain;

const OWNER: ClaimOwner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };

struct TestLedger {
    ledger: Ledger,
    now: Time,
}

impl TestLedger {
    /// A cluster of one node with a schedule of `recipients`.
    fn new(level: u32, recipients: u32) -> TestLedger {
        let mut test = TestLedger { ledger: Ledger::new(), now: Time(1_000_000) };
        test.lead();
        test.put(Command::NodeUp(NodeUp { owner: OWNER, name: "one".into(), level, process_nonce: 1 }));
        let recipient = |number| Recipient {
            address: format!("u{number}@example.org"),
            key: format!("u{number}@example.org"),
            values: vec![],
        };
        let audience = Audience { columns: vec![], recipients: (0..recipients).map(recipient).collect() };
        let create = plain::schedule("news", audience, test.now);
        assert!(matches!(test.put(Command::ScheduleCreate(Box::new(create))), CommandOutcome::Schedule(_)));
        test
    }

    fn lead(&mut self) {
        let readings = vec![VoterClock { node: OWNER.node, wall: self.now }];
        self.put(Command::EpochStart(EpochStart::new(OWNER, 1, readings)));
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        let entry = Entry { epoch, now: self.now, actor: Actor::System, command };
        self.ledger.apply(head.applied + 1, &entry).reply.outcome
    }

    fn trigger(&mut self, request: &str) -> RunId {
        let (schedule, _) = self.ledger.schedule_named("default", "news").expect("the schedule");
        match self.put(Command::Trigger(Trigger::new(schedule, request))) {
            CommandOutcome::Run { run, .. } => run,
            other => panic!("{other:?}"),
        }
    }

    fn claim(&mut self, run: RunId, slots: Bitmap) -> ClaimOutcome {
        let chunk = PageId(run).chunk(0);
        match self.put(Command::Claim(vec![ClaimRequest { chunk, slice: slots, owner: OWNER }])) {
            CommandOutcome::Claimed(fences) => ClaimOutcome::empty(chunk, *fences[0].as_ref().expect("granted")),
            other => panic!("{other:?}"),
        }
    }

    fn opt_out(&mut self, keys: &[&str]) {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        self.put(Command::OptOut(OptOut { tenant: "acme".into(), keys }));
    }

    /// Returns the events of the state in words.
    fn event_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((index, place), row) in self.ledger.events().iter() {
            let mut place = *place;
            for group in row.groups().expect("events") {
                for event in group.events {
                    let about = match &group.subject {
                        EventSubject::Run { run, schedule, occurrence, .. } => {
                            format!("{run} of {schedule}, {occurrence}")
                        }
                        EventSubject::Schedule(_, name) => name.to_string(),
                        EventSubject::OptOuts => "opt-outs".to_owned(),
                    };
                    lines.push(format!("{index}.{place} {} {about}: {}", group.tenant, words(&event)));
                    place += 1;
                }
            }
        }
        lines
    }
}

fn words(event: &EventKind) -> String {
    match event {
        EventKind::RunOpened(count) => format!("opened for {count}"),
        EventKind::RunFinished(counts) => format!("finished, {} sent", counts.get(RecipientState::Sent)),
        EventKind::RunPaused(reason) => format!("paused: {reason}"),
        EventKind::Recipients { state, chunk, numbers } => format!("{state:?} {chunk}/{numbers:?}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn events_of_entries_have_places_and_settled_claims_are_joined() {
    let mut test = TestLedger::new(LEVEL, 8);
    let run = test.trigger("a");
    test.put(Command::RunPause(RunPause { run, reason: "wrong price".into() }));
    test.put(Command::RunResume(RunResume { run, without_canary: false, expected: None }));
    let (mut first, mut second) = (test.claim(run, Bitmap::range(0, 4)), test.claim(run, Bitmap::range(4, 4)));
    first.accepted = [0, 1, 2].into_iter().collect();
    first.in_doubt = [3].into_iter().collect();
    second.accepted = [4, 5].into_iter().collect();
    test.put(Command::Settle(vec![first.clone(), second.clone()]));
    test.put(Command::Settle(vec![first, second.clone()]));
    second.accepted = [6, 7].into_iter().collect();
    test.put(Command::Settle(vec![second]));
    test.opt_out(&["a@x", "b@x"]);
    test.opt_out(&["b@x"]);
    let (schedule, _) = test.ledger.schedule_named("default", "news").expect("the schedule");
    test.put(Command::Quarantine(Quarantine { item: Quarantined::Schedule(schedule), cause: "twice".into() }));
    let at = |back: u64| test.ledger.head().applied - back;
    let of = format!("default {run} of news, trigger a");
    assert_eq!(
        test.event_lines(),
        [
            format!("{}.0 {of}: opened for 8", run.index),
            format!("{}.0 {of}: paused: wrong price", run.index + 1),
            format!("{}.0 {of}: RunResumed", run.index + 2),
            format!("{}.0 {of}: Sent 0/{{0-2,4-5}}", run.index + 5),
            format!("{}.1 {of}: InDoubt 0/{{3}}", run.index + 5),
            format!("{}.0 {of}: Sent 0/{{6-7}}", at(3)),
            format!("{}.1 {of}: finished, 7 sent", at(3)),
            format!("{}.0 acme opt-outs: OptedOut(2)", at(2)),
            format!("{}.0 default news: ScheduleBlocked(Quarantined(\"twice\"))", at(0)),
        ],
        "and none of entries that changed nothing"
    );
    assert_eq!(violations(&test.ledger), []);
    let restored = Ledger::from_rows(test.ledger.all_rows()).expect("rows");
    assert_eq!(restored.state_hash(), test.ledger.state_hash());
}

#[test]
fn paused_event_keeps_the_reason_that_the_page_has_no_space_for() {
    let mut test = TestLedger::new(LEVEL, 1);
    let run = test.trigger("a");
    let reason = "x".repeat(2_000);
    test.put(Command::RunPause(RunPause { run, reason: reason.clone() }));
    let last = test.ledger.events().iter().next_back().expect("a row").1.groups().expect("events");
    assert_eq!(last[0].events, [EventKind::RunPaused(PauseReason::Operator(reason))]);
}

#[test]
fn full_table_becomes_a_part_and_old_parts_are_dropped() {
    use reveille_ledger::limits::limits;
    use reveille_ledger::planning::archive::{ArchiveCursor, next_batch};
    use reveille_ledger::policy::DAY_MS;

    let mut test = TestLedger::new(LEVEL, 1);
    let rows = limits(LEVEL).event_part_rows;
    let opt_outs = |test: &mut TestLedger, from: usize, count: usize| {
        (from..from + count).for_each(|number| test.opt_out(&[&format!("u{number}@x")]));
    };
    opt_outs(&mut test, 0, rows - 1);
    assert_eq!((test.ledger.events().len(), test.ledger.event_parts().count()), (rows - 1, 0));
    opt_outs(&mut test, rows, rows + 7);
    assert_eq!((test.ledger.events().len(), test.ledger.event_parts().count()), (6, 2));
    assert_eq!(violations(&test.ledger), []);
    println!("{} B of events a part", test.ledger.unsaved_bytes() / 2);

    let archive = |test: &mut TestLedger| {
        let (batch, _) = next_batch(&test.ledger, &ArchiveCursor::default(), test.now, 0);
        let parts = batch.parts.len();
        test.put(Command::Archive(batch));
        parts
    };
    test.now = test.now.plus_ms(7 * DAY_MS - 1);
    test.lead();
    assert_eq!((archive(&mut test), test.ledger.head().dropped_events_index), (0, 0));
    test.now = test.now.plus_ms(1);
    assert_eq!(archive(&mut test), 2);
    let (first, _) = *test.ledger.events().first().expect("a row").0;
    assert_eq!((test.ledger.event_parts().count(), test.ledger.head().dropped_events_index), (0, first - 1));
    assert_eq!(violations(&test.ledger), []);
}

#[cfg(feature = "next-level")]
#[test]
fn oldest_part_is_dropped_when_there_are_too_many() {
    use reveille_ledger::command::RaiseLevel;
    use reveille_ledger::level::KNOWN;
    use reveille_ledger::limits::limits;

    let mut test = TestLedger::new(KNOWN, 1);
    let raise = Command::RaiseLevel(RaiseLevel { level: KNOWN, voters: vec![OWNER.node] });
    assert_eq!(test.put(raise), CommandOutcome::Done);
    let before = test.ledger.head().applied;
    let parts = limits(KNOWN).event_parts_max;
    (0..8 * (parts + 2) + 3).for_each(|number| test.opt_out(&[&format!("u{number}@x")]));
    assert_eq!((test.ledger.event_parts().count(), test.ledger.events().len()), (parts, 3));
    assert_eq!(test.ledger.head().dropped_events_index, before + 8 * 2);
    assert_eq!(violations(&test.ledger), []);
}

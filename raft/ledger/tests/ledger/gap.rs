//! The cost of a `min_gap` check (P17), counted in runs and mappings, not in seconds.

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::causes::PauseReason;
use reveille_ledger::command::{
    Actor, Backfill, ClaimOutcome, ClaimRequest, Command, Entry, EpochStart, ErasedAudience, Fire, NextInstant, NodeUp,
    Opening, OpeningCause, OptOut, RecipientErase, RunPause, RunResume, ScheduleCreate, ScheduleEdit, Trigger,
    VoterClock,
};
use reveille_ledger::content::{Audience, AudienceChoice, Recipient};
use reveille_ledger::ids::{ClaimOwner, Hash, Incarnation, NodeId, OccurrenceName, PageId, RunId, ScheduleId, Time};
use reveille_ledger::invariants::violations;
use reveille_ledger::limits::limits;
use reveille_ledger::policy::{HOUR_MS, MINUTE_MS, Overlap, Policies};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::run_events::RunEventKind;
use reveille_ledger::{GapLookups, LEVEL, Ledger, RecipientState};

use crate::plain;

const OWNER: ClaimOwner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
const NOW: Time = Time(1_800_000_000_000);

/// A schedule with a gap, whose runs are opened by fires or by backfills.
struct TestLedger {
    ledger: Ledger,
    schedule: ScheduleId,
}

impl TestLedger {
    /// Returns a schedule whose instants are all after its plan, so that fires open them.
    fn new(recipients: u32) -> TestLedger {
        TestLedger::with_gap(recipients, 20 * HOUR_MS, instant(3_000))
    }

    /// Returns a schedule whose plan has passed all instants up to `after`.
    fn with_gap(recipients: u32, min_gap_ms: i64, after: Time) -> TestLedger {
        let mut test = TestLedger { ledger: Ledger::new(), schedule: ScheduleId::new(3, 0) };
        let readings = vec![VoterClock { node: OWNER.node, wall: NOW }];
        test.put(Command::EpochStart(EpochStart::new(OWNER, 1, readings)));
        test.put(Command::NodeUp(NodeUp { owner: OWNER, name: "one".into(), level: LEVEL, process_nonce: 1 }));
        let policies = Policies { min_gap_ms, overlap: Overlap::Allow, ..Policies::default() };
        let next = Some(next_at(after.plus_ms(MINUTE_MS)));
        let create = ScheduleCreate { policies, next, ..plain::schedule("minutely", audience(0..recipients), after) };
        assert_eq!(test.put(Command::ScheduleCreate(Box::new(create))), CommandOutcome::Schedule(test.schedule));
        test
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        self.ledger.apply(head.applied + 1, &Entry { epoch, now: NOW, actor: Actor::System, command }).reply.outcome
    }

    fn edit(&mut self, people: std::ops::Range<u32>) {
        let edit = ScheduleEdit {
            request: None,
            body_hash: Hash([0; 32]),
            schedule: self.schedule,
            plan_version: self.ledger.schedules().get(&self.schedule).expect("the schedule").plan.version,
            timing: None,
            policies: None,
            pool: None,
            priority: None,
            content: None,
            audience: Some(audience(people)),
            labels: None,
        };
        assert_eq!(self.put(Command::ScheduleEdit(Box::new(edit))), CommandOutcome::Schedule(self.schedule));
    }

    /// Backfills instants that are so many minutes before now.
    fn backfill(&mut self, minutes: impl IntoIterator<Item = i64>) -> (u32, u32, Option<RunId>) {
        let openings = minutes.into_iter().map(|before| opening(before, OpeningCause::Backfill)).collect();
        let (schedule, body_hash) = (self.schedule, Hash([0; 32]));
        match self.put(Command::Backfill(Backfill {
            request: None,
            body_hash,
            schedule,
            openings,
            known: 0,
            rest: None,
        })) {
            CommandOutcome::Backfilled { opened, inside_gap, first, .. } => (opened, inside_gap, first),
            other => panic!("{other:?}"),
        }
    }

    /// Opens `count` instants, one a minute with a fire each, the last one `before` minutes ago. Returns the first run.
    fn open(&mut self, before: i64, count: i64) -> RunId {
        let mut first = None;
        for minute in (before..before + count).rev() {
            let plan = &self.ledger.schedules().get(&self.schedule).expect("the schedule").plan;
            let opened = vec![opening(minute, OpeningCause::CatchUp)];
            let fire = Fire {
                schedule: self.schedule,
                plan_version: plan.version,
                from: plan.next.as_ref().expect("an instant").occurrence.clone(),
                through: instant(minute),
                opened,
                explained: vec![],
                next: Some(next_at(instant(minute - 1))),
                tzdb: "test".into(),
            };
            match self.put(Command::Fire(vec![fire])) {
                CommandOutcome::Fired(answers) => first = first.or(Some(answers[0].as_ref().expect("fired")[0])),
                other => panic!("{other:?}"),
            }
        }
        first.expect("a run")
    }

    fn claim(&mut self, page: RunId, recipients: u32) -> CommandOutcome {
        self.put(Command::Claim(vec![ClaimRequest {
            chunk: PageId(page).chunk(0),
            slice: Bitmap::range(0, recipients),
            owner: OWNER,
        }]))
    }

    fn send(&mut self, page: RunId, recipients: u32) {
        let CommandOutcome::Claimed(fences) = self.claim(page, recipients) else { panic!("no claim") };
        let fence = *fences[0].as_ref().expect("granted");
        let accepted = Bitmap::range(0, recipients);
        let outcome = ClaimOutcome { accepted, ..ClaimOutcome::empty(PageId(page).chunk(0), fence) };
        assert_eq!(self.put(Command::Settle(vec![outcome])), CommandOutcome::Changed(u64::from(recipients)));
    }

    /// Asks whether one more run may open `before` minutes ago, and returns the cost.
    fn look(&self, before: i64) -> (bool, GapLookups) {
        let mut batch = self.ledger.backfill_batch(self.schedule);
        let may = self.ledger.may_backfill(&mut batch, instant(before));
        (may, batch.lookups)
    }
}

/// Returns the instant `before` minutes ago.
fn instant(before: i64) -> Time {
    NOW.plus_ms(-before * MINUTE_MS)
}

fn opening(before: i64, cause: OpeningCause) -> Opening {
    let due = instant(before);
    Opening { occurrence: OccurrenceName::Instant(due), due, cause, finish_by: NOW.plus_ms(HOUR_MS) }
}

fn next_at(due: Time) -> NextInstant {
    NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms: 0 }
}

fn audience(people: std::ops::Range<u32>) -> AudienceChoice {
    let one = |number: u32| {
        let address = format!("u{number}@example.org");
        Recipient { key: address.clone(), address, values: vec![] }
    };
    AudienceChoice::Listed(Audience { columns: vec![], recipients: people.map(one).collect() })
}

#[test]
fn refused_trigger_does_not_bring_back_an_erased_address() {
    let mut test = TestLedger::new(2);
    let AudienceChoice::Listed(list) = audience(0..1) else { panic!("a list") };
    let trigger = |test: &mut TestLedger, request: &str| {
        test.put(Command::Trigger(Trigger { audience: Some(list.clone()), ..Trigger::new(test.schedule, request) }))
    };
    let CommandOutcome::Run { run, .. } = trigger(&mut test, "first") else { panic!("it opens a run") };
    let mailed = test.open(60, 1);
    test.send(mailed, 2);
    let audience = list.blob().hash;
    let erased = ErasedAudience { audience, number: 0, part: None, schedules: vec![], runs: vec![run] };
    let (tenant, key) = ("default".to_owned(), list.recipients[0].key.clone());
    let erase = RecipientErase { tenant, key, audiences: vec![erased], blocks: vec![] };
    assert_eq!(test.put(Command::RecipientErase(Box::new(erase))), CommandOutcome::Changed(1));
    let refused = trigger(&mut test, "second");
    assert!(matches!(refused, CommandOutcome::Refused(CommandRefusal::InsideGap { .. })), "{refused:?}");
    let stored = test.ledger.blob(&audience).expect("it is kept for a while");
    assert!(stored != list.blob().bytes, "the erased list");
    assert_eq!(violations(&test.ledger), []);
}

#[test]
fn backfill_counts_its_own_batch() {
    let mut test = TestLedger::with_gap(2, 3 * HOUR_MS, NOW);
    let hours = |range: std::ops::Range<i64>| range.rev().map(|hour| hour * 60);
    let (opened, inside_gap, _) = test.backfill(hours(1..12));
    assert_eq!((opened, inside_gap), (4, 7), "the first, and each one that is three hours after an opened one");
    assert_eq!(test.backfill(hours(1..12)), (0, 7, None), "the others stay closed while those are pending");
    let pending = test.ledger.runs().map(|(page, ..)| page).collect::<Vec<_>>();
    for page in pending {
        test.send(page, 2);
    }
    let suppressed = test.ledger.runs().map(|(_, _, run)| run.counts.get(RecipientState::Suppressed)).sum::<u32>();
    assert_eq!(suppressed, 0, "whatever opens is sent");
    assert_eq!(test.backfill(hours(1..12)), (0, 7, None), "the others stay closed");
    assert_eq!(violations(&test.ledger), []);
}

#[test]
fn backfill_beside_open_run_waits_until_that_run_sends_nothing() {
    let mut test = TestLedger::with_gap(2, 3 * HOUR_MS, NOW);
    let (_, _, first) = test.backfill([600]);
    let first = first.expect("a run");
    test.put(Command::RunPause(RunPause { run: first, reason: "look".into() }));
    assert_eq!(test.backfill([540]), (0, 1, None), "a paused run may be resumed");
    test.put(Command::RunResume(RunResume { run: first, without_canary: false, expected: None }));
    test.claim(first, 1);
    test.put(Command::RunCancel(first));
    assert_eq!(test.backfill([540]).0, 1, "of a cancelled run only the claimed recipient may get an email");
    let loaded = Ledger::from_rows(test.ledger.all_rows()).expect("the rows read back");
    let mut again = TestLedger { ledger: loaded, ..test };
    assert_eq!(again.backfill([480]), (0, 1, None), "a node that was restarted decides the same");
    assert_eq!(violations(&again.ledger), []);
}

#[test]
fn backfill_beside_open_run_opens_for_recipients_of_edited_audience() {
    let mut test = TestLedger::with_gap(2, 3 * HOUR_MS, NOW);
    assert_eq!(test.backfill([600]).0, 1);
    test.edit(1..2);
    assert_eq!(test.backfill([540]), (0, 1, None), "the recipient has another number and the same address");
    test.edit(1..3);
    assert_eq!(test.backfill([540]).0, 1, "one recipient is new");
    assert_eq!(violations(&test.ledger), []);
}

#[test]
fn backfill_opens_for_recipients_that_its_batch_leaves_out() {
    let mut test = TestLedger::with_gap(2, 3 * HOUR_MS, NOW);
    let (_, _, sent) = test.backfill([600]);
    let sent = sent.expect("a run");
    test.send(sent, 1);
    test.put(Command::RunCancel(sent));
    // The second recipient got nothing ten hours ago. So nine hours ago opens for it, and eight hours ago opens for no
    // recipient. Seven hours ago the first recipient may get an email again.
    assert_eq!(test.backfill([540, 480, 420, 360]).0, 3);
    assert_eq!(violations(&test.ledger), []);
}

#[test]
fn backfill_looks_once_at_open_runs_and_never_at_runs_without_emails() {
    let mut test = TestLedger::new(1);
    let first = test.open(2_000, limits(LEVEL).backfill_openings_max as i64);
    let (may, look) = test.look(1_999);
    assert_eq!((may, look.runs), (false, 1_000), "a thousand runs that are pending, each read once");
    test.send(first, 1);
    let others = test.ledger.runs().map(|(page, ..)| page).skip(1).collect::<Vec<_>>();
    for page in others {
        test.claim(page, 1);
    }
    assert!(test.ledger.runs().all(|(_, _, run)| run.counts.is_finished()), "all others are suppressed");
    let (may, look) = test.look(1_999);
    assert_eq!((may, look.runs), (false, 1), "one of them has sent an email");
    let loaded = Ledger::from_rows(test.ledger.all_rows()).expect("the rows read back");
    let again = TestLedger { ledger: loaded, ..test };
    assert_eq!(again.look(1_999).1.runs, 1, "the index is made again");
    assert_eq!(violations(&again.ledger), []);
}

#[test]
fn recipient_mapping_is_made_once_for_two_audiences_and_dropped_with_them() {
    let mut test = TestLedger::new(40);
    let former = test.open(600, 1);
    test.edit(1..41);
    let beside = test.open(599, 1);
    test.send(former, 40);
    let look = |test: &TestLedger| {
        let mut look = GapLookups::default();
        let near = test.ledger.inside_gap(&mut look, beside, 0..40);
        (near.len(), look.runs, look.made)
    };
    assert_eq!(look(&test), (39, 1, 1), "no look has asked before");
    let granted = test.claim(beside, 40);
    assert!(
        matches!(granted, CommandOutcome::Claimed(ref fences) if fences[0].is_ok()),
        "one of them is new: {granted:?}"
    );
    assert_eq!(look(&test), (39, 1, 0), "the claim has made it");
    test.open(500, 90);
    assert_eq!(violations(&test.ledger), [], "each table is true, and so are its lists");
}

#[test]
fn trigger_for_few_recipients_reads_no_run_to_others() {
    let mut test = TestLedger::new(40);
    let trigger = |test: &mut TestLedger, request: String, people: std::ops::Range<u32>| {
        let AudienceChoice::Listed(list) = audience(people) else { panic!("a list") };
        test.put(Command::Trigger(Trigger { audience: Some(list), ..Trigger::new(test.schedule, &request) }))
    };
    let mut runs = Vec::new();
    for number in 0..100 {
        let opened = trigger(&mut test, format!("to {number}"), number..number + 1);
        let CommandOutcome::Run { run, .. } = opened else { panic!("{opened:?}") };
        test.send(run, 1);
        runs.push(run);
    }
    let look = |test: &TestLedger, run: RunId, count: u32| {
        let mut look = GapLookups::default();
        let near = test.ledger.inside_gap(&mut look, run, 0..count);
        (near.len(), look.runs)
    };
    assert_eq!(look(&test, runs[50], 1), (0, 0), "each of the others is to another recipient");
    let again = trigger(&mut test, "again".into(), 50..51);
    assert!(matches!(again, CommandOutcome::Refused(CommandRefusal::InsideGap { .. })), "{again:?}");
    let several = trigger(&mut test, "to several".into(), 98..102);
    let CommandOutcome::Run { run: several, .. } = several else { panic!("{several:?}") };
    assert_eq!(look(&test, several, 4), (2, 2));
    let to_all = test.open(60, 1);
    assert_eq!(look(&test, to_all, 40), (40, 100), "a long list is compared with every run");
    test.edit(100..140);
    let to_others = test.open(30, 1);
    test.send(to_others, 40);
    assert_eq!(look(&test, runs[50], 1), (0, 1), "a run to a long list is read");

    let AudienceChoice::Listed(list) = audience(50..51) else { panic!("a list") };
    let (tenant, key) = ("default".to_owned(), list.recipients[0].key.clone());
    let erased = |runs: Vec<RunId>| {
        let named = ErasedAudience { audience: list.blob().hash, number: 0, part: None, schedules: vec![], runs };
        RecipientErase { tenant: tenant.clone(), key: key.clone(), audiences: vec![named], blocks: vec![] }
    };
    let erase = erased(vec![runs[50]]);
    assert_eq!(test.put(Command::RecipientErase(Box::new(erase))), CommandOutcome::Changed(1));
    assert_eq!(violations(&test.ledger), [], "the index has no hash of the address");
    let loaded = Ledger::from_rows(test.ledger.all_rows()).expect("the rows read back");
    assert_eq!(look(&TestLedger { ledger: loaded, ..test }, several, 4), (4, 3), "the index is made again");
}

#[test]
fn runs_to_recipient_that_opted_out_do_not_wait_for_each_other() {
    let mut test = TestLedger::new(2);
    let (first, others) = (test.open(600, 1), [599, 598].map(|before| test.open(before, 1)));
    assert!(matches!(test.claim(first, 2), CommandOutcome::Claimed(fences) if fences[0].is_ok()));
    let keys = vec!["u0@example.org".to_owned()];
    assert_eq!(test.put(Command::OptOut(OptOut { tenant: "default".into(), keys })), CommandOutcome::Changed(1));
    for run in others {
        assert_eq!(test.claim(run, 2), CommandOutcome::Claimed(vec![Err(CommandRefusal::NothingPending)]));
        let [opted_out, other] = [0, 1].map(|number| test.ledger.explain_recipient(run, number).expect("a recipient"));
        assert_eq!((opted_out.state, other.state), (RecipientState::Suppressed, RecipientState::Pending));
        assert_eq!((opted_out.waits_until, opted_out.kept_apart_by), (None, None));
        assert!(other.waits_until.is_some() && other.kept_apart_by == Some(first));
        let kinds: Vec<RunEventKind> = opted_out.run_events.into_iter().map(|(_, event)| event.what).collect();
        assert_eq!(kinds, [RunEventKind::SuppressedByOptOut]);
        assert_eq!(test.ledger.suppressed_by_gap_of(run), 0);
    }
    assert_eq!(violations(&test.ledger), []);
}

#[test]
fn suppressions_at_claims_keep_the_etag_and_the_events_of_operators() {
    const RECIPIENTS: u32 = 100;
    let mut test = TestLedger::new(RECIPIENTS);
    let former = test.open(600, 1);
    let run = test.open(599, 1);
    test.put(Command::RunPause(RunPause { run, reason: "look".into() }));
    test.put(Command::RunResume(RunResume { run, without_canary: false, expected: None }));
    let etag = test.ledger.run_etag(run);
    for slot in 0..RECIPIENTS as u16 {
        let claim = |page: RunId| {
            let slice = [slot].into_iter().collect();
            Command::Claim(vec![ClaimRequest { chunk: PageId(page).chunk(0), slice, owner: OWNER }])
        };
        let CommandOutcome::Claimed(fences) = test.put(claim(former)) else { panic!("no claim") };
        let fence = *fences[0].as_ref().expect("granted");
        let mut outcome = ClaimOutcome::empty(PageId(former).chunk(0), fence);
        outcome.accepted.insert(slot);
        test.put(Command::Settle(vec![outcome]));
        assert_eq!(test.put(claim(run)), CommandOutcome::Claimed(vec![Err(CommandRefusal::NothingPending)]));
    }
    assert_eq!(test.ledger.run_etag(run), etag, "the run itself has caused what came since");
    for number in 0..RECIPIENTS {
        let events = test.ledger.explain_recipient(run, number).expect("the recipient").run_events;
        let kinds: Vec<RunEventKind> = events.into_iter().map(|(_, event)| event.what).collect();
        let paused = RunEventKind::Paused(PauseReason::Operator("look".into()));
        assert_eq!(kinds, [paused, RunEventKind::Resumed, RunEventKind::SuppressedByGap], "recipient {number}");
    }
    let rows = test.ledger.run_events().iter().filter(|((of, ..), _)| *of == run).count();
    assert_eq!(rows, limits(LEVEL).run_event_entries_max);
    assert_eq!(violations(&test.ledger), []);
}

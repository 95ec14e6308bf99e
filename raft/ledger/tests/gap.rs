//! What a look behind the gap costs (P17): counted in runs and tables, not in seconds.

mod plain;

use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::check::check;
use reveille_ledger::command::{
    Backfill, Cause, Claim, Command, Entry, EpochStart, NodeUp, Opening, Reading, RowOutcome, ScheduleCreate,
    ScheduleEdit,
};
use reveille_ledger::content::{Audience, Recipient, To};
use reveille_ledger::ids::{Hash, Holder, Incarnation, NodeId, Nominal, RunId, ScheduleId, Time};
use reveille_ledger::policy::{HOUR_MS, MINUTE_MS, Overlap, Policies};
use reveille_ledger::reply::Outcome;
use reveille_ledger::{BACKFILL_MAX, BackfillBatch, LEVEL, Ledger, Look, Standing};

const HOLDER: Holder = Holder { node: NodeId(1), incarnation: Incarnation(1) };
const NOW: Time = Time(1_800_000_000_000);

/// A schedule with a gap of 20 h, whose runs are opened by backfills.
struct World {
    ledger: Ledger,
    schedule: ScheduleId,
}

impl World {
    fn new(recipients: u32) -> World {
        World::with_gap(recipients, 20 * HOUR_MS)
    }

    fn with_gap(recipients: u32, min_gap_ms: i64) -> World {
        let mut world = World { ledger: Ledger::new(), schedule: ScheduleId(3) };
        let readings = vec![Reading { node: HOLDER.node, wall: NOW }];
        world.put(Command::EpochStart(EpochStart::new(HOLDER, 1, readings)));
        world.put(Command::NodeUp(NodeUp { holder: HOLDER, name: "one".into(), level: LEVEL, life: 1 }));
        let policies = Policies { min_gap_ms, overlap: Overlap::Allow, ..Policies::default() };
        let create = ScheduleCreate { policies, ..plain::schedule("minutely", audience(0..recipients), NOW) };
        assert_eq!(world.put(Command::ScheduleCreate(Box::new(create))), Outcome::Schedule(world.schedule));
        world
    }

    fn put(&mut self, command: Command) -> Outcome {
        let head = self.ledger.head();
        let epoch = head.epoch.map(|epoch| epoch.epoch).unwrap_or_default();
        self.ledger.apply(head.applied + 1, &Entry { epoch, now: NOW, command }).reply.outcome
    }

    fn edit(&mut self, people: std::ops::Range<u32>) {
        let edit = ScheduleEdit {
            request: None,
            body: Hash([0; 32]),
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
        assert_eq!(self.put(Command::ScheduleEdit(Box::new(edit))), Outcome::Schedule(self.schedule));
    }

    /// One backfill of instants that lie so many minutes before now.
    fn backfill(&mut self, minutes: impl IntoIterator<Item = i64>) -> (u32, u32, Option<RunId>) {
        let opening = |before: i64| {
            let due = NOW.plus_ms(-before * MINUTE_MS);
            let finish_by = NOW.plus_ms(HOUR_MS);
            Opening { nominal: Nominal::Instant(due), due, cause: Cause::Backfill, finish_by }
        };
        let openings = minutes.into_iter().map(opening).collect();
        let (schedule, body) = (self.schedule, Hash([0; 32]));
        match self.put(Command::Backfill(Backfill { request: None, body, schedule, openings, known: 0, rest: None })) {
            Outcome::Backfilled { opened, inside_gap, first, .. } => (opened, inside_gap, first),
            other => panic!("{other:?}"),
        }
    }

    /// Opens `count` instants by the minute with a backfill each, the last one `before` minutes ago; how many opened,
    /// and the first run.
    fn open(&mut self, before: i64, count: i64) -> (u32, Option<RunId>) {
        let (mut opened, mut first) = (0, None);
        for minute in (0..count).rev() {
            let one = self.backfill([before + minute]);
            opened += one.0;
            first = first.or(one.2);
        }
        (opened, first)
    }

    fn claim(&mut self, page: RunId, recipients: u32) -> Outcome {
        self.put(Command::Claim(vec![Claim { page, chunk: 0, slice: Bitmap::range(0, recipients), holder: HOLDER }]))
    }

    fn send(&mut self, page: RunId, recipients: u32) {
        let Outcome::Claimed(fences) = self.claim(page, recipients) else { panic!("no claim") };
        let fence = *fences[0].as_ref().expect("granted");
        let accepted = Bitmap::range(0, recipients);
        let outcome = RowOutcome { accepted, ..RowOutcome::empty(page, 0, fence) };
        assert_eq!(self.put(Command::Settle(vec![outcome])), Outcome::Moved(u64::from(recipients)));
    }

    /// Asks for one more run `before` minutes ago.
    fn look(&self, before: i64) -> (bool, Look) {
        let mut batch = BackfillBatch::default();
        let may = self.ledger.may_backfill(&mut batch, self.schedule, NOW.plus_ms(-before * MINUTE_MS));
        (may, batch.look)
    }
}

fn audience(people: std::ops::Range<u32>) -> To {
    let one = |number: u32| {
        let address = format!("u{number}@example.org");
        Recipient { key: address.clone(), address, values: vec![] }
    };
    To::Listed(Audience { columns: vec![], recipients: people.map(one).collect() })
}

#[test]
fn backfill_counts_its_own_batch() {
    let mut world = World::with_gap(2, 3 * HOUR_MS);
    let hours = |range: std::ops::Range<i64>| range.rev().map(|hour| hour * 60);
    let (opened, inside_gap, _) = world.backfill(hours(1..12));
    assert_eq!((opened, inside_gap), (4, 7), "the first, and each one that is three hours after an opened one");
    let pending = world.ledger.runs().map(|(page, ..)| page).collect::<Vec<_>>();
    for page in pending {
        world.send(page, 2);
    }
    let suppressed = world.ledger.runs().map(|(_, _, run)| run.counts.get(Standing::Suppressed)).sum::<u32>();
    assert_eq!(suppressed, 0, "whatever opens is sent");
    assert_eq!(world.backfill(hours(1..12)), (0, 7, None), "the others stay closed");
    assert_eq!(check(&world.ledger), []);
}

#[test]
fn backfill_opens_again_for_recipients_whom_its_batch_leaves_out() {
    let mut world = World::with_gap(2, 3 * HOUR_MS);
    let (_, _, sent) = world.backfill([600]);
    world.send(sent.expect("a run"), 1);
    // Ten hours ago the second recipient got nothing: nine hours ago opens for it, and eight hours ago for no recipient.
    // Seven hours ago the first recipient may get an email again.
    assert_eq!(world.backfill([540, 480, 420, 360]).0, 3);
    assert_eq!(check(&world.ledger), []);
}

#[test]
fn runs_that_mailed_nobody_cost_nothing() {
    let mut world = World::new(1);
    let (opened, first) = world.open(2_000, BACKFILL_MAX as i64);
    assert_eq!(opened, 1_000);
    let (may, look) = world.look(1_999);
    assert_eq!((may, look.runs), (true, 0), "a thousand runs that are pending");
    world.send(first.expect("a run"), 1);
    let suppressed = world.ledger.runs().map(|(page, ..)| page).skip(1).take(300).collect::<Vec<_>>();
    for page in suppressed {
        world.claim(page, 1);
    }
    assert_eq!(world.ledger.runs().filter(|(_, _, run)| run.counts.is_finished()).count(), 301);
    let (may, look) = world.look(1_999);
    assert_eq!((may, look.runs), (false, 1), "one of them has mailed somebody");
    let loaded = Ledger::from_rows(world.ledger.all_rows()).expect("the rows read back");
    let again = World { ledger: loaded, ..world };
    assert_eq!(again.look(1_999).1.runs, 1, "the index is made again");
    assert_eq!(check(&again.ledger), []);
}

#[test]
fn a_table_of_numbers_is_made_once_for_two_lists_and_goes_with_them() {
    let mut world = World::new(40);
    let (_, former) = world.open(600, 1);
    world.edit(1..41);
    let (opened, beside) = world.open(599, 1);
    assert_eq!(opened, 1);
    world.send(former.expect("a run"), 40);
    let (may, look) = world.look(598);
    assert_eq!((may, look.runs, look.made), (true, 1, 1), "nobody has asked before");
    let granted = world.claim(beside.expect("a run"), 40);
    assert!(matches!(granted, Outcome::Claimed(ref fences) if fences[0].is_ok()), "one of them is new: {granted:?}");
    let (_, look) = world.look(598);
    assert_eq!((look.runs, look.made), (2, 0), "the claim has made it, and for the run beside it needs none");
    assert_eq!(world.open(500, 90).0, 90, "the new one is claimed only");
    assert_eq!(check(&world.ledger), [], "each table is true, and so are its lists");
}

//! Tests of what makes a leader unfit, and of what must not.

use reveille_ledger::LEVEL;
use reveille_ledger::access::Access;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{
    Actor, AudienceSeal, ClaimRequest, Command, Entry, EpochStart, Fire, NodeShare, NodeUp, Opening, OpeningCause,
    Relay, RunPause, ScheduleCreate, Trigger, VoterClock,
};
use reveille_ledger::content::{Audience, AudienceChoice, NamedAudience, Seal};
use reveille_ledger::ids::{Epoch, Incarnation, NodeId, OccurrenceName, PageId, RunId, ScheduleId};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::tenant::TenantSet;

use super::*;
use crate::samples;

/// Repeats the same check every quarter of a second. Returns when it first finds the leader unfit, in milliseconds, and
/// why.
fn unfit_after(fitness: &mut Fitness, seen: Observations, from_ms: u64, until_ms: u64) -> Option<(u64, Unfit)> {
    let mut times = (from_ms..until_ms).step_by(250);
    times.find_map(|at| Some((at - from_ms, fitness.assess(&seen, Duration::from_millis(at))?)))
}

const HEALTHY: Observations = Observations {
    committed: 9,
    applied: 9,
    sync_running_for: None,
    disk_full: false,
    could_grant: false,
    granted: false,
};

#[test]
fn quiet_leader_is_fit() {
    assert_eq!(unfit_after(&mut Fitness::default(), HEALTHY, 0, 3_600_000), None);
}

#[test]
fn committed_entry_unapplied_for_two_seconds_makes_leader_unfit() {
    let seen = Observations { applied: 8, ..HEALTHY };
    assert_eq!(unfit_after(&mut Fitness::default(), seen, 0, 60_000), Some((2_000, Unfit::LAGS)));
}

#[test]
fn busy_leader_slightly_behind_is_fit() {
    let mut fitness = Fitness::default();
    for check in 1..10_000 {
        let seen = Observations { committed: check * 1_000, applied: check * 1_000 - 900, ..HEALTHY };
        assert_eq!(fitness.assess(&seen, CHECK_EVERY * check as u32), None);
    }
}

#[test]
fn sync_of_five_seconds_makes_leader_unfit_and_short_ones_do_not() {
    let running = |seconds| Observations { sync_running_for: Some(Duration::from_secs(seconds)), ..HEALTHY };
    assert_eq!(unfit_after(&mut Fitness::default(), running(4), 0, 60_000), None);
    assert_eq!(unfit_after(&mut Fitness::default(), running(5), 0, 60_000), Some((0, Unfit::DISK_HANGS)));
}

#[test]
fn full_disk_makes_leader_unfit_if_another_node_has_space() {
    let seen = Observations { disk_full: true, ..HEALTHY };
    assert_eq!(unfit_after(&mut Fitness::default(), seen, 0, 60_000), Some((0, Unfit::DISK_FULL)));
}

#[test]
fn work_and_credit_without_grant_for_ten_seconds_make_leader_unfit() {
    let (mut fitness, idle) = (Fitness::default(), Observations { could_grant: true, ..HEALTHY });
    assert_eq!(unfit_after(&mut fitness, idle, 0, 9_900), None);
    assert_eq!(fitness.assess(&Observations { granted: true, ..idle }, Duration::from_millis(9_950)), None);
    assert_eq!(unfit_after(&mut fitness, idle, 10_000, 60_000), Some((10_000, Unfit::GRANTS_NOTHING)));
}

#[test]
fn observations_before_own_pause_are_discarded() {
    let (mut fitness, lags) = (Fitness::default(), Observations { applied: 8, ..HEALTHY });
    assert_eq!(unfit_after(&mut fitness, lags, 0, 1_900), None);
    assert_eq!(unfit_after(&mut fitness, lags, 60_000, 120_000), Some((2_000, Unfit::LAGS)));
}

/// A ledger with one due recipient, and everything that a claim of it needs.
struct FitnessTest {
    ledger: Ledger,
    epoch: Epoch,
    index: u64,
    now: Time,
}

const NOW: Time = Time(1_788_000_000_000);
const OWNER: ClaimOwner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };

impl FitnessTest {
    fn new() -> FitnessTest {
        let mut test = FitnessTest { ledger: Ledger::new(), epoch: Epoch(0), index: 0, now: NOW };
        let readings = vec![VoterClock { node: NodeId(1), wall: NOW }];
        test.play(Command::EpochStart(EpochStart::new(OWNER, 1, readings)));
        test.epoch = Epoch(1);
        test.play(Command::NodeUp(NodeUp { owner: OWNER, name: "n1".into(), level: LEVEL, process_nonce: 1 }));
        test.play(Command::NodeShare(NodeShare { node: OWNER.node, opens: false }));
        test
    }

    fn play(&mut self, command: Command) -> CommandOutcome {
        self.index += 1;
        let outcome = self
            .ledger
            .apply(self.index, &Entry { epoch: self.epoch, now: self.now, actor: Actor::System, command })
            .reply
            .outcome;
        assert!(!matches!(outcome, CommandOutcome::Refused(_)), "{outcome:?}");
        outcome
    }

    fn relay(&mut self, pool: &str) {
        self.relay_with(pool, 0);
    }

    fn relay_with(&mut self, pool: &str, late_rate_milli: u64) {
        let (name, host) = (pool.to_owned(), "127.0.0.1".to_owned());
        let relay = Relay {
            name,
            pool: pool.to_owned(),
            host,
            port: 25,
            access: Access::default(),
            rate_milli: 0,
            max_sessions: 4,
            late_rate_milli,
            weight: 1,
        };
        self.play(Command::RelayPut(relay.into()));
    }

    fn run(&mut self) -> RunId {
        let schedule = self.schedule();
        self.trigger(schedule)
    }

    /// Opens a run with a sealed audience of one part.
    fn sealed_run(&mut self, part: Hash) -> RunId {
        let seal = Seal { name: "all".into(), columns: vec![], rows: 1, parts: vec![part] };
        let named = NamedAudience { name: seal.name.clone(), seal: seal.blob().hash, rows: seal.rows };
        self.play(Command::AudienceSeal(AudienceSeal { request: None, tenant: "default".into(), seal }));
        let schedule = self.schedule_to("sealed", AudienceChoice::Sealed(named));
        self.trigger(schedule)
    }

    fn trigger(&mut self, schedule: ScheduleId) -> RunId {
        let trigger = Trigger::new(schedule, format!("after {}", self.index));
        match self.play(Command::Trigger(trigger)) {
            CommandOutcome::Run { run, .. } => run,
            other => panic!("a run opens, but: {other:?}"),
        }
    }

    /// Opens the schedule's instant an hour later, as a missed one.
    fn caught_up(&mut self) {
        let (schedule, due) = (self.schedule(), NOW.plus_ms(3_600_000));
        let start = EpochStart::new(OWNER, 1, vec![VoterClock { node: NodeId(1), wall: due }]);
        (self.epoch, self.now) = (Epoch(0), due);
        self.play(Command::EpochStart(start));
        self.epoch = Epoch(self.index);
        let occurrence = OccurrenceName::Instant(due);
        let opening = Opening {
            occurrence: occurrence.clone(),
            due,
            cause: OpeningCause::CatchUp,
            finish_by: due.plus_ms(3_600_000),
        };
        let fire = Fire {
            schedule,
            plan_version: 1,
            from: occurrence,
            opened: vec![opening],
            explained: vec![],
            through: due,
            next: None,
            tzdb: "test".into(),
        };
        let fired = self.play(Command::Fire(vec![fire]));
        assert!(matches!(&fired, CommandOutcome::Fired(runs) if matches!(runs.as_slice(), [Ok(_)])), "{fired:?}");
    }

    fn schedule(&mut self) -> ScheduleId {
        let recipients = vec![samples::recipient("a@example.net")];
        self.schedule_to("once", Audience { columns: vec![], recipients }.into())
    }

    fn schedule_to(&mut self, name: &str, audience: AudienceChoice) -> ScheduleId {
        let due = NOW.plus_ms(3_600_000);
        let create = ScheduleCreate { name: name.into(), after: NOW, audience, ..samples::schedule(due, vec![]) };
        match self.play(Command::ScheduleCreate(Box::new(create))) {
            CommandOutcome::Schedule(id) => id,
            other => panic!("a schedule is created, but: {other:?}"),
        }
    }

    fn could_grant(&self) -> bool {
        self.could_grant_to(&ReadyNode::default(), NOW)
    }

    fn could_grant_to(&self, nodes: &ReadyNode, now: Time) -> bool {
        could_grant(&self.ledger, nodes, true, now)
    }
}

/// A node with a lease, all parts and a working relay, but for these exceptions.
#[derive(Default)]
struct ReadyNode {
    has_no_lease: bool,
    lacks: BTreeSet<Hash>,
    silent_pool: Option<&'static str>,
}

impl NodeView for ReadyNode {
    fn may_claim(&self, owner: ClaimOwner) -> bool {
        owner == OWNER && !self.has_no_lease
    }

    fn missing_files(&self, _: NodeId) -> BTreeSet<Hash> {
        self.lacks.clone()
    }

    fn sends(&self, _: &Ledger, _: ClaimOwner, pool: &str) -> bool {
        self.silent_pool != Some(pool)
    }
}

#[test]
fn due_recipients_with_lease_and_relay_are_grantable() {
    let mut test = FitnessTest::new();
    test.relay("default");
    assert!(!test.could_grant(), "no work");
    test.run();
    assert!(test.could_grant());
    let nodes = ReadyNode { has_no_lease: true, ..ReadyNode::default() };
    assert!(!test.could_grant_to(&nodes, NOW));
}

#[test]
fn pool_without_relay_is_not_grantable() {
    let mut test = FitnessTest::new();
    test.relay("another");
    test.run();
    assert!(!test.could_grant());
}

#[test]
fn paused_and_expired_runs_are_not_grantable() {
    let mut test = FitnessTest::new();
    test.relay("default");
    let run = test.run();
    let over = NOW.plus_ms(400 * 86_400_000);
    assert!(!test.could_grant_to(&ReadyNode::default(), over), "past its deadline");
    test.play(Command::RunPause(RunPause { run, reason: "by hand".into() }));
    assert!(!test.could_grant(), "paused");
}

#[test]
fn relays_with_open_circuit_everywhere_are_not_grantable() {
    let mut test = FitnessTest::new();
    test.relay("default");
    test.run();
    assert!(test.could_grant());
    let nodes = ReadyNode { silent_pool: Some("default"), ..ReadyNode::default() };
    assert!(!test.could_grant_to(&nodes, NOW));
}

#[test]
fn open_claims_may_use_up_the_credit() {
    let mut test = FitnessTest::new();
    test.relay("default");
    let run = test.run();
    let slice: Bitmap = [0].into_iter().collect();
    test.play(Command::Claim(vec![ClaimRequest { chunk: PageId(run).chunk(0), slice, owner: OWNER }]));
    assert!(!test.could_grant());
}

#[test]
fn late_emails_paced_below_check_interval_are_not_grantable() {
    for (late_rate_milli, could) in [(0, true), (1_000, true), (50, false)] {
        let mut test = FitnessTest::new();
        test.relay_with("default", late_rate_milli);
        test.caught_up();
        assert_eq!(test.could_grant_to(&ReadyNode::default(), test.now), could, "{late_rate_milli}");
    }
}

#[test]
fn tenant_paced_below_check_interval_is_not_grantable() {
    for (rate_milli, could) in [(0, true), (1_000, true), (50, false)] {
        let mut test = FitnessTest::new();
        test.relay("default");
        test.run();
        let set = TenantSet {
            request: None,
            name: "default".into(),
            rate_milli: Some(rate_milli),
            concurrency: Some(1),
            share: None,
            pools: None,
            expected: None,
        };
        test.play(Command::TenantSet(set));
        assert_eq!(test.could_grant(), could, "{rate_milli}");
    }
}

#[test]
fn part_missing_everywhere_is_not_grantable() {
    let mut test = FitnessTest::new();
    test.relay("default");
    let part = Hash::of(b"a part");
    test.sealed_run(part);
    assert!(test.could_grant());
    let nodes = ReadyNode { lacks: [part].into(), ..ReadyNode::default() };
    assert!(!test.could_grant_to(&nodes, NOW), "each node that may claim lacks it");
    test.run();
    assert!(test.could_grant_to(&nodes, NOW), "the other run lacks nothing");
}

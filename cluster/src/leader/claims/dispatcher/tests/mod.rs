//! Tests of the claims that the dispatcher makes from a state.

use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::canary::Canary;
use reveille_ledger::command::{
    Actor, AudienceSeal, ClaimOutcome, ClaimRequest, Entry, EpochStart, Fire, NodeUp, Opening, OpeningCause,
    OutcomeSource, PickedRecipients, RefusalEffect, Relay, RelayRefusal, ReleaseReason, Requeue, ScheduleCreate,
    Unsendable, VoterClock,
};
use reveille_ledger::content::{AudienceChoice, NamedAudience, Seal};
use reveille_ledger::ids::{Fence, Hash, Incarnation, OccurrenceName, PageId, RunId, ScheduleId};
use reveille_ledger::policy::Policies;
use reveille_ledger::reply::{ChangedRecipients, CommandOutcome};

use super::*;
use crate::leader::claims::claimable::canary_waits;
use crate::leader::claims::types::ClaimSource;
use crate::monitoring::disk_reserve::DiskSpace;
use crate::process::peer_messages::{NodeMeasurements, RelayFlow};
use crate::samples;

mod late_rate;
mod missing_parts;
mod tenants;
mod warm_up;

const RUN: RunId = RunId { index: 6, place: 0 };
const PAGE: PageId = PageId(RUN);
const OPENED_AT: Time = Time(1_000);
/// Maximum number of recipients that both nodes have claimed. The relay answers within 10 ms, and claim and settle take
/// 310 ms.
const CAP: u32 = 64;

/// Two nodes, a relay with two sessions, and a page of `recipients`.
struct DispatcherTest {
    ledger: Ledger,
    now: Time,
    dispatcher: Dispatcher,
    /// Monotonic time.
    boot: Duration,
}

fn owner(node: u64, incarnation: u64) -> ClaimOwner {
    ClaimOwner { node: NodeId(node), incarnation: Incarnation(incarnation) }
}

impl DispatcherTest {
    fn with(recipients: u32) -> DispatcherTest {
        DispatcherTest::opened(recipients, OpeningCause::Due, (0, 0))
    }

    /// Returns a test with a page of a sealed audience. The hash of each part is made from its number.
    fn sealed(recipients: u32) -> DispatcherTest {
        let parts = (0..recipients.div_ceil(CHUNK)).map(part).collect();
        let seal = Seal { name: "all".into(), columns: vec![], rows: recipients, parts };
        let named = NamedAudience { name: seal.name.clone(), seal: seal.blob().hash, rows: recipients };
        let seal = AudienceSeal { request: None, tenant: "default".into(), seal };
        let create = ScheduleCreate { audience: AudienceChoice::Sealed(named), ..schedule(0) };
        DispatcherTest::of(&[Command::AudienceSeal(seal)], create, OpeningCause::Due, (0, 0))
    }

    /// Opens the page for this cause. `rates` are the relay's rate and its rate for late email.
    fn opened(recipients: u32, cause: OpeningCause, rates: (u64, u64)) -> DispatcherTest {
        DispatcherTest::of(&[], schedule(recipients), cause, rates)
    }

    fn of(
        before: &[Command],
        create: ScheduleCreate,
        cause: OpeningCause,
        (rate_milli, late_rate_milli): (u64, u64),
    ) -> DispatcherTest {
        let mut test = DispatcherTest {
            ledger: Ledger::new(),
            now: Time(0),
            dispatcher: Dispatcher::default(),
            boot: Duration::ZERO,
        };
        let readings =
            vec![VoterClock { node: NodeId(1), wall: Time(0) }, VoterClock { node: NodeId(2), wall: Time(0) }];
        test.put(Command::EpochStart(EpochStart::new(owner(1, 1), 2, readings)));
        test.up(1, 1);
        test.up(2, 1);
        test.put(Command::RelayPut(
            Relay {
                name: "mailbox".into(),
                pool: "default".into(),
                host: "127.0.0.1".into(),
                port: 25,
                access: Default::default(),
                rate_milli,
                max_sessions: 2,
                late_rate_milli,
                weight: 1,
            }
            .into(),
        ));
        for command in before {
            assert_eq!(test.put(command.clone()), CommandOutcome::Done);
        }
        let created = test.put(Command::ScheduleCreate(Box::new(create)));
        let CommandOutcome::Schedule(schedule) = created else { panic!("{created:?}") };
        test.fire(schedule, cause);
        test
    }

    /// Opens the run of a schedule; returns its page.
    fn fire(&mut self, schedule: ScheduleId, cause: OpeningCause) -> PageId {
        self.now = OPENED_AT;
        let name = OccurrenceName::Instant(OPENED_AT);
        let finish_by = Time(3_600_000);
        let opening = Opening { occurrence: name.clone(), due: OPENED_AT, cause, finish_by };
        let fired = self.put(Command::Fire(vec![Fire {
            schedule,
            plan_version: 1,
            from: name,
            opened: vec![opening],
            explained: vec![],
            through: OPENED_AT,
            next: None,
            tzdb: "test".into(),
        }]));
        let page = PageId(RunId { index: schedule.index() + 1, place: 0 });
        assert_eq!(fired, CommandOutcome::Fired(vec![Ok(vec![page.0])]));
        page
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        self.ledger
            .apply(head.applied + 1, &Entry { epoch, now: self.now, actor: Actor::System, command })
            .reply
            .outcome
    }

    fn up(&mut self, node: u64, incarnation: u64) {
        let owner = owner(node, incarnation);
        let up = NodeUp { owner, name: format!("n{node}"), level: 1, process_nonce: incarnation };
        assert_eq!(self.put(Command::NodeUp(up)), CommandOutcome::Done);
    }

    /// Proposes the claims of one wake and returns them.
    fn dispatch(&mut self) -> Vec<ClaimRequest> {
        self.plan_claims().0
    }

    /// Proposes the claims of one wake; returns them and the sleep after it.
    fn plan_claims(&mut self) -> (Vec<ClaimRequest>, Duration) {
        let PlannedClaims { requests, sleep, .. } = self.plan_only();
        self.put(Command::Claim(requests.clone()));
        (requests, sleep)
    }

    /// Returns the claims of one wake without proposing them.
    fn plan_only(&mut self) -> PlannedClaims {
        let (owners, reports) = (self.owners(), self.reports());
        self.dispatcher.plan_from(&self.ledger, &owners, 3, &reports, (self.now, self.boot))
    }

    /// Settles all claimed recipients as sent.
    fn settle(&mut self) {
        let accept = |(fence, claim): (&Fence, &reveille_ledger::Claim)| ClaimOutcome {
            accepted: claim.claimed.clone(),
            ..ClaimOutcome::empty(claim.chunk, *fence)
        };
        let outcomes = self.ledger.claims().iter().map(accept).collect();
        self.put(Command::Settle(outcomes));
    }

    /// Returns the reports of both nodes about the relay.
    fn reports(&self) -> NodeReports {
        let report = |owner| report(owner, 10, 1_000_000);
        let by_node = self.owners().into_iter().map(|(node, owner)| (node, report(owner))).collect();
        NodeReports { by_node, sharing_nodes: 3, commit: Duration::from_millis(300) }
    }

    fn owners(&self) -> BTreeMap<NodeId, ClaimOwner> {
        let nodes = self.ledger.nodes().iter();
        nodes.map(|(id, node)| (*id, ClaimOwner { node: *id, incarnation: node.incarnation })).collect()
    }

    /// Returns the number of claimed recipients of each node.
    fn held(&self) -> BTreeMap<u64, u32> {
        let mut held = BTreeMap::new();
        for (_, claim) in self.ledger.claims().iter() {
            *held.entry(claim.owner.node.0).or_default() += claim.claimed.len();
        }
        held
    }

    /// Lets a node crash and restart at once; its journal releases its claimed recipients.
    fn crash(&mut self, node: u64) {
        self.die_with(node, &Bitmap::new());
    }

    /// Like [`DispatcherTest::crash`], but these slots were open when the node crashed.
    fn die_with(&mut self, node: u64, open: &Bitmap) {
        let incarnation = self.ledger.nodes().get(&NodeId(node)).expect("a node").incarnation.0;
        self.up(node, incarnation + 1);
        let former = self.ledger.claims().iter().filter(|(_, claim)| claim.owner == owner(node, incarnation));
        let released = |(fence, claim): (&Fence, &reveille_ledger::Claim)| ClaimOutcome {
            source: OutcomeSource::Journal,
            released: vec![
                (ReleaseReason::OwnerCrashed, claim.claimed.and_not(open)),
                (ReleaseReason::OwnerCrashedComposing, claim.claimed.and(open)),
            ],
            ..ClaimOutcome::empty(claim.chunk, *fence)
        };
        let outcomes = former.map(released).collect();
        self.put(Command::Settle(outcomes));
    }
}

fn part(number: u32) -> Hash {
    Hash::of(&number.to_be_bytes())
}

/// Returns the report of a node about the relay.
fn report(owner: ClaimOwner, dialogue_ms: u64, rate_milli: u64) -> NodeReport {
    let flow = RelayFlow { dialogue: Some(Duration::from_millis(dialogue_ms)), rate_milli };
    let settle = Some(Duration::from_millis(10));
    let measured = NodeMeasurements { relays: [("mailbox".to_owned(), flow)].into(), settle };
    let (missing, space) = (BTreeSet::new(), DiskSpace::Ample);
    NodeReport { owner, measured, behind: false, missing, lacks_archive: false, space, stopping: false }
}

fn schedule(recipients: u32) -> ScheduleCreate {
    let recipient = |number: u32| samples::recipient(&format!("r{number}@example.net"));
    samples::schedule(OPENED_AT, (0..recipients).map(recipient).collect())
}

#[test]
fn cap_follows_reports_of_the_owning_incarnation() {
    let test = DispatcherTest::with(1);
    let owners = test.owners();
    let caps = |reports: NodeReports| {
        let caps = reports.caps(&test.ledger, &owners);
        [1, 2].map(|node| caps[&("default", NodeId(node))].of_a_tenant)
    };
    assert_eq!(caps(test.reports()), [CAP, CAP]);
    let mut reports = test.reports();
    reports.by_node.insert(NodeId(1), report(owner(1, 9), 10, 1_000_000));
    reports.by_node.remove(&NodeId(2));
    assert_eq!(caps(reports), [8, 8], "of another process, or without a report, it is not known: four a session");
    let mut reports = test.reports();
    reports.by_node.insert(NodeId(1), report(owner(1, 1), 2_000, 1_000_000));
    assert_eq!(caps(reports), [4, CAP], "each node by its own");
    let mut reports = test.reports();
    reports.by_node.insert(NodeId(2), report(owner(2, 1), 10, 500));
    assert_eq!(caps(reports), [CAP, 3], "by the pace that a throttle left: three begin in time");
}

#[test]
fn relay_with_open_circuit_gets_no_claims() {
    let test = DispatcherTest::with(1);
    let owners = test.owners();
    let mut reports = test.reports();
    reports.by_node.insert(NodeId(1), report(owner(1, 1), 10, 0));
    let caps = reports.caps(&test.ledger, &owners);
    assert_eq!([1, 2].map(|node| caps[&("default", NodeId(node))].of_a_tenant), [0, CAP]);
}

fn offer(tenant: &str, chunk: u32) -> Offer {
    Offer {
        tenant: tenant.into(),
        priority: 0,
        due: OPENED_AT,
        late: false,
        source: ClaimSource { chunk: PAGE.chunk(chunk), pool: "default".into() },
        claimable: 9,
        slots: Default::default(),
        excluded: BTreeSet::new(),
    }
}

#[test]
fn tenants_of_a_pool_share_the_cap() {
    let test = DispatcherTest::with(9);
    let offers = ["a", "b", "c", "d", "e"].map(|tenant| offer(tenant, 0));
    let allowances = allowances_of(&test.ledger, &test.owners(), 3, test.now);
    let caps = [(("default", NodeId(1)), ClaimCap { of_a_tenant: 4, of_all: 7 })].into();
    let credits = credits(&test.ledger, &allowances, &caps, &test.dispatcher.in_flight, &offers);
    let slices = FairQueue::default().next_slices(&offers, &credits, &mut ClaimLimits::default(), SLICES_MAX);
    assert_eq!(slices.iter().map(|slice| slice.recipients).collect::<Vec<_>>(), [4, 3], "{slices:?}");
}

#[test]
fn cap_after_crash_is_an_eighth_and_doubles_every_ten_seconds() {
    let mut test = DispatcherTest::with(1_000);
    test.dispatch();
    assert_eq!(test.held(), [(1, CAP), (2, CAP)].into());
    test.crash(2);
    for part in [8, 4, 2, 1] {
        test.dispatch();
        assert_eq!(test.held(), [(1, CAP), (2, CAP / part)].into());
        test.now = test.now.plus_ms(10_000);
    }
}

#[test]
fn node_after_three_crashes_gets_no_claims_and_other_node_goes_on() {
    let mut test = DispatcherTest::with(1_000);
    for _ in 0..3 {
        test.dispatch();
        test.crash(2);
    }
    test.dispatch();
    assert_eq!(test.held(), [(1, CAP)].into());
    let allowances = allowances_of(&test.ledger, &test.owners(), 3, test.now);
    let in_backoff = allowances.iter().filter(|(_, allowance)| **allowance == Allowance::NONE);
    assert_eq!(in_backoff.map(|(node, _)| *node).collect::<Vec<_>>(), [NodeId(2)]);
}

#[test]
fn when_all_crashed_three_times_one_of_them_goes_on_slowly() {
    let mut test = DispatcherTest::with(1_000);
    for node in [2, 2, 2, 1, 1, 1] {
        test.dispatch();
        test.crash(node);
        test.now = test.now.plus_ms(1_000);
    }
    test.dispatch();
    assert_eq!(test.held(), [(2, CAP / 8)].into(), "the one that crashed least recently");
}

#[test]
fn suspects_are_granted_in_separate_claims_without_waiting() {
    let mut test = DispatcherTest::with(200);
    test.dispatch();
    let open: Bitmap = [3, 5, 7].into_iter().collect();
    test.die_with(1, &open);
    test.die_with(2, &open);
    let wakes: Vec<Vec<ClaimRequest>> = (0..3)
        .map(|_| {
            let claims = test.dispatch();
            // The caps of nodes that crashed grow again, so each wake has credit.
            test.now = test.now.plus_ms(10_000);
            claims
        })
        .collect();
    let with_suspects = wakes.iter().flatten().filter(|claim| !claim.slice.and(&open).is_empty());
    let slices: Vec<&Bitmap> = with_suspects.map(|claim| &claim.slice).collect();
    assert_eq!(slices, [&Bitmap::range(3, 1), &Bitmap::range(5, 1), &Bitmap::range(7, 1)]);
    assert!(wakes[0].len() > 1, "others are claimed beside it");
}

#[test]
fn redirected_recipient_uses_credit_of_its_new_pool() {
    let mut test = DispatcherTest::with(4);
    let dead = |claim: (&Fence, &reveille_ledger::Claim)| {
        let unsendable = claim.1.granted.iter().map(|slot| (slot, Unsendable::NotComposed("no".to_owned()))).collect();
        ClaimOutcome { unsendable, ..ClaimOutcome::empty(claim.1.chunk, *claim.0) }
    };
    assert_eq!(test.dispatch().len(), 1);
    let outcomes = test.ledger.claims().iter().map(dead).collect();
    assert_eq!(test.put(Command::Settle(outcomes)), CommandOutcome::Changed(4));
    let relay = test.ledger.relays().iter().map(|(_, relay)| relay.clone()).next().expect("a relay");
    let bulk = Relay { name: "bulk".into(), pool: "bulk".into(), max_sessions: 1, ..relay };
    test.put(Command::RelayPut(bulk.into()));
    for (recipients, pool) in [(vec![0, 2], Some("bulk".to_owned())), (vec![1, 3], None)] {
        let requeue = Requeue { letters: vec![PickedRecipients { run: RUN, recipients }].into(), pool };
        let moved = ChangedRecipients { recipients: 2, inside_gap: 0 };
        let requeued = CommandOutcome::DeadLetters { moved, cancelled: 0, rest: None };
        assert_eq!(test.put(Command::Requeue(requeue)), requeued);
    }
    let claims = test.dispatch();
    let mut slices: Vec<Vec<u16>> = claims.iter().map(|claim| claim.slice.iter().collect()).collect();
    slices.sort();
    assert_eq!(slices, [vec![0, 2], vec![1, 3]], "a claim is of one pool");
    let page = test.ledger.pages().get(&PAGE).expect("a page");
    let pools =
        test.ledger.claims().iter().map(|(_, claim)| (claim.granted.min(), test.ledger.pool_of_claim(page, claim)));
    let mut pools: Vec<_> = pools.collect();
    pools.sort();
    assert_eq!(pools, [(Some(0), "bulk"), (Some(1), "default")]);
    // Its claimed recipients use the credit of its own pool.
    let (owners, reports) = (test.owners(), test.reports());
    let allowances = allowances_of(&test.ledger, &owners, 3, test.now);
    let caps = reports.caps(&test.ledger, &owners);
    let left = credits(&test.ledger, &allowances, &caps, &test.dispatcher.in_flight, &[]);
    let left = |pool: &str| left.iter().filter(|credit| credit.pool == pool).map(|credit| credit.recipients).sum();
    let whole = |pool: &str| caps.iter().filter(|((of, _), _)| *of == pool).map(|(_, cap)| cap.of_all).sum::<u32>();
    let (bulk, own): (u32, u32) = (left("bulk"), left("default"));
    assert_eq!((bulk, own), (whole("bulk") - 2, whole("default") - 2));
}

/// Returns the number of recipients that are claimed in a second. Each claim is settled at once, and the dispatcher
/// wakes as often as it does while recipients wait.
fn claimed_in_a_second(test: &mut DispatcherTest) -> u32 {
    let mut claimed = 0;
    for _ in 0..20 {
        test.boot += SLEEP_FOR_CREDIT;
        claimed += test.dispatch().iter().map(|claim| claim.slice.len()).sum::<u32>();
        test.settle();
    }
    claimed
}

#[test]
fn page_beyond_credit_of_all_nodes_hides_later_pages_of_its_priority_only() {
    let mut test = DispatcherTest::with(10_000);
    for (name, priority) in [("same", 0), ("urgent", 9)] {
        let create = ScheduleCreate { name: name.to_owned(), priority, ..schedule(3) };
        let created = test.put(Command::ScheduleCreate(Box::new(create)));
        let CommandOutcome::Schedule(id) = created else { panic!("{created:?}") };
        test.fire(id, OpeningCause::Due);
    }
    let missing = test.owners().into_keys().map(|node| (node, BTreeSet::new())).collect();
    let offers = offers(&test.ledger, &missing, &InFlightClaims::default(), test.now);
    let offered: Vec<(u8, u32)> = offers.iter().map(|offer| (offer.priority, offer.claimable)).collect();
    assert_eq!(offered, [(0, 10_000), (9, 3)]);
}

#[test]
fn recipients_due_during_pending_claims_are_claimed_once() {
    let mut test = DispatcherTest::with(40);
    let first = test.plan_only();
    let requested: u32 = first.requests.iter().map(|claim| claim.slice.len()).sum();
    assert_eq!(requested, 40);
    let number = test.dispatcher.in_flight.insert(first.slices);
    let create = ScheduleCreate { name: "second".into(), ..schedule(200) };
    let created = test.put(Command::ScheduleCreate(Box::new(create)));
    let CommandOutcome::Schedule(second) = created else { panic!("{created:?}") };
    let page = test.fire(second, OpeningCause::Due);
    let meanwhile = test.plan_only();
    let pages: BTreeSet<PageId> = meanwhile.requests.iter().map(|claim| claim.chunk.page).collect();
    assert_eq!(pages, [page].into(), "not the page that waits for its answer");
    let requested: u32 = meanwhile.requests.iter().map(|claim| claim.slice.len()).sum();
    assert_eq!(requested, 2 * CAP - 40, "what is on its way uses credit");
    // The proposal never reached the log, so all its recipients are offered again.
    test.dispatcher.in_flight.remove(number);
    let again = test.plan_only();
    assert!(again.requests.iter().any(|claim| claim.chunk.page == PAGE));
}

#[test]
fn claims_of_node_silent_for_a_minute_are_revoked() {
    let mut test = DispatcherTest::with(10);
    let (owner, age) = (owner(1, 1), Duration::from_secs);
    let lost = |test: &DispatcherTest, applied, age| {
        crate::leader::replication_lag::must_lose_lease(&test.ledger, owner, applied, age)
    };
    assert!(!lost(&test, 0, age(600)), "it holds nothing");
    assert!(!test.dispatch().is_empty());
    let applied = test.ledger.head().applied;
    assert!(!lost(&test, applied - 1, age(10)) && lost(&test, applied - 1, age(11)), "it does not know its claim");
    assert!(!lost(&test, applied, age(60)), "it knows what it holds: its state may come in a snapshot");
    assert!(lost(&test, applied, age(61)), "I13: it may settle nothing");
    test.settle();
    assert!(!lost(&test, applied, age(61)));
}

#[test]
fn canary_waiting_for_its_wave_costs_no_further_search() {
    let policies = Policies { canary: Some(Canary { share: 100, limit: 0 }), ..Policies::default() };
    let create = ScheduleCreate { policies, ..schedule(300) };
    let mut test = DispatcherTest::of(&[], create, OpeningCause::Due, (0, 0));
    let waits = |test: &DispatcherTest| {
        let (id, page) = test.ledger.open_pages().next().expect("the page");
        (page.runs[0].has_claimable(), canary_waits(&test.ledger, id, &page.runs[0], test.now))
    };
    assert_eq!(waits(&test), (true, false));
    let requested: u32 = test.dispatch().iter().map(|claim| claim.slice.len()).sum();
    assert_eq!(requested, 3, "one in a hundred");
    let refused =
        |slot| RelayRefusal { slot, code: 450, enhanced: None, text: "later".into(), effect: RefusalEffect::BackOff };
    let outcome = |(fence, claim): (&Fence, &reveille_ledger::Claim)| ClaimOutcome {
        refused: claim.claimed.iter().map(refused).collect(),
        ..ClaimOutcome::empty(claim.chunk, *fence)
    };
    let outcomes = test.ledger.claims().iter().map(outcome).collect();
    test.put(Command::Settle(outcomes));
    assert_eq!(waits(&test), (true, true), "they are pending, and not yet");
    assert_eq!(test.dispatch(), []);
    let (id, _) = test.ledger.open_pages().next().expect("the page");
    let wave = test.ledger.chunks().get(&id.chunk(0)).and_then(|chunk| chunk.next_wave(test.now)).expect("a wave");
    while test.now < wave {
        test.now = wave.min(test.now.plus_ms(60_000));
        assert_eq!(test.put(Command::Tick), CommandOutcome::Done);
    }
    assert!(!waits(&test).1);
    let mut requested = 0;
    for _ in 0..3 {
        requested += test.dispatch().iter().map(|claim| claim.slice.len()).sum::<u32>();
        test.now = test.now.plus_ms(30_000);
        assert_eq!(test.put(Command::Tick), CommandOutcome::Done);
    }
    assert_eq!(requested, 3);
}

//! One history in which every kind of event occurs and nothing is wrong. The bad histories are made from it.
//!
//! It is a minute of three nodes, with faults from 10 s to 40 s: the leader n2 is killed between a dot and its 250 at
//! 21 s, n3 is paused around 30 s, the relay leaves two dots without an answer, a power cut is skipped.

use std::collections::BTreeMap;

use reveille_check::events::*;
use reveille_check::{History, Judgement};

/// Civil time at the beginning.
pub const BEGAN: i64 = 1_780_000_000_000;
/// Number of recipients of the campaign, so that the required rate of emails is reached.
const MANY: u32 = 90;

/// A history that can still be changed.
#[derive(Clone)]
pub struct TestHistory {
    pub header: Header,
    pub events: Vec<Event>,
    pub ended: Ended,
}

pub fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

pub fn ms(seconds: f64) -> i64 {
    BEGAN + (seconds * 1e3) as i64
}

/// Returns the value of a recipient's variable.
pub fn code_of(recipient: &str) -> String {
    format!("code of {recipient}")
}

pub fn fence(epoch: u64, index: u64) -> Fence {
    Fence { group: 1, epoch, index, place: 0 }
}

impl TestHistory {
    /// Judges the history as it is read from a file.
    pub fn judge(&self) -> Judgement {
        let mut writer = Writer::begin(Vec::new(), &self.header).unwrap();
        self.events.iter().for_each(|event| writer.event(event).unwrap());
        let bytes = writer.end(&self.ended).unwrap();
        History::read(bytes.as_slice()).unwrap().judge()
    }

    /// Judges the history without a file, as the simulation does.
    pub fn judge_in_memory(&self) -> Judgement {
        let mut history = History::new(self.header.clone());
        self.events.iter().for_each(|event| history.record(event.clone()));
        history.record(Event::Ended(self.ended.clone()));
        history.close().judge()
    }

    pub fn run(&mut self, run: &str, whose: (&str, &str), due_s: f64, index: u64) {
        self.run_of(run, whose, due_s, index, None);
    }

    /// As `run`, of the trigger with this request id.
    pub fn run_of(&mut self, run: &str, whose: (&str, &str), due_s: f64, index: u64, id: Option<&str>) {
        let cause = if id.is_some() { RunCause::Trigger } else { RunCause::Due };
        self.events.push(Event::Run(Run {
            run: run.into(),
            tenant: whose.0.into(),
            schedule: whose.1.into(),
            due_unix_ms: ms(due_s),
            cause,
            request_id: id.map(Into::into),
            opened_index: index,
            opened_unix_ms: ms(due_s) + 100,
            waited_for: None,
        }));
    }

    pub fn due(&mut self, whose: (&str, &str), due_s: f64, audience: &str) {
        self.events.push(Event::Due(Due {
            tenant: whose.0.into(),
            schedule: whose.1.into(),
            due_unix_ms: ms(due_s),
            audience: audience.into(),
        }));
    }

    pub fn claim(&mut self, run: &str, recipient: &str, fence: Fence, node: (&str, u64), at_s: f64) {
        self.events.push(Event::Claim(Claim {
            fence,
            node: node.0.into(),
            incarnation: node.1,
            run: run.into(),
            recipient: recipient.into(),
            committed_ns: Some(ns(at_s)),
            proposed_ns: None,
            ledger_unix_ms: Some(ms(at_s)),
        }));
    }

    pub fn handoff(&mut self, run: &str, recipient: &str, fence: Fence, node: &str, at_s: f64, answer: Answered) {
        let schedule = self.events.iter().find_map(|event| match event {
            Event::Run(of) if of.run == run => Some(of.schedule),
            _ => None,
        });
        let schedule = schedule.unwrap_or_else(|| "a schedule without a run".into());
        self.events.push(Event::Handoff(Handoff {
            data_ns: ns(at_s - 0.01),
            at_ns: ns(at_s),
            run: run.into(),
            recipient: recipient.into(),
            fence: Some(fence),
            node: node.into(),
            answer,
            message_id: Some(format!("<{run}.{recipient}@example.net>").into()),
            body: Some(format!("what {run} says to {recipient}").into()),
            content: Some(Content {
                schedule,
                run: run.into(),
                recipient: recipient.into(),
                code: code_of(recipient).into(),
            }),
            repeated_headers: Vec::new(),
        }));
    }

    pub fn outcome(&mut self, run: &str, recipient: &str, index: u64, kind: OutcomeKind) {
        let (run, recipient) = (run.into(), recipient.into());
        let (proposed_ns, detail, code) = (None, String::new(), (kind == OutcomeKind::Refused).then_some(550));
        let outcome = Outcome { index, fence: None, run, recipient, kind, code, proposed_ns, detail };
        self.events.push(Event::Outcome(outcome));
    }

    pub fn item_state(&mut self, run: &str, recipient: &str, number: u32, state: RecipientState) {
        let (run, recipient) = (run.into(), recipient.into());
        self.events.push(Event::FinalState(FinalState { run, recipient, number: Some(number), state }));
    }

    /// Adds a recipient that is claimed, accepted and settled.
    pub fn sends(&mut self, run: &str, recipient: (&str, u32), fence: Fence, node: (&str, u64), at_s: f64) {
        self.sends_slowly(run, recipient, fence, node, (at_s - 0.01, at_s));
    }

    /// As `sends`, with the time from DATA to the final dot.
    pub fn sends_slowly(
        &mut self,
        run: &str,
        recipient: (&str, u32),
        fence: Fence,
        node: (&str, u64),
        at_s: (f64, f64),
    ) {
        self.claim(run, recipient.0, fence, node, at_s.0 - 0.04);
        self.handoff(run, recipient.0, fence, node.0, at_s.1, Answered::Accepted);
        let Some(Event::Handoff(mail)) = self.events.last_mut() else { unreachable!() };
        mail.data_ns = ns(at_s.0);
        self.outcome(run, recipient.0, fence.index + 1, OutcomeKind::Sent);
        self.item_state(run, recipient.0, recipient.1, RecipientState::Sent);
    }

    pub fn call(&mut self, from_s: f64, to_s: f64, operation: Operation, answer: Answer) {
        self.events.push(Event::Call(Call {
            client: "c1".to_owned(),
            request_id: None,
            invoked_ns: ns(from_s),
            answered_ns: Some(ns(to_s)),
            operation,
            answer,
        }));
    }

    pub fn call_as(&mut self, id: &str, from_s: f64, operation: Operation, answer: Answer) {
        self.call(from_s, from_s + 0.1, operation, answer);
        let Some(Event::Call(call)) = self.events.last_mut() else { unreachable!() };
        call.request_id = Some(id.to_owned());
    }

    pub fn explained(&mut self, schedule: &str, due_s: f64, outcome: PassedOver) {
        self.events.push(Event::Explained(Explained {
            tenant: "default".into(),
            schedule: schedule.into(),
            first_unix_ms: ms(due_s),
            last_unix_ms: ms(due_s),
            count: 1,
            outcome,
        }));
    }

    pub fn limit(&mut self, tenant: &str, schedules: &[&str], bound: Bound) {
        let (tenants, schedules) = (vec![tenant.to_owned()], schedules.iter().map(|&name| name.to_owned()).collect());
        self.events.push(Event::Limit(Limit { tenants, schedules, from_ns: 0, until_ns: None, bound }));
    }

    pub fn found(&mut self, kind: ObjectKind, name: &str, value: &str) {
        let (tenant, name, value) = ("default".to_owned(), name.to_owned(), value.to_owned());
        self.events.push(Event::Found(Found { kind, tenant, name, value }));
    }

    pub fn fault(&mut self, kind: FaultKind, nodes: &[&str], from_s: f64) -> &mut Fault {
        let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
        let fault = Fault::installed(kind, format!("{kind:?}"), nodes, ns(from_s));
        self.events.push(Event::Fault(Fault { observed: Some(true), ..fault }));
        let Some(Event::Fault(fault)) = self.events.last_mut() else { unreachable!() };
        fault
    }
}

pub fn ok(index: u64) -> Answer {
    Answer::Ok { index: Some(index), run: None, crossed: vec![], unconfirmed: vec![] }
}

pub fn read(kind: ObjectKind, name: &str) -> Operation {
    Operation::Read { kind, tenant: "default".to_owned(), name: name.to_owned() }
}

pub fn shows(value: Option<&str>) -> Answer {
    Answer::Found { value: value.map(str::to_owned) }
}

/// Returns a backfill of the schedule `weekly`.
pub fn backfill(from_s: f64, until_s: f64) -> Operation {
    let (tenant, schedule) = ("default".to_owned(), "weekly".to_owned());
    Operation::Backfill { tenant, schedule, from_unix_ms: ms(from_s), until_unix_ms: ms(until_s) }
}

pub fn write(kind: ObjectKind, name: &str, value: Option<&str>) -> Operation {
    Operation::Write { kind, tenant: "default".to_owned(), name: name.to_owned(), value: value.map(str::to_owned) }
}

fn opt_out(recipient: &str) -> Operation {
    Operation::OptOut { tenant: "default".to_owned(), recipient: recipient.to_owned() }
}

pub fn trigger() -> Operation {
    let (tenant, schedule, audience) = ("default".to_owned(), "asked".to_owned(), "solo".to_owned());
    Operation::Trigger { tenant, schedule, audience }
}

pub fn opened(index: u64, run: &str) -> Answer {
    Answer::Ok { index: Some(index), run: Some(run.to_owned()), crossed: vec![], unconfirmed: vec![] }
}

fn header() -> Header {
    Header {
        format: FORMAT,
        seed: 7,
        command: "reveille-jepsen run --seed 7".to_owned(),
        commit: "0000000".to_owned(),
        began_unix_ms: BEGAN,
        nodes: ["n1", "n2", "n3"].map(str::to_owned).to_vec(),
        voters: None,
        in_doubt: InDoubt::Hold,
        sessions: 8,
        clock_error_ms: 2_000,
        late_ms: 3_000,
        drain_within_ms: 15_000,
        led_within_ms: None,
        start_bound_ms: Some(2_000),
        policies: Policies::default(),
        asks: (1..=19).collect(),
        coverage: Coverage {
            mails_per_second: 3,
            kills_inside_data: 1,
            faults: [FaultKind::Kill, FaultKind::Pause, FaultKind::Relay, FaultKind::PowerCut]
                .map(|kind| (kind, 1))
                .into(),
        },
    }
}

pub fn good() -> TestHistory {
    let ended = Ended { at_ns: ns(60.0), missing: vec![] };
    let mut history = TestHistory { header: header(), events: Vec::new(), ended };
    surroundings(&mut history);
    audiences(&mut history);
    ordinary(&mut history);
    doubtful(&mut history);
    barriers(&mut history);
    administration(&mut history);
    reads(&mut history);
    backfilled(&mut history);
    limited(&mut history);
    gates(&mut history);
    history
}

/// Returns the good history as the recorder of real processes writes it: claims have ledger times only, and outcomes
/// their fences.
pub fn good_real() -> TestHistory {
    let mut history = good();
    let claims: Vec<Claim> = history
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Claim(claim) => Some(*claim),
            _ => None,
        })
        .collect();
    for event in &mut history.events {
        match event {
            Event::Claim(claim) => claim.proposed_ns = claim.committed_ns.take(),
            Event::Outcome(outcome) => {
                let own =
                    claims.iter().filter(|claim| (claim.run, claim.recipient) == (outcome.run, outcome.recipient));
                let fences = own.map(|claim| claim.fence).filter(|fence| fence.index < outcome.index);
                outcome.fence = fences.max();
            }
            _ => {}
        }
    }
    history
}

fn surroundings(history: &mut TestHistory) {
    let node = str::to_owned;
    history.events.extend([
        Event::Phase(Phase { at_ns: ns(10.0), phase: PhaseName::Faults }),
        Event::Phase(Phase { at_ns: ns(40.0), phase: PhaseName::Healed }),
        Event::Drained { at_ns: ns(45.0) },
        Event::EpochStarted(EpochStarted { at_ns: 0, epoch: 10 }),
        Event::Outage(Outage { from_ns: ns(21.0), until_ns: ns(23.0) }),
        Event::EpochStarted(EpochStarted { at_ns: ns(23.0), epoch: 210 }),
        Event::Overload(Overload { tenant: node("default"), from_ns: ns(24.0), until_ns: ns(28.0) }),
    ]);
    for (name, incarnation, from_s, to_s) in [("n1", 1, 0.0, None), ("n3", 1, 0.0, None), ("n2", 2, 24.0, None)]
        .into_iter()
        .chain([("n2", 1, 0.0, Some(21.0))])
    {
        history.events.push(Event::Lifetime(Lifetime {
            node: node(name),
            incarnation: Some(incarnation),
            started_ns: ns(from_s),
            ended_ns: to_s.map(ns),
            end: to_s.map(|_| LifetimeEnd::Killed),
        }));
    }
    for (at_s, claimed) in [(20.95, 1), (24.5, 1), (28.0, 0), (50.0, 0)] {
        let (fence, node) = (fence(10, 202), node("n2"));
        history.events.push(Event::OpenClaim(OpenClaim { at_ns: ns(at_s), fence, node, incarnation: 1, claimed }));
    }
    for (name, index) in [("n1", 150), ("n2", 150), ("n1", 400), ("n2", 400), ("n3", 400)] {
        let hash = format!("hash of {index}");
        history.events.push(Event::StateHash(StateHash { node: node(name), applied_index: index, hash }));
    }
    let kill = history.fault(FaultKind::Kill, &["n2"], 21.0);
    (kill.past_gate, kill.led_epoch) = ([("n2".to_owned(), 1)].into(), Some(10));
    history.fault(FaultKind::Pause, &["n3"], 29.8).past_gate = [("n3".to_owned(), 0)].into();
    history.fault(FaultKind::Relay, &[], 32.0);
    let cut = history.fault(FaultKind::PowerCut, &["n1"], 33.0);
    (cut.status, cut.observed, cut.detail) = (FaultStatus::Skipped, None, "no loop devices".to_owned());
    cut.cannot = true;
}

fn audiences(history: &mut TestHistory) {
    let lists = [
        ("team", ["a", "b", "c"].map(str::to_owned).to_vec()),
        ("solo", vec!["d".to_owned()]),
        ("many", (0..MANY).map(|number| format!("m{number}")).collect()),
    ];
    for (name, recipients) in lists {
        let codes = recipients.iter().map(|recipient| code_of(recipient).into()).collect();
        let recipients = recipients.into_iter().map(Into::into).collect();
        history.events.push(Event::Audience(Audience { name: name.into(), recipients, codes }));
    }
}

/// Adds a refusal and its retry, a dead letter, a campaign, another tenant beside the overload, and an instant during
/// an outage.
fn ordinary(history: &mut TestHistory) {
    let (daily, all) = (("default", "daily"), "team");
    history.due(daily, 5.0, all);
    history.run("r100.0", daily, 5.0, 100);
    history.sends("r100.0", ("a", 0), fence(10, 101), ("n1", 1), 5.3);
    history.claim("r100.0", "b", fence(10, 102), ("n2", 1), 5.1);
    history.handoff("r100.0", "b", fence(10, 102), "n2", 5.3, Answered::Refused);
    history.outcome("r100.0", "b", 103, OutcomeKind::Refused);
    history.sends("r100.0", ("b", 1), fence(10, 110), ("n3", 1), 7.0);
    history.claim("r100.0", "c", fence(10, 104), ("n1", 1), 5.1);
    history.outcome("r100.0", "c", 105, OutcomeKind::Refused);
    history.item_state("r100.0", "c", 2, RecipientState::Dead);

    history.due(("default", "campaign"), 12.0, "many");
    history.run("r120.0", ("default", "campaign"), 12.0, 120);
    for number in 0..MANY {
        let node = [("n1", 1), ("n2", 1), ("n3", 1)][number as usize % 3];
        let at_s = 12.3 + f64::from(number) / 50.0;
        history.sends("r120.0", (&format!("m{number}"), number), fence(10, 121 + u64::from(number / 9)), node, at_s);
    }

    history.due(("acme", "news"), 26.0, "solo");
    history.run("r225.0", ("acme", "news"), 26.0, 225);
    history.sends("r225.0", ("d", 0), fence(210, 226), ("n1", 1), 26.5);

    history.due(daily, 22.0, all);
    history.explained("daily", 22.0, PassedOver::Coalesced);
}

/// Adds a kill between dot and 250, and a relay without answers: an operator closes one doubt, and sends another again.
fn doubtful(history: &mut TestHistory) {
    let daily = ("default", "daily");
    history.due(daily, 20.0, "team");
    history.run("r200.0", daily, 20.0, 200);
    history.sends("r200.0", ("a", 0), fence(10, 201), ("n1", 1), 20.3);
    history.claim("r200.0", "b", fence(10, 202), ("n2", 1), 20.2);
    history.handoff("r200.0", "b", fence(10, 202), "n2", 20.7, Answered::Accepted);
    history.outcome("r200.0", "b", 215, OutcomeKind::InDoubt);
    history.item_state("r200.0", "b", 1, RecipientState::InDoubt);
    history.claim("r200.0", "c", fence(10, 203), ("n3", 1), 20.2);
    history.outcome("r200.0", "c", 204, OutcomeKind::Released);
    history.sends("r200.0", ("c", 2), fence(210, 214), ("n3", 1), 24.0);

    history.due(daily, 34.0, "solo");
    history.run("r250.0", daily, 34.0, 250);
    history.claim("r250.0", "d", fence(210, 251), ("n1", 1), 34.2);
    history.handoff("r250.0", "d", fence(210, 251), "n1", 34.5, Answered::AcceptedUnanswered);
    history.outcome("r250.0", "d", 252, OutcomeKind::InDoubt);
    history.outcome("r250.0", "d", 260, OutcomeKind::Assumed);
    history.item_state("r250.0", "d", 0, RecipientState::Assumed);
    let (run, recipient) = ("r250.0".to_owned(), Some("d".to_owned()));
    history.call(36.0, 36.1, Operation::Assume { run, recipient }, ok(260));

    history.due(daily, 35.0, "solo");
    history.run("r255.0", daily, 35.0, 255);
    history.claim("r255.0", "d", fence(210, 256), ("n1", 1), 35.2);
    history.handoff("r255.0", "d", fence(210, 256), "n1", 35.5, Answered::Nothing);
    history.outcome("r255.0", "d", 257, OutcomeKind::InDoubt);
    history.outcome("r255.0", "d", 261, OutcomeKind::Resent(Decider::Operator));
    history.sends("r255.0", ("d", 0), fence(210, 262), ("n2", 2), 38.0);
    let (run, recipient) = ("r255.0".to_owned(), Some("d".to_owned()));
    history.call(37.0, 37.1, Operation::Resend { run, recipient }, ok(261));
}

/// Adds opt-outs that hold, that name a crossing, or that wait for a node's lease to end, a run that is paused and
/// resumed, a cancelled run, and a schedule that is paused over its instant.
fn barriers(history: &mut TestHistory) {
    let daily = ("default", "daily");
    history.due(daily, 30.0, "team");
    history.run("r230.0", daily, 30.0, 230);
    history.call(27.0, 27.2, opt_out("a"), ok(228));
    history.item_state("r230.0", "a", 0, RecipientState::Suppressed);
    history.sends_slowly("r230.0", ("b", 1), fence(210, 231), ("n1", 1), (30.3, 30.6));
    let crossed = vec![Crossing { run: "r230.0".to_owned(), number: 1, fence: fence(210, 231) }];
    let named = Answer::Ok { index: Some(233), run: None, crossed, unconfirmed: vec![] };
    history.call(30.4, 30.5, opt_out("b"), named);
    history.sends_slowly("r230.0", ("c", 2), fence(210, 232), ("n3", 1), (30.3, 39.0));
    let waited = Answer::Ok { index: Some(234), run: None, crossed: vec![], unconfirmed: vec!["n3".to_owned()] };
    history.call(30.4, 36.0, opt_out("c"), waited);

    history.due(("default", "ping"), 25.0, "solo");
    history.run("r220.0", ("default", "ping"), 25.0, 220);
    let target = || Target::Run("r220.0".to_owned());
    history.call(25.15, 25.2, Operation::Pause { target: target() }, ok(221));
    history.call(28.0, 28.1, Operation::Resume { target: target() }, ok(229));
    history.sends("r220.0", ("d", 0), fence(210, 235), ("n2", 2), 29.0);

    let target = || Target::Schedule { tenant: "default".to_owned(), schedule: "weekly".to_owned() };
    history.call(8.0, 8.1, Operation::Pause { target: target() }, ok(115));
    history.due(("default", "weekly"), 16.0, "solo");
    history.explained("weekly", 16.0, PassedOver::Coalesced);
    history.call(18.0, 18.1, Operation::Resume { target: target() }, ok(190));

    history.call_as("t1", 41.0, trigger(), opened(300, "r300.0"));
    history.call_as("t1", 41.5, trigger(), opened(300, "r300.0"));
    history.run_of("r300.0", ("default", "asked"), 41.0, 300, Some("t1"));
    history.sends("r300.0", ("d", 0), fence(210, 301), ("n1", 1), 41.3);
    history.call_as("t2", 42.0, trigger(), opened(310, "r310.0"));
    history.run_of("r310.0", ("default", "asked"), 42.0, 310, Some("t2"));
    history.item_state("r310.0", "d", 0, RecipientState::Cancelled);
    let target = Target::Run("r310.0".to_owned());
    history.call(42.2, 42.3, Operation::Cancel { target }, ok(311));
}

/// Adds writes that were answered, refused, or left without an answer, a deletion, and an opt-out that was withdrawn.
fn administration(history: &mut TestHistory) {
    let schedule = ObjectKind::Schedule;
    history.call(1.0, 1.1, write(schedule, "daily", Some("v1")), ok(20));
    history.call(9.0, 9.1, write(schedule, "daily", Some("v2")), ok(116));
    history.call(22.0, 27.0, write(schedule, "daily", Some("v3")), Answer::Unknown);
    let conflict = Answer::Failed { reason: "CONFLICT".to_owned() };
    history.call(9.5, 9.6, write(schedule, "daily", Some("v9")), conflict);
    history.call(1.0, 1.1, write(schedule, "old", Some("v1")), ok(21));
    history.call(9.0, 9.1, write(schedule, "old", None), ok(117));
    history.found(schedule, "daily", "v2");
    for recipient in ["a", "b", "c"] {
        history.found(ObjectKind::OptOut, recipient, "opted_out");
    }
    erased(history);
    history.call(2.0, 2.1, opt_out("m0"), ok(22));
    let take_back = Operation::TakeBack { tenant: "default".to_owned(), recipient: "m0".to_owned() };
    history.call(3.0, 3.1, take_back, ok(23));
}

/// Adds two versions of a template, a sealed audience, and a person who is erased: an opt-out, and no place any more.
fn erased(history: &mut TestHistory) {
    for (version, value, index) in [("letter@1", "first", 25), ("letter@2", "second", 26)] {
        history.call(4.0, 4.1, write(ObjectKind::TemplateVersion, version, Some(value)), ok(index));
        history.found(ObjectKind::TemplateVersion, version, value);
    }
    history.call(4.0, 4.1, write(ObjectKind::Audience, "list", Some("6 in 1")), ok(27));
    history.found(ObjectKind::Audience, "list", "6 in 1");
    history.call(4.0, 4.1, write(ObjectKind::Person, "e", Some(LISTED)), ok(28));
    history.call(27.0, 27.5, opt_out("e"), ok(240));
    history.call(27.0, 28.5, write(ObjectKind::Person, "e", None), ok(241));
    history.found(ObjectKind::OptOut, "e", OPTED_OUT);
}

/// Adds reads before, during and after these writes. A write without an answer is finally read, and remains. Two other
/// writes are under way together, and the value that is read last remains.
fn reads(history: &mut TestHistory) {
    let schedule = ObjectKind::Schedule;
    let mut saw = |kind, name: &str, at_s: f64, value: Option<&str>| {
        history.call(at_s, at_s + 0.1, read(kind, name), shows(value));
    };
    for (at_s, value) in [(0.5, None), (1.05, Some("v1")), (5.0, Some("v1")), (9.05, Some("v2")), (30.0, Some("v2"))] {
        saw(schedule, "daily", at_s, value);
    }
    for (at_s, value) in [(1.05, None), (5.0, Some("v1")), (9.05, Some("v1")), (9.2, None), (30.0, None)] {
        saw(schedule, "old", at_s, value);
    }
    saw(ObjectKind::OptOut, "a", 26.0, None);
    saw(ObjectKind::OptOut, "a", 28.0, Some("opted_out"));
    for (at_s, value) in [(21.0, "v1"), (24.0, "v1"), (29.0, "v2"), (31.0, "v2")] {
        saw(schedule, "unanswered", at_s, Some(value));
    }
    for (at_s, value) in [(28.0, "v2"), (29.0, "v3"), (30.0, "v3")] {
        saw(schedule, "both", at_s, Some(value));
    }
    for name in ["unanswered", "both"] {
        history.call(1.0, 1.1, write(schedule, name, Some("v1")), ok(24));
        history.call(22.0, 27.0, write(schedule, name, Some("v2")), Answer::Unknown);
    }
    history.call(22.0, 27.0, write(schedule, "both", Some("v3")), Answer::Unknown);
    history.found(schedule, "unanswered", "v2");
    history.found(schedule, "both", "v3");
    history.call(5.0, 5.2, read(schedule, "daily"), Answer::Unknown);
}

/// Adds an instant during a pause that a backfill opens.
fn backfilled(history: &mut TestHistory) {
    let weekly = ("default", "weekly");
    history.due(weekly, 17.0, "solo");
    history.run("r270.0", weekly, 17.0, 270);
    let Some(Event::Run(run)) = history.events.last_mut() else { unreachable!() };
    (run.cause, run.opened_unix_ms) = (RunCause::Backfill, ms(38.5));
    history.call(38.4, 38.6, backfill(16.5, 17.5), opened(270, "r270.0"));
    history.sends("r270.0", ("d", 0), fence(210, 271), ("n1", 1), 39.0);
}

/// Adds limits: the campaign has a relay and a pool of its own, another tenant has a rate, and a schedule has a gap.
fn limited(history: &mut TestHistory) {
    history.limit("default", &["campaign"], Bound::RelayRate { per_second_milli: 50_000, sessions: 4 });
    history.limit("default", &["campaign"], Bound::WarmUp { first_day: BEGAN / 86_400_000, caps: vec![MANY + 5] });
    history.limit("acme", &[], Bound::TenantRate { per_second_milli: 1_000 });
    history.limit("default", &["daily"], Bound::MinGap { gap_ms: 1_000 });
    history.limit("default", &[], Bound::MaxAttempts { attempts: 2 });
}

/// Adds gate readings: each process passed its gate once for each of its dots that arrived, and three times more, for
/// emails that were lost.
fn gates(history: &mut TestHistory) {
    let mut passes: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for event in &history.events {
        if let Event::Handoff(mail) = event {
            let lifetime = if mail.node == "n2" && mail.at_ns > ns(22.0) { 2 } else { 1 };
            *passes.entry((mail.node.to_string(), lifetime)).or_insert(3) += 1;
        }
    }
    for ((node, incarnation), passes) in passes {
        history.events.push(Event::GateReading(GateReading { at_ns: None, node, incarnation, passes }));
    }
}

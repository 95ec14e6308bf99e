//! Any interleaving of commands keeps the invariants, and the state is a function of the log alone.
//!
//! Commands are drawn against the state as it is, with some that are stale, repeated or plain wrong, as
//! a log that went through elections and lost answers would hold them.

use proptest::prelude::*;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::check::check;
use reveille_ledger::command::*;
use reveille_ledger::content::{Audience, Content, Recipient};
use reveille_ledger::decide::calendar::When;
use reveille_ledger::ids::*;
use reveille_ledger::policy::Policies;
use reveille_ledger::reply::{Outcome, Reply};
use reveille_ledger::{Ledger, Standing};

/// What a step is drawn from; the numbers pick among what exists when its turn comes.
#[derive(Clone, Debug)]
enum Step {
    Epoch(u8),
    Up(u8),
    Wait(u32),
    Create(u8, u16),
    Trigger(u8, u8),
    Pause(u8),
    Resume(u8),
    Delete(u8),
    Fire(u8),
    Claim(u8, u8, u8),
    Settle(u8, u8, Vec<u8>),
    Again(u8),
    Revoke(u8),
    Expire,
    Run(u8, u8),
    Decide(u8, bool),
    Requeue(u8, bool),
    OptOut(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let small = any::<u8>;
    prop_oneof![
        1 => small().prop_map(Step::Epoch),
        1 => small().prop_map(Step::Up),
        2 => (0u32..50_000).prop_map(Step::Wait),
        2 => (small(), 1u16..40).prop_map(|(name, size)| Step::Create(name, size)),
        2 => (small(), 0u8..4).prop_map(|(which, request)| Step::Trigger(which, request)),
        1 => small().prop_map(Step::Pause),
        1 => small().prop_map(Step::Resume),
        1 => small().prop_map(Step::Delete),
        3 => small().prop_map(Step::Fire),
        6 => (small(), small(), small()).prop_map(|(page, holder, take)| Step::Claim(page, holder, take)),
        8 => (small(), small(), prop::collection::vec(small(), 1..20)).prop_map(|(row, kind, picks)| Step::Settle(row, kind, picks)),
        3 => small().prop_map(Step::Again),
        1 => small().prop_map(Step::Revoke),
        1 => Just(Step::Expire),
        1 => (small(), 0u8..3).prop_map(|(run, what)| Step::Run(run, what)),
        1 => (small(), any::<bool>()).prop_map(|(run, resend)| Step::Decide(run, resend)),
        1 => (small(), any::<bool>()).prop_map(|(run, discard)| Step::Requeue(run, discard)),
        1 => small().prop_map(Step::OptOut),
    ]
}

/// The log so far and the state that it made.
struct World {
    ledger: Ledger,
    log: Vec<Entry>,
    replies: Vec<Reply>,
    settles: Vec<Command>,
    fences: Vec<(RunId, u32, Fence, Bitmap)>,
}

fn pick<T: Clone>(items: &[T], number: u8) -> Option<T> {
    (!items.is_empty()).then(|| items[usize::from(number) % items.len()].clone())
}

impl World {
    fn new() -> World {
        let mut world = World { ledger: Ledger::new(), log: vec![], replies: vec![], settles: vec![], fences: vec![] };
        world.take(Step::Epoch(0));
        world.take(Step::Up(0));
        world
    }

    fn put(&mut self, command: Command) -> Outcome {
        let head = self.ledger.head();
        let epoch = head.epoch.map(|epoch| epoch.epoch).unwrap_or_default();
        let entry = Entry { epoch, now: head.now, command };
        self.put_entry(entry)
    }

    fn put_entry(&mut self, entry: Entry) -> Outcome {
        let index = self.log.len() as u64 + 1;
        let entry = Entry::from_bytes(&entry.to_bytes()).expect("an entry reads back");
        let before = self.terminal_counts();
        let applied = self.ledger.apply(index, &entry);
        if let (Command::Claim(claims), Outcome::Claimed(fences)) = (&entry.command, &applied.reply.outcome) {
            for (claim, fence) in claims.iter().zip(fences) {
                if let Ok(fence) = fence {
                    self.fences.push((claim.page, claim.chunk, *fence, claim.slice.clone()));
                }
            }
        }
        if matches!(entry.command, Command::Settle(_)) {
            assert!(before.0 <= self.terminal_counts().0, "P4: an accept is true for ever");
            self.settles.push(entry.command.clone());
        }
        let violations = check(&self.ledger);
        assert!(violations.is_empty(), "after entry {index} {entry:?}: {violations:?}");
        self.log.push(entry);
        self.replies.push(applied.reply.clone());
        applied.reply.outcome
    }

    fn terminal_counts(&self) -> (u32, u32) {
        self.ledger
            .runs()
            .fold((0, 0), |(sent, all), (_, _, run)| (sent + run.counts.get(Standing::Sent), all + run.count))
    }

    fn runs(&self) -> Vec<RunId> {
        self.ledger.runs().map(|(id, _, _)| id).collect()
    }

    fn schedules(&self) -> Vec<ScheduleId> {
        self.ledger.schedules().iter().map(|(id, _)| *id).collect()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Epoch(node) => {
                let node = NodeId(u64::from(node % 3));
                let wall = self.ledger.head().now.plus_ms(i64::from(node.0 as u32) * 700);
                let readings = vec![Reading { node, wall }, Reading { node: NodeId(9), wall: wall.plus_ms(900) }];
                let leader = Holder { node, incarnation: Incarnation(1) };
                let command = Command::EpochStart(EpochStart { leader, voters: 3, readings });
                self.put_entry(Entry { epoch: Epoch(0), now: Time(0), command });
            }
            Step::Up(node) => {
                let id = NodeId(u64::from(node % 3));
                let known = self.ledger.nodes().get(&id).map_or(0, |node| node.incarnation.0);
                let incarnation = Incarnation((known + 1).saturating_sub(u64::from(node > 200)));
                let holder = Holder { node: id, incarnation };
                let up = NodeUp { holder, name: format!("n{}", id.0), level: 1, life: u64::from(node) };
                self.put(Command::NodeUp(up));
            }
            Step::Wait(milliseconds) => {
                let head = self.ledger.head();
                let epoch = head.epoch.map(|epoch| epoch.epoch).unwrap_or_default();
                let now = head.now.plus_ms(i64::from(milliseconds));
                self.put_entry(Entry { epoch, now, command: Command::Tick });
            }
            Step::Create(name, size) => {
                let create = schedule(name % 6, size, self.ledger.head().now);
                self.put(Command::ScheduleCreate(Box::new(create)));
            }
            Step::Trigger(which, request) => {
                let Some(schedule) = pick(&self.schedules(), which) else { return };
                self.put(Command::Trigger(Trigger { schedule, request: request.to_string() }));
            }
            Step::Pause(which) => {
                let Some(schedule) = pick(&self.schedules(), which) else { return };
                self.put(Command::SchedulePause(SchedulePause { schedule, reason: "rest".into() }));
            }
            Step::Resume(which) => {
                let Some(schedule) = pick(&self.schedules(), which) else { return };
                let Some(plan) = self.ledger.schedules().get(&schedule).map(|s| s.plan.version) else { return };
                let plan_version = plan - u64::from(which > 220);
                self.put(Command::ScheduleResume(ScheduleResume { schedule, plan_version }));
            }
            Step::Delete(which) => {
                let Some(schedule) = pick(&self.schedules(), which) else { return };
                self.put(Command::ScheduleDelete(schedule));
            }
            Step::Fire(which) => self.fire(which),
            Step::Claim(page, holder, take) => {
                let pages: Vec<RunId> = self.ledger.pages().iter().map(|(id, _)| *id).collect();
                let Some(page) = pick(&pages, page) else { return };
                let node = NodeId(u64::from(holder % 3));
                let incarnation = self.ledger.nodes().get(&node).map_or(Incarnation(7), |node| node.incarnation);
                let slice = Bitmap::range(u32::from(take % 20), 1 + u32::from(take / 16));
                let holder = Holder { node, incarnation };
                self.put(Command::Claim(vec![Claim { page, chunk: 0, slice, holder }]));
            }
            Step::Settle(row, kind, picks) => self.settle(row, kind, &picks),
            Step::Again(which) => {
                let Some(settle) = pick(&self.settles, which) else { return };
                let before = self.ledger.state_hash_without_head();
                self.put(settle.clone());
                let once = self.ledger.state_hash_without_head();
                self.put(settle);
                assert_eq!(once, self.ledger.state_hash_without_head(), "P4: a settle that comes twice");
                let _ = before;
            }
            Step::Revoke(which) => {
                let Some((_, _, fence, _)) = pick(&self.fences, which) else { return };
                self.put(Command::Revoke(vec![fence]));
            }
            Step::Expire => {
                let runs = self.runs();
                self.put(Command::Expire(runs));
            }
            Step::Run(which, what) => {
                let Some(run) = pick(&self.runs(), which) else { return };
                self.put(match what {
                    0 => Command::RunPause(RunPause { run, reason: "look".into() }),
                    1 => Command::RunResume(run),
                    _ => Command::RunCancel(run),
                });
            }
            Step::Decide(which, resend) => {
                let Some(run) = pick(&self.runs(), which) else { return };
                let decision = if resend { Decision::Resend } else { Decision::Assume };
                let recipients = if which % 2 == 0 { vec![] } else { vec![0, 2, 5] };
                self.put(Command::Decide(Decide { run, recipients, decision }));
            }
            Step::Requeue(which, discard) => {
                let Some(run) = pick(&self.runs(), which) else { return };
                let picked = Picked { run, recipients: vec![] };
                self.put(if discard { Command::Discard(picked) } else { Command::Requeue(picked) });
            }
            Step::OptOut(which) => {
                self.put(Command::OptOut(OptOut { tenant: "default".into(), key: format!("u{which}@x.org") }));
            }
        }
    }

    fn fire(&mut self, which: u8) {
        let Some(id) = pick(&self.schedules(), which) else { return };
        let Some(schedule) = self.ledger.schedules().get(&id) else { return };
        let Some(next) = schedule.plan.next.clone() else { return };
        let following = next.due.plus_ms(60_000);
        let fire = Fire {
            schedule: id,
            plan_version: schedule.plan.version + u64::from(which > 240),
            from: next.nominal.clone(),
            opened: vec![Opening {
                nominal: next.nominal.clone(),
                due: next.due,
                cause: Cause::Due,
                finish_by: next.due.plus_ms(120_000),
            }],
            explained: vec![],
            through: next.due,
            next: Some(Next { nominal: Nominal::Instant(following), due: following }),
            tzdb: "test".into(),
        };
        // The same fire twice in one entry: a leader whose first proposal had no answer.
        self.put(Command::Fire(vec![fire.clone(), fire]));
    }

    fn settle(&mut self, row: u8, kind: u8, picks: &[u8]) {
        let Some((page, chunk, fence, slice)) = pick(&self.fences, row) else { return };
        let slots: Vec<u16> = slice.iter().collect();
        let chosen: Vec<u16> = picks.iter().filter_map(|number| pick(&slots, *number)).collect();
        let set: Bitmap = chosen.iter().copied().chain([kind.into()]).collect();
        let mut outcome = RowOutcome::empty(page, chunk, fence);
        match kind % 6 {
            0 | 1 => outcome.accepted = set,
            2 => outcome.released = set,
            3 => outcome.in_doubt = set,
            4 => outcome.suppressed = set,
            _ => {
                let codes = [(450, Scope::Mailbox), (550, Scope::Mailbox), (421, Scope::Relay), (554, Scope::Policy)];
                for slot in chosen {
                    let (code, scope) = codes[usize::from(kind / 6) % codes.len()];
                    outcome.refused.push(Refused { slot, code, enhanced: None, text: "no".into(), scope });
                }
            }
        }
        self.put(Command::Settle(vec![outcome]));
    }
}

fn schedule(name: u8, size: u16, now: Time) -> ScheduleCreate {
    let recipient = |number: u16| Recipient {
        address: format!("u{number}@x.org"),
        key: format!("u{number}@x.org"),
        values: vec![],
    };
    let due = now.plus_ms(1_000);
    ScheduleCreate {
        request: (name.is_multiple_of(2)).then(|| format!("request {name}")),
        tenant: "default".into(),
        name: format!("s{name}"),
        when: When::Every { period_ms: 60_000, anchor_ms: 0 },
        zone: "UTC".into(),
        start: None,
        end: None,
        max_runs: None,
        policies: Policies { max_attempts: 3, ..Policies::default() },
        pool: "default".into(),
        priority: 0,
        paused: None,
        content: Content {
            sender: "a@x.org".into(),
            reply_to: None,
            subject: "s".into(),
            text: Some("t".into()),
            html: None,
            headers: vec![],
            variables: vec![],
        },
        audience: Audience { columns: vec![], recipients: (0..size).map(recipient).collect() },
        after: now,
        next: Some(Next { nominal: Nominal::Instant(due), due }),
        tzdb: "test".into(),
    }
}

/// The rows but the head, which moves with every entry.
trait WithoutHead {
    fn state_hash_without_head(&self) -> Vec<(Vec<u8>, Vec<u8>)>;
}

impl WithoutHead for Ledger {
    fn state_hash_without_head(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.all_rows().skip(1).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_interleaving_keeps_the_invariants(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
    }

    #[test]
    fn a_replay_is_the_same_as_having_been_there(steps in prop::collection::vec(step(), 1..80), cut in any::<prop::sample::Index>()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        let mut replayed = Ledger::new();
        let mut mirror: std::collections::BTreeMap<Vec<u8>, Vec<u8>> = std::collections::BTreeMap::new();
        let cut = cut.index(world.log.len());
        let mut restored = None;
        for (place, entry) in world.log.iter().enumerate() {
            let index = place as u64 + 1;
            let reply = replayed.apply(index, entry).reply;
            prop_assert_eq!(&reply, &world.replies[place], "replay = live");
            for (key, value) in replayed.take_changes() {
                match value {
                    Some(value) => mirror.insert(key, value),
                    None => mirror.remove(&key),
                };
            }
            if place == cut {
                restored = Some(Ledger::from_rows(mirror.clone()).expect("the mirror reads back"));
            } else if let Some(restored) = &mut restored {
                prop_assert_eq!(&restored.apply(index, entry).reply, &reply, "snapshot + tail = full replay");
            }
        }
        prop_assert_eq!(replayed.state_hash(), world.ledger.state_hash());
        prop_assert_eq!(restored.expect("cut").state_hash(), world.ledger.state_hash());
        let rows: Vec<_> = world.ledger.all_rows().collect();
        prop_assert!(rows.is_sorted_by(|one, other| one.0 < other.0), "rows come in the order of their keys");
        prop_assert_eq!(rows, mirror.into_iter().collect::<Vec<_>>(), "the changes are the whole state");
    }
}

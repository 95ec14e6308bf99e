//! Any interleaving of commands keeps the invariants, and the state depends on the log alone.
//!
//! Commands are generated for the present state. Some are stale, repeated or invalid, like those in a log with
//! elections and lost answers.

mod events;
mod oracle;

use std::collections::BTreeSet;

use events::EventReader;
use proptest::prelude::*;
use reveille_ledger::access::Access;
use reveille_ledger::bitmap::{Bitmap, CHUNK};
use reveille_ledger::calendar::When;
use reveille_ledger::canary::Canary;
use reveille_ledger::command::*;
use reveille_ledger::content::{Audience, AudienceChoice, NamedAudience, Recipient, Seal};
use reveille_ledger::ids::*;
use reveille_ledger::instant_range::InstantRange;
use reveille_ledger::invariants::violations;
use reveille_ledger::planning::archive::{ArchiveCursor, next_batch};
use reveille_ledger::policy::{Overlap, Policies};
use reveille_ledger::pool::PoolSet;
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use reveille_ledger::restore::Restore;
use reveille_ledger::tenant::TenantSet;
use reveille_ledger::token::{Rights, TenantScope, TokenGrant};
use reveille_ledger::{Ledger, RecipientState, Run, ScheduleTiming};

use crate::given::GivenTexts;
use crate::plain;

/// One step of a test. Its numbers select among what exists when it is executed.
#[derive(Clone, Debug)]
enum Step {
    Epoch(u8),
    Up(u8),
    Wait(u32),
    Create(u8, u16),
    Trigger(u8, u8),
    Pause(u8),
    Resume(u8),
    Edit(u8, u8),
    Backfill(u8, u8),
    Archive(u8),
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
    Stray(u8, u8),
    Leap(u32),
    Tenant(u8),
    WarmUp(u8),
    Restore(u32),
    Accept,
}

fn step() -> impl Strategy<Value = Step> {
    let small = any::<u8>;
    prop_oneof![
        1 => small().prop_map(Step::Epoch),
        1 => small().prop_map(Step::Up),
        2 => (0u32..50_000).prop_map(Step::Wait),
        2 => (small(), prop_oneof![3 => 1u16..4, 1 => 4u16..40]).prop_map(|(name, size)| Step::Create(name, size)),
        2 => (small(), 0u8..4).prop_map(|(which, request)| Step::Trigger(which, request)),
        1 => small().prop_map(Step::Pause),
        1 => small().prop_map(Step::Resume),
        1 => (small(), small()).prop_map(|(which, what)| Step::Edit(which, what)),
        1 => (small(), small()).prop_map(|(which, back)| Step::Backfill(which, back)),
        1 => small().prop_map(Step::Archive),
        1 => small().prop_map(Step::Delete),
        3 => small().prop_map(Step::Fire),
        6 => (small(), small(), small()).prop_map(|(page, owner, take)| Step::Claim(page, owner, take)),
        8 => (small(), small(), prop::collection::vec(small(), 1..20)).prop_map(|(row, kind, picks)| Step::Settle(row, kind, picks)),
        3 => small().prop_map(Step::Again),
        1 => small().prop_map(Step::Revoke),
        1 => Just(Step::Expire),
        1 => (small(), 0u8..4).prop_map(|(run, what)| Step::Run(run, what)),
        1 => (small(), any::<bool>()).prop_map(|(run, resend)| Step::Decide(run, resend)),
        1 => (small(), any::<bool>()).prop_map(|(run, discard)| Step::Requeue(run, discard)),
        1 => small().prop_map(Step::OptOut),
        2 => (small(), small()).prop_map(|(kind, row)| Step::Stray(kind, row)),
        1 => (0u32..900_000).prop_map(Step::Leap),
        1 => small().prop_map(Step::Tenant),
        1 => small().prop_map(Step::WarmUp),
        1 => (0u32..4_000_000).prop_map(Step::Restore),
        2 => Just(Step::Accept),
    ]
}

/// The log so far, and the resulting state.
struct TestLedger {
    ledger: Ledger,
    log: Vec<(u64, Entry)>,
    replies: Vec<CommandReply>,
    settles: Vec<Command>,
    fences: Vec<(ChunkKey, Fence, Bitmap)>,
    events: EventReader,
}

fn pick<T: Clone>(items: &[T], number: u8) -> Option<T> {
    (!items.is_empty()).then(|| items[usize::from(number) % items.len()].clone())
}

impl TestLedger {
    fn new() -> TestLedger {
        let (ledger, events) = (Ledger::new(), EventReader::default());
        let mut test = TestLedger { ledger, log: vec![], replies: vec![], settles: vec![], fences: vec![], events };
        test.take(Step::Epoch(0));
        test.take(Step::Up(0));
        for pool in ["default", "other"] {
            let relay = Relay {
                name: pool.into(),
                pool: pool.into(),
                host: "127.0.0.1".into(),
                port: 25,
                access: Access::default(),
                rate_milli: 0,
                max_sessions: 4,
                late_rate_milli: 0,
                weight: 1,
            };
            test.put(Command::RelayPut(RelayPut { replace: false, ..relay.into() }));
        }
        for rows in SEALED {
            let seal = AudienceSeal { request: None, tenant: "default".into(), seal: seal(rows) };
            assert_eq!(test.put(Command::AudienceSeal(seal)), CommandOutcome::Done);
        }
        test
    }

    fn put(&mut self, command: Command) -> CommandOutcome {
        let entry = self.entry(command);
        self.put_entry(entry)
    }

    fn put_entry(&mut self, entry: Entry) -> CommandOutcome {
        let index = self.index_of(&entry.command);
        let entry = Entry::from_bytes(&entry.to_bytes()).expect("an entry reads back");
        let before = self.ledger.clone();
        let applied = self.ledger.apply(index, &entry);
        if let (Command::Claim(claims), CommandOutcome::Claimed(fences)) = (&entry.command, &applied.reply.outcome) {
            for (claim, fence) in claims.iter().zip(fences) {
                if let Ok(fence) = fence {
                    self.fences.push((claim.chunk, *fence, claim.slice.clone()));
                }
            }
        }
        if matches!(entry.command, Command::Settle(_)) {
            self.settles.push(entry.command.clone());
        }
        oracle::judge(&before, &entry, &self.ledger, matches!(applied.reply.outcome, CommandOutcome::Refused(_)));
        let violations = violations(&self.ledger);
        assert!(violations.is_empty(), "after entry {index} {entry:?}: {violations:?}");
        self.events.read(&self.ledger);
        self.log.push((index, entry));
        self.replies.push(applied.reply.clone());
        applied.reply.outcome
    }

    /// Index of the next entry. A restore is applied offline, at an index far above the others.
    fn index_of(&self, command: &Command) -> u64 {
        let is_restore = matches!(command, Command::Restore(_));
        self.ledger.head().applied + if is_restore { self.ledger.limits().restore_ahead } else { 1 }
    }

    /// A node of the present cluster: the ids of the former ones are never used again.
    fn node(&self, number: u8) -> NodeId {
        NodeId(u64::from(number % 3) + 10 * (self.ledger.head().cluster_incarnation - 1))
    }

    fn restore(&mut self, later_ms: u32) {
        let (rights, tenants) = (Rights(1), TenantScope::All);
        let grant = TokenGrant { name: "admin".into(), hash: Hash([7; 32]), rights, tenants, expires_at: None };
        let restore = Restore { former_cluster: self.log.len() as u128, token: TokenId(1), grant };
        let now = self.ledger.head().now.plus_ms(i64::from(later_ms));
        let command = Command::Restore(Box::new(restore));
        self.put_entry(Entry { epoch: Epoch(0), now, actor: Actor::System, command });
        let open = |run: &Run| run.counts.get(RecipientState::Pending) + run.counts.get(RecipientState::Claimed);
        assert_eq!(self.ledger.runs().map(|(_, _, run)| open(run)).sum::<u32>(), 0, "P21: what may have been sent");
        assert!(self.ledger.nodes().is_empty() && self.ledger.tokens().len() == 1, "P21: nodes and tokens");
    }

    fn runs(&self) -> Vec<RunId> {
        self.ledger.runs().map(|(id, _, _)| id).collect()
    }

    /// Returns these recipient numbers, and those at the borders of chunks if the run has several.
    fn known(&self, run: RunId, numbers: &[u32]) -> Vec<u32> {
        let count = self.ledger.run(run).map_or(0, |run| run.count);
        let borders = (1..count.div_ceil(CHUNK)).flat_map(|chunk| chunk * CHUNK - 3..chunk * CHUNK + 3);
        numbers.iter().copied().chain(borders).collect()
    }

    fn schedules(&self) -> Vec<ScheduleId> {
        self.ledger.schedules().iter().map(|(id, _)| *id).collect()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Epoch(node) => {
                let wall = self.ledger.head().now.plus_ms(i64::from(node % 3) * 700);
                self.epoch(self.node(node), wall);
            }
            Step::Up(node) => {
                let id = self.node(node);
                let known = self.ledger.nodes().get(&id).map_or(0, |node| node.incarnation.0);
                let incarnation = Incarnation((known + 1).saturating_sub(u64::from(node > 200)));
                let owner = ClaimOwner { node: id, incarnation };
                let up = NodeUp { owner, name: format!("n{}", id.0), level: 1, process_nonce: u64::from(node) };
                self.put(Command::NodeUp(up));
            }
            Step::Wait(milliseconds) => {
                let head = self.ledger.head();
                let epoch = head.current_epoch().unwrap_or_default();
                let now = head.now.plus_ms(i64::from(milliseconds));
                self.put_entry(Entry { epoch, now, actor: Actor::System, command: Command::Tick });
            }
            Step::Create(name, size) => {
                let create = schedule(name % NAMES, size, self.ledger.head().now);
                self.put(Command::ScheduleCreate(Box::new(create)));
            }
            Step::Trigger(which, request) => {
                let Some(schedule) = pick(&self.schedules(), which) else { return };
                self.put(Command::Trigger(Trigger::new(schedule, request.to_string())));
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
            Step::Edit(which, what) => self.edit(which, what),
            Step::Backfill(which, back) => self.backfill(which, back),
            Step::Archive(which) => self.archive(which),
            Step::Delete(which) => {
                let Some(schedule) = pick(&self.schedules(), which) else { return };
                self.put(Command::ScheduleDelete(ScheduleDelete { schedule, expected: None }));
            }
            Step::Fire(which) => self.fire(which),
            Step::Claim(page, owner, take) => {
                let pages: Vec<(PageId, u32)> =
                    self.ledger.pages().iter().map(|(id, page)| (*id, page.slots)).collect();
                let Some((page, slots)) = pick(&pages, page) else { return };
                let node = self.node(owner);
                let incarnation = self.ledger.nodes().get(&node).map_or(Incarnation(7), |node| node.incarnation);
                let chunk = u32::from(owner / 3) % slots.div_ceil(CHUNK);
                let slice = slice(CHUNK.min(slots - chunk * CHUNK), take);
                let owner = ClaimOwner { node, incarnation };
                self.put(Command::Claim(vec![ClaimRequest { chunk: page.chunk(chunk), slice, owner }]));
            }
            Step::Settle(row, kind, picks) => self.settle(row, kind, &picks),
            Step::Again(which) => {
                let Some(settle) = pick(&self.settles, which) else { return };
                self.put(settle.clone());
                let once = rows_without_head(&self.ledger);
                self.put(settle);
                assert_eq!(once, rows_without_head(&self.ledger), "P4: a settle that comes twice");
            }
            Step::Revoke(which) => {
                let Some((_, fence, _)) = pick(&self.fences, which) else { return };
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
                    1 => Command::RunResume(RunResume { run, without_canary: false, expected: None }),
                    2 => Command::RunResume(RunResume { run, without_canary: true, expected: None }),
                    _ => Command::RunCancel(run),
                });
            }
            Step::Decide(which, resend) => {
                let Some(run) = pick(&self.runs(), which) else { return };
                let decision = match resend {
                    true => Decision::Resend,
                    false if which % 5 == 0 => Decision::Sent,
                    false => Decision::Assume,
                };
                let recipients = if which % 2 == 0 { vec![] } else { self.known(run, &[0, 2, 5]) };
                let by = if which % 3 == 0 { Decider::Policy } else { Decider::Operator };
                self.put(Command::Decide(Decide { run, recipients, decision, by, up_to: None, request: None }));
            }
            Step::Requeue(which, discard) => {
                let Some(run) = pick(&self.runs(), which) else { return };
                let recipients = if which % 3 == 0 { self.known(run, &[1, 3]) } else { vec![] };
                let picked = vec![PickedRecipients { run, recipients }];
                let pool = [None, Some("other"), Some("default")][usize::from(which) % 3].map(str::to_owned);
                self.put(match discard {
                    true => Command::Discard(picked.into()),
                    false => Command::Requeue(Requeue { letters: picked.into(), pool }),
                });
            }
            Step::OptOut(which) => {
                let (tenant, key) = ("default".to_owned(), format!("u{which}@x.org"));
                let known = self.ledger.opted_out().get(&(tenant.clone(), key.clone())).copied();
                self.put(match known.filter(|_| which % 2 == 0) {
                    // Every second step takes the opt-out back: with its last index, or with an outdated one.
                    Some(known) => {
                        let last = known.last - u64::from(which % 4 == 0);
                        Command::OptOutTakeBack(OptOutTakeBack { tenant, key, last, reason: "by letter".into() })
                    }
                    None => Command::OptOut(OptOut { tenant, keys: vec![key] }),
                });
            }
            Step::Stray(kind, row) => self.stray(kind, row),
            Step::Tenant(number) => {
                let concurrency = Some(u32::from(number % 8));
                let name = "default".to_owned();
                let set = TenantSet {
                    request: None,
                    name,
                    rate_milli: None,
                    concurrency,
                    share: None,
                    pools: None,
                    expected: None,
                };
                assert_eq!(self.put(Command::TenantSet(set)), CommandOutcome::Done);
            }
            Step::WarmUp(number) if number < 64 => {
                assert_eq!(self.put(Command::PoolReset("default".into())), CommandOutcome::Done);
                assert_eq!(self.ledger.remaining_today("default", self.ledger.head().now), None, "no bound is left");
            }
            Step::WarmUp(number) => {
                let (pool, caps) = ("default".to_owned(), vec![1 + u32::from(number % 16)]);
                let reveille_headers = Some(number % 2 == 0);
                let set = PoolSet { request: None, pool, caps, first: None, reveille_headers, expected: None };
                assert_eq!(self.put(Command::PoolSet(set)), CommandOutcome::Done);
            }
            Step::Leap(milliseconds) => {
                self.epoch(self.node(1), self.ledger.head().now.plus_ms(i64::from(milliseconds)));
            }
            // Most tests are of one cluster: a restore ends all that is under way.
            Step::Restore(later_ms) if later_ms > 900_000 => {}
            Step::Restore(later_ms) => {
                self.restore(later_ms);
                if later_ms.is_multiple_of(2) {
                    [Step::Epoch(0), Step::Up(0), Step::Accept].into_iter().for_each(|step| self.take(step));
                }
            }
            Step::Accept => drop(self.put(Command::RestoreAccept)),
        }
    }

    /// Begins an epoch with a new leader, whose clock agrees with another voter's.
    fn epoch(&mut self, node: NodeId, wall: Time) {
        let other = NodeId(node.0 + 6);
        let readings = vec![VoterClock { node, wall }, VoterClock { node: other, wall: wall.plus_ms(900) }];
        let leader = ClaimOwner { node, incarnation: Incarnation(1) };
        let command = Command::EpochStart(EpochStart::new(leader, 3, readings));
        self.put_entry(Entry { epoch: Epoch(0), now: Time(0), actor: Actor::System, command });
    }

    /// Proposes what a former leader had in flight, or an entry with a wrong clock. Nothing changes (P13, P18).
    fn stray(&mut self, kind: u8, row: u8) {
        let Some((chunk, fence, slice)) = pick(&self.fences, row) else { return };
        let head = self.ledger.head();
        let current = head.epoch.map(|epoch| epoch.epoch.0).unwrap_or_default();
        let (epoch, now) = match kind % 4 {
            0 => (current - 1, head.now),
            1 => (current + 1, head.now),
            2 => (current, head.now.plus_ms(-1)),
            _ => (current, head.now.plus_ms(60_001)),
        };
        let settle = ClaimOutcome { accepted: slice.clone(), ..ClaimOutcome::empty(chunk, fence) };
        let run = chunk.page.0;
        let command = match kind / 4 % 4 {
            0 => Command::Settle(vec![settle]),
            1 => Command::Revoke(vec![fence]),
            2 => Command::RunCancel(run),
            _ => Command::OptOut(OptOut { tenant: "default".into(), keys: vec!["stray@x.org".into()] }),
        };
        let before = (head.now, rows_without_head(&self.ledger));
        let outcome = self.put_entry(Entry { epoch: Epoch(epoch), now, actor: Actor::System, command });
        assert!(matches!(outcome, CommandOutcome::Refused(_)), "{outcome:?}");
        assert_eq!(before, (self.ledger.head().now, rows_without_head(&self.ledger)));
    }

    /// Fires all due schedules that `which` selects, in one entry. Small audiences share pages.
    fn fire(&mut self, which: u8) {
        let mut chosen = self.schedules();
        if which.is_multiple_of(2) {
            chosen = pick(&chosen, which).into_iter().collect();
        }
        let mut fires: Vec<Fire> = chosen.iter().filter_map(|id| self.next_fire(*id, which)).collect();
        // Two different fires of one schedule in one entry.
        let now = self.ledger.head().now;
        if let Some(first) = fires.first().cloned().filter(|first| which.is_multiple_of(5) && first.through < now)
            && !first.opened.is_empty()
            && let Some(policies) =
                self.ledger.schedules().get(&first.schedule).map(|schedule| schedule.settings.policies.clone())
        {
            let here = NextInstant { occurrence: OccurrenceName::Instant(now), due: now, jitter_ms: 0 };
            let opening = Opening { due: now, finish_by: now.plus_ms(120_000), ..first.opened[0].clone() };
            fires[0].next = Some(here.clone());
            fires.push(Fire {
                from: here.occurrence.clone(),
                opened: vec![Opening { occurrence: here.occurrence, ..opening }],
                through: now,
                next: Some(next_at(now.plus_ms(60_000), &policies)),
                ..first
            });
        }
        // The same fire twice in one entry, as by a leader whose first proposal had no answer.
        fires.extend(fires.first().cloned());
        self.put(Command::Fire(fires));
    }

    /// Edits the period, with the due instants of the former one, or content and audience, or both.
    fn edit(&mut self, which: u8, what: u8) {
        let Some(id) = pick(&self.schedules(), which) else { return };
        let Some(schedule) = self.ledger.schedules().get(&id).cloned() else { return };
        let through = self.ledger.head().now;
        let missed = schedule.plan.next.clone().filter(|next| next.due <= through);
        let waits = self.ledger.waits_at(id, through);
        let fires = schedule.state == reveille_ledger::ScheduleState::Active && !waits;
        let due = missed.clone().filter(|_| fires).and_then(|_| self.next_fire(id, which));
        let due = due.map(|fire| {
            let following = through.plus_ms(60_000);
            Fire { next: Some(next_at(following, &schedule.settings.policies)), ..fire }
        });
        let explained = missed.filter(|_| !fires).map(|next| ExplainedRange {
            first: next.occurrence,
            instants: InstantRange::default(),
            reason: UnopenedReason::Edited,
        });
        let ahead = through.max(schedule.plan.fired_through).plus_ms(1 + i64::from(what) * 500);
        let retimed = TimingChange {
            timing: ScheduleTiming::new(When::Every { period_ms: 60_000, anchor_ms: ahead.0 }, "UTC"),
            through,
            due,
            explained: explained.into_iter().collect(),
            next: Some(next_at(ahead, &schedule.settings.policies)),
            tzdb: "test".into(),
        };
        let mut other = self::schedule(0, u16::from(what % 5) + 1, through);
        // The same recipients with other numbers.
        if let AudienceChoice::Listed(listed) = &mut other.audience {
            listed.recipients.reverse();
        }
        let edit = ScheduleEdit {
            request: (what >= 200).then(|| format!("request {}", which % 4)),
            body_hash: Hash::of(&[what]),
            schedule: id,
            plan_version: schedule.plan.version - u64::from(which > 220),
            timing: (!what.is_multiple_of(3)).then_some(retimed),
            policies: what.is_multiple_of(7).then(|| Policies {
                max_attempts: 9,
                overlap: if what >= 128 { Overlap::BufferOne } else { Overlap::Allow },
                ..(*schedule.settings.policies).clone()
            }),
            pool: None,
            priority: None,
            content: what.is_multiple_of(2).then(|| plain::content(&what.to_string()).into()),
            audience: what.is_multiple_of(5).then_some(other.audience),
            labels: what.is_multiple_of(4).then(reveille_ledger::labels::Labels::default),
        };
        let before = rows_without_head(&self.ledger);
        let outcome = self.put(Command::ScheduleEdit(Box::new(edit.clone())));
        if edit.request.is_some() && outcome == CommandOutcome::Schedule(id) {
            let once = rows_without_head(&self.ledger);
            self.put(Command::ScheduleEdit(Box::new(edit)));
            assert_eq!(once, rows_without_head(&self.ledger), "an edit that is asked for twice");
        } else if matches!(outcome, CommandOutcome::Refused(_)) {
            assert_eq!(before, rows_without_head(&self.ledger), "a refusal changes nothing");
        }
    }

    /// Backfills a range at or before `fired_through`. Some of it has opened, and a repeat opens nothing more.
    fn backfill(&mut self, which: u8, back: u8) {
        let Some(id) = pick(&self.schedules(), which) else { return };
        let Some(through) = self.ledger.schedules().get(&id).map(|known| known.plan.fired_through) else { return };
        let opening = |step: i64| {
            let due = Time((through.0 / 30_000 - i64::from(back % 7) + step) * 30_000);
            let finish_by = self.ledger.head().now.plus_ms(120_000);
            Opening { occurrence: OccurrenceName::Instant(due), due, cause: OpeningCause::Backfill, finish_by }
        };
        let openings: Vec<Opening> = (0..i64::from(back % 4)).map(opening).collect();
        let count = openings.len() as u32;
        let (request, body_hash) = (None, Hash([0; 32]));
        let backfill = Command::Backfill(Backfill { request, body_hash, schedule: id, openings, known: 0, rest: None });
        let CommandOutcome::Backfilled { inside_gap, .. } = self.put(backfill.clone()) else { return };
        let once = rows_without_head(&self.ledger);
        let CommandOutcome::Backfilled { opened, known, inside_gap: left, .. } = self.put(backfill) else {
            panic!("a backfill that was taken is taken again")
        };
        assert_eq!(
            (opened, known, left),
            (0, count - inside_gap, inside_gap),
            "asked again it opens nothing (P7, P17)"
        );
        assert_eq!(once, rows_without_head(&self.ledger));
    }

    /// Archives and removes what is old enough; or names all rows, of which only those go.
    fn archive(&mut self, which: u8) {
        let after_ms = 10_000 * (1 + i64::from(which % 3));
        let (found, _) = next_batch(&self.ledger, &ArchiveCursor::default(), self.ledger.head().now, after_ms);
        let all = Archive {
            pages: self.ledger.pages().iter().map(|(id, _)| *id).collect(),
            after_ms,
            summaries: self.ledger.summaries().iter().map(|(id, _)| *id).collect(),
            history: self.ledger.history().iter().map(|(name, _)| name.clone()).collect(),
            parts: self.ledger.parts().iter().map(|(key, _)| *key).collect(),
            blobs: self.ledger.blobs().iter().map(|(hash, _)| *hash).collect(),
        };
        let entry = self.entry(Command::Archive(found.clone()));
        let of_found = self.ledger.clone().apply(self.index_of(&entry.command), &entry);
        let outcome = self.put(Command::Archive(if which.is_multiple_of(2) { all } else { found }));
        assert_eq!(outcome, of_found.reply.outcome, "P24: what is found is what may go");
    }

    fn entry(&self, command: Command) -> Entry {
        let head = self.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        Entry { epoch, now: head.now, actor: Actor::System, command }
    }

    fn next_fire(&self, schedule: ScheduleId, which: u8) -> Option<Fire> {
        let known = self.ledger.schedules().get(&schedule)?;
        let plan = &known.plan;
        let next = plan.next.clone()?;
        let following = next.due.plus_ms(60_000);
        // Sometimes a leader does not know that the former cluster may have sent the instant (P21).
        let is_explained = Some(next.due) <= self.ledger.maybe_sent_through() && !which.is_multiple_of(7);
        let opening = Opening {
            occurrence: next.occurrence.clone(),
            due: next.due,
            // Late occurrences share no page with others.
            cause: if (schedule.0 + u64::from(which)).is_multiple_of(3) {
                OpeningCause::CatchUp
            } else {
                OpeningCause::Due
            },
            finish_by: next.due.plus_ms(120_000),
        };
        let instants = InstantRange::default();
        let explained = ExplainedRange { first: next.occurrence.clone(), instants, reason: UnopenedReason::Restored };
        let (opened, explained) = if is_explained { (vec![], vec![explained]) } else { (vec![opening], vec![]) };
        Some(Fire {
            schedule,
            plan_version: plan.version + u64::from(which > 240),
            from: next.occurrence,
            opened,
            explained,
            through: next.due,
            next: Some(next_at(following, &known.settings.policies)),
            tzdb: "test".into(),
        })
    }

    fn settle(&mut self, row: u8, kind: u8, picks: &[u8]) {
        let Some((chunk, fence, slice)) = pick(&self.fences, row) else { return };
        let slots: Vec<u16> = slice.iter().collect();
        let chosen: Vec<u16> = picks.iter().filter_map(|number| pick(&slots, *number)).collect();
        let set: Bitmap = chosen.iter().copied().chain([kind.into()]).collect();
        let mut outcome = ClaimOutcome::empty(chunk, fence);
        match kind % 6 {
            0 | 1 => outcome.accepted = set,
            2 => {
                // A journal of an earlier incarnation: some recipients were being prepared, perhaps only one on the
                // node.
                let open: Bitmap = set.iter().filter(|slot| u8::try_from(slot % 3) != Ok(kind / 6 % 3)).collect();
                outcome.alone = kind >= 128;
                outcome.source = OutcomeSource::Journal;
                let why = [ReleaseReason::OwnerCrashed, ReleaseReason::LeaseOver, ReleaseReason::RunPaused]
                    [usize::from(kind / 6) % 3];
                outcome.released = vec![(why, set.and_not(&open)), (ReleaseReason::OwnerCrashedComposing, open)];
            }
            3 => {
                outcome.in_doubt = set;
                outcome.source =
                    [OutcomeSource::Owner, OutcomeSource::Journal, OutcomeSource::NoJournal][usize::from(kind / 6) % 3];
            }
            4 => outcome.suppressed = set,
            _ => {
                let codes = [
                    (0, RefusalEffect::CountAttempt),
                    (550, RefusalEffect::CountAttempt),
                    (550, RefusalEffect::Dead),
                    (421, RefusalEffect::NextWave),
                    (554, RefusalEffect::MayPauseRun),
                ];
                for slot in chosen {
                    let (code, effect) = codes[usize::from(kind / 6) % codes.len()];
                    outcome.refused.push(RelayRefusal { slot, code, enhanced: None, text: "no".into(), effect });
                }
            }
        }
        self.put(Command::Settle(vec![outcome]));
    }
}

/// Returns the slots to claim in a chunk: a range at its start or end, or slots scattered over all of it.
fn slice(slots: u32, take: u8) -> Bitmap {
    let count = 1 + u32::from(take / 16);
    if slots <= CHUNK / 4 {
        return Bitmap::range(u32::from(take) % slots, count);
    }
    match take % 3 {
        0 => Bitmap::range(u32::from(take), count),
        1 => Bitmap::range(slots - u32::from(take) - 1, count),
        _ => (0..slots).skip(usize::from(take)).step_by(4_097).filter_map(|slot| u16::try_from(slot).ok()).collect(),
    }
}

/// Returns an instant with some delay within the jitter window.
fn next_at(due: Time, policies: &Policies) -> NextInstant {
    let jitter_ms = if policies.jitter_ms > 0 { due.0.rem_euclid(policies.jitter_ms) / 2 + 5_000 } else { 0 };
    NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms }
}

/// Number of schedule names. The first six have inline lists, the last four sealed audiences. Both groups have each
/// value of `overlap`.
const NAMES: u8 = 10;
/// Recipients of the sealed audiences: two chunks, and three.
const SEALED: [u32; 2] = [CHUNK + 30, 2 * CHUNK + 5];

fn seal(rows: u32) -> Seal {
    let parts = (0..rows.div_ceil(CHUNK)).map(|part| Hash::of(&part.to_be_bytes())).collect();
    Seal { name: format!("all {rows}"), columns: vec![], rows, parts }
}

fn schedule(name: u8, size: u16, now: Time) -> ScheduleCreate {
    let recipient = |number: u16| Recipient {
        address: format!("u{number}@x.org"),
        key: format!("u{number}@x.org"),
        values: vec![],
    };
    // Instants are on a grid, so that several are due together.
    let due = Time((now.0 / 10_000 + 1) * 10_000);
    let policies = Policies {
        max_attempts: 3,
        retention_ms: 90_000,
        // The gap is longer than the period, which is a minute.
        min_gap_ms: if (3..6).contains(&name) { 90_000 } else { 0 },
        jitter_ms: if name % 3 == 1 { 20_000 } else { 0 },
        canary: (name % 3 == 2).then_some(Canary { share: 3_000, limit: 2_500 }),
        overlap: [Overlap::Allow, Overlap::BufferOne, Overlap::Skip, Overlap::CancelOther][usize::from(name) % 4],
        ..Policies::default()
    };
    let audience = match name {
        0..6 => AudienceChoice::Listed(Audience { columns: vec![], recipients: (0..size).map(recipient).collect() }),
        _ => {
            let seal = seal(SEALED[usize::from(size) % SEALED.len()]);
            AudienceChoice::Sealed(NamedAudience { name: seal.name.clone(), seal: seal.blob().hash, rows: seal.rows })
        }
    };
    ScheduleCreate {
        request: (name.is_multiple_of(2)).then(|| format!("request {name}")),
        timing: ScheduleTiming::new(When::Every { period_ms: 60_000, anchor_ms: 0 }, "UTC"),
        next: Some(next_at(due, &policies)),
        policies,
        ..plain::schedule(&format!("s{name}"), audience, now)
    }
}

/// Returns all rows except the head, which changes with every entry.
fn rows_without_head(ledger: &Ledger) -> Vec<(Vec<u8>, Vec<u8>)> {
    ledger.all_rows().skip(1).collect()
}

proptest! {
    #![proptest_config(reveille_fuzz::cases(300))]

    #[test]
    fn every_interleaving_keeps_the_invariants(steps in prop::collection::vec(step(), 1..120)) {
        let mut test = TestLedger::new();
        for step in steps {
            test.take(step);
        }
    }

    #[test]
    fn replayed_log_gives_the_same_state(steps in prop::collection::vec(step(), 1..80), cut in any::<prop::sample::Index>()) {
        let mut test = TestLedger::new();
        for step in steps {
            test.take(step);
        }
        let mut replayed = Ledger::new();
        let cut = cut.index(test.log.len());
        let mut restored = None;
        let mut given = GivenTexts::default();
        for (place, (index, entry)) in test.log.iter().enumerate() {
            let index = *index;
            let reply = replayed.apply(index, entry).reply;
            prop_assert_eq!(&reply, &test.replies[place], "replay = live");
            given.record(&entry.command);
            given.assert_hold(&replayed);
            if place == cut {
                restored = Some(Ledger::from_rows(replayed.all_rows()).expect("a snapshot reads back"));
            } else if let Some(restored) = &mut restored {
                prop_assert_eq!(&restored.apply(index, entry).reply, &reply, "snapshot + tail = full replay");
            }
        }
        prop_assert_eq!(replayed.state_hash(), test.ledger.state_hash());
        prop_assert_eq!(restored.expect("cut").state_hash(), test.ledger.state_hash());
        let keys: BTreeSet<_> = test.ledger.all_rows().map(|(key, _)| key).collect();
        prop_assert_eq!(keys.len(), test.ledger.row_count(), "keys are unique as bytes");
    }
}

/// The largest page: 512 runs of 16 recipients, claimed in slices that span several runs.
#[test]
fn full_page_keeps_its_counts() {
    let mut test = TestLedger::new();
    for number in 0..512_u32 {
        let create = ScheduleCreate { name: format!("s{number}"), ..schedule(0, 16, Time(0)) };
        let head = test.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        let create = ScheduleCreate { request: None, ..create };
        let entry =
            Entry { epoch, now: head.now, actor: Actor::System, command: Command::ScheduleCreate(Box::new(create)) };
        test.ledger.apply(head.applied + 1, &entry);
    }
    let at = |test: &TestLedger, command: Command| {
        let head = test.ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        (head.applied + 1, Entry { epoch, now: Time(10_000), actor: Actor::System, command })
    };
    let mut fires: Vec<Fire> = test.schedules().iter().filter_map(|id| test.next_fire(*id, 0)).collect();
    for opening in fires.iter_mut().flat_map(|fire| &mut fire.opened) {
        opening.cause = OpeningCause::Due;
    }
    let (index, entry) = at(&test, Command::Fire(fires));
    test.ledger.apply(index, &entry);
    let (page, slots) = test.ledger.pages().iter().map(|(id, page)| (*id, page.slots)).next().expect("a page");
    assert_eq!((test.ledger.pages().len(), slots), (1, 8_192));
    let owner = ClaimOwner { node: NodeId(0), incarnation: Incarnation(1) };
    for first in (0..slots).step_by(250) {
        let slice = Bitmap::range(first, 250.min(slots - first));
        let (index, entry) =
            at(&test, Command::Claim(vec![ClaimRequest { chunk: page.chunk(0), slice: slice.clone(), owner }]));
        let before = test.ledger.clone();
        let CommandOutcome::Claimed(answers) = test.ledger.apply(index, &entry).reply.outcome else {
            panic!("claimed")
        };
        oracle::judge(&before, &entry, &test.ledger, false);
        let fence = *answers[0].as_ref().expect("a row");
        let mut outcome = ClaimOutcome::empty(page.chunk(0), fence);
        outcome.accepted = slice.iter().filter(|slot| slot % 3 == 0).collect();
        outcome.in_doubt = slice.iter().filter(|slot| slot % 3 == 1).collect();
        outcome.suppressed = slice.iter().filter(|slot| slot % 3 == 2).collect();
        let (index, entry) = at(&test, Command::Settle(vec![outcome]));
        let before = test.ledger.clone();
        test.ledger.apply(index, &entry);
        oracle::judge(&before, &entry, &test.ledger, false);
    }
    assert_eq!(violations(&test.ledger), []);
    let (sent, held) = test.ledger.runs().fold((0, 0), |(sent, held), (_, _, run)| {
        (sent + run.counts.get(RecipientState::Sent), held + run.counts.get(RecipientState::InDoubt))
    });
    assert_eq!((sent, held), (2_731, 2_731));
    assert_eq!(test.ledger.open_pages().count(), 0);
    assert!(test.ledger.runs().all(|(_, _, run)| run.finished_index.is_some()));
}

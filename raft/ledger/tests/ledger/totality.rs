//! `apply` is total (P2): no valid entry makes it panic, break an invariant, or let a tenant's requests affect another
//! tenant's answers.
//!
//! Entries are generated with extreme numbers and with names that exist or do not exist, on a ledger with work in
//! progress.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use reveille_fuzz::{cases, damage, damaged};
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::calendar::When;
use reveille_ledger::canary::Canary;
use reveille_ledger::command::*;
use reveille_ledger::content::{Audience, Content, ContentChoice, NamedTemplate, Recipient, Recipients};
use reveille_ledger::ids::*;
use reveille_ledger::instant_range::InstantRange;
use reveille_ledger::invariants::violations;
use reveille_ledger::limits::limits;
use reveille_ledger::policy::{Overlap, Policies};
use reveille_ledger::pool::{Day, PoolSet};
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::tenant::TenantSet;
use reveille_ledger::token::{Rights, TenantScope, TokenCreate, TokenGrant};
use reveille_ledger::{ArchivePartKey, BackupResult, LastBackup};
use reveille_ledger::{LEVEL, Ledger, RunFile, ScheduleTiming};

use crate::given::GivenTexts;
use crate::{plain, samples};

fn cause(utf8: bool) -> Unsendable {
    if utf8 { Unsendable::NoSmtpUtf8 } else { Unsendable::NotComposed(String::new()) }
}

fn listed(count: u32) -> Audience {
    let recipient = |number: u32| {
        let address = format!("u{number}@example.org");
        Recipient { key: address.clone(), address, values: vec![] }
    };
    Audience { columns: vec![], recipients: (0..count).map(recipient).collect() }
}

fn create(tenant: &str, name: &str, request: Option<String>) -> ScheduleCreate {
    ScheduleCreate {
        request,
        tenant: tenant.into(),
        timing: ScheduleTiming::new(When::Every { period_ms: 60_000, anchor_ms: 0 }, "UTC"),
        next: Some(NextInstant { occurrence: OccurrenceName::Instant(Time(1_000)), due: Time(1_000), jitter_ms: 0 }),
        ..plain::schedule(name, listed(5), Time(0))
    }
}

fn put(ledger: &mut Ledger, now: Time, command: Command) -> CommandOutcome {
    let head = ledger.head();
    let epoch = head.current_epoch().unwrap_or_default();
    ledger.apply(head.applied + 1, &Entry { epoch, now, actor: Actor::System, command }).reply.outcome
}

const NODE: ClaimOwner = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };

/// Node 1 leads. Schedule 3 has fired as r4.0: its recipient 0 is claimed, 1 in doubt, 2 dead, 3 sent, 4 pending.
fn ledger_at_work() -> (Ledger, Fence) {
    let mut ledger = Ledger::new();
    let readings = vec![VoterClock { node: NodeId(1), wall: Time(0) }];
    put(&mut ledger, Time(0), Command::EpochStart(EpochStart::new(NODE, 1, readings)));
    put(&mut ledger, Time(0), Command::NodeUp(NodeUp { owner: NODE, name: "n1".into(), level: 1, process_nonce: 1 }));
    put(&mut ledger, Time(0), Command::ScheduleCreate(Box::new(create("default", "daily", None))));
    let fire = Fire {
        schedule: ScheduleId::new(3, 0),
        plan_version: 1,
        from: OccurrenceName::Instant(Time(1_000)),
        opened: vec![Opening {
            occurrence: OccurrenceName::Instant(Time(1_000)),
            due: Time(1_000),
            cause: OpeningCause::Due,
            finish_by: Time(3_600_000),
        }],
        explained: vec![],
        through: Time(1_000),
        next: Some(NextInstant { occurrence: OccurrenceName::Instant(Time(2_000)), due: Time(2_000), jitter_ms: 0 }),
        tzdb: "test".into(),
    };
    put(&mut ledger, Time(1_000), Command::Fire(vec![fire]));
    let page = PageId(RunId { index: 4, place: 0 });
    let claim = ClaimRequest { chunk: page.chunk(0), slice: Bitmap::range(0, 4), owner: NODE };
    let outcome = put(&mut ledger, Time(1_000), Command::Claim(vec![claim]));
    let CommandOutcome::Claimed(answers) = outcome else { panic!("{outcome:?}") };
    let fence = *answers[0].as_ref().expect("a row");
    let mut settle = ClaimOutcome::empty(page.chunk(0), fence);
    settle.in_doubt.insert(1);
    settle.unsendable.push((2, Unsendable::NotComposed("no address".into())));
    settle.accepted.insert(3);
    assert_eq!(put(&mut ledger, Time(1_000), Command::Settle(vec![settle])), CommandOutcome::Changed(3));
    assert_eq!(violations(&ledger), []);
    (ledger, fence)
}

fn number() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0, 1, 2, 3, 4, 5, 16, 255, 65_535, 65_536, u32::MAX - 1, u32::MAX])
}

fn long() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 1, 2, 3, 4, 5, 6, 1 << 32, u64::MAX - 1, u64::MAX])
}

fn time() -> impl Strategy<Value = Time> {
    let ends = vec![i64::MIN, i64::MIN + 1, -1, 0, 999, 1_000, 2_000, 60_000, i64::MAX - 60_000, i64::MAX];
    prop::sample::select(ends).prop_map(Time)
}

fn set() -> impl Strategy<Value = Bitmap> {
    let spans = vec![(0, 0), (0, 1), (0, 4), (1, 3), (0, 256), (0, 65_536), (65_535, 1), (4, 100)];
    prop::sample::select(spans).prop_map(|(first, count)| Bitmap::range(first, count))
}

fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "default", "daily", "\0", "\u{10ffff}\0x", "u1@example.org"]).prop_map(String::from)
}

fn run() -> impl Strategy<Value = RunId> {
    prop_oneof![
        3 => Just(RunId { index: 4, place: 0 }),
        1 => (long(), number()).prop_map(|(index, place)| RunId { index, place }),
    ]
}

fn schedule() -> impl Strategy<Value = ScheduleId> {
    prop_oneof![3 => Just(ScheduleId::new(3, 0)), 1 => long().prop_map(ScheduleId)]
}

fn owner() -> impl Strategy<Value = ClaimOwner> {
    (long(), long())
        .prop_map(|(node, process_nonce)| ClaimOwner { node: NodeId(node), incarnation: Incarnation(process_nonce) })
}

fn occurrence() -> impl Strategy<Value = OccurrenceName> {
    prop_oneof![
        time().prop_map(OccurrenceName::Instant),
        (time(), any::<u8>()).prop_map(|(civil, fold)| OccurrenceName::Civil { civil_ms: civil.0, fold }),
        text().prop_map(OccurrenceName::Trigger),
    ]
}

fn next() -> impl Strategy<Value = NextInstant> {
    (occurrence(), time(), time()).prop_map(|(occurrence, due, jitter)| NextInstant {
        occurrence,
        due,
        jitter_ms: jitter.0,
    })
}

fn policies() -> impl Strategy<Value = Policies> {
    let times = (time(), time(), time(), time(), time());
    let overlaps = vec![Overlap::BufferOne, Overlap::Skip, Overlap::Allow, Overlap::CancelOther];
    let canary = prop::option::of((any::<u16>(), any::<u16>()).prop_map(|(share, limit)| Canary { share, limit }));
    let rest = (any::<u8>(), prop::sample::select(overlaps), time(), time(), canary);
    (times, rest).prop_map(|((start, finish, from, to, retention), (max_attempts, overlap, gap, jitter, canary))| {
        Policies {
            canary,
            overlap,
            min_gap_ms: gap.0,
            jitter_ms: jitter.0,
            start_within_ms: start.0,
            finish_by_ms: finish.0,
            backoff_from_ms: from.0,
            backoff_to_ms: to.0,
            retention_ms: retention.0,
            max_attempts,
            ..Policies::default()
        }
    })
}

fn wild_create() -> impl Strategy<Value = Command> {
    let parts = (text(), text(), prop::option::of(text()), policies());
    let plan = (time(), prop::option::of(next()), prop::option::of(number()), prop::option::of(text()));
    (parts, plan).prop_map(|((tenant, name, request, policies), (after, next, max_runs, paused))| {
        let create = create(&tenant, &name, request);
        let timing = ScheduleTiming { max_runs, ..create.timing };
        Command::ScheduleCreate(Box::new(ScheduleCreate { policies, after, next, timing, paused, ..create }))
    })
}

fn wild_creates() -> impl Strategy<Value = Command> {
    prop::collection::vec(wild_create(), 0..4).prop_map(|creates| {
        let create = |command| match command {
            Command::ScheduleCreate(create) => Some(*create),
            _ => None,
        };
        Command::SchedulesCreate(creates.into_iter().filter_map(create).collect())
    })
}

fn wild_fire() -> impl Strategy<Value = Fire> {
    let opening = (occurrence(), time(), time()).prop_map(|(occurrence, due, finish_by)| Opening {
        occurrence,
        due,
        cause: OpeningCause::Due,
        finish_by,
    });
    let explained = (occurrence(), instants()).prop_map(|(first, instants)| ExplainedRange {
        first,
        instants,
        reason: UnopenedReason::TooLate,
    });
    let lists = (prop::collection::vec(opening, 0..4), prop::collection::vec(explained, 0..3));
    (schedule(), prop_oneof![3 => Just(1), 1 => long()], next(), lists, time(), prop::option::of(next())).prop_map(
        |(schedule, plan_version, from, (opened, explained), through, next)| Fire {
            schedule,
            plan_version,
            from: from.occurrence,
            opened,
            explained,
            through,
            next,
            tzdb: "wild".into(),
        },
    )
}

fn instants() -> impl Strategy<Value = InstantRange> {
    prop::collection::vec((time(), number()), 0..3).prop_map(|parts| {
        let mut instants = InstantRange::default();
        parts.into_iter().for_each(|(step, times)| instants.extend(step.0, times));
        instants
    })
}

fn wild_edit() -> impl Strategy<Value = Command> {
    let request = (prop::option::of(text()), text(), schedule(), prop_oneof![3 => Just(1), 1 => long()]);
    let explained = (occurrence(), instants()).prop_map(|(first, instants)| ExplainedRange {
        first,
        instants,
        reason: UnopenedReason::Edited,
    });
    let plan = (time(), prop::option::of(wild_fire()), prop::collection::vec(explained, 0..2));
    let timing = (plan, prop::option::of(next()), prop::option::of(number())).prop_map(
        |((through, due, explained), next, max_runs)| TimingChange {
            timing: ScheduleTiming {
                max_runs,
                ..ScheduleTiming::new(When::Every { period_ms: 1, anchor_ms: 0 }, "UTC")
            },
            through,
            due,
            explained,
            next,
            tzdb: "wild".into(),
        },
    );
    let parts = (prop::option::of(timing), prop::option::of(policies()), any::<[bool; 2]>());
    (request, parts).prop_map(
        |((request, body_hash, schedule, plan_version), (timing, policies, [content, audience]))| {
            let create = create("default", "daily", None);
            Command::ScheduleEdit(Box::new(ScheduleEdit {
                request,
                body_hash: Hash::of(body_hash.as_bytes()),
                schedule,
                plan_version,
                timing,
                policies,
                pool: None,
                priority: None,
                content: content.then_some(create.content),
                audience: audience.then(|| listed(2).into()),
                labels: None,
            }))
        },
    )
}

fn wild_backfill() -> impl Strategy<Value = Command> {
    let opening = (occurrence(), time(), time()).prop_map(|(occurrence, due, finish_by)| Opening {
        occurrence,
        due,
        cause: OpeningCause::Backfill,
        finish_by,
    });
    let lists = prop::collection::vec(opening, 0..4);
    let more = (any::<u32>(), prop::option::of(time()));
    (schedule(), prop::option::of(text()), lists, more).prop_map(|(schedule, request, openings, (known, rest))| {
        Command::Backfill(Backfill { request, body_hash: Hash([0; 32]), schedule, openings, known, rest })
    })
}

fn wild_archive() -> impl Strategy<Value = Command> {
    let runs = || prop::collection::vec(run(), 0..3);
    let history = prop::collection::vec((schedule(), occurrence()), 0..3);
    let parts = prop::collection::vec(
        run().prop_map(|RunId { index, place }| reveille_ledger::ArchivePartKey { index, place }),
        0..2,
    );
    let blobs = prop::collection::vec(any::<[u8; 32]>().prop_map(Hash), 0..2);
    (runs(), any::<i64>(), runs(), history, (parts, blobs)).prop_map(
        |(pages, after_ms, summaries, history, (parts, blobs))| {
            let pages = pages.into_iter().map(PageId).collect();
            Command::Archive(Archive { pages, after_ms, summaries, history, parts, blobs })
        },
    )
}

fn wild_replan() -> impl Strategy<Value = Command> {
    (schedule(), 0u64..4, next(), prop::option::of(next())).prop_map(|(schedule, plan_version, from, next)| {
        Command::Replan(vec![Replan { schedule, plan_version, from, next, tzdb: String::new() }])
    })
}

/// A version of the template `t`, which may not exist or may have another content.
fn named_template() -> impl Strategy<Value = ContentChoice> {
    (0_u32..4, 0_u8..3, any::<bool>()).prop_map(|(version, subject, newest)| {
        let content = plain::content(&subject.to_string()).blob().hash;
        ContentChoice::Template(NamedTemplate { name: "t".into(), version, content, newest })
    })
}

fn wild_template() -> impl Strategy<Value = Command> {
    let names = || (String::from("default"), String::from("t"));
    prop_oneof![
        (0_u8..3, prop::option::of(long())).prop_map(move |(subject, expected)| {
            let ((tenant, name), content) = (names(), plain::content(&subject.to_string()));
            Command::TemplatePut(Box::new(TemplatePut { tenant, name, content, expected }))
        }),
        prop::option::of(long()).prop_map(move |expected| {
            let (tenant, name) = names();
            Command::TemplateDelete(TemplateDelete { tenant, name, expected })
        }),
        (named_template(), text()).prop_map(|(content, name)| {
            Command::ScheduleCreate(Box::new(ScheduleCreate { content, ..create("default", &name, None) }))
        }),
        (named_template(), schedule(), 0u64..4).prop_map(|(content, schedule, plan_version)| {
            Command::ScheduleEdit(Box::new(ScheduleEdit {
                request: None,
                body_hash: Hash([0; 32]),
                schedule,
                plan_version,
                timing: None,
                policies: None,
                pool: None,
                priority: None,
                content: Some(content),
                audience: None,
                labels: None,
            }))
        }),
    ]
}

fn wild_message() -> impl Strategy<Value = SendMessage> {
    let key = prop::sample::select(vec!["request a", "request b", "request c"]);
    let rule = prop::sample::select(vec![KeyRule::Strict, KeyRule::FirstWins]);
    (key, rule, any::<bool>(), 0_u32..3, prop::option::of(time()), any::<i64>()).prop_map(
        |(key, rule, is_test, recipients, send_at, finish_by_ms)| {
            let create = create("default", "daily", None);
            SendMessage {
                key: key.into(),
                rule,
                is_test,
                content: plain::content("s"),
                audience: listed(recipients),
                send_at,
                pool: create.pool,
                priority: create.priority,
                policies: Policies { finish_by_ms, ..create.policies },
            }
        },
    )
}

fn wild_send_messages() -> impl Strategy<Value = Command> {
    let tenant = prop::sample::select(vec!["default", "acme"]);
    (tenant, prop::collection::vec(wild_message(), 0..4))
        .prop_map(|(tenant, messages)| Command::SendMessages(SendMessages { tenant: tenant.into(), messages }))
}

fn wild_trigger() -> impl Strategy<Value = Command> {
    let rule = prop::sample::select(vec![KeyRule::Strict, KeyRule::FirstWins]);
    (schedule(), text(), prop::option::of(0_u32..3), rule).prop_map(|(schedule, request, recipients, rule)| {
        Command::Trigger(Trigger { schedule, request, audience: recipients.map(listed), rule })
    })
}

fn wild_outcome(fence: Fence) -> impl Strategy<Value = ClaimOutcome> {
    let effect = prop::sample::select(vec![
        RefusalEffect::Dead,
        RefusalEffect::BackOff,
        RefusalEffect::NextWave,
        RefusalEffect::MayPauseRun,
        RefusalEffect::CountAttempt,
    ]);
    let enhanced = (any::<u8>(), any::<u16>(), any::<u16>());
    let enhanced = enhanced.prop_map(|(class, subject, detail)| EnhancedCode { class, subject, detail });
    let refused = (any::<u16>(), any::<u16>(), prop::option::of(enhanced), effect);
    let refused = refused.prop_map(|(slot, code, enhanced, effect)| RelayRefusal {
        slot: slot % 8,
        code,
        enhanced,
        text: "no".into(),
        effect,
    });
    let sets = (set(), set(), set(), set());
    let place = prop_oneof![
        4 => Just((PageId(RunId { index: 4, place: 0 }).chunk(0), fence)),
        1 => (run(), number(), long()).prop_map(|(page, chunk, index)| {
            (PageId(page).chunk(chunk), Fence { group: 1, epoch: Epoch(1), index, place: 0 })
        }),
    ];
    let unsendable = prop::collection::vec((any::<u16>(), any::<bool>()), 0..3);
    let source = prop::sample::select(vec![OutcomeSource::Owner, OutcomeSource::Journal, OutcomeSource::NoJournal]);
    (place, sets, prop::collection::vec(refused, 0..12), unsendable, (set(), any::<bool>(), source)).prop_map(
        |((chunk, fence), (accepted, released, suppressed, in_doubt), refused, unsendable, open)| ClaimOutcome {
            chunk,
            fence,
            accepted,
            released: vec![
                (ReleaseReason::OwnerCrashed, released.and_not(&open.0)),
                (ReleaseReason::OwnerCrashedComposing, released.and(&open.0)),
            ],
            suppressed,
            refused,
            in_doubt,
            unsendable: unsendable.into_iter().map(|(slot, utf8)| (slot % 8, cause(utf8))).collect(),
            alone: open.1,
            source: open.2,
            relay_reply: open.1.then(|| RelayReply {
                relay: "main".into(),
                code: 250,
                enhanced: None,
                text: "ok".into(),
            }),
        },
    )
}

fn etag() -> impl Strategy<Value = Option<String>> {
    prop::option::of(prop_oneof![Just("*".to_owned()), Just("0".to_owned()), text()])
}

fn removal() -> impl Strategy<Value = Removal> {
    (text(), etag()).prop_map(|(name, expected)| Removal { name, expected })
}

fn wild_command(fence: Fence) -> impl Strategy<Value = Command> {
    let reading = (long(), time()).prop_map(|(node, wall)| VoterClock { node: NodeId(node), wall });
    let numbers = || prop::collection::vec(number(), 0..5);
    let decision = prop::sample::select(vec![Decision::Assume, Decision::Resend, Decision::Sent]);
    let held = prop_oneof![Just(NODE), owner(),];
    let claim = (run(), prop_oneof![3 => Just(0), 1 => number()], set(), held)
        .prop_map(|(page, chunk, slice, owner)| ClaimRequest { chunk: PageId(page).chunk(chunk), slice, owner });
    let machine = (long(), long()).prop_map(|(boot, boot_ms)| MachineClock { boot, boot_ms });
    let item = prop_oneof![schedule().prop_map(Quarantined::Schedule), run().prop_map(Quarantined::Run)];
    prop_oneof![
        (owner(), number(), prop::collection::vec(reading, 0..4), prop::option::of(machine), any::<bool>()).prop_map(
            |(leader, voters, readings, machine, accept_clock)| {
                Command::EpochStart(EpochStart { leader, voters, readings, machine, accept_clock })
            }
        ),
        Just(Command::Tick),
        (owner(), text(), number(), long()).prop_map(|(owner, name, level, process_nonce)| Command::NodeUp(NodeUp {
            owner,
            name,
            level,
            process_nonce
        })),
        wild_create(),
        wild_creates(),
        wild_edit(),
        wild_backfill(),
        wild_archive(),
        wild_replan(),
        wild_send_messages(),
        wild_trigger(),
        wild_template(),
        (schedule(), text()).prop_map(|(schedule, reason)| Command::SchedulePause(SchedulePause { schedule, reason })),
        (schedule(), long()).prop_map(|(schedule, plan_version)| {
            Command::ScheduleResume(ScheduleResume { schedule, plan_version })
        }),
        (schedule(), prop::option::of(long()))
            .prop_map(|(schedule, expected)| Command::ScheduleDelete(ScheduleDelete { schedule, expected })),
        prop::collection::vec(wild_fire(), 0..3).prop_map(Command::Fire),
        prop::collection::vec(claim, 0..4).prop_map(Command::Claim),
        prop::collection::vec(wild_outcome(fence), 0..4).prop_map(Command::Settle),
        Just(Command::Revoke(vec![fence, fence])),
        prop::collection::vec(run(), 0..3).prop_map(Command::Expire),
        (run(), text()).prop_map(|(run, reason)| Command::RunPause(RunPause { run, reason })),
        (run(), any::<bool>(), prop::option::of(long())).prop_map(|(run, without_canary, expected)| {
            Command::RunResume(RunResume { run, without_canary, expected })
        }),
        (run(), prop::option::of(number())).prop_map(|(run, part)| {
            let file = part.map(RunFile::Part);
            Command::RunBlock(vec![RunBlock { run, file }; 2])
        }),
        run().prop_map(Command::RunCancel),
        (run(), numbers(), decision).prop_map(|(run, recipients, decision)| Command::Decide(Decide {
            run,
            recipients,
            decision,
            by: Decider::Operator,
            up_to: None,
            request: None,
        })),
        (run(), numbers(), prop::option::of(text())).prop_map(|(run, recipients, pool)| {
            Command::Requeue(Requeue { letters: vec![PickedRecipients { run, recipients }].into(), pool })
        }),
        (run(), numbers())
            .prop_map(|(run, recipients)| Command::Discard(vec![PickedRecipients { run, recipients }].into())),
        (text(), prop::collection::vec(text(), 0..3))
            .prop_map(|(tenant, keys)| Command::OptOut(OptOut { tenant, keys })),
        (text(), text(), 0_u64..200, text()).prop_map(|(tenant, key, last, reason)| {
            Command::OptOutTakeBack(OptOutTakeBack { tenant, key, last, reason })
        }),
        (item, text()).prop_map(|(item, cause)| Command::Quarantine(Quarantine { item, cause })),
        (
            text(),
            prop::option::of(long()),
            prop::option::of(number()),
            prop::option::of(number()),
            prop::option::of(prop::collection::btree_set(text(), 0..3)),
            etag()
        )
            .prop_map(|(name, rate_milli, concurrency, share, pools, expected)| {
                Command::TenantSet(TenantSet { request: None, name, rate_milli, concurrency, share, pools, expected })
            }),
        removal().prop_map(Command::TenantRemove),
        (text(), prop::collection::vec(number(), 0..3), prop::option::of(long()), prop::option::of(any::<bool>()))
            .prop_map(|(pool, caps, first, reveille_headers)| {
                let first = first.map(|day| Day(day as i64));
                Command::PoolSet(PoolSet { request: None, pool, caps, first, reveille_headers, expected: None })
            }),
        removal().prop_map(Command::PoolReset),
        removal().prop_map(Command::RelayRemove),
        (number(), prop::collection::vec(long(), 0..3)).prop_map(|(level, voters)| {
            Command::RaiseLevel(RaiseLevel { level, voters: voters.into_iter().map(NodeId).collect() })
        }),
        prop_oneof![Just(NODE), owner()].prop_map(|owner| Command::NodeRemove(owner.node)),
        owner().prop_map(|owner| Command::NodeInvite(owner.node)),
        owner().prop_map(|owner| Command::LeaderTransfer(owner.node)),
        (prop_oneof![Just(NODE), owner()], any::<bool>())
            .prop_map(|(owner, opens)| Command::NodeShare(NodeShare { node: owner.node, opens })),
        owner().prop_map(|owner| Command::NodeDrain(owner.node)),
        owner().prop_map(|owner| Command::NodeUndrain(owner.node)),
        Just(Command::TestClock),
        wild_advance(),
        wild_token().prop_map(|create| Command::TokenCreate(Box::new(create))),
        token_id().prop_map(Command::TokenRevoke),
        Just(Command::Restore(Box::new(samples::restore()))),
        Just(Command::RestoreAccept),
        authority_step().prop_map(Command::Authority),
        (long(), long()).prop_map(|(index, bytes)| {
            Command::BackupEnded(BackupResult::Verified(LastBackup { index, at: Time(0), bytes }))
        }),
        Just(Command::BackupEnded(BackupResult::Failed)),
        wild_erase(),
        wild_loss(),
    ]
}

/// Parts of the archive have the first places of their entry, and those of records and events the last ones.
fn wild_loss() -> impl Strategy<Value = Command> {
    let place = prop_oneof![Just(0), Just(u32::MAX - 1), Just(u32::MAX)];
    let part = (long(), place).prop_map(|(index, place)| ArchivePartKey { index, place });
    let lost = (part, 0_u8..4).prop_map(|(part, number)| LostBlocks { part, blocks: vec![Hash([number; 32])] });
    prop::collection::vec(lost, 0..3).prop_map(Command::ArchiveLossAccept)
}

fn wild_erase() -> impl Strategy<Value = Command> {
    let hash = || (0_u8..4).prop_map(|number| Hash([number; 32]));
    let part = prop::option::of((hash(), hash()).prop_map(|(former, erased)| ErasedPart { former, erased }));
    let audience = prop_oneof![3 => Just(listed(5).blob().hash), 1 => hash()];
    let lists = (prop::collection::vec(schedule(), 0..3), prop::collection::vec(run(), 0..3));
    let change = (audience, number(), part, lists).prop_map(|(audience, number, part, (schedules, runs))| {
        ErasedAudience { audience, number, part, schedules, runs }
    });
    let block = (hash(), prop::sample::select(vec![&b""[..], b"RVC1", b"RVC1\x01"]));
    let block = block.prop_map(|(former, bytes)| ErasedBlock {
        part: ArchivePartKey { index: 7, place: 0 },
        former,
        bytes: bytes.to_vec(),
    });
    let key = prop_oneof![text(), Just("u0@example.org".to_owned()), Just("u4@example.org".to_owned())];
    (text(), key, prop::collection::vec(change, 0..3), prop::option::of(block)).prop_map(
        |(tenant, key, audiences, block)| {
            let blocks = block.into_iter().collect();
            Command::RecipientErase(Box::new(RecipientErase { tenant, key, audiences, blocks }))
        },
    )
}

fn authority_step() -> impl Strategy<Value = AuthorityStep> {
    let id = || (0_u8..4).prop_map(|number| AuthorityId([number; 32]));
    prop_oneof![
        (id(), id()).prop_map(|(present, next)| AuthorityStep::Add { present, next }),
        id().prop_map(AuthorityStep::Use),
        id().prop_map(AuthorityStep::DropFormer),
        id().prop_map(AuthorityStep::Abort),
    ]
}

fn token_id() -> impl Strategy<Value = TokenId> {
    prop_oneof![9 => (0_u64..4).prop_map(TokenId), 1 => long().prop_map(TokenId)]
}

fn rights() -> impl Strategy<Value = Rights> {
    prop_oneof![4 => prop::sample::select(vec![0, 1, 2, 3, u32::MAX]), 1 => any::<u32>()].prop_map(Rights)
}

fn wild_token() -> impl Strategy<Value = TokenCreate> {
    let only = prop::collection::btree_set(text(), 0..3).prop_map(TenantScope::Only);
    let tenants = prop_oneof![2 => Just(TenantScope::All), 1 => only];
    let parts =
        (token_id(), text(), rights(), tenants, prop::option::of(time()), prop::option::weighted(0.2, rights()));
    parts.prop_map(|(id, name, rights, tenants, expires_at, revokes)| TokenCreate {
        id,
        grant: TokenGrant { hash: Hash::of(name.as_bytes()), name, rights, tenants, expires_at },
        revokes: revokes.unwrap_or_default(),
    })
}

fn wild_actor() -> impl Strategy<Value = Actor> {
    let operator = (token_id(), rights(), prop::option::of(text()));
    let operator = operator.prop_map(|(token, needs, tenant)| Actor::Operator { token, needs, tenant });
    prop_oneof![3 => Just(Actor::System), 1 => Just(Actor::Insecure), 1 => Just(Actor::Local), 2 => operator]
}

fn wild_advance() -> impl Strategy<Value = Command> {
    (time(), any::<bool>()).prop_map(|(to, jump)| Command::Advance(Advance { to, jump }))
}

/// Directs a fire or an edit of version 1 to the plan of an existing schedule, so that it passes the first checks.
fn aimed(ledger: &Ledger, mut command: Command) -> Command {
    if let Command::ScheduleEdit(edit) = &mut command
        && edit.plan_version == 1
        && let Some((id, schedule)) = ledger.schedules().iter().next()
    {
        (edit.schedule, edit.plan_version) = (*id, schedule.plan.version);
        let due = edit.timing.as_mut().and_then(|timing| timing.due.as_mut());
        if let (Some(fire), Some(next)) = (due, &schedule.plan.next) {
            (fire.schedule, fire.plan_version, fire.from) = (*id, schedule.plan.version, next.occurrence.clone());
        }
    }
    let Command::Fire(fires) = &mut command else { return command };
    let plans: Vec<_> = ledger.schedules().iter().map(|(id, schedule)| (*id, &schedule.plan)).collect();
    for fire in fires.iter_mut().filter(|fire| fire.plan_version == 1 && !plans.is_empty()) {
        let (id, plan) = plans[fire.through.0.unsigned_abs() as usize % plans.len()];
        let from = plan.next.as_ref().map_or(OccurrenceName::Instant(Time(0)), |next| next.occurrence.clone());
        (fire.schedule, fire.plan_version, fire.from) = (id, plan.version, from);
    }
    command
}

/// Checks what may only grow, whatever the command (P7, P18).
fn grows(before: &Ledger, after: &Ledger) {
    assert!(after.head().now >= before.head().now);
    for (id, was) in before.schedules().iter() {
        let Some(is) = after.schedules().get(id) else { continue };
        assert!(is.plan.fired_through >= was.plan.fired_through, "{id:?}: {:?} to {:?}", was.plan, is.plan);
        assert!(is.plan.version >= was.plan.version && is.plan.opened >= was.plan.opened);
    }
}

/// Calls all readers of the state after each entry; none of them may panic.
fn look(ledger: &Ledger) {
    let now = ledger.head().now;
    for (id, page, run) in ledger.runs() {
        for number in [0, 1, 4, 5, u32::MAX] {
            let _ = ledger.explain_recipient(id, number);
        }
        for number in [0, 1, 65_535, u32::MAX] {
            let _ = reveille_ledger::unclaimable_slots(page, number, now);
        }
        let _ = (run.occurrence.to_string(), run.due.to_string());
    }
    for (_, chunk) in ledger.chunks().iter() {
        let _ = (chunk.claimable(now), chunk.next_wave(now));
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn no_entry_that_decodes_breaks_the_ledger(
        entries in prop::collection::vec(
            (wild_command(ledger_at_work().1), prop::option::weighted(0.3, time()), wild_actor()),
            1..30,
        ),
    ) {
        let (mut ledger, _) = ledger_at_work();
        let mut given = GivenTexts::default();
        given.record(&ledger);
        for (command, now, actor) in entries {
            let head = ledger.head();
            let now = now.unwrap_or(head.now);
            let epoch = head.current_epoch().unwrap_or_default();
            let entry = Entry { epoch, now, actor, command: aimed(&ledger, command) };
            let entry = Entry::from_bytes(&entry.to_bytes()).expect("an entry reads back");
            let before = ledger.clone();
            let reply = ledger.apply(ledger.head().applied + 1, &entry).reply;
            // A node that starts from a snapshot answers as one that has applied everything.
            let mut restored = Ledger::from_rows(before.all_rows()).expect("the rows read back");
            prop_assert_eq!(&restored.apply(before.head().applied + 1, &entry).reply, &reply);
            prop_assert_eq!(restored.state_hash(), ledger.state_hash(), "{:?}", entry);
            given.record(&entry);
            given.assert_hold(&ledger);
            grows(&before, &ledger);
            let violations = violations(&ledger);
            prop_assert!(violations.is_empty(), "{:?}: {:?}", entry, violations);
            look(&ledger);
        }
    }

    #[test]
    fn test_clock_reaches_ends_of_time_and_never_goes_back(
        entries in prop::collection::vec(
            (prop_oneof![3 => wild_advance(), 1 => Just(Command::Tick), 1 => wild_create()], prop::option::of(time())),
            1..30,
        ),
    ) {
        let mut ledger = Ledger::new();
        let reading = VoterClock { node: NODE.node, wall: Time(0) };
        let start = EpochStart { leader: NODE, voters: 1, readings: vec![reading], machine: None, accept_clock: false };
        put(&mut ledger, Time(0), Command::EpochStart(start));
        prop_assert_eq!(put(&mut ledger, Time(0), Command::TestClock), CommandOutcome::Done);
        for (command, stamp) in entries {
            let before = ledger.clone();
            let stamp = stamp.unwrap_or(before.head().now.plus_ms(-before.head().offset_ms()));
            let is_advance = matches!(command, Command::Advance(_));
            let done = put(&mut ledger, stamp, command.clone()) == CommandOutcome::Done;
            if let (true, true, Command::Advance(advance)) = (is_advance, done, command) {
                prop_assert_eq!(ledger.head().now, advance.to);
                let due = before.due().next().filter(|(due, _)| *due < advance.to);
                prop_assert!(advance.jump || due.is_none(), "{:?} over {:?}", advance, due);
            }
            grows(&before, &ledger);
            prop_assert!(ledger.head().offset_ms() >= before.head().offset_ms());
            prop_assert_eq!(violations(&ledger), []);
        }
        let restored = Ledger::from_rows(ledger.all_rows()).expect("the rows read back");
        prop_assert_eq!(restored.state_hash(), ledger.state_hash());
    }
}

/// Fuzz targets (`reveille-fuzz`) for stored rows and for entries.
mod fuzz {
    use super::*;

    proptest! {
        #![proptest_config(cases(400))]

        #[test]
        fn damaged_stored_bytes_make_no_reader_panic(
            pick in any::<prop::sample::Index>(),
            damage in prop::collection::vec(damage(), 0..3),
        ) {
            let rows: Vec<(Vec<u8>, Vec<u8>)> = samples::ledger().all_rows().collect();
            let place = pick.index(rows.len());
            let damaged = damaged(&rows[place].1, &damage);
            let _ = Bitmap::from_bytes(&damaged);
            let _ = Content::from_blob(&damaged);
            let _ = Recipients::from_blob(&damaged);
            let _ = Recipients::seal_from_blob(&damaged);
            let mut rows = rows;
            rows[place].1 = damaged;
            let _ = Ledger::from_rows(rows);
        }
    }

    /// Random bytes are practically never valid. So these are entries of each command with one or two changed bytes. Many
    /// are valid, some with values that no caller of this build composes.
    #[test]
    fn entry_with_changed_bytes_is_refused_or_keeps_the_invariants() {
        const CASES: u32 = 3_000;
        let (start, fence) = ledger_at_work();
        let mut restored = start.clone();
        let command = Command::Restore(Box::new(samples::restore()));
        let (epoch, now, actor) = (Epoch(0), Time(5_000_000), Actor::System);
        let index = restored.head().applied + restored.limits().restore_ahead;
        restored.apply(index, &Entry { epoch, now, actor, command });
        let starts = [start, samples::ledger(), restored];
        let samples: Vec<Command> = samples::commands().into_iter().map(|(_, command)| command).collect();
        let command = prop_oneof![wild_command(fence), prop::sample::select(samples)];
        let strategy = (command, prop::collection::vec(damage(), 1..3), 0..starts.len());
        let decoded = std::cell::Cell::new(0);
        let outcome = TestRunner::new(cases(CASES)).run(&strategy, |(command, damage, start)| {
            let mut ledger = starts[start].clone();
            let head = ledger.head();
            let (epoch, now) = (head.current_epoch().unwrap_or_default(), head.now);
            let entry = Entry { epoch, now, actor: Actor::System, command: aimed(&ledger, command) };
            let Ok(entry) = Entry::from_bytes(&damaged(&entry.to_bytes(), &damage)) else { return Ok(()) };
            decoded.set(decoded.get() + 1);
            // A damaged stamp is refused by two comparisons; here the command matters.
            let entry = Entry { epoch, now, ..entry };
            prop_assert_eq!(Entry::from_bytes(&entry.to_bytes()), Ok(entry.clone()));
            let before = ledger.clone();
            ledger.apply(ledger.head().applied + 1, &entry);
            grows(&before, &ledger);
            let violations = violations(&ledger);
            prop_assert!(violations.is_empty(), "{:?}: {:?}", entry, violations);
            look(&ledger);
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(decoded.get() > CASES / 5, "only {} of {CASES} entries decoded", decoded.get());
    }
}

#[test]
fn tenant_with_too_many_requests_loses_only_its_own_oldest_answer() {
    let (mut ledger, _) = ledger_at_work();
    let mut ask = |tenant: &str, request: String| {
        let create = create(tenant, "weekly", Some(request));
        put(&mut ledger, Time(1_000), Command::ScheduleCreate(Box::new(create)))
    };
    let first = ask("quiet", "q".into());
    ask("busy", "b0".into());
    for number in 1..=limits(LEVEL).tenant_answers_max {
        ask("busy", format!("b{number}"));
    }
    assert_eq!(ask("quiet", "q".into()), first, "the quiet tenant's answer is still there");
    let remembered = ledger.all_rows().filter(|(key, _)| key.first() == Some(&12)).count();
    assert_eq!(remembered, limits(LEVEL).tenant_answers_max + 1);
    assert_eq!(violations(&ledger), []);
}

/// No proposer computes such a plan; but `fired_through` must not go back for it.
#[test]
fn fired_through_never_goes_back() {
    let (mut ledger, _) = ledger_at_work();
    let ahead = ScheduleCreate { after: Time(60_000), ..create("default", "ahead", None) };
    let CommandOutcome::Schedule(schedule) = put(&mut ledger, Time(1_000), Command::ScheduleCreate(Box::new(ahead)))
    else {
        panic!("a schedule")
    };
    let name = OccurrenceName::Instant(Time(1_000));
    let fire = Fire {
        schedule,
        plan_version: 1,
        from: name.clone(),
        opened: vec![],
        explained: vec![ExplainedRange {
            first: name,
            instants: InstantRange::default(),
            reason: UnopenedReason::TooLate,
        }],
        through: Time(1_000),
        next: None,
        tzdb: "test".into(),
    };
    put(&mut ledger, Time(1_000), Command::Fire(vec![fire]));
    let plan = &ledger.schedules().get(&schedule).expect("the schedule").plan;
    assert_eq!(plan.fired_through, Time(60_000));
}

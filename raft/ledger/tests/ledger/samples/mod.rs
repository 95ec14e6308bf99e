//! Samples: at least one of each command and reply, and a ledger with rows in every table.

use reveille_ledger::access::{Access, Tls, Trust};
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::calendar::{DstGap, DstOverlap, DstPolicies as Dst, Weekdays, When};
use reveille_ledger::campaign::StageKind;
use reveille_ledger::canary::{Canary, CanaryState, CanaryVerdict};
use reveille_ledger::command::*;
use reveille_ledger::content::{
    Attachment, Audience, AudienceChoice, Content, ContentChoice, NamedAudience, NamedTemplate, Recipient, Seal,
};
use reveille_ledger::etag::EtagKind;
use reveille_ledger::ids::*;
use reveille_ledger::impossible::{Impossible, LimitedQuantity};
use reveille_ledger::instant_range::InstantRange;
use reveille_ledger::labels::Labels;
use reveille_ledger::policy::{CatchUp, InDoubt, Overlap, Policies};
use reveille_ledger::pool::{Day, PoolSet};
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::{
    CancelledRun, CancelledRuns, ChangedRecipients, CommandOutcome, CommandReply, MessageReceipt, ScheduleCreation,
};
use reveille_ledger::restore::Restore;
use reveille_ledger::tenant::TenantSet;
use reveille_ledger::token::{Rights, TenantScope, TokenCreate, TokenGrant};
use reveille_ledger::{
    ArchivePartKey, BackupResult, LastBackup, Ledger, RunFile, RunState, RunStateKind, ScheduleStateKind,
    ScheduleTiming,
};

/// Number of commands; their ordinals are 0 to this minus one.
pub const COMMANDS: u8 = 61;

const NODE: NodeId = NodeId(0xfeed);
const OWNER: ClaimOwner = ClaimOwner { node: NODE, incarnation: Incarnation(3) };
const RUN: RunId = RunId { index: 1_042, place: 3 };
const FENCE: Fence = Fence { group: 1, epoch: Epoch(300), index: 1_050, place: 2 };

/// Returns the name of a command. A new variant does not compile without a name, and then needs a sample.
pub fn name(command: &Command) -> &'static str {
    match command {
        Command::EpochStart(_) => "EpochStart",
        Command::Tick => "Tick",
        Command::NodeUp(_) => "NodeUp",
        Command::RelayPut(_) => "RelayPut",
        Command::RelayRemove(_) => "RelayRemove",
        Command::ScheduleCreate(_) => "ScheduleCreate",
        Command::SchedulePause(_) => "SchedulePause",
        Command::ScheduleResume(_) => "ScheduleResume",
        Command::ScheduleDelete(_) => "ScheduleDelete",
        Command::Trigger(_) => "Trigger",
        Command::Fire(_) => "Fire",
        Command::Claim(_) => "Claim",
        Command::Settle(_) => "Settle",
        Command::Revoke(_) => "Revoke",
        Command::Expire(_) => "Expire",
        Command::RunPause(_) => "RunPause",
        Command::RunResume(_) => "RunResume",
        Command::RunCancel(_) => "RunCancel",
        Command::Decide(_) => "Decide",
        Command::Requeue(_) => "Requeue",
        Command::Discard(_) => "Discard",
        Command::OptOut(_) => "OptOut",
        Command::Quarantine(_) => "Quarantine",
        Command::TestClock => "TestClock",
        Command::Advance(_) => "Advance",
        Command::ScheduleEdit(_) => "ScheduleEdit",
        Command::Backfill(_) => "Backfill",
        Command::Archive(_) => "Archive",
        Command::Replan(_) => "Replan",
        Command::SendMessages(_) => "SendMessages",
        Command::AudienceSeal(_) => "AudienceSeal",
        Command::AudienceDelete(_) => "AudienceDelete",
        Command::CampaignCreate(_) => "CampaignCreate",
        Command::CampaignLaunch(_) => "CampaignLaunch",
        Command::CampaignArm(_) => "CampaignArm",
        Command::CampaignCancel(_) => "CampaignCancel",
        Command::CampaignDelete(_) => "CampaignDelete",
        Command::RunBlock(_) => "RunBlock",
        Command::TenantSet(_) => "TenantSet",
        Command::TenantRemove(_) => "TenantRemove",
        Command::OptOutTakeBack(_) => "OptOutTakeBack",
        Command::PoolSet(_) => "PoolSet",
        Command::PoolReset(_) => "PoolReset",
        Command::RaiseLevel(_) => "RaiseLevel",
        Command::SchedulesCreate(_) => "SchedulesCreate",
        Command::NodeDrain(_) => "NodeDrain",
        Command::NodeUndrain(_) => "NodeUndrain",
        Command::NodeShare(_) => "NodeShare",
        Command::NodeRemove(_) => "NodeRemove",
        Command::NodeInvite(_) => "NodeInvite",
        Command::LeaderTransfer(_) => "LeaderTransfer",
        Command::TokenCreate(_) => "TokenCreate",
        Command::TokenRevoke(_) => "TokenRevoke",
        Command::Restore(_) => "Restore",
        Command::RestoreAccept => "RestoreAccept",
        Command::Authority(_) => "Authority",
        Command::BackupEnded(_) => "BackupEnded",
        Command::RecipientErase(_) => "RecipientErase",
        Command::TemplatePut(_) => "TemplatePut",
        Command::TemplateDelete(_) => "TemplateDelete",
        Command::ArchiveLossAccept(_) => "ArchiveLossAccept",
        #[cfg(feature = "next-level")]
        Command::OfNextLevel => "OfNextLevel",
    }
}

fn relay() -> Relay {
    Relay {
        name: "main".into(),
        pool: "bulk".into(),
        host: "smtp.example.org".into(),
        port: 587,
        access: Access {
            tls: Tls::StartTls(Trust { ca: Some("/etc/ca.pem".into()), name: Some("mx.example.org".into()) }),
            credentials: Some("login".into()),
        },
        rate_milli: 14_000,
        max_sessions: 20,
        late_rate_milli: 700,
        weight: 3,
    }
}

fn next(seconds: i64) -> NextInstant {
    let due = Time(seconds * 1_000);
    NextInstant { occurrence: OccurrenceName::Instant(due), due, jitter_ms: 0 }
}

fn content(subject: &str) -> Content {
    Content {
        sender: "News <news@example.org>".into(),
        reply_to: Some("reply@example.org".into()),
        cc: vec!["copy@example.org".into()],
        subject: subject.into(),
        text: Some("text".into()),
        html: Some("<p>html</p>".into()),
        headers: vec![("X-A".into(), "b".into())],
        variables: vec![("site".into(), "example".into())],
        bulk: false,
        attachments: vec![Attachment {
            name: "terms.pdf".into(),
            content_type: "application/pdf".into(),
            content_id: Some("terms".into()),
            size: 70_000,
            file: Hash([0xa; 32]),
        }],
    }
}

/// Returns a schedule in which each field differs from its default.
fn create(name: &str, when: When) -> ScheduleCreate {
    let recipient = |number: u32| Recipient {
        address: format!("U{number}@Example.org"),
        key: format!("u{number}@example.org"),
        values: vec![format!("Name {number}")],
    };
    ScheduleCreate {
        request: Some("request-1".into()),
        tenant: "default".into(),
        name: name.into(),
        timing: ScheduleTiming {
            when,
            zone: "Europe/Berlin".into(),
            start: Some(Time(-5)),
            end: Some(Time(4_000_000_000_000)),
            max_runs: Some(400),
        },
        policies: Policies {
            dst: Dst { gap: DstGap::Shift, overlap: DstOverlap::Both },
            catch_up: CatchUp::All,
            start_within_ms: 3_600_000,
            finish_by_ms: 7_200_000,
            in_doubt: InDoubt::AssumeSent,
            max_attempts: 3,
            backoff_from_ms: 30_000,
            backoff_to_ms: 600_000,
            retention_ms: 86_400_000,
            overlap: Overlap::Allow,
            min_gap_ms: 1_200_000,
            jitter_ms: 300_000,
            canary: Some(Canary { share: 10_000, limit: 500 }),
        },
        pool: "bulk".into(),
        priority: 7,
        paused: None,
        content: content("Hello {{ name }}").into(),
        audience: Audience { columns: vec!["name".into()], recipients: (0..6).map(recipient).collect() }.into(),
        after: Time(0),
        next: Some(next(10)),
        tzdb: "2026f".into(),
        labels: labels("ops"),
    }
}

fn labels(team: &str) -> Labels {
    let pairs = [("team", team), ("tier", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    Labels::new(pairs.into()).expect("labels")
}

fn fire() -> Fire {
    let civil = OccurrenceName::Civil { civil_ms: 1_772_413_200_000, fold: 1 };
    Fire {
        schedule: ScheduleId::new(900, 0),
        plan_version: 4,
        from: civil.clone(),
        opened: vec![
            Opening { occurrence: civil.clone(), due: Time(5), cause: OpeningCause::Due, finish_by: Time(6) },
            Opening {
                occurrence: next(7).occurrence,
                due: Time(7_000),
                cause: OpeningCause::CatchUp,
                finish_by: Time(8_000),
            },
        ],
        explained: [
            UnopenedReason::Coalesced,
            UnopenedReason::NoCatchUp,
            UnopenedReason::TooLate,
            UnopenedReason::DoesNotExist,
            UnopenedReason::OpenedBefore,
            UnopenedReason::Edited,
            UnopenedReason::Restored,
        ]
        .map(|reason| ExplainedRange { first: civil.clone(), instants: InstantRange::every(60_000, 299), reason })
        .into(),
        through: Time(7_000),
        next: Some(next(9)),
        tzdb: "2026f".into(),
    }
}

/// Returns an edit of every field.
fn edit() -> ScheduleEdit {
    let create = create("daily", When::At { instant_ms: 1_772_409_600_000 });
    let explained = ExplainedRange {
        first: next(3).occurrence,
        instants: InstantRange::every(1_000, 6),
        reason: UnopenedReason::Edited,
    };
    ScheduleEdit {
        request: create.request,
        body_hash: Hash([7; 32]),
        schedule: ScheduleId::new(900, 0),
        plan_version: 4,
        timing: Some(TimingChange {
            timing: create.timing,
            through: Time(9_000),
            due: Some(fire()),
            explained: vec![explained],
            next: create.next,
            tzdb: create.tzdb,
        }),
        policies: Some(create.policies),
        pool: Some(create.pool),
        priority: Some(create.priority),
        content: Some(create.content),
        audience: Some(create.audience),
        labels: Some(labels("books")),
    }
}

fn one_recipient() -> Audience {
    match create("daily", When::At { instant_ms: 0 }).audience {
        AudienceChoice::Listed(listed) => Audience { recipients: listed.recipients[..1].to_vec(), ..listed },
        AudienceChoice::Sealed(_) => panic!("a list"),
    }
}

fn send_messages() -> SendMessages {
    let create = create("daily", When::At { instant_ms: 0 });
    let message = SendMessage {
        key: "order-7".into(),
        rule: KeyRule::Strict,
        is_test: false,
        content: content("Hello {{ name }}"),
        audience: one_recipient(),
        send_at: Some(Time(1_772_409_600_000)),
        pool: create.pool,
        priority: 7,
        policies: Policies { finish_by_ms: 60_000, ..create.policies },
    };
    let test =
        SendMessage { key: "test-7".into(), rule: KeyRule::FirstWins, is_test: true, send_at: None, ..message.clone() };
    SendMessages { tenant: create.tenant, messages: vec![message, test] }
}

fn backfill(schedule: ScheduleId, name: NextInstant) -> Backfill {
    let opening = Opening {
        occurrence: name.occurrence,
        due: name.due,
        cause: OpeningCause::Backfill,
        finish_by: Time(3_600_000),
    };
    Backfill {
        request: Some("request-9".into()),
        body_hash: Hash([9; 32]),
        schedule,
        openings: vec![opening],
        known: 2,
        rest: Some(Time(7_200_000)),
    }
}

fn archive(page: RunId) -> Archive {
    Archive {
        pages: vec![PageId(page)],
        after_ms: 86_400_000,
        summaries: vec![RUN],
        history: vec![(ScheduleId::new(900, 0), next(4).occurrence)],
        parts: vec![reveille_ledger::ArchivePartKey { index: 77, place: 1 }],
        blobs: vec![Hash([8; 32])],
    }
}

fn replan() -> Replan {
    Replan {
        schedule: ScheduleId::new(900, 0),
        plan_version: 4,
        from: next(4),
        next: Some(next(5)),
        tzdb: "2026b".into(),
    }
}

fn campaign_name(name: &str) -> CampaignName {
    CampaignName { tenant: "default".into(), name: name.into() }
}

/// Returns a campaign for the audience of [`audience_seal`], an hour after the sample state's time.
fn campaign(name: &str) -> CampaignCreate {
    let ScheduleCreate { tenant, timing, content, policies, pool, priority, labels, .. } =
        create("spring", When::At { instant_ms: 203_600_000 });
    CampaignCreate {
        request: Some("request-11".into()),
        tenant,
        name: name.into(),
        due: Time(203_600_000),
        zone: timing.zone,
        audience: "all".into(),
        content,
        policies: Policies { min_gap_ms: 0, ..policies },
        finish_by_given: false,
        pool,
        priority,
        labels,
    }
}

fn campaign_launch(name: &str) -> CampaignLaunch {
    CampaignLaunch {
        campaign: campaign_name(name),
        due: Time(203_600_000),
        checked: Some(audience_seal().seal.blob().hash),
        again: true,
        tzdb: "2026a".into(),
        expected: None,
    }
}

fn audience_seal() -> AudienceSeal {
    let seal = Seal {
        name: "all".into(),
        columns: vec!["name".into()],
        rows: 65_537,
        parts: vec![Hash([3; 32]), Hash([4; 32])],
    };
    AudienceSeal { request: Some("request-10".into()), tenant: "default".into(), seal }
}

fn sealed() -> Command {
    let seal = audience_seal().seal;
    let audience =
        AudienceChoice::Sealed(NamedAudience { name: seal.name.clone(), seal: seal.blob().hash, rows: seal.rows });
    let request = Some("request-11".to_owned());
    let daily = create("sealed", When::Cron { expression: "0 9 * * 1".into() });
    let policies = Policies { min_gap_ms: 0, ..daily.policies.clone() };
    Command::ScheduleCreate(Box::new(ScheduleCreate { audience, request, policies, ..daily }))
}

fn settle() -> ClaimOutcome {
    let scopes = [
        RefusalEffect::Dead,
        RefusalEffect::BackOff,
        RefusalEffect::NextWave,
        RefusalEffect::MayPauseRun,
        RefusalEffect::CountAttempt,
    ];
    let refused = |(slot, effect)| RelayRefusal {
        slot: slot as u16,
        code: 450 + slot as u16,
        enhanced: EnhancedCode::parse("4.2.1").filter(|_| slot > 0),
        text: "no".into(),
        effect,
    };
    ClaimOutcome {
        chunk: PageId(RUN).chunk(2),
        fence: FENCE,
        accepted: Bitmap::range(0, 100),
        source: OutcomeSource::Journal,
        released: vec![
            (ReleaseReason::OwnerCrashed, [3, 70].into_iter().collect()),
            (ReleaseReason::OwnerCrashedComposing, [9].into_iter().collect()),
        ],
        suppressed: [500].into_iter().collect(),
        refused: scopes.into_iter().enumerate().map(refused).collect(),
        in_doubt: (0..60_000).step_by(2).map(|slot| slot as u16).take(9_000).collect(),
        unsendable: vec![(65_534, Unsendable::NoSmtpUtf8), (65_535, Unsendable::NotComposed("no address".into()))],
        alone: true,
        relay_reply: Some(RelayReply {
            relay: "main".into(),
            code: 250,
            enhanced: EnhancedCode::parse("2.0.0"),
            text: "queued as 4F2".into(),
        }),
    }
}

/// Returns at least one of each command.
pub fn commands() -> Vec<(&'static str, Command)> {
    let daily = When::Daily { hour: 9, minute: 30, weekdays: Weekdays::EVERY_DAY };
    let every = When::Every { period_ms: 60_000, anchor_ms: -1 };
    let hashed = When::Hashed { written: "H 9 * * 1".into(), expression: "7 9 * * 1".into() };
    let reading = VoterClock { node: NODE, wall: Time(1_772_409_600_000) };
    let create = |when| Command::ScheduleCreate(Box::new(create("daily", when)));
    let letters = || PickedLetters {
        request: Some("request-1".into()),
        body_hash: Hash([7; 32]),
        tenant: "default".into(),
        of: "-".into(),
        picked: vec![PickedRecipients { run: RUN, recipients: vec![0, 300] }],
        cancelled: 3,
        rest: Some(RUN.recipient(300)),
    };
    let decide = |decision| {
        Command::Decide(Decide {
            run: RUN,
            recipients: vec![7],
            decision,
            by: Decider::Policy,
            up_to: Some(FENCE),
            request: Some("once".to_owned()),
        })
    };
    let quarantine = |item| Command::Quarantine(Quarantine { item, cause: "it panicked".into() });
    vec![
        ("EpochStart", Command::EpochStart(epoch_start(3, vec![reading]))),
        ("Tick", Command::Tick),
        ("NodeUp", Command::NodeUp(NodeUp { owner: OWNER, name: "n1".into(), level: 1, process_nonce: u64::MAX })),
        (
            "RelayPut",
            Command::RelayPut(RelayPut { request: Some("now".into()), expected: Some("3f".into()), ..relay().into() }),
        ),
        ("RelayRemove", Command::RelayRemove("main".into())),
        ("ScheduleCreate at", create(When::At { instant_ms: 1_772_409_600_000 })),
        ("ScheduleCreate cron", create(When::Cron { expression: "0 9 * * 1".into() })),
        ("ScheduleCreate daily", create(daily)),
        ("ScheduleCreate hashed", create(hashed)),
        ("ScheduleCreate every", create(every)),
        (
            "SchedulePause",
            Command::SchedulePause(SchedulePause { schedule: ScheduleId::new(900, 0), reason: "rest".into() }),
        ),
        (
            "ScheduleResume",
            Command::ScheduleResume(ScheduleResume { schedule: ScheduleId::new(900, 0), plan_version: 4 }),
        ),
        (
            "ScheduleDelete",
            Command::ScheduleDelete(ScheduleDelete { schedule: ScheduleId::new(900, 0), expected: Some(4) }),
        ),
        ("Trigger", Command::Trigger(Trigger::new(ScheduleId::new(900, 0), "now"))),
        ("Fire", Command::Fire(vec![fire()])),
        (
            "Claim",
            Command::Claim(vec![ClaimRequest {
                chunk: PageId(RUN).chunk(1),
                slice: Bitmap::range(7, 256),
                owner: OWNER,
            }]),
        ),
        ("Settle", Command::Settle(vec![settle()])),
        ("Revoke", Command::Revoke(vec![FENCE])),
        ("Expire", Command::Expire(vec![RUN])),
        ("RunPause", Command::RunPause(RunPause { run: RUN, reason: "look".into() })),
        ("RunResume", Command::RunResume(RunResume { run: RUN, without_canary: true, expected: Some(300) })),
        ("RunCancel", Command::RunCancel(RUN)),
        ("Decide assume", decide(Decision::Assume)),
        ("Decide resend", decide(Decision::Resend)),
        ("Decide sent", decide(Decision::Sent)),
        ("Requeue", Command::Requeue(Requeue { letters: letters(), pool: Some("bulk".to_owned()) })),
        ("Discard", Command::Discard(letters())),
        ("OptOut", Command::OptOut(OptOut { tenant: "default".into(), keys: vec!["u1@example.org".into()] })),
        ("Quarantine run", quarantine(Quarantined::Run(RUN))),
        ("Quarantine schedule", quarantine(Quarantined::Schedule(ScheduleId::new(900, 0)))),
        ("TestClock", Command::TestClock),
        ("Advance", Command::Advance(Advance { to: Time(1_772_409_600_000), jump: true })),
        ("ScheduleEdit", Command::ScheduleEdit(Box::new(edit()))),
        ("Backfill", Command::Backfill(backfill(ScheduleId::new(900, 0), next(4)))),
        ("Archive", Command::Archive(archive(RUN))),
        ("Replan", Command::Replan(vec![replan()])),
        ("SendMessages", Command::SendMessages(send_messages())),
        ("AudienceSeal", Command::AudienceSeal(audience_seal())),
        (
            "AudienceDelete",
            Command::AudienceDelete(AudienceDelete {
                request: Some("request-1".into()),
                tenant: "default".into(),
                name: "all".into(),
                expected: Some("7".into()),
            }),
        ),
        ("ScheduleCreate sealed", sealed()),
        ("CampaignCreate", Command::CampaignCreate(Box::new(campaign("spring")))),
        ("CampaignLaunch", Command::CampaignLaunch(campaign_launch("spring"))),
        ("CampaignArm", campaign_arm("spring")),
        ("CampaignCancel", Command::CampaignCancel(campaign_name("spring").into())),
        ("CampaignDelete", Command::CampaignDelete(campaign_name("spring").into())),
        (
            "RunBlock",
            Command::RunBlock(vec![
                RunBlock { run: RUN, file: Some(RunFile::Part(2)) },
                RunBlock { run: RUN, file: None },
            ]),
        ),
        ("TenantSet", Command::TenantSet(tenant_set())),
        ("TenantRemove", Command::TenantRemove("acme".into())),
        ("OptOutTakeBack", Command::OptOutTakeBack(take_back("u1@example.org", 300))),
        ("PoolSet", Command::PoolSet(pool_set())),
        ("PoolReset", Command::PoolReset("bulk".into())),
        ("RaiseLevel", Command::RaiseLevel(RaiseLevel { level: 2, voters: vec![NodeId(1), NodeId(300)] })),
        (
            "SchedulesCreate",
            Command::SchedulesCreate(
                ["first", "second"].map(|name| self::create(name, When::At { instant_ms: 1_772_409_600_000 })).into(),
            ),
        ),
        ("NodeDrain", Command::NodeDrain(NodeId(300))),
        ("NodeUndrain", Command::NodeUndrain(NodeId(300))),
        ("NodeShare", Command::NodeShare(NodeShare { node: NodeId(300), opens: true })),
        ("NodeRemove", Command::NodeRemove(NodeId(300))),
        ("TokenCreate", token_of_two_tenants(7)),
        ("TokenRevoke", Command::TokenRevoke(TokenId(7))),
        ("Restore", Command::Restore(Box::new(restore()))),
        ("RestoreAccept", Command::RestoreAccept),
        ("Authority", Command::Authority(AuthorityStep::Use(AuthorityId([7; 32])))),
        ("BackupEnded", Command::BackupEnded(backup())),
        ("RecipientErase", Command::RecipientErase(Box::new(recipient_erase()))),
        ("TemplatePut", template_put("welcome", "Hello")),
        ("TemplateDelete", template_delete("welcome")),
        ("NodeInvite", Command::NodeInvite(NodeId(300))),
        ("LeaderTransfer", Command::LeaderTransfer(NodeId(300))),
        ("ArchiveLossAccept", archive_loss()),
        ("ScheduleCreate of a template", of_template("welcomed", 300, Hash([7; 32]))),
    ]
}

fn template_put(name: &str, subject: &str) -> Command {
    let (tenant, name, content) = ("default".into(), name.into(), content(subject));
    Command::TemplatePut(Box::new(TemplatePut { tenant, name, content, expected: Some(300) }))
}

fn template_delete(name: &str) -> Command {
    Command::TemplateDelete(TemplateDelete { tenant: "default".into(), name: name.into(), expected: Some(300) })
}

/// Returns a schedule of a version of the template `welcome`.
fn of_template(name: &str, version: u32, content: Hash) -> Command {
    let named = NamedTemplate { name: "welcome".into(), version, content, newest: true };
    let create = create(name, When::Cron { expression: "0 9 * * 1".into() });
    let content = ContentChoice::Template(named);
    Command::ScheduleCreate(Box::new(ScheduleCreate { request: Some("request-13".into()), content, ..create }))
}

/// Returns an erasure with one change of each kind.
pub fn recipient_erase() -> RecipientErase {
    let (former, erased) = (Hash([7; 32]), Hash([8; 32]));
    let audience = ErasedAudience {
        audience: Hash([6; 32]),
        number: 300,
        part: Some(ErasedPart { former, erased }),
        schedules: vec![ScheduleId(4)],
        runs: vec![RunId { index: 1042, place: 3 }],
    };
    let block = ErasedBlock { part: ArchivePartKey { index: 77, place: 1 }, former, bytes: b"RVC1".to_vec() };
    RecipientErase {
        tenant: "default".into(),
        key: "u1@example.org".into(),
        audiences: vec![audience],
        blocks: vec![block],
    }
}

/// Returns the acceptance of a lost block.
fn archive_loss() -> Command {
    Command::ArchiveLossAccept(vec![LostBlocks {
        part: ArchivePartKey { index: 77, place: 1 },
        blocks: vec![Hash([7; 32])],
    }])
}

/// Returns a restore that keeps one token.
pub fn restore() -> Restore {
    let TokenCreate { id, grant, .. } = token(9, "admin", TenantScope::All);
    Restore { former_cluster: u128::MAX - 7, token: id, grant }
}

fn backup() -> BackupResult {
    BackupResult::Verified(LastBackup { index: 300, at: Time(1_800_000_000_000), bytes: 70_000 })
}

/// Returns one of each actor.
pub fn actors() -> Vec<(&'static str, Actor)> {
    let operator = |tenant: Option<&str>| {
        let (token, needs, tenant) = (TokenId(u64::MAX - 7), Rights(0x90), tenant.map(str::to_owned));
        Actor::Operator { token, needs, tenant }
    };
    vec![
        ("System", Actor::System),
        ("Insecure", Actor::Insecure),
        ("Operator", operator(Some("acme"))),
        ("Operator of all tenants", operator(None)),
        ("Local", Actor::Local),
    ]
}

/// Returns a token in which each field differs from its default.
fn token(id: u64, name: &str, tenants: TenantScope) -> TokenCreate {
    let (hash, expires_at) = (Hash::of(name.as_bytes()), Some(Time(1_900_000_000_000)));
    let grant = TokenGrant { name: name.into(), hash, rights: Rights(0x91), tenants, expires_at };
    TokenCreate { id: TokenId(id), grant, revokes: Rights(0x100) }
}

fn token_of_two_tenants(id: u64) -> Command {
    let tenants = ["acme", "globex"].map(str::to_owned).into();
    Command::TokenCreate(Box::new(token(id, "deploy", TenantScope::Only(tenants))))
}

fn campaign_arm(name: &str) -> Command {
    let checked = Some(Hash::of(b"the seal that was tried"));
    Command::CampaignArm(CampaignArm { campaign: campaign_name(name), checked, wrong: None })
}

fn pool_set() -> PoolSet {
    let (pool, caps, first) = ("bulk".into(), vec![50, 300], Some(Day(2)));
    PoolSet { request: Some("request-12".into()), pool, caps, first, reveille_headers: Some(false), expected: None }
}

fn tenant_set() -> TenantSet {
    TenantSet {
        request: Some("request-11".into()),
        name: "acme".into(),
        rate_milli: Some(14_000),
        concurrency: Some(300),
        share: Some(7),
        pools: Some(["bulk".into(), "news".into()].into()),
        expected: None,
    }
}

fn take_back(key: &str, last: u64) -> OptOutTakeBack {
    OptOutTakeBack { tenant: "default".into(), key: key.into(), last, reason: "by letter".into() }
}

fn epoch_start(voters: u32, readings: Vec<VoterClock>) -> EpochStart {
    let machine = Some(MachineClock { boot: u64::MAX, boot_ms: 300 });
    EpochStart { machine, ..EpochStart::new(OWNER, voters, readings) }
}

/// Returns one of each outcome and refusal. They are sent between nodes, and answers are stored.
pub fn replies() -> Vec<(String, CommandReply)> {
    let epoch = CommandOutcome::EpochStarted { epoch: Epoch(300), base: Time(5), clocks_agree: true };
    let outcomes = vec![
        CommandOutcome::Done,
        epoch,
        CommandOutcome::Schedule(ScheduleId::new(900, 0)),
        CommandOutcome::Run {
            run: RUN,
            cancelled: CancelledRuns { runs: vec![CancelledRun { run: RUN, cancelled: 300, claimed: 2 }], more: 1 },
            is_repeat: true,
        },
        CommandOutcome::Fired(vec![Ok(vec![RUN]), Err(CommandRefusal::StalePlan)]),
        CommandOutcome::Claimed(vec![Ok(FENCE), Err(CommandRefusal::NothingPending)]),
        CommandOutcome::Changed(300),
        CommandOutcome::Backfilled {
            opened: 300,
            first: Some(RUN),
            last: None,
            known: 2,
            rest: Some(Time(7_200_000)),
            inside_gap: 3,
        },
        CommandOutcome::Archived(300),
        CommandOutcome::ChangedByRun(vec![
            Ok(ChangedRecipients { recipients: 300, inside_gap: 2 }),
            Err(CommandRefusal::NoSuchRun(RUN)),
        ]),
        CommandOutcome::Schedules(vec![
            Ok(ScheduleCreation::Created(ScheduleId::new(900, 0))),
            Ok(ScheduleCreation::Existed(ScheduleId::new(7, 0))),
            Err(CommandRefusal::NameTaken("daily".into())),
        ]),
        CommandOutcome::Messages(vec![
            Ok(MessageReceipt { run: RUN, is_repeat: false }),
            Ok(MessageReceipt { run: RUN, is_repeat: true }),
            Err(CommandRefusal::RequestReused("order-7".into())),
        ]),
        CommandOutcome::Template(300),
        CommandOutcome::DeadLetters {
            moved: ChangedRecipients { recipients: 300, inside_gap: 2 },
            cancelled: 3,
            rest: Some(RUN.recipient(300)),
        },
    ];
    let refusals = vec![
        CommandRefusal::WrongEpoch { proposed: Epoch(1), current: Epoch(2) },
        CommandRefusal::TimeWentBack { ledger: Time(2), entry: Time(1) },
        CommandRefusal::TimeLeaps { ledger: Time(1), entry: Time(90_000) },
        CommandRefusal::ClocksDisagree,
        CommandRefusal::OldIncarnation { requested: Incarnation(1), known: Incarnation(2) },
        CommandRefusal::NoSuchSchedule(ScheduleId::new(9, 0)),
        CommandRefusal::NoSuchRun(RUN),
        CommandRefusal::NoSuchRelay("main".into()),
        CommandRefusal::NameTaken("daily".into()),
        CommandRefusal::RequestReused("request-1".into()),
        CommandRefusal::StalePlan,
        CommandRefusal::NotDue(Time(5)),
        CommandRefusal::FiredThrough,
        CommandRefusal::NotActive(ScheduleStateKind::Paused),
        CommandRefusal::OwnerGone,
        CommandRefusal::NothingPending,
        CommandRefusal::TooLarge { what: LimitedQuantity::ContentBytes, bound: 524_288 },
        Impossible::RunIs(RunStateKind::Cancelled).into(),
        CommandRefusal::RelayNameTaken("main".into()),
        CommandRefusal::RunOpen(RUN),
        CommandRefusal::NoSuchAudience("all".into()),
        CommandRefusal::AudienceNameTaken("all".into()),
        CommandRefusal::AudienceUsed { name: "all".into(), schedule: "daily".into() },
        CommandRefusal::NoSuchCampaign("spring".into()),
        CommandRefusal::AudienceOfCampaign { name: "all".into(), campaigns: vec!["spring".into()], more: 0 },
        CommandRefusal::CampaignNameTaken("spring".into()),
        CommandRefusal::CampaignIs(StageKind::Cancelled),
        CommandRefusal::OfCampaign("spring".into()),
        CommandRefusal::LaunchedBefore { campaign: "spring".into(), at: Time(1_772_409_600_000) },
        CommandRefusal::SentBefore { run: RUN, name: "spring".into(), at: Time(1_772_409_600_000) },
        CommandRefusal::AtConcurrency { tenant: "acme".into(), most: 300 },
        CommandRefusal::CapUsedUp { pool: "bulk".into(), until: Time(1_772_409_600_000) },
        CommandRefusal::CanaryHeld(CanaryState {
            recipients: 10,
            bad_max: 1,
            undecided: 3,
            bad: 2,
            verdict: CanaryVerdict::Held,
            seed: 7,
        }),
        CommandRefusal::NoSuchTemplate { name: "welcome".into(), version: Some(300) },
        CommandRefusal::Changed { kind: EtagKind::Relay, name: "main".into() },
        CommandRefusal::TemplateUsed { name: "welcome".into(), users: vec!["daily".into()], more: 300 },
    ];
    let refused = refusals.into_iter().map(CommandOutcome::Refused);
    let named = outcomes.into_iter().chain(refused).enumerate();
    let reply = |outcome| CommandReply { index: 1_042, is_repeat: false, outcome };
    named.map(|(number, outcome)| (format!("{number:02}"), reply(outcome))).collect()
}

/// Returns a ledger with rows in every table, made by commands only.
pub fn ledger() -> Ledger {
    let mut ledger = Ledger::new();
    let mut put = |now: i64, command: Command| {
        let head = ledger.head();
        let epoch = head.current_epoch().unwrap_or_default();
        let applied = ledger.apply(head.applied + 1, &Entry { epoch, now: Time(now), actor: Actor::System, command });
        assert!(!matches!(applied.reply.outcome, CommandOutcome::Refused(_)), "{applied:?}");
        applied.reply.outcome
    };
    let reading = VoterClock { node: NODE, wall: Time(0) };
    put(0, Command::EpochStart(epoch_start(1, vec![reading])));
    put(0, Command::NodeUp(NodeUp { owner: OWNER, name: "n1".into(), level: 1, process_nonce: 77 }));
    put(0, Command::RelayPut(relay().into()));
    let cron = When::Cron { expression: "0 9 * * 1".into() };
    let CommandOutcome::Schedule(active) = put(0, Command::ScheduleCreate(Box::new(create("active", cron.clone()))))
    else {
        panic!("a schedule");
    };
    let other = |name: &str, request: &str| {
        let create = ScheduleCreate { request: Some(request.into()), ..create(name, cron.clone()) };
        Command::ScheduleCreate(Box::new(create))
    };
    let CommandOutcome::Schedule(paused) = put(0, other("paused", "request-2")) else { panic!("a schedule") };
    let CommandOutcome::Schedule(blocked) = put(0, other("blocked", "request-3")) else { panic!("a schedule") };
    put(0, Command::SchedulePause(SchedulePause { schedule: paused, reason: "rest".into() }));
    put(0, Command::Quarantine(Quarantine { item: Quarantined::Schedule(blocked), cause: "why".into() }));
    let opening = Opening {
        occurrence: OccurrenceName::Civil { civil_ms: 3_610_000, fold: 0 },
        due: Time(10_000),
        cause: OpeningCause::Due,
        finish_by: Time(3_600_000),
    };
    let explained = ExplainedRange {
        first: next(3).occurrence,
        instants: InstantRange::every(1_000, 6),
        reason: UnopenedReason::Coalesced,
    };
    let fire = Fire {
        schedule: active,
        plan_version: 1,
        from: next(10).occurrence,
        opened: vec![opening],
        explained: vec![explained],
        through: Time(10_000),
        next: None,
        tzdb: "2026f".into(),
    };
    let CommandOutcome::Fired(fired) = put(10_000, Command::Fire(vec![fire])) else { panic!("fired") };
    let page = fired[0].as_ref().expect("a run")[0];
    let trigger = Command::Trigger(Trigger::new(active, "now"));
    let CommandOutcome::Run { run: triggered, .. } = put(10_000, trigger) else { panic!("a run") };
    // It is outside the gap of the runs above, so it opens.
    put(10_000, Command::Backfill(backfill(active, next(-1_300))));
    let mut claim = |slots: Bitmap| {
        let claim = ClaimRequest { chunk: PageId(page).chunk(0), slice: slots, owner: OWNER };
        let CommandOutcome::Claimed(answers) = put(11_000, Command::Claim(vec![claim])) else { panic!("claimed") };
        *answers[0].as_ref().expect("a row")
    };
    let (first, second, third) =
        (claim(Bitmap::range(0, 1)), claim([1].into_iter().collect()), claim(Bitmap::range(2, 3)));
    let fourth = claim([5].into_iter().collect());
    let mut settle = ClaimOutcome::empty(PageId(page).chunk(0), first);
    settle.accepted.insert(0);
    put(12_000, Command::Settle(vec![settle]));
    let mut settle = ClaimOutcome::empty(PageId(page).chunk(0), third);
    let refused = |slot, code| RelayRefusal {
        slot,
        code,
        enhanced: EnhancedCode::parse("5.1.1"),
        text: "no".into(),
        effect: RefusalEffect::Dead,
    };
    let unnamed =
        |slot, code| RelayRefusal { enhanced: None, effect: RefusalEffect::CountAttempt, ..refused(slot, code) };
    settle.refused = vec![refused(2, 550), unnamed(3, 0), unnamed(4, 554)];
    put(12_000, Command::Settle(vec![settle]));
    let mut settle = ClaimOutcome::empty(PageId(page).chunk(0), fourth);
    settle.release(ReleaseReason::OwnerCrashedComposing, 5);
    put(12_000, Command::Settle(vec![settle]));
    put(13_000, Command::Revoke(vec![second]));
    put(13_000, Command::OptOut(OptOut { tenant: "default".into(), keys: vec!["u1@example.org".into()] }));
    put(13_000, Command::RunPause(RunPause { run: page, reason: "look".into() }));
    let again = ClaimOwner { incarnation: Incarnation(4), ..OWNER };
    put(14_000, Command::NodeUp(NodeUp { owner: again, name: "n1".into(), level: 1, process_nonce: 78 }));
    put(14_000, Command::RunCancel(triggered));
    let later = 200_000_000;
    let readings = vec![VoterClock { node: NODE, wall: Time(later) }];
    put(later, Command::EpochStart(EpochStart::new(OWNER, 1, readings)));
    assert_eq!(put(later, Command::Archive(archive(triggered))), CommandOutcome::Archived(1));
    put(later, other("late", "request-8"));
    put(later, Command::TenantSet(tenant_set()));
    put(later, Command::TokenCreate(Box::new(token(1, "root", TenantScope::All))));
    put(later, token_of_two_tenants(2));
    put(later, Command::TokenRevoke(TokenId(2)));
    put(later, Command::BackupEnded(backup()));
    put(later, Command::BackupEnded(BackupResult::Failed));
    assert_eq!(put(later, Command::RecipientErase(Box::new(recipient_erase()))), CommandOutcome::Changed(0));
    put(later, Command::PoolSet(pool_set()));
    for subject in ["Hello", "Hi"] {
        let put_template =
            TemplatePut { tenant: "default".into(), name: "welcome".into(), content: content(subject), expected: None };
        put(later, Command::TemplatePut(Box::new(put_template)));
    }
    put(later, of_template("welcomed", 1, content("Hello").blob().hash));
    put(later, Command::AudienceSeal(audience_seal()));
    let CommandOutcome::Schedule(news) = put(later, sealed()) else { panic!("a schedule") };
    let trigger = Command::Trigger(Trigger::new(news, "news"));
    let CommandOutcome::Run { run: sent, .. } = put(later, trigger) else { panic!("a run") };
    put(later, Command::RunCancel(sent));
    for name in ["autumn", "spring", "summer"] {
        let campaign = CampaignCreate { request: None, ..campaign(name) };
        assert_eq!(put(later, Command::CampaignCreate(Box::new(campaign))), CommandOutcome::Done);
    }
    assert_eq!(put(later, Command::CampaignLaunch(campaign_launch("spring"))), CommandOutcome::Done);
    assert_eq!(put(later, Command::CampaignCancel(campaign_name("summer").into())), CommandOutcome::Done);
    put(later, Command::OptOut(OptOut { tenant: "default".into(), keys: vec!["u9@example.org".into()] }));
    let head = ledger.head();
    let command = Command::OptOutTakeBack(take_back("u9@example.org", head.applied));
    let (epoch, next) = (head.current_epoch().unwrap_or_default(), head.applied + 1);
    let taken_back = ledger.apply(next, &Entry { epoch, now: Time(later), actor: Actor::System, command }).reply;
    assert_eq!(taken_back.outcome, CommandOutcome::Changed(1));
    // A run to a sealed audience leaves its summary in the state.
    let much_later = Time(later + 100 * 86_400_000);
    let start = EpochStart::new(OWNER, 1, vec![VoterClock { node: NODE, wall: much_later }]);
    let epoch = Epoch(next + 1);
    let second = ClaimOwner { node: NodeId(300), ..OWNER };
    for (index, command) in (next + 1..).zip([
        Command::EpochStart(start),
        Command::Archive(archive(sent)),
        Command::TenantSet(tenant_set()),
        Command::NodeUp(NodeUp { owner: second, name: "n2".into(), level: 1, process_nonce: 79 }),
        Command::NodeRemove(second.node),
        Command::Authority(AuthorityStep::Add { present: AuthorityId([8; 32]), next: AuthorityId([9; 32]) }),
    ]) {
        let by_operator = matches!(command, Command::TenantSet(_));
        let actor = if by_operator { Actor::Insecure } else { Actor::System };
        let outcome = ledger.apply(index, &Entry { epoch, now: much_later, actor, command }).reply.outcome;
        assert!(!matches!(outcome, CommandOutcome::Refused(_)), "{outcome:?}");
    }
    assert!(ledger.summaries().contains(&sent));
    assert_eq!(ledger.nodes().get(&NODE).map(|node| node.crashes.times()), Some(&[Time(14_000)][..]));
    assert!(matches!(ledger.run(page).map(|run| &run.state), Some(RunState::Paused { .. })));
    ledger
}

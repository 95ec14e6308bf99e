//! Tests of names of runs and recipients, in a night with a change of the clocks.

use super::*;
use reveille_ledger::ScheduleTiming;
use reveille_ledger::calendar::{Pattern, When};
use reveille_ledger::command::{Actor, Archive, Command, Entry, EpochStart, ScheduleCreate, Trigger, VoterClock};
use reveille_ledger::content::{Audience, Content, Recipient};
use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, PageId};
use reveille_ledger::planning::catch_up::plan_fire;
use reveille_ledger::planning::timing::{Calendar, Jitter, first_instant_after};
use reveille_ledger::policy::{Overlap, Policies};
use tonic::Code;

const ZONE: &str = "America/New_York";

/// Returns a schedule with one recipient.
pub fn create(expression: &str, zones: &Zones, after: Time) -> ScheduleCreate {
    let when = When::Cron { expression: expression.into() };
    let (pattern, zone) = (Pattern::compile(&when).expect("a pattern"), zones.get(ZONE).expect("a zone"));
    let policies = Policies { overlap: Overlap::Allow, ..Policies::default() };
    let address = "a@example.org".to_owned();
    ScheduleCreate {
        request: None,
        tenant: "default".to_owned(),
        name: "night".to_owned(),
        next: first_instant_after(
            Calendar { pattern: &pattern, zone: &zone },
            &policies.dst,
            after,
            (None, None),
            Jitter::NONE,
        ),
        timing: ScheduleTiming::new(when, ZONE),
        policies,
        pool: "default".to_owned(),
        priority: 0,
        paused: None,
        content: Content { sender: address.clone(), ..Content::default() }.into(),
        audience: Audience {
            columns: Vec::new(),
            recipients: vec![Recipient { key: address.clone(), address, values: Vec::new() }],
        }
        .into(),
        after,
        tzdb: zone.tzdb,
        labels: reveille_ledger::labels::Labels::default(),
    }
}

/// Returns a ledger in which a schedule fired once in the night of the gap, and was triggered once.
fn fired(expression: &str, zones: &Zones) -> Ledger {
    let now: jiff::Timestamp = "2026-03-08T07:00:30Z".parse().expect("an instant");
    let now = Time::from(now);
    let leader = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
    let mut ledger = Ledger::new();
    let mut index = 0;
    let mut play = |ledger: &mut Ledger, command| {
        index += 1;
        ledger.apply(index, &Entry { epoch: Epoch(1), now, actor: Actor::System, command });
    };
    let readings = vec![VoterClock { node: leader.node, wall: now }];
    play(&mut ledger, Command::EpochStart(EpochStart::new(leader, 1, readings)));
    let requested = create(expression, zones, now.plus_ms(-600_000));
    let (pattern, zone) =
        (Pattern::compile(&requested.timing.when).expect("a pattern"), zones.get(ZONE).expect("a zone"));
    play(&mut ledger, Command::ScheduleCreate(Box::new(requested)));
    let fire = plan_fire(&ledger, ScheduleId::new(2, 0), &pattern, &zone, now).expect("due");
    play(&mut ledger, Command::Fire(vec![fire]));
    play(&mut ledger, Command::Trigger(Trigger::new(ScheduleId::new(2, 0), "id-7")));
    ledger
}

#[test]
fn run_is_found_by_name_local_time_instant_or_trigger() {
    let zones = Zones::bundled("x");
    // 02:30 does not exist in that night. The schedule fires at 03:00, which is 07:00 UTC.
    let moved = fired("30 2 * * *", &zones);
    let interval = fired("*/30 * * * *", &zones);
    let table = [
        (&moved, "night@2026-03-08T02:30", "r3.0"),
        (&moved, "night@2026-03-08T03:00:00", "r3.0"),
        (&moved, "night@2026-03-08T07:00:00Z", "r3.0"),
        (&moved, "night@2026-03-08T03:00:00-04:00", "r3.0"),
        (&moved, "night@id-7", "r4.0"),
        (&moved, "night@trigger id-7", "r4.0"),
        (&moved, "r4.0", "r4.0"),
        (&interval, "night@2026-03-08T03:00", "r3.0"),
        (&interval, "night@2026-03-08T07:00:00Z", "r3.0"),
    ];
    for (ledger, text, run) in table {
        let argument = RunArgument::parse(text).expect(text);
        let expected = FoundRun::Known(run.parse().expect("a run"));
        assert_eq!(argument.find(ledger, &zones, "default"), Ok(expected), "{text}");
        let of_another = argument.find(ledger, &zones, "acme");
        match argument {
            // As a run that does not exist, so that both take as long.
            RunArgument::Number(run) => assert_eq!(of_another, Ok(FoundRun::Archived(run))),
            RunArgument::Occurrence { .. } => {
                assert_eq!(of_another.map_err(|fault| fault.code()), Err(Code::NotFound), "{text}");
            }
        }
    }
    for text in ["night@2026-03-09T02:30", "night@id-8", "day@id-7"] {
        let argument = RunArgument::parse(text).expect(text);
        assert_eq!(
            argument.find(&moved, &zones, "default").map_err(|fault| fault.code()),
            Err(Code::NotFound),
            "{text}"
        );
    }
    let unknown = RunArgument::parse("r9.0").expect("a run").find(&moved, &zones, "default").expect("a search");
    assert_eq!(unknown, FoundRun::Archived(RunId { index: 9, place: 0 }));
    for text in ["", "night", "@id", "night@", "1042.3"] {
        assert!(RunArgument::parse(text).is_err(), "{text}");
    }
}

#[test]
fn recipient_is_an_address_or_a_number() {
    assert_eq!(RecipientArgument::parse("recipient", "#17"), Ok(RecipientArgument::Number(17)));
    let key = RecipientArgument::Key("ada@example.net".to_owned());
    assert_eq!(RecipientArgument::parse("recipient", "Ada@Example.NET"), Ok(key));
    for text in ["", "17", "#", "#-1", "#1.5", "ada"] {
        assert!(RecipientArgument::parse("recipient", text).is_err(), "{text}");
    }
}

#[test]
fn archived_run_is_searched_in_the_archive() {
    let zones = Zones::bundled("x");
    let mut ledger = fired("30 2 * * *", &zones);
    let (fired, triggered) = (RunId { index: 3, place: 0 }, RunId { index: 4, place: 0 });
    let mut play = |days: i64, command| {
        let (head, day_ms) = (ledger.head(), reveille_ledger::policy::DAY_MS);
        let epoch = head.current_epoch().unwrap_or_default();
        let (index, now) = (head.applied + 1, head.now.plus_ms(days * day_ms));
        let command = match days {
            0 => command,
            _ => {
                let leader = ClaimOwner { node: NodeId(1), incarnation: Incarnation(1) };
                let readings = vec![VoterClock { node: leader.node, wall: now }];
                Command::EpochStart(EpochStart::new(leader, 1, readings))
            }
        };
        ledger.apply(index, &Entry { epoch, now, actor: Actor::System, command }).reply.outcome
    };
    play(0, Command::RunCancel(fired));
    play(0, Command::RunCancel(triggered));
    play(91, Command::Tick);
    let archive = Archive { pages: vec![PageId(fired), PageId(triggered)], ..Archive::default() };
    assert_eq!(play(0, Command::Archive(archive)), reveille_ledger::reply::CommandOutcome::Archived(2));

    let find = |text: &str| RunArgument::parse(text).expect(text).find(&ledger, &zones, "default");
    let occurrence = |wanted| Ok(FoundRun::ArchivedOccurrence { last: triggered, wanted });
    assert_eq!(find("r3.0"), Ok(FoundRun::Archived(fired)));
    let civil_ms = civil_ms(jiff::civil::datetime(2026, 3, 8, 2, 30, 0, 0)).expect("a local time");
    let moved = WantedOccurrence::Named(OccurrenceName::Civil { civil_ms, fold: 0 });
    assert_eq!(find("night@2026-03-08T02:30"), occurrence(moved));
    let due: jiff::Timestamp = "2026-03-08T07:00:00Z".parse().expect("an instant");
    for name in ["night@2026-03-08T03:00:00", "night@2026-03-08T07:00:00Z"] {
        assert_eq!(find(name), occurrence(WantedOccurrence::Due(due.into())), "{name}");
    }
    assert_eq!(find("night@id-7"), Ok(FoundRun::Known(triggered)), "the state still has the name");
    let unknown = WantedOccurrence::Named(OccurrenceName::Trigger("id-8".to_owned()));
    assert_eq!(find("night@id-8"), occurrence(unknown), "the state may have forgotten the name");
    assert_eq!(find("night@2026-03-08T04:00").map_err(|fault| fault.code()), Err(Code::NotFound));
}

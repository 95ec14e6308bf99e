//! The workload of a seed: its civil time, its schedules and their recipients.

use chrono_tz::Tz;
use reveille_check::calendar::{Civil, Fold, Gap, Rule};
use reveille_ledger::calendar::{Weekdays, When};
use reveille_ledger::ids::Time;
use reveille_ledger::policy::{CatchUp, InDoubt, Overlap};

use crate::limits::Limited;
use crate::random::{Purpose, RandomStream};
use crate::schedule::{AddressLists, CalendarScenario, LAST_MS, LaunchKind, PlannedSchedule, TENANTS};

/// Calendar events of the seeds: changes of the clocks in both hemispheres, by two hours, one hour and half an hour, at
/// night and at midnight; ends of months and years; leap days; and two ordinary days.
pub const SCENARIOS: [CalendarScenario; 18] = [
    scenario("clocks go forward", "2026-03-08T06:50:00Z", Tz::America__New_York),
    scenario("clocks go back", "2026-11-01T05:50:00Z", Tz::America__New_York),
    scenario("clocks go forward", "2026-03-29T00:50:00Z", Tz::Europe__Berlin),
    scenario("clocks go back", "2026-10-25T00:50:00Z", Tz::Europe__Berlin),
    scenario("clocks go back by half an hour", "2026-04-04T14:50:00Z", Tz::Australia__Lord_Howe),
    scenario("clocks go forward by half an hour", "2026-10-03T15:20:00Z", Tz::Australia__Lord_Howe),
    scenario("clocks go forward by two hours", "2026-03-29T00:50:00Z", Tz::Antarctica__Troll),
    scenario("clocks go back by two hours", "2026-10-25T00:50:00Z", Tz::Antarctica__Troll),
    scenario("clocks go forward at midnight", "2026-04-23T21:50:00Z", Tz::Africa__Cairo),
    scenario("clocks go back at midnight", "2026-10-29T20:50:00Z", Tz::Africa__Cairo),
    scenario("leap day begins", "2028-02-28T23:50:00Z", Tz::UTC),
    scenario("leap day ends", "2028-02-29T18:05:00Z", Tz::Asia__Kathmandu),
    scenario("month ends", "2026-01-31T14:50:00Z", Tz::Asia__Tokyo),
    scenario("february ends", "2027-02-28T18:05:00Z", Tz::Asia__Kathmandu),
    scenario("april ends", "2026-05-01T03:50:00Z", Tz::America__New_York),
    scenario("year ends", "2026-12-31T23:50:00Z", Tz::Europe__London),
    scenario("a day like any other", "2026-06-17T08:50:00Z", Tz::America__Sao_Paulo),
    scenario("a night like any other", "2026-08-20T18:20:00Z", Tz::Asia__Kolkata),
];

const fn scenario(name: &'static str, begins: &'static str, zone: Tz) -> CalendarScenario {
    CalendarScenario { name, begins, zone }
}

/// Number of the first campaign. Schedules have smaller numbers.
const FIRST_CAMPAIGN: u64 = 100;

/// The workload.
pub struct SeedPlan {
    /// Calendar event shortly after the beginning of the run.
    pub scenario: CalendarScenario,
    /// Beginning of the run.
    pub begins: Time,
    /// Schedules and campaigns to create.
    pub schedules: Vec<PlannedSchedule>,
    /// Addresses that the relay refuses as unknown.
    pub unknown: Vec<String>,
    /// The policy of all schedules for recipients in doubt.
    pub in_doubt: InDoubt,
}

impl SeedPlan {
    /// Draws the plan of a seed, for a run of `minutes`.
    pub fn draw(random: &mut RandomStream, seed: u64, minutes: i64) -> SeedPlan {
        let scenario = *random.one_of(&SCENARIOS);
        let begins = Time(scenario.begins.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond));
        let count = random.within(4..12);
        let in_doubt = match random.within(0..100) {
            0..70 => InDoubt::Hold,
            70..85 => InDoubt::Resend,
            _ => InDoubt::AssumeSent,
        };
        let mut schedules: Vec<PlannedSchedule> =
            (0..count).map(|number| planned(random, number, scenario, begins, minutes)).collect();
        schedules.iter_mut().for_each(|planned| planned.in_doubt = in_doubt);
        let all_recipients = schedules.iter().flat_map(|planned| planned.recipients.iter().cloned());
        let unknown = all_recipients.filter(|_| random.percent(4)).collect();
        schedules.extend(Limited::of(seed).planned(scenario, begins, minutes, in_doubt));
        // Campaigns have a stream of their own, so that they change no other draw.
        let mut own = RandomStream::of(seed, Purpose::Campaigns);
        for number in FIRST_CAMPAIGN..FIRST_CAMPAIGN + own.within(0..3) {
            let mut campaign = planned(&mut own, number, scenario, begins, minutes);
            let instant_ms = begins.0 + own.within(120_000..minutes as u64 * 60_000 - 180_000) as i64;
            (campaign.when, campaign.rule) = (When::At { instant_ms }, Rule::Once { at_unix_ms: instant_ms });
            (campaign.is_sealed, campaign.in_doubt) = (true, in_doubt);
            schedules.push(campaign);
        }
        for planned in schedules.iter_mut().filter(|planned| matches!(planned.when, When::At { .. })) {
            planned.launch = planned.is_sealed.then(|| LaunchKind::draw(&mut own));
        }
        SeedPlan { scenario, begins, schedules, unknown, in_doubt }
    }

    /// Returns the addresses of each schedule, by its name.
    pub fn lists(&self) -> AddressLists {
        self.schedules.iter().map(|planned| (planned.name.clone(), planned.recipients.clone())).collect()
    }
}

fn planned(
    random: &mut RandomStream,
    number: u64,
    scenario: CalendarScenario,
    begins: Time,
    minutes: i64,
) -> PlannedSchedule {
    let elsewhere = [Tz::UTC, Tz::Europe__London, Tz::America__Los_Angeles, Tz::Asia__Kathmandu, Tz::Pacific__Auckland];
    let zone = if random.percent(70) { scenario.zone } else { *random.one_of(&elsewhere) };
    let minute = i64::try_from(random.within(2..minutes as u64 - 2)).unwrap_or(2);
    let civil = begins.plus_ms(minute * 60_000).timestamp().to_zoned(local_zone(zone)).datetime();
    let (hour, of_hour) = (civil.hour().unsigned_abs(), civil.minute().unsigned_abs());
    let changes = (
        *random.one_of(&[Gap::After, Gap::Shift, Gap::Skip]),
        *random.one_of(&[Fold::First, Fold::Second, Fold::Both]),
    );
    let local = Civil { minute: of_hour.into(), hour: Some(hour.into()), ..Civil::default() };
    let civil_rule = |times| Rule::Civil { zone: zone.name().to_owned(), times, gap: changes.0, fold: changes.1 };
    let (when, rule) = match random.within(0..100) {
        0..30 => (When::Daily { hour, minute: of_hour, weekdays: Weekdays::EVERY_DAY }, civil_rule(local)),
        30..45 => {
            let every = *random.one_of(&[1, 2, 3, 5, 10]);
            let rule = civil_rule(Civil { every_minutes: every, ..Civil::default() });
            (When::Cron { expression: format!("*/{every} * * * *").into() }, rule)
        }
        45..60 => {
            let (day, month) = (civil.day().unsigned_abs(), civil.month().unsigned_abs());
            let rule = civil_rule(Civil { day: Some(day.into()), month: Some(month.into()), ..local });
            (When::Cron { expression: format!("{of_hour} {hour} {day} {month} *").into() }, rule)
        }
        60..80 => {
            let period_ms = *random.one_of(&[45_000, 60_000, 90_000, 150_000, 240_000]);
            let anchor_ms = begins.0 + i64::try_from(random.within(0..120_000)).unwrap_or(0);
            (
                When::Every { period_ms: period_ms as u64, anchor_ms },
                Rule::Every { milliseconds: period_ms, anchor_unix_ms: anchor_ms },
            )
        }
        _ => {
            let instant_ms = begins.0 + minute * 60_000 + i64::try_from(random.within(0..60_000)).unwrap_or(0);
            (When::At { instant_ms }, Rule::Once { at_unix_ms: instant_ms })
        }
    };
    // One schedule needs many recipients, because some faults are aimed at handoffs.
    let people = *random.one_of(if number == 0 { &[80, 160, 300][..] } else { &[1, 1, 3, 8, 16, 40, 300] });
    PlannedSchedule {
        tenant: if random.percent(30) { TENANTS[1] } else { TENANTS[0] },
        name: format!("s{number}"),
        is_sealed: random.percent(25),
        launch: None,
        at_ms: i64::try_from(random.within(0..60_000)).unwrap_or(0),
        when,
        rule,
        zone,
        changes,
        end: begins.plus_ms(minutes * 60_000 - LAST_MS),
        recipients: (0..people).map(|person| format!("p{person}@s{number}.example")).collect(),
        in_doubt: InDoubt::Hold,
        catch_up: *random.one_of(&[CatchUp::One, CatchUp::All, CatchUp::All, CatchUp::None]),
        overlap: *random.one_of(&[Overlap::BufferOne, Overlap::Allow, Overlap::Allow, Overlap::Skip]),
        pool: "default",
        min_gap_ms: 0,
        max_attempts: 1 + number as u8 % 3,
    }
}

/// Returns the zone in the product's library, only to choose local times within the run.
fn local_zone(zone: Tz) -> jiff::tz::TimeZone {
    jiff::tz::TimeZone::get(zone.name()).unwrap_or(jiff::tz::TimeZone::UTC)
}

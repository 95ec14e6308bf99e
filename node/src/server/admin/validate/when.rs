//! Validates when a schedule fires: the pattern and the zone.

use std::str::FromStr;

use reveille_cluster::process::zones::Zones;
use reveille_ledger::calendar::{Pattern, PatternError, Weekdays, When};
use reveille_ledger::ids::Time;
use reveille_ledger::planning::timing::Zone;
use reveille_proto::admin::v1::{self, ErrorReason, when};

use super::{Fields, milliseconds};

/// Returns the pattern and its compiled form. `start` is the anchor of a period without an anchor. Without both, the
/// period counts from the Unix epoch, so that equal requests mean equal instants. `H` in a cron expression is derived
/// from tenant and name.
pub fn pattern(
    fields: &mut Fields,
    requested: Option<v1::When>,
    start: Option<Time>,
    (tenant, name): (&str, &str),
) -> Option<(When, Pattern)> {
    let Some(requested) = requested.and_then(|when| when.pattern) else {
        fields.refuse("schedule.timing", "is missing; give one of cron, daily, every or at");
        return None;
    };
    let (field, when) = match requested {
        when::Pattern::Cron(expression) => match When::cron(&expression, tenant, name) {
            Ok(when) => ("schedule.timing.cron", Some(when)),
            Err(error) => return refuse(fields, "schedule.timing.cron", &error),
        },
        when::Pattern::Daily(daily) => ("schedule.timing.daily", read_daily(fields, &daily)),
        when::Pattern::Every(every) => ("schedule.timing.every", read_every(fields, every, start)),
        when::Pattern::At(instant) => {
            let instant = fields.instant("schedule.timing.at", instant);
            ("schedule.timing.at", instant.map(|instant| When::At { instant_ms: instant.0 }))
        }
    };
    let when = when?;
    match Pattern::compile(&when) {
        Ok(pattern) => Some((when, pattern)),
        Err(error) => refuse(fields, field, &error),
    }
}

fn refuse<T>(fields: &mut Fields, field: &str, error: &PatternError) -> Option<T> {
    let never = matches!(error, PatternError::NeverFires { .. } | PatternError::NoWeekday);
    let reason = if never { ErrorReason::NeverFires } else { ErrorReason::InvalidField };
    fields.refuse_as(reason, field, error.to_string());
    None
}

fn read_daily(fields: &mut Fields, daily: &v1::Daily) -> Option<When> {
    let weekdays = match daily.days.as_str() {
        "" => Some(Weekdays::EVERY_DAY),
        days => fields.take("schedule.timing.daily.days", Weekdays::from_str(days)),
    };
    let (Ok(hour), Ok(minute)) = (u8::try_from(daily.hour), u8::try_from(daily.minute)) else {
        let given = format!("{:02}:{:02}", daily.hour, daily.minute);
        fields.refuse("schedule.timing.daily", format!("{given} is not a time of day; give from 00:00 to 23:59"));
        return None;
    };
    Some(When::Daily { hour, minute, weekdays: weekdays? })
}

fn read_every(fields: &mut Fields, every: v1::Every, start: Option<Time>) -> Option<When> {
    let anchor = match every.anchor_time {
        Some(anchor) => fields.instant("schedule.timing.every.anchor_time", anchor)?,
        None => start.unwrap_or(Time(0)),
    };
    let Some(period_ms) = every.period.and_then(milliseconds).and_then(|ms| u64::try_from(ms).ok()) else {
        fields.refuse("schedule.timing.every.period", "is missing or below zero; give from one second to ten years");
        return None;
    };
    Some(When::Every { period_ms, anchor_ms: anchor.0 })
}

/// Returns the zone with its rules.
pub fn zone(fields: &mut Fields, name: &str, zones: &Zones) -> Option<Zone> {
    if name.is_empty() {
        fields.refuse("schedule.zone", "is missing; give an IANA name such as Europe/Berlin");
        return None;
    }
    match zones.get(name) {
        Ok(zone) => Some(zone),
        Err(unknown) => {
            fields.refuse_as(ErrorReason::UnknownZone, "schedule.zone", unknown.to_string());
            None
        }
    }
}

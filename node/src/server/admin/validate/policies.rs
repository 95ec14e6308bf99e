//! Validates policies: checks bounds and fills in defaults.

use prost_types::Duration;
use reveille_ledger::calendar::{DstPolicies, When};
use reveille_ledger::policy::{DAY_MS, FINISH_MS_MAX, HOUR_MS, MINUTE_MS, Policies};
use reveille_proto::admin::v1;

use super::{DurationBounds, Fields, milliseconds};
use crate::format::whole_units;
use crate::server::admin::enums::OfWire;

const START_WITHIN: DurationBounds =
    DurationBounds { least_ms: MINUTE_MS, most_ms: 30 * DAY_MS, default_ms: 12 * HOUR_MS };
const FINISH_BY: DurationBounds = DurationBounds { least_ms: MINUTE_MS, most_ms: FINISH_MS_MAX, default_ms: DAY_MS };
const RETENTION: DurationBounds = DurationBounds { least_ms: DAY_MS, most_ms: 3_650 * DAY_MS, default_ms: 90 * DAY_MS };
const JITTER: DurationBounds = DurationBounds { least_ms: 1_000, most_ms: DAY_MS, default_ms: 0 };
/// Maximum number of attempts. With a back-off of up to an hour, 100 attempts take about four days.
const ATTEMPTS_MAX: u32 = 100;

/// Default `min_gap` of a daily schedule: at most one email per day, whatever triggers its runs.
const GAP_OF_DAILY_MS: i64 = 20 * HOUR_MS;
// A send within the gap must still be known, so the gap is not longer than the shortest retention.
const _: () = assert!(GAP_OF_DAILY_MS <= RETENTION.least_ms);

/// Checks `min_gap`. Unlike other durations, zero means no gap, and only an absent value means the default. A sealed
/// audience cannot have a gap, because the ledger does not have its addresses.
fn min_gap(
    fields: &mut Fields,
    requested: Option<Duration>,
    when: Option<&When>,
    (is_sealed, retention_ms): (bool, i64),
) -> i64 {
    const FIELD: &str = "schedule.policies.min_gap";
    let is_daily = matches!(when, Some(When::Daily { .. }));
    let Some(requested) = requested else { return if is_daily && !is_sealed { GAP_OF_DAILY_MS } else { 0 } };
    match milliseconds(requested) {
        Some(1..) if is_sealed => {
            fields.refuse(FIELD, "keeps emails to listed recipients apart, and the audience is sealed; give none");
        }
        Some(ms) if ms <= retention_ms => return ms,
        Some(ms) => {
            let (gap, kept) = (whole_units(ms), whole_units(retention_ms));
            fields.refuse(FIELD, format!("is {gap}, more than the retention, {kept}; keep what was sent for longer"));
        }
        None => fields.refuse(FIELD, "is not a length of time; give none, or up to the retention"),
    }
    0
}

/// Checks the policies. `when` is `None` if the pattern is invalid. The default of `min_gap` depends on `when` and on
/// `is_sealed`.
pub fn policies(fields: &mut Fields, requested: v1::Policies, when: Option<&When>, is_sealed: bool) -> Policies {
    let default = Policies::default();
    let max_attempts = match requested.max_attempts {
        0 => Some(default.max_attempts),
        attempts => u8::try_from(attempts).ok().filter(|_| attempts <= ATTEMPTS_MAX),
    };
    if max_attempts.is_none() {
        fields.refuse("schedule.policies.max_attempts", format!("is above {ATTEMPTS_MAX}; give 1 to {ATTEMPTS_MAX}"));
    }
    let retention_ms = fields.length("schedule.policies.retention", requested.retention, RETENTION);
    Policies {
        dst: DstPolicies {
            gap: known(fields, "dst_gap", requested.dst_gap),
            overlap: known(fields, "dst_overlap", requested.dst_overlap),
        },
        catch_up: known(fields, "catch_up", requested.catch_up),
        start_within_ms: fields.length("schedule.policies.start_within", requested.start_within, START_WITHIN),
        finish_by_ms: fields.length("schedule.policies.finish_by", requested.finish_by, FINISH_BY),
        retention_ms,
        jitter_ms: fields.length("schedule.policies.jitter", requested.jitter, JITTER),
        min_gap_ms: min_gap(fields, requested.min_gap, when, (is_sealed, retention_ms)),
        in_doubt: known(fields, "in_doubt", requested.in_doubt),
        overlap: known(fields, "overlap", requested.overlap),
        max_attempts: max_attempts.unwrap_or(default.max_attempts),
        ..default
    }
}

/// Checks that this build knows the value of an enumeration.
fn known<T: OfWire>(fields: &mut Fields, knob: &str, number: i32) -> T {
    let value = T::of_wire(number);
    if value.is_none() {
        let next = "leave it out, or ask a newer node";
        fields.refuse(format!("schedule.policies.{knob}"), format!("is a value that this node does not know; {next}"));
    }
    value.unwrap_or_default()
}

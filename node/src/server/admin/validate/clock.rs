//! Validates the target time of a test clock (P19).

use prost_types::Duration;
use reveille_ledger::ids::Time;
use reveille_ledger::policy::DAY_MS;
use reveille_proto::admin::v1::advance_clock_request::Target;

use super::{ApiResult, DurationBounds, Fields};

/// Maximum step of the test clock: ten years. A larger one is probably a mistake, and the clock cannot go back.
const FORWARD: DurationBounds = DurationBounds { least_ms: 1, most_ms: 3_660 * DAY_MS, default_ms: 0 };

/// Returns the time to which the clock moves from `now`: forward, by at most ten years.
pub fn target(requested: Option<Target>, now: Time) -> ApiResult<Time> {
    let mut fields = Fields::default();
    let to = match requested {
        None => {
            fields.refuse("target", "is missing; say how far, or to which instant");
            None
        }
        Some(Target::By(by)) if by == Duration::default() => {
            fields.refuse("by", "is nothing; the clock goes forward");
            None
        }
        Some(Target::By(by)) => Some(now.plus_ms(fields.length("by", Some(by), FORWARD))),
        Some(Target::TargetTime(instant)) => fields.instant("target_time", instant).filter(|to| {
            let ahead_ms = to.since_ms(now);
            if ahead_ms <= 0 {
                fields.refuse("target_time", format!("is past: it is {now} already, and the clock only goes forward"));
            } else if ahead_ms > FORWARD.most_ms {
                fields.refuse("target_time", "is more than ten years ahead, and there is no way back");
            }
            (1..=FORWARD.most_ms).contains(&ahead_ms)
        }),
    };
    fields.done(to)
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    fn by(seconds: i64) -> Option<Target> {
        Some(Target::By(Duration { seconds, nanos: 0 }))
    }

    fn to(seconds: i64) -> Option<Target> {
        Some(Target::TargetTime(Timestamp { seconds, nanos: 0 }))
    }

    #[test]
    fn clock_is_moved_forward_and_not_by_a_slip_of_the_hand() {
        let now = Time(1_000_000);
        assert_eq!(target(by(60), now).ok(), Some(Time(1_060_000)));
        assert_eq!(target(to(1_001), now).ok(), Some(Time(1_001_000)));
        for wrong in [None, by(0), by(-1), by(400_000_000), to(1_000), to(999), to(400_000_000)] {
            assert!(target(wrong, now).is_err(), "{wrong:?}");
        }
    }
}

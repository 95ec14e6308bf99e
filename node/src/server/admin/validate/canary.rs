//! Validates a canary: its share of the recipients, and how many of them may fail (P6).

use reveille_ledger::canary::Canary;
use reveille_proto::admin::v1;

use super::Fields;

/// Maximum share of the recipients, in percent. A larger canary would not limit the damage.
const SHARE_MAX: f64 = 50.0;
/// Default of `hold_percent`: the run is held above it. Mailbox providers throttle senders with a higher bounce rate.
const HOLD: f64 = 5.0;

/// Returns the canary with its percentages in hundredths of a percent.
pub fn canary(fields: &mut Fields, requested: &v1::Canary) -> Canary {
    let share = hundredths(fields, "canary.percent", requested.percent, (0.01, SHARE_MAX));
    let limit = hundredths(fields, "canary.hold_percent", requested.hold_percent.unwrap_or(HOLD), (0.0, 100.0));
    Canary { share, limit }
}

fn hundredths(fields: &mut Fields, field: &str, percent: f64, (least, most): (f64, f64)) -> u16 {
    let whole = (percent * 100.0).round();
    if !(least..=most).contains(&percent) || (percent * 100.0 - whole).abs() > 1e-6 {
        fields.refuse(field, format!("is {percent}; give a percentage from {least} to {most}, to a hundredth"));
        return 0;
    }
    // The value is from 0 to 10,000, so it fits.
    whole as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_kept_to_a_hundredth() {
        let read = |percent, hold_percent| {
            let mut fields = Fields::default();
            let canary = canary(&mut fields, &v1::Canary { percent, hold_percent });
            fields.done(Some(canary)).ok().map(|canary| (canary.share, canary.limit))
        };
        for (percent, hold, wanted) in [
            (1.0, None, (100, 500)),
            (0.01, Some(0.0), (1, 0)),
            (50.0, Some(100.0), (5_000, 10_000)),
            (0.29, Some(1.13), (29, 113)),
        ] {
            assert_eq!(read(percent, hold), Some(wanted));
        }
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/limits.md");
        let page = std::fs::read_to_string(page).expect("the page of limits");
        assert!(page.contains("| `--canary-percent` | 0.01% to 50% |"));
        for (percent, hold) in [(0.0, None), (50.01, None), (0.005, None), (-1.0, None), (f64::NAN, None)] {
            assert_eq!(read(percent, hold), None, "{percent}");
        }
        assert_eq!((read(1.0, Some(100.01)), read(1.0, Some(-0.01))), (None, None));
    }
}

//! Formats numbers for tables, progress lines and warnings. `-o json` prints the raw numbers instead.

use jiff::Timestamp;

/// Formats a duration in its two largest units: `3h 12m`, `45s`, `90d`. Below one second it shows milliseconds. Ignores
/// the sign.
pub fn duration(milliseconds: i64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let mut left = milliseconds.unsigned_abs();
    if left < 1_000 {
        return format!("{left}ms");
    }
    let Some(largest) = UNITS.iter().position(|(unit, _)| left >= *unit) else { return format!("{left}ms") };
    let mut parts = Vec::new();
    for (unit, letter) in UNITS.iter().skip(largest).take(2) {
        if left >= *unit {
            parts.push(format!("{}{letter}", left / unit));
        }
        left %= unit;
    }
    parts.join(" ")
}

/// Formats a duration in its largest whole unit, such as `90 min`.
pub fn whole_units(milliseconds: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let fits = |(unit, _): &&(i64, &str)| milliseconds % unit == 0 && (milliseconds != 0 || *unit == 1_000);
    match UNITS.iter().find(fits) {
        Some((unit, name)) => format!("{} {name}", milliseconds / unit),
        None => format!("{milliseconds} ms"),
    }
}

/// Formats the distance of an instant from `now`: `in 3h 12m`, `45s ago`.
pub fn distance(instant: Timestamp, now: Timestamp) -> String {
    let milliseconds = instant.as_millisecond() - now.as_millisecond();
    match milliseconds {
        0.. => format!("in {}", duration(milliseconds)),
        _ => format!("{} ago", duration(milliseconds)),
    }
}

/// Formats a count with its digits in groups: `1,234,567`.
pub fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// Formats a rate per second: `13,889`. Rates below ten get one decimal, such as `0.5`.
pub fn rate(per_second: f64) -> String {
    let tenths = (per_second * 10.0).round() as u64;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => count(whole),
        (whole, tenth) if whole < 10 => format!("{whole}.{tenth}"),
        _ => count(per_second.round() as u64),
    }
}

/// Formats a count with its noun: `no recipients`, `1 recipient`, `2 recipients`.
pub fn counted(number: u64, noun: &str) -> String {
    match number {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        more => format!("{} {noun}s", count(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_show_their_two_largest_units() {
        for (milliseconds, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (61_000, "1m 1s"),
            (3_600_000, "1h"),
            (3_605_000, "1h"),
            (90_061_000, "1d 1h"),
            (604_800_000, "7d"),
            (7_776_000_000, "90d"),
            (-45_000, "45s"),
        ] {
            assert_eq!(duration(milliseconds), text);
        }
        let now: Timestamp = "2026-03-08T07:00:00Z".parse().expect("an instant");
        assert_eq!(distance("2026-03-08T10:12:00Z".parse().expect("an instant"), now), "in 3h 12m");
        assert_eq!(distance("2026-03-08T06:59:15Z".parse().expect("an instant"), now), "45s ago");
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!([0, 12, 999, 1_000, 1_234_567].map(count), ["0", "12", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.46, 2.0, 9.94, 13_888.9].map(rate), ["0", "0.5", "2", "9.9", "13,889"]);
        assert_eq!(counted(0, "recipient"), "no recipients");
        assert_eq!(counted(1, "recipient"), "1 recipient");
        assert_eq!(counted(2_000, "recipient"), "2,000 recipients");
    }
}

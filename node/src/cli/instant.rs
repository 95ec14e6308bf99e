//! Converts instants and durations between API messages, jiff and text.

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use prost_types::{Duration as WireDuration, Timestamp as WireTimestamp};

/// Returns RFC 3339 in UTC with `Z`. `None` if there is no instant, or it is outside the calendar.
pub fn text(instant: Option<&WireTimestamp>) -> Option<String> {
    instant.and_then(from_wire).map(|instant| instant.to_string())
}

/// Converts to jiff's timestamp. `None` if it is outside the calendar.
pub fn from_wire(instant: &WireTimestamp) -> Option<Timestamp> {
    Timestamp::new(instant.seconds, instant.nanos).ok()
}

/// Converts to the API's timestamp.
pub fn to_wire(instant: Timestamp) -> WireTimestamp {
    WireTimestamp { seconds: instant.as_second(), nanos: instant.subsec_nanosecond() }
}

/// Returns a duration's milliseconds. Saturates.
pub fn duration_ms(duration: &WireDuration) -> i64 {
    duration.seconds.saturating_mul(1_000).saturating_add(i64::from(duration.nanos) / 1_000_000)
}

/// Converts to the API's duration.
pub fn duration_to_wire(duration: SignedDuration) -> WireDuration {
    WireDuration { seconds: duration.as_secs(), nanos: duration.subsec_nanos() }
}

/// Parses an instant of the command line: RFC 3339 with `Z` or an offset.
pub fn parse_instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        "an instant is a date, a time and an offset, such as 2026-03-08T07:00:00Z or 2026-03-08T09:00:00+02:00"
            .to_owned()
    })
}

/// Parses a duration of the command line, such as `90m`, `1h 30m`, `2d`, `1w` or `PT15M`. A day has 24 hours. Fails if
/// it is not positive.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    let wrong = || "a duration is a number and a unit, such as 30s, 15m, 12h, 2d or '1h 30m'".to_owned();
    let span: Span = text.parse().map_err(|_| wrong())?;
    let duration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| "months and years differ in length: give weeks, days, hours, minutes or seconds".to_owned())?;
    if duration.is_positive() { Ok(duration) } else { Err("a duration is above zero, such as 15m".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("30s", 30),
            ("90m", 5_400),
            ("1h 30m", 5_400),
            ("1h30m", 5_400),
            ("2d", 172_800),
            ("1w", 604_800),
            ("PT15M", 900),
            ("12 hours", 43_200),
        ] {
            assert_eq!(parse_duration(text).map(|duration| duration.as_secs()), Ok(seconds), "{text}");
        }
        for text in ["", "0s", "-5m", "5", "soon", "1mo", "1y"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn instant_needs_its_offset() {
        let instant = parse_instant("2026-03-08T09:00:00+02:00").expect("an instant");
        assert_eq!(instant.to_string(), "2026-03-08T07:00:00Z");
        assert_eq!(text(Some(&to_wire(instant))).as_deref(), Some("2026-03-08T07:00:00Z"));
        assert!(parse_instant("2026-03-08T09:00:00").is_err());
        assert!(parse_instant("tomorrow").is_err());
    }
}

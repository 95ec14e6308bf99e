//! When a call must have its answer: as the client said, within bounds of ours.

use std::time::{Duration, Instant};

use tonic::Request;

/// A call whose client names no time-out gets this long: a barrier that waits out a lost node takes some
/// five seconds.
pub const DEFAULT: Duration = Duration::from_secs(15);
/// No call is worked on for longer, whatever its client says.
pub const LONGEST: Duration = Duration::from_secs(120);
/// The answer is given this much before the client stops waiting, so that it says more than "time-out".
const MARGIN: Duration = Duration::from_millis(100);

/// When the answer to this request must be given.
pub fn of<T>(request: &Request<T>) -> Instant {
    let asked = request.metadata().get("grpc-timeout").and_then(|value| read(value.to_str().ok()?));
    let limit = asked.unwrap_or(DEFAULT).min(LONGEST);
    Instant::now() + limit.saturating_sub(MARGIN.min(limit / 10))
}

/// Reads the header as the specification of gRPC over HTTP/2 writes it: at most eight digits and a unit.
fn read(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = (digits.len() <= 8).then(|| digits.parse().ok())??;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(header: Option<&'static str>) -> Duration {
        let mut request = Request::new(());
        if let Some(header) = header {
            request.metadata_mut().insert("grpc-timeout", header.parse().expect("a header"));
        }
        of(&request).saturating_duration_since(Instant::now())
    }

    #[test]
    fn the_client_s_time_out_is_kept_with_a_margin_for_the_answer() {
        assert!(left(Some("2S")) <= Duration::from_millis(1_900));
        assert!(left(Some("100m")) <= Duration::from_millis(90));
        assert!(left(Some("99999999H")) <= LONGEST);
        for header in [None, Some("S"), Some("10"), Some("123456789S"), Some("5x")] {
            let left = left(header);
            assert!(left > DEFAULT / 2 && left <= DEFAULT, "{header:?}: {left:?}");
        }
    }
}

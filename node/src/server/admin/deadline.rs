//! The deadline of a call: the timeout of the client, within limits of the node.

use std::time::{Duration, Instant};

use tonic::Request;

/// Timeout of a call whose client sets none. A barrier that waits for the lease of a lost node takes about five
/// seconds.
pub const DEFAULT: Duration = Duration::from_secs(15);
/// Timeout for a member to describe itself.
pub const DESCRIBED_WITHIN: Duration = Duration::from_millis(800);
/// Maximum timeout of a call, whatever its client sets.
pub const LONGEST: Duration = Duration::from_secs(120);
/// The response is sent this long before the client's timeout, so that the client gets an error that explains more.
const MARGIN: Duration = Duration::from_millis(100);

/// Returns the deadline for the response to this request.
pub fn of<T>(request: &Request<T>) -> Instant {
    let requested = request.metadata().get("grpc-timeout").and_then(|value| read(value.to_str().ok()?));
    let limit = requested.unwrap_or(DEFAULT).min(LONGEST);
    Instant::now() + limit.saturating_sub(MARGIN.min(limit / 10))
}

/// Parses the header as gRPC over HTTP/2 defines it: at most eight digits and a unit.
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
    fn client_s_time_out_is_kept_with_a_margin_for_the_answer() {
        assert!(left(Some("2S")) <= Duration::from_millis(1_900));
        assert!(left(Some("100m")) <= Duration::from_millis(90));
        assert!(left(Some("99999999H")) <= LONGEST);
        for header in [None, Some("S"), Some("10"), Some("123456789S"), Some("5x")] {
            let left = left(header);
            assert!(left > DEFAULT / 2 && left <= DEFAULT, "{header:?}: {left:?}");
        }
    }
}

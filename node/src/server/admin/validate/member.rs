//! Validates how long a join token is valid.

use std::time::Duration;

use super::{ApiResult, DurationBounds, Fields};

const MINUTE_MS: i64 = 60_000;
/// One hour by default: long enough to start a machine, short enough for a secret that lies in a terminal.
const VALID_FOR: DurationBounds =
    DurationBounds { least_ms: MINUTE_MS, most_ms: 7 * 24 * 60 * MINUTE_MS, default_ms: 60 * MINUTE_MS };

/// Returns the time for which a join token is valid.
pub fn valid_for(asked: Option<prost_types::Duration>) -> ApiResult<Duration> {
    let mut fields = Fields::default();
    let valid_for_ms = fields.length("valid_for", asked, VALID_FOR);
    fields.done(Some(Duration::from_millis(u64::try_from(valid_for_ms).unwrap_or_default())))
}

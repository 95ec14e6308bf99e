//! Time limits that several actors share.

use std::time::Duration;

/// A claim returns what has not begun by then (P12). An email has begun when it has a session.
pub const BEGIN_WITHIN: Duration = Duration::from_secs(10);

//! Time limits that several actors share.

use std::time::Duration;

/// Time after which a claim returns what has not begun (P12). An email has begun when it has a session.
pub const SESSION_WITHIN: Duration = Duration::from_secs(10);

//! Limits that several actors share.

use std::time::Duration;

/// Time after which a claim returns what has not begun (P12). An email has begun when it has a session.
pub const SESSION_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of missing parts that a node reports to the leader, once a second. A list of this length means that
/// more parts of open runs may be missing. Then this node gets no claims of sealed audiences.
pub const NAMED_MAX: usize = 1_024;

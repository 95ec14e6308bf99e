//! Functions for operators and recipients besides sending: backlog figures, the test clock, time zones, opt-out links
//! and bounce addresses.

pub mod backlog;
pub(crate) mod backlog_watch;
pub mod return_path;
pub mod test_clock;
pub mod unsubscribe;
pub mod zones;

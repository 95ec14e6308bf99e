//! Functions for operators and recipients besides sending: backlog figures, alarms, the archive, the test clock, time
//! zones, opt-out links and bounce addresses.

pub(crate) mod alarm_log;
pub mod archive;
pub mod archive_loss;
pub mod backlog;
pub(crate) mod backlog_watch;
pub(crate) mod disk_watch;
pub mod return_path;
pub(crate) mod scrub;
pub mod test_clock;
pub mod unsubscribe;
pub mod zones;

//! What operators watch, measured on every node: the backlog, alarms, and the space on the disk.

pub(crate) mod alarm_log;
pub mod backlog;
pub(crate) mod backlog_watch;
pub mod disk_reserve;
pub(crate) mod disk_watch;

//! The write-ahead log, as those who rely on it see it.

mod crash;
mod damage;
mod failure;
mod groups;
mod model;
mod openraft_suite;
mod support;

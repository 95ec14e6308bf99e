//! The write-ahead log through its public interface.

mod crash;
mod damage;
mod failure;
mod fuzz;
mod groups;
mod model;
mod openraft_suite;
mod support;
mod verify;

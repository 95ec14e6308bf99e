//! Who leads, and whether it can: three voters, their threads, their disks and their clocks.

mod fitness;
mod starvation;
#[path = "../support/mod.rs"]
mod support;
mod three;

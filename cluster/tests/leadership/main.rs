//! Leadership of three voters with their threads, disks and clocks.

mod fitness;
mod starvation;
#[path = "../support/mod.rs"]
mod support;
mod three;

//! Tests of the command `reveille-jepsen`: fault runs, and the simulation.

mod end_to_end;
#[cfg(feature = "injected-bugs")]
mod injected_bugs;
mod simulation;

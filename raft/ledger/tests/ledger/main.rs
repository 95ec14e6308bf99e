//! Tests of the ledger from outside, in one program: each program more would compile the ledger's generic code again.
//! `.ci/run` runs `format.rs` also in a build without the next level.

mod archived;
mod audit;
mod calendar;
mod catch_up;
mod events;
mod format;
mod fuzz;
mod gap;
mod given;
mod hex;
mod interleavings;
mod leading;
#[cfg(feature = "next-level")]
mod next_level;
mod plain;
mod samples;
mod size;
mod tokens;
mod totality;
mod transcripts;

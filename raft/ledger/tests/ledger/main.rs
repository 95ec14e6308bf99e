//! Tests of the ledger from outside, in one program: each program more would compile the ledger's generic code again.
//! Only `format.rs` is one of its own, since its bytes are also compared without the next level.

mod archived;
mod audit;
mod calendar;
mod catch_up;
mod events;
mod fuzz;
mod gap;
mod given;
#[cfg(feature = "next-level")]
mod hex;
mod interleavings;
mod leading;
#[cfg(feature = "next-level")]
mod next_level;
mod plain;
// The test of formats uses all of it.
#[allow(dead_code)]
mod samples;
mod size;
mod tokens;
mod totality;
mod transcripts;

//! Computations of the leader before it proposes: when schedules fire, and what happens to missed instants.
//!
//! They are pure, but they use the rules of time zones. So `apply` never calls them (P2); the entry has their results.

pub mod archive;
pub mod backfill;
pub mod catch_up;
pub mod edit;
mod explained_ranges;
pub mod overlap;
pub mod replan;
pub mod timing;

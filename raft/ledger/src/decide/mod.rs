//! What the leader computes before it proposes: when schedules fire, and what happens to missed instants.
//!
//! Pure, but it uses the rules of time zones, so `apply` never calls it (P2): its results travel in the entry.

pub mod backfill;
pub mod catch_up;
pub mod edit;
pub mod overlap;
pub mod prune;
pub mod replan;
pub mod timing;

//! What a leader computes before it proposes: when schedules fire, and what becomes of missed instants.
//!
//! Pure like the rest, but it uses the zone's rules, so `apply` never calls it (P2): its results travel
//! in the entry.

pub mod backfill;
pub mod catch_up;
pub mod edit;
pub mod overlap;
pub mod prune;
pub mod replan;
pub mod timing;

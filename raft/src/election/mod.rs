//! What this node knows of leadership: whom it believes to lead, when it last heard a leader, and whether it may vote.

pub(crate) mod eligibility;
pub(crate) mod leader_liveness;
pub(crate) mod role;

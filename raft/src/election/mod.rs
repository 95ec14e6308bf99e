//! This node's view of leadership: the believed leader, the last contact with a leader, and the right to vote and
//! campaign.

pub(crate) mod early;
pub(crate) mod eligibility;
pub(crate) mod leader_liveness;
pub(crate) mod role;

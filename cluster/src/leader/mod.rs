//! Work of the leader: one [`leadership`] for each epoch, and the actors that belong to it.
//!
//! The actors read the applied state and propose commands; they do nothing else. Every actor ends with its epoch.
//!
//! Reading order: `lifecycle` (begins and ends a leadership), `leadership` (what the actors share), `timer`, `claims`,
//! `lease_grants`, `barrier`, `auditor`.

pub(crate) mod auditor;
pub(crate) mod backups;
pub mod barrier;
pub mod claims;
pub(crate) mod clock_steering;
pub(crate) mod fire_metrics;
pub(crate) mod fitness;
pub(crate) mod injected_bugs;
pub mod leadership;
pub(crate) mod lease_grants;
pub(crate) mod lifecycle;
pub(crate) mod membership;
mod panic_guard;
pub(crate) mod relay_shares;
pub mod removal;
pub(crate) mod replication_lag;
pub(crate) mod timer;
pub mod transfer;

//! Workers of a node: they send the recipients of its claims and settle the outcome of each recipient.
//!
//! Reading order: `workers` (finds claims), `claim`, `claim_queueing`, `pool_queue`, `feeder`, `taken_recipient`,
//! `delivery`, `composition`, `gate_checks`, `outcome`, `settler`; then `journal`, `recovery`, `lease_client`.

pub(crate) mod attachments;
pub(crate) mod audience_read;
pub(crate) mod claim;
pub(crate) mod claim_queueing;
pub(crate) mod composition;
pub(crate) mod context;
pub(crate) mod delivery;
pub(crate) mod feeder;
pub(crate) mod gate_checks;
pub mod in_flight_handoffs;
pub(crate) mod injected_bugs;
pub mod journal;
pub(crate) mod lease_client;
pub(crate) mod outcome;
pub(crate) mod pool_queue;
pub(crate) mod recovery;
pub(crate) mod settler;
pub(crate) mod taken_recipient;
pub(crate) mod worker_tasks;
pub(crate) mod workers;

//! Fault injection. `plan` draws all faults from the seed before the run begins; `nemesis` injects and repairs them.
//!
//! Reading order: `actions` (what can be broken), `plan` (when), `nemesis` (the loop), `inject` with
//! `kills`, `membership`, `upgrade`, `disk`, `links` and `syscall_trace` (how).

mod actions;
mod disk;
mod inject;
mod kills;
mod links;
mod membership;
mod nemesis;
mod plan;
mod syscall_trace;
mod upgrade;

pub use actions::{Family, FaultAction, FaultTarget, OperatorAction};
pub use inject::status_of;
pub use nemesis::Nemesis;
pub use plan::{PlannedFault, draw, kills_of_leader, kills_per_minute};

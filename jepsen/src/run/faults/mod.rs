//! Fault injection. `plan` draws all faults from the seed before the run begins; `nemesis` injects and repairs them.
//!
//! Reading order: `actions` (what can be broken), `draw` and `plan` (when), `nemesis` (the loop), `inject` with
//! `kills`, `membership`, `certificates`, `upgrade`, `disk`, `links` and `syscall_trace` (how).

mod actions;
mod certificates;
mod disk;
mod draw;
mod inject;
mod injection;
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
pub use plan::{PlannedFault, draw, kills_per_minute};

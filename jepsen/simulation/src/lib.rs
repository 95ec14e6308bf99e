//! Three nodes of the product on one thread, in virtual time. The network between them, the disks under their logs,
//! their clocks and the relay are simulated.
//!
//! The nodes run the product's own code: Raft with its log, state machine and snapshots, the ledger, the leader's
//! actors, workers, gate, SMTP dialogue, journal and recovery. Not included are gRPC and the admin API, TLS, threads,
//! and real files under the log. Snapshots and journals are real files in a folder in memory, which a power cut does
//! not tear.
//!
//! The seed decides everything: the same seed repeats the same events in another process, as the hash of the trace
//! shows. Limits: one thread has no data races, no kernel is involved, and a task is interrupted only where it waits.
//!
//! The checker judges the run by a history in the same format that real processes leave (`recorder`). What is due comes
//! from the checker's calendar, which shares no code with the product.
//!
//! Reading order: `simulation` (the two phases), `plan` (the workload), `clients`, `campaigns`, `messages` and
//! `operators` (the callers), `faults` and `nemesis` (the faults), `network`, `disk`, `clock`, `relay` (the simulated
//! parts), `node` (processes), `upgrade` (another release), `recorder`, `observer`, `final_records`, `history` (the
//! history), `verdict`, `run`.

mod agenda;
mod campaigns;
mod clients;
mod clock;
mod disk;
mod faults;
mod final_records;
mod history;
mod limits;
mod messages;
mod nemesis;
mod network;
mod node;
mod observer;
mod operators;
mod options;
mod plan;
mod random;
mod recorder;
mod relay;
mod run;
mod schedule;
mod simulation;
#[cfg(feature = "injected-bugs")]
mod stale_entry;
mod trace;
mod upgrade;
mod verdict;
mod vote_promises;

pub use options::Options;
pub use reveille_ledger::injected_bugs;
pub use run::{SeedReport, run};
pub use trace::short_hash;

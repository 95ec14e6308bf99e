//! Three nodes of the product on one thread, in virtual time, with everything at their edges simulated: the network
//! between them, the disks under their logs, their clocks, and the relay.
//!
//! What runs here is the product's own code: Raft with our log, machine and snapshots, the ledger, the leader's actors,
//! lanes, gate, relay dialogue, journal and recovery. What does not: gRPC and the admin API, TLS,
//! threads, and real files under the log. Snapshots and journals are real files in a folder in
//! memory, which a power cut does not tear.
//!
//! What it promises: a seed decides everything. The same seed in another process does the same, event by event, which
//! the hash of its trace proves. Its limits: no data races, since there is one thread; no kernel; a task is only ever
//! interrupted where it waits.
//!
//! What comes of it is judged by the checker, by the same history that real processes leave (`recorder`); what is due
//! comes from the checker's calendar, which shares nothing with the product.
//!
//! Reading order: `world` (the two phases), `plan` (what is to happen), `clients`, `campaigns` and `operators` (who asks), `faults`
//! and `nemesis` (what goes wrong), `network`, `disk`, `clock`, `relay` (the edges), `node` (life and death),
//! `upgrade` (another release), `recorder`, `observer`, `final_records`, `history` (what is seen), `verdict`, `run`.

mod agenda;
mod campaigns;
mod clients;
mod clock;
mod disk;
mod faults;
mod final_records;
mod history;
mod limits;
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
#[cfg(feature = "injected-bugs")]
mod stale_entry;
mod trace;
mod upgrade;
mod verdict;
mod vote_promises;
mod world;

pub use options::Options;
pub use reveille_ledger::injected_bugs;
pub use run::{SeedReport, run};
pub use trace::short_hash;

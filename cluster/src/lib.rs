//! The actors of a node: what happens between the ledger's two doors.
//!
//! ```text
//!                      propose (Fire, Claim, Settle …)                 effects, reads
//!   timer ─┐         ┌───────────────────────────────▶ replica ────────────────────────┐
//!   dispatcher ├─ term ─┘                              (log, ledger)                     ▼
//!   auditor ─┘   while leading                            ▲                 lanes ─▶ gate ─▶ relay
//!                                                         └── settler ◀── verdicts ◀─────┘
//! ```
//!
//! A leader's actors belong to a [`term::Term`]: they are built from the state when its epoch is applied and
//! dropped when it ends. A holder's actors belong to the [`station::Station`]: lanes work claim rows, ask the
//! [`gate`] immediately before the final dot, and leave what they learned with the settler.
//!
//! This crate knows neither openraft nor tonic: it speaks to a `Replica` and answers its `PeerService`.
//!
//! Reading order: [`station`] (a node's life), [`term`], `timer`, `dispatcher` (with `behind`, `work`, `claim_cap`, `fair`), `lane` (with `row_tasks`), `gate`, [`lease`],
//! [`barrier`], `settler`, `recovery` with [`journal`], `auditor`, `fitness`, `steering`, [`walk`], `supervisor`; the rooms that
//! stand alone: [`relay`], [`compose`], [`unsubscribe`], [`return_path`],
//! [`parts`], [`pace`], `measure`, [`clock`].

mod ahead;
mod auditor;
pub mod backlog;
pub mod barrier;
mod behind;
mod blocked;
mod bounds;
mod buckets;
mod cache;
mod claim_cap;
pub mod clock;
pub mod compose;
pub mod desk;
mod dispatcher;
mod fair;
mod fitness;
mod gate;
pub mod handover;
pub mod journal;
mod keeper;
mod lane;
pub mod late;
pub mod lease;
pub mod marks;
mod measure;
mod on_the_way;
mod outcomes;
pub mod pace;
mod parkings;
pub mod parts;
mod recovery;
pub mod relay;
pub mod relays;
mod rests;
pub mod return_path;
mod room;
mod row_tasks;
#[cfg(test)]
mod samples;
pub mod secret;
mod settler;
pub mod site;
pub mod station;
mod steering;
mod stumbles;
mod supervisor;
pub mod term;
mod timer;
mod turns;
pub mod unsubscribe;
mod until_taken;
pub mod walk;
mod work;
pub mod zones;

//! The actors of a Reveille node: everything between the ledger and the relays.
//!
//! ```text
//! timer ──────┐
//! dispatcher ─┼─ leadership ── propose ──▶ replica ── effects, reads ──▶ workers ─▶ gate ─▶ relay
//! auditor ────┘  while leading          (log, ledger)                                        │
//!                                            ▲                                               │
//!                                            └────── Settle ◀── settler ◀── outcomes ◀───────┘
//! ```
//!
//! The leader's actors belong to one [`leader::leadership`]: they start from the state when its epoch is applied, and
//! end with it. A node's own actors belong to [`process::lifecycle`]: they process the claims of this node, ask the
//! gate immediately before the final dot, and pass each outcome to the settler.
//!
//! This crate does not use openraft or tonic: it calls a `Replica` and answers as its `Application`.
//!
//! Reading order: [`process`] (start, stop, shared state), [`leader`] (timer, claims, leases, barriers, auditor),
//! [`worker`] (from a claim to the gate, the settler, the [`worker::journal`] and recovery), [`smtp`] (sessions, pools,
//! classification of answers), [`file_store`] (audience parts and attachments), [`backup`],
//! [`compose`] (templates to messages), [`monitoring`], [`maintenance`].

pub mod backup;
pub mod compose;
pub mod file_store;
pub mod leader;
pub mod maintenance;
pub mod monitoring;
pub mod process;
#[cfg(test)]
mod samples;
pub mod smtp;
pub mod worker;

//! The sending protocol as a state space that is searched whole.
//!
//! The ledger, the gate and the barrier rest on rules (P1 to P25 in `docs/protocol.md`) that were
//! written down before they were built. This crate writes the same rules once more, as small as
//! they can be, and lets [stateright] try every order of events: two nodes, each of
//! which may lead and may hold claims; leaders that do not know that they are deposed; processes that
//! lag, freeze, die and come back; settles that arrive late and again; emails that arrive long after
//! their sender is gone. People who change a rule change it here first. Nothing of the product
//! depends on this crate and it depends on nothing of the product.
//!
//! # What is in it, and how
//!
//! - **Log** ([`log`]): one committed sequence, and for each process the prefix that it has applied.
//!   Raft itself is below the model. A frozen process is one whose prefix is short.
//! - **Leaders**: a node that has its own `EpochStart` in its prefix and no later one believes that it
//!   leads, for as long as it does not apply more.
//! - **Leases** ([`lease`]): no clock. A lease is over when a leader says so, because the arithmetic
//!   of P9 is what makes that true; broken variants take the reasons away.
//! - **Hand-offs** ([`attempt`]): gate, journal and write are one step; the mail then travels by
//!   itself, and may arrive at any later time whatever became of its sender.
//! - **Settles**: each one ever proposed may be committed at any time, again and again.
//! - **Decisions** ([`auditor`], and the operator): who is in doubt is sent again or assumed, by policy or
//!   by an operator, whose command may be committed long after the state was read. A duplicate is then possible,
//!   and what is checked is that it was counted.
//! - **The run** ([`run`]): paused, resumed, cancelled, past its deadline; attempts that end.
//! - **Ledger time**: a number in the ledger that entries move. Leaders' clocks, and what the voters
//!   agree on, may say anything; `apply` refuses what goes back or leaps. No lease knows of it.
//! - **Kill and power cut**: the first leaves the journal, the second takes every journal of the
//!   node. The log survives both.
//!
//! # What is not in it
//!
//! Raft, disks, and the arithmetic of time. Two threads of one process: the worker's mark and the
//! publication of the state (P15) are one step here. A process that freezes between its gate and
//! its write is in the model only as a mail that arrives late, which is all that the promise says
//! about it. Of an answer's scopes (P6) only the mailbox's is a refusal; all others are releases. One run:
//! no gap, no overlap, no canary. Nothing is said about progress: every property is about what must
//! never happen.
//!
//! # Where to start reading
//!
//! [`ledger`], [`entry`] and [`apply`] (what every node computes; its files have the names of the code's), [`worker`]
//! and [`lease`] (what a process may do), [`barrier`], then [`properties`]. [`BrokenRule`] lists the rules that can be
//! left out, and the tests say what falls when they are. Every kind of event has a number in [`Sizes`]; at 0 it is not
//! there.

pub mod action;
pub mod answer;
pub mod apply;
pub mod attempt;
pub mod auditor;
pub mod barrier;
pub mod broken;
pub mod entry;
pub mod lease;
pub mod ledger;
pub mod log;
pub mod names;
pub mod observations;
mod offer;
pub mod process;
pub mod properties;
pub mod protocol;
pub mod run;
mod search;
pub mod sizes;
pub mod state;
pub mod worker;

pub use broken::{BrokenRule, Rules};
pub use protocol::Protocol;
pub use sizes::{Replay, Sizes};

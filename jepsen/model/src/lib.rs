//! The sending protocol as a state space that is searched completely.
//!
//! This crate states the rules of the ledger, the gate and the barrier (P1 to P25 in `docs/protocol.md`) in the
//! smallest form.
//! [stateright] tries every order of events. Two nodes may each lead and own claims. Deposed leaders do not know it.
//! Processes lag, freeze, crash and return. Settles arrive late and repeatedly. Emails arrive long after their sender
//! has crashed. A rule is changed here first. Nothing of the product depends on this crate, and it depends on nothing
//! of the product.
//!
//! # What it models
//!
//! - **Log** ([`log`]): one committed sequence, and for each process the prefix that it has applied.
//!   Raft itself is below the model. A frozen process has a short prefix.
//! - **Leaders**: a node believes that it leads while its prefix has its own `EpochStart` and no later one.
//! - **Leases** ([`lease`]): no clock. A lease ends when a leader treats it as ended, which the arithmetic of P9
//!   justifies; broken variants remove the reasons.
//! - **Handoffs** ([`handoff`]): gate, journal and write are one step. The email may then arrive at any later time,
//!   whatever happened to its sender.
//! - **Settles**: each settle that was ever proposed may be committed at any time, repeatedly.
//! - **Decisions** ([`auditor`], and the operator): recipients in doubt are resent or assumed, by policy or by an
//!   operator. The operator's command may be committed long after the state was read. A duplicate is then possible, and
//!   must be counted.
//! - **The run** ([`run`]): paused, resumed, cancelled, past its deadline; attempts that are used up.
//! - **Ledger time**: a number in the ledger that entries move. The clocks of leaders and voters may show any time;
//!   `apply` refuses an entry that moves it back or too far. No lease depends on it.
//! - **Kill and power cut**: a kill leaves the journal, a power cut destroys every journal of the node. The log
//!   survives both.
//!
//! # What it does not model
//!
//! Raft, disks, and the arithmetic of time. Two threads of one process: the worker's listing of a handoff and the
//! publication of the state (P15) are one step. A process that freezes between its gate and its write appears only as
//! an email that arrives late. An answer about the mailbox is a refusal, and every other answer (P6) is a release.
//! There is one run, without gap, overlap or canary. No property is about progress: each property says what must never
//! happen.
//!
//! [`restored`] is a search of its own: a backup is restored beside the cluster that made it (P21).
//!
//! # Where to start reading
//!
//! [`ledger`], [`entry`] and [`apply`] (what every node computes; its files have the names of the product's),
//! [`worker`] and [`lease`] (what a process may do), [`barrier`], then [`properties`]. [`BrokenRule`] lists the rules
//! that can be left out; the tests name the property that fails without each. [`Sizes`] has a number for each kind of
//! event; at 0 it never happens.

pub mod action;
pub mod answer;
pub mod apply;
pub mod auditor;
pub mod barrier;
pub mod broken;
pub mod entry;
pub mod handoff;
pub mod lease;
pub mod ledger;
pub mod log;
pub mod names;
pub mod observations;
pub mod process;
pub mod properties;
pub mod protocol;
pub mod restored;
pub mod run;
mod search;
pub mod sizes;
pub mod state;
mod steps;
pub mod worker;

pub use broken::{BrokenRule, Rules};
pub use protocol::Protocol;
pub use sizes::{Replay, Sizes};

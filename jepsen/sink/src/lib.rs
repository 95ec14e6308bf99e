//! An SMTP server that records each email before it answers, and injects faults on request.
//!
//! It is the mailbox of `reveille dev` and `reveille demo`, and the relay of the judge. It shares no code with the
//! product, because the product's ledger is compared with the record of the sink (I1, I4, I9, I14 of
//! `docs/protocol.md`). It promises:
//! - The accepts of an email, one for each recipient, are in the record in memory before the `250`.
//! - The record never removes duplicates: an email that came twice is in the record twice.
//! - A message ends at `CRLF . CRLF` only. A lone LF or CR ends the dialogue.
//! - Memory is bounded by the numbers in [`SinkOptions`]. A [`FaultPlan`] with the same seed injects the same faults.
//!
//! It forwards no email and has neither TLS nor AUTH. Reading order: [`SinkOptions`], [`Sink`], `dialogue.rs`,
//! `receive.rs`, `kept_accepts.rs`, `faults.rs`, `fault_chooser.rs`. The web pages of the mailbox are in
//! `node/src/mailbox`.

mod accepted;
mod body;
mod clock;
mod command;
mod connections;
mod dialogue;
mod fault_chooser;
mod fault_injection;
mod fault_spec;
mod faults;
pub mod headers;
mod hold;
mod kept_accepts;
mod options;
mod receive;
mod shared;
mod sink;
mod wire;

pub use accepted::Accepted;
pub use connections::OpenDialogue;
pub use fault_spec::FaultSpecError;
pub use faults::{Amount, FaultKind, FaultPlan, FaultRule, FaultStage};
pub use hold::{Held, Hold, HoldPoint, HoldRequest};
pub use kept_accepts::{Emails, StillWaiting};
pub use options::{DotAnswer, DotWatcher, SinkOptions};
pub use sink::{Handle, Sink};

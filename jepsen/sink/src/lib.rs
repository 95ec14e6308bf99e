//! An SMTP server that writes down what it accepts before it says so, and misbehaves on request.
//!
//! It is the mailbox of `reveille dev` and `reveille demo`, and the sharpest nemesis of the judge. It
//! depends on nothing of the product and shares no logic with it, because its record is the truth that the
//! product's ledger is compared with (I1, I4, I9, I14 of `docs/protocol.md`).
//!
//! What it promises:
//! - each accept, one for each recipient of an email, is a line in the record before the `250` is written;
//!   with [`SinkOptions::sync`] the line has reached the disk by then;
//! - it never deduplicates: what came twice stands twice in the record;
//! - a message ends at `CRLF . CRLF` and nowhere else; a bare LF or CR is refused and ends the dialogue
//!   (the lenient twin, [`SinkOptions::lenient_line_ends`], exists to catch what a lenient relay would split);
//! - memory is bounded by the numbers in [`SinkOptions`];
//! - a [`FaultPlan`] with the same seed draws the same faults for the same sequence of occasions.
//!
//! What it is not: a relay. It forwards nothing, knows no TLS and no AUTH, and does not authenticate clients.
//!
//! Reading order: [`SinkOptions`] and [`Sink`], then `dialogue.rs` (the commands), `receive.rs` (from DATA to
//! the answer, where everything that matters happens), `recorder.rs` (why a line is on disk before the `250`),
//! `faults.rs` with `dice.rs` (what can go wrong on purpose). The web pages of the mailbox are in `node/src/mailbox`.

mod accepted;
mod archive;
mod body;
mod clock;
mod command;
mod connections;
mod dialogue;
mod dice;
mod fault_spec;
mod faults;
pub mod headers;
mod hold;
mod options;
mod receive;
mod record;
mod recorder;
mod shared;
mod sink;
mod strike;
mod wire;

pub use accepted::Accepted;
pub use archive::{Emails, StillWaiting};
pub use connections::{DialogueState, OpenDialogue};
pub use dice::FaultTally;
pub use fault_spec::FaultSpecError;
pub use faults::{Amount, FaultKind, FaultPlan, FaultRule, FaultStage};
pub use hold::{Held, Hold, HoldPoint, HoldRequest};
pub use options::{DotAnswer, DotWatcher, SinkOptions};
pub use record::{RecordFile, TornTail};
pub use sink::{Handle, Sink};

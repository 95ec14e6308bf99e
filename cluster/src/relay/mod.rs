//! Relays: the one door out (P3), and the only home of lettre.
//!
//! The lanes call this room through [`Pool`]: acquire a permit, hand it a mail and a gate, get
//! exactly one [`Verdict`]. Nothing in here retries, and nothing in here knows a ledger, a row or a
//! clock time: whether a mail may leave is asked of the [`Gate`] (P5), what its answer means is said
//! by the [`Verdict`] (P6), and how much may be in doubt at once is bounded by the pool (P12).
//!
//! Reading order: [`gate`] the question · [`stream`] the place where it is asked · [`dialogue`] one
//! session · [`reply`] what an answer means · [`circuit`] and [`crate::pace`] pure judgement over
//! many mails · [`pool`] all of it for one relay. Around them: [`dialer`] connects; `opening` greets, with
//! `tls` (and `distrust`, its words), `auth` and `credentials`, and leaves [`findings`]; [`lines`] reads,
//! [`envelope`] and `text` word, [`patience`] holds the time-outs.

mod auth;
pub mod cause;
pub mod circuit;
mod classes;
mod credentials;
pub mod dialer;
pub mod dialogue;
mod distrust;
pub mod envelope;
pub mod findings;
pub mod gate;
pub mod lines;
mod opening;
pub mod patience;
mod permit;
pub mod pool;
pub mod reply;
mod session_limit;
mod shared;
pub mod status;
pub mod stream;
pub mod target;
mod tcp;
mod text;
mod tls;
mod words;

#[cfg(test)]
mod tests;

pub use auth::Mechanism;
pub use cause::{Cause, Mend, Trouble};
pub use classes::{BadRules, RelayRules, ReplyRules};
pub use credentials::{Binding, CredentialStore, Login};
pub use dialer::{Connected, Dial, TcpDialer};
pub use dialogue::Session;
pub use envelope::{Dsn, Mail, Notify, Offers};
pub use findings::{Encryption, Findings};
pub use gate::{Gate, GateAnswer, Shut};
pub use patience::{Patience, Timeouts};
pub use pool::{Delivery, Limits, Permit, Pool, Unavailable};
pub use reply::{Permanence, Scope, Verdict, enhanced_code, without_enhanced_code};
pub use status::{CircuitStatus, Counters, Status};
pub use stream::{Stage, Transport};
pub use target::{BadTarget, Target};
pub use words::words_hash;

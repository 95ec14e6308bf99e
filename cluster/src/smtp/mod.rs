//! Sends emails to SMTP relays. Email leaves the node here only (P3).
//!
//! The feeders acquire a permit from [`registry`], which has [`RelaySessions`] for each relay. A delivery passes it an
//! email and a [`Gate`], and gets exactly one [`DialogueResult`]. This module retries nothing and does not know the
//! ledger's recipients or claims. The [`Gate`] decides if an email may leave (P5), the [`DialogueResult`] says what the
//! answer means (P6), and the sessions limit how many handoffs may be in doubt at once (P12).
//!
//! Reading order: `registry` (chooses a relay), `relay` (`sessions`, `acquire`, `circuit`, `permit`),
//! `session` (`opening`, `dialogue`, `stream`), `gate`, `replies` (`classification`, `dialogue_result`); then
//! `relay_follower`.

pub mod cause;
pub mod gate;
pub mod registry;
pub mod relay;
pub(crate) mod relay_follower;
pub mod replies;
pub mod reply;
pub mod session;
pub mod stage;

#[cfg(test)]
mod tests;

pub use cause::{Cause, Fix, SetupProblem};
pub use gate::{Gate, GateAnswer};
pub use relay::failure::{RelayFailure, RelayTrouble};
pub use relay::status::{CircuitStatus, RelayCounters, RelayStatus};
pub use relay::{NextEmail, NextPermit, RelayLimits, RelaySessions, SendPermit, Unavailable};
pub use replies::classification::{BadRules, RelayRules, ReplyClass, ReplyRules};
pub use replies::dialogue_result::{DialogueResult, enhanced_code, without_enhanced_code};
pub use session::auth::Mechanism;
pub use session::credentials::{Binding, CredentialStore, Login};
pub use session::deadlines::{Deadlines, Timeouts};
pub use session::dialer::{Connected, Dial, TcpDialer};
pub use session::dialogue::Session;
pub use session::dot_stuffing::EmailText;
pub use session::envelope::{Dsn, Email, Extensions, Notify};
pub use session::probe_report::{Encryption, ProbeReport};
pub use session::stream::ByteStream;
pub use session::target::{BadTarget, Target};
pub use stage::Stage;

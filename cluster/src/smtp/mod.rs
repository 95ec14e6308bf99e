//! SMTP relays: the only way out (P3), and the only place that uses lettre.
//!
//! The claim workers call [`registry`], which has one [`Pool`] for each relay: they acquire a permit, hand it an email
//! and a [`Gate`], and get exactly one [`Verdict`]. Nothing here retries, and nothing here knows the ledger's recipients
//! or claims: the [`Gate`] decides whether an email may leave (P5), the [`Verdict`] says what the answer means (P6), and
//! the pool bounds how many hand-offs may be in doubt at once (P12).

pub(crate) mod parked_relays;
pub mod pool;
pub mod registry;
pub mod replies;
pub mod session;

#[cfg(test)]
mod tests;

pub use pool::status::{CircuitStatus, Counters, Status};
pub use pool::{Delivery, Limits, Permit, Pool, Unavailable};
pub use replies::classification::{BadRules, RelayRules, ReplyRules};
pub use replies::verdict::{Permanence, Scope, Verdict, enhanced_code, without_enhanced_code};
pub use replies::words::words_hash;
pub use session::auth::Mechanism;
pub use session::cause::{Cause, Mend, Trouble};
pub use session::credentials::{Binding, CredentialStore, Login};
pub use session::deadlines::{Patience, Timeouts};
pub use session::dialer::{Connected, Dial, TcpDialer};
pub use session::dialogue::Session;
pub use session::envelope::{Dsn, Mail, Notify, Offers};
pub use session::gate::{Gate, GateAnswer, Shut};
pub use session::probe_report::{Encryption, Findings};
pub use session::stream::{Stage, Transport};
pub use session::target::{BadTarget, Target};

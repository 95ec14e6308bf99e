//! What an opening learns on its way: kept for `relay test`, thrown away by the pool.
//!
//! Filled by the opening step by step, so that what was heard before a failure is known after it. Texts
//! are the relay's, cleaned of control characters.

use super::auth::Mechanism;

/// What was learned of a relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// The first line of its greeting, without the code.
    pub banner: String,
    /// Its EHLO keywords with their parameters; after STARTTLS those of the second EHLO.
    pub extensions: Vec<String>,
    /// The encryption, once the handshake is done.
    pub encryption: Option<Encryption>,
    /// How we said who we are, once the relay has taken it.
    pub mechanism: Option<Mechanism>,
}

/// An encrypted connection, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encryption {
    /// `TLS 1.3`, say.
    pub version: String,
    /// The subject of the relay's certificate; empty where it has none.
    pub subject: String,
    /// When that certificate ends, in seconds since 1970; 0 where it has none.
    pub expires_at_s: i64,
}

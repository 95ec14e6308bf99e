//! Findings of an opening: used by `relay test`, dropped otherwise.
//!
//! The opening fills it step by step, so that findings before a failure are kept. Texts come from the relay, with
//! control characters removed.

use super::auth::Mechanism;

/// Findings about a relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeReport {
    /// First line of its greeting, without the code.
    pub banner: String,
    /// EHLO keywords with their parameters; after STARTTLS those of the second EHLO.
    pub extensions: Vec<String>,
    /// The encryption. `None` before the handshake is done.
    pub encryption: Option<Encryption>,
    /// Mechanism of the login. `None` before the relay has accepted the login.
    pub mechanism: Option<Mechanism>,
}

/// Properties of an encrypted connection, for display.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encryption {
    /// Protocol version, for example `TLS 1.3`.
    pub version: String,
    /// Subject of the relay's certificate. Empty if there is none.
    pub subject: String,
    /// Expiry of that certificate, in seconds since 1970. 0 if there is none.
    pub expires_at_s: i64,
}

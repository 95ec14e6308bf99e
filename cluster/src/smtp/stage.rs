//! The stages of a dialogue, used by sessions, by pools and by the rules for replies.

/// Progress of a dialogue, in order. A stage is entered before its first byte is written, except that pipelining writes
/// RCPT and DATA at the stage `Mail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Resolving and connecting.
    Connect,
    /// STARTTLS was written, or the TLS handshake runs. With STARTTLS this stage follows a first EHLO, and a second
    /// EHLO follows it.
    Tls,
    /// Waiting for the relay's greeting.
    Banner,
    /// EHLO was written.
    Ehlo,
    /// AUTH was written.
    Auth,
    /// MAIL was written, with RCPT and DATA if the relay accepts them together.
    Mail,
    /// MAIL was answered; RCPT is answered next.
    Rcpt,
    /// RCPT was answered; DATA is answered next.
    Data,
    /// The text is being written.
    Body,
    /// The final dot may have been sent: without an answer the email is in doubt.
    FinalDot,
    /// The final dot was answered completely; the session is between two emails.
    Answered,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 11] = [
        Stage::Connect,
        Stage::Tls,
        Stage::Banner,
        Stage::Ehlo,
        Stage::Auth,
        Stage::Mail,
        Stage::Rcpt,
        Stage::Data,
        Stage::Body,
        Stage::FinalDot,
        Stage::Answered,
    ];
}

//! The faults that a sink can inject, and the stages of a dialogue for them. Plain data: `fault_spec.rs` parses it,
//! `fault_chooser.rs` decides when a rule is applied, `fault_injection.rs` and `receive.rs` inject the fault.

use std::time::Duration;

use serde::Deserialize;

/// Rules, and the seed of their random generators. The default injects no fault.
///
/// # As text
///
/// Items separated by commas:
///
/// ```text
/// seed=7,rcpt:450@0.05,after-commit:close#3,banner:huge=10000000@0.01,mail:454=4.7.0 too fast@0.2
/// ```
///
/// - `seed=N` (0 if absent);
/// - `STAGE:KIND` applies at every occasion, `STAGE:KIND@RATE` at this share of the occasions (0 to 1), and
///   `STAGE:KIND#COUNT` at the next COUNT occasions;
/// - stages, in the order of a dialogue: `connect banner ehlo mail rcpt data body before-commit after-commit
///   answer between`;
/// - kinds: `CODE` or `CODE=TEXT` (400 to 599; the text has no `,`, `@` or `#`), `close`, `reset`, `stall`,
///   `stall=DURATION` (`250ms`, `5s`, `10m`), `huge` or `huge=BYTES`, `bare`, `close-after=EMAILS`.
///
/// [`FaultStage`] says which kinds fit which stage.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FaultPlan {
    /// Seed of the random generators. Each rule has its own generator, so an additional rule does not change the
    /// others.
    pub seed: u64,
    /// Rules in order of precedence. At one occasion only the first rule that applies injects its fault.
    pub rules: Vec<FaultRule>,
}

/// One fault, its stage and its frequency.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    /// Stage of the dialogue.
    pub stage: FaultStage,
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Frequency of the fault.
    pub amount: Amount,
}

/// Stage of a dialogue at which a rule applies. `close`, `reset` and `stall` fit every stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultStage {
    /// The connection was accepted; nothing is sent yet.
    Connect,
    /// Instead of the banner. A refusal (which ends the dialogue), `bare` and `huge` fit too.
    Banner,
    /// Instead of the answer to EHLO or HELO. A refusal and `bare` fit too.
    Ehlo,
    /// Instead of the answer to MAIL. A refusal and `bare` fit too.
    Mail,
    /// Instead of the answer to RCPT. A refusal and `bare` fit too.
    Rcpt,
    /// Instead of the `354`. A refusal and `bare` fit too.
    Data,
    /// Part of the message was received, but not its end. A refusal fits too, and ends the dialogue.
    Body,
    /// The final dot is read, and nothing is recorded. A refusal fits too.
    BeforeCommit,
    /// The accept is recorded, and nothing is answered. No refusal fits: a sender cannot handle a relay that keeps an
    /// email and denies it (RFC 5321 4.2.5). `stall=5s` makes a late `250`.
    AfterCommit,
    /// The accept is recorded, and half of the answer is written. `bare` fits too: a whole answer without text.
    Answer,
    /// After the answer and before the next email. A refusal (an unexpected reply) and `close-after` fit too.
    Between,
}

impl FaultStage {
    /// Returns true if a fault of this kind can be injected at this stage.
    pub const fn fits(self, kind: &FaultKind) -> bool {
        match kind {
            FaultKind::Close | FaultKind::Reset | FaultKind::Stall(_) => true,
            FaultKind::Refuse { .. } => !matches!(self, Self::Connect | Self::AfterCommit | Self::Answer),
            FaultKind::Huge { .. } => matches!(self, Self::Banner),
            FaultKind::CloseAfter { .. } => matches!(self, Self::Between),
            FaultKind::Bare => {
                matches!(self, Self::Banner | Self::Ehlo | Self::Mail | Self::Rcpt | Self::Data | Self::Answer)
            }
        }
    }
}

/// Kind of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// A reply with this code (400 to 599) instead of the right reply. 421 ends the dialogue at every stage.
    Refuse {
        /// The reply code.
        code: u16,
        /// Reply text with its enhanced code. `None`: a default text.
        text: Option<String>,
    },
    /// The connection closes normally (FIN), without another reply.
    Close,
    /// The connection ends with a reset (RST).
    Reset,
    /// Nothing happens for this long, then the dialogue continues. `None`: until the client leaves or the sink stops.
    Stall(Option<Duration>),
    /// A banner of about this many bytes, in well-formed lines.
    Huge {
        /// Size of the banner in bytes: 1 to [`FaultKind::MAX_HUGE_BYTES`].
        bytes: u32,
    },
    /// The right code without text: `250 CR LF`, which clients must accept (RFC 5321 4.2.1).
    Bare,
    /// The connection closes normally after this many accepted emails, as with some providers.
    CloseAfter {
        /// Number of accepted emails on this connection, from 1 on.
        emails: u32,
    },
}

impl FaultKind {
    /// Size of a huge banner if the plan gives none: 10 MB.
    pub const HUGE_BYTES: u32 = 10_000_000;
    /// Maximum size of a huge banner: 1 GB.
    pub const MAX_HUGE_BYTES: u32 = 1_000_000_000;
    /// Maximum size of the text of a refusal: a reply line has at most 512 octets (RFC 5321 4.5.3.1.5).
    pub const MAX_TEXT_BYTES: usize = 500;
}

/// Frequency of a rule among the occasions of its stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// At each occasion with this probability, from 0 to 1.
    Rate(f64),
    /// At this many next occasions, then never again.
    Next(u32),
}

/// Reply of a stage after its faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FaultReply {
    /// The stage's own reply.
    Nothing,
    /// A refusal with this code and text.
    Refuse(u16, String),
    /// The stage's own code without text.
    Bare,
    /// This many bytes before the stage's own reply.
    Huge(u32),
}

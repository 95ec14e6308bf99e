//! What a sink can be told to do wrong, and where in a dialogue. Plain data: `fault_spec.rs` reads and writes
//! it as text, `dice.rs` decides when a rule strikes, `strike.rs` and `receive.rs` carry it out.

use std::time::Duration;

/// Rules, and the seed that their dice start from. The default breaks nothing.
///
/// # As text
///
/// Items separated by commas:
///
/// ```text
/// seed=7,rcpt:450@0.05,after-commit:close#3,banner:huge=10000000@0.01,mail:454=4.7.0 too fast@0.2
/// ```
///
/// - `seed=N` (0 when absent);
/// - `STAGE:KIND` strikes at every occasion, `…@RATE` at that share of them (0 to 1), `…#COUNT` at the next
///   COUNT of them;
/// - stages, in the order of a dialogue: `connect banner ehlo mail rcpt data body before-commit after-commit
///   answer between`;
/// - kinds: `CODE` or `CODE=TEXT` (400 to 599; the text has no `,`, `@` or `#`), `close`, `reset`, `stall`,
///   `stall=DURATION` (`250ms`, `5s`, `10m`), `huge` or `huge=BYTES`, `bare`, `close-after=EMAILS`.
///
/// Which kind fits which stage: see [`FaultStage`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FaultPlan {
    /// Where the dice start. Each rule has dice of its own, so that one more rule does not move the others.
    pub seed: u64,
    /// In order of precedence: at one occasion the first rule that strikes is carried out, the others wait.
    pub rules: Vec<FaultRule>,
}

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    /// Where.
    pub stage: FaultStage,
    /// What.
    pub kind: FaultKind,
    /// How often.
    pub amount: Amount,
}

/// Where in a dialogue a rule strikes. `close`, `reset` and `stall` fit every stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultStage {
    /// The connection was taken; nothing is said yet.
    Connect,
    /// Instead of the banner: also a refusal (which ends the dialogue), `bare`, `huge`.
    Banner,
    /// Instead of the answer to EHLO or HELO: also a refusal, `bare`.
    Ehlo,
    /// Instead of the answer to MAIL: also a refusal, `bare`.
    Mail,
    /// Instead of the answer to RCPT: also a refusal, `bare`.
    Rcpt,
    /// Instead of the `354`: also a refusal, `bare`.
    Data,
    /// Some of the message has come, the end is not read yet: also a refusal, which ends the dialogue.
    Body,
    /// The final dot is read, nothing is recorded: also a refusal.
    BeforeCommit,
    /// The accept is recorded, nothing is answered. No refusal here: a relay that keeps an email and says that
    /// it did not is one that no sender can live with (RFC 5321 4.2.5). `stall=5s` is a late `250`.
    AfterCommit,
    /// The accept is recorded and half of the answer is written; also `bare`, a whole answer without text.
    Answer,
    /// After the answer, before the next mail: also a refusal (an unexpected reply), `close-after`.
    Between,
}

impl FaultStage {
    /// Whether a fault of this kind can be carried out here.
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

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// A reply of this code (400 to 599) instead of the right one; 421 ends the dialogue, at every stage.
    Refuse {
        /// The reply code.
        code: u16,
        /// The reply text, enhanced code included; a plain one when absent.
        text: Option<String>,
    },
    /// The connection ends in good order (FIN) without another word.
    Close,
    /// The connection ends with a reset (RST).
    Reset,
    /// Nothing happens for that long, then all goes on; `None`: until the client leaves or the sink stops.
    Stall(Option<Duration>),
    /// A banner of about this many bytes, in lines of good form.
    Huge {
        /// At least 1, at most [`FaultKind::MAX_HUGE_BYTES`].
        bytes: u32,
    },
    /// The right code without any text: `250 CR LF`, which RFC 5321 4.2.1 tells clients to accept.
    Bare,
    /// A connection that has had at least this many emails accepted ends in good order, as some providers do.
    CloseAfter {
        /// Accepted emails of this connection; at least 1.
        emails: u32,
    },
}

impl FaultKind {
    /// The size of a huge banner that names none: 10 MB.
    pub const HUGE_BYTES: u32 = 10_000_000;
    /// The largest banner a plan may ask for: 1 GB.
    pub const MAX_HUGE_BYTES: u32 = 1_000_000_000;
    /// The longest text of a refusal: a reply line has at most 512 octets (RFC 5321 4.5.3.1.5).
    pub const MAX_TEXT_BYTES: usize = 500;
}

/// How often a rule strikes, of the occasions that its stage offers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// At each occasion with this probability, 0 to 1.
    Rate(f64),
    /// At the next so many occasions, then never again.
    Next(u32),
}

/// What a stage says instead of its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FaultReply {
    /// Its own reply.
    Nothing,
    /// This code and text.
    Refuse(u16, String),
    /// Its own code, without text.
    Bare,
    /// So many bytes before its reply.
    Huge(u32),
}

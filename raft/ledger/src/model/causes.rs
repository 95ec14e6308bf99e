//! Causes stored in the replicated state: enums, numbers, names, and texts that came in an entry (P2).
//!
//! The state is equal byte for byte on every replica, even while two builds run together. So `apply` stores no sentence
//! of its own. `Display` makes the sentence where it is shown, and a later build may word it differently.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{BounceBreaker, CanaryState, CommandRefusal, EnhancedCode, Time, Unsendable};

/// Why a run is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PauseReason {
    /// An operator paused it; the operator's own text, which may be empty.
    Operator(String),
    /// The leader failed twice on this run (P13); the text comes from the entry.
    Quarantined(String),
    /// Too many refusals in a row are unattributed: permanent, without a named mailbox (P6).
    UnattributedRefusals {
        /// Number of refusals in a row.
        count: u32,
        /// Basic code of the last refusal.
        code: u16,
        /// Enhanced status code of the last refusal; `None` if it had none.
        enhanced: Option<EnhancedCode>,
        /// Text of the last refusal.
        text: String,
    },
    /// The canary failed (P6).
    Canary(CanaryState),
    /// Too many of the recently decided recipients are dead (P6).
    BounceBreaker(BounceBreaker),
}

impl PauseReason {
    /// Text that came in the entry; empty for causes that have only numbers.
    pub(crate) fn words(&self) -> &str {
        match self {
            PauseReason::Operator(words) | PauseReason::Quarantined(words) => words,
            PauseReason::UnattributedRefusals { text, .. } => text,
            PauseReason::Canary(_) | PauseReason::BounceBreaker(_) => "",
        }
    }

    pub(crate) fn without_text(mut self) -> PauseReason {
        match &mut self {
            PauseReason::Operator(text) | PauseReason::Quarantined(text) => text.clear(),
            PauseReason::UnattributedRefusals { text, .. } => text.clear(),
            PauseReason::Canary(_) | PauseReason::BounceBreaker(_) => {}
        }
        self
    }
}

impl fmt::Display for PauseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PauseReason::Operator(words) | PauseReason::Quarantined(words) => f.write_str(words),
            PauseReason::UnattributedRefusals { count, code, enhanced, text } => {
                write!(f, "{count} refusals in a row do not name a mailbox, the last one: {code} ")?;
                if let Some(enhanced) = enhanced {
                    write!(f, "{enhanced} ")?;
                }
                f.write_str(text)
            }
            PauseReason::Canary(canary) => canary.fmt(f),
            PauseReason::BounceBreaker(BounceBreaker { decided, dead, .. }) => write!(
                f,
                "{dead} of the last {decided} recipients are dead: read the dead letters, then resume or cancel, and \
                 requeue them if the cause was not theirs"
            ),
        }
    }
}

/// Why a schedule is blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum BlockCause {
    /// The leader failed twice on this schedule (P13); the text comes from the entry.
    #[error("{0}")]
    Quarantined(Box<str>),
    /// Its fire was refused twice (P8); this is the second refusal.
    #[error("its fire was refused twice: {0}")]
    FireRefused(Box<CommandRefusal>),
}

/// Why a launched campaign did not open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum MissedCause {
    /// It could only open later than `start_within` after its instant.
    #[error("it could not open before {now}, later than its instant {due} by more than start_within: nothing was sent")]
    TooLate {
        /// Its instant.
        due: Time,
        /// Ledger time at which it could have opened.
        now: Time,
    },
    /// Its content does not fit its audience; the text comes from the entry.
    #[error("its content does not fit its audience: {0}")]
    Unfit(String),
    /// Its audience was not sealed in time.
    #[error("its audience '{audience}' was not sealed at {due}")]
    NotSealed {
        /// Name of the audience.
        audience: String,
        /// Instant of the campaign.
        due: Time,
    },
    /// The ledger refused to open it.
    #[error("{0}")]
    Refused(Box<CommandRefusal>),
    /// Its instant is before the acceptance of a restore (P21).
    #[error("the former cluster may have sent it at {0}: launch it again if it did not")]
    Restored(Time),
}

/// Why a recipient is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeadLetterCause {
    /// Refused by a relay, or no relay could be asked. The text comes from the entry.
    Answer(String),
    /// Its email cannot be given to any relay.
    Unsendable(Unsendable),
    /// The deadline passed after a counted attempt (P16).
    DeadlinePassed,
    /// The owner crashed twice while it prepared this recipient's email (P12).
    CrashedComposing,
}

impl DeadLetterCause {
    /// Text of the answer, or of the cause.
    pub fn text(&self) -> &str {
        match self {
            DeadLetterCause::Answer(text) => text,
            DeadLetterCause::Unsendable(cause) => cause.text(),
            DeadLetterCause::DeadlinePassed => "the deadline passed before another attempt",
            DeadLetterCause::CrashedComposing => "node crashed composing it",
        }
    }
}

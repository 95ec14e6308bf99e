//! A claim: recipients that one node may send under one fencing token. Also the types in which the node reports
//! outcomes.

use serde::{Deserialize, Serialize};

use crate::model::{
    Bitmap, ChunkKey, ClaimEventKind, ClaimHistory, ClaimOwner, DeadLetterCause, DoubtReason, EnhancedCode, Time,
};

/// A claim: the right of one owner to send some slots of one chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Chunk that has its slots.
    pub chunk: ChunkKey,
    /// Owner that works on the claim.
    pub owner: ClaimOwner,
    /// Ledger time of the claim; it is the `Date` header of the claim's emails.
    pub claimed_at: Time,
    /// Slots that were granted; they never change.
    pub granted: Bitmap,
    /// Slots that are still claimed.
    pub claimed: Bitmap,
    /// Slots that are in doubt, until evidence or a decision resolves them.
    pub in_doubt: Bitmap,
    /// Slots that a relay accepted under this fence.
    pub sent: Bitmap,
    /// Slots that were closed as assumed while in doubt in this claim.
    pub assumed: Bitmap,
    /// Events of the recipients, with their times.
    pub history: ClaimHistory,
}

impl Claim {
    /// True if nothing is claimed or in doubt: the claim is kept as evidence only.
    pub fn is_closed(&self) -> bool {
        self.claimed.is_empty() && self.in_doubt.is_empty()
    }

    /// True if recipients were taken from the owner because its lease was over (P9).
    pub fn was_revoked(&self) -> bool {
        self.history.iter().any(|event| event.what == ClaimEventKind::InDoubt(DoubtReason::OwnerLost))
    }

    /// Returns the latest reason why a slot is in doubt, and the time of its first doubt. `None` if it is not in doubt
    /// in this claim.
    pub fn doubt(&self, slot: u16) -> Option<(DoubtReason, Time)> {
        if !self.in_doubt.contains(slot) {
            return None;
        }
        let mine = self.history.iter().filter(|event| event.slots(&self.granted).contains(slot));
        let mut doubts = mine.filter_map(|event| match event.what {
            ClaimEventKind::InDoubt(doubt) => Some((doubt, event.at)),
            _ => None,
        });
        let (first, since) = doubts.next()?;
        Some((doubts.next_back().map_or(first, |(last, _)| last), since))
    }
}

/// A recipient that will not be sent: an entry of the dead-letter list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Basic code of the last answer; 0 if no relay answered.
    pub code: u16,
    /// Enhanced status code; `None` if the answer had none.
    pub enhanced: Option<EnhancedCode>,
    /// Text of the answer, or the cause.
    pub cause: DeadLetterCause,
    /// Number of counted attempts.
    pub attempts: u8,
    /// Ledger time at which the recipient became dead.
    pub since: Time,
    /// True if an operator took it off the list.
    pub discarded: bool,
}

impl DeadLetter {
    /// A recipient that became dead without an answer of a relay.
    pub(crate) fn without_answer(cause: DeadLetterCause, attempts: u8, since: Time) -> DeadLetter {
        DeadLetter { code: 0, enhanced: None, cause, attempts, since, discarded: false }
    }

    /// Text of the answer, or of the cause.
    pub fn text(&self) -> &str {
        self.cause.text()
    }
}

/// Effect of a refusal on its recipient and on its run (P6). The worker derives it from the subject of the
/// relay's answer, the stage and the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalEffect {
    /// Refused for good: the recipient is dead. If the answer has no enhanced code that names the mailbox, it counts as
    /// unattributed (see `apply/relay_refusals.rs`), and after such a series the recipient is pending.
    Dead,
    /// Refused for now: the recipient waits its own back-off, and the attempt is not counted.
    BackOff,
    /// Not about the recipient: the relay (then it is slowed, or its circuit opens) or the node could not take the email.
    /// The recipient is pending again; the attempt is not counted.
    NextWave,
    /// About the content, the sender or the tenant: the attempt is not counted. Ten in a row pause the run, or as many
    /// as the run has recipients. The recipient of a run of one is dead.
    MayPauseRun,
    /// A permanent answer that names no cause, or (code 0) a dialogue that broke from RCPT on. The attempt counts. The
    /// recipient waits its back-off, and is dead at `max_attempts`.
    CountAttempt,
}

/// Why an email cannot be given to any relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unsendable {
    /// It cannot be composed. The text is the node's; it is empty where several causes are merged.
    NotComposed(String),
    /// One of its addresses is not ASCII, and no relay of its pool offers SMTPUTF8 (RFC 6531).
    NoSmtpUtf8,
}

impl Unsendable {
    /// The cause, as a text for users.
    pub fn text(&self) -> &str {
        match self {
            Unsendable::NotComposed(words) => words,
            Unsendable::NoSmtpUtf8 => {
                "an address in it is not ASCII, and no relay of its pool offers SMTPUTF8 with 8BITMIME"
            }
        }
    }
}

/// Why a recipient was released: no relay was asked to accept its email, or none answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReleaseReason {
    /// It was not begun within ten seconds (P12): all sessions of the relays or of the node were busy.
    Busy,
    /// It was not begun within ten seconds (P12): the rate of the relays did not allow it.
    RateLimited,
    /// The relay had closed an idle session in order.
    SessionEnded,
    /// The recipient was no longer in the claim: the claim had been revoked (P9).
    NotInClaim,
    /// Its run was paused.
    RunPaused,
    /// Its run had ended.
    RunEnded,
    /// Its run's deadline had passed.
    PastDeadline,
    /// The lease of its node was over (P9).
    LeaseOver,
    /// The journal of its node could not be written (P11).
    JournalFailed,
    /// Its node was stopping.
    Stopping,
    /// The owner crashed before the gate, and not while it composed the email. Its journal proves this (P10).
    OwnerCrashed,
    /// The owner crashed while it composed the email. Its journal proves this (P12).
    OwnerCrashedComposing,
}

/// Source of the reported outcomes of a claim (P10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutcomeSource {
    /// The owner itself.
    Owner,
    /// A later incarnation of the node, which read a complete journal of the owner.
    Journal,
    /// A later incarnation of the node, which found no journal that proves anything.
    NoJournal,
}

/// Source of a decision about recipients in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decider {
    /// An operator.
    Operator,
    /// The `in_doubt` policy of the run.
    Policy,
}

/// A relay that was asked to accept a test email, and its answer after the final dot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayReply {
    /// The relay.
    pub relay: String,
    /// Basic code: 250 or another 2yz. 0 if the relay did not accept it; the refusal then has its answer.
    pub code: u16,
    /// Enhanced status code; `None` if the answer had none.
    pub enhanced: Option<EnhancedCode>,
    /// Text of the answer, cleaned and truncated by the worker.
    pub text: String,
}

/// A definite refusal of one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRefusal {
    /// Slot of the recipient in its chunk.
    pub slot: u16,
    /// Basic code, 400 to 599. 0 if no relay answered; the text then gives the cause.
    pub code: u16,
    /// Enhanced status code; `None` if the answer had none.
    pub enhanced: Option<EnhancedCode>,
    /// Text of the answer without its codes, cleaned and truncated by the worker.
    pub text: String,
    /// Effect of the refusal.
    pub effect: RefusalEffect,
}

//! A claim: recipients that one node may send under one fencing token. Also the words in which it reports outcomes.

use serde::{Deserialize, Serialize};

use crate::model::{Bitmap, ClaimEventKind, ClaimHistory, ClaimOwner, DeathCause, DoubtReason, RunId, Time};

/// A claim row: the right of one owner to send one slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The page, by its first run.
    pub page: RunId,
    /// The chunk.
    pub chunk: u32,
    /// Who works it.
    pub owner: ClaimOwner,
    /// Ledger time of the claim: the `Date` of its emails.
    pub claimed_at: Time,
    /// What was granted; never changes.
    pub granted: Bitmap,
    /// Still claimed.
    pub claimed: Bitmap,
    /// In doubt: held here until evidence or a decision.
    pub in_doubt: Bitmap,
    /// Accepted under this fence.
    pub sent: Bitmap,
    /// Closed as assumed while in doubt in this row.
    pub assumed: Bitmap,
    /// What happened to its recipients, and when.
    pub history: ClaimHistory,
}

impl Claim {
    /// Nothing claimed and nothing in doubt: only evidence is left.
    pub fn is_closed(&self) -> bool {
        self.claimed.is_empty() && self.in_doubt.is_empty()
    }

    /// Was it taken from its owner, whose lease was over (P9)?
    pub fn was_revoked(&self) -> bool {
        self.history.iter().any(|event| event.what == ClaimEventKind::InDoubt(DoubtReason::OwnerLost))
    }

    /// What is known of the doubt in which it holds a slot: its reason, and since when; none where it
    /// does not hold it so.
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

/// A recipient that will not be sent: the dead-letter list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Basic code of the last answer; 0 where no relay answered.
    pub code: u16,
    /// Enhanced status code.
    pub enhanced: Option<(u8, u16, u16)>,
    /// The answer, or the cause.
    pub cause: DeathCause,
    /// Counted attempts.
    pub attempts: u8,
    /// Since when.
    pub since: Time,
    /// Taken off the list by an operator.
    pub discarded: bool,
}

impl DeadLetter {
    /// The answer, or the cause.
    pub fn text(&self) -> &str {
        self.cause.text()
    }
}

/// What an answer of a relay concerns (P6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplyScope {
    /// This mailbox, for good: the recipient is dead.
    Mailbox,
    /// The recipient waits its own back-off, uncounted.
    Greylist,
    /// The relay: it slows or opens its circuit; back to pending, uncounted.
    Relay,
    /// The content, the sender or the tenant: uncounted; ten in a row pause the run.
    Policy,
    /// A permanent answer that names no cause, or (with code 0) a dialogue that broke after RCPT: the attempt counts.
    /// The recipient waits its back-off, and is dead at `max_attempts`.
    Unnamed,
}

/// Why no relay can be given an email.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unsendable {
    /// It cannot be composed; the words are the node's, and empty where this stands for several causes.
    NotComposed(String),
    /// An address in it is not ASCII, and no relay of its pool offers SMTPUTF8 (RFC 6531).
    NoSmtpUtf8,
}

impl Unsendable {
    /// The cause, for people.
    pub fn text(&self) -> &str {
        match self {
            Unsendable::NotComposed(words) => words,
            Unsendable::NoSmtpUtf8 => {
                "an address in it is not ASCII, and no relay of its pool offers SMTPUTF8 with 8BITMIME"
            }
        }
    }
}

/// Why a recipient was given back although no relay was asked to take it, or none that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReleaseReason {
    /// It was not begun within ten seconds (P12): its relays' sessions, or those of its node, were busy.
    Busy,
    /// It was not begun within ten seconds (P12): it was not its turn at the rate of its relays.
    Paced,
    /// The relay had closed an idle session, and politely so.
    SessionEnded,
    /// Its row had been taken from its owner (P9).
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
    /// Its owner died before it had begun, as the journal that it left proves (P10).
    OwnerDied,
    /// Its owner died while it prepared it, as the journal that it left proves (P12).
    OwnerDiedPreparing,
}

/// Who says what became of a row's recipients (P10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutcomeSource {
    /// The life that holds it.
    Owner,
    /// A later life of its node, from a journal that proves what it says.
    Journal,
    /// A later life of its node, which found no journal that proves anything.
    NoJournal,
}

/// Who decided what is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decider {
    /// An operator.
    Operator,
    /// The policy of the run.
    Policy,
}

/// A relay that was asked to take a test mail, and its answer to a final dot that it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayReply {
    /// The relay.
    pub relay: String,
    /// 250, or another 2yz; zero where it did not take it: what it said then is in the refusal.
    pub code: u16,
    /// Enhanced status code.
    pub enhanced: Option<(u8, u16, u16)>,
    /// Its words, cleaned and cut by the claim worker.
    pub text: String,
}

/// A definite refusal of one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The recipient's slot in its chunk.
    pub slot: u16,
    /// Basic code, 400 to 599; 0 where no relay answered, and the text says why.
    pub code: u16,
    /// Enhanced status code, where the answer had one.
    pub enhanced: Option<(u8, u16, u16)>,
    /// The answer's text without the codes, cleaned and cut by the claim worker.
    pub text: String,
    /// What it concerns.
    pub scope: ReplyScope,
    /// Of a permanent answer: hash of its words without what differs by recipient, computed by the node. Zero: none.
    pub words: u32,
}

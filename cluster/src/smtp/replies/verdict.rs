//! What an answer means for the email, the relay, the tenant and the run (P6).
//!
//! Called by the dialogue for each answer that is not the hoped-for one; read by
//! the claim worker, which acts on the [`DialogueResult`]. The scope is a pure function of (rules, stage, code, text): the
//! rules are data (`replies.toml`, and the operator's for one relay), and the answers in `tests/replies.tsv` hold them to
//! what relays say. Sources: RFC 5321 4.2 and 4.3.2, RFC 3463 (enhanced codes), RFC 2034 (the class must agree with the
//! first digit), and what relays do.
//!
//! It does not decide what happens then: how long to wait, when to give up, when to raise an alarm.

use super::classification::{ReplyClass, ReplyRules};
use crate::smtp::session::cause::Cause;
use crate::smtp::session::gate::GateRefusal;
use crate::smtp::session::lines::Reply;
use crate::smtp::session::stream::Stage;

/// The longest text of an answer that is kept, in characters.
pub(crate) const MAX_TEXT_CHARS: usize = 400;

/// How one email fared. Every email that is handed to a dialogue gets exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogueResult {
    /// 2yz to the final dot: the relay took it.
    Accepted {
        /// 250, or another 2yz.
        code: u16,
        /// The relay's words, usually with its queue id; one line.
        text: String,
    },
    /// 4yz or 5yz: definitely not sent, at any stage, also after the dot (RFC 5321 4.2.5).
    Refused {
        /// The question that was refused; `Answered` for the final dot.
        stage: Stage,
        /// 400 to 599.
        code: u16,
        /// Class, subject, detail (RFC 3463), when the text begins with one of the same class.
        enhanced: Option<(u8, u16, u16)>,
        /// The relay's words; one line. Our own begin with "not offered:".
        text: String,
        /// By the first digit.
        permanence: Permanence,
        /// What it concerns.
        scope: RefusalScope,
    },
    /// Lost before the gate: definitely not sent.
    Broken {
        /// Where.
        stage: Stage,
        /// Why.
        cause: Cause,
    },
    /// An address in it is beyond ASCII, and the relay's EHLO offered no SMTPUTF8 with 8BITMIME: nothing was written, and
    /// another relay may take it.
    NoSmtpUtf8 {
        /// The relay accepted EHLO. After HELO it offers nothing now, and may in the next session.
        asked: bool,
    },
    /// The gate stayed shut: nothing of the terminator was written, and the socket is closed.
    GateClosed(GateRefusal),
    /// The terminator may have been written and no whole answer is known (P5).
    InDoubt {
        /// Why.
        cause: Cause,
    },
}

/// Whether the same offer may succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permanence {
    /// 4yz.
    Transient,
    /// 5yz.
    Permanent,
}

/// What a refusal concerns (P6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalScope {
    /// This recipient, for good.
    Mailbox,
    /// The relay: its circuit may open, and the email waits or moves within the pool.
    Relay,
    /// The sender or what it may do here: pause the tenant and raise an alarm.
    Tenant,
    /// This message: pause the run and raise an alarm.
    Content,
    /// Asked to come back later (greylisting, a full mailbox, any other 4yz about the recipient): waits uncounted.
    Greylisted,
    /// Too fast, or too much.
    Throttle {
        /// The day's allowance is used up: the relay is parked until its window slides.
        daily_quota: bool,
    },
    /// A permanent answer that names no cause: it uses up an attempt.
    Unnamed,
}

impl DialogueResult {
    /// The verdict on a 4yz or 5yz answer to `stage`'s question. `rules` are the operator's for this relay.
    pub fn refused(rules: &ReplyRules, stage: Stage, reply: &Reply) -> DialogueResult {
        let enhanced = enhanced_code(reply.code, &reply.text);
        let scope = scope(rules, stage, reply.code, enhanced, &reply.text);
        DialogueResult::Refused {
            stage,
            code: reply.code,
            enhanced,
            text: one_line(&reply.text),
            permanence: if reply.code < 500 { Permanence::Transient } else { Permanence::Permanent },
            scope,
        }
    }

    /// The verdict on a 2yz answer to the final dot.
    pub fn accepted(reply: &Reply) -> DialogueResult {
        DialogueResult::Accepted { code: reply.code, text: one_line(&reply.text) }
    }

    /// The verdict when a dialogue ended at `stage` without an answer.
    pub fn lost(stage: Stage, cause: Cause) -> DialogueResult {
        if stage == Stage::DotHanded {
            DialogueResult::InDoubt { cause }
        } else {
            DialogueResult::Broken { stage, cause }
        }
    }
}

/// What a 4yz or 5yz answer concerns. `enhanced` as [`enhanced_code`] reads it from `text`.
///
/// Of what concerns the recipient a 5yz is final, or uses up an attempt where it names no cause. A 4yz waits uncounted,
/// whatever it says: a directory that is down for a quarter of an hour must cost no recipient.
pub fn scope(
    rules: &ReplyRules,
    stage: Stage,
    code: u16,
    enhanced: Option<(u8, u16, u16)>,
    text: &str,
) -> RefusalScope {
    match rules.classify(stage, code, enhanced, text) {
        ReplyClass::RecipientPermanent | ReplyClass::RecipientTransient | ReplyClass::RecipientDomain => {
            if code >= 500 { RefusalScope::Mailbox } else { RefusalScope::Greylisted }
        }
        ReplyClass::Unnamed if code >= 500 => RefusalScope::Unnamed,
        ReplyClass::Unnamed => RefusalScope::Greylisted,
        ReplyClass::Sender => RefusalScope::Tenant,
        ReplyClass::Content => RefusalScope::Content,
        ReplyClass::Quota => RefusalScope::Throttle { daily_quota: true },
        ReplyClass::Throttle => RefusalScope::Throttle { daily_quota: false },
        ReplyClass::Relay | ReplyClass::Protocol => RefusalScope::Relay,
    }
}

/// The enhanced code of an answer, when its class agrees with the code's first digit: the first word of `text`, or as qmail
/// puts it, the last one: `(#5.1.1)`.
pub fn enhanced_code(code: u16, text: &str) -> Option<(u8, u16, u16)> {
    let last = || text.split_ascii_whitespace().next_back()?.strip_prefix("(#")?.strip_suffix(')');
    let first = text.split_ascii_whitespace().next()?;
    enhanced_of(code, first).or_else(|| enhanced_of(code, last()?))
}

fn enhanced_of(code: u16, word: &str) -> Option<(u8, u16, u16)> {
    let mut parts = word.splitn(3, '.');
    let class = digits(parts.next()?, 1)?;
    let subject = digits(parts.next()?, 3)?;
    let detail = digits(parts.next()?, 3)?;
    (class == code / 100).then_some((u8::try_from(class).ok()?, subject, detail))
}

/// The words of an answer without its enhanced code, which each of its lines begins with (RFC 2034 section 4).
pub fn without_enhanced_code(text: &str, enhanced: Option<(u8, u16, u16)>) -> String {
    let Some((class, subject, detail)) = enhanced else { return text.to_owned() };
    let code = format!("{class}.{subject}.{detail}");
    let at_the_end = format!("(#{code})");
    text.split(' ').filter(|word| *word != code && *word != at_the_end).collect::<Vec<_>>().join(" ")
}

fn digits(text: &str, most: usize) -> Option<u16> {
    let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

fn one_line(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).map(|c| if c == '\n' { ' ' } else { c }).collect()
}

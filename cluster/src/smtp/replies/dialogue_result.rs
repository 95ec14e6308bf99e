//! The result of one email (P6).
//!
//! The dialogue makes it from its last answer; `classification.rs` gives the class, `worker/delivery.rs` acts on it.
//! Sources: RFC 5321 4.2 and 4.3.2, RFC 3463 (enhanced codes), RFC 2034 (the class must agree with the first digit).

use reveille_ledger::command::EnhancedCode;

use super::classification::{ReplyClass, ReplyRules};
use crate::smtp::cause::Cause;
use crate::smtp::reply::Reply;
use crate::smtp::stage::Stage;

/// Maximum length of a kept answer text, in characters.
pub(crate) const TEXT_CHARS_MAX: usize = 400;

/// Result of one email. Every email that is passed to a dialogue gets exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogueResult {
    /// 2yz to the final dot: the relay accepted the email.
    Accepted {
        /// 250, or another 2yz code.
        code: u16,
        /// The relay's reply, usually with its queue id, on one line.
        text: String,
    },
    /// 4yz or 5yz: the email was definitely not sent, at any stage, even after the dot (RFC 5321 4.2.5).
    Refused {
        /// The stage of the refused command; `Answered` for the final dot.
        stage: Stage,
        /// 400 to 599.
        code: u16,
        /// `None` if the text has no enhanced code of the same class.
        enhanced: Option<EnhancedCode>,
        /// The relay's reply on one line. Refusals by this node itself begin with "not offered:".
        text: String,
        /// Subject of the refusal.
        class: ReplyClass,
    },
    /// The dialogue ended without an answer before the gate: the email was definitely not sent.
    Broken {
        /// Stage at which it ended.
        stage: Stage,
        /// Reason why it ended.
        cause: Cause,
    },
    /// The email needs SMTPUTF8, and the relay's EHLO did not offer it with 8BITMIME. Nothing was written, and another
    /// relay may accept the email.
    NoSmtpUtf8 {
        /// True if the relay accepted EHLO. After HELO it offers nothing now, but it may in the next session.
        asked: bool,
    },
    /// The gate did not let the email pass: nothing of the final dot was written, and the socket is closed.
    GateClosed,
    /// The final dot may have been written, and no complete answer is known (P5).
    InDoubt {
        /// Reason why the answer is missing.
        cause: Cause,
    },
}

impl DialogueResult {
    /// Returns the result for a 4yz or 5yz answer to the command of `stage`. `rules` are the operator's for this relay.
    pub fn refused(rules: &ReplyRules, stage: Stage, reply: &Reply) -> DialogueResult {
        let enhanced = enhanced_code(reply.code, &reply.text);
        let class = rules.classify(stage, reply.code, enhanced, &reply.text);
        DialogueResult::Refused { stage, code: reply.code, enhanced, text: one_line(&reply.text), class }
    }

    /// Returns the result for a 2yz answer to the final dot.
    pub fn accepted(reply: &Reply) -> DialogueResult {
        DialogueResult::Accepted { code: reply.code, text: one_line(&reply.text) }
    }

    /// Returns the result of a dialogue that ended at `stage` without an answer.
    pub fn without_answer(stage: Stage, cause: Cause) -> DialogueResult {
        if stage == Stage::FinalDot {
            DialogueResult::InDoubt { cause }
        } else {
            DialogueResult::Broken { stage, cause }
        }
    }
}

/// Returns the enhanced code of an answer, if its class agrees with the code's first digit. It is the first word of
/// `text`, or the last one in qmail's form `(#5.1.1)`.
pub fn enhanced_code(code: u16, text: &str) -> Option<EnhancedCode> {
    let last = || text.split_ascii_whitespace().next_back()?.strip_prefix("(#")?.strip_suffix(')');
    let first = text.split_ascii_whitespace().next()?;
    let parse = |word| EnhancedCode::parse(word).filter(|found| u16::from(found.class) == code / 100);
    parse(first).or_else(|| parse(last()?))
}

/// Returns the text of an answer without its enhanced code, which begins each line (RFC 2034 section 4).
pub fn without_enhanced_code(text: &str, enhanced: Option<EnhancedCode>) -> String {
    let Some(enhanced) = enhanced else { return text.to_owned() };
    let code = enhanced.to_string();
    let at_the_end = format!("(#{code})");
    text.split(' ').filter(|word| *word != code && *word != at_the_end).collect::<Vec<_>>().join(" ")
}

fn one_line(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).map(|c| if c == '\n' { ' ' } else { c }).collect()
}

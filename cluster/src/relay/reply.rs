//! What an answer means for the mail, the relay, the tenant and the run (P6).
//!
//! Called by the dialogue for each answer that is not the hoped-for one, and by nobody else; read by
//! the lane, which acts on the [`Verdict`]. The scope is a pure function of (stage, code, text), so
//! that the table in its tests *is* the rule. Sources: RFC 5321 4.2 and 4.3.2, RFC 3463 (enhanced
//! codes), RFC 2034 (the class must agree with the first digit), and what relays do.
//!
//! It does not decide what happens then: how long to wait, when to give up, whom to alarm.

use super::{cause::Cause, gate::Shut, lines::Reply, stream::Stage};

/// The longest text of an answer that is kept, in characters.
pub(super) const MAX_TEXT_CHARS: usize = 400;

/// How one mail fared. Every mail that is handed to a dialogue gets exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
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
        /// Whom it concerns.
        scope: Scope,
        /// True when it is about this mailbox, so that an attempt was used up.
        counts_attempt: bool,
    },
    /// Lost before the gate: definitely not sent, and no attempt is counted.
    Broken {
        /// Where.
        stage: Stage,
        /// Why.
        cause: Cause,
    },
    /// The gate stayed shut: nothing of the terminator was written, and the socket is closed.
    GateClosed(Shut),
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

/// Whom a refusal concerns (P6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This recipient: the only scope that uses up an attempt.
    Mailbox,
    /// The relay: its circuit opens or it slows, and the mail waits or moves within the pool.
    Relay,
    /// The sender or what it may do here: pause the tenant and raise an alarm.
    Tenant,
    /// This message: pause the run and raise an alarm.
    Content,
    /// Asked to come back later (greylisting): waits uncounted.
    Greylisted,
    /// Too fast, or too much.
    Throttle {
        /// The day's allowance is used up: the relay is parked until its window slides.
        daily_quota: bool,
    },
}

impl Verdict {
    /// The verdict on a 4yz or 5yz answer to `stage`'s question.
    pub fn refused(stage: Stage, reply: &Reply) -> Verdict {
        let enhanced = enhanced_code(reply.code, &reply.text);
        let scope = scope(stage, reply.code, enhanced, &reply.text);
        Verdict::Refused {
            stage,
            code: reply.code,
            enhanced,
            text: one_line(&reply.text),
            permanence: if reply.code < 500 { Permanence::Transient } else { Permanence::Permanent },
            scope,
            counts_attempt: scope == Scope::Mailbox,
        }
    }

    /// The verdict on a 2yz answer to the final dot.
    pub fn accepted(reply: &Reply) -> Verdict {
        Verdict::Accepted { code: reply.code, text: one_line(&reply.text) }
    }

    /// The verdict when a dialogue ended at `stage` without an answer.
    pub fn lost(stage: Stage, cause: Cause) -> Verdict {
        if stage == Stage::DotHanded { Verdict::InDoubt { cause } } else { Verdict::Broken { stage, cause } }
    }
}

/// Whom a 4yz or 5yz answer concerns. `enhanced` as [`enhanced_code`] reads it from `text`.
pub fn scope(stage: Stage, code: u16, enhanced: Option<(u8, u16, u16)>, text: &str) -> Scope {
    let text = text.to_ascii_lowercase();
    let about_mailbox = matches!(enhanced, Some((_, 1 | 2, _)));
    if let Some(throttle) = throttle(stage, code, enhanced, about_mailbox, &text) {
        return throttle;
    }
    match stage {
        Stage::Connect | Stage::Tls | Stage::Banner | Stage::Ehlo | Stage::Auth => Scope::Relay,
        Stage::Mail => scope_at_mail(code, enhanced),
        Stage::Rcpt => scope_at_rcpt(code, enhanced, &text),
        Stage::Data | Stage::Body => scope_at_data(code, enhanced),
        Stage::DotHanded | Stage::Answered => scope_after_dot(code, enhanced),
    }
}

/// MAIL names the sender only. What is said about it is the tenant's; the rest is the relay's.
fn scope_at_mail(code: u16, enhanced: Option<(u8, u16, u16)>) -> Scope {
    match (enhanced, code) {
        (Some((_, 3, 4)), _) | (None, 552) => Scope::Content,
        (Some((_, 1, _)), _) | (Some((5, 7, _)), 531..) => Scope::Tenant,
        (None, 550 | 551 | 553) => Scope::Tenant,
        _ => Scope::Relay,
    }
}

fn scope_at_rcpt(code: u16, enhanced: Option<(u8, u16, u16)>, text: &str) -> Scope {
    let greylisted = code < 500 && (text.contains("greylist") || text.contains("graylist"));
    match enhanced {
        _ if greylisted => Scope::Greylisted,
        None | Some((_, 1 | 2, _)) => Scope::Mailbox,
        Some((4, 7, _)) => Scope::Greylisted,
        Some((_, 7, _)) => Scope::Tenant,
        Some((_, 6, _) | (_, 3, 4)) => Scope::Content,
        Some(_) => Scope::Relay,
    }
}

/// DATA comes before any content, and after this mailbox was taken: it concerns neither.
fn scope_at_data(code: u16, enhanced: Option<(u8, u16, u16)>) -> Scope {
    match (enhanced, code) {
        (Some((5, 7, _)), _) => Scope::Tenant,
        _ => Scope::Relay,
    }
}

fn scope_after_dot(code: u16, enhanced: Option<(u8, u16, u16)>) -> Scope {
    match (enhanced, code) {
        (None | Some((_, 1 | 2, _)), _) => Scope::Mailbox,
        (Some((4, 7, _)), _) => Scope::Greylisted,
        (Some((_, 6 | 7, _) | (_, 3, 4)), _) => Scope::Content,
        _ => Scope::Relay,
    }
}

/// Too fast, or too much. What is said about a mailbox (x.1.x, x.2.x) never slows the relay, except
/// by 421 and 454, which end or suspend the service for everybody.
fn throttle(
    stage: Stage,
    code: u16,
    enhanced: Option<(u8, u16, u16)>,
    about_mailbox: bool,
    text: &str,
) -> Option<Scope> {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let daily_quota = !about_mailbox && text.contains("daily") && says(&["quota", "limit"]);
    let by_words = says(&["throttl", "too many", "too fast", "rate limit", "ratelimit", "sending rate"]);
    let slows = match code {
        // "TLS not available" (RFC 3207 4) and "temporary authentication failure" (RFC 4954 6).
        454 if matches!(stage, Stage::Tls | Stage::Auth) => by_words,
        421 | 454 => true,
        450..=452 if about_mailbox => false,
        452 if matches!(enhanced, Some((4, 5, 3))) => true,
        450..=452 => by_words,
        _ => false,
    };
    let at_a_question = stage >= Stage::Mail || slows;
    (at_a_question && (slows || daily_quota)).then_some(Scope::Throttle { daily_quota })
}

/// The enhanced code that `text` begins with, when its class agrees with the code's first digit.
pub fn enhanced_code(code: u16, text: &str) -> Option<(u8, u16, u16)> {
    let mut parts = text.split_ascii_whitespace().next()?.splitn(3, '.');
    let class = digits(parts.next()?, 1)?;
    let subject = digits(parts.next()?, 3)?;
    let detail = digits(parts.next()?, 3)?;
    (class == code / 100).then_some((u8::try_from(class).ok()?, subject, detail))
}

/// The words of an answer without its enhanced code, which each of its lines begins with (RFC 2034 section 4).
pub fn without_enhanced_code(text: &str, enhanced: Option<(u8, u16, u16)>) -> String {
    let Some((class, subject, detail)) = enhanced else { return text.to_owned() };
    let code = format!("{class}.{subject}.{detail}");
    text.split(' ').filter(|word| *word != code).collect::<Vec<_>>().join(" ")
}

fn digits(text: &str, most: usize) -> Option<u16> {
    let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

fn one_line(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).map(|c| if c == '\n' { ' ' } else { c }).collect()
}

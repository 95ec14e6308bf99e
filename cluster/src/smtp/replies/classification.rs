//! The class of a negative SMTP reply, by ordered rules: the operator's rules for this relay, then those of
//! `replies.toml`.
//!
//! `dialogue_result.rs` calls [`ReplyRules::classify`]; `worker/delivery.rs` acts on the class. Invariant: the class is
//! a pure function of the rules, stage, code, enhanced code and text, and the first rule that matches decides.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use reveille_ledger::command::EnhancedCode;
use serde::Deserialize;
use toml::Spanned;

use crate::smtp::stage::Stage;

/// Subject of a negative reply (P6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyClass {
    /// This recipient: its mailbox, its domain, or the route to it. A 5yz is final. A 4yz waits (greylisting, a full
    /// mailbox) and uses up no attempt, whatever its text says: a directory that is down for a quarter of an hour must
    /// cost no recipient.
    Recipient,
    /// The sender's address, or the sender's rights at this relay. A series of such answers pauses the run with an
    /// alarm.
    Sender,
    /// The content or the size of the message. A series of such answers pauses the run with an alarm.
    Content,
    /// The allowance of a day (or month) is used up: the relay is parked until its window slides.
    Quota,
    /// Too many messages or connections in a short time.
    Throttle,
    /// The relay, the command sequence, or the name in EHLO: its circuit may open, and the email waits or goes through
    /// another relay of the pool.
    Relay,
    /// An answer that names no cause. A 5yz uses up an attempt, a 4yz waits.
    Unnamed,
}

/// The rules of `replies.toml`, parsed once. The test `embedded_rules_parse_and_reach_each_class` parses the same text.
static RULES: LazyLock<Vec<Rule>> =
    LazyLock::new(|| parse(include_str!("replies.toml")).expect("a test parses the embedded rules"));

/// The operator's rules for the answers of one relay, usually none. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ReplyRules(Arc<[Rule]>);

/// The operator's rules by the relay's name in the ledger.
pub type RelayRules = BTreeMap<String, ReplyRules>;

impl ReplyRules {
    /// Parses rules in the format of `replies.toml`.
    ///
    /// # Errors
    /// Returns the first rule or value that cannot be used, with its position in `text`.
    pub fn parse(text: &str) -> Result<ReplyRules, BadRules> {
        parse(text).map(|rules| ReplyRules(rules.into()))
    }

    /// Returns the class of a 4yz or 5yz reply to the command of `stage`.
    pub(crate) fn classify(&self, stage: Stage, code: u16, enhanced: Option<EnhancedCode>, text: &str) -> ReplyClass {
        let text = text.to_ascii_lowercase();
        let rule = self.0.iter().chain(RULES.iter()).find(|rule| rule.matches(stage, code, enhanced, &text));
        rule.map_or(ReplyClass::Relay, |rule| rule.class)
    }
}

/// Reason why rules cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRules {
    /// Byte offset in the text where the cause begins.
    pub at: usize,
    /// The cause.
    pub message: String,
}

fn parse(text: &str) -> Result<Vec<Rule>, BadRules> {
    let rules = toml::from_str::<Rules>(text).map_err(|error| BadRules {
        at: error.span().unwrap_or_default().start,
        message: error.message().to_owned(),
    })?;
    rules.rule.into_iter().map(|rule| rule.get_ref().check(rule.span().start).map(|()| rule.into_inner())).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Spanned<Rule>>,
}

/// One rule. An empty list matches everything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    stages: Vec<StageGroup>,
    #[serde(default)]
    code: Vec<CodePattern>,
    #[serde(default)]
    enhanced: Vec<EnhancedPattern>,
    #[serde(default)]
    text: Vec<TextPattern>,
    class: ReplyClass,
}

impl Rule {
    /// Checks that the class of a recipient is used only where it may be. Only answers to RCPT and to the final dot
    /// concern a recipient: a 5yz at another stage must not use up an attempt (P6).
    fn check(&self, at: usize) -> Result<(), BadRules> {
        let is_recipient = matches!(self.class, ReplyClass::Recipient | ReplyClass::Unnamed);
        let is_transient = !self.code.is_empty() && self.code.iter().all(|code| code.0.starts_with('4'));
        let names_one = |stage: &StageGroup| matches!(stage, StageGroup::Rcpt | StageGroup::Dot);
        let fits = !self.stages.is_empty() && self.stages.iter().all(names_one);
        if !is_recipient || is_transient || fits {
            return Ok(());
        }
        let message = "a class `recipient` or `unnamed` needs stages = [\"rcpt\", \"dot\"] or one of them, or codes \
            that begin with 4";
        Err(BadRules { at, message: message.to_owned() })
    }

    fn matches(&self, stage: Stage, code: u16, enhanced: Option<EnhancedCode>, text: &str) -> bool {
        any(&self.stages, |group| *group == StageGroup::of(stage))
            && any(&self.code, |pattern| pattern.matches(code))
            && any(&self.enhanced, |pattern| pattern.matches(enhanced))
            && any(&self.text, |pattern| pattern.matches(text))
    }
}

fn any<T>(list: &[T], matches: impl Fn(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(matches)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StageGroup {
    Opening,
    Login,
    Mail,
    Rcpt,
    Data,
    Dot,
}

impl StageGroup {
    fn of(stage: Stage) -> StageGroup {
        match stage {
            Stage::Connect | Stage::Banner | Stage::Ehlo => StageGroup::Opening,
            Stage::Tls | Stage::Auth => StageGroup::Login,
            Stage::Mail => StageGroup::Mail,
            Stage::Rcpt => StageGroup::Rcpt,
            Stage::Data | Stage::Body => StageGroup::Data,
            Stage::FinalDot | Stage::Answered => StageGroup::Dot,
        }
    }
}

/// Three digits, with `x` for any digit. Rules apply to negative replies only.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct CodePattern(String);

impl TryFrom<String> for CodePattern {
    type Error = String;

    fn try_from(text: String) -> Result<CodePattern, String> {
        let is_code = text.len() == 3 && text.bytes().all(|byte| byte == b'x' || byte.is_ascii_digit());
        if is_code && is_negative(&text) {
            Ok(CodePattern(text))
        } else {
            Err(format!("{text:?} is not a negative reply code like \"4xx\" or \"550\""))
        }
    }
}

impl CodePattern {
    fn matches(&self, code: u16) -> bool {
        has_digits(&self.0, &code.to_string())
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
enum EnhancedPattern {
    /// The reply has no enhanced code.
    None,
    /// Class, subject, detail.
    Numbers([String; 3]),
}

impl TryFrom<String> for EnhancedPattern {
    type Error = String;

    fn try_from(text: String) -> Result<EnhancedPattern, String> {
        if text == "none" {
            return Ok(EnhancedPattern::None);
        }
        let is_part = |part: &str| {
            part == "*" || !part.is_empty() && part.bytes().all(|byte| byte == b'x' || byte.is_ascii_digit())
        };
        match text.split('.').collect::<Vec<_>>()[..] {
            [class, subject, detail] if is_negative(class) && [class, subject, detail].into_iter().all(is_part) => {
                Ok(EnhancedPattern::Numbers([class, subject, detail].map(str::to_owned)))
            }
            _ => Err(format!("{text:?} is not an enhanced code like \"x.1.7\" or \"5.7.*\"")),
        }
    }
}

impl EnhancedPattern {
    fn matches(&self, enhanced: Option<EnhancedCode>) -> bool {
        match (self, enhanced) {
            (EnhancedPattern::None, enhanced) => enhanced.is_none(),
            (EnhancedPattern::Numbers(_), None) => false,
            (EnhancedPattern::Numbers(parts), Some(EnhancedCode { class, subject, detail })) => {
                let numbers = [u16::from(class), subject, detail];
                parts.iter().zip(numbers).all(|(part, number)| part == "*" || has_digits(part, &number.to_string()))
            }
        }
    }
}

/// Text in lower case. `*` separates parts that must follow each other.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct TextPattern(String);

impl TryFrom<String> for TextPattern {
    type Error = String;

    fn try_from(text: String) -> Result<TextPattern, String> {
        let is_sound = text == text.to_ascii_lowercase() && text.split('*').all(|part| !part.trim().is_empty());
        if is_sound { Ok(TextPattern(text)) } else { Err(format!("{text:?} is empty or not in lower case")) }
    }
}

impl TextPattern {
    fn matches(&self, text: &str) -> bool {
        let mut rest = Some(text);
        for part in self.0.split('*') {
            rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
        }
        rest.is_some()
    }
}

/// Returns true for a pattern of negative replies. They begin with 4 or 5 (RFC 5321 4.2.1), and so do their enhanced
/// codes (RFC 3463 3.1).
fn is_negative(pattern: &str) -> bool {
    pattern.starts_with(['4', '5', 'x', '*'])
}

/// Returns true if the number has the pattern's length and each digit equals the pattern's, or the pattern has `x`
/// there.
fn has_digits(pattern: &str, number: &str) -> bool {
    pattern.len() == number.len() && pattern.bytes().zip(number.bytes()).all(|(want, is)| want == b'x' || want == is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_rules_parse_and_reach_each_class() {
        let rules = parse(include_str!("replies.toml")).expect("the embedded rules");
        for class in [
            ReplyClass::Recipient,
            ReplyClass::Sender,
            ReplyClass::Content,
            ReplyClass::Quota,
            ReplyClass::Throttle,
            ReplyClass::Relay,
            ReplyClass::Unnamed,
        ] {
            assert!(rules.iter().any(|rule| rule.class == class), "{class:?}");
        }
        for stage in Stage::ALL {
            for code in 400..600 {
                let is_decided = rules.iter().any(|rule| rule.matches(stage, code, None, ""));
                assert!(is_decided, "{stage:?} {code}: no rule");
            }
        }
    }

    #[test]
    fn rules_of_operator_are_tried_before_embedded_ones() {
        let text = "[[rule]]\nstages = [\"rcpt\"]\ncode = [\"554\"]\nclass = \"recipient\"";
        let (own, none) = (ReplyRules::parse(text).expect("a rule"), ReplyRules::default());
        let class =
            |rules: &ReplyRules, code| rules.classify(Stage::Rcpt, code, EnhancedCode::parse("5.7.1"), "Access denied");
        assert_eq!((class(&own, 554), class(&none, 554)), (ReplyClass::Recipient, ReplyClass::Sender));
        assert_eq!((class(&own, 550), class(&none, 550)), (ReplyClass::Sender, ReplyClass::Sender));
    }

    #[test]
    fn malformed_patterns_are_refused() {
        let rule = |field: &str| parse(&format!("[[rule]]\nclass = \"relay\"\n{field}"));
        assert!(rule("").is_ok());
        for field in [
            "code = [\"4\"]",
            "code = [\"4yz\"]",
            "code = [\"250\"]",
            "enhanced = [\"2.1.5\"]",
            "enhanced = [\"5.7\"]",
            "enhanced = [\"5..1\"]",
            "text = [\"Upper\"]",
            "text = [\"\"]",
            "text = [\"a**b\"]",
            "stages = [\"body\"]",
            "other = 1",
        ] {
            assert!(rule(field).is_err(), "{field}");
        }
    }

    #[test]
    fn rule_cannot_kill_recipient_before_rcpt() {
        let good = [
            "stages = [\"rcpt\"]",
            "stages = [\"rcpt\", \"dot\"]\ncode = [\"554\"]",
            "code = [\"4xx\", \"451\"]",
            "stages = [\"data\"]\ncode = [\"451\"]",
        ];
        let bad = ["", "code = [\"4xx\", \"554\"]", "code = [\"x50\"]", "stages = [\"rcpt\", \"data\"]"];
        for class in ["recipient", "unnamed"] {
            let rule = |fields: &str| parse(&format!("# rules\n[[rule]]\nclass = \"{class}\"\n{fields}"));
            for fields in good {
                assert!(rule(fields).is_ok(), "{class} {fields}");
            }
            for fields in bad {
                let bad = rule(fields).expect_err(fields);
                assert!(bad.at == "# rules\n".len() && bad.message.starts_with("a class `recipient`"), "{bad:?}");
            }
        }
    }

    #[test]
    fn patterns_match_digits_and_gaps() {
        let enhanced = |text: &str| EnhancedPattern::try_from(text.to_owned()).expect("a pattern");
        assert!(enhanced("x.2.25x").matches(EnhancedCode::parse("5.2.252")));
        assert!(!enhanced("x.2.25x").matches(EnhancedCode::parse("5.2.25")));
        assert!(
            enhanced("5.7.*").matches(EnhancedCode::parse("5.7.708"))
                && !enhanced("5.7.*").matches(EnhancedCode::parse("4.7.0"))
        );
        assert!(enhanced("none").matches(None) && !enhanced("x.1.1").matches(None));
        let text = TextPattern::try_from("daily*quota".to_owned()).expect("a pattern");
        assert!(text.matches("daily message quota exceeded") && !text.matches("quota daily"));
    }
}

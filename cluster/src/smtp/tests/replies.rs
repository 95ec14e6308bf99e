//! Tests of the class of replies (P6). `replies.tsv` has replies that relays document, with their class.

use reveille_ledger::command::EnhancedCode;

use crate::smtp::cause::Cause;
use crate::smtp::replies::classification::{ReplyClass, ReplyRules};
use crate::smtp::replies::dialogue_result::{DialogueResult, TEXT_CHARS_MAX, enhanced_code, without_enhanced_code};
use crate::smtp::reply::Reply;
use crate::smtp::stage::Stage;

/// Classifies by the embedded rules alone.
fn refused(stage: Stage, reply: &Reply) -> DialogueResult {
    DialogueResult::refused(&ReplyRules::default(), stage, reply)
}

fn class(stage: Stage, code: u16, enhanced: Option<EnhancedCode>, text: &str) -> ReplyClass {
    ReplyRules::default().classify(stage, code, enhanced, text)
}

/// Returns true if the class is as expected. A 4yz about the recipient and one that names no cause both wait.
fn is(found: ReplyClass, code: u16, expected: ReplyClass) -> bool {
    let waits = |class| code < 500 && matches!(class, ReplyClass::Recipient | ReplyClass::Unnamed);
    found == expected || waits(found) && waits(expected)
}

#[test]
fn reply_has_its_class() {
    use ReplyClass::*;
    use Stage::*;
    let table = [
        // Before MAIL every refusal concerns the relay, or is a throttle.
        (Banner, 554, "no service", Relay),
        (Banner, 554, "5.7.1 you are listed", Relay),
        (Banner, 421, "too busy", Throttle),
        (Ehlo, 502, "what", Relay),
        (Ehlo, 550, "daily limit of greetings", Relay),
        (Tls, 454, "4.7.0 TLS not available", Relay),
        (Tls, 502, "5.5.1 what", Relay),
        (Auth, 535, "5.7.8 bad credentials", Relay),
        (Auth, 454, "4.7.0 temporary authentication failure", Relay),
        (Auth, 454, "4.7.0 Too many login attempts", Throttle),
        (Auth, 421, "4.7.0 Too many errors", Throttle),
        // MAIL names the sender.
        (Mail, 451, "4.3.0 try later", Relay),
        (Mail, 451, "no words that help", Relay),
        (Mail, 452, "4.3.1 disk full", Relay),
        (Mail, 452, "too many connections", Throttle),
        (Mail, 454, "Throttling failure: Maximum sending rate exceeded.", Throttle),
        (Mail, 454, "Throttling - Maximum sending rate exceeded", Throttle),
        (Mail, 454, "Throttling failure: Daily message quota exceeded.", Quota),
        (Mail, 421, "4.7.0 bye", Throttle),
        (Mail, 550, "sender refused", Sender),
        (Mail, 553, "5.1.8 no such domain", Sender),
        (Mail, 450, "4.1.8 sender domain not found", Sender),
        (Mail, 554, "5.7.1 not verified", Sender),
        (Mail, 530, "5.7.0 authentication required", Relay),
        (Mail, 503, "5.5.1 no", Relay),
        (Mail, 552, "5.3.4 message too big", Content),
        (Mail, 552, "too big", Content),
        (Mail, 571, "no such thing known", Relay),
        // RCPT names the mailbox.
        (Rcpt, 550, "5.1.1 no such user", Recipient),
        (Rcpt, 550, "no such user", Recipient),
        (Rcpt, 550, "5.1.10 null MX", Recipient),
        (Rcpt, 550, "5.2.1 disabled", Recipient),
        (Rcpt, 452, "4.2.2 mailbox full", Recipient),
        (Rcpt, 452, "4.2.2 too many messages in this mailbox", Recipient),
        (Rcpt, 450, "4.2.1 receiving mail at a rate that is too fast", Recipient),
        (Rcpt, 450, "busy", Recipient),
        (Rcpt, 599, "never heard of", Unnamed),
        (Rcpt, 550, "rejected", Unnamed),
        (Rcpt, 550, "5.0.0 rejected", Unnamed),
        (Rcpt, 550, "5.0.0 user unknown", Recipient),
        (Rcpt, 550, "Recipient rejected", Unnamed),
        (Rcpt, 450, "4.0.0 rejected", Recipient),
        (Rcpt, 450, "4.7.1 come back", Recipient),
        (Rcpt, 451, "4.7.650 rate limit", Throttle),
        (Rcpt, 450, "4.2.0 Greylisted for 300 s", Recipient),
        (Rcpt, 451, "4.7.1 Greylisting in action, please come back later", Recipient),
        (Rcpt, 421, "4.7.0 try again later", Throttle),
        (Rcpt, 550, "5.7.1 relaying denied", Sender),
        (Rcpt, 571, "5.7.1 blocked", Sender),
        (Rcpt, 452, "4.5.3 too many recipients", Throttle),
        (Rcpt, 452, "4.3.1 disk full", Relay),
        (Rcpt, 550, "5.4.1 no route", Recipient),
        (Rcpt, 554, "5.6.7 needs SMTPUTF8", Content),
        (Rcpt, 550, "5.4.5 Daily user sending limit exceeded", Quota),
        // DATA concerns neither the mailbox nor the content.
        (Data, 451, "later", Relay),
        (Data, 554, "no valid recipients", Relay),
        (Data, 550, "5.7.1 not you", Sender),
        (Data, 454, "Throttling failure: Maximum sending rate exceeded.", Throttle),
        // After the dot a refusal may concern anything.
        (Answered, 550, "5.1.1 no such user", Recipient),
        (Answered, 554, "rejected", Unnamed),
        (Answered, 550, "mailbox unavailable", Recipient),
        (Answered, 451, "try again", Recipient),
        (Answered, 552, "5.2.2 over quota, daily limit", Recipient),
        (Answered, 550, "5.7.1 looks like spam", Content),
        (Answered, 554, "5.6.0 bad MIME", Content),
        (Answered, 552, "5.3.4 too big", Content),
        (Answered, 451, "4.7.1 greylisted", Recipient),
        (Answered, 421, "4.7.28 unusual rate", Throttle),
        (Answered, 421, "4.7.26 rate limited because it is unauthenticated", Sender),
        (Answered, 451, "4.3.0 no such luck", Recipient),
        (Answered, 451, "4.3.0 queue file write error", Relay),
        (Answered, 454, "Throttling failure: Maximum sending rate exceeded.", Throttle),
        (Answered, 454, "Throttling failure: Daily message quota exceeded.", Quota),
        (Answered, 550, "4.1.1 classes that disagree count as none", Unnamed),
    ];
    for (stage, code, text, expected) in table {
        let result = refused(stage, &Reply { code, text: text.to_owned() });
        let DialogueResult::Refused { class, .. } = result else {
            panic!("a refusal is a refusal");
        };
        assert!(is(class, code, expected), "{stage:?} {code} {text}: {class:?}");
    }
}

/// Returns the class with the name that `replies.tsv` uses.
fn class_named(name: &str) -> Option<ReplyClass> {
    #[derive(serde::Deserialize)]
    struct Named {
        class: ReplyClass,
    }
    toml::from_str::<Named>(&format!("class = {name:?}")).ok().map(|named| named.class)
}

#[test]
fn documented_replies_have_their_class() {
    let mut wrong = Vec::new();
    let mut from_sources = 0;
    for line in include_str!("replies.tsv").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [stage, reply, class, source, evidence] = fields[..] else { panic!("{line:?} has not five fields") };
        let stage = match stage {
            "banner" => Stage::Banner,
            "ehlo" => Stage::Ehlo,
            "tls" => Stage::Tls,
            "auth" => Stage::Auth,
            "mail" => Stage::Mail,
            "rcpt" => Stage::Rcpt,
            "data" => Stage::Data,
            "dot" => Stage::Answered,
            other => panic!("{other:?} is not a stage"),
        };
        let (code, text) = reply.split_once(' ').expect("a code and a text");
        let code = code.parse().expect("a code");
        let expected = class_named(class).unwrap_or_else(|| panic!("{class:?} is not a class"));
        let found = ReplyRules::default().classify(stage, code, enhanced_code(code, text), text);
        if found != expected {
            wrong.push(format!("{stage:?} {reply}: {found:?}, not {expected:?} ({source})"));
        }
        assert!(!source.is_empty() && ["source", "logs", "none"].contains(&evidence), "{line}");
        from_sources += usize::from(evidence == "source");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(from_sources >= 150, "only {from_sources} replies stand in their source");
}

#[test]
fn reply_about_the_recipients_domain_never_concerns_the_relay() {
    for stage in [Stage::Rcpt, Stage::Answered] {
        for subject in [3, 4, 5] {
            let says = |code: u16| {
                let text = format!("{}.{subject}.0 x", code / 100);
                class(stage, code, enhanced_code(code, &text), &text)
            };
            assert!(is(says(450), 450, ReplyClass::Recipient), "{stage:?} 4.{subject}.0");
            assert_eq!(says(550), ReplyClass::Recipient, "{stage:?} 5.{subject}.0");
        }
    }
}

/// One recipient must not lower the rate of all others, or park their relay (P6).
#[test]
fn limit_of_one_recipient_never_concerns_the_relay() {
    let limits = ["daily quota exceeded", "Too many messages", "rate limit exceeded", "slow down", "quota: 10 per day"];
    for limit in limits {
        for text in [
            format!("4.7.1 <a@x.example>: Recipient address rejected: {limit}"),
            format!("4.4.0 <a@x.example>: Recipient address rejected: {limit}"),
            format!("{limit} for this recipient"),
            format!("4.7.1 {limit}: the user is receiving mail at a rate that is too high"),
            format!("4.0.0 {limit} for the mailbox"),
        ] {
            for code in [421, 450, 451, 452] {
                let found = class(Stage::Rcpt, code, enhanced_code(code, &text), &text);
                assert!(is(found, code, ReplyClass::Recipient), "{code} {text}: {found:?}");
            }
        }
        let text = format!("5.7.1 <a@x.example>: Recipient address rejected: {limit} for this recipient");
        let found = class(Stage::Rcpt, 550, enhanced_code(550, &text), &text);
        assert!(
            !matches!(found, ReplyClass::Throttle | ReplyClass::Quota | ReplyClass::Relay),
            "550 {text}: {found:?}"
        );
    }
}

/// A relay that shuts down says nothing of the rate (RFC 5321 3.8).
#[test]
fn closing_greeting_is_a_throttle_only_by_its_words() {
    let greeting = |text: &str| class(Stage::Banner, 421, enhanced_code(421, text), text);
    for text in ["4.3.2 Service shutting down", "mx.example.com Service not available", "4.3.0 out of memory", "bye"] {
        assert_eq!(greeting(text), ReplyClass::Relay, "{text}");
    }
    for text in [
        "4.3.2 Connection rate limit exceeded",
        "4.3.2 connection limit reached",
        "maximum number of connections exceeded",
        "concurrent sessions: 5",
        "4.7.0 Try again later",
    ] {
        assert_eq!(greeting(text), ReplyClass::Throttle, "{text}");
    }
}

#[test]
fn only_rcpt_and_the_dot_can_use_up_an_attempt() {
    let texts = ["", "5.1.1 x", "4.1.1 x", "4.2.2 x", "5.2.1 x", "x"];
    for stage in [Stage::Connect, Stage::Tls, Stage::Banner, Stage::Ehlo, Stage::Auth, Stage::Mail, Stage::Data] {
        for code in 400..600 {
            for text in texts {
                let found = class(stage, code, enhanced_code(code, text), text);
                let is_final = code >= 500 && matches!(found, ReplyClass::Recipient | ReplyClass::Unnamed);
                assert!(!is_final, "{stage:?} {code} {text}");
            }
        }
    }
}

#[test]
fn enhanced_codes_are_read_strictly() {
    assert_eq!(enhanced_code(550, "5.1.10 x"), EnhancedCode::parse("5.1.10"));
    assert_eq!(enhanced_code(550, "5.1.1"), EnhancedCode::parse("5.1.1"));
    assert_eq!(enhanced_code(550, "sorry, no mailbox here by that name (#5.1.1)"), EnhancedCode::parse("5.1.1"));
    for text in [
        "4.1.1 x",
        "5.1 x",
        "5.1.1234 x",
        "5.x.1 x",
        "x 5.1.1",
        "",
        "5..1",
        "5.1.1.1 x",
        "x (#4.1.1)",
        "x (5.1.1)",
        "(#5.1.1) x",
    ] {
        assert_eq!(enhanced_code(550, text), None, "{text}");
    }
}

#[test]
fn loss_is_in_doubt_exactly_after_the_dot() {
    for stage in Stage::ALL {
        let result = DialogueResult::without_answer(stage, Cause::Closed);
        assert_eq!(matches!(result, DialogueResult::InDoubt { .. }), stage == Stage::FinalDot, "{stage:?}");
    }
}

#[test]
fn reply_text_excludes_enhanced_code() {
    let words = |text: &str| without_enhanced_code(text, enhanced_code(550, text));
    assert_eq!(words("5.1.1 no such user"), "no such user");
    assert_eq!(words("5.1.1 no such user 5.1.1 ask 15.1.1 postmaster"), "no such user ask 15.1.1 postmaster");
    assert_eq!(words("no such user"), "no such user");
    assert_eq!(words("no such user (#5.1.1)"), "no such user");
    assert_eq!(words("4.1.1 of another class"), "4.1.1 of another class");
    assert_eq!(words("5.1.1"), "");
}

#[test]
fn long_texts_are_cut() {
    let reply = Reply { code: 550, text: "x\n".repeat(1000) };
    let DialogueResult::Refused { text, .. } = refused(Stage::Rcpt, &reply) else {
        panic!("a refusal is a refusal");
    };
    assert_eq!(text.chars().count(), TEXT_CHARS_MAX);
    assert!(!text.contains('\n'));
}

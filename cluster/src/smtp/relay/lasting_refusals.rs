//! Refusals of a relay that last: for trouble of its own from RCPT on, or a 4yz about a sender.
//!
//! Both let the recipient wait and leave the circuit closed, because the one email may be the cause (P6.3). Without
//! this record a relay whose disk is full would be seen in retries only. `sessions.rs` owns the value, and the registry
//! raises the alarm. This file reads no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use super::failure::RelayFailure;
use crate::smtp::replies::classification::ReplyClass;
use crate::smtp::replies::dialogue_result::DialogueResult;
use crate::smtp::session::envelope::Email;
use crate::smtp::stage::Stage;

/// Refusals without an acceptance between last if they are at least this many and span [`LASTING`].
const REFUSALS_MIN: u32 = 3;
/// Longer than most greylisting at DATA, whose answers have the class of the relay.
const LASTING: Duration = Duration::from_secs(10 * 60);
/// Time without a refusal after which a series is over: longer than a deferred recipient waits by default (P6.3).
const SILENCE_MAX: Duration = Duration::from_secs(90 * 60);
/// Maximum number of senders that are recorded at a time.
const SENDERS_MAX: usize = 64;
/// What a shown reply has instead of the recipient's address.
const NO_ADDRESS: &str = "(the recipient)";

/// Series of refusals, by the sender's domain that they are about. `None`: they are about the relay.
#[derive(Debug, Default)]
pub(crate) struct LastingRefusals(BTreeMap<Option<String>, Series>);

#[derive(Debug)]
struct Series {
    first_at: Duration,
    last_at: Duration,
    refusals: u32,
    /// The last refusal.
    reply: RelayFailure,
}

impl LastingRefusals {
    /// Learns from the result of an email at `now`. An acceptance ends the series of the relay and of this sender.
    pub fn record(&mut self, result: &DialogueResult, email: &Email, now: Duration) {
        let domain = || email.from.rsplit('@').next().map(str::to_ascii_lowercase);
        let (about, code, text) = match result {
            DialogueResult::Accepted { .. } => {
                self.0.remove(&None);
                self.0.remove(&domain());
                return;
            }
            DialogueResult::Refused { stage, class: ReplyClass::Relay, code, text, .. } if *stage >= Stage::Rcpt => {
                (None, *code, text)
            }
            DialogueResult::Refused { class: ReplyClass::Sender, code: code @ ..500, text, .. } => {
                (domain(), *code, text)
            }
            _ => return,
        };
        self.0.retain(|_, series| now.saturating_sub(series.last_at) < SILENCE_MAX);
        if about.is_some() && self.0.len() >= SENDERS_MAX && !self.0.contains_key(&about) {
            return;
        }
        let reply = RelayFailure::answered(None, code, &text.replace(&email.to, NO_ADDRESS));
        let new = Series { first_at: now, last_at: now, refusals: 0, reply: reply.clone() };
        let series = self.0.entry(about).or_insert(new);
        (series.last_at, series.refusals, series.reply) = (now, series.refusals.saturating_add(1), reply);
    }

    /// Returns the last refusal of a series that lasts. `None`: none does.
    pub fn lasting(&self, now: Duration) -> Option<RelayFailure> {
        let lasts = |series: &&Series| {
            series.refusals >= REFUSALS_MIN
                && series.last_at.saturating_sub(series.first_at) >= LASTING
                && now.saturating_sub(series.last_at) < SILENCE_MAX
        };
        self.0.values().find(lasts).map(|series| series.reply.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smtp::session::dot_stuffing::EmailText;

    const SENDER: &str = "News@Example.com";

    fn minute(number: u64) -> Duration {
        Duration::from_secs(number * 60)
    }

    fn email(from: &str) -> Email {
        let text = EmailText::new("Subject: x\r\n\r\nx\r\n".into()).expect("a text");
        Email { from: from.to_owned(), to: "ann@x.example".to_owned(), text, dsn: None }
    }

    fn refused(stage: Stage, code: u16, class: ReplyClass) -> DialogueResult {
        let text = "<ann@x.example>: not now".to_owned();
        DialogueResult::Refused { stage, code, enhanced: None, text, class }
    }

    /// Returns true if this refusal lasts when each attempt of one deferred recipient gets it.
    fn lasts(stage: Stage, code: u16, class: ReplyClass) -> bool {
        let mut refusals = LastingRefusals::default();
        for at in [0, 1, 3, 7, 15] {
            assert_eq!(refusals.lasting(minute(at)), None, "{stage:?} {code} {class:?}");
            refusals.record(&refused(stage, code, class), &email(SENDER), minute(at));
        }
        refusals.lasting(minute(15)).is_some()
    }

    fn accept(refusals: &mut LastingRefusals, from: &str, now: Duration) {
        let accepted = DialogueResult::Accepted { code: 250, text: String::new() };
        refusals.record(&accepted, &email(from), now);
    }

    #[test]
    fn only_trouble_of_relay_or_of_sender_for_now_lasts() {
        use ReplyClass::{Content, Quota, Recipient, Relay, Sender, Throttle, Unnamed};
        for (stage, code, class) in [
            (Stage::Rcpt, 421, Relay),
            (Stage::Rcpt, 530, Relay),
            (Stage::Data, 451, Relay),
            (Stage::Answered, 452, Relay),
            (Stage::Mail, 450, Sender),
            (Stage::Rcpt, 451, Sender),
        ] {
            assert!(lasts(stage, code, class), "{stage:?} {code} {class:?}");
        }
        for (stage, code, class) in [
            // The circuit opens.
            (Stage::Mail, 451, Relay),
            // It may pause the run.
            (Stage::Rcpt, 550, Sender),
            // Greylisting, a full mailbox.
            (Stage::Rcpt, 450, Recipient),
            (Stage::Rcpt, 452, Recipient),
            (Stage::Answered, 451, Unnamed),
            (Stage::Answered, 452, Content),
            (Stage::Rcpt, 421, Throttle),
            (Stage::Rcpt, 452, Quota),
        ] {
            assert!(!lasts(stage, code, class), "{stage:?} {code} {class:?}");
        }
    }

    #[test]
    fn acceptance_ends_series_of_relay_and_of_its_sender_only() {
        let (full, unverified) =
            (refused(Stage::Rcpt, 452, ReplyClass::Relay), refused(Stage::Mail, 450, ReplyClass::Sender));
        let mut refusals = LastingRefusals::default();
        for at in [0, 5, 10] {
            refusals.record(&full, &email(SENDER), minute(at));
            refusals.record(&unverified, &email(SENDER), minute(at));
            accept(&mut refusals, "bob@other.example", minute(at));
        }
        let shown = RelayFailure::answered(None, 450, "<(the recipient)>: not now");
        assert_eq!(refusals.lasting(minute(10)), Some(shown), "the relay itself accepts");
        accept(&mut refusals, "sales@example.COM", minute(11));
        assert_eq!(refusals.lasting(minute(11)), None);
    }

    #[test]
    fn series_ends_by_itself_and_is_not_joined_to_a_later_one() {
        let full = refused(Stage::Data, 452, ReplyClass::Relay);
        let mut refusals = LastingRefusals::default();
        for at in [0, 5, 10] {
            refusals.record(&full, &email(SENDER), minute(at));
        }
        assert!(refusals.lasting(minute(99)).is_some());
        assert_eq!(refusals.lasting(minute(100)), None, "nothing was sent for long");
        for at in [200, 201, 202] {
            refusals.record(&full, &email(SENDER), minute(at));
        }
        assert_eq!(refusals.lasting(minute(202)), None);
    }

    #[test]
    fn senders_are_bounded_and_leave_room_for_the_relay() {
        let mut refusals = LastingRefusals::default();
        for number in 0..2 * SENDERS_MAX {
            let from = format!("x@s{number}.example");
            refusals.record(&refused(Stage::Mail, 450, ReplyClass::Sender), &email(&from), minute(0));
        }
        refusals.record(&refused(Stage::Rcpt, 452, ReplyClass::Relay), &email(SENDER), minute(0));
        assert_eq!(refusals.0.len(), SENDERS_MAX + 1);
    }
}

//! Output of `template send-test`: the outcome of one email.

use reveille_proto::admin::v1::{self, ExplainedEventKind as Kind, RecipientState};

use super::{Cell, Serialize, Tone, View, card};
use crate::cli::wording;

/// Outcome of the email.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SendTestOutcome {
    /// A relay accepted the email.
    Accepted,
    /// A relay refused the email permanently, or it could not be composed.
    Refused,
    /// The email was handed off, and the relay's reply is unknown.
    InDoubt,
    /// The email was not sent in time and never will be.
    Expired,
    /// The address has opted out.
    Suppressed,
    /// The run was cancelled.
    Cancelled,
    /// The email was in doubt, and an operator decided to take it as sent.
    Assumed,
    /// The recipient is not settled yet.
    Waiting,
    /// The email was only checked, and can be sent.
    WouldSend,
}

/// One test email.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SendTestView {
    /// Name of the run; null if the email was only checked.
    pub run: Option<String>,
    /// Address of the recipient.
    pub recipient: String,
    /// Outcome of the email.
    pub outcome: SendTestOutcome,
    /// The relay that accepted or refused the email, or did not reply.
    pub relay: Option<String>,
    /// Reply code of the relay.
    pub code: Option<u32>,
    /// Enhanced status code of the reply.
    pub enhanced: Option<String>,
    /// Text of the reply.
    pub text: Option<String>,
    /// The node of the event that decided the outcome.
    pub node: Option<String>,
    /// Why, if there is no reply that says it.
    pub detail: Option<String>,
    /// True if the email was only checked.
    pub dry_run: bool,
}

impl From<v1::ExplainResponse> for SendTestView {
    fn from(history: v1::ExplainResponse) -> SendTestView {
        let kept = |text: String| (!text.is_empty()).then_some(text);
        let outcome = match history.state() {
            RecipientState::Sent => SendTestOutcome::Accepted,
            RecipientState::Dead => SendTestOutcome::Refused,
            RecipientState::InDoubt => SendTestOutcome::InDoubt,
            RecipientState::Expired => SendTestOutcome::Expired,
            RecipientState::Suppressed => SendTestOutcome::Suppressed,
            RecipientState::Cancelled => SendTestOutcome::Cancelled,
            RecipientState::Assumed => SendTestOutcome::Assumed,
            RecipientState::Pending | RecipientState::Claimed | RecipientState::Unspecified => SendTestOutcome::Waiting,
        };
        // Kinds of the events that decide an outcome. For an email that was not sent in time: what it waited for.
        let decisive: &[Kind] = match outcome {
            SendTestOutcome::Accepted => &[Kind::Sent, Kind::SentAfterAll],
            SendTestOutcome::Refused => &[Kind::Refused, Kind::NotComposed, Kind::GivenUp],
            SendTestOutcome::InDoubt | SendTestOutcome::Assumed => &[Kind::InDoubt],
            SendTestOutcome::Expired | SendTestOutcome::Waiting | SendTestOutcome::WouldSend => {
                &[Kind::Waits, Kind::GivenBack, Kind::Refused]
            }
            SendTestOutcome::Suppressed => &[Kind::Suppressed, Kind::OptedOut],
            SendTestOutcome::Cancelled => &[Kind::Cancelled],
        };
        let event = history.events.iter().rev().find(|event| decisive.contains(&event.kind()));
        // A reply's event names its relay. For an email that was not accepted, an earlier event names it.
        let relay = history.events.iter().rev().find(|event| !event.relay.is_empty()).map(|event| event.relay.clone());
        // A waiting recipient may not have been tried yet, so its last event is no reason.
        let event = event
            .or(history.events.last().filter(|_| outcome != SendTestOutcome::Waiting))
            .cloned()
            .unwrap_or_default();
        let is_reply = event.code > 0;
        SendTestView {
            run: kept(history.run),
            recipient: history.recipient,
            outcome,
            relay,
            detail: kept(wording::explained(&event)).filter(|_| !is_reply),
            code: (event.code > 0).then_some(event.code),
            enhanced: kept(event.enhanced),
            text: kept(event.text).filter(|_| is_reply),
            node: kept(event.node),
            dry_run: false,
        }
    }
}

impl SendTestView {
    /// Creates the view of an email that was only checked.
    pub fn checked(recipient: String, opted_out: bool) -> SendTestView {
        let outcome = if opted_out { SendTestOutcome::Suppressed } else { SendTestOutcome::WouldSend };
        let (run, relay, code, enhanced, text, node, detail) = Default::default();
        SendTestView { run, recipient, outcome, relay, code, enhanced, text, node, detail, dry_run: true }
    }

    /// Adds what an expired email waited for before its end.
    pub fn after(self, waited: Option<String>) -> SendTestView {
        match self.outcome {
            SendTestOutcome::Expired => SendTestView { detail: waited.or(self.detail), ..self },
            _ => self,
        }
    }

    /// Returns the relay's reply as one text.
    fn answer(&self) -> Option<String> {
        let code = self.code?.to_string();
        let parts = [Some(code.as_str()), self.enhanced.as_deref(), self.text.as_deref()];
        Some(parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }

    /// Returns the relay after `word`, or an empty text if it is unknown.
    fn by(&self, word: &str) -> String {
        self.relay.as_ref().map(|relay| format!("{word}{relay}")).unwrap_or_default()
    }

    /// Returns the outcome in one line.
    pub fn sentence(&self) -> String {
        let why = self.answer().or_else(|| self.detail.clone()).unwrap_or_else(|| "nothing is known of it".to_owned());
        match self.outcome {
            SendTestOutcome::Accepted => match &self.relay {
                Some(relay) => format!("{relay} took it: {why}"),
                None => format!("a relay took it: {why}"),
            },
            SendTestOutcome::Refused => format!("refused{}: {why}", self.by(" by ")),
            SendTestOutcome::InDoubt => format!("in doubt: it may have arrived{} ({why})", self.by(" at ")),
            SendTestOutcome::Assumed => format!("it was in doubt, and was taken as sent by decision ({why})"),
            SendTestOutcome::Expired => format!("it was not sent in time, and will not be ({why})"),
            SendTestOutcome::Suppressed => format!("not sent: {} has opted out", self.recipient),
            SendTestOutcome::Cancelled => "not sent: its run was cancelled".to_owned(),
            SendTestOutcome::WouldSend => "it would be sent".to_owned(),
            SendTestOutcome::Waiting => format!("not known yet: it may still arrive ({why})"),
        }
    }
}

impl View for SendTestView {
    const NAME: &'static str = "run";

    fn text(&self, paint: bool) -> String {
        let tone = match self.outcome {
            SendTestOutcome::Accepted | SendTestOutcome::WouldSend => Tone::Good,
            SendTestOutcome::Waiting
            | SendTestOutcome::Suppressed
            | SendTestOutcome::Cancelled
            | SendTestOutcome::Assumed => Tone::Notable,
            SendTestOutcome::Refused | SendTestOutcome::InDoubt | SendTestOutcome::Expired => Tone::Bad,
        };
        let mut pairs =
            vec![("to", Cell::from(self.recipient.as_str())), ("outcome", Cell::toned(self.sentence(), tone))];
        if !self.dry_run {
            let (run, relay) = (self.run.as_deref(), self.relay.as_deref());
            pairs.extend(
                [("run", run), ("relay", relay), ("node", self.node.as_deref())]
                    .map(|(name, value)| (name, Cell::or_dash(value))),
            );
        }
        card(pairs, paint)
    }
}

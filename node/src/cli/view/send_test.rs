//! What `template send-test` prints: what became of one mail.

use reveille_proto::admin::v1::{self, RecipientState};
use serde::Serialize;

use super::sheet::{Cell, Tone, card};
use super::{View, some};

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A relay took it.
    Accepted,
    /// A relay refused it for good, or it could not be composed.
    Refused,
    /// It was handed off, and no answer is known.
    InDoubt,
    /// It was not sent in time, and never will be.
    Expired,
    /// The address has opted out.
    Suppressed,
    /// Somebody cancelled its run.
    Cancelled,
    /// It was in doubt, and somebody took it as sent.
    Assumed,
    /// Not settled yet.
    Waiting,
}

/// One test mail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SendTestView {
    /// Its run.
    pub run: String,
    /// To whom.
    pub recipient: String,
    /// What became of it.
    pub outcome: Outcome,
    /// The relay that took it.
    pub relay: Option<String>,
    /// The code of its answer, or of the refusal.
    pub code: Option<u32>,
    /// Enhanced status code.
    pub enhanced: Option<String>,
    /// The words of the answer.
    pub text: Option<String>,
    /// The node that had it in hand.
    pub node: Option<String>,
    /// Why, where no answer says it.
    pub detail: Option<String>,
}

impl From<v1::ExplainResponse> for SendTestView {
    fn from(story: v1::ExplainResponse) -> SendTestView {
        let outcome = match story.state() {
            RecipientState::Sent => Outcome::Accepted,
            RecipientState::Dead => Outcome::Refused,
            RecipientState::InDoubt => Outcome::InDoubt,
            RecipientState::Expired => Outcome::Expired,
            RecipientState::Suppressed => Outcome::Suppressed,
            RecipientState::Cancelled => Outcome::Cancelled,
            RecipientState::Assumed => Outcome::Assumed,
            RecipientState::Pending | RecipientState::Claimed | RecipientState::Unspecified => Outcome::Waiting,
        };
        // What decided it; of a mail that was not sent in time, what it waited for.
        let decisive: &[&str] = match outcome {
            Outcome::Accepted => &["sent", "sent after all"],
            Outcome::Refused => &["refused", "not composed"],
            Outcome::InDoubt | Outcome::Assumed => &["in doubt"],
            Outcome::Expired | Outcome::Waiting => &["waits", "given back", "refused"],
            Outcome::Suppressed => &["suppressed", "opted out"],
            Outcome::Cancelled => &["cancelled"],
        };
        let event = story.events.iter().rev().find(|event| decisive.contains(&event.what.as_str()));
        // Who waits has perhaps not been tried yet: that is no reason.
        let event = event.or(story.events.last().filter(|_| outcome != Outcome::Waiting)).cloned().unwrap_or_default();
        SendTestView {
            run: story.run,
            recipient: story.recipient,
            outcome,
            relay: some(event.relay),
            code: (event.code > 0).then_some(event.code),
            enhanced: some(event.enhanced),
            text: some(event.text),
            node: some(event.node),
            detail: some(event.detail),
        }
    }
}

impl SendTestView {
    /// With what it waited for before, where the end came by the clock.
    pub fn after(self, waited: Option<String>) -> SendTestView {
        match self.outcome {
            Outcome::Expired => SendTestView { detail: waited.or(self.detail), ..self },
            _ => self,
        }
    }

    /// The answer as it is written.
    fn answer(&self) -> Option<String> {
        let code = self.code?.to_string();
        let parts = [Some(code.as_str()), self.enhanced.as_deref(), self.text.as_deref()];
        Some(parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }

    /// In one line.
    pub fn sentence(&self) -> String {
        let why = self.answer().or_else(|| self.detail.clone()).unwrap_or_else(|| "nothing is known of it".to_owned());
        match self.outcome {
            Outcome::Accepted => match &self.relay {
                Some(relay) => format!("{relay} took it: {why}"),
                None => format!("a relay took it: {why}"),
            },
            Outcome::Refused => format!("refused: {why}"),
            Outcome::InDoubt => format!("in doubt: it may have arrived ({why})"),
            Outcome::Assumed => format!("it was in doubt, and somebody took it as sent ({why})"),
            Outcome::Expired => format!("it was not sent in time, and will not be ({why})"),
            Outcome::Suppressed => format!("not sent: {} has opted out", self.recipient),
            Outcome::Cancelled => "not sent: its run was cancelled".to_owned(),
            Outcome::Waiting => format!("not known yet: it may still arrive ({why})"),
        }
    }
}

impl View for SendTestView {
    fn name(&self) -> String {
        self.run.clone()
    }

    fn text(&self, paint: bool) -> String {
        let tone = match self.outcome {
            Outcome::Accepted => Tone::Good,
            Outcome::Waiting | Outcome::Suppressed | Outcome::Cancelled | Outcome::Assumed => Tone::Notable,
            Outcome::Refused | Outcome::InDoubt | Outcome::Expired => Tone::Bad,
        };
        let pairs = vec![
            ("to", Cell::from(self.recipient.as_str())),
            ("outcome", Cell::toned(self.sentence(), tone)),
            ("run", self.run.as_str().into()),
            ("node", Cell::or_dash(self.node.as_deref())),
        ];
        card(pairs, paint)
    }
}

//! What `optout …` prints.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::View;
use super::barrier::BarrierView;
use super::sheet::{Cell, Tone, card};
use crate::cli::instant::text;

/// An opt-out that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OptedOutView {
    recipient: String,
    #[serde(flatten)]
    barrier: BarrierView,
}

/// Whether an address has opted out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OptOutCheckView {
    recipient: String,
    opted_out: bool,
    index: Option<u64>,
    at: Option<String>,
}

impl From<v1::AddOptOutResponse> for OptedOutView {
    fn from(added: v1::AddOptOutResponse) -> OptedOutView {
        OptedOutView { recipient: added.recipient, barrier: added.barrier.into() }
    }
}

impl From<v1::CheckOptOutResponse> for OptOutCheckView {
    fn from(check: v1::CheckOptOutResponse) -> OptOutCheckView {
        OptOutCheckView {
            at: text(check.at.as_ref()),
            recipient: check.recipient,
            opted_out: check.opted_out,
            index: check.index,
        }
    }
}

impl View for OptedOutView {
    fn name(&self) -> String {
        self.recipient.clone()
    }

    fn text(&self, _paint: bool) -> String {
        format!("{} opted out: {}", self.recipient, self.barrier.sentence())
    }
}

impl View for OptOutCheckView {
    fn name(&self) -> String {
        self.recipient.clone()
    }

    fn text(&self, paint: bool) -> String {
        let verdict = if self.opted_out { Cell::toned("yes", Tone::Notable) } else { "no".into() };
        let mut pairs = vec![("recipient", self.recipient.as_str().into()), ("opted out", verdict)];
        pairs.extend(self.at.as_deref().map(|at| ("since", at.into())));
        pairs.extend(self.index.map(|index| ("log index", index.to_string().into())));
        card(pairs, paint)
    }
}

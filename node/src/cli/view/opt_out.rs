//! Output of `optout …`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::barrier::{BarrierView, CrossingView};
use super::fields::view;
use super::layout::{Cell, Tone, card};
use super::{Row, View};
use crate::cli::commands::export::Record;
use crate::cli::failure::BadRow;
use crate::format;

view! {
    /// An opt-out that was recorded, with its barrier.
    pub struct OptedOutView of v1::AddOptOutResponse as added {
        recipient: String,
        #[serde(flatten)]
        barrier: BarrierView = added.barrier.into(),
    }
}

view! {
    /// Tells if an address has opted out.
    pub struct OptOutCheckView of v1::CheckOptOutResponse as check {
        recipient: String,
        opted_out: bool,
        index: Option<u64>,
        at: Option<String>,
        taken_back: Option<BackView>,
    }
}

view! {
    /// How an opt-out was revoked.
    struct BackView of v1::TakenBack as back {
        index: u64,
        at: Option<String>,
        reason: String,
    }
}

view! {
    /// Result of revoking an opt-out. `taken_back` is null if the opt-out was only checked and is not revoked yet.
    pub struct TakenBackView of v1::TakeBackOptOutResponse as answer {
        recipient: String,
        taken_back: Option<BackView>,
    }
}

impl BackView {
    fn sentence(&self) -> String {
        format!("{} at log index {}: {}", self.at.as_deref().unwrap_or("?"), self.index, self.reason)
    }
}

impl View for TakenBackView {
    fn name(&self) -> String {
        self.recipient.clone()
    }

    fn text(&self, _paint: bool) -> String {
        match &self.taken_back {
            Some(back) => format!("{} gets mail again: taken back {}", self.recipient, back.sentence()),
            None => format!("{} has opted out, and would get mail again", self.recipient),
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
        let opted_out = if self.opted_out { Cell::toned("yes", Tone::Notable) } else { "no".into() };
        let mut pairs = vec![("recipient", self.recipient.as_str().into()), ("opted out", opted_out)];
        pairs.extend(self.at.as_deref().map(|at| ("since", at.into())));
        pairs.extend(self.index.map(|index| ("log index", index.to_string().into())));
        pairs.extend(self.taken_back.as_ref().map(|back| ("taken back", back.sentence().into())));
        card(pairs, paint)
    }
}

view! {
    /// A recipient that has opted out.
    pub struct OptOutView of v1::OptOut as opt_out {
        recipient: String,
        index: u64,
        at: Option<String>,
    }
}

impl View for OptOutView {
    fn name(&self) -> String {
        self.recipient.clone()
    }

    fn text(&self, paint: bool) -> String {
        card(OptOutView::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}

impl Row for OptOutView {
    const NOUN: &'static str = "opt-outs";
    const COLUMNS: &'static [&'static str] = &["RECIPIENT", "SINCE", "LOG INDEX"];

    fn cells(&self) -> Vec<Cell> {
        vec![self.recipient.as_str().into(), Cell::or_dash(self.at.as_deref()), self.index.to_string().into()]
    }
}

impl Record for OptOutView {
    const ONE: &'static str = "opt-out";
    const FIELDS: &'static [&'static str] = &["recipient", "index", "at"];

    fn values(&self) -> Vec<String> {
        vec![self.recipient.clone(), self.index.to_string(), self.at.clone().unwrap_or_default()]
    }
}

/// Result of importing a suppression list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportedView {
    /// The file as the user named it.
    pub file: String,
    /// Rows with an address.
    pub rows: u64,
    /// Addresses that had not opted out before.
    pub added: u64,
    /// Rows whose address had opted out before, or occurs in an earlier row.
    pub known: u64,
    /// Unusable rows.
    pub bad_rows: u64,
    /// The first unusable rows, at most a thousand.
    pub bad: Vec<BadRow>,
    /// Log index of the last entry; null if there was none.
    pub index: Option<u64>,
    /// Handoffs that had passed the gate.
    pub crossed: Vec<CrossingView>,
    /// Nodes that did not answer, and whose lease was waited out.
    pub unconfirmed: Vec<String>,
    /// True if the rows were only counted.
    pub dry_run: bool,
}

impl ImportedView {
    /// Adds the answer to a request with this number of rows.
    pub fn take(&mut self, rows: u64, answer: v1::ImportOptOutsResponse) {
        self.rows += rows;
        self.added += answer.added;
        self.known += rows.saturating_sub(answer.added);
        let Some(barrier) = answer.barrier else { return };
        let BarrierView { index, crossed, unconfirmed } = Some(barrier).into();
        self.index = Some(index);
        self.crossed.extend(crossed);
        self.unconfirmed.extend(unconfirmed);
        self.unconfirmed.sort_unstable();
        self.unconfirmed.dedup();
    }
}

impl View for ImportedView {
    fn name(&self) -> String {
        self.file.clone()
    }

    fn text(&self, _paint: bool) -> String {
        let rows = format::counted(self.rows, "row");
        let (added, known) = (format::count(self.added), format::count(self.known));
        if self.dry_run {
            return format!("{rows}: {added} would opt out, {known} have already or stand there again");
        }
        let barrier = self.index.map(|index| {
            let (crossed, unconfirmed) = (self.crossed.clone(), self.unconfirmed.clone());
            format!("; {}", BarrierView { index, crossed, unconfirmed }.sentence())
        });
        format!("{rows}: {added} opted out, {known} had already or stood there again{}", barrier.unwrap_or_default())
    }
}

//! Output of `recipient …` and of `run recipients`.

use std::collections::BTreeMap;

use reveille_proto::admin::v1;
use serde::Serialize;

use super::barrier::{BarrierView, CrossingView};
use super::explain::EventView;
use super::fields::view;
use super::layout::{Cell, card};
use super::{Row, View};
use crate::cli::commands::export::Record;
use crate::cli::word::word;
use crate::format;

view! {
    /// A place where an address is.
    pub struct RecipientPlaceView of v1::RecipientPlace as place {
        kind: String,
        name: Option<String>,
        schedule: Option<String>,
        archived: bool,
        number: Option<u32>,
        address: Option<String>,
        values: BTreeMap<String, String>,
        state: Option<String> = state(&place),
        at: Option<String>,
        reason: Option<String>,
        events: Vec<EventView>,
    }
}

/// The state of a recipient of a run.
fn state(place: &v1::RecipientPlace) -> Option<String> {
    let known = place.state() != v1::RecipientState::Unspecified;
    known.then(|| word("RECIPIENT_STATE_", place.state().as_str_name()))
}

impl View for RecipientPlaceView {
    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.kind.clone())
    }

    fn text(&self, paint: bool) -> String {
        card(RecipientPlaceView::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}

impl Row for RecipientPlaceView {
    const NOUN: &'static str = "places";
    const COLUMNS: &'static [&'static str] = &["KIND", "NAME", "SCHEDULE", "NUMBER", "STATE", "AT"];

    fn cells(&self) -> Vec<Cell> {
        let number = self.number.map(|number| format!("#{number}"));
        vec![
            self.kind.as_str().into(),
            Cell::or_dash(self.name.as_deref()),
            Cell::or_dash(self.schedule.as_deref()),
            Cell::or_dash(number.as_deref()),
            Cell::or_dash(self.state.as_deref()),
            Cell::or_dash(self.at.as_deref()),
        ]
    }
}

impl Record for RecipientPlaceView {
    const ONE: &'static str = "place";
    const FIELDS: &'static [&'static str] = &["kind", "name", "number", "state"];

    fn values(&self) -> Vec<String> {
        let number = self.number.map(|number| number.to_string());
        let rest = [self.name.clone(), number, self.state.clone()].map(Option::unwrap_or_default);
        [self.kind.clone()].into_iter().chain(rest).collect()
    }
}

view! {
    /// A recipient of a run.
    pub struct RunRecipientView of v1::RunRecipient as row {
        number: u32,
        /// Null for a token without the role pii.
        address: Option<String>,
        state: String = word("RECIPIENT_STATE_", row.state().as_str_name()),
        /// Reply code of the last refusal; null if there was none, or if the email was accepted later.
        code: Option<u32>,
        enhanced: Option<String>,
        text: Option<String>,
        attempts: u32,
        at: Option<String>,
    }
}

impl View for RunRecipientView {
    fn name(&self) -> String {
        format!("#{}", self.number)
    }

    fn text(&self, paint: bool) -> String {
        card(RunRecipientView::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}

impl Row for RunRecipientView {
    const NOUN: &'static str = "recipients";
    const COLUMNS: &'static [&'static str] = &["#", "ADDRESS", "STATE", "ATTEMPTS", "AT", "ANSWER"];

    fn cells(&self) -> Vec<Cell> {
        let code = self.code.map(|code| code.to_string());
        let answer: Vec<String> = [code, self.enhanced.clone(), self.text.clone()].into_iter().flatten().collect();
        vec![
            self.number.to_string().into(),
            Cell::or_dash(self.address.as_deref()),
            self.state.as_str().into(),
            self.attempts.to_string().into(),
            Cell::or_dash(self.at.as_deref()),
            Cell::or_dash(Some(answer.join(" ")).as_deref().filter(|answer| !answer.is_empty())),
        ]
    }
}

impl Record for RunRecipientView {
    const ONE: &'static str = "recipient";
    const FIELDS: &'static [&'static str] =
        &["number", "address", "state", "code", "enhanced", "text", "attempts", "at"];

    fn values(&self) -> Vec<String> {
        let code = self.code.map(|code| code.to_string());
        vec![
            self.number.to_string(),
            self.address.clone().unwrap_or_default(),
            self.state.clone(),
            code.unwrap_or_default(),
            self.enhanced.clone().unwrap_or_default(),
            self.text.clone().unwrap_or_default(),
            self.attempts.to_string(),
            self.at.clone().unwrap_or_default(),
        ]
    }
}

/// Result of an erasure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErasedView {
    /// The address, as the user named it.
    pub recipient: String,
    /// Lists that were changed.
    pub lists: u32,
    /// Blocks of the archive that were changed.
    pub blocks: u32,
    /// Log index of the last entry.
    pub index: u64,
    /// Handoffs that had passed the gate before the opt-out: they may still arrive.
    pub crossed: Vec<CrossingView>,
    /// Nodes that did not answer, and whose lease was waited out.
    pub unconfirmed: Vec<String>,
}

impl ErasedView {
    /// Adds the answer to a part of the work.
    pub fn take(&mut self, answer: v1::EraseRecipientResponse) {
        self.lists += answer.lists;
        self.blocks += answer.blocks;
        self.index = self.index.max(answer.index);
        if let Some(barrier) = answer.barrier {
            let BarrierView { crossed, unconfirmed, .. } = Some(barrier).into();
            (self.crossed, self.unconfirmed) = (crossed, unconfirmed);
        }
    }
}

impl View for ErasedView {
    fn name(&self) -> String {
        self.recipient.clone()
    }

    fn text(&self, _paint: bool) -> String {
        let (index, crossed, unconfirmed) = (self.index, self.crossed.clone(), self.unconfirmed.clone());
        let lists = format::counted(u64::from(self.lists), "list");
        let blocks = format::counted(u64::from(self.blocks), "block");
        let barrier = BarrierView { index, crossed, unconfirmed }.sentence();
        format!(
            "{} erased from {lists} and {blocks} of the archive: {barrier}\nIts files leave each running node within a \
             minute. Backups from before still have it: docs/how-to/erase-a-person.md",
            self.recipient
        )
    }
}

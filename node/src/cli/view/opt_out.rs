//! Output of `optout …`.

use reveille_proto::admin::v1::{
    Barrier, CheckOptOutResponse, ImportOptOutsResponse, OptOut, TakeBackOptOutResponse, TakenBack,
};
use serde::Serializer;

use super::{Cell, Serialize, Tone, View, barrier, card, format, text};
use crate::api_json;
use crate::cli::failure::BadRow;

fn taken_back(back: &TakenBack) -> String {
    let at = text(back.take_back_time.as_ref()).unwrap_or_else(|| "?".to_owned());
    format!("{at} at log index {}: {}", back.index, back.reason)
}

/// `taken_back` is missing if the opt-out was only checked and is not revoked yet.
impl View for TakeBackOptOutResponse {
    const NAME: &'static str = "recipient";

    fn text(&self, _paint: bool) -> String {
        match &self.taken_back {
            Some(back) => format!("{} gets mail again: taken back {}", self.recipient, taken_back(back)),
            None => format!("{} has opted out, and would get mail again", self.recipient),
        }
    }
}

impl View for CheckOptOutResponse {
    const NAME: &'static str = "recipient";

    fn text(&self, paint: bool) -> String {
        let opted_out = if self.opted_out { Cell::toned("yes", Tone::Notable) } else { "no".into() };
        let mut pairs = vec![("recipient", self.recipient.as_str().into()), ("opted out", opted_out)];
        pairs.extend(text(self.opt_out_time.as_ref()).map(|at| ("since", at.into())));
        pairs.extend(self.index.map(|index| ("log index", index.to_string().into())));
        pairs.extend(self.taken_back.as_ref().map(|back| ("taken back", taken_back(back).into())));
        card(pairs, paint)
    }
}

impl View for OptOut {
    const NAME: &'static str = "recipient";
    const NOUN: &'static str = "opt-outs";
    const COLUMNS: &'static [&'static str] = &["RECIPIENT", "SINCE", "LOG INDEX"];

    fn cells(&self) -> Vec<Cell> {
        vec![self.recipient.as_str().into(), Cell::at(self.opt_out_time.as_ref()), self.index.to_string().into()]
    }
}

/// Result of importing a suppression list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
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
    /// The barriers of all entries as one, with the index of the last entry; null if there was none.
    #[serde(serialize_with = "or_null")]
    pub barrier: Option<Barrier>,
    /// True if the rows were only counted.
    pub dry_run: bool,
}

fn or_null<S: Serializer>(barrier: &Option<Barrier>, serializer: S) -> Result<S::Ok, S::Error> {
    barrier.as_ref().map(api_json::of).serialize(serializer)
}

impl ImportedView {
    /// Adds the answer to a request with this number of rows.
    pub fn take(&mut self, rows: u64, answer: ImportOptOutsResponse) {
        self.rows += rows;
        self.added += answer.added;
        self.known += rows.saturating_sub(answer.added);
        let Some(Barrier { index, crossed, unconfirmed }) = answer.barrier else { return };
        let all = self.barrier.get_or_insert_default();
        all.index = index;
        all.crossed.extend(crossed);
        all.unconfirmed.extend(unconfirmed);
        all.unconfirmed.sort_unstable();
        all.unconfirmed.dedup();
    }
}

impl View for ImportedView {
    const NAME: &'static str = "file";

    fn text(&self, _paint: bool) -> String {
        let rows = format::counted(self.rows, "row");
        let (added, known) = (format::count(self.added), format::count(self.known));
        if self.dry_run {
            return format!("{rows}: {added} would opt out, {known} have already or stand there again");
        }
        let holds = self.barrier.as_ref().map(|all| format!("; {}", barrier::sentence(Some(all))));
        format!("{rows}: {added} opted out, {known} had already or stood there again{}", holds.unwrap_or_default())
    }
}

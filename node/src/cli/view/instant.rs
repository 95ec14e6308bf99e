//! Instants at which a schedule fires, for `schedule create`, `show`, `resume` and `preview`.

use jiff::Timestamp;
use reveille_proto::admin::v1::Instant;

use super::{Cell, Tone, View, format, table, text};
use crate::cli::instant::from_wire;
use crate::cli::wording::instant_remarks;

/// Returns the remark for a table: the opening time of a schedule with a jitter, and the effect of a clock change.
pub fn remarks(one: &Instant) -> String {
    match (text(one.open_time.as_ref()), instant_remarks(one).as_str()) {
        (None, remark) => remark.to_owned(),
        (Some(opens), "") => format!("opens {opens}"),
        (Some(opens), remark) => format!("opens {opens}; {remark}"),
    }
}

/// Returns a table of instants with local time, distance from `now`, and remarks.
pub fn instants(instants: &[Instant], now: Timestamp, paint: bool) -> String {
    let row = |one: &Instant| {
        let at = one.time.as_ref().and_then(from_wire);
        let distance = at.map(|at| format::distance(at, now)).unwrap_or_default();
        vec![
            one.local.as_str().into(),
            Cell::toned(one.name(), Tone::Dim),
            Cell::toned(distance, Tone::Dim),
            Cell::toned(remarks(one), Tone::Notable),
        ]
    };
    table(&["LOCAL", "INSTANT", "DISTANCE", "REMARK"], instants.iter().map(row).collect(), paint)
}

impl View for Instant {
    const NOUN: &'static str = "instants";
    const COLUMNS: &'static [&'static str] = &["LOCAL", "INSTANT", "REMARK"];

    fn name(&self) -> String {
        text(self.time.as_ref()).unwrap_or_default()
    }

    fn cells(&self) -> Vec<Cell> {
        vec![self.local.as_str().into(), Cell::toned(self.name(), Tone::Dim), Cell::toned(remarks(self), Tone::Notable)]
    }

    fn text(&self, paint: bool) -> String {
        instants(std::slice::from_ref(self), Timestamp::now(), paint)
    }
}

//! Output of `cluster scrub`.

use reveille_proto::admin::v1;

use super::fields::view;
use super::layout::{Cell, Tone, card};
use super::{Row, View};
use crate::cli::word::word;
use crate::format;

const PREFIX: &str = "FILE_REPAIR_";

view! {
    /// A damaged file of a node.
    pub struct DamagedFileView of v1::DamagedFile as file {
        /// Path in the data folder.
        path: String,
        damage: String,
        /// `snapshots` or `peer`: what replaces it.
        repair: String = word(PREFIX, file.repair().as_str_name()),
    }
}

view! {
    /// The checks of one member.
    pub struct ScrubView of v1::MemberScrub as scrub {
        member: String,
        unreachable: bool,
        running: bool,
        /// End of the last check; null if none has ended since the node started.
        end_time: Option<String>,
        files: u64,
        bytes: u64,
        /// At most 20.
        damaged: Vec<DamagedFileView>,
        damaged_count: u64,
        repaired: u64,
    }
}

/// Returns what a damaged file means for its node, and what happens to it.
pub fn consequence(node: &str, file: &v1::DamagedFile) -> String {
    match file.repair() {
        v1::FileRepair::Snapshots => format!(
            "{node} may not be able to start before new snapshots have replaced it, within a minute: do not restart it"
        ),
        _ => format!("{node} fetches it from another node"),
    }
}

impl ScrubView {
    /// Returns true if all files were checked, and none is damaged.
    pub fn is_well(&self) -> bool {
        !self.unreachable && !self.running && self.end_time.is_some() && self.damaged.is_empty()
    }

    /// Returns the damaged files.
    pub fn remarks(&self) -> Vec<String> {
        let damaged = |file: &DamagedFileView| format!("{}: {} is damaged: {}", self.member, file.path, file.damage);
        let next = (!self.damaged.is_empty()).then(|| "next: reveille doctor, in a minute".to_owned());
        self.damaged.iter().map(damaged).chain(next).collect()
    }

    fn state(&self) -> Cell {
        match (self.unreachable, self.running, &self.end_time, self.damaged_count) {
            (true, ..) => Cell::toned("unreachable", Tone::Bad),
            (_, true, ..) => Cell::toned("running", Tone::Notable),
            (.., None, _) => Cell::toned("not checked", Tone::Notable),
            (.., 0) => Cell::toned("intact", Tone::Good),
            (.., damaged) => Cell::toned(format!("{} damaged", format::count(damaged)), Tone::Bad),
        }
    }
}

impl View for ScrubView {
    fn name(&self) -> String {
        self.member.clone()
    }

    fn text(&self, paint: bool) -> String {
        let names = ScrubView::COLUMNS.iter().map(|column| column.to_lowercase()).collect::<Vec<_>>();
        card(names.iter().map(String::as_str).zip(self.cells()).collect(), paint)
    }
}

impl Row for ScrubView {
    const NOUN: &'static str = "members";
    const COLUMNS: &'static [&'static str] = &["MEMBER", "FILES", "SIZE", "REPAIRED", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.member.as_str().into(),
            format::count(self.files).into(),
            indicatif::HumanBytes(self.bytes).to_string().into(),
            format::count(self.repaired).into(),
            self.state(),
        ]
    }
}

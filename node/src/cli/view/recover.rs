//! Output of `recover …`.

use std::path::Path;

use reveille_cluster::backup::time_text;
use reveille_raft::offline::OfflineFolder;

use super::{Cell, Serialize, Tone, View};

/// The data folder of a node that does not run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SurvivorView {
    folder: String,
    node: String,
    name: String,
    cluster: String,
    /// Last log entry; null if there is none.
    last_index: Option<u64>,
    last_term: Option<u64>,
    /// Term of its last vote; null if it never voted.
    vote_term: Option<u64>,
    snapshot_index: u64,
    /// Level of the ledger.
    level: u32,
    /// Ledger time of its state.
    ledger_time: String,
    /// Members with a vote, as its last membership has them.
    voters: usize,
    /// The end of its log was torn by a power cut.
    torn: bool,
    /// `recover run` takes its state.
    best: bool,
}

impl SurvivorView {
    /// Shows a folder.
    pub fn new(folder: &Path, lost: &OfflineFolder, best: bool) -> SurvivorView {
        let (report, head) = (lost.report(), lost.ledger().head());
        SurvivorView {
            folder: folder.display().to_string(),
            node: report.node.to_string(),
            name: report.name.clone(),
            cluster: report.cluster.to_string(),
            last_index: report.last.map(|last| last.index),
            last_term: report.last.map(|last| last.term),
            vote_term: report.vote.map(|vote| vote.term),
            snapshot_index: report.snapshot_index,
            level: head.level,
            ledger_time: time_text(head.now),
            voters: report.voters,
            torn: report.torn,
            best,
        }
    }
}

impl View for SurvivorView {
    const NAME: &'static str = "folder";
    const NOUN: &'static str = "folders";
    const COLUMNS: &'static [&'static str] =
        &["FOLDER", "NODE", "CLUSTER", "VOTERS", "LAST ENTRY", "TERM", "SNAPSHOT", "LEVEL", "LEDGER TIME", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let number = |number: Option<u64>| Cell::or_dash(number.map(|number| number.to_string()).as_deref());
        let state = match (self.best, self.torn) {
            (true, false) => Cell::toned("best", Tone::Good),
            (true, true) => Cell::toned("best, end torn", Tone::Notable),
            (false, true) => Cell::toned("end torn", Tone::Notable),
            (false, false) => Cell::toned("older", Tone::Dim),
        };
        vec![
            self.folder.as_str().into(),
            if self.name.is_empty() { self.node.as_str().into() } else { self.name.as_str().into() },
            self.cluster.get(..8).unwrap_or(&self.cluster).into(),
            self.voters.to_string().into(),
            number(self.last_index),
            number(self.last_term),
            self.snapshot_index.to_string().into(),
            self.level.to_string().into(),
            self.ledger_time.as_str().into(),
            state,
        ]
    }
}

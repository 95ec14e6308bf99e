//! Parts of the archive: finished runs, audit records and events that left the state (P24).
//!
//! A part has the rows of its runs, in the forms of the ledger and in blocks like those of a snapshot. The state keeps
//! one small row for each part, with the names of the blocks. The bytes of new blocks are in memory until a durable
//! snapshot names them; they are no part of the state, and a replay makes them again.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::index::SharedValues;
use crate::model::{Ledger, NotAName, RunId, Time, ids};
use crate::storage::{BlockEntry, Table};

/// Key of a part: log index of the entry that made it, and position in the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display)]
#[display("{index}.{place}")]
pub struct ArchivePartKey {
    /// Log index of the entry.
    pub index: u64,
    /// Position in the entry.
    pub place: u32,
}

impl FromStr for ArchivePartKey {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<ArchivePartKey, NotAName> {
        let wrong = || NotAName { kind: "part of the archive", form: "INDEX.PLACE", text: text.to_owned() };
        let [index, place] = ids::numbers(text).ok_or_else(wrong)?;
        Ok(ArchivePartKey { index, place: u32::try_from(place).map_err(|_| wrong())? })
    }
}

/// A part of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivePart {
    /// Blocks with pages, recipients, claims and events of the runs, and with contents and audiences that nothing else
    /// uses. Empty: they were removed after the retention.
    pub details: Vec<BlockEntry>,
    /// Blocks with a summary of each run, with audit records, or with events.
    pub summaries: Vec<BlockEntry>,
    /// What it contains.
    pub content: PartContent,
    /// The tenants of its runs, in order. Empty: there are too many to name, or it has no runs.
    pub tenants: Vec<Arc<str>>,
    /// When the details may be removed: the end of the longest retention.
    pub details_until: Time,
    /// When the whole part may be removed.
    pub summaries_until: Time,
    /// When an operator accepted that blocks of it are lost. The part names them no more: without the details its
    /// summaries are left, and without any block nothing is.
    pub lost_at: Option<Time>,
}

/// What a part of the archive contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartContent {
    /// Finished runs.
    Runs {
        /// The lowest one.
        first: RunId,
        /// The highest one.
        last: RunId,
        /// Number of runs.
        count: u32,
        /// When the earliest one was due.
        from: Time,
        /// When the latest one was due.
        to: Time,
    },
    /// Audit records.
    Audit {
        /// Log index of the first one.
        first: u64,
        /// Log index of the last one.
        last: u64,
        /// Time of the first one.
        from: Time,
        /// Time of the last one.
        to: Time,
    },
    /// Events.
    Events {
        /// Log index of the first one.
        first: u64,
        /// Log index of the last one. All events of its entry are in this part.
        last: u64,
    },
}

impl ArchivePart {
    /// Returns its lowest and its highest run; `None` if it contains none.
    pub fn runs(&self) -> Option<(RunId, RunId)> {
        match self.content {
            PartContent::Runs { first, last, .. } => Some((first, last)),
            PartContent::Audit { .. } | PartContent::Events { .. } => None,
        }
    }

    /// True if it may have runs of this tenant. A reader for one tenant leaves the other parts out, so it does not
    /// learn what is lost of other tenants.
    pub fn may_have(&self, tenant: &str) -> bool {
        self.runs().is_some() && (self.tenants.is_empty() || self.tenants.iter().any(|own| **own == *tenant))
    }

    /// Shares the names of its tenants with other parts.
    pub(crate) fn intern(&mut self, shared: &mut SharedValues) {
        self.tenants.iter_mut().for_each(|tenant| shared.texts.intern(tenant));
    }

    /// Returns the blocks that have the most about its runs: the details, or else the summaries.
    pub fn blocks(&self) -> &[BlockEntry] {
        if self.details.is_empty() { &self.summaries } else { &self.details }
    }

    /// When its loss was accepted, if nothing of it is left.
    pub fn whole_loss(&self) -> Option<Time> {
        self.lost_at.filter(|_| self.blocks().is_empty())
    }

    /// True if the whole part may be removed at `now`.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.summaries_until <= now
    }

    /// True if it has details that may be removed at `now`.
    pub(crate) fn has_old_details(&self, now: Time) -> bool {
        self.details_until <= now && !self.details.is_empty()
    }

    /// Iterates over all blocks.
    pub fn all_blocks(&self) -> impl Iterator<Item = &BlockEntry> {
        self.details.iter().chain(&self.summaries)
    }
}

/// The parts of the archive. A clone shares their rows, so that a reader of all of them need not hold the lock of the
/// ledger.
pub type ArchiveParts = Table<ArchivePartKey, ArchivePart>;

/// Iterates over the blocks that these parts name.
pub fn blocks_of_parts(parts: &ArchiveParts) -> impl Iterator<Item = ids::Hash> {
    parts.iter().flat_map(|(_, part)| part.all_blocks()).map(|block| block.hash)
}

/// Returns the tenants that a part names: all of them, or none if there are more than `max`.
pub(crate) fn named(tenants: BTreeSet<Arc<str>>, max: usize) -> Vec<Arc<str>> {
    if tenants.len() > max { Vec::new() } else { tenants.into_iter().collect() }
}

impl Ledger {
    /// Returns the blocks of the archive that this state names.
    pub fn archive_blocks(&self) -> BTreeSet<ids::Hash> {
        blocks_of_parts(self.parts()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_may_have_runs_of_named_tenants_or_of_all_if_there_are_too_many() {
        let run = RunId { index: 7, place: 0 };
        let runs = PartContent::Runs { first: run, last: run, count: 3, from: Time(0), to: Time(0) };
        let part = |content, max| {
            let tenants = named(["acme", "default", "other"].map(Arc::from).into(), max);
            let (details_until, summaries_until, lost_at) = (Time(0), Time(0), None);
            let (details, summaries) = (Vec::new(), Vec::new());
            ArchivePart { details, summaries, content, tenants, details_until, summaries_until, lost_at }
        };
        let may_have = |part: ArchivePart| ["acme", "others"].map(|tenant| part.may_have(tenant));
        assert_eq!(may_have(part(runs, 3)), [true, false]);
        assert_eq!(may_have(part(runs, 2)), [true, true], "it cannot say that it has none");
        assert_eq!(may_have(part(PartContent::Events { first: 7, last: 7 }, 3)), [false, false]);
    }
}

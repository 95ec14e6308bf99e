//! Secondary indexes: computed from the rows and never stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::index::interner::Interner;
use crate::index::mailed_runs::MailedRuns;
use crate::index::recipient_mapping::RecipientMappings;
use crate::model::{
    ArchivePartKey, Content, Hash, PageId, Policies, RunId, Schedule, ScheduleId, ScheduleSettings, ScheduleTiming,
    Time,
};

pub(crate) mod interner;
pub(crate) mod mailed_runs;
pub(crate) mod recipient_mapping;

/// Schedules of a tenant, by name. A name shares its memory with the schedule's row.
pub(crate) type SchedulesByName = BTreeMap<Arc<str>, ScheduleId>;

/// Values that many rows have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedValues {
    pub texts: Interner<str>,
    pub policies: Interner<Policies>,
    pub timings: Interner<ScheduleTiming>,
    pub settings: Interner<ScheduleSettings>,
}

/// Indexes that are computed from the rows and never stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derived {
    /// Schedules by tenant and name. Tenants without schedules are left out.
    pub names: BTreeMap<Arc<str>, SchedulesByName>,
    /// Values that rows share. They are no index: they only save memory.
    pub shared: SharedValues,
    pub due: BTreeSet<(Time, ScheduleId)>,
    /// Pages with pending or claimed recipients, by [`Page::starts_at`](crate::model::Page::starts_at).
    pub open_pages: BTreeSet<(Time, PageId)>,
    /// Runs that sent an email, may have sent one, or may be sending one (P17).
    pub mailed: MailedRuns,
    /// Runs to sealed audiences, and summaries of such runs that sent emails, by content (P20).
    pub to_seals: BTreeSet<(Hash, RunId)>,
    /// For edited lists: the numbers of recipients in the former lists (P17), if they were needed.
    pub mappings: RecipientMappings,
    /// Runs that take part in `overlap` (`Run::takes_part_in_overlap`).
    pub unfinished: BTreeSet<(ScheduleId, RunId)>,
    /// The other unfinished runs: backfills and reopened runs.
    pub exempt_from_overlap: BTreeSet<(ScheduleId, RunId)>,
    /// Runs of `unfinished` that may delay the next instant (`Run::may_block_next`).
    pub blocking: BTreeSet<(ScheduleId, RunId)>,
    /// Seals that an audience, a schedule or a run uses.
    pub seals: BTreeSet<Hash>,
    /// Contents with attachments that a schedule, a run, a campaign or a template has, and their files (P20).
    pub attached: BTreeMap<Hash, BTreeSet<Hash>>,
    pub answers_by_index: BTreeMap<u64, (String, Hash)>,
    pub answers_of_tenant: BTreeMap<String, BTreeSet<u64>>,
    /// Number of claimed recipients by tenant; tenants without any are left out (P12).
    pub claimed: BTreeMap<String, u32>,
    /// Number of claimed recipients by pool (P25).
    pub claimed_by_pool: BTreeMap<String, u32>,
    /// Parts of the archive with audit records.
    pub audit_parts: BTreeSet<ArchivePartKey>,
    /// Parts of the archive with events.
    pub event_parts: BTreeSet<ArchivePartKey>,
    /// Size of the events that are in no part yet, in bytes.
    pub event_bytes: usize,
    /// Bytes of archived blocks that no durable snapshot names yet (P24). This is no index: a replay makes them again.
    pub unsaved: BTreeMap<Hash, Arc<[u8]>>,
}

impl Derived {
    /// Adds the files of a blob, if it is a content with attachments.
    pub fn add_files(&mut self, blob: Hash, bytes: &[u8]) {
        let files = Content::files_of_blob(bytes);
        if !files.is_empty() {
            self.attached.insert(blob, files);
        }
    }

    /// Adds a schedule to the names.
    pub(crate) fn name_schedule(&mut self, id: ScheduleId, schedule: &Schedule) {
        let names = self.names.entry(Arc::clone(&schedule.settings.tenant)).or_default();
        names.insert(Arc::clone(&schedule.name), id);
    }

    /// Removes a schedule from the names.
    pub(crate) fn unname_schedule(&mut self, schedule: &Schedule) {
        if let Some(names) = self.names.get_mut(&schedule.settings.tenant) {
            names.remove(&schedule.name);
            if names.is_empty() {
                self.names.remove(&schedule.settings.tenant);
            }
        }
    }
}

//! Secondary indexes: computed from the rows and never stored.

use std::collections::{BTreeMap, BTreeSet};

use crate::index::recipient_mapping::RecipientMappings;
use crate::model::{Hash, RunId, ScheduleId, Time};

pub(crate) mod recipient_mapping;

/// Indices that are computed from the rows and never stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derived {
    pub names: BTreeMap<(String, String), ScheduleId>,
    pub due: BTreeSet<(Time, ScheduleId)>,
    pub open_pages: BTreeSet<RunId>,
    /// Runs that sent an email, may have, or may be sending one, by nominal instant (P17).
    pub mailed: BTreeSet<(ScheduleId, Time, RunId)>,
    /// Such runs whose details were pruned, so that their recipients are forgotten (P17, P24).
    pub forgotten: BTreeSet<(ScheduleId, Time, RunId)>,
    /// Runs to sealed audiences, and the summaries of those that sent emails, by content (P20).
    pub to_seals: BTreeSet<(Hash, RunId)>,
    /// Where people of edited lists stand in the former ones (P17); as far as it was asked.
    pub mappings: RecipientMappings,
    /// Runs that take part in `overlap` (`Run::takes_part_in_overlap`).
    pub unfinished: BTreeSet<(ScheduleId, RunId)>,
    /// The other unfinished runs: they go beside those of the calendar.
    pub going_beside: BTreeSet<(ScheduleId, RunId)>,
    /// Of `unfinished`: runs that may hold up the next instant (`Run::may_hold_up`).
    pub holding: BTreeSet<(ScheduleId, RunId)>,
    /// Seals that an audience, a schedule or a run holds.
    pub seals: BTreeSet<Hash>,
    pub answers_by_index: BTreeMap<u64, (String, String)>,
    pub answers_of_tenant: BTreeMap<String, BTreeSet<u64>>,
    /// Recipients of a tenant that are claimed; who has none is not named (P12).
    pub claimed: BTreeMap<String, u32>,
    /// The same by pool (P25).
    pub claimed_by_pool: BTreeMap<String, u32>,
}

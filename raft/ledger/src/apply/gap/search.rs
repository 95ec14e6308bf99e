//! Finds which recipients of a run were mailed, or are claimed, in other runs of the schedule within `min_gap` (P17).
//!
//! The search covers runs that sent to a recipient or may do so, latest first, and stops when each requested recipient
//! is known to be mailed. An index lists these runs, so runs without emails cost nothing, and small runs to other
//! recipients cost a small list nothing. With an equal audience each run costs a few intersections of sets. With an
//! edited audience it costs one step a recipient and a mapping that is made once.
//!
//! While a gap is in force, a recipient has at most two such runs. There are many only if emails were sent before the
//! schedule had a gap.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::index::recipient_mapping::{self, RecipientMapping, RecipientMappings};
use crate::injected_bugs::{self, Bug};
use crate::model::{
    Bitmap, Hash, InstantOutcome, InstantRange, Ledger, OccurrenceName, RecipientState, Run, RunId, ScheduleId, Time,
};

/// Cost of one or several searches, and the mappings that they made.
#[derive(Default)]
pub struct GapLookups {
    /// Number of runs that were read.
    pub runs: u64,
    /// Number of mappings that were made; mappings in the ledger do not count.
    pub made: u64,
    mappings: RecipientMappings,
    /// The list of which a mapping was made last, and the numbers of its recipients.
    numbers: Option<(Hash, BTreeMap<String, u16>)>,
}

/// A run for which other runs within the gap are searched; it need not be open.
#[derive(Clone, Copy)]
pub(super) struct GapQuery {
    /// The schedule of the run.
    pub schedule: ScheduleId,
    /// The run, if it has opened.
    pub run: Option<RunId>,
    pub due: Time,
    pub gap_ms: i64,
    pub audience: Hash,
    /// Number of recipients of the audience.
    pub recipients: u32,
    /// Log index of the last entry whose runs are considered.
    pub through: u64,
}

impl GapQuery {
    pub fn of(id: RunId, run: &Run) -> GapQuery {
        GapQuery {
            schedule: run.schedule,
            run: Some(id),
            due: run.due,
            gap_ms: run.policies.min_gap_ms,
            audience: run.audience,
            recipients: run.count,
            through: u64::MAX,
        }
    }

    /// Returns the half-open range of instants less than `gap_ms` before or after `due`.
    pub fn instants(&self) -> std::ops::Range<Time> {
        let gap_ms = if injected_bugs::is(Bug::NoMinGap) { 0 } else { self.gap_ms };
        let from = self.due.plus_ms(1_i64.saturating_sub(gap_ms));
        from..self.due.plus_ms(gap_ms).max(from)
    }
}

/// Due times of a schedule's runs that are in the archive, so that their recipients are unknown (P17, P24). Runs that
/// sent no email count too.
#[derive(Default)]
pub(super) struct ArchivedTimes {
    /// Names with the least and the largest time from a name to its instant.
    ranges: Vec<(OccurrenceName, InstantRange, RangeInclusive<i64>)>,
    triggers: BTreeSet<Time>,
}

impl ArchivedTimes {
    /// True if one of them is within the gap of the query.
    pub fn any_within_gap(&self, query: &GapQuery) -> bool {
        let instants = query.instants();
        if query.gap_ms <= 0 || instants.is_empty() {
            return false;
        }
        let is_near = |(first, range, ahead_ms): &(OccurrenceName, InstantRange, RangeInclusive<i64>)| {
            let from_ms = instants.start.since_ms(Time(*ahead_ms.end()));
            range.has_between(first, from_ms, instants.end.since_ms(Time(*ahead_ms.start())).saturating_sub(1))
        };
        self.triggers.range(instants.clone()).next().is_some() || self.ranges.iter().any(is_near)
    }
}

/// Which of some recipients were mailed nearby or are claimed nearby, by their numbers.
#[derive(Default)]
pub(super) struct NearbyRecipients {
    /// Recipients that got an email, or may have got one.
    pub mailed: Bitmap,
    /// Other recipients that are claimed, and may be getting an email.
    pub claimed: Bitmap,
    /// The earliest of the last emails to the mailed recipients, and its run.
    pub last_mailed: Option<(RunId, Time)>,
    /// A run in which one of them is claimed.
    pub claimed_in: Option<RunId>,
}

/// States of recipients that got an email, or may have got one.
const COUNTS: [RecipientState; 3] = [RecipientState::Sent, RecipientState::Assumed, RecipientState::InDoubt];
pub(super) const CLAIMED: [RecipientState; 1] = [RecipientState::Claimed];

impl Ledger {
    /// Searches other runs for `recipients`, by their numbers in the audience of the query.
    pub(super) fn nearby_recipients(
        &self,
        lookups: &mut GapLookups,
        query: &GapQuery,
        recipients: &Bitmap,
    ) -> NearbyRecipients {
        let (mut nearby, mut left) = (NearbyRecipients::default(), recipients.clone());
        let list = (self.blob(&query.audience), query.recipients);
        let others = self.derived.mailed.to_list(query.schedule, query.instants(), list);
        for (other, run) in self.seen_by(query, others.into_iter()) {
            if left.is_empty() {
                break;
            }
            lookups.runs += 1;
            let mapping = self.mapping(lookups, query.audience, run.audience);
            let counts = self.recipients_in(other, run, (&COUNTS, &left, mapping));
            if !counts.is_empty() {
                left.remove(&counts);
                nearby.mailed.add(&counts);
                nearby.last_mailed = Some((other, run.due));
            }
            let claimed = self.recipients_in(other, run, (&CLAIMED, &left, mapping));
            if !claimed.is_empty() {
                nearby.claimed.add(&claimed);
                nearby.claimed_in = Some(other);
            }
        }
        nearby.claimed.remove(&nearby.mailed);
        nearby
    }

    /// Iterates over other runs within the gap that sent an email, may have sent one, or have a claimed recipient;
    /// latest first.
    pub(super) fn nearby_runs(&self, query: &GapQuery) -> impl Iterator<Item = (RunId, &Run)> + '_ {
        self.seen_by(query, self.derived.mailed.within(query.schedule, query.instants()))
    }

    fn seen_by<'a>(
        &'a self,
        &GapQuery { run, through, .. }: &GapQuery,
        others: impl Iterator<Item = RunId> + 'a,
    ) -> impl Iterator<Item = (RunId, &'a Run)> + 'a {
        let seen = others.filter(move |other| run != Some(*other) && other.index <= through);
        seen.filter_map(|other| Some((other, self.run(other)?)))
    }

    /// Returns the times of a schedule's runs that are in the archive (P24).
    pub(super) fn archived_times(&self, id: ScheduleId) -> ArchivedTimes {
        let rows = self.history.range((id, OccurrenceName::LOWEST)..).take_while(|((schedule, _), _)| *schedule == id);
        let mut times = ArchivedTimes::default();
        for ((_, first), row) in rows {
            match row {
                InstantOutcome::Archived { instants, ahead_min_ms, ahead_max_ms, .. } => {
                    times.ranges.push((first.clone(), instants.clone(), *ahead_min_ms..=*ahead_max_ms));
                }
                InstantOutcome::ArchivedTrigger { due, .. } => drop(times.triggers.insert(*due)),
                InstantOutcome::Opened(_) | InstantOutcome::Explained { .. } => {}
            }
        }
        times
    }

    /// Returns those of `recipients` that have one of these states in another run.
    pub(super) fn recipients_in(
        &self,
        other: RunId,
        run: &Run,
        (states, recipients, mapping): (&[RecipientState], &Bitmap, Option<&RecipientMapping>),
    ) -> Bitmap {
        // A recipient that was sent again while in doubt counts like one in doubt.
        let with_resent = run.resent > 0 && states.contains(&RecipientState::InDoubt);
        let states = states.iter().filter(|state| run.counts.get(**state) > 0);
        // Inline audiences are in the first chunk of their page.
        let chunk = self.page_of(other).and_then(|(page, ..)| self.chunks.get(&page.chunk(0)));
        let mut sets: Vec<&Bitmap> = states.filter_map(|state| Some(chunk?.set(*state))).collect();
        sets.extend(chunk.filter(|_| with_resent).map(|chunk| &chunk.resent));
        if mapping.is_none() && run.first == 0 {
            return sets.into_iter().fold(Bitmap::new(), |mut found, set| {
                found.add(&recipients.and(set));
                found
            });
        }
        if sets.is_empty() {
            return Bitmap::new();
        }
        let slot = |theirs: u16| {
            let theirs = Some(u32::from(theirs)).filter(|theirs| *theirs < run.count)?;
            u16::try_from(run.first + theirs).ok()
        };
        let is_in_one = |theirs: u16| slot(theirs).is_some_and(|slot| sets.iter().any(|set| set.contains(slot)));
        let Some(mapping) = mapping else {
            return Bitmap::of_many(recipients.iter().filter(|number| is_in_one(*number)));
        };
        let found = mapping.iter().filter(|(own, theirs)| recipients.contains(*own) && is_in_one(*theirs));
        Bitmap::of_many(found.map(|(own, _)| *own))
    }

    /// Returns the mapping from one audience to another; `None` if they are the same.
    pub(super) fn mapping<'a>(
        &'a self,
        lookups: &'a mut GapLookups,
        own: Hash,
        other: Hash,
    ) -> Option<&'a RecipientMapping> {
        if own == other {
            return None;
        }
        if let Some(known) = self.derived.mappings.get(own, other) {
            return Some(known);
        }
        if lookups.mappings.get(own, other).is_none() {
            lookups.made += 1;
            let known = lookups.numbers.take().filter(|(known, _)| *known == own);
            let numbers = known.unwrap_or_else(|| (own, recipient_mapping::numbers_of(self.blob(&own))));
            let mapping = recipient_mapping::map_recipients(&numbers.1, self.blob(&other));
            lookups.numbers = Some(numbers);
            lookups.mappings.put(own, other, mapping);
        }
        lookups.mappings.get(own, other)
    }

    /// Stores the mappings that searches have made.
    pub(in crate::apply) fn keep_mappings(&mut self, lookups: GapLookups) {
        let blobs = &self.blobs;
        let len = |list: &Hash| blobs.get(list).map_or(0, |stored| stored.bytes.len());
        self.derived.mappings.take(lookups.mappings, len);
    }

    /// Returns pairs of runs, within the gap of both, in which the same recipient is claimed. There must be none.
    pub(crate) fn runs_claimed_within_gap(&self) -> Vec<(RunId, RunId)> {
        let is_claimed = |run: &Run| run.policies.min_gap_ms > 0 && run.counts.get(RecipientState::Claimed) > 0;
        let (mut found, mut lookups) = (Vec::new(), GapLookups::default());
        for (id, _, run) in self.runs().filter(|(_, _, run)| is_claimed(run)) {
            let query = GapQuery::of(id, run);
            let near = |other: &Run| run.due.since_ms(other.due).saturating_abs() < other.policies.min_gap_ms;
            let own = self.recipients_in(id, run, (&CLAIMED, &Bitmap::range(0, run.count), None));
            for (other, nearby) in self.nearby_runs(&query).filter(|(_, nearby)| is_claimed(nearby)) {
                let mapping = self.mapping(&mut lookups, run.audience, nearby.audience);
                if id < other
                    && near(nearby)
                    && !self.recipients_in(other, nearby, (&CLAIMED, &own, mapping)).is_empty()
                {
                    found.push((id, other));
                }
            }
        }
        found
    }
}

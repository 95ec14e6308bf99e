//! Iterates over the instants of a civil pattern in a zone, segment by segment.
//!
//! Two streams are merged. The **own** firings of a segment are its civil matches, in order. The **moved** ones are the
//! matches inside the gap at its opening edge, each with the instant that `dst_gap` gives it. Matches with the same
//! instant become one firing; the others are explained.
//!
//! Invariants:
//! - civil matches at or below `low` are done in this segment;
//! - `moved` is sorted by instant, and all its instants are in this segment;
//! - returned instants only increase.

use std::collections::VecDeque;

use croner::Cron;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::firing::{Absence, AbsenceReason, CalendarName, Firing, Fold, Remark, Step};
use super::policy::{DstGap, DstOverlap, DstPolicies};
use super::search::Search;
use super::segment::{Edge, Segment};
use crate::injected_bugs::{self, Bug};

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct CivilIterator<'a> {
    search: Search<'a>,
    fixed: bool,
    zone: &'a TimeZone,
    policies: DstPolicies,
    segment: Segment,
    low: DateTime,
    own: Option<Own>,
    moved: VecDeque<Moved>,
}

/// A civil match that exists in the segment and fires by the policy.
#[derive(Clone, Copy, Debug)]
struct Own {
    local: DateTime,
    at: Timestamp,
    fold: Fold,
    remark: Option<Remark>,
}

/// A civil match inside the gap before the segment.
#[derive(Clone, Copy, Debug)]
struct Moved {
    wanted: DateTime,
    edge: Edge,
    at: Timestamp,
    absent: Option<AbsenceReason>,
}

impl<'a> CivilIterator<'a> {
    /// Returns a iterator whose steps are all after `after`.
    pub(super) fn new(
        cron: &'a Cron,
        fixed: bool,
        zone: &'a TimeZone,
        policies: DstPolicies,
        after: Timestamp,
    ) -> CivilIterator<'a> {
        let segment = Segment::containing(zone, after);
        let low = segment.local(after);
        let search = Search::new(cron);
        let moved = VecDeque::new();
        let mut iterator = CivilIterator { search, fixed, zone, policies, segment, low, own: None, moved };
        // Only shifted times are after the edge, by at most the length of the gap.
        let edge = iterator
            .segment
            .opening
            .filter(|edge| policies.gap == DstGap::Shift && iterator.low < edge.to.saturating_add(width(edge)));
        if let Some(edge) = edge {
            iterator.moved = iterator.out_of_gap(&edge);
            iterator.moved.retain(|moved| moved.at > after);
        }
        iterator
    }

    /// Returns all steps of the next instant that has any; `None` if there is none.
    pub(super) fn next_instant(&mut self) -> Option<Vec<Step>> {
        loop {
            let own = self.peek_own();
            let moved = self.moved.front().map(|moved| moved.at);
            let Some(at) = own.map(|own| own.at).into_iter().chain(moved).min() else {
                self.enter_next_segment()?;
                continue;
            };
            let own = own.filter(|own| own.at == at);
            if let Some(own) = own {
                self.own = None;
                self.low = own.local;
            }
            return Some(self.merge(at, own));
        }
    }

    /// Returns the next own firing of this segment, without consuming it.
    fn peek_own(&mut self) -> Option<Own> {
        while self.own.is_none() {
            let local = self.search.after(self.low)?;
            let at = self.segment.instant(local)?;
            self.own = self.own_at(local, at);
            if self.own.is_none() {
                self.low = local;
            }
        }
        self.own
    }

    /// Applies `dst_overlap`: `None` for the pass that does not fire.
    fn own_at(&self, local: DateTime, at: Timestamp) -> Option<Own> {
        let repeated = |edge: &Edge| self.fixed && edge.repeats(local);
        let overlap = self.policies.overlap;
        if let Some(edge) = self.segment.opening.filter(repeated) {
            let remark = Some(Remark::SecondOfTwo { edge });
            let own = Own { local, at, fold: Fold::Second, remark };
            return (overlap != DstOverlap::First || injected_bugs::is(Bug::OverlapTwice)).then_some(own);
        }
        if let Some(edge) = self.segment.closing.filter(repeated) {
            let remark = Some(Remark::FirstOfTwo { edge });
            let own = Own { local, at, fold: Fold::First, remark };
            return (overlap != DstOverlap::Second).then_some(own);
        }
        Some(Own { local, at, fold: Fold::First, remark: None })
    }

    fn enter_next_segment(&mut self) -> Option<()> {
        if self.search.is_exhausted() {
            return None;
        }
        self.segment = self.segment.following(self.zone)?;
        let edge = self.segment.opening?;
        self.low = edge.to.saturating_sub(SECOND);
        self.moved = self.out_of_gap(&edge);
        Some(())
    }

    /// Returns the matches inside the gap at `edge`, with their instant by `dst_gap`, sorted by instant. An overlap has
    /// none.
    fn out_of_gap(&mut self, edge: &Edge) -> VecDeque<Moved> {
        let mut moved = Vec::new();
        let mut low = edge.from.saturating_sub(SECOND);
        while self.fixed
            && let Some(wanted) = self.search.after(low).filter(|wanted| *wanted < edge.to)
        {
            low = wanted;
            moved.push(self.moved_match(wanted, edge));
        }
        moved.sort_by_key(|moved| moved.at);
        moved.into()
    }

    fn moved_match(&self, wanted: DateTime, edge: &Edge) -> Moved {
        let edge = *edge;
        let (at, absent) = match self.policies.gap {
            _ if edge.contains_date_of(wanted) => (edge.at, Some(AbsenceReason::DateMissing { edge })),
            DstGap::Skip => (edge.at, Some(AbsenceReason::TimeMissing { edge })),
            DstGap::After => (edge.at, None),
            // A segment that is shorter than the gap before it cannot contain the shifted time. It is then handled as
            // `after`.
            DstGap::Shift => {
                let shifted = self.segment.instant(wanted.saturating_add(width(&edge)));
                (shifted.unwrap_or(edge.at), None)
            }
        };
        Moved { wanted, edge, at, absent }
    }

    /// Makes one firing of all matches at `at`, and explains the others, in the order of their local times.
    fn merge(&mut self, at: Timestamp, own: Option<Own>) -> Vec<Step> {
        let mut merged = Vec::new();
        while let Some(moved) = self.moved.pop_front_if(|moved| moved.at == at) {
            merged.push(moved);
        }
        let movers = merged.iter().filter(|moved| moved.absent.is_none());
        let (first, others) = (movers.clone().next(), movers.count());
        let firing = match (own, first) {
            (Some(own), first) => Some(self.own_firing(own, first.map(|first| first.edge), others)),
            (None, Some(first)) => Some(self.moved_firing(first, others - 1)),
            (None, None) => None,
        };
        let mut steps: Vec<Step> = merged.iter().map(|moved| moved.step(firing)).collect();
        if own.is_some() {
            steps.extend(firing.map(Step::Fires));
        }
        steps
    }

    fn own_firing(&self, own: Own, gap: Option<Edge>, others: usize) -> Firing {
        let occurrence = if self.fixed {
            CalendarName::Civil { local: own.local, fold: own.fold }
        } else {
            CalendarName::Instant(own.at)
        };
        let joined = gap.map(|edge| Remark::JoinedFromGap { edge, others });
        let remark = own.remark.or(joined);
        Firing { occurrence, instant: own.at, offset: self.segment.offset, remark }
    }

    fn moved_firing(&self, moved: &Moved, others: usize) -> Firing {
        let Moved { wanted, edge, at, .. } = *moved;
        let remark = if at == edge.at {
            Remark::MovedAfterGap { wanted, edge, others }
        } else {
            Remark::ShiftedOverGap { wanted, edge }
        };
        let offset = self.segment.offset;
        Firing { occurrence: moved.occurrence(), instant: at, offset, remark: Some(remark) }
    }
}

impl Moved {
    fn occurrence(&self) -> CalendarName {
        CalendarName::Civil { local: self.wanted, fold: Fold::First }
    }

    /// Returns the firing of its instant if it has the same name. Otherwise returns why it has no firing.
    fn step(&self, firing: Option<Firing>) -> Step {
        let Moved { edge, at, .. } = *self;
        let occurrence = self.occurrence();
        let together = |firing: Firing| AbsenceReason::FallsTogether { edge, with: firing.occurrence };
        match (self.absent, firing) {
            (None, Some(firing)) if firing.occurrence == occurrence => Step::Fires(firing),
            (absent, firing) => {
                let reason = absent.or(firing.map(together));
                let reason = reason.unwrap_or(AbsenceReason::TimeMissing { edge });
                Step::Absent(Absence { occurrence, at, reason })
            }
        }
    }
}

fn width(edge: &Edge) -> SignedDuration {
    edge.from.duration_until(edge.to)
}

//! The search for a civil match: croner's, in civil time only, with its last answer kept.

use croner::Cron;
use jiff::civil::DateTime;

/// A pattern that fires once a year is not searched anew in each segment on the way: the last answer
/// holds for every start between the one it was found from and itself.
#[derive(Clone, Debug)]
pub(super) struct Search<'a> {
    cron: &'a Cron,
    /// (low, match): the match, or none at all, that follows `low`.
    known: Option<(DateTime, Option<DateTime>)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(cron: &'a Cron) -> Search<'a> {
        Search { cron, known: None }
    }

    /// The first match after `low`; none when croner's calendar ends (year 5000).
    pub(super) fn after(&mut self, low: DateTime) -> Option<DateTime> {
        match self.known {
            Some((from, Some(found))) if from <= low && low < found => Some(found),
            Some((from, None)) if from <= low => None,
            _ => {
                let found = self.cron.find_next_occurrence(&low, false).ok();
                self.known = Some((low, found));
                found
            }
        }
    }

    /// Whether there is no match any more.
    pub(super) fn is_exhausted(&self) -> bool {
        matches!(self.known, Some((_, None)))
    }
}

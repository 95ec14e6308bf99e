//! Searches for a civil match with croner, in civil time only, and keeps the last result.

use croner::Cron;
use jiff::civil::DateTime;

/// The search for the next civil match. The last result is valid for each start between its own start and the match. So
/// a pattern that fires once a year is not searched again in each segment.
#[derive(Clone, Debug)]
pub(super) struct Search<'a> {
    cron: &'a Cron,
    /// Start of the last search, and the match that follows it; the inner `None`: there is no match.
    known: Option<(DateTime, Option<DateTime>)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(cron: &'a Cron) -> Search<'a> {
        Search { cron, known: None }
    }

    /// Returns the first match after `low`; `None` at the end of croner's calendar (year 5000).
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

    /// True if the last search found no match.
    pub(super) fn is_exhausted(&self) -> bool {
        matches!(self.known, Some((_, None)))
    }
}

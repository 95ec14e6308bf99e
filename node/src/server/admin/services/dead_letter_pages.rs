//! Filters dead letters, and reads them from the state page by page.

use std::ops::Bound;

use reveille_ledger::ids::{RecipientId, Time};
use reveille_ledger::{DeadLetter, Ledger, Run};
use reveille_proto::admin::v1::DeadLetterFilter;

use crate::server::admin::explain::death;
use crate::server::admin::paging::EXAMINED_MAX;
use crate::server::admin::recipient_list::{PageRequest, RecipientPage};
use crate::server::admin::{ApiError, ApiResult, validate};

/// Returns the reason of a dead letter: the codes of the relay's answer, or a word if no relay answered. Dead letters
/// with the same reason form a group.
pub fn reason(letter: &DeadLetter) -> String {
    match (letter.code, letter.enhanced) {
        (0, _) => {
            let name = death(letter).0.as_str_name();
            name.strip_prefix("DEATH_REASON_").unwrap_or(name).to_owned()
        }
        (code, None) => code.to_string(),
        (code, Some(enhanced)) => format!("{code} {enhanced}"),
    }
}

/// Selects dead letters.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Name of the schedule. Empty for all schedules.
    pub schedule: String,
    reason: String,
    since: Option<Time>,
}

impl Filter {
    /// Reads the filter of a request.
    ///
    /// # Errors
    /// If `since` is not a valid instant.
    pub fn read(requested: Option<DeadLetterFilter>) -> ApiResult<Filter> {
        let DeadLetterFilter { schedule, reason, since_time: since } = requested.unwrap_or_default();
        let wrong = || ApiError::of_field("filter.since_time", "is not an instant");
        let since = since.map(|since| validate::instant(since).ok_or_else(wrong)).transpose()?;
        Ok(Filter { schedule, reason, since })
    }

    fn lets(&self, letter: &DeadLetter) -> bool {
        !letter.discarded
            && self.since.is_none_or(|since| letter.since >= since)
            && (self.reason.is_empty() || reason(letter) == self.reason)
    }
}

impl<R> RecipientPage<R, RecipientId> {
    /// Reads all runs, latest first, from the letter after the end of the previous page. Calls `keep` for every letter
    /// that the filter selects.
    pub fn walk(
        &mut self,
        ledger: &Ledger,
        wanted: &PageRequest<'_, RecipientId>,
        filter: &Filter,
        mut keep: impl FnMut(&mut RecipientPage<R, RecipientId>, (RecipientId, &Run, &DeadLetter)),
    ) {
        let &PageRequest { tenant, only, paging } = wanted;
        let mut before = match (only, paging.after) {
            (Some(run), _) | (None, Some(RecipientId { run, .. })) => Bound::Included(run.recipient(u32::MAX)),
            (None, None) => Bound::Unbounded,
        };
        while let Some((&RecipientId { run: id, .. }, _)) = ledger.dead().range((Bound::Unbounded, before)).next_back()
        {
            if only.is_some_and(|only| only != id) {
                return;
            }
            self.examined += 1;
            let page = ledger.page_of(id).filter(|(_, page, _)| *page.tenant == *tenant);
            let run = page
                .and_then(|(_, page, place)| page.runs.get(place))
                .filter(|run| filter.schedule.is_empty() || *run.name == *filter.schedule);
            let from = match paging.after {
                Some(after) if after.run == id => Bound::Excluded(after),
                _ => Bound::Included(id.recipient(0)),
            };
            match run {
                Some(run) => {
                    for (key, letter) in ledger.dead().range((from, Bound::Included(id.recipient(u32::MAX)))) {
                        if self.rows.len() >= paging.size || self.examined >= EXAMINED_MAX || self.blobs.is_full() {
                            self.more = true;
                            return;
                        }
                        self.examined += 1;
                        self.last = Some(*key);
                        if filter.lets(letter) {
                            keep(self, (*key, run, letter));
                        }
                    }
                }
                None => {
                    self.last = Some(id.recipient(u32::MAX));
                    self.more = self.examined >= EXAMINED_MAX;
                }
            }
            if self.more || only.is_some() {
                return;
            }
            before = Bound::Excluded(id.recipient(0));
        }
    }
}

//! Filters dead letters, and reads them from the state page by page.

use std::ops::Bound;

use reveille_ledger::ids::{RecipientId, Time};
use reveille_ledger::{DeadLetter, Ledger, Run};
use reveille_proto::admin::v1::{DeadLetterFilter, DeadLetterReason, DeathReason};

use crate::server::admin::explain::death;
use crate::server::admin::paging::EXAMINED_MAX;
use crate::server::admin::recipient_list::{PageRequest, RecipientPage};
use crate::server::admin::{ApiError, ApiResult, validate};

/// Returns the reason of a dead letter. Dead letters with the same reason form a group.
pub fn reason(letter: &DeadLetter) -> DeadLetterReason {
    match letter.code {
        0 => DeadLetterReason { death_reason: death(letter).0.into(), ..DeadLetterReason::default() },
        code => DeadLetterReason {
            code: code.into(),
            enhanced: letter.enhanced.map(|enhanced| enhanced.to_string()).unwrap_or_default(),
            ..DeadLetterReason::default()
        },
    }
}

/// Selects dead letters.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Name of the schedule. Empty for all schedules.
    pub schedule: String,
    reason: Option<DeadLetterReason>,
    since: Option<Time>,
}

impl Filter {
    /// Reads the filter of a request.
    ///
    /// # Errors
    /// If `since` is not a valid instant, or no dead letter can have the reason.
    pub fn read(requested: Option<DeadLetterFilter>) -> ApiResult<Filter> {
        let DeadLetterFilter { schedule, reason, since_time: since } = requested.unwrap_or_default();
        let wrong = || ApiError::of_field("filter.since_time", "is not an instant");
        let since = since.map(|since| validate::instant(since).ok_or_else(wrong)).transpose()?;
        if let Some(DeadLetterReason { death_reason, code, enhanced }) = &reason {
            let is_known = DeathReason::try_from(*death_reason).is_ok();
            let is_one = (*code > 0) != (*death_reason > 0) && (*code > 0 || enhanced.is_empty());
            if !is_known || !is_one {
                let wrong = "is none; give code and enhanced of an answer, or death_reason where no relay answered";
                return Err(ApiError::of_field("filter.reason", wrong));
            }
        }
        Ok(Filter { schedule, reason, since })
    }

    fn lets(&self, letter: &DeadLetter) -> bool {
        !letter.discarded
            && self.since.is_none_or(|since| letter.since >= since)
            && self.reason.as_ref().is_none_or(|wanted| reason(letter) == *wanted)
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

//! Finds the run or the recipient that a caller names.
//!
//! A run is named as `r1042.3` or as `NAME@INSTANT`. NAME is the schedule's name. INSTANT is RFC 3339, a local
//! date-time in the schedule's zone, or the request id of a trigger. A recipient is named by its address, or by `#` and
//! its number in the run.

mod schedule;

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::DateTime;
use jiff::tz::Offset;
use reveille_cluster::process::zones::Zones;
use reveille_ledger::address::Address;
use reveille_ledger::ids::{OccurrenceName, RunId, ScheduleId, Time};
use reveille_ledger::policy::DAY_MS;
use reveille_ledger::{InstantOutcome, Ledger, Schedule};
use reveille_proto::admin::v1::Freshness;

use super::archive::{ArchiveChain, ArchivedRun};
use super::blobs::Blobs;
use super::{Admin, ApiError, ApiResult, Call, error_texts, validate};
pub use schedule::{audience_named, campaign_named, check_schedule, near, schedule_named, template_named};

/// Maximum number of archived runs of a schedule that are searched for a named one. Each may need a file.
const SEARCHED_MAX: usize = 2_000;
/// Maximum number of recipients that one request can name.
const NAMED_MAX: usize = 10_000;
/// Maximum distance between a firing and the local time that names it: no gap and no offset of a zone is larger.
const MOVED_MS_MAX: i64 = 2 * DAY_MS;

/// A run as a caller names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunArgument {
    /// The run's id.
    Number(RunId),
    /// A schedule and one of its occurrences.
    Occurrence {
        /// The schedule's name.
        schedule: String,
        /// The text after the `@`, unchanged.
        occurrence: String,
    },
}

impl RunArgument {
    /// Parses the text of a request.
    pub fn parse(text: &str) -> ApiResult<RunArgument> {
        match (text.parse(), text.split_once('@')) {
            (Ok(run), _) => Ok(RunArgument::Number(run)),
            (Err(_), Some((schedule, occurrence))) if !schedule.is_empty() && !occurrence.is_empty() => {
                let (schedule, occurrence) = (schedule.to_owned(), occurrence.trim().to_owned());
                Ok(RunArgument::Occurrence { schedule, occurrence })
            }
            _ => {
                let form = "write it like r1042.3, or NAME@2026-03-08T09:00";
                Err(ApiError::of_field("run", format!("{text:?} is not a run; {form}")))
            }
        }
    }

    /// Searches the run of this tenant in the replicated state.
    pub fn find(&self, ledger: &Ledger, zones: &Zones, tenant: &str) -> ApiResult<FoundRun> {
        match self {
            RunArgument::Number(run) if has_run_of(ledger, tenant, *run) => Ok(FoundRun::Known(*run)),
            // A run of another tenant is searched like one that does not exist, and takes as long.
            RunArgument::Number(run) => Ok(FoundRun::Archived(*run)),
            RunArgument::Occurrence { schedule, occurrence } => {
                let named = schedule_named(ledger, tenant, schedule)?;
                occurrence_of(ledger, zones, named, occurrence).ok_or_else(|| self.unknown())
            }
        }
    }

    /// Returns the error for a run that does not exist.
    fn unknown(&self) -> ApiError {
        match self {
            RunArgument::Number(run) => error_texts::no_run(run),
            RunArgument::Occurrence { schedule, occurrence } => {
                error_texts::no_run(format!("of '{schedule}' at {occurrence}"))
            }
        }
    }
}

/// Result of the search for a run in the replicated state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundRun {
    /// The run. It may be in the archive.
    Known(RunId),
    /// Only the archive may have the run with this id.
    Archived(RunId),
    /// Only the archive may have the run of an occurrence.
    ArchivedOccurrence {
        /// The run of the schedule that was archived last.
        last: RunId,
        /// The occurrence.
        wanted: WantedOccurrence,
    },
}

/// An occurrence of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedOccurrence {
    /// With this name.
    Named(OccurrenceName),
    /// Due at this time, and named by a local time.
    Due(Time),
}

impl WantedOccurrence {
    fn fits(&self, run: &ArchivedRun) -> bool {
        match self {
            WantedOccurrence::Named(occurrence) => run.occurrence == *occurrence,
            WantedOccurrence::Due(due) => run.due == *due && matches!(run.occurrence, OccurrenceName::Civil { .. }),
        }
    }
}

/// Returns true if the ledger has a run of this tenant, or its summary.
fn has_run_of(ledger: &Ledger, tenant: &str, run: RunId) -> bool {
    ledger.summary_of(run).is_some_and(|run| *run.tenant == *tenant)
}

/// Returns the error for a run without details: they are removed, or the run is unknown.
pub fn absent(ledger: &Ledger, run: RunId) -> ApiError {
    match ledger.summaries().get(&run) {
        Some(summary) => error_texts::details_removed(run, summary),
        None => error_texts::no_run(run),
    }
}

fn occurrence_of(
    ledger: &Ledger,
    zones: &Zones,
    (id, schedule): (ScheduleId, &Schedule),
    text: &str,
) -> Option<FoundRun> {
    let in_archive = |wanted| {
        let last = schedule.plan.archived?;
        Some(FoundRun::ArchivedOccurrence { last, wanted })
    };
    let named = |occurrence: OccurrenceName| {
        let name = (id, occurrence);
        match ledger.history().get(&name).and_then(InstantOutcome::run) {
            Some(run) => Some(FoundRun::Known(run)),
            None if ledger.has_opened(&name) => in_archive(WantedOccurrence::Named(name.1)),
            None => None,
        }
    };
    let due_at = |civil, due| match due_at(ledger, id, civil, due)? {
        Some(run) => Some(FoundRun::Known(run)),
        None => in_archive(WantedOccurrence::Due(due)),
    };
    let rules = zones.get(&schedule.timing.zone).ok().map(|zone| zone.rules);
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        let civil = rules.map_or_else(|| Offset::UTC.to_datetime(instant), |rules| rules.to_datetime(instant));
        return named(OccurrenceName::Instant(instant.into())).or_else(|| due_at(civil, instant.into()));
    }
    let (civil, fold) = match text.strip_suffix(" (second)") {
        Some(civil) => (civil, 1),
        None => (text, 0),
    };
    if let Ok(civil) = civil.parse::<DateTime>() {
        let instant = rules.and_then(|rules| rules.to_ambiguous_timestamp(civil).compatible().ok());
        return named(OccurrenceName::Civil { civil_ms: civil_ms(civil)?, fold })
            .or_else(|| named(OccurrenceName::Instant(instant?.into())))
            .or_else(|| due_at(civil, instant?.into()));
    }
    let trigger = OccurrenceName::Trigger(text.strip_prefix("trigger ").unwrap_or(text).to_owned());
    // The state forgets the name of an archived trigger long before the archive forgets its run.
    named(trigger.clone()).or_else(|| in_archive(WantedOccurrence::Named(trigger)))
}

/// Returns the run that was due at this instant, near this local time. A change of the clocks may have moved it away
/// from its local time. `Some(None)`: an archived run may have been due then.
fn due_at(ledger: &Ledger, id: ScheduleId, civil: DateTime, due: Time) -> Option<Option<RunId>> {
    let near = civil_ms(civil)?;
    let first = OccurrenceName::Civil { civil_ms: near.saturating_sub(MOVED_MS_MAX), fold: 0 };
    let last = OccurrenceName::Civil { civil_ms: near.saturating_add(MOVED_MS_MAX), fold: 1 };
    let runs = ledger.history().range((id, first)..=(id, last.clone())).filter_map(|(_, row)| row.run());
    if let Some(run) = runs.into_iter().find(|run| ledger.summary_of(*run).is_some_and(|run| run.due == due)) {
        return Some(Some(run));
    }
    // A range of archived names may begin long before the name.
    let mut rows = ledger.history().range((id, OccurrenceName::Civil { civil_ms: i64::MIN, fold: 0 })..=(id, last));
    let may_have = rows.any(|((_, first), row)| match row {
        InstantOutcome::Archived { instants, ahead_min_ms, ahead_max_ms, .. } => {
            instants.has_between(first, due.plus_ms(-ahead_max_ms).0, due.plus_ms(-ahead_min_ms).0)
        }
        InstantOutcome::Opened(_) | InstantOutcome::Explained { .. } | InstantOutcome::ArchivedTrigger { .. } => false,
    });
    may_have.then_some(None)
}

fn civil_ms(civil: DateTime) -> Option<i64> {
    Offset::UTC.to_timestamp(civil).ok().map(jiff::Timestamp::as_millisecond)
}

/// A recipient as a caller names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecipientArgument {
    /// Its number in the run.
    Number(u32),
    /// Its address key.
    Key(String),
}

impl RecipientArgument {
    /// Parses the text of a request.
    pub fn parse(field: &str, text: &str) -> ApiResult<RecipientArgument> {
        if let Some(number) = text.strip_prefix('#') {
            let number = number.parse().ok();
            let wrong = || ApiError::of_field(field, format!("{text:?} is not a number; write it like #17"));
            return number.map(RecipientArgument::Number).ok_or_else(wrong);
        }
        let address = Address::parse(text).map_err(|error| {
            ApiError::of_field(field, format!("{error}; give an address, or # and the number in the run"))
        })?;
        Ok(RecipientArgument::Key(address.key()))
    }

    fn key(&self) -> Option<&str> {
        match self {
            RecipientArgument::Number(_) => None,
            RecipientArgument::Key(key) => Some(key),
        }
    }

    /// Returns the number in a run of `count` recipients. `known`: the numbers of address keys.
    fn number(&self, count: u32, known: &BTreeMap<String, u32>) -> Option<u32> {
        match self {
            RecipientArgument::Number(number) => Some(*number).filter(|number| *number < count),
            RecipientArgument::Key(key) => known.get(key).copied(),
        }
    }
}

/// A run and recipients of it.
pub struct RunRecipients {
    /// The run.
    pub run: RunId,
    /// Numbers of the recipients. Empty for all recipients.
    pub numbers: Vec<u32>,
}

/// A recipient of a run.
pub struct RunRecipient {
    /// The run.
    pub run: RunId,
    /// Its number in the run.
    pub number: u32,
    /// Its address, or `#` and its number if this node does not know it.
    pub address: String,
    pub freshness: Option<Freshness>,
}

impl Admin {
    /// Returns the id of the named run, wherever the run is.
    pub(crate) async fn find_run(
        &self,
        (tenant, run): (&str, &str),
        stale: bool,
        call: &Call,
    ) -> ApiResult<(RunId, Option<Freshness>)> {
        let (tenant, argument) = (validate::tenant(tenant)?, RunArgument::parse(run)?);
        let query = self.try_read(stale, call, |ledger| argument.find(ledger, &self.context.zones, &tenant));
        let (found, freshness) = query.await?;
        let run = self.find_archived(&found, &tenant).await?;
        Ok((run.ok_or_else(|| argument.unknown())?, freshness))
    }

    /// Returns the run that was found, or searches the archive.
    async fn find_archived(&self, found: &FoundRun, tenant: &str) -> ApiResult<Option<RunId>> {
        match found {
            FoundRun::Known(run) => Ok(Some(*run)),
            FoundRun::Archived(run) => {
                let part = self.part_of(*run, Some(tenant)).await?;
                Ok(part.filter(|(_, part)| has_run_of(part, tenant, *run)).map(|_| *run))
            }
            FoundRun::ArchivedOccurrence { last, wanted } => {
                let mut chain = ArchiveChain::new(self, Some(*last));
                for _ in 0..SEARCHED_MAX {
                    match chain.next().await? {
                        None => return chain.broken.map_or(Ok(None), Err),
                        Some(run) if wanted.fits(&run) => return Ok(Some(run.id)),
                        Some(_) => {}
                    }
                }
                Err(error_texts::not_searched_further(SEARCHED_MAX))
            }
        }
    }

    /// Returns the id of the named run, for a change.
    ///
    /// # Errors
    /// If the run is in the archive.
    pub(crate) async fn find_run_to_change(&self, tenant: &str, run: &str, call: &Call) -> ApiResult<RunId> {
        let (run, _) = self.find_run((tenant, run), false, call).await?;
        let may_change = self.read_run(run, |at| {
            if at.state.run(run).is_some() {
                return Ok(());
            }
            let archived = at.own.summary_of(run);
            Err(archived.map_or_else(|| error_texts::no_run(run), |known| error_texts::archived(run, known.label())))
        });
        may_change.await??;
        Ok(run)
    }

    /// Returns the named run and its named recipients, or all of them, for a change.
    pub(crate) async fn pick(
        &self,
        (tenant, run): (&str, &str),
        (recipients, all): (&[String], bool),
        call: &Call,
    ) -> ApiResult<RunRecipients> {
        let wrong = match (recipients.len(), all) {
            (0, false) => Some("is empty; name some, or say that you mean all".to_owned()),
            (1.., true) => Some("names some, and all are asked for; choose one".to_owned()),
            (count, _) => (count > NAMED_MAX).then(|| format!("{count} are named, at most {NAMED_MAX}; ask in parts")),
        };
        wrong.map_or(Ok(()), |wrong| Err(ApiError::of_field("recipients", wrong)))?;
        let arguments: Vec<RecipientArgument> = (0..)
            .zip(recipients)
            .map(|(place, text)| RecipientArgument::parse(&format!("recipients[{place}]"), text))
            .collect::<Result<_, _>>()?;
        let run = self.find_run_to_change(tenant, run, call).await?;
        if all {
            return Ok(RunRecipients { run, numbers: Vec::new() });
        }
        let mut blobs = Blobs::default();
        let found = self.context.replica.read(|ledger| {
            let known = ledger.run(run).ok_or_else(|| absent(ledger, run))?;
            blobs.take(ledger, known.audience);
            Ok::<_, ApiError>((known.audience, known.count))
        });
        let (audience, count) = found?;
        let wanted: BTreeSet<String> = arguments.iter().filter_map(RecipientArgument::key).map(str::to_owned).collect();
        let keys = self.numbers(&blobs, audience, wanted).await?;
        let number = |(argument, text): (&RecipientArgument, &String)| {
            argument.number(count, &keys).ok_or_else(|| error_texts::no_recipient(text, run))
        };
        let numbers = arguments.iter().zip(recipients).map(number).collect::<Result<_, _>>()?;
        Ok(RunRecipients { run, numbers })
    }

    /// Returns the named recipient of the named run, wherever the run is.
    pub(crate) async fn pick_one(
        &self,
        place: (&str, &str),
        recipient: &str,
        stale: bool,
        call: &Call,
    ) -> ApiResult<RunRecipient> {
        let wanted = RecipientArgument::parse("recipient", recipient)?;
        let (run, freshness) = self.find_run(place, stale, call).await?;
        let mut blobs = Blobs::default();
        let found = self.read_run(run, |at| {
            let known = at.own.run(run).ok_or_else(|| absent(at.own, run))?;
            blobs.take_of_run(at, known.audience);
            Ok::<_, ApiError>((known.audience, known.count))
        });
        let (audience, count) = found.await??;
        let keys = self.numbers(&blobs, audience, wanted.key().map(str::to_owned).into_iter().collect()).await?;
        let number = wanted.number(count, &keys).ok_or_else(|| error_texts::no_recipient(recipient, run))?;
        let address = self.addresses(&blobs, &[(audience, number)]).await.pop().unwrap_or_default();
        Ok(RunRecipient { run, number, address, freshness })
    }
}

#[cfg(test)]
pub(crate) mod tests;

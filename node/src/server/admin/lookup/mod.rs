//! Finds the run or the recipient that a caller names.
//!
//! A run is named as `r1042.3` or as `NAME@INSTANT`. NAME is the schedule's name. INSTANT is RFC 3339, a local
//! date-time in the schedule's zone, or the request id of a trigger. A recipient is named by its address, or by `#` and
//! its number in the run.

mod schedule;

use std::collections::BTreeSet;
use std::time::Instant;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use reveille_cluster::ops::zones::Zones;
use reveille_ledger::address::Address;
use reveille_ledger::ids::{Nominal, RunId, ScheduleId, Time};
use reveille_ledger::policy::DAY_MS;
use reveille_ledger::{InstantOutcome, Ledger};

use super::blobs::Blobs;
use super::{Admin, ApiError, refusal, validate};
pub use schedule::{absent_audience, absent_campaign, absent_relay, absent_schedule, check_schedule, near};

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
    pub fn parse(text: &str) -> Result<RunArgument, ApiError> {
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

    /// Returns the id of the run of this tenant.
    pub fn find(&self, ledger: &Ledger, zones: &Zones, tenant: &str) -> Result<RunId, ApiError> {
        match self {
            RunArgument::Number(run) => {
                let kept = ledger.page_of(*run).map(|(_, page, _)| &page.tenant);
                let owner = kept.or_else(|| ledger.summaries().get(run).map(|summary| &summary.tenant));
                owner.filter(|owner| ***owner == *tenant).map(|_| *run).ok_or_else(|| refusal::no_run(run))
            }
            RunArgument::Occurrence { schedule, occurrence } => {
                let named = ledger.schedule_named(tenant, schedule);
                let (id, known) = named.ok_or_else(|| absent_schedule(ledger, tenant, schedule))?;
                let found = occurrence_of(ledger, zones, id, &known.zone, occurrence);
                found.ok_or_else(|| refusal::no_run(format!("of '{schedule}' at {occurrence}")))
            }
        }
    }
}

/// Returns the error for a run without details: it is pruned or unknown.
fn absent(ledger: &Ledger, run: RunId) -> ApiError {
    match ledger.summaries().get(&run) {
        Some(summary) => refusal::pruned(run, summary),
        None => refusal::no_run(run),
    }
}

fn occurrence_of(ledger: &Ledger, zones: &Zones, id: ScheduleId, zone: &str, text: &str) -> Option<RunId> {
    let named = |nominal: Nominal| ledger.history().get(&(id, nominal)).and_then(InstantOutcome::run);
    let rules = zones.get(zone).ok().map(|zone| zone.rules);
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        let civil = rules.map_or_else(|| Offset::UTC.to_datetime(instant), |rules| rules.to_datetime(instant));
        return named(Nominal::Instant(instant.into())).or_else(|| due_at(ledger, id, civil, instant.into()));
    }
    let (civil, fold) = match text.strip_suffix(" (second)") {
        Some(civil) => (civil, 1),
        None => (text, 0),
    };
    if let Ok(civil) = civil.parse::<DateTime>() {
        let instant = rules.and_then(|rules| rules.to_ambiguous_timestamp(civil).compatible().ok());
        return named(Nominal::Civil { civil_ms: civil_ms(civil)?, fold })
            .or_else(|| named(Nominal::Instant(instant?.into())))
            .or_else(|| due_at(ledger, id, civil, instant?.into()));
    }
    named(Nominal::Trigger(text.strip_prefix("trigger ").unwrap_or(text).to_owned()))
}

/// Returns the run that was due at this instant, near this local time. A change of the clocks may have moved it away
/// from its local time.
fn due_at(ledger: &Ledger, id: ScheduleId, civil: DateTime, due: Time) -> Option<RunId> {
    let near = civil_ms(civil)?;
    let first = Nominal::Civil { civil_ms: near.saturating_sub(MOVED_MS_MAX), fold: 0 };
    let last = Nominal::Civil { civil_ms: near.saturating_add(MOVED_MS_MAX), fold: 1 };
    let runs = ledger.history().range((id, first)..=(id, last)).filter_map(|(_, row)| row.run());
    let due_of = |run: &RunId| {
        let kept = ledger.run(*run).map(|run| run.due);
        kept.or_else(|| ledger.summaries().get(run).map(|summary| summary.due))
    };
    runs.into_iter().find(|run| due_of(run) == Some(due))
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
    pub fn parse(field: &str, text: &str) -> Result<RecipientArgument, ApiError> {
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
}

impl RecipientArgument {
    fn key(&self) -> Option<&str> {
        match self {
            RecipientArgument::Number(_) => None,
            RecipientArgument::Key(key) => Some(key),
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

impl Admin {
    /// Returns the id of the named run.
    pub(crate) async fn find_run(&self, tenant: &str, run: &str, deadline: Instant) -> Result<RunId, ApiError> {
        let (tenant, argument) = (validate::tenant(tenant)?, RunArgument::parse(run)?);
        self.read(false, deadline, |ledger| argument.find(ledger, &self.context.zones, &tenant)).await?.0
    }

    /// Returns the named run and its named recipients, or all of them.
    pub(crate) async fn pick(
        &self,
        (tenant, run): (&str, &str),
        (recipients, all): (&[String], bool),
        deadline: Instant,
    ) -> Result<RunRecipients, ApiError> {
        match (recipients.len(), all) {
            (0, false) => {
                return Err(ApiError::of_field("recipients", "is empty; name some, or say that you mean all"));
            }
            (1.., true) => {
                return Err(ApiError::of_field("recipients", "names some, and all are asked for; choose one"));
            }
            (count, _) if count > NAMED_MAX => {
                return Err(ApiError::of_field(
                    "recipients",
                    format!("{count} are named, at most {NAMED_MAX}; ask in parts"),
                ));
            }
            _ => {}
        }
        let arguments: Vec<RecipientArgument> = (0..)
            .zip(recipients)
            .map(|(place, text)| RecipientArgument::parse(&format!("recipients[{place}]"), text))
            .collect::<Result<_, _>>()?;
        let run = self.find_run(tenant, run, deadline).await?;
        if all {
            return Ok(RunRecipients { run, numbers: Vec::new() });
        }
        let mut blobs = Blobs::default();
        let (found, _) = self
            .read(true, deadline, |ledger| {
                let known = ledger.run(run).ok_or_else(|| absent(ledger, run))?;
                blobs.take(ledger, known.audience);
                Ok::<_, ApiError>((known.audience, known.count))
            })
            .await?;
        let (audience, count) = found?;
        let wanted: BTreeSet<String> = arguments.iter().filter_map(RecipientArgument::key).map(str::to_owned).collect();
        let keys = self.numbers(&blobs, audience, wanted).await?;
        let number = |(argument, text): (&RecipientArgument, &String)| {
            let number = match argument {
                RecipientArgument::Number(number) => Some(*number).filter(|number| *number < count),
                RecipientArgument::Key(key) => keys.get(key.as_str()).copied(),
            };
            number.ok_or_else(|| refusal::no_recipient(text, run))
        };
        let numbers = arguments.iter().zip(recipients).map(number).collect::<Result<_, _>>()?;
        Ok(RunRecipients { run, numbers })
    }

    /// Returns the named run, and the number and address of its named recipient.
    pub(crate) async fn pick_one(
        &self,
        (tenant, run): (&str, &str),
        recipient: &str,
        stale: bool,
        deadline: Instant,
    ) -> Result<(RunId, u32, String), ApiError> {
        let (tenant, argument) = (validate::tenant(tenant)?, RunArgument::parse(run)?);
        let wanted = RecipientArgument::parse("recipient", recipient)?;
        let mut blobs = Blobs::default();
        let (found, _) = self
            .read(stale, deadline, |ledger| {
                let run = argument.find(ledger, &self.context.zones, &tenant)?;
                let known = ledger.run(run).ok_or_else(|| absent(ledger, run))?;
                blobs.take(ledger, known.audience);
                Ok::<_, ApiError>((run, known.audience, known.count))
            })
            .await?;
        let (run, audience, count) = found?;
        let number = match &wanted {
            RecipientArgument::Number(number) => Some(*number).filter(|number| *number < count),
            RecipientArgument::Key(key) => {
                self.numbers(&blobs, audience, [key.clone()].into()).await?.get(key).copied()
            }
        };
        let number = number.ok_or_else(|| refusal::no_recipient(recipient, run))?;
        let address = self.addresses(&blobs, &[(audience, number)]).await.pop().unwrap_or_default();
        Ok((run, number, address))
    }
}

#[cfg(test)]
pub(crate) mod tests;

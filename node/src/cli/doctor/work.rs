//! Checks the work: schedules that cannot fire, paused runs, and emails that need a decision.

use std::collections::BTreeMap;

use jiff::Timestamp;
use reveille_proto::admin::v1::{
    Campaign, CampaignState, DeadLetter, Doubt, ExplainResponse, ExplainedEventKind, RecipientState, Run, RunState,
    Schedule, ScheduleState,
};

use super::named;
use crate::cli::instant;
use crate::cli::view::doctor::Finding;
use crate::cli::view::schedule::stopped;
use crate::cli::view::{campaign, explain};
use crate::cli::wording;
use crate::format;

/// Delay after which a schedule is reported as overdue. The leader counts it after 5 s; the rest allows for this
/// machine's clock.
const OVERDUE_MS: i64 = 30_000;
/// Age of runs that are checked for expired recipients and duplicates.
const LATELY_MS: i64 = 86_400_000;

/// The lists that `doctor` reads.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// All schedules of the tenant.
    pub schedules: Vec<Schedule>,
    /// All campaigns of the tenant.
    pub campaigns: Vec<Campaign>,
    /// Paused runs, and the latest runs of any state. A run may occur twice.
    pub runs: Vec<Run>,
    /// Emails in doubt, up to the limit of pages read.
    pub doubts: Vec<Doubt>,
    /// Dead letters, up to the limit of pages read.
    pub dead_letters: Vec<DeadLetter>,
    /// Last answer about a recipient of [`expired_run`]; `None` if none was found.
    pub last_answer: Option<LastAnswer>,
}

/// What a relay last answered about an expired recipient, or why its node last gave it back.
#[derive(Clone, Debug)]
pub struct LastAnswer {
    /// The run.
    pub run: String,
    /// Address of the recipient.
    pub recipient: String,
    /// Name of the event: `refused`, or `given back`.
    pub what: String,
    /// The answer with its codes, and what it is about; or the cause.
    pub detail: String,
}

impl LastAnswer {
    /// Reads it from the history of a recipient. A relay's answer takes precedence over a later return by a node.
    /// `None` if the recipient has not expired, or its history has neither.
    pub fn of(explained: &ExplainResponse) -> Option<LastAnswer> {
        if explained.state() != RecipientState::Expired {
            return None;
        }
        let last = |kind: ExplainedEventKind| explained.events.iter().rfind(|event| event.kind() == kind);
        let event = last(ExplainedEventKind::Refused).or_else(|| last(ExplainedEventKind::GivenBack))?;
        Some(LastAnswer {
            run: explained.run.clone(),
            recipient: explained.recipient.clone(),
            what: explain::words(event.kind()),
            detail: wording::explained(event),
        })
    }
}

/// Returns the latest run of the last day that has expired recipients.
pub fn expired_run(runs: &[Run], now: Timestamp) -> Option<&Run> {
    let expired = runs.iter().filter(|run| expired(run) > 0 && is_recent(run, now));
    expired.max_by_key(|run| run.open_time.as_ref().map(|opened| (opened.seconds, opened.nanos)))
}

fn expired(run: &Run) -> u32 {
    run.counts.unwrap_or_default().expired
}

fn is_recent(run: &Run, now: Timestamp) -> bool {
    let opened = run.open_time.as_ref().and_then(instant::from_wire);
    opened.is_some_and(|opened| now.as_millisecond() - opened.as_millisecond() <= LATELY_MS)
}

/// Checks all lists as of `now`.
pub fn findings(work: &Work, now: Timestamp) -> Vec<Finding> {
    let is_reported = |schedule: &&Schedule| {
        let campaign = work.campaigns.iter().find(|campaign| campaign.name == schedule.name);
        campaign.is_some_and(|campaign| campaign.state() == CampaignState::Blocked)
    };
    let timing = work.schedules.iter().filter(|schedule| !is_reported(schedule));
    let mut findings: Vec<Finding> = timing.filter_map(|schedule| timing_of(schedule, now)).collect();
    findings.extend(work.campaigns.iter().filter_map(not_open));
    let runs: BTreeMap<&str, &Run> = work.runs.iter().map(|run| (run.run.as_str(), run)).collect();
    findings.extend(runs.values().filter_map(|run| paused(run)));
    findings.extend(lately(&runs, now, work.last_answer.as_ref()));
    findings.extend(waiting(&work.doubts, &work.dead_letters));
    findings
}

fn timing_of(schedule: &Schedule, now: Timestamp) -> Option<Finding> {
    let name = &schedule.name;
    match schedule.state() {
        ScheduleState::Blocked => {
            let what = format!("schedule {name} is blocked: {}", stopped(schedule));
            let next = format!("reveille schedule show {name}, fix the cause, reveille schedule resume {name}");
            Some(Finding::problem("schedule", what, "it does not fire until it is resumed", next))
        }
        // Its overlap policy makes the next instant wait for a run, so it is not overdue.
        ScheduleState::Active if !schedule.waits_for.is_empty() => None,
        ScheduleState::Active => {
            let next = schedule.next_instants.first()?;
            let due = instant::from_wire(next.open_time.as_ref().or(next.time.as_ref())?)?;
            let late_ms = now.as_millisecond() - due.as_millisecond();
            (late_ms > OVERDUE_MS).then(|| {
                let what = format!("schedule {name} is {} overdue, since {due}", format::duration(late_ms));
                let why =
                    "it sends late; the leader cannot commit, its clocks disagree, or this machine's clock is off";
                Finding::problem("overdue", what, why, "reveille cluster status")
            })
        }
        _ => None,
    }
}

/// Reports a campaign that did not open, or cannot open until an operator acts (P16).
fn not_open(campaign: &Campaign) -> Option<Finding> {
    let (name, reason) = (&campaign.name, campaign::reason(campaign));
    let (what, why, next) = match campaign.state() {
        CampaignState::Missed => (
            format!("campaign {name} did not fire: {reason}"),
            "no recipient got it, and none will unless it is launched again",
            format!(
                "reveille campaign launch {name} --at INSTANT sends it then; reveille campaign delete {name} forgets it"
            ),
        ),
        CampaignState::Blocked => (
            format!("campaign {name} is blocked: {reason}"),
            "it does not open until it is resumed; later than its start_within it never does",
            format!("fix the cause, reveille campaign resume {name}; reveille campaign cancel {name} ends it for good"),
        ),
        _ => return None,
    };
    Some(Finding::problem("campaign", what, why, next))
}

fn paused(run: &Run) -> Option<Finding> {
    if run.state() != RunState::Paused {
        return None;
    }
    let counts = run.counts.unwrap_or_default();
    let waiting = format::counted((counts.pending + counts.claimed).into(), "recipient");
    let reason = wording::why(run);
    let reason = if reason.is_empty() { "no reason was given" } else { &reason };
    let what = format!("run {} of {} is paused with {waiting} waiting: {reason}", run.run, run.schedule);
    let next = format!("reveille run show {0}, fix the cause, reveille run resume {0}", run.run);
    Some(Finding::problem("run", what, "they expire when the run's time is over", next))
}

fn lately(runs: &BTreeMap<&str, &Run>, now: Timestamp, last_answer: Option<&LastAnswer>) -> Vec<Finding> {
    let recent: Vec<&Run> = runs.values().filter(|run| is_recent(run, now)).copied().collect();
    let sum_over_runs = |count: fn(&Run) -> u32| {
        let of: Vec<&str> = recent.iter().filter(|run| count(run) > 0).map(|run| run.run.as_str()).collect();
        let sum: u64 = recent.iter().map(|run| u64::from(count(run))).sum();
        of.first().map(|first| (sum, named(&of), format!("reveille run show {first}")))
    };
    let expired = sum_over_runs(expired).map(|(sum, of, next)| {
        let what = format!("{} expired within a day, in {of}", format::counted(sum, "recipient"));
        let Some(LastAnswer { run, recipient, what: last, detail }) = last_answer else {
            let why =
                "they got no email before the deadline; doctor found no answer of a relay, so the cause is not known";
            let next = format!("{next}; reveille explain RUN RECIPIENT shows what happened to one of them");
            return Finding::warning("expired", what, why, next);
        };
        let why = format!("they got no email before the deadline; {recipient} was last {last}: {detail}");
        Finding::warning("expired", what, why, format!("reveille explain {run} {recipient}"))
    });
    let twice = sum_over_runs(|run| run.known_duplicates).map(|(sum, of, next)| {
        let what = format!("{} accepted twice within a day, in {of}", format::counted(sum, "email"));
        Finding::warning("duplicate", what, "two emails came where one was meant, and the ledger knows", next)
    });
    expired.into_iter().chain(twice).collect()
}

fn waiting(doubts: &[Doubt], dead_letters: &[DeadLetter]) -> Vec<Finding> {
    let count_by_run = |mut runs: Vec<&str>| {
        let count = format::count(runs.len() as u64);
        runs.sort_unstable();
        runs.dedup();
        runs.first().map(|_| (count, named(&runs)))
    };
    let doubt = count_by_run(doubts.iter().map(|doubt| doubt.run.as_str()).collect()).map(|(count, of)| {
        let what = format!("{count} in doubt, in {of}: each may have been accepted or not");
        let why = "SMTP cannot be asked: a node's journal resolves it, or you decide";
        let next = "start the nodes that are down first; then reveille in-doubt list";
        Finding::problem("in_doubt", what, why, next)
    });
    let dead = count_by_run(dead_letters.iter().map(|letter| letter.run.as_str()).collect()).map(|(count, of)| {
        let what = format!("{count} refused for good, in {of}");
        let why = "they get no email unless you requeue them";
        Finding::warning("dead_letter", what, why, "reveille dead-letter list --group-by reason")
    });
    doubt.into_iter().chain(dead).collect()
}

//! `schedule pause -l` and `schedule resume -l`: change all schedules with some labels at once.
//!
//! The cluster selects the schedules, and the command shows their names before it changes any. It then changes each by
//! name. A schedule that gets the label in between was not shown, and is not changed. The number is limited so that the
//! user can read the names.

use reveille_proto::admin::v1::{
    ListSchedulesRequest, PauseScheduleRequest, ResumeScheduleRequest, Schedule, ScheduleState,
};

use reveille_proto::Listing;

use super::read;
use crate::api_json::word;
use crate::cli::args::Format;
use crate::cli::client::RetrySafety;
use crate::cli::commands::imported::warn_of_placeholder;
use crate::cli::commands::{CHECKED, CommandContext};
use crate::cli::failure::{Exit, Failure, Stop};
use crate::cli::view::several::{Outcome, SeveralView};
use crate::format;

/// Limit of schedules that one command changes.
const SEVERAL_MAX: u32 = 1_000;

/// The change that is made to each schedule.
pub enum BulkChange {
    /// Pause, with the reason.
    Pause(String),
    Resume,
}

impl BulkChange {
    fn verb(&self) -> &'static str {
        match self {
            BulkChange::Pause(_) => "pause",
            BulkChange::Resume => "resume",
        }
    }

    /// Returns the state that a schedule must be in for this change.
    fn acts_on(&self) -> ScheduleState {
        match self {
            BulkChange::Pause(_) => ScheduleState::Active,
            BulkChange::Resume => ScheduleState::Paused,
        }
    }

    fn done(&self) -> Outcome {
        match self {
            BulkChange::Pause(_) => Outcome::Paused,
            BulkChange::Resume => Outcome::Resumed,
        }
    }
}

/// Selects the schedules, shows them, asks for confirmation and changes them.
pub async fn run(
    context: &CommandContext<'_>,
    tenant: String,
    selector: String,
    change: BulkChange,
    dry_run: bool,
) -> Result<(), Stop> {
    context.terminal.check_columns::<SeveralView>()?;
    let chosen = choose(context, &tenant, &selector, &change).await?;
    let all = chosen.len() as u64;
    let (meant, left): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|one| one.state() == change.acts_on());
    let mut rows = Vec::with_capacity(meant.len());
    for schedule in meant {
        rows.push(preview(context, &tenant, &change, &schedule.name).await?);
    }
    if !left.is_empty() {
        let few = format::counted(left.len() as u64, "schedule");
        context.terminal.say(&format!("{few} of {all} left as they are: not {}", word(change.acts_on().as_str_name())));
    }
    if dry_run {
        context.terminal.list(&rows)?;
        context.terminal.say(CHECKED);
        return Ok(());
    }
    if rows.is_empty() {
        // A message has already said that all are left unchanged. Programs get an empty list.
        return if context.terminal.format() == Format::Table { Ok(()) } else { context.terminal.list(&rows) };
    }
    let names: Vec<String> = rows.iter().map(SeveralView::in_words).collect();
    let count = format::counted(rows.len() as u64, "schedule");
    context.terminal.confirm(&format!("{} {count}: {}?", capital(change.verb()), names.join(", ")))?;
    let mut stopped = None;
    for row in &mut rows {
        if stopped.is_some() {
            row.outcome = Outcome::NotAsked;
            continue;
        }
        match change_one(context, &tenant, &change, row).await {
            Ok(()) => row.outcome = change.done(),
            Err(failure) => {
                (row.outcome, row.reason) = (Outcome::Failed, Some(failure.message.clone()));
                stopped = failure.concerns_all().then_some(failure);
            }
        }
    }
    context.terminal.list(&rows)?;
    let undone = rows.iter().filter(|row| row.outcome != change.done()).count();
    match (undone, stopped) {
        (0, _) => Ok(()),
        (_, Some(failure)) if undone == rows.len() => Err(failure.into()),
        _ => Err(Failure::new(
            Exit::Partly,
            "PARTLY_DONE",
            format!("{undone} of {count} could not be {}d: the lines say why", change.verb()),
            "the same command again: what is done stays done",
        )
        .into()),
    }
}

fn capital(verb: &str) -> String {
    verb.get(..1).unwrap_or_default().to_uppercase() + verb.get(1..).unwrap_or_default()
}

/// Returns the schedules with these labels. Fails if there are none, or more than `SEVERAL_MAX`.
async fn choose(
    context: &CommandContext<'_>,
    tenant: &str,
    selector: &str,
    change: &BulkChange,
) -> Result<Vec<Schedule>, Failure> {
    let request = ListSchedulesRequest {
        tenant: tenant.to_owned(),
        selector: selector.to_owned(),
        ..ListSchedulesRequest::default()
    };
    let page = |size, token| read::page(context, request.clone().at(false, size, token));
    let chosen = context.pages(SEVERAL_MAX, &page).await?;
    if chosen.more {
        let message = format!("more than {SEVERAL_MAX} schedules have these labels");
        return Err(Failure::usage("--selector", message, "choose fewer of them at a time"));
    }
    if chosen.rows.is_empty() {
        return Err(Failure {
            exit: Exit::NotFound,
            reason: "SCHEDULE_NOT_FOUND".into(),
            message: format!("no schedule has the labels {selector}"),
            field: Some("--selector".to_owned()),
            next: Some(format!(
                "reveille schedule list -o json shows the labels that there are; a campaign: reveille campaign {} NAME",
                change.verb()
            )),
            ..Failure::default()
        });
    }
    Ok(chosen.rows)
}

/// Returns what the change would do to one schedule.
async fn preview(
    context: &CommandContext<'_>,
    tenant: &str,
    change: &BulkChange,
    name: &str,
) -> Result<SeveralView, Failure> {
    match change {
        BulkChange::Pause(_) => Ok(SeveralView::new(name, Outcome::WouldPause)),
        BulkChange::Resume => {
            let request = ResumeScheduleRequest {
                tenant: tenant.to_owned(),
                name: name.to_owned(),
                etag: String::new(),
                validate_only: true,
            };
            let plan = context.client.ask(RetrySafety::Read, request).await?;
            let schedule = plan.schedule.unwrap_or_default();
            warn_of_placeholder(context, tenant, &schedule).await?;
            let etag = schedule.etag;
            let view = SeveralView::new(name, Outcome::WouldResume);
            Ok(view.with_plan(etag, plan.opens_count, plan.explained_count))
        }
    }
}

async fn change_one(
    context: &CommandContext<'_>,
    tenant: &str,
    change: &BulkChange,
    row: &SeveralView,
) -> Result<(), Failure> {
    let (tenant, name) = (tenant.to_owned(), row.name.clone());
    match change {
        BulkChange::Pause(reason) => {
            let request = PauseScheduleRequest { tenant, name, reason: reason.clone(), validate_only: false };
            context.client.ask(RetrySafety::Repeatable, request).await.map(|_| ())
        }
        BulkChange::Resume => {
            // The etag is of the state that was shown: if more was missed since then, the request fails with a
            // conflict.
            let request = ResumeScheduleRequest { tenant, name, etag: row.etag.clone(), validate_only: false };
            context.client.ask(RetrySafety::Repeatable, request).await.map(|_| ())
        }
    }
}

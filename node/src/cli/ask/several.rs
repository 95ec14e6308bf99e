//! `schedule pause -l` and `schedule resume -l`: what has to happen to all schedules with some labels at once.
//!
//! The cluster chooses, and the names are shown before anything is changed. Then each is asked for by its name:
//! a schedule that gets a label in between was not shown, and is not changed. Bounded, so that the names can be read.

use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient as Service;
use reveille_proto::admin::v1::{ListSchedulesRequest, PauseScheduleRequest, ResumeScheduleRequest};

use super::imported::warn_of_placeholder;
use super::{CHECKED, Desk, schedule_reads};
use crate::cli::args::Format;
use crate::cli::client::Nature;
use crate::cli::failure::{Exit, Failure, Stop};
use crate::cli::view::schedule::ScheduleView;
use crate::cli::view::several::{Outcome, PausedView, SeveralView};
use crate::format;

/// Schedules that one command changes.
const SEVERAL_MAX: u32 = 1_000;

/// What happens to each of them.
pub enum Act {
    /// With the reason.
    Pause(String),
    Resume,
}

impl Act {
    fn verb(&self) -> &'static str {
        match self {
            Act::Pause(_) => "pause",
            Act::Resume => "resume",
        }
    }

    /// The state in which it is of use.
    fn acts_on(&self) -> &'static str {
        match self {
            Act::Pause(_) => "active",
            Act::Resume => "paused",
        }
    }

    fn done(&self) -> Outcome {
        match self {
            Act::Pause(_) => Outcome::Paused,
            Act::Resume => Outcome::Resumed,
        }
    }
}

/// Chooses, shows, asks, and does it.
pub async fn run(desk: &Desk<'_>, tenant: String, selector: String, act: Act, dry_run: bool) -> Result<(), Stop> {
    let chosen = choose(desk, &tenant, &selector, &act).await?;
    let all = chosen.len() as u64;
    let (meant, left): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|one| one.state() == act.acts_on());
    let mut rows = Vec::with_capacity(meant.len());
    for schedule in meant {
        rows.push(look(desk, &tenant, &act, schedule.own_name()).await?);
    }
    if !left.is_empty() {
        let few = format::counted(left.len() as u64, "schedule");
        desk.terminal.say(&format!("{few} of {all} left as they are: not {}", act.acts_on()));
    }
    if dry_run {
        list(desk, &act, &rows)?;
        desk.terminal.say(CHECKED);
        return Ok(());
    }
    if rows.is_empty() {
        // That they are left as they are was said; programs get their empty list.
        return if desk.terminal.format() == Format::Table { Ok(()) } else { list(desk, &act, &rows) };
    }
    let names: Vec<String> = rows.iter().map(SeveralView::in_words).collect();
    let count = format::counted(rows.len() as u64, "schedule");
    desk.terminal.confirm(&format!("{} {count}: {}?", capital(act.verb()), names.join(", ")))?;
    let mut stopped = None;
    for row in &mut rows {
        if stopped.is_some() {
            row.outcome = Outcome::NotAsked;
            continue;
        }
        match change(desk, &tenant, &act, row).await {
            Ok(()) => row.outcome = act.done(),
            Err(failure) => {
                (row.outcome, row.reason) = (Outcome::Failed, Some(failure.message.clone()));
                stopped = failure.concerns_all().then_some(failure);
            }
        }
    }
    list(desk, &act, &rows)?;
    let undone = rows.iter().filter(|row| row.outcome != act.done()).count();
    match (undone, stopped) {
        (0, _) => Ok(()),
        (_, Some(failure)) if undone == rows.len() => Err(failure.into()),
        _ => Err(Failure {
            exit: Exit::Partly,
            reason: "PARTLY_DONE".into(),
            message: format!("{undone} of {count} could not be {}d: the lines say why", act.verb()),
            next: Some("the same command again: what is done stays done".to_owned()),
            ..Failure::default()
        }
        .into()),
    }
}

/// What became of each.
fn list(desk: &Desk<'_>, act: &Act, rows: &[SeveralView]) -> Result<(), Stop> {
    match act {
        Act::Pause(_) => desk.terminal.list(&rows.iter().cloned().map(PausedView).collect::<Vec<_>>()),
        Act::Resume => desk.terminal.list(rows),
    }
}

fn capital(verb: &str) -> String {
    verb.get(..1).unwrap_or_default().to_uppercase() + verb.get(1..).unwrap_or_default()
}

/// All that have the labels; more than can be looked through are refused, and so are none.
async fn choose(desk: &Desk<'_>, tenant: &str, selector: &str, act: &Act) -> Result<Vec<ScheduleView>, Failure> {
    let question = ListSchedulesRequest {
        tenant: tenant.to_owned(),
        selector: selector.to_owned(),
        ..ListSchedulesRequest::default()
    };
    let page = |page_size, page_token| {
        schedule_reads::page(desk, ListSchedulesRequest { page_size, page_token, ..question.clone() })
    };
    let chosen = desk.pages(SEVERAL_MAX, &page).await?;
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
                act.verb()
            )),
            ..Failure::default()
        });
    }
    Ok(chosen.rows)
}

/// What would become of one.
async fn look(desk: &Desk<'_>, tenant: &str, act: &Act, name: &str) -> Result<SeveralView, Failure> {
    match act {
        Act::Pause(_) => Ok(SeveralView::new(name, Outcome::WouldPause)),
        Act::Resume => {
            let question = ResumeScheduleRequest {
                tenant: tenant.to_owned(),
                name: name.to_owned(),
                etag: String::new(),
                validate_only: true,
            };
            let call = |channel, question| async move { Service::new(channel).resume_schedule(question).await };
            let plan = desk.client.ask(Nature::Read, question, call).await?;
            let schedule = plan.schedule.unwrap_or_default();
            warn_of_placeholder(desk, tenant, &schedule).await?;
            let etag = schedule.etag;
            let view = SeveralView::new(name, Outcome::WouldResume);
            Ok(view.with_plan(etag, plan.opens_count, plan.explained_count))
        }
    }
}

async fn change(desk: &Desk<'_>, tenant: &str, act: &Act, row: &SeveralView) -> Result<(), Failure> {
    let (tenant, name) = (tenant.to_owned(), row.name.clone());
    match act {
        Act::Pause(reason) => {
            let question = PauseScheduleRequest { tenant, name, reason: reason.clone(), validate_only: false };
            let call = |channel, question| async move { Service::new(channel).pause_schedule(question).await };
            desk.client.ask(Nature::Repeatable, question, call).await.map(|_| ())
        }
        Act::Resume => {
            // Made on what was shown: what was missed since then is a conflict, and told.
            let question = ResumeScheduleRequest { tenant, name, etag: row.etag.clone(), validate_only: false };
            let call = |channel, question| async move { Service::new(channel).resume_schedule(question).await };
            desk.client.ask(Nature::Repeatable, question, call).await.map(|_| ())
        }
    }
}

//! `schedule pause -l` and `schedule resume -l`: change all schedules with some labels at once.
//!
//! The cluster selects the schedules, and the command shows their names before it changes any. It then changes each by
//! name. A schedule that gets the label in between was not shown, and is not changed. The number is limited so that the
//! user can read the names.

use reveille_proto::admin::v1::{
    ListSchedulesRequest, PauseScheduleRequest, ResumeScheduleRequest, Schedule, ScheduleState,
};
use serde::Serialize;

use crate::api_json::word;
use crate::cli::commands::imported::warn_of_placeholder;
use crate::cli::commands::{CHECKED, CommandContext, Exit, Failure, Format, Stop, View, format};
use crate::cli::view::layout::{Cell, Tone, card};
use crate::cli::view::own_objects;

/// Limit of schedules that one command changes.
const SEVERAL_MAX: u32 = 1_000;

/// Selects the schedules, shows them, asks for confirmation and changes them: pauses them for the reason, or resumes
/// them.
pub async fn run(
    context: &CommandContext<'_>,
    tenant: String,
    selector: String,
    pause: Option<String>,
    dry_run: bool,
) -> Result<(), Stop> {
    // The verb, the same capitalized, the state that a schedule must be in, and the outcome.
    let (verb, capital, acts_on, changed) = match pause {
        Some(_) => ("pause", "Pause", ScheduleState::Active, BulkOutcome::Paused),
        None => ("resume", "Resume", ScheduleState::Paused, BulkOutcome::Resumed),
    };
    context.terminal.check_columns::<SeveralView>()?;
    let chosen = choose(context, &tenant, &selector, verb).await?;
    let all = chosen.len() as u64;
    let (meant, left): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|one| one.state() == acts_on);
    let mut rows = Vec::with_capacity(meant.len());
    for schedule in meant {
        context.restart_default_limit();
        rows.push(match pause {
            Some(_) => SeveralView { name: schedule.name, outcome: BulkOutcome::WouldPause, ..SeveralView::default() },
            None => preview(context, &tenant, &schedule.name).await?,
        });
    }
    if !left.is_empty() {
        let few = format::counted(left.len() as u64, "schedule");
        context.terminal.say(&format!("{few} of {all} left as they are: not {}", word(acts_on.as_str_name())));
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
    context.confirm(&format!("{capital} {count}: {}?", names.join(", "))).await?;
    let mut stopped = None;
    for row in &mut rows {
        if stopped.is_some() {
            row.outcome = BulkOutcome::NotAsked;
            continue;
        }
        context.restart_default_limit();
        match change_one(context, &tenant, pause.as_deref(), row).await {
            Ok(()) => row.outcome = changed,
            Err(failure) => {
                (row.outcome, row.reason) = (BulkOutcome::Failed, Some(failure.message.clone()));
                stopped = failure.concerns_all().then_some(failure);
            }
        }
    }
    context.terminal.list(&rows)?;
    let undone = rows.iter().filter(|row| row.outcome != changed).count();
    match (undone, stopped) {
        (0, _) => Ok(()),
        (_, Some(failure)) if undone == rows.len() => Err(failure.into()),
        _ => {
            let message = format!("{undone} of {count} could not be {verb}d: the lines say why");
            Err(Failure::partly(message, "the same command again: what is done stays done").into())
        }
    }
}

/// Returns the schedules with these labels. Fails if there are none, or more than `SEVERAL_MAX`.
async fn choose(context: &CommandContext<'_>, of: &str, labels: &str, verb: &str) -> Result<Vec<Schedule>, Failure> {
    let (tenant, selector) = (of.to_owned(), labels.to_owned());
    let request = ListSchedulesRequest { tenant, selector, ..ListSchedulesRequest::default() };
    let page = |size, token| context.client.page(request.clone(), false, size, token);
    let chosen = context.pages(SEVERAL_MAX, &page).await?;
    if chosen.more {
        let message = format!("more than {SEVERAL_MAX} schedules have these labels");
        return Err(Failure::usage("--selector", message, "choose fewer of them at a time"));
    }
    if chosen.rows.is_empty() {
        let message = format!("no schedule has the labels {labels}");
        let next = format!(
            "reveille schedule list -o json shows the labels that there are; a campaign: reveille campaign {verb} NAME"
        );
        return Err(Failure::new(Exit::NotFound, "SCHEDULE_NOT_FOUND", message, next).at("--selector"));
    }
    Ok(chosen.rows)
}

/// Returns what a resume would do to one schedule.
async fn preview(context: &CommandContext<'_>, tenant: &str, name: &str) -> Result<SeveralView, Failure> {
    let (of, named, etag) = (tenant.to_owned(), name.to_owned(), String::new());
    let request = ResumeScheduleRequest { tenant: of, name: named, etag, validate_only: true };
    let plan = context.read(request).await?;
    let schedule = plan.schedule.unwrap_or_default();
    warn_of_placeholder(context, tenant, &schedule).await?;
    let (name, etag) = (name.to_owned(), schedule.etag);
    let (opens_count, explained_count) = (plan.opens_count, plan.explained_count);
    Ok(SeveralView { name, outcome: BulkOutcome::WouldResume, opens_count, explained_count, reason: None, etag })
}

async fn change_one(
    context: &CommandContext<'_>,
    tenant: &str,
    pause: Option<&str>,
    row: &SeveralView,
) -> Result<(), Failure> {
    let (tenant, name) = (tenant.to_owned(), row.name.clone());
    if let Some(reason) = pause {
        let request = PauseScheduleRequest { tenant, name, reason: reason.to_owned(), validate_only: false };
        return context.change(request).await.map(drop);
    }
    // The etag is of the state that was shown: if more was missed since then, the request fails with a conflict.
    let request = ResumeScheduleRequest { tenant, name, etag: row.etag.clone(), validate_only: false };
    context.change(request).await.map(drop)
}

/// Outcome of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum BulkOutcome {
    /// The schedule was paused.
    Paused,
    /// The schedule was resumed.
    Resumed,
    /// The schedule would be paused.
    WouldPause,
    /// The schedule would be resumed.
    WouldResume,
    /// The cluster refused the change.
    Failed,
    /// Not requested, because an earlier schedule got no answer.
    #[default]
    NotAsked,
}

impl BulkOutcome {
    fn cell(self) -> Cell {
        let (word, tone) = match self {
            BulkOutcome::Paused => ("paused", Tone::Notable),
            BulkOutcome::Resumed => ("resumed", Tone::Good),
            BulkOutcome::WouldPause => ("would be paused", Tone::Notable),
            BulkOutcome::WouldResume => ("would be resumed", Tone::Good),
            BulkOutcome::Failed => ("failed", Tone::Bad),
            BulkOutcome::NotAsked => ("not asked", Tone::Notable),
        };
        Cell::toned(word, tone)
    }
}

/// One schedule of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SeveralView {
    /// Name of the schedule.
    pub name: String,
    /// Outcome of the schedule.
    pub outcome: BulkOutcome,
    /// Missed instants that open at a resume.
    pub opens_count: u32,
    /// Missed instants that are explained in the history instead.
    pub explained_count: u32,
    /// Why the change failed; null otherwise.
    pub reason: Option<String>,
    /// Etag of the state that was shown, which a resume requires.
    #[serde(skip)]
    pub etag: String,
}

impl SeveralView {
    /// Returns a count of missed instants, which a pause has not.
    fn counted(&self, count: u32) -> Cell {
        match self.outcome {
            BulkOutcome::Resumed | BulkOutcome::WouldResume => Cell::count(count.into(), Tone::Plain),
            _ => Cell::number((count > 0).then_some(count.into())),
        }
    }

    /// Returns the schedule for the confirmation question.
    pub fn in_words(&self) -> String {
        match (self.opens_count, self.explained_count) {
            (0, 0) => self.name.clone(),
            (opens, 0) => format!("{} ({} for what it missed)", self.name, format::counted(opens.into(), "run")),
            (opens, explained) => {
                let opens = format::counted(opens.into(), "run");
                format!("{} ({opens} for what it missed, {explained} explained)", self.name)
            }
        }
    }
}

own_objects!(SeveralView);

impl View for SeveralView {
    const NOUN: &'static str = "schedules";
    const COLUMNS: &'static [&'static str] = &["NAME", "OUTCOME", "OPENS", "EXPLAINED", "REASON"];
    // A pause opens and explains nothing.
    const OPTIONAL: &'static [&'static str] = &["OPENS", "EXPLAINED"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.outcome.cell(),
            self.counted(self.opens_count),
            self.counted(self.explained_count),
            Cell::or_dash(self.reason.as_deref()),
        ]
    }

    fn text(&self, paint: bool) -> String {
        card(vec![("name", self.name.as_str().into()), ("outcome", self.outcome.cell())], paint)
    }
}

//! `reveille schedule update`: reads the schedule, shows the changes, and makes them if the schedule is still the same.

use clap::{Arg, Args};
use prost_types::FieldMask;
use reveille_proto::admin::v1::{Instant, Schedule, ScheduleBody, UpdateScheduleRequest, UpdateScheduleResponse};

use super::body::{at_line, content, recipients, say_left_out};
use crate::api_json::descriptor;
use crate::cli::args::content::{CONTENT_FLAGS, ContentArgs, RecipientArgs};
use crate::cli::args::given::Given;
use crate::cli::args::labels::{LabelChange, parse_label_change};
use crate::cli::commands::{
    CHECKED, CommandContext, EtagArgs, Failure, Format, Json, PolicyArgs, SpanArgs, Stop, View, WhenArgs, format,
    to_wire,
};
use crate::cli::manifest::difference::{Change, between};
use crate::cli::manifest::kind::node;
use crate::cli::manifest::tree::Node;
use crate::cli::recipients::Recipients;
use crate::cli::view::instant::remarks;
use crate::cli::view::layout::{Cell, Tone, table};

/// `schedule update`: what is given changes.
#[derive(Debug, Args)]
#[command(mut_args(replaces_all))]
pub struct UpdateArgs {
    /// Its name
    pub name: String,
    #[command(flatten)]
    pub etag: EtagArgs,
    /// Print the old and the new instants, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Remove an optional setting: end-time, reply-to, label …; may be repeated
    #[arg(long, value_name = "FLAG", value_delimiter = ',', value_parser = [
        "days", "anchor-time", "start-time", "end-time", "max-runs", "reply-to", "cc", "text", "html", "variable", "header",
        "attachment", "bulk", "label", "template",
    ])]
    pub clear: Vec<String>,
    /// Set a label, or remove it with KEY-; may be repeated, and keeps the others
    #[arg(long = "label", value_name = "KEY=VALUE|KEY-", value_parser = parse_label_change)]
    pub labels: Vec<LabelChange>,
    #[command(flatten)]
    pub changes: Given<ChangeArgs>,
}

/// The flags that give a new value.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Pool of relays
    #[arg(long)]
    pub pool: Option<String>,
    /// Higher goes first within the tenant
    #[arg(long, value_name = "0-255")]
    pub priority: Option<u8>,
    #[command(flatten)]
    pub when: WhenArgs,
    /// Time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", help_heading = "When")]
    pub zone: Option<String>,
    #[command(flatten)]
    pub span: SpanArgs,
    #[command(flatten)]
    pub recipients: RecipientArgs,
    /// A template instead of the content: NAME, which is its newest version now, or NAME@VERSION
    #[arg(long, value_name = "NAME[@VERSION]", help_heading = "Content", conflicts_with_all = CONTENT_FLAGS)]
    pub template: Option<String>,
    #[command(flatten)]
    pub content: ContentArgs,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

/// Adds to the help of the content's lists that an update does not append to them.
fn replaces_all(arg: Arg) -> Arg {
    match (arg.get_id().as_str(), arg.get_help()) {
        ("cc" | "variables" | "headers" | "attachments", Some(help)) => {
            let help = format!("{help}, and replaces all of them");
            arg.help(help)
        }
        _ => arg,
    }
}

/// Updates the schedule. With `--dry-run` it only shows what would change.
pub async fn run(context: &CommandContext<'_>, tenant: String, args: UpdateArgs) -> Result<(), Stop> {
    let dry_run = args.dry_run;
    let recipient_args = args.changes.args.recipients.clone();
    let (request, listed) = request(context, tenant, args)?;
    let named = |failure| match &listed {
        Some(listed) => at_line(failure, &recipient_args, listed),
        None => failure,
    };
    let preview_request = UpdateScheduleRequest { validate_only: true, ..request.clone() };
    let plan = context.read(preview_request).await.map_err(named)?;
    let etag = plan.former.as_ref().map(|former| former.etag.clone()).unwrap_or_default();
    listed.iter().for_each(|listed| say_left_out(context, listed));
    let duplicates = plan.duplicates.len() as u64;
    if duplicates > 0 {
        let duplicates = format::counted(duplicates, "duplicate");
        context.terminal.say(&format!("{duplicates} left out: each address gets one email a run"));
    }
    context.warn(&plan.warnings, None);
    if dry_run {
        context.terminal.say(CHECKED);
        return context.terminal.show(&plan);
    }
    // A table has the same lines, so that they are not printed twice.
    if context.terminal.format() != Format::Table {
        lines(&plan).iter().for_each(|line| context.terminal.say(line));
    }
    let answer = context.change(UpdateScheduleRequest { etag, ..request }).await.map_err(named)?;
    // Prints the plan of the preview. The answer to a repeated request is the stored one, which no longer has the former
    // values.
    context.terminal.show(&UpdateScheduleResponse { schedule: answer.schedule, ..plan })
}

/// Returns the request, and the new recipients if the flags name any.
fn request(
    context: &CommandContext<'_>,
    tenant: String,
    args: UpdateArgs,
) -> Result<(UpdateScheduleRequest, Option<Recipients>), Failure> {
    let paths = paths(&args);
    if paths.is_empty() {
        let nothing = "nothing is given that would change";
        return Err(Failure::usage("schedule update", nothing, "reveille schedule update --help"));
    }
    let changes = args.changes.args;
    let listed = match changes.recipients.is_given() {
        true => Some(recipients(&changes.recipients)?),
        false => None,
    };
    let body = ScheduleBody {
        tenant,
        name: args.name,
        timing: Some(changes.when.to_wire()).filter(|timing| timing.pattern.is_some()),
        zone: changes.zone.unwrap_or_default(),
        start_time: changes.span.start_time.map(to_wire),
        end_time: changes.span.end_time.map(to_wire),
        max_runs: changes.span.max_runs,
        policies: Some(changes.policies.to_wire()),
        pool: changes.pool.unwrap_or_default(),
        priority: changes.priority.unwrap_or_default().into(),
        paused: None,
        content: Some(content(changes.content)?),
        audience: listed.as_ref().map(|listed| listed.audience.clone()),
        labels: args.labels.into_iter().filter_map(|label| Some((label.key, label.value?))).collect(),
        template: changes.template.unwrap_or_default(),
    };
    let request = UpdateScheduleRequest {
        schedule: Some(body),
        update_mask: Some(FieldMask { paths }),
        etag: args.etag.to_wire(),
        request_id: context.client.request_id().to_owned(),
        validate_only: false,
        with_bodies: false,
    };
    Ok((request, listed))
}

/// Returns the field paths that the flags change.
fn paths(args: &UpdateArgs) -> Vec<String> {
    let given = args.changes.names.iter().flat_map(|id| paths_of(id));
    let labels = args.labels.iter().map(|label| format!("labels.{}", label.key));
    let cleared = args.clear.iter().flat_map(|flag| match flag.as_str() {
        "label" => vec!["labels".to_owned()],
        "variable" | "header" | "attachment" => paths_of(&format!("{flag}s")),
        flag => paths_of(&flag.replace('-', "_")),
    });
    given.chain(labels).chain(cleared).collect()
}

/// Returns the API's field paths for the id of an argument.
fn paths_of(id: &str) -> Vec<String> {
    match id {
        "daily" => vec!["timing.daily.hour".to_owned(), "timing.daily.minute".to_owned()],
        "skip_bad_rows" => Vec::new(),
        _ => vec![match id {
            "to" | "recipients" | "sealed" => "audience".to_owned(),
            "cron" | "at" => "timing".to_owned(),
            "days" => "timing.daily.days".to_owned(),
            "every" => "timing.every.period".to_owned(),
            "anchor_time" => "timing.every.anchor_time".to_owned(),
            "inline_text" => "content.text".to_owned(),
            "inline_html" => "content.html".to_owned(),
            "zone" | "start_time" | "end_time" | "max_runs" | "pool" | "priority" | "template" => id.to_owned(),
            content if CONTENT_FLAGS.contains(&content) => format!("content.{content}"),
            policy => format!("policies.{policy}"),
        }],
    }
}

/// Characters of a hash that are shown.
const HASH_SHOWN: usize = 12;

/// Returns a schedule without the fields that follow from others or change with every answer.
fn for_comparison(schedule: &Option<Schedule>) -> Node {
    let schedule = schedule.clone().unwrap_or_default();
    let short = |hash: &str| hash.chars().take(HASH_SHOWN).collect::<String>();
    let (content_hash, audience_hash) = (short(&schedule.content_hash), short(&schedule.audience_hash));
    let (next_instants, etag, index, state, waits_for, read_time) = Default::default();
    let compared =
        Schedule { content_hash, audience_hash, next_instants, etag, index, state, waits_for, read_time, ..schedule };
    node(&compared.json(), descriptor::<Schedule>().as_ref())
}

/// Returns the changes, one line each.
fn lines(answer: &UpdateScheduleResponse) -> Vec<String> {
    let changes = between(&for_comparison(&answer.former), &for_comparison(&answer.schedule));
    let mut lines: Vec<String> = changes.iter().flat_map(Change::lines).collect();
    if lines.is_empty() {
        return vec!["nothing changes: it is like that already".to_owned()];
    }
    if answer.opens_count > 0 {
        let due = format::counted(answer.opens_count.into(), "instant");
        lines.push(format!("{due} of the former timing, due by now, still opened as it was"));
    }
    if answer.explained_count > 0 {
        let missed = format::counted(answer.explained_count.into(), "missed instant");
        lines.push(format!("{missed} of the former timing did not open: see the history"));
    }
    lines
}

impl View for UpdateScheduleResponse {
    fn name(&self) -> String {
        self.schedule.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let lines = lines(self).join("\n");
        let next = |schedule: &Option<Schedule>| schedule.clone().unwrap_or_default().next_instants;
        let (was, is) = (next(&self.former), next(&self.schedule));
        if was == is {
            return lines;
        }
        let local = |instants: &[Instant], place: usize, tone| {
            Cell::toned(instants.get(place).map_or("-", |one| one.local.as_str()), tone)
        };
        let row = |place: usize| {
            let remark = is.get(place).map(remarks).unwrap_or_default();
            vec![local(&was, place, Tone::Dim), local(&is, place, Tone::Good), Cell::toned(remark, Tone::Notable)]
        };
        let rows = (0..was.len().max(is.len())).map(row).collect();
        format!("{lines}\n\n{}", table(&["NEXT, OLD", "NEXT, NEW", "REMARK"], rows, paint))
    }
}

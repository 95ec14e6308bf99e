//! `reveille schedule update`: reads the schedule, shows the changes, and makes them if the schedule is still the same.

use prost_types::FieldMask;
use reveille_proto::admin::v1::{ScheduleBody, UpdateScheduleRequest, UpdateScheduleResponse};

use super::body::{at_line, changed_content, recipients};
use crate::cli::commands::{CHECKED, CommandContext, Failure, Format, Stop, UpdateArgs, format, to_wire};
use crate::cli::recipients::Recipients;
use crate::cli::view::update::lines;

/// Updates the schedule. With `--dry-run` it only shows what would change.
pub async fn run(context: &CommandContext<'_>, tenant: String, args: UpdateArgs) -> Result<(), Stop> {
    let dry_run = args.dry_run;
    let recipient_args = args.recipients.clone();
    let (request, listed) = request(context, tenant, args)?;
    let named = |failure| match &listed {
        Some(listed) => at_line(failure, &recipient_args, listed),
        None => failure,
    };
    let preview_request = UpdateScheduleRequest { validate_only: true, ..request.clone() };
    let plan = context.read(preview_request).await.map_err(named)?;
    let etag = plan.former.as_ref().map(|former| former.etag.clone()).unwrap_or_default();
    let duplicates = plan.duplicates.len() as u64;
    if duplicates > 0 {
        let duplicates = format::counted(duplicates, "duplicate");
        context.terminal.say(&format!("{duplicates} left out: each address gets one email a run"));
    }
    if dry_run {
        context.terminal.say(CHECKED);
        return context.terminal.show(&plan);
    }
    // A table has the same lines, so that they are not printed twice.
    if context.terminal.format() != Format::Table {
        lines(&plan).iter().for_each(|line| context.terminal.say(line));
    }
    let answer = context.change(UpdateScheduleRequest { etag, ..request }).await.map_err(named)?;
    // Prints the plan that the update was based on: a stored answer, after a repeated request, no longer has the former
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
    let listed = match args.recipients.is_given() {
        true => Some(recipients(&args.recipients)?),
        false => None,
    };
    let body = ScheduleBody {
        tenant,
        name: args.name,
        timing: (!args.when.paths().is_empty()).then(|| args.when.to_wire()),
        zone: args.zone.unwrap_or_default(),
        start_time: args.start_time.map(to_wire),
        end_time: args.end_time.map(to_wire),
        max_runs: args.max_runs,
        policies: Some(args.policies.args.to_wire()),
        pool: args.pool.unwrap_or_default(),
        priority: args.priority.unwrap_or_default().into(),
        paused: None,
        content: Some(changed_content(args.content)?),
        audience: listed.as_ref().map(|listed| listed.audience.clone()),
        labels: args.labels.into_iter().filter_map(|label| Some((label.key, label.value?))).collect(),
        template: args.template.unwrap_or_default(),
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

/// Returns the API's field path for a flag of `--clear`.
fn path_of(flag: &str) -> String {
    match flag {
        "label" => "labels".to_owned(),
        "template" | "start-time" | "end-time" | "max-runs" => flag.replace('-', "_"),
        "days" => "timing.daily.days".to_owned(),
        "anchor-time" => "timing.every.anchor_time".to_owned(),
        "variable" | "header" | "attachment" => format!("content.{flag}s"),
        field => format!("content.{}", field.replace('-', "_")),
    }
}

/// Returns the field paths that the flags change.
fn paths(args: &UpdateArgs) -> Vec<String> {
    let (content, texts) = (&args.content, &args.content.texts);
    let given = [
        ("zone", args.zone.is_some()),
        ("start_time", args.start_time.is_some()),
        ("end_time", args.end_time.is_some()),
        ("max_runs", args.max_runs.is_some()),
        ("pool", args.pool.is_some()),
        ("priority", args.priority.is_some()),
        ("audience", args.recipients.is_given()),
        ("template", args.template.is_some()),
        ("content.sender", content.sender.is_some()),
        ("content.reply_to", content.reply_to.is_some()),
        ("content.cc", !content.cc.is_empty()),
        ("content.subject", content.subject.is_some()),
        ("content.text", texts.text.is_some() || texts.inline_text.is_some()),
        ("content.html", texts.html.is_some() || texts.inline_html.is_some()),
        ("content.headers", !content.headers.is_empty()),
        ("content.variables", !content.variables.is_empty()),
        ("content.bulk", content.bulk),
        ("content.attachments", !content.attachments.is_empty()),
    ];
    let given = given.into_iter().filter(|(_, given)| *given).map(|(path, _)| path.to_owned());
    let when = args.when.paths().into_iter().map(str::to_owned);
    let policies = args.policies.names.iter().map(|name| format!("policies.{name}"));
    let labels = args.labels.iter().map(|label| format!("labels.{}", label.key));
    given.chain(when).chain(policies).chain(labels).chain(args.clear.iter().map(|flag| path_of(flag))).collect()
}

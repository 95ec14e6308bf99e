//! Replaces API field names in errors by the flags that set them, because the user of a command knows the flags.
//!
//! The flag of a field has the field's name, so the parser's tree of commands names it. `apply`, `edit`, `import`,
//! `audience` and `config` read values from files, so their errors name the line or the key.

use clap::{ArgMatches, Command};

use super::failure::{Failure, Stop};

/// Fields whose value is given by arguments of other names, by the id of each argument.
const OTHERWISE: &[(&str, &[&str])] = &[
    ("send_time", &["at"]),
    ("key_rule", &["first_wins"]),
    ("paused", &["reason"]),
    ("update_mask", &["clear"]),
    ("page_size", &["limit"]),
    ("audience", &["to", "recipients", "sealed"]),
    ("audience.recipients", &["to", "recipients"]),
    ("audience.columns", &["recipients"]),
    ("content", &["text", "inline_text", "html", "inline_html"]),
    ("content.text", &["text", "inline_text"]),
    ("content.html", &["html", "inline_html"]),
    ("timing", &["cron", "daily", "every", "at"]),
    ("timing.daily.days", &["days"]),
    ("timing.every.anchor_time", &["anchor_time"]),
];
/// Fields of which each entry has a name that the flag gives too.
const NAMED_ENTRIES: [&str; 4] = ["headers", "labels", "values", "variables"];

/// The names of a subcommand and of those that it is in.
#[derive(Clone, Debug)]
pub struct CommandPath(Vec<String>);

impl CommandPath {
    /// Reads the path of the subcommand that was parsed.
    pub fn of(matches: &ArgMatches) -> CommandPath {
        let mut names = Vec::new();
        let mut next = matches.subcommand();
        while let Some((name, matches)) = next {
            names.push(name.to_owned());
            next = matches.subcommand();
        }
        CommandPath(names)
    }

    /// Returns the same failure with flags in place of field names, if the command's values come from its flags.
    pub fn name_flags(&self, root: Command, stop: Stop) -> Stop {
        let Stop::Failed(failure) = stop else { return stop };
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        let reads_files = match names.as_slice() {
            ["apply" | "diff" | "edit" | "import" | "audience" | "config", ..] => true,
            _ => &*failure.reason == "FILE",
        };
        match self.find(root) {
            Some(command) if !reads_files => Stop::Failed(Box::new(named(*failure, &command))),
            _ => Stop::Failed(failure),
        }
    }

    /// Finds the subcommand, with the flags that it inherits.
    fn find(&self, mut root: Command) -> Option<Command> {
        root.build();
        self.0.iter().try_fold(root, |command, name| command.find_subcommand(name).cloned())
    }
}

fn named(failure: Failure, command: &Command) -> Failure {
    let lines = failure.message.split('\n').map(|line| {
        let bare = line.trim_start();
        let indent = &line[..line.len() - bare.len()];
        let renamed = bare
            .split_once(": ")
            .and_then(|(field, rest)| Some(format!("{indent}{}: {rest}", flag_of(field, command)?)));
        renamed.unwrap_or_else(|| line.to_owned())
    });
    let message = lines.collect::<Vec<_>>().join("\n");
    let field = failure.field.as_ref().map(|field| flag_of(field, command).unwrap_or_else(|| field.clone()));
    Failure { message, field, ..failure }
}

/// Returns the argument of the command that sets a field, or `None`.
fn flag_of(field: &str, command: &Command) -> Option<String> {
    let field = field.strip_prefix("schedule.").unwrap_or(field);
    let (path, _) = field.split_once('[').unwrap_or((field, ""));
    let ids = OTHERWISE.iter().find(|(other, _)| *other == path).map_or(&[][..], |(_, ids)| *ids);
    let flags: Vec<String> = ids.iter().filter_map(|id| argument(id, command)).collect();
    if let [others @ .., last] = flags.as_slice() {
        let others = others.join(", ");
        return Some(if others.is_empty() { last.clone() } else { format!("{others} or {last}") });
    }
    let mut rest = field;
    while !rest.is_empty() {
        let (part, behind) = rest.split_once('.').unwrap_or((rest, ""));
        let (name, _) = part.split_once('[').unwrap_or((part, ""));
        if let Some(flag) = argument(name, command) {
            let is_entry = NAMED_ENTRIES.contains(&name) && !behind.is_empty();
            return Some(if is_entry { format!("{flag} {behind}") } else { flag });
        }
        if let Some(flag) = argument(&rest.replace('.', "_"), command) {
            return Some(flag);
        }
        rest = behind;
    }
    None
}

/// Returns how the user writes an argument: its flag, or the name of its place.
fn argument(id: &str, command: &Command) -> Option<String> {
    let argument = command.get_arguments().find(|argument| argument.get_id() == id)?;
    match argument.get_long() {
        Some(long) => Some(format!("--{long}")),
        None => argument.get_value_names()?.first().map(ToString::to_string),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::command_tree::Cli;

    fn command(line: &str) -> Command {
        let path = CommandPath(line.split(' ').map(str::to_owned).collect());
        path.find(Cli::command()).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn field_is_named_by_its_flag() {
        for (line, fields) in [
            (
                "schedule create",
                &[
                    ("schedule.name", "NAME"),
                    ("schedule.tenant", "--tenant"),
                    ("schedule.content.sender", "--sender"),
                    ("schedule.content.reply_to", "--reply-to"),
                    ("schedule.content.cc[1]", "--cc"),
                    ("schedule.content.headers.Bcc", "--header Bcc"),
                    ("schedule.content.variables.name", "--variable name"),
                    ("schedule.content.attachments[0].name", "--attachment"),
                    ("schedule.content", "--text, --inline-text, --html or --inline-html"),
                    ("schedule.content.text", "--text or --inline-text"),
                    ("schedule.template", "--template"),
                    ("schedule.timing", "--cron, --daily, --every or --at"),
                    ("schedule.timing.cron", "--cron"),
                    ("schedule.timing.at", "--at"),
                    ("schedule.timing.daily.hour", "--daily"),
                    ("schedule.timing.daily.days", "--days"),
                    ("schedule.timing.every.period", "--every"),
                    ("schedule.timing.every.anchor_time", "--anchor-time"),
                    ("schedule.zone", "--zone"),
                    ("schedule.start_time", "--start-time"),
                    ("schedule.max_runs", "--max-runs"),
                    ("schedule.paused", "--reason"),
                    ("schedule.policies.min_gap", "--min-gap"),
                    ("schedule.labels.name", "--label name"),
                    ("schedule.audience", "--to, --recipients or --audience"),
                    ("schedule.audience.recipients", "--to or --recipients"),
                    ("schedule.audience.columns[3]", "--recipients"),
                    ("schedule.audience.sealed", "--audience"),
                    ("request_id", "--request-id"),
                ][..],
            ),
            ("schedule update", &[("update_mask", "--clear"), ("etag", "--etag"), ("start_time", "--start-time")]),
            ("schedule backfill", &[("start_time", "--start-time"), ("end_time", "--end-time"), ("max", "--max")]),
            ("schedule trigger", &[("audience.recipients[1]", "--recipients"), ("key_rule", "--first-wins")]),
            (
                "campaign create",
                &[
                    ("canary.percent", "--canary-percent"),
                    ("canary.hold_percent", "--canary-hold-percent"),
                    ("schedule.audience.sealed", "--audience"),
                    ("schedule.timing", "--at"),
                ],
            ),
            ("campaign launch", &[("send_time", "--at")]),
            (
                "relay add",
                &[
                    ("relay.name", "NAME"),
                    ("relay.late_rate_per_second", "--late-rate-per-second"),
                    ("relay.max_sessions", "--max-sessions"),
                    ("relay.tls_name", "--tls-name"),
                ],
            ),
            (
                "message send",
                &[("key", "KEY"), ("to[2]", "--to"), ("send_time", "--at"), ("content.sender", "--sender")],
            ),
            ("template preview", &[("values.city", "--value city"), ("recipient", "--recipient")]),
            ("template send-test", &[("finish_within", "--finish-within"), ("name", "NAME")]),
            ("dead-letter list", &[("filter.since_time", "--since-time"), ("page_size", "--limit"), ("run", "--run")]),
            ("dead-letter requeue", &[("recipients[3]", "RECIPIENT"), ("run", "RUN")]),
            ("run list", &[("states[0]", "--state"), ("selector", "--selector"), ("until_time", "--until-time")]),
            ("clock advance", &[("target_time", "--target-time"), ("by", "DURATION")]),
            ("tenant set", &[("rate_per_second", "--rate-per-second"), ("pools[2]", "--pool"), ("share", "--share")]),
            ("pool set", &[("warm_up[3]", "--warm-up"), ("first_day", "--first-day")]),
        ] {
            let command = command(line);
            for (field, flag) in fields {
                assert_eq!(flag_of(field, &command).as_deref(), Some(*flag), "{line}: {field}");
            }
        }
        for field in ["--zone", "people.csv:4", "run", "schedule", "no relay answers", "byte", ""] {
            assert_eq!(flag_of(field, &command("schedule create")), None, "{field}");
        }
    }

    #[test]
    fn each_line_of_a_message_names_flags() {
        let message = "schedule.zone: is missing (and 1 more field)\n  schedule.content.sender: is missing".to_owned();
        let path = |line: &str| CommandPath(line.split(' ').map(str::to_owned).collect());
        let stop = || Stop::from(Failure::usage("schedule.zone", message.clone(), ""));
        let Stop::Failed(failure) = path("schedule create").name_flags(Cli::command(), stop()) else { panic!() };
        assert_eq!(failure.message, "--zone: is missing (and 1 more field)\n  --sender: is missing");
        assert_eq!(failure.field.as_deref(), Some("--zone"));
        for line in ["apply", "diff", "import crontab"] {
            assert_eq!(path(line).name_flags(Cli::command(), stop()), stop(), "{line}");
        }
    }
}

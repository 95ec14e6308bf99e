//! Replaces API field names in errors by the flags that set them, because the user of a command knows the flags.
//!
//! `apply`, `edit`, `import`, `audience` and `config` read values from files, so their errors name the line or the key.

use super::args::{Question, ScheduleCommand};
use super::failure::{Failure, Stop};

/// Fields whose flag has another name. A longer path comes before its prefix.
#[rustfmt::skip]
const NAMED: &[(&str, &str)] = &[
    ("send_time", "--at"), ("key_rule", "--first-wins"), ("key", "KEY"),
    ("schedule.audience.recipients", "--to or --recipients"), ("schedule.audience.columns", "--recipients"),
    ("schedule.audience.sealed", "--audience"), ("schedule.audience", "--recipients"),
    ("schedule.content.headers", "--header"), ("schedule.content.variables", "--var"),
    ("schedule.content.text", "--text or --inline-text"), ("schedule.content.html", "--html or --inline-html"),
    ("schedule.timing.every.period", "--every"), ("schedule.timing.every.anchor_time", "--anchor"),
    ("schedule.start_time", "--start"), ("schedule.end_time", "--end"), ("schedule.timing.daily.days", "--days"),
    ("schedule.zone", "--tz"), ("schedule.labels", "--label"), ("schedule.name", "NAME"),
    ("schedule.paused", "--reason"), ("relay.name", "NAME"), ("relay.rate_per_second", "--rate"),
    ("relay.late_rate_per_second", "--late-rate"), ("relay.max_sessions", "--sessions"),
    ("rate_per_second", "--rate"), ("filter.since_time", "--since"), ("since_time", "--since"),
    ("until_time", "--until"), ("start_time", "--from"), ("end_time", "--to"), ("target_time", "--to"),
    ("update_mask", "--clear"), ("finish_within", "--timeout"), ("page_size", "--limit"), ("states", "--state"),
    ("selector", "--selector"), ("request_id", "--request-id"), ("peers", "--peer"), ("recipients", "RECIPIENT"),
    ("recipient", "RECIPIENT"), ("canary.percent", "--canary"), ("canary.hold_percent", "--canary-hold"),
    ("by", "DISTANCE"), ("values", "--var"), ("name", "NAME"), ("tenant", "--tenant"),
];
/// Fields that several flags set.
const SEVERAL: [(&str, &str); 2] = [
    ("schedule.content", "--text, --inline-text, --html or --inline-html"),
    ("schedule.timing", "--cron, --daily, --every or --at"),
];
/// Prefixes whose fields have the same name as their flag.
const ALIKE: [&str; 5] = ["schedule.policies.", "schedule.timing.", "schedule.content.", "schedule.", "relay."];
/// Parts that messages and triggers have as schedules have them.
const SHARED: [&str; 4] = ["content", "template", "audience", "policies"];
/// Top-level fields that have the same name as their flag.
#[rustfmt::skip]
const OWN: &[&str] = &[
    "after", "to", "max", "command", "pool", "priority", "reason", "resolution", "concurrency", "share", "warm_up", "first_day",
    "reveille_headers",
];

/// True if the command's values come from its flags.
pub fn give_its_values(question: &Question) -> bool {
    match question {
        Question::Apply(_)
        | Question::Diff(_)
        | Question::Edit(_)
        | Question::Import(_)
        | Question::Audience(_)
        | Question::Config(_) => false,
        Question::Schedule(args) => !matches!(args.command, ScheduleCommand::Apply(_) | ScheduleCommand::Diff(_)),
        _ => true,
    }
}

/// Returns the same failure with flags in place of field names.
pub fn named(stop: Stop) -> Stop {
    let Stop::Failed(failure) = stop else { return stop };
    let lines = failure.message.split('\n').map(|line| {
        let bare = line.trim_start();
        let indent = &line[..line.len() - bare.len()];
        let renamed =
            bare.split_once(": ").and_then(|(field, rest)| Some(format!("{indent}{}: {rest}", flag_of(field)?)));
        renamed.unwrap_or_else(|| line.to_owned())
    });
    let message = lines.collect::<Vec<_>>().join("\n");
    let field = failure.field.as_ref().map(|field| flag_of(field).unwrap_or_else(|| field.clone()));
    Stop::Failed(Box::new(Failure { message, field, ..*failure }))
}

/// Returns the flag that sets a field, or `None`.
fn flag_of(field: &str) -> Option<String> {
    if SHARED.contains(&field.split(['.', '[']).next().unwrap_or_default()) {
        return flag_of(&format!("schedule.{field}"));
    }
    if let Some((_, flags)) = SEVERAL.iter().find(|(path, _)| *path == field) {
        return Some((*flags).to_owned());
    }
    let behind = |path: &str| field.strip_prefix(path).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    if let Some((flag, rest)) = NAMED.iter().find_map(|(path, flag)| Some((flag, behind(path)?))) {
        // Adds which label, header field or variable the path names.
        return Some(rest.strip_prefix('.').map_or_else(|| (*flag).to_owned(), |which| format!("{flag} {which}")));
    }
    let own = OWN.iter().find(|own| behind(own).is_some()).copied();
    let part = own.or_else(|| ALIKE.iter().find_map(|prefix| field.strip_prefix(prefix)))?;
    let name = part.split(['.', '[']).next().unwrap_or_default();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then(|| format!("--{}", name.replace('_', "-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_named_by_its_flag() {
        #[rustfmt::skip]
        let named = [
            ("schedule.content.sender", "--sender"), ("content.headers.Bcc", "--header Bcc"),
            ("schedule.template", "--template"), ("values.city", "--var city"),
            ("schedule.content.reply_to", "--reply-to"), ("schedule.content.headers.Bcc", "--header Bcc"),
            ("schedule.content", "--text, --inline-text, --html or --inline-html"),
            ("schedule.timing", "--cron, --daily, --every or --at"), ("schedule.policies.min_gap", "--min-gap"),
            ("schedule.timing.cron", "--cron"), ("schedule.zone", "--tz"), ("schedule.max_runs", "--max-runs"),
            ("schedule.audience.columns[3]", "--recipients"), ("schedule.labels.tier", "--label tier"),
            ("relay.late_rate_per_second", "--late-rate"), ("relay.tls_name", "--tls-name"), ("peers[1]", "--peer"),
            ("to", "--to"), ("start_time", "--from"), ("schedule.start_time", "--start"),
            ("schedule.timing.at", "--at"), ("schedule.audience.sealed", "--audience"),
            ("canary.hold_percent", "--canary-hold"), ("send_time", "--at"), ("content.sender", "--sender"),
            ("to[2]", "--to"),
        ];
        for (field, flag) in named {
            assert_eq!(flag_of(field).as_deref(), Some(flag), "{field}");
        }
        for field in ["--tz", "people.csv:4", "run", "schedule", "no relay answers", "byte"] {
            assert_eq!(flag_of(field), None, "{field}");
        }
    }

    #[test]
    fn each_line_of_a_message_names_flags() {
        let message = "schedule.zone: is missing (and 1 more field)\n  schedule.content.sender: is missing".to_owned();
        let renamed = named(Failure::usage("schedule.zone", message, "").into());
        let Stop::Failed(failure) = renamed else { panic!("{renamed:?}") };
        assert_eq!(failure.message, "--tz: is missing (and 1 more field)\n  --sender: is missing");
        assert_eq!(failure.field.as_deref(), Some("--tz"));
    }
}

//! Plans each line of a crontab: the schedule's name, time, recipients and content, or why it is left out.
//!
//! Values in the file take precedence over flags, which fill in missing values. `TZ` is the exception, because most
//! crons do not apply it to the time fields ([`Source::Tz`]).

use reveille_ledger::address::{Address, Mailbox};
use serde::Serialize;

use super::crontab::{Crontab, Job, Line};
use super::mailer::{self, Mail};
use super::name::{Names, words_of};
use super::shell;
use crate::cli::escape;

/// Limit of characters of a subject made from a command or a comment.
const SUBJECT_CHARACTERS_MAX: usize = 120;
/// Limit of characters of the file's name in a pause reason, which has at most 500.
const FILE_CHARACTERS_MAX: usize = 300;
/// Beginning of the placeholder text, until the user writes a text.
pub const PLACEHOLDER: &str = "This placeholder stands in for a text that is not written yet.";
/// Label of an imported schedule; its value is empty.
pub const LABEL: &str = "crontab";
/// Variable for a brace: templates cannot otherwise contain a literal `{{`.
pub const BRACE: &str = "brace";

/// Flags of the command.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// The file's name for messages.
    pub file: String,
    /// Value of `--zone`.
    pub zone: Option<String>,
    /// Time zone of this machine. `None` if it is unknown.
    pub machine: Option<String>,
    /// Value of `--sender`.
    pub sender: Option<String>,
    /// Value of `--to`.
    pub to: Vec<String>,
    /// Value of `--prefix`.
    pub prefix: String,
}

/// The plan for one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Line number in the file, from 1.
    pub line: u64,
    /// The line's text.
    pub source: String,
    /// The schedule, or why the line cannot be imported.
    pub planned: Result<Planned, String>,
}

/// The schedule planned for a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Name of the schedule, unique within the file.
    pub name: String,
    /// Five fields or a nickname.
    pub cron: String,
    /// The time zone and its source. `None` if no source names one.
    pub zone: Option<(String, Source)>,
    /// Line number of the setting that names the zone. Unused if the zone comes from elsewhere.
    pub zone_line: u64,
    /// The user that runs the command; `None` in the user form.
    pub user: Option<String>,
    /// Addresses, without duplicates.
    pub recipients: Vec<String>,
    /// Sender. `None` if neither the line nor a flag names one.
    pub sender: Option<String>,
    /// Subject, as plain text.
    pub subject: String,
    /// Text of the email, as plain text.
    pub text: String,
    /// Reason of the schedule's pause.
    pub paused: String,
    /// Differences from cron's behaviour.
    pub warnings: Vec<String>,
    /// Why the line is left out although it could be read.
    pub lacks: Option<String>,
}

/// The source that names the zone of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `CRON_TZ` above the line.
    CronTz,
    /// `TZ` above the line, without `--zone`. Solaris and AIX apply it to the time fields; Debian's cron and cronie
    /// apply it only to the command.
    Tz,
    /// `--zone`.
    Flag,
    /// Zone of this machine.
    Machine,
}

/// Plans all lines of a file.
pub fn plan(crontab: &Crontab, choices: &Choices) -> Vec<Plan> {
    let mut names = Names::new(&choices.prefix);
    let one = |line: &Line| {
        let planned = line.job.as_ref().map(|job| planned(line.number, job, choices, &mut names)).map_err(Clone::clone);
        Plan { line: line.number, source: line.source.clone(), planned }
    };
    crontab.lines.iter().map(one).collect()
}

fn planned(number: u64, job: &Job, choices: &Choices, names: &mut Names) -> Planned {
    let commands = shell::read(&job.command).unwrap_or_default();
    let mail = mailer::find(&commands, job.input.as_deref());
    let mut warnings = job.warnings.clone();
    warnings.extend(mail.iter().flat_map(|mail| mail.warnings.clone()));
    let subject = mail.as_ref().and_then(|mail| mail.subject.clone());
    let name = names.give(&subject.clone().unwrap_or_else(|| words_of(&job.command, &commands)));
    let recipients = recipients(job, mail.as_ref(), choices, &mut warnings);
    let sender = sender(job, mail.as_ref(), choices, &mut warnings);
    let place = format!("{}:{number}", shortened(&choices.file));
    let is_silent = mail.is_none() && job.settings.mail_to.as_deref() == Some("");
    let whole = mail.and_then(|mail| mail.text).filter(|text| !text.trim().is_empty());
    let zone = zone(job, choices, &mut warnings);
    let next = if whole.is_some() { "check its content" } else { "write its content" };
    Planned {
        name,
        cron: job.cron.clone(),
        zone_line: if zone.as_ref().is_some_and(|(_, source)| *source == Source::CronTz) {
            job.settings.cron_tz_line
        } else {
            job.settings.tz_line
        },
        zone,
        user: job.user.clone(),
        subject: title(&subject.or_else(|| job.comment.clone()).unwrap_or_else(|| job.command.clone())),
        text: whole.unwrap_or_else(|| placeholder(&job.command)),
        paused: format!("imported from {place}; {next}, then resume"),
        lacks: lacks(&recipients, sender.as_ref(), is_silent),
        recipients,
        sender,
        warnings,
    }
}

fn zone(job: &Job, choices: &Choices, warnings: &mut Vec<String>) -> Option<(String, Source)> {
    let settings = &job.settings;
    // The C library also accepts a zone name after a colon.
    let named = |zone: &Option<String>| zone.as_ref().map(|zone| zone.trim_start_matches(':').to_owned());
    if let Some(zone) = named(&settings.cron_tz) {
        return Some((zone, Source::CronTz));
    }
    let tz = named(&settings.tz);
    if let Some(zone) = &choices.zone {
        if let Some(tz) = tz.filter(|tz| tz != zone) {
            warnings.push(format!("TZ={tz} is left to the command; --zone {zone} is taken for the time"));
        }
        return Some((zone.clone(), Source::Flag));
    }
    if let Some(zone) = tz {
        let why = "most crons leave TZ to the command and keep time in the machine's zone";
        warnings.push(format!("the zone is that of TZ={zone}, but {why}: check it, or say --zone"));
        return Some((zone, Source::Tz));
    }
    choices.machine.clone().map(|zone| (zone, Source::Machine))
}

fn recipients(job: &Job, mail: Option<&Mail>, choices: &Choices, warnings: &mut Vec<String>) -> Vec<String> {
    let mail_to = || job.settings.mail_to.as_deref().unwrap_or_default();
    let said: Vec<String> = match mail {
        Some(mail) => mail.to.clone(),
        None => mail_to().split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect(),
    };
    let mut recipients: Vec<String> = Vec::new();
    for one in said {
        match Mailbox::parse(&one) {
            Ok(mailbox) => push(&mut recipients, &mailbox.address),
            Err(_) if is_local(&one) => {
                warnings.push(format!("`{one}` is a user of that machine and no address"));
            }
            Err(error) => warnings.push(format!("`{one}` is not a recipient: {error}")),
        }
    }
    if recipients.is_empty() {
        choices.to.iter().filter_map(|one| Address::parse(one).ok()).for_each(|one| push(&mut recipients, &one));
    }
    recipients
}

fn push(recipients: &mut Vec<String>, address: &Address) {
    let is_new = |known: &String| Address::parse(known).is_ok_and(|known| known.key() != address.key());
    if recipients.iter().all(is_new) {
        recipients.push(address.as_given().to_owned());
    }
}

fn is_local(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn sender(job: &Job, mail: Option<&Mail>, choices: &Choices, warnings: &mut Vec<String>) -> Option<String> {
    let said = mail.and_then(|mail| mail.sender.clone()).or_else(|| job.settings.mail_from.clone());
    match said.map(|said| (Mailbox::parse(&said).map(|_| said.clone()), said)) {
        Some((Ok(said), _)) => Some(said),
        Some((Err(error), said)) => {
            warnings.push(format!("`{said}` is not a sender: {error}"));
            choices.sender.clone()
        }
        None => choices.sender.clone(),
    }
}

fn lacks(recipients: &[String], sender: Option<&String>, is_silent: bool) -> Option<String> {
    match (recipients, sender) {
        ([], _) if is_silent => Some("MAILTO is empty: cron sends no email; name the recipients with --to".to_owned()),
        ([], _) => Some("no recipient: set MAILTO above the line, or give --to".to_owned()),
        (_, None) => Some("no sender: give --sender, or set MAILFROM above the line".to_owned()),
        _ => None,
    }
}

/// The text does not contain the line number, so that a line that moves stays the same schedule.
fn placeholder(command: &str) -> String {
    format!(
        "{PLACEHOLDER}\n\nA crontab ran this command, and cron mailed what it printed:\n\n  {command}\n\nReveille runs no \
         command. Write what is to be sent, then resume the schedule.\n"
    )
}

/// Returns the text on one line, cut to a subject's length.
fn title(text: &str) -> String {
    let line: String = text.chars().map(|one| if escape::is_harmful(one) { ' ' } else { one }).collect();
    cut(line.trim(), SUBJECT_CHARACTERS_MAX)
}

/// Shortens a long path at its beginning, because its end is more informative.
fn shortened(file: &str) -> String {
    let file = escape::escaped(file, &[]);
    match file.chars().count().checked_sub(FILE_CHARACTERS_MAX) {
        Some(more @ 1..) => format!("…{}", file.chars().skip(more).collect::<String>()),
        _ => file,
    }
}

/// Returns at most `characters` characters. If some are cut, the last one is an ellipsis.
pub fn cut(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Returns a template that renders to this text. Braces that would begin template code become the variable [`BRACE`].
pub fn template(text: &str) -> String {
    let mut template = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(one) = characters.next() {
        match (one, characters.peek()) {
            ('{', Some('{' | '%' | '#')) => template.push_str(&format!("{{{{ {BRACE} }}}}")),
            _ => template.push(one),
        }
    }
    template
}

#[cfg(test)]
mod tests {
    use super::super::crontab::{Form, read};
    use super::*;

    fn choices() -> Choices {
        Choices {
            file: "tab".to_owned(),
            machine: Some("Etc/UTC".to_owned()),
            sender: Some("cron@x.org".to_owned()),
            ..Choices::default()
        }
    }

    fn of(text: &str, choices: &Choices) -> Planned {
        let plans = plan(&read(text.as_bytes(), Form::User), choices);
        plans.into_iter().next().expect("a line").planned.expect("a job")
    }

    #[test]
    fn job_becomes_an_email_to_the_recipients_of_cron() {
        let planned = of("MAILTO=a@x.org, A@x.org,b@x.org\n# Nightly\n0 9 * * * /bin/report.sh {{x\n", &choices());
        assert_eq!(planned.recipients, ["a@x.org", "b@x.org"]);
        assert_eq!((planned.name.as_str(), planned.subject.as_str()), ("report-x", "Nightly"));
        assert_eq!(planned.paused, "imported from tab:3; write its content, then resume");
        assert!(
            planned.text.starts_with(PLACEHOLDER) && planned.text.contains("/bin/report.sh {{x"),
            "{}",
            planned.text
        );
        assert_eq!((planned.sender.as_deref(), planned.lacks), (Some("cron@x.org"), None));
    }

    #[test]
    fn command_that_sends_email_gives_subject_text_and_recipients() {
        let planned = of("MAILTO=root\n0 9 * * 1 mail -r me@x.org -s 'Hi all' a@x.org%Dear all,%Bye\n", &choices());
        assert_eq!(
            (planned.name.as_str(), planned.subject.as_str(), planned.text.as_str()),
            ("hi-all", "Hi all", "Dear all,\nBye")
        );
        assert_eq!((planned.recipients, planned.sender.as_deref()), (vec!["a@x.org".to_owned()], Some("me@x.org")));
        assert_eq!(
            (planned.paused.as_str(), planned.warnings),
            ("imported from tab:2; check its content, then resume", vec![])
        );
    }

    #[test]
    fn zone_comes_from_nearest_source() {
        let with = |tz: Option<&str>| Choices { zone: tz.map(str::to_owned), ..choices() };
        for (above, tz, zone, source, warned) in [
            ("CRON_TZ=Asia/Tokyo\nTZ=UTC\n", Some("Europe/Rome"), "Asia/Tokyo", Source::CronTz, 0),
            ("CRON_TZ=:Asia/Tokyo\n", None, "Asia/Tokyo", Source::CronTz, 0),
            ("TZ=UTC\n", Some("Europe/Rome"), "Europe/Rome", Source::Flag, 1),
            ("TZ=UTC\n", None, "UTC", Source::Tz, 1),
            ("", Some("Europe/Rome"), "Europe/Rome", Source::Flag, 0),
            ("", None, "Etc/UTC", Source::Machine, 0),
        ] {
            let planned = of(&format!("MAILTO=a@x.org\n{above}0 9 * * * x\n"), &with(tz));
            assert_eq!(planned.zone, Some((zone.to_owned(), source)), "{above:?} {tz:?}");
            assert_eq!(planned.warnings.len(), warned, "{:?}", planned.warnings);
        }
        assert_eq!(of("0 9 * * * x\n", &Choices { machine: None, ..choices() }).zone, None);
    }

    #[test]
    fn missing_recipients_are_named_with_the_flag_that_gives_them() {
        let lacks = |above: &str, choices: &Choices| of(&format!("{above}0 9 * * * x\n"), choices).lacks;
        let to = Choices { to: vec!["z@x.org".to_owned()], ..choices() };
        assert!(lacks("", &choices()).is_some_and(|lacks| lacks.contains("MAILTO above the line, or give --to")));
        assert!(lacks("MAILTO=\"\"\n", &choices()).is_some_and(|lacks| lacks.contains("cron sends no email")));
        assert!(lacks("MAILTO=root\n", &choices()).is_some_and(|lacks| lacks.contains("--to")));
        for above in ["", "MAILTO=\"\"\n", "MAILTO=root\n"] {
            assert_eq!(lacks(above, &to), None, "{above}");
        }
        let no_sender = Choices { sender: None, ..choices() };
        assert!(lacks("MAILTO=a@x.org\n", &no_sender).is_some_and(|lacks| lacks.contains("--sender")));
        assert_eq!(lacks("MAILTO=a@x.org\nMAILFROM=c@x.org\n", &no_sender), None);
        let planned = of("MAILTO=root\n0 9 * * * x\n", &to);
        assert_eq!(planned.warnings, ["`root` is a user of that machine and no address"]);
    }

    #[test]
    fn names_stay_when_lines_are_left_out_for_lack_of_recipients() {
        let text = "0 1 * * * job\nMAILTO=a@x.org\n0 2 * * * job\n";
        let names = |choices: &Choices| {
            let plans = plan(&read(text.as_bytes(), Form::User), choices);
            plans.into_iter().filter_map(|plan| plan.planned.ok()).map(|planned| planned.name).collect::<Vec<_>>()
        };
        let to = Choices { to: vec!["z@x.org".to_owned()], ..choices() };
        assert_eq!(
            (names(&choices()), names(&to)),
            (vec!["job".into(), "job-2".into()], vec!["job".into(), "job-2".into()])
        );
    }

    #[test]
    fn braces_of_commands_are_no_code_of_templates() {
        for (text, expected) in [
            ("awk '{print}' {a}", "awk '{print}' {a}"),
            ("{{a}}", "{{ brace }}{a}}"),
            ("{%x%} {#y#}", "{{ brace }}%x%} {{ brace }}#y#}"),
            ("{{{", "{{ brace }}{{ brace }}{"),
        ] {
            assert_eq!(template(text), expected);
        }
    }

    #[test]
    fn subject_holds_nothing_that_turns_a_line_around() {
        let planned = of("# \u{202e}evil\u{7} \u{2066}bell\n0 9 * * * x\n", &choices());
        assert_eq!(planned.subject, "evil   bell");
    }

    #[test]
    fn long_names_and_subjects_are_cut() {
        let planned =
            of(&format!("0 9 * * * {}\n", "x ".repeat(400)), &Choices { file: "d/".repeat(400), ..choices() });
        assert_eq!(planned.subject.chars().count(), SUBJECT_CHARACTERS_MAX);
        assert!(planned.paused.chars().count() < 400, "{}", planned.paused);
    }

    mod fuzz {
        use std::collections::BTreeSet;

        use proptest::prelude::*;
        use reveille_fuzz::{cases, text};

        use super::*;

        #[rustfmt::skip]
        const FRAGMENTS: &[&str] = &[
            "* * * * * ", "0 9 * * 1-5 ", "@daily ", "@reboot ", "61 * * * * ", "root ", "MAILTO=a@example.org\n",
            "MAILTO=\"\"\n", "CRON_TZ=Europe/Berlin\n", "RANDOM_DELAY=5\n", "# Report\n", "#", "echo hi",
            "| mail -s 'x y' a@example.org", "sendmail -t", "<<< ", "%", "\\%", "'", "\"", "\\", "$(date)", "`x`",
            ";", "&&", ">/dev/null 2>&1", "{{ x }}", "\n", "\n", "\r\n", " ", "\t", "\0", "\u{feff}", "=", "é",
        ];

        proptest! {
            #![proptest_config(cases(1_000))]

            #[test]
            fn every_line_has_a_plan_and_every_schedule_its_own_name(text in text(FRAGMENTS, 40), system in any::<bool>()) {
                let form = if system { Form::System } else { Form::User };
                let crontab = read(text.as_bytes(), form);
                let numbers: Vec<u64> = crontab.lines.iter().map(|line| line.number).collect();
                prop_assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
                prop_assert!(numbers.last().is_none_or(|last| *last <= 1 + text.matches('\n').count() as u64));
                let plans = plan(&crontab, &choices());
                prop_assert_eq!(plans.iter().map(|plan| plan.line).collect::<Vec<_>>(), numbers);
                let names: Vec<&str> =
                    plans.iter().filter_map(|plan| Some(plan.planned.as_ref().ok()?.name.as_str())).collect();
                prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
                prop_assert!(names.iter().all(|name| (1..=128).contains(&name.len())), "{names:?}");
            }
        }
    }
}

//! Reads a crontab into lines: comments, settings, and jobs with the settings that apply to them.
//!
//! The grammar is that of crontab(5). A setting is `NAME = value`, optionally quoted, and applies to the lines below
//! it. A `#` begins a comment only at the beginning of a line. In a command, the first `%` without a backslash ends the
//! command; the rest is its standard input, in which each further `%` is a line end. The system form has a user before
//! the command.
//!
//! CRLF, a byte order mark and a missing final line end are accepted; all but the byte order mark get a note. A line
//! that is not UTF-8 or contains a NUL is refused, and the other lines are read.

use super::shell;
use super::timing::{self, BLANKS};

/// Limit of a command's characters. "The maximum permitted length for the command field is 998 characters", says
/// crontab(5) of Debian.
const COMMAND_CHARACTERS_MAX: usize = 998;

/// The columns of a crontab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Five fields and a command: `crontab -l`.
    User,
    /// Five fields, a user and a command: `/etc/crontab` and `/etc/cron.d`.
    System,
}

/// The content of a crontab.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crontab {
    /// The jobs, and lines that cannot be read as jobs.
    pub lines: Vec<Line>,
    /// Remarks about the whole file.
    pub notes: Vec<String>,
}

/// A job, or a line that cannot be read as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Line number in the file, from 1.
    pub number: u64,
    /// The line's text.
    pub source: String,
    /// The job, or why the line cannot be imported.
    pub job: Result<Job, String>,
}

/// A command and its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Five fields or a nickname, checked by the calendar.
    pub cron: String,
    /// The user that runs the command; `None` in the user form.
    pub user: Option<String>,
    /// The command that the shell receives.
    pub command: String,
    /// Standard input of the command, without a final line end. `None` without a `%`.
    pub input: Option<String>,
    /// The comment directly above the job.
    pub comment: Option<String>,
    /// Settings that apply to the job.
    pub settings: Settings,
    /// Differences from cron's behaviour, and changes made to the line.
    pub warnings: Vec<String>,
}

/// Settings for email and time; others concern only the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `MAILTO`. Empty means that cron sends no email.
    pub mail_to: Option<String>,
    /// `MAILFROM` of cronie.
    pub mail_from: Option<String>,
    /// `CRON_TZ`: time zone of the time fields.
    pub cron_tz: Option<String>,
    /// Line number of `CRON_TZ`, or 0.
    pub cron_tz_line: u64,
    /// `TZ`: in most crons the zone of the command, not of the time fields.
    pub tz: Option<String>,
    /// Line number of `TZ`, or 0.
    pub tz_line: u64,
    /// `RANDOM_DELAY` of cronie, in minutes.
    pub random_delay: Option<String>,
}

impl Settings {
    fn set(&mut self, number: u64, name: &str, value: String) {
        match name {
            "MAILTO" => self.mail_to = Some(value),
            "MAILFROM" => self.mail_from = some(value),
            "CRON_TZ" => (self.cron_tz, self.cron_tz_line) = (some(value), number),
            "TZ" => (self.tz, self.tz_line) = (some(value), number),
            "RANDOM_DELAY" => self.random_delay = some(value).filter(|minutes| minutes != "0"),
            _ => {}
        }
    }
}

fn some(value: String) -> Option<String> {
    (!value.is_empty()).then_some(value)
}

/// Reads the content of a file.
pub fn read(bytes: &[u8], form: Form) -> Crontab {
    let bytes = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
    let mut crontab = Crontab::default();
    let mut reader = Reader { form, settings: Settings::default(), comment: None };
    let (whole, is_ended) = match bytes.strip_suffix(b"\n") {
        Some(whole) => (whole, true),
        None => (bytes, bytes.is_empty()),
    };
    for (number, line) in (1..).zip(whole.split(|byte| *byte == b'\n')) {
        if let Some(line) = reader.line(number, line.strip_suffix(b"\r").unwrap_or(line)) {
            crontab.lines.push(line);
        }
    }
    if bytes.windows(2).any(|pair| pair == b"\r\n") {
        crontab.notes.push("lines end in CRLF; read as if they ended in LF, which cron does not do".to_owned());
    }
    if !is_ended {
        crontab.notes.push("the last line has no line end: cron may have ignored it, or the whole file".to_owned());
    }
    crontab
}

struct Reader {
    form: Form,
    settings: Settings,
    comment: Option<String>,
}

impl Reader {
    /// Returns the job on a line. `None` for a blank line, a comment or a setting.
    fn line(&mut self, number: u64, bytes: &[u8]) -> Option<Line> {
        let comment = self.comment.take();
        let refused = |problem: &str| {
            let source = String::from_utf8_lossy(bytes).into_owned();
            Some(Line { number, source, job: Err(problem.to_owned()) })
        };
        let Ok(text) = std::str::from_utf8(bytes) else { return refused("not UTF-8; save the file as UTF-8") };
        if text.contains('\0') {
            return refused("the line holds a NUL byte; the file is damaged, or no crontab");
        }
        let line = text.trim_matches(BLANKS);
        if line.is_empty() {
            return None;
        }
        if let Some(words) = line.strip_prefix('#') {
            self.comment = title(words);
            return None;
        }
        if let Some((name, value)) = setting(line) {
            self.settings.set(number, &name, value);
            // A setting between a comment and a job does not separate them.
            self.comment = comment;
            return None;
        }
        Some(Line { number, source: line.to_owned(), job: self.job(line, comment) })
    }

    fn job(&self, line: &str, comment: Option<String>) -> Result<Job, String> {
        let timing = timing::read(line)?;
        let (user, rest) = match self.form {
            Form::User => (None, timing.rest),
            Form::System => {
                let (user, rest) = timing::word(timing.rest);
                (Some(user.to_owned()), rest)
            }
        };
        if rest.is_empty() {
            return Err(match self.form {
                Form::User => "no command follows the time fields".to_owned(),
                Form::System => "no command follows the time fields and the user; is it the user form (--user)?".into(),
            });
        }
        let characters = rest.chars().count();
        if characters > COMMAND_CHARACTERS_MAX {
            let why = format!("the command has {characters} characters, and cron takes {COMMAND_CHARACTERS_MAX}");
            return Err(format!("{why}: it never ran as it stands here"));
        }
        let mut warnings = timing.warnings;
        if self.form == Form::User && timing::word(rest).0 == "root" {
            warnings.push("the command begins with `root`: if this is the system form, say --system".to_owned());
        }
        if let Some(minutes) = &self.settings.random_delay {
            warnings.push(format!("RANDOM_DELAY={minutes} is not taken over: it fires on the minute"));
        }
        let (command, input) = percent(rest);
        if input.is_some() && shell::read(&command).is_none() {
            let cut = "an unescaped % ends the command inside quotes, in cron too, so that it fails there";
            warnings.push(format!("{cut}; if the % is meant, write \\%"));
        }
        Ok(Job { cron: timing.cron, user, command, input, comment, settings: self.settings.clone(), warnings })
    }
}

/// Parses `NAME = value`; `None` if the line is no setting. Ignores blanks around name, `=` and value, and removes one
/// pair of quotes from name and value.
fn setting(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let name = unquoted(name.trim_matches(BLANKS));
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| (name.to_owned(), unquoted(value.trim_matches(BLANKS)).to_owned()))
}

fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

/// Returns the comment if it can name a job. Rulers, column headings and disabled jobs cannot.
fn title(words: &str) -> Option<String> {
    let words = words.trim_start_matches('#').trim();
    let words = words.strip_prefix("Ansible:").unwrap_or(words).trim();
    let is_text = words.chars().any(char::is_alphabetic);
    let lower = words.to_lowercase();
    let is_heading = lower.contains("dow") && (lower.contains("dom") || lower.contains("mon"));
    let is_line = timing::read(words).is_ok() || setting(words).is_some();
    (is_text && !is_heading && !is_line).then(|| words.to_owned())
}

/// Splits the command from its input. `\%` is a percent sign, the first plain `%` ends the command, and further ones
/// are line ends.
fn percent(text: &str) -> (String, Option<String>) {
    let (mut command, mut input) = (String::new(), None::<String>);
    let mut characters = text.chars().peekable();
    while let Some(one) = characters.next() {
        match (one, &mut input) {
            ('\\', into) if characters.peek() == Some(&'%') => {
                into.as_mut().unwrap_or(&mut command).extend(characters.next());
            }
            ('%', None) => input = Some(String::new()),
            ('%', Some(input)) => input.push('\n'),
            (one, into) => into.as_mut().unwrap_or(&mut command).push(one),
        }
    }
    (command.trim_end_matches(BLANKS).to_owned(), input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Crontab {
        read(text.as_bytes(), Form::User)
    }

    fn jobs(text: &str) -> Vec<Job> {
        user(text).lines.into_iter().map(|line| line.job.expect("a job")).collect()
    }

    fn refused(bytes: &[u8], form: Form) -> (u64, String) {
        let line = read(bytes, form).lines.into_iter().find(|line| line.job.is_err()).expect("a refused line");
        (line.number, line.job.expect_err("refused"))
    }

    #[test]
    fn settings_hold_for_the_lines_below_them() {
        let text = "MAILTO=a@example.com\n0 1 * * * one\n MAILTO = \"b@example.com, c@example.com\" \nCRON_TZ='Asia/Tokyo'\n\
                    0 2 * * * two\nMAILTO=\"\"\nCRON_TZ=\nMAILFROM=cron@example.com\nTZ=UTC\n0 3 * * * three\n";
        let jobs = jobs(text);
        let settings =
            |job: &Job| (job.settings.mail_to.clone(), job.settings.cron_tz.clone(), job.settings.tz.clone());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            jobs.iter().map(settings).collect::<Vec<_>>(),
            [
                (some("a@example.com"), None, None),
                (some("b@example.com, c@example.com"), some("Asia/Tokyo"), None),
                (some(""), None, some("UTC")),
            ]
        );
        assert_eq!(jobs.last().and_then(|job| job.settings.mail_from.clone()), some("cron@example.com"));
    }

    #[test]
    fn only_names_before_an_equals_sign_make_a_setting() {
        assert_eq!(setting("PATH=/bin:/usr/bin"), Some(("PATH".into(), "/bin:/usr/bin".into())));
        assert_eq!(setting("\"MAILTO\" = x # y"), Some(("MAILTO".into(), "x # y".into())));
        assert_eq!(setting("A=\"b"), Some(("A".into(), "\"b".into())), "one quote alone is part of the value");
        for line in ["0 9 * * * a=b", "@daily A=b c", "=x", "9A=b", "a b=c"] {
            assert_eq!(setting(line), None, "{line}");
        }
    }

    #[test]
    fn percent_signs_end_a_command_and_the_lines_of_its_input() {
        for (text, command, input) in [
            ("date +\\%F", "date +%F", None),
            ("mail -s Hi a%Dear all,%%Bye", "mail -s Hi a", Some("Dear all,\n\nBye")),
            ("cat %100\\% done", "cat", Some("100% done")),
            ("cat%", "cat", Some("")),
            ("echo \\n", "echo \\n", None),
        ] {
            assert_eq!(percent(text), (command.to_owned(), input.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn percent_inside_quotes_is_warned_of() {
        let warnings = |command: &str| jobs(&format!("0 9 * * * {command}\n")).remove(0).warnings;
        let cut = warnings("mail -s \"Report $(date +%F)\" a@example.com < body.txt");
        assert!(cut.iter().any(|warning| warning.contains("write \\%")), "{cut:?}");
        for whole in ["mail -s \"Report $(date +\\%F)\" a@example.com", "mail -s Hi a@example.com%Dear all,%%Bye"] {
            assert_eq!(warnings(whole), [""; 0], "{whole}");
        }
    }

    #[test]
    fn comment_right_above_belongs_to_job_and_headings_to_none() {
        let above = |comment: &str| jobs(&format!("{comment}0 9 * * * x\n")).remove(0).comment;
        assert_eq!(above("# Nightly report\n"), Some("Nightly report".to_owned()));
        assert_eq!(above("#Ansible: backup\n"), Some("backup".to_owned()));
        assert_eq!(above("# Nightly report\nMAILTO=a@example.com\n"), Some("Nightly report".to_owned()));
        for none in
            ["", "# Nightly report\n\n", "#-----\n", "# m h  dom mon dow   command\n", "#0 8 * * * y\n", "# A=b\n"]
        {
            assert_eq!(above(none), None, "{none}");
        }
    }

    #[test]
    fn system_form_has_a_user() {
        let line =
            read(b"17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n", Form::System).lines.remove(0);
        let job = line.job.expect("a job");
        assert_eq!(
            (job.user.as_deref(), job.command.as_str()),
            (Some("root"), "cd / && run-parts --report /etc/cron.hourly")
        );
        assert!(refused(b"0 9 * * * x\n", Form::System).1.contains("--user"));
        let job = jobs("0 9 * * * root /bin/x\n").remove(0);
        assert!(job.warnings.iter().any(|warning| warning.contains("--system")), "{:?}", job.warnings);
    }

    #[test]
    fn bad_line_does_not_affect_other_lines() {
        let text = b"0 1 * * * one\nhello\n@reboot two\n0 9 * * * \xFF\n0 9 * * * a\0b\n0 9 * * *\n\n0 2 * * * three";
        let read = read(text, Form::User);
        let lines: Vec<(u64, bool)> = read.lines.iter().map(|line| (line.number, line.job.is_ok())).collect();
        assert_eq!(lines, [(1, true), (2, false), (3, false), (4, false), (5, false), (6, false), (8, true)]);
        assert!(read.notes.iter().any(|note| note.contains("no line end")), "{:?}", read.notes);
    }

    #[test]
    fn files_of_other_systems_are_read() {
        let read = read(b"\xEF\xBB\xBF# x\r\nMAILTO=a@example.com\r\n0 9 * * * cmd\r\n", Form::User);
        let job = read.lines.first().and_then(|line| line.job.clone().ok()).expect("a job");
        assert_eq!((job.command.as_str(), job.settings.mail_to.as_deref()), ("cmd", Some("a@example.com")));
        assert_eq!(read.notes.len(), 1, "CRLF is noted once: {:?}", read.notes);
        assert_eq!((user("").lines.len(), user("").notes.len()), (0, 0));
    }

    #[test]
    fn command_is_as_long_as_cron_takes_and_no_longer() {
        let line = |length: usize| format!("0 9 * * * {}\n", "x".repeat(length));
        assert!(user(&line(998)).lines.iter().all(|line| line.job.is_ok()));
        assert!(refused(line(999).as_bytes(), Form::User).1.contains("999 characters"));
    }
}

//! Where words go: data to stdout in the format that was asked for, talk to stderr, questions to whoever
//! sits at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::args::{ColorWhen, Format, Global};
use super::failure::{Exit, Failure, Stop};
use super::manifest::tree::Node;
use super::manifest::write;
use super::view::{Row, View, sheet};

/// Stdout, stderr and stdin as the global flags want them.
#[derive(Debug)]
pub struct Terminal {
    format: Format,
    paint: bool,
    paint_talk: bool,
    verbose: bool,
    quiet: bool,
    yes: bool,
}

impl Terminal {
    /// By the flags, NO_COLOR, and what stdout and stderr are.
    pub fn new(global: &Global) -> Terminal {
        let wanted = |is_terminal: bool| match global.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        Terminal {
            format: global.output,
            paint: wanted(io::stdout().is_terminal()),
            paint_talk: wanted(io::stderr().is_terminal()),
            verbose: global.verbose > 0,
            quiet: global.quiet,
            yes: global.yes,
        }
    }

    /// The format of the data.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Is somebody looking at stderr, and wants to be talked to?
    pub fn is_watched(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// One object.
    pub fn show<V: View>(&self, view: &V) -> Result<(), Stop> {
        match self.format {
            Format::Table => self.data(&view.text(self.paint)),
            Format::Json => self.data(&pretty(view)),
            Format::Yaml => self.data(&yaml(view)),
            Format::Name => self.data(&view.name()),
        }
    }

    /// A list of objects. An empty one is an empty table and a word on stderr.
    pub fn list<R: Row>(&self, rows: &[R]) -> Result<(), Stop> {
        match self.format {
            Format::Json => self.data(&pretty(&rows)),
            Format::Yaml => self.data(&yaml(&rows)),
            _ if rows.is_empty() => {
                self.say(&format!("no {}", R::NOUN));
                Ok(())
            }
            Format::Table => self.data(&sheet::table(R::COLUMNS, rows.iter().map(Row::cells).collect(), self.paint)),
            Format::Name => self.data(&rows.iter().map(View::name).collect::<Vec<_>>().join("\n")),
        }
    }

    /// A document for `apply -f`: YAML, unless another format is asked for.
    pub fn manifest(&self, name: &str, node: &Node) -> Result<(), Stop> {
        match self.format {
            Format::Table | Format::Yaml => self.data(&write::yaml(node)),
            Format::Json => self.data(&write::json(node)),
            Format::Name => self.data(name),
        }
    }

    /// Bytes for programs, as they are.
    pub fn raw(&self, text: &str) -> Result<(), Stop> {
        self.data(text.trim_end_matches("\r\n"))
    }

    /// Lines for people, one after the other.
    pub fn lines(&self, lines: &[String]) -> Result<(), Stop> {
        if lines.is_empty() { Ok(()) } else { self.data(&harmless(&lines.join("\n"))) }
    }

    /// One object of a stream: a line, or a document of YAML.
    pub fn line<R: Row>(&self, row: &R, words: &str) -> Result<(), Stop> {
        match self.format {
            Format::Table => self.data(words),
            Format::Json => self.data(&compact(row)),
            Format::Yaml => self.data(&format!("---\n{}", yaml(row))),
            Format::Name => self.data(&row.name()),
        }
    }

    fn data(&self, text: &str) -> Result<(), Stop> {
        let mut stdout = io::stdout().lock();
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::PipeClosed),
            Err(error) => {
                Err(Failure::general(format!("stdout cannot be written: {error}"), "look at where stdout goes").into())
            }
        }
    }

    /// A word for whoever looks on; not with `-q`.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            talk(&harmless(text));
        }
    }

    /// A detail, with `-v` only.
    pub fn detail(&self, text: &str) {
        if self.verbose {
            talk(&harmless(text));
        }
    }

    /// Asks before something that cannot be taken back. With `--yes` it is answered; without a terminal to
    /// ask at it is refused.
    pub fn confirm(&self, question: &str) -> Result<(), Stop> {
        if self.yes {
            return Ok(());
        }
        let refused = |message: String| {
            let next = Some("the same command with --yes".to_owned());
            Failure { exit: Exit::Usage, reason: "NOT_CONFIRMED".into(), message, next, ..Failure::default() }
        };
        if !io::stdin().is_terminal() {
            return Err(refused(format!("{question} (nobody to ask: stdin is no terminal)")).into());
        }
        let mut stderr = io::stderr().lock();
        let asked = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
        let mut answer = String::new();
        let read = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
        match (read, answer.trim()) {
            (Ok(_), "y" | "Y" | "yes") => Ok(()),
            _ => Err(refused("not confirmed: nothing was changed".to_owned()).into()),
        }
    }

    /// Says how it ended, and answers with the exit code.
    pub fn end(&self, result: Result<(), Stop>) -> ExitCode {
        match result {
            Ok(()) | Err(Stop::PipeClosed) => Exit::Done.into(),
            Err(Stop::No) => Exit::General.into(),
            Err(Stop::Failed(failure)) => {
                self.tell(&failure);
                failure.exit.into()
            }
        }
    }

    fn tell(&self, failure: &Failure) {
        if self.format == Format::Json {
            return talk(&failure.to_json());
        }
        let (on, dim, off) = if self.paint_talk { ("\x1b[1;31m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        talk(&format!("{on}error:{off} {}", harmless(&failure.message)));
        let aside = |word: &str, value: &Option<String>| {
            if let Some(value) = value {
                talk(&format!("  {dim}{word:<11}{off}{}", harmless(value)));
            }
        };
        aside("at", &failure.field);
        // It is of use where the same may be asked again, and not where the answer is known.
        if matches!(failure.exit, Exit::TimedOut | Exit::Interrupted) {
            aside("request id", &failure.request_id);
        }
        aside("next", &failure.next);
    }
}

/// Control characters could repaint the terminal: names and answers come from strangers.
fn harmless(text: &str) -> String {
    text.chars().map(|one| if one.is_control() && !matches!(one, '\n' | '\t') { '\u{FFFD}' } else { one }).collect()
}

/// A line on stderr. That nobody reads it is no error.
fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn pretty<T: Serialize>(value: &T) -> String {
    // Views are plain data with string keys: serde_json has nothing to refuse there.
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn yaml<T: Serialize>(value: &T) -> String {
    super::yaml::document(&serde_json::to_value(value).unwrap_or_default())
}

fn compact<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

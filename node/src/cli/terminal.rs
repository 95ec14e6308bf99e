//! Where output goes: data to stdout in the format that was asked for, messages to stderr, questions to the user
//! at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use super::args::{ColorWhen, Format, Global};
use super::failure::{Exit, Failure, Stop};
use super::harmless;
use super::manifest::tree::Node;
use super::manifest::write;
use super::view::{Row, View, sheet};

/// Stdout, stderr and stdin as the global flags want them.
#[derive(Debug)]
pub struct Terminal {
    format: Format,
    paint: bool,
    paint_talk: bool,
    /// Is stdout a screen that can be drawn over?
    screen: bool,
    verbose: bool,
    quiet: bool,
    yes: bool,
}

impl Terminal {
    /// By the flags, NO_COLOR, TERM, and what stdout and stderr are.
    pub fn new(global: &Global) -> Terminal {
        let draws = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let wanted = |is_terminal: bool| match global.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => {
                is_terminal && draws && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        };
        Terminal {
            format: global.output,
            paint: wanted(io::stdout().is_terminal()),
            paint_talk: wanted(io::stderr().is_terminal()),
            screen: io::stdout().is_terminal() && draws,
            verbose: global.verbose > 0,
            quiet: global.quiet,
            yes: global.yes,
        }
    }

    /// The format of the data.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Do people look at a screen that can be drawn over in place?
    pub fn is_live(&self) -> bool {
        self.screen && self.format == Format::Table
    }

    /// Is data for people coloured?
    pub fn paints(&self) -> bool {
        self.paint
    }

    /// One object.
    pub fn show<V: View>(&self, view: &V) -> Result<(), Stop> {
        match self.format {
            Format::Table => self.data(&view.text(self.paint)),
            Format::Json => self.data(&pretty(view)),
            Format::Yaml => self.data(&yaml(view)),
            // What was only checked may have no name yet.
            Format::Name if view.name().is_empty() => Ok(()),
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

    /// Text for people, as it is.
    pub fn text(&self, text: &str) -> Result<(), Stop> {
        self.data(text)
    }

    /// One object of a stream: a line, or a document of YAML.
    pub fn object(&self, name: &str, value: &Value) -> Result<(), Stop> {
        match self.format {
            Format::Table | Format::Name => self.data(name),
            Format::Json => self.data(&harmless::json(&value.to_string())),
            Format::Yaml => self.data(&format!("---\n{}", super::yaml::document(value))),
        }
    }

    /// Draws a text over the last `drawn` lines, and answers how many lines stand there now. All of it is one
    /// write, so an interrupted command leaves the screen as any program expects it.
    pub fn draw(&self, drawn: u16, text: &str) -> Result<u16, Stop> {
        let (frame, drawn) = frame(drawn, text, rows());
        self.put(&frame)?;
        Ok(drawn)
    }

    fn data(&self, text: &str) -> Result<(), Stop> {
        self.put(&format!("{text}\n"))
    }

    fn put(&self, text: &str) -> Result<(), Stop> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::PipeClosed),
            Err(error) => {
                Err(Failure::general(format!("stdout cannot be written: {error}"), "look at where stdout goes").into())
            }
        }
    }

    /// A message on stderr; not with `-q`.
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
        let shown = &on_one_line(question);
        // Programs get the names as they are.
        let question = if self.format == Format::Json { question } else { shown };
        let refused = |message: String| {
            let next = Some("the same command with --yes".to_owned());
            Failure { exit: Exit::Usage, reason: "NOT_CONFIRMED".into(), message, next, ..Failure::default() }
        };
        if !io::stdin().is_terminal() {
            return Err(refused(format!("{question} (cannot ask: stdin is no terminal)")).into());
        }
        let mut stderr = io::stderr().lock();
        let asked = write!(stderr, "{shown} [y/N] ").and_then(|()| stderr.flush());
        let mut answer = String::new();
        let read = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
        match (read, answer.trim()) {
            (Ok(_), "y" | "Y" | "yes") => Ok(()),
            _ => Err(refused("not confirmed: nothing was changed".to_owned()).into()),
        }
    }

    /// Asks where stdin is a terminal; a script goes on.
    pub fn confirm_if_asked(&self, question: &str) -> Result<(), Stop> {
        if io::stdin().is_terminal() { self.confirm(&format!("{question}. Make it?")) } else { Ok(()) }
    }

    /// Says how it ended, and answers with the exit code.
    pub fn end(&self, result: Result<(), Stop>) -> ExitCode {
        match result {
            Ok(()) | Err(Stop::PipeClosed) => Exit::Done.into(),
            Err(Stop::No) => Exit::General.into(),
            Err(Stop::Left) => {
                // Behind the `^C` that the terminal wrote.
                if self.screen {
                    talk("");
                }
                Exit::Interrupted.into()
            }
            Err(Stop::Failed(failure)) => {
                self.tell(&failure);
                failure.exit.into()
            }
        }
    }

    fn tell(&self, failure: &Failure) {
        if self.format == Format::Json {
            return talk(&harmless::json(&failure.to_json()));
        }
        let (on, dim, off) = if self.paint_talk { ("\x1b[1;31m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        talk(&format!("{on}error:{off} {}", harmless(&failure.text())));
        let aside = |word: &str, value: Option<&str>| {
            if let Some(value) = value {
                talk(&format!("  {dim}{word:<11}{off}{}", on_one_line(value)));
            }
        };
        aside("at", failure.field.as_deref());
        // It is of use where the same may be asked again, and not where the answer is known.
        if matches!(failure.exit, Exit::TimedOut | Exit::Interrupted) {
            aside("request id", failure.request_id.as_deref());
        }
        aside("next", failure.next.as_deref());
    }
}

/// Names and answers come from strangers; lines and columns are ours.
fn harmless(text: &str) -> String {
    harmless::spelled(text, &['\n', '\t'])
}

/// A text with a name from outside, on one line: a line end in it is written as `\n`.
fn on_one_line(text: &str) -> String {
    harmless::spelled(text, &[])
}

/// A line on stderr. A closed stderr is no error.
fn talk(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn pretty<T: Serialize>(value: &T) -> String {
    // Views are plain data with string keys: serde_json has nothing to refuse there.
    harmless::json(&serde_json::to_string_pretty(value).unwrap_or_default())
}

fn yaml<T: Serialize>(value: &T) -> String {
    super::yaml::document(&serde_json::to_value(value).unwrap_or_default())
}

/// Rows of the screen that stdout is.
fn rows() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(24)
}

/// What draws a text over the last `drawn` lines of a screen, and how many lines it has.
///
/// Every line takes one row: it is cut at the margin, not wrapped. What does not fit the screen is counted.
fn frame(drawn: u16, text: &str, rows: usize) -> (String, u16) {
    // Shown as a whole, where the terminal knows how; no wrapping; to the first line of those drawn.
    let mut frame = "\x1b[?2026h\x1b[?7l".to_owned();
    if drawn > 0 {
        frame += &format!("\x1b[{drawn}F");
    }
    let mut lines: Vec<&str> = text.lines().collect();
    let room = rows.saturating_sub(1).max(2);
    let more = if lines.len() > room { lines.len() - (room - 1) } else { 0 };
    let rest = format!("… and {more} more lines: a taller window shows them");
    if more > 0 {
        lines.truncate(room - 1);
        lines.push(&rest);
    }
    for line in &lines {
        frame += line;
        frame += "\x1b[0m\x1b[K\n";
    }
    // What stood below goes; wrapping as before.
    frame += "\x1b[J\x1b[?7h\x1b[?2026l";
    (frame, u16::try_from(lines.len()).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_goes_over_the_last_one_and_leaves_the_screen_as_it_was() {
        let (first, drawn) = frame(0, "a\nb", 24);
        assert_eq!(drawn, 2);
        assert!(!first.contains('F') && first.contains("a\x1b[0m\x1b[K\nb"), "{first:?}");
        let (second, drawn) = frame(drawn, "c", 24);
        assert!(second.contains("\x1b[2Fc") && second.contains("\x1b[J"), "{second:?}");
        assert_eq!(drawn, 1);
        for (on, off) in [("\x1b[?2026h", "\x1b[?2026l"), ("\x1b[?7l", "\x1b[?7h")] {
            assert!(second.find(on) < second.find(off), "{second:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let text = (0..30).map(|line| line.to_string()).collect::<Vec<_>>().join("\n");
        let (frame, drawn) = frame(0, &text, 10);
        assert_eq!(drawn, 9);
        assert!(frame.contains("\n7\x1b") && !frame.contains("\n8\x1b") && frame.contains("… and 22 more lines"));
    }
}

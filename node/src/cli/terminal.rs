//! Writes data to stdout in the chosen format and messages to stderr, and asks the user for confirmation.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use serde_json::Value;

use super::args::{ColorWhen, Format, Global};
use super::escape;
use super::failure::{Exit, Failure, Stop};
use super::manifest::tree::Node;
use super::manifest::write;
use super::view::{Answer, Json, View, layout};
use super::{input, lines};

/// Stdout, stderr and stdin with the settings of the global flags.
#[derive(Debug)]
pub struct Terminal {
    format: Format,
    columns: Vec<String>,
    paint: bool,
    paint_talk: bool,
    /// True if stdout is a terminal that can be redrawn.
    screen: bool,
    verbose: bool,
    quiet: bool,
    yes: bool,
}

impl Terminal {
    /// Creates it from the flags, NO_COLOR, TERM, and whether stdout and stderr are terminals.
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
            columns: global.table_columns.clone(),
            paint: wanted(io::stdout().is_terminal()),
            paint_talk: wanted(io::stderr().is_terminal()),
            screen: io::stdout().is_terminal() && draws,
            verbose: global.verbose > 0,
            quiet: global.quiet,
            yes: global.yes,
        }
    }

    /// Returns the format of data.
    pub fn format(&self) -> Format {
        self.format
    }

    /// True if tables go to a terminal that can be redrawn in place.
    pub fn is_live(&self) -> bool {
        self.screen && self.format == Format::Table
    }

    fn is_json(&self) -> bool {
        matches!(self.format, Format::Json | Format::Jsonl)
    }

    /// True if tables and text are coloured.
    pub fn paints(&self) -> bool {
        self.paint
    }

    /// Prints one object.
    pub fn show<V: View>(&self, view: &V) -> Result<(), Stop> {
        match self.format {
            Format::Table => self.data(&view.text(self.paint)),
            Format::Json => self.data(&pretty(&view.json())),
            Format::Yaml => self.data(&write::of_json(&view.json())),
            // An object that was only checked may have no name yet.
            Format::Name if view.name().is_empty() => Ok(()),
            Format::Name => self.data(&view.name()),
            Format::Csv => self.raw(&lines::csv(lines::records(std::slice::from_ref(view)))),
            Format::Jsonl => self.data(&lines::json(&view.json())),
        }
    }

    /// Prints the answer to a change: programs get the whole answer, people the object that it is about.
    pub fn answer<A: Json, V: View + Clone + Default>(&self, answer: &A, object: Option<&V>) -> Result<(), Stop> {
        let object = object.cloned().unwrap_or_default();
        self.show(&Answer::new(answer, object.name(), object.text(self.paint)))
    }

    /// Prints a list of objects. For an empty table or names list, reports on stderr that there are none.
    pub fn list<R: View>(&self, rows: &[R]) -> Result<(), Stop> {
        let json = || Value::Array(rows.iter().map(R::json).collect());
        match self.format {
            Format::Json => self.data(&pretty(&json())),
            Format::Yaml => self.data(&write::of_json(&json())),
            _ if rows.is_empty() => {
                self.say(&format!("no {}", R::NOUN));
                Ok(())
            }
            Format::Table => self.data(&self.table(rows)?),
            Format::Name => self.data(&rows.iter().map(View::name).collect::<Vec<_>>().join("\n")),
            Format::Csv => self.raw(&lines::csv(lines::records(rows))),
            Format::Jsonl => self.data(&rows.iter().map(|row| lines::json(&row.json())).collect::<Vec<_>>().join("\n")),
        }
    }

    /// Returns the table of a list.
    ///
    /// # Errors
    /// If `--columns` names a column that the list does not have.
    pub fn table<R: View>(&self, rows: &[R]) -> Result<String, Failure> {
        layout::list(rows, &self.columns, self.paint)
    }

    /// Checks `--columns` before a change whose result is a list.
    ///
    /// # Errors
    /// If it names a column that the list does not have.
    pub fn check_columns<R: View>(&self) -> Result<(), Failure> {
        layout::places::<R>(&self.columns).map(drop)
    }

    /// Prints a document for `apply -f`: YAML, unless another format is chosen.
    pub fn manifest(&self, name: &str, node: &Node) -> Result<(), Stop> {
        match self.format {
            Format::Table | Format::Yaml | Format::Csv => self.data(&write::yaml(node)),
            Format::Json | Format::Jsonl => self.data(&write::json(node)),
            Format::Name => self.data(name),
        }
    }

    /// Prints text unchanged, for other programs, with one line end.
    pub fn raw(&self, text: &str) -> Result<(), Stop> {
        self.data(text.trim_end_matches(['\r', '\n']))
    }

    /// Prints lines for the user.
    pub fn lines(&self, lines: &[String]) -> Result<(), Stop> {
        if lines.is_empty() { Ok(()) } else { self.data(&escaped_text(&lines.join("\n"))) }
    }

    /// Prints one object of a stream: one line, or a YAML document.
    pub fn object(&self, name: &str, value: &Value) -> Result<(), Stop> {
        match self.format {
            Format::Table | Format::Name | Format::Csv => self.data(name),
            Format::Json | Format::Jsonl => self.data(&lines::json(value)),
            Format::Yaml => self.data(&format!("---\n{}", write::of_json(value))),
        }
    }

    /// Draws a text over the last `drawn` lines, and returns its number of lines. It is a single write, so that an
    /// interrupted command leaves the terminal in a normal state.
    pub fn draw(&self, drawn: u16, text: &str) -> Result<u16, Stop> {
        let (frame, drawn) = frame(drawn, text, rows());
        self.put(&frame)?;
        Ok(drawn)
    }

    /// Prints text unchanged, with a line end.
    pub fn data(&self, text: &str) -> Result<(), Stop> {
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

    /// Prints a message on stderr, unless `-q` is set.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            print_note(&escaped_text(text));
        }
    }

    /// Prints a message on stderr if stdout has a table. With `-o json`, stderr holds only the error object.
    pub fn remark(&self, text: &str) {
        if self.format == Format::Table {
            self.say(text);
        }
    }

    /// True if `-v` asks for details.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Prints a detail on stderr, only with `-v`.
    pub fn detail(&self, text: &str) {
        if self.verbose {
            print_note(&escaped_text(text));
        }
    }

    /// Asks for confirmation of an action that cannot be undone. `--yes` confirms it. Fails if the user declines, or if
    /// stdin is not a terminal.
    pub async fn confirm(&self, question: &str) -> Result<(), Stop> {
        if self.yes {
            return Ok(());
        }
        let shown = &on_one_line(question);
        // With JSON the message keeps the names unchanged, because JSON escapes them.
        let question = if self.is_json() { question } else { shown };
        let refused =
            |message: String| Failure::new(Exit::Usage, "NOT_CONFIRMED", message, "the same command with --yes").into();
        if !io::stdin().is_terminal() {
            return Err(refused(format!("{question} (cannot ask: stdin is not a terminal)")));
        }
        match ask_line(&format!("{shown} [y/N] ")).await.as_deref() {
            Ok("y" | "Y" | "yes") => Ok(()),
            _ => Err(refused("not confirmed: nothing was changed".to_owned())),
        }
    }

    /// Asks for a line that is not shown while it is typed.
    pub async fn ask_secret(&self, question: &str) -> Result<String, Stop> {
        let failed = |error: io::Error| Failure::general(format!("the terminal cannot be read: {error}"), "--token");
        let _hidden = HiddenInput::begin().map_err(failed)?;
        Ok(ask_line(question).await.map_err(failed)?)
    }

    /// Prints the failure, if any, and returns the exit code.
    pub fn end(&self, result: Result<(), Stop>) -> ExitCode {
        match result {
            Ok(()) | Err(Stop::PipeClosed) => Exit::Done.into(),
            Err(Stop::No) => Exit::General.into(),
            Err(Stop::Left) => {
                // Begins a new line after the `^C` that the terminal printed.
                if self.screen {
                    print_note("");
                }
                Exit::Interrupted.into()
            }
            Err(Stop::Failed(failure)) => {
                self.print_failure(&failure);
                failure.exit.into()
            }
        }
    }

    fn print_failure(&self, failure: &Failure) {
        if self.is_json() {
            return print_note(&escape::json(&failure.to_json()));
        }
        let (on, dim, off) = if self.paint_talk { ("\x1b[1;31m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        print_note(&format!("{on}error:{off} {}", escaped_text(&failure.text())));
        let aside = |word: &str, value: Option<&str>| {
            if let Some(value) = value {
                print_note(&format!("  {dim}{word:<11}{off}{}", on_one_line(value)));
            }
        };
        aside("at", failure.field.as_deref());
        // The request id is needed only if the request may have to be repeated.
        if matches!(failure.exit, Exit::TimedOut | Exit::Interrupted) {
            aside("request id", failure.request_id.as_deref());
        }
        aside("next", failure.next.as_deref());
    }
}

/// Asks on stderr, and reads the answer from stdin: one line without the spaces around it. Ctrl-C can end the wait.
async fn ask_line(question: &str) -> io::Result<String> {
    let mut stderr = io::stderr();
    write!(stderr, "{question}").and_then(|()| stderr.flush())?;
    input::on_thread(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    })
    .await
    .flatten()
}

/// Hides what is typed at stdin's terminal. Drop restores the former modes, also when Ctrl-C drops the command.
struct HiddenInput(Termios);

impl HiddenInput {
    fn begin() -> io::Result<HiddenInput> {
        let shown = termios::tcgetattr(io::stdin())?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        termios::tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(HiddenInput(shown))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        // The line end was not shown either.
        print_note("");
    }
}

/// Names and replies come from outside and are escaped; line ends and tabs are the command's own.
fn escaped_text(text: &str) -> String {
    escape::escaped(text, &['\n', '\t'])
}

/// Returns a text with a foreign name on one line: a line end becomes `\n`.
fn on_one_line(text: &str) -> String {
    escape::escaped(text, &[])
}

/// Prints a line on stderr. A closed stderr is no error.
fn print_note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn pretty(value: &Value) -> String {
    escape::json(&format!("{value:#}"))
}

/// Returns the number of rows of stdout's terminal, or 24 if it is unknown.
fn rows() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(24)
}

/// Returns the output that draws a text over the last `drawn` lines, and the text's number of lines.
///
/// Each line takes one row: it is cut at the margin and not wrapped. Lines that do not fit are only counted.
fn frame(drawn: u16, text: &str, rows: usize) -> (String, u16) {
    // Begins a synchronized update if the terminal supports it, turns off wrapping, and moves to the first drawn line.
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
    // Clears the old lines below, and turns wrapping on again.
    frame += "\x1b[J\x1b[?7h\x1b[?2026l";
    (frame, u16::try_from(lines.len()).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_goes_over_the_last_one_and_leaves_the_screen_as_it_was() {
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
    fn lines_beyond_terminal_height_are_counted() {
        let text = (0..30).map(|line| line.to_string()).collect::<Vec<_>>().join("\n");
        let (frame, drawn) = frame(0, &text, 10);
        assert_eq!(drawn, 9);
        assert!(frame.contains("\n7\x1b") && !frame.contains("\n8\x1b") && frame.contains("… and 22 more lines"));
    }
}

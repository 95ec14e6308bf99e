//! Prints frames of a watched object. A terminal is redrawn in place. Elsewhere a table is printed again when its data
//! changed; `-o json` prints one object per line.

use serde_json::Value;

use super::{Failure, Format, Stop, View};
use crate::cli::terminal::Terminal;

/// Result of one read of the watched object.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Text for a table or a terminal.
    text: String,
    /// Objects for `-o json`, each with its name.
    objects: Vec<(String, Value)>,
    /// Additional fields of each object.
    beside: Vec<(&'static str, Value)>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    One,
    List,
}

impl Frame {
    /// A frame of one object, with remarks below it.
    pub fn of_one<V: View>(terminal: &Terminal, view: &V, remarks: &[String]) -> Frame {
        let text = below(view.text(terminal.paints()), remarks);
        Frame::worded(view, text)
    }

    /// A frame of one object with the given text.
    pub fn worded<V: View>(view: &V, text: String) -> Frame {
        Frame { text, objects: vec![object(view)], beside: Vec::new(), kind: Kind::One }
    }

    /// Adds fields that the view does not have. A change of these fields alone does not print the frame again.
    pub fn beside<const N: usize>(self, fields: [(&'static str, Value); N]) -> Frame {
        Frame { beside: fields.into(), ..self }
    }

    /// A frame of a list's rows.
    ///
    /// # Errors
    /// If `--columns` names a column that the list does not have.
    pub fn of_list<R: View>(terminal: &Terminal, rows: &[R], remarks: &[String]) -> Result<Frame, Failure> {
        let text = match rows {
            [] => format!("no {}", R::NOUN),
            rows => terminal.table(rows)?,
        };
        let objects = rows.iter().map(object).collect();
        Ok(Frame { text: below(text, remarks), objects, beside: Vec::new(), kind: Kind::List })
    }
}

fn object<V: View>(view: &V) -> (String, Value) {
    (view.name(), view.json())
}

fn below(text: String, remarks: &[String]) -> String {
    if remarks.is_empty() { text } else { format!("{text}\n\n{}", remarks.join("\n")) }
}

/// Prints one frame after another.
pub struct Screen<'a> {
    terminal: &'a Terminal,
    /// True if the terminal is redrawn in place.
    live: bool,
    /// Lines drawn at the end of the terminal, which the next frame replaces.
    drawn: u16,
    last: Option<Frame>,
}

impl<'a> Screen<'a> {
    /// Creates a screen for this stdout.
    pub fn new(terminal: &'a Terminal) -> Screen<'a> {
        Screen { terminal, live: terminal.is_live(), drawn: 0, last: None }
    }

    /// True if nothing has been shown yet.
    pub fn is_blank(&self) -> bool {
        self.last.is_none()
    }

    /// Prints a message on stderr. The drawn frame stays above it.
    pub fn say(&mut self, text: &str) {
        self.terminal.say(text);
        self.drawn = 0;
    }

    /// Shows the frame if it differs from the last one.
    pub fn show(&mut self, frame: Frame) -> Result<(), Stop> {
        let last = self.last.replace(frame);
        let Some(frame) = &self.last else { return Ok(()) };
        if self.live {
            if last.is_none_or(|last| last.text != frame.text) || self.drawn == 0 {
                self.drawn = self.terminal.draw(self.drawn, &frame.text)?;
            }
            return Ok(());
        }
        if last.as_ref().is_some_and(|last| last.objects == frame.objects) {
            return Ok(());
        }
        match (self.terminal.format(), frame.kind) {
            (Format::Table, _) => self.terminal.data(&format!("{}{}", gap(last.is_some(), &frame.text), frame.text)),
            (_, Kind::One) => frame.objects.iter().try_for_each(|(name, value)| {
                let mut value = value.clone();
                if let Value::Object(known) = &mut value {
                    known.extend(frame.beside.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
                }
                self.terminal.object(name, &value)
            }),
            (_, Kind::List) => {
                let before = last.map(|last| last.objects).unwrap_or_default();
                changes(&before, &frame.objects).iter().try_for_each(|(name, value)| self.terminal.object(name, value))
            }
        }
    }
}

/// Returns the separator between two printed frames: an empty line, but nothing before a frame of one line.
fn gap(is_another: bool, text: &str) -> &'static str {
    if is_another && text.contains('\n') { "\n" } else { "" }
}

/// Returns the rows that were added, changed or removed, each with `change`: `added`, `changed` or `gone`.
fn changes(before: &[(String, Value)], now: &[(String, Value)]) -> Vec<(String, Value)> {
    let has = |rows: &[(String, Value)], name: &str| rows.iter().any(|(known, _)| known == name);
    let line = |(name, value): &(String, Value), change: &str| {
        let mut value = value.clone();
        if let Value::Object(fields) = &mut value {
            fields.insert("change".to_owned(), change.into());
        }
        (name.clone(), value)
    };
    let fresh = now.iter().filter(|row| !before.contains(row)).map(|row| {
        let change = if has(before, &row.0) { "changed" } else { "added" };
        line(row, change)
    });
    let gone = before.iter().filter(|(name, _)| !has(now, name)).map(|row| line(row, "gone"));
    fresh.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cards_and_tables_stand_apart_and_lines_do_not() {
        assert_eq!(["one line", "now   noon\nahead 1 h"].map(|text| gap(true, text)), ["", "\n"]);
        assert_eq!(gap(false, "now   noon\nahead 1 h"), "", "nothing stands above the first one");
    }

    #[test]
    fn rows_come_change_and_go() {
        let row = |name: &str, state: &str| (name.to_owned(), json!({ "name": name, "state": state }));
        let before = [row("a", "active"), row("b", "active"), row("c", "active")];
        let now = [row("a", "active"), row("c", "paused"), row("d", "active")];
        let lines: Vec<String> = changes(&before, &now)
            .iter()
            .map(|(name, value)| format!("{name} {} {}", value["change"].as_str().unwrap_or("-"), value["state"]))
            .collect();
        assert_eq!(lines, ["c changed \"paused\"", "d added \"active\"", "b gone \"active\""]);
        assert!(changes(&now, &now).is_empty());
        assert_eq!(changes(&[], &now).len(), 3);
    }
}

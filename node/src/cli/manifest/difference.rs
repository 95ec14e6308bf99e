//! Compares two documents of one object key by key.

use std::time::{Duration, Instant};

use serde::Serialize;
use similar::{Algorithm, ChangeTag};

use super::tree::{Node, Shape};
use super::write;

/// Time to look for the shortest difference of two long values.
const COMPARED_WITHIN: Duration = Duration::from_secs(1);
/// Limit of lines shown for one change.
const LINES_SHOWN: usize = 60;

/// One key whose values differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The keys from the spec on, such as `content.subject`.
    pub field: String,
    /// Present value; null if the key is missing.
    pub from: FieldValue,
    /// Value after the change; null if the key is missing.
    pub to: FieldValue,
}

/// A value, or `None` for a missing key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldValue(Option<Node>);

/// Returns the keys that differ, in the order of `to`. Keys that only `from` has come last.
pub fn between(from: &Node, to: &Node) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(&mut changes, "", Some(from), Some(to));
    changes
}

fn compare(changes: &mut Vec<Change>, within: &str, from: Option<&Node>, to: Option<&Node>) {
    if from == to {
        return;
    }
    if let (Some(Shape::Map(from)), Some(Shape::Map(to))) = (from.map(|node| &node.shape), to.map(|node| &node.shape)) {
        let gone = from.iter().filter(|(key, _)| of(to, key).is_none());
        for (key, _) in to.iter().chain(gone) {
            let field = if within.is_empty() { key.clone() } else { format!("{within}.{key}") };
            compare(changes, &field, of(from, key), of(to, key));
        }
        return;
    }
    changes.push(Change { field: within.to_owned(), from: FieldValue(from.cloned()), to: FieldValue(to.cloned()) });
}

fn of<'n>(pairs: &'n [(String, Node)], key: &str) -> Option<&'n Node> {
    pairs.iter().find(|(name, _)| name == key).map(|(_, node)| node)
}

impl Change {
    /// Returns one line for the user, or several lines if a value is long.
    pub fn lines(&self) -> Vec<String> {
        if ![&self.from, &self.to].iter().any(|value| value.is_long()) {
            let one = |value: &FieldValue| value.0.as_ref().map_or_else(|| "none".to_owned(), inline);
            return vec![format!("{}: {} → {}", self.field, one(&self.from), one(&self.to))];
        }
        let (from, to) = (self.from.parts(), self.to.parts());
        let mut lines = vec![format!("{}:", self.field)];
        if from == to {
            lines.push("  only line ends differ".to_owned());
            return lines;
        }
        let differing = lines_between(&from, &to);
        let more = differing.len().saturating_sub(LINES_SHOWN);
        lines.extend(differing.into_iter().take(LINES_SHOWN).map(|line| format!("  {line}").trim_end().to_owned()));
        if more > 0 {
            lines.push(format!("  … and {more} more lines"));
        }
        lines
    }
}

impl FieldValue {
    fn is_long(&self) -> bool {
        match self.0.as_ref().map(|node| &node.shape) {
            Some(Shape::Text(text)) => text.contains('\n'),
            Some(Shape::List(_)) => true,
            _ => false,
        }
    }

    fn parts(&self) -> Vec<String> {
        match self.0.as_ref().map(|node| &node.shape) {
            Some(Shape::Text(text)) => text.lines().map(str::to_owned).collect(),
            Some(Shape::List(items)) => items.iter().map(inline).collect(),
            _ => Vec::new(),
        }
    }
}

/// Returns a value on one line.
fn inline(node: &Node) -> String {
    match &node.shape {
        Shape::Plain(word) => word.clone(),
        Shape::Text(text) if !text.is_empty() && !text.chars().any(char::is_control) => text.clone(),
        Shape::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{key}={}", inline(value)));
            pairs.collect::<Vec<_>>().join(", ")
        }
        Shape::List(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        _ => write::json(node),
    }
}

/// Returns the removed and added lines, with one unchanged line before and after them.
fn lines_between(from: &[String], to: &[String]) -> Vec<String> {
    let until = Some(Instant::now() + COMPARED_WITHIN);
    let operations = similar::capture_diff_slices_deadline(Algorithm::Myers, from, to, until);
    let lines: Vec<_> = operations.iter().flat_map(|operation| operation.iter_changes(from, to)).collect();
    let differs = |line: &similar::Change<String>| line.tag() != ChangeTag::Equal;
    let first = lines.iter().position(differs).unwrap_or_default().saturating_sub(1);
    let after = lines.iter().rposition(differs).map_or(0, |last| (last + 2).min(lines.len()));
    let shown = lines.get(first..after).unwrap_or_default();
    shown.iter().map(|line| format!("{} {}", line.tag(), line.value())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::read;
    use super::*;

    fn lines(from: &str, to: &str) -> Vec<String> {
        let bare = |text: &str| strip(read(text).expect("YAML").remove(0));
        between(&bare(from), &bare(to)).iter().flat_map(Change::lines).collect()
    }

    fn strip(node: Node) -> Node {
        let shape = match node.shape {
            Shape::List(items) => Shape::List(items.into_iter().map(strip).collect()),
            Shape::Map(pairs) => Shape::Map(pairs.into_iter().map(|(key, value)| (key, strip(value))).collect()),
            plain => plain,
        };
        Node { line: 0, shape }
    }

    #[test]
    fn each_key_that_differs_is_a_line() {
        assert_eq!(lines("{a: 1, b: 2}", "{b: 2, a: 1}"), [""; 0]);
        assert_eq!(
            lines("{a: 1, b: 2, var: {x: 1, y: 2}}", "{a: 3, c: \"\", var: {x: 1, y: 3}}"),
            ["a: 1 → 3", "c: none → \"\"", "var.y: 2 → 3", "b: 2 → none"]
        );
    }

    #[test]
    fn of_texts_and_lists_what_goes_and_what_comes() {
        assert_eq!(
            lines("text: \"a\\nb\\nc\\nd\\n\"", "text: \"a\\nB\\nc\\nd\\ne\\n\""),
            ["text:", "    a", "  - b", "  + B", "    c", "    d", "  + e"]
        );
        assert_eq!(lines("to: [a, b, c, d]", "to: [a, b, d]"), ["to:", "    b", "  - c", "    d"]);
        assert_eq!(
            lines("recipients: [{address: a, values: [1]}]", "recipients: [{address: a, values: [2, 3]}]"),
            ["recipients:", "  - address=a, values=[1]", "  + address=a, values=[2, 3]"]
        );
        let ends = lines("text: \"a\\nb\"", "text: \"a\\nb\\n\"");
        assert_eq!(ends, ["text:", "  only line ends differ"]);
    }

    #[test]
    fn long_change_is_cut_short() {
        let many = |text: &str| format!("to: [{}]", vec![text; 100].join(","));
        let lines = lines(&many("a"), &many("b"));
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (62, Some("  … and 140 more lines")));
    }
}

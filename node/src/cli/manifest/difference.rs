//! Compares two documents of one object key by key.

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::tree::{Node, Shape};
use super::write;

/// Limit of lines or items that are aligned with each other; longer values are shown whole.
const COMPARED_MAX: usize = 2_000;
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
#[derive(Clone, Debug, PartialEq)]
pub struct FieldValue(Option<Node>);

impl Serialize for FieldValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().map_or(Value::Null, value).serialize(serializer)
    }
}

fn value(node: &Node) -> Value {
    match &node.shape {
        Shape::Nothing => Value::Null,
        Shape::Text(text) => Value::from(text.as_str()),
        Shape::Plain(word) => word.parse().unwrap_or_default(),
        Shape::List(items) => items.iter().map(value).collect(),
        Shape::Map(pairs) => Value::Object(pairs.iter().map(|(key, node)| (key.clone(), value(node))).collect()),
    }
}

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
    let marked = |mark: &str, lines: &[String]| lines.iter().map(|line| format!("{mark} {line}")).collect::<Vec<_>>();
    let same_start = from.iter().zip(to).take_while(|(from, to)| from == to).count();
    let (from_rest, to_rest) = (from.get(same_start..).unwrap_or_default(), to.get(same_start..).unwrap_or_default());
    let same_end = from_rest.iter().rev().zip(to_rest.iter().rev()).take_while(|(from, to)| from == to).count();
    let from_core = from_rest.get(..from_rest.len() - same_end).unwrap_or_default();
    let to_core = to_rest.get(..to_rest.len() - same_end).unwrap_or_default();
    let mut lines = marked(" ", from.get(same_start.saturating_sub(1)..same_start).unwrap_or_default());
    if from_core.len().max(to_core.len()) > COMPARED_MAX {
        lines.extend(marked("-", from_core));
        lines.extend(marked("+", to_core));
    } else {
        lines.extend(aligned(from_core, to_core));
    }
    let after = from.len() - same_end;
    lines.extend(marked(" ", from.get(after..(after + 1).min(from.len())).unwrap_or_default()));
    lines
}

/// Aligns the lines by their longest common subsequence.
fn aligned(from: &[String], to: &[String]) -> Vec<String> {
    let width = to.len() + 1;
    // Length of the common subsequence from positions `i` and `j` on.
    let mut common = vec![0_u32; (from.len() + 1) * width];
    let at = |common: &[u32], i: usize, j: usize| common.get(i * width + j).copied().unwrap_or_default();
    for i in (0..from.len()).rev() {
        for j in (0..to.len()).rev() {
            let best = match from.get(i) == to.get(j) {
                true => at(&common, i + 1, j + 1) + 1,
                false => at(&common, i + 1, j).max(at(&common, i, j + 1)),
            };
            if let Some(cell) = common.get_mut(i * width + j) {
                *cell = best;
            }
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while let (Some(was), Some(is)) = (from.get(i), to.get(j)) {
        if was == is {
            lines.push(format!("  {was}"));
            (i, j) = (i + 1, j + 1);
        } else if at(&common, i + 1, j) >= at(&common, i, j + 1) {
            lines.push(format!("- {was}"));
            i += 1;
        } else {
            lines.push(format!("+ {is}"));
            j += 1;
        }
    }
    lines.extend(from.iter().skip(i).map(|was| format!("- {was}")));
    lines.extend(to.iter().skip(j).map(|is| format!("+ {is}")));
    lines
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

//! Writes a tree as YAML that users edit, or as JSON. [`super::tree::read`] reads both.

use std::fmt::Write;

use serde_json::Value;

use super::kind::node;
use super::tree::{Node, Shape};
use crate::cli::{escape, yaml};

/// Returns a YAML document without a final line end.
pub fn yaml(node: &Node) -> String {
    let mut out = String::new();
    block(&mut out, node, 0, true);
    out.trim_start_matches('\n').to_owned()
}

/// Returns a JSON value as a YAML document without a final line end, each text on one line.
pub fn of_json(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, &node(value, None), 0, false);
    out.trim_start().to_owned()
}

/// Returns a JSON object whose keys keep their order.
pub fn json(node: &Node) -> String {
    escape::json(&serde_json::to_string_pretty(node).unwrap_or_default())
}

/// Writes the value after a key or a dash. `folds`: a text of several lines may be a block.
fn block(out: &mut String, node: &Node, depth: usize, folds: bool) {
    let start = |out: &mut String| {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    };
    match &node.shape {
        Shape::Nothing => out.push_str(" null"),
        Shape::List(items) if items.is_empty() => out.push_str(" []"),
        Shape::Map(pairs) if pairs.is_empty() => out.push_str(" {}"),
        Shape::Text(text) if folds => literal(out, text, depth),
        Shape::Text(text) => out.extend([" ", &yaml::text(text)]),
        Shape::Plain(word) => out.extend([" ", word]),
        Shape::List(items) => items.iter().for_each(|item| {
            start(out);
            out.push('-');
            let mut below = String::new();
            block(&mut below, item, depth + 1, folds);
            out.push(' ');
            out.push_str(below.trim_start());
        }),
        Shape::Map(pairs) => pairs.iter().for_each(|(key, value)| {
            start(out);
            // Writing to a `String` cannot fail.
            let _ = write!(out, "{}:", yaml::text(key));
            block(out, value, depth + 1, folds);
        }),
    }
}

/// Writes a text of several lines as a block, if a block preserves it, and any other text as a scalar on one line.
fn literal(out: &mut String, text: &str, depth: usize) {
    let body = text.trim_end_matches('\n');
    let breaks = |c: char| (c.is_control() && c != '\n') || "\u{85}\u{2028}\u{2029}\u{feff}".contains(c);
    let is_block = body.contains('\n')
        && !body.starts_with([' ', '\n'])
        && !body.ends_with(' ')
        && body.lines().all(|line| line.is_empty() || !line.trim().is_empty())
        && !text.contains(breaks);
    if !is_block {
        out.push(' ');
        return out.push_str(&yaml::text(text));
    }
    out.push_str(match text.len() - body.len() {
        0 => " |-",
        1 => " |",
        _ => " |+",
    });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&"  ".repeat(depth.max(1)));
            out.push_str(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::read;
    use super::*;

    /// Removes line numbers, for comparisons.
    fn bare(node: Node) -> Node {
        let shape = match node.shape {
            Shape::List(items) => Shape::List(items.into_iter().map(bare).collect()),
            Shape::Map(pairs) => Shape::Map(pairs.into_iter().map(|(key, value)| (key, bare(value))).collect()),
            plain => plain,
        };
        Node { line: 0, shape }
    }

    #[test]
    #[rustfmt::skip]
    fn any_text_is_read_back_as_written() {
        let texts = [
            "", " ", "a", "no", "null", "~", "1", "09:00", "- a", "# a", "a: b", "a #b", "'", "\"", "\\", "{{ name }}", "[x]",
            "a\nb", "a\nb\n", "a\nb\n\n", "a\n\n\nb\n", "\na\nb", " a\nb", "a\n b\n", "a\n   \nb", "a \nb ", "a\tb\n\tc\n", "a\r\nb",
            "ä\nü", "a\u{85}b\nc", "a\u{2028}b\nc", "---\na\n---\n", "\u{1f600}\nx", "%x\n%y", "a\nb: c\n# d\n", "|\n|", "\n", "\n\n",
        ];
        let pairs = texts.iter().enumerate().map(|(place, text)| (format!("k{place}"), Node::text(*text))).collect();
        let items = texts.iter().map(|text| Node::text(*text)).collect();
        let keys = ["a b", "no", "ä", "x:y"].map(|key| (key.to_owned(), Node::text("v"))).into();
        let listed = Node::list(vec![Node::map(keys), Node::list(vec![]), Node::map(vec![])]);
        let whole = Node::map(vec![
            ("map".to_owned(), Node::map(pairs)),
            ("list".to_owned(), Node::list(items)),
            ("nested".to_owned(), listed),
        ]);
        for written in [yaml(&whole), json(&whole)] {
            let read = read(&written).unwrap_or_else(|fault| panic!("{fault:?} in\n{written}"));
            let read: Vec<Node> = read.into_iter().map(bare).collect();
            assert_eq!(read, std::slice::from_ref(&whole), "{written}");
        }
    }

    #[test]
    fn lines_stand_as_lines() {
        let node = Node::map(vec![
            ("kind".to_owned(), Node::text("schedule")),
            ("text".to_owned(), Node::text("Hello {{ name }},\n\nbye\n")),
            ("priority".to_owned(), Node::plain(7)),
            ("to".to_owned(), Node::list(vec![Node::text("ann@example.com")])),
        ]);
        let text = "kind: schedule\ntext: |\n  Hello {{ name }},\n\n  bye\npriority: 7\nto:\n  - ann@example.com";
        assert_eq!(yaml(&node), text);
    }
}

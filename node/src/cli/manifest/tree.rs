//! Reads YAML into a tree in which each value has a line number. JSON is read as YAML.
//!
//! Every scalar is read as text, and the field that it is for interprets it. Keys keep their order. Anchors and tags
//! are refused, so that each value is written where it is used.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Limit of nested levels; documents of Reveille have seven.
const DEPTH_MAX: usize = 16;

/// A value and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Line number, from 1. For a value within a map, the line of its key; 0 if it was not read from a text.
    pub line: usize,
    /// The value itself.
    pub shape: Shape,
}

/// The kinds of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `null`, `~`, or an empty value.
    Nothing,
    /// A scalar.
    Text(String),
    /// A number or a boolean that is to be written. Never the result of reading, which yields `Text`.
    Plain(String),
    /// A sequence.
    List(Vec<Node>),
    /// Keys in order, without duplicates.
    Map(Vec<(String, Node)>),
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.shape {
            Shape::Nothing => serializer.serialize_unit(),
            Shape::Text(text) => serializer.serialize_str(text),
            Shape::Plain(word) => word.parse::<Value>().unwrap_or_default().serialize(serializer),
            Shape::List(items) => serializer.collect_seq(items),
            Shape::Map(pairs) => serializer.collect_map(pairs.iter().map(|(key, value)| (key, value))),
        }
    }
}

/// Why a text cannot be read as a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl Fault {
    /// Fault at a line.
    pub fn new(line: usize, message: impl Into<String>) -> Fault {
        Fault { line, message: message.into() }
    }
}

impl Node {
    /// Creates a text.
    pub fn text(text: impl Into<String>) -> Node {
        Node { line: 0, shape: Shape::Text(text.into()) }
    }

    /// Creates a number or a boolean from its text.
    pub fn plain(word: impl ToString) -> Node {
        Node { line: 0, shape: Shape::Plain(word.to_string()) }
    }

    /// Creates a sequence.
    pub fn list(items: Vec<Node>) -> Node {
        Node { line: 0, shape: Shape::List(items) }
    }

    /// Creates a map.
    pub fn map(pairs: Vec<(String, Node)>) -> Node {
        Node { line: 0, shape: Shape::Map(pairs) }
    }

    /// Returns the value's kind for an error message.
    pub fn noun(&self) -> &'static str {
        match self.shape {
            Shape::Nothing => "nothing",
            Shape::Text(_) | Shape::Plain(_) => "a text",
            Shape::List(_) => "a list",
            Shape::Map(_) => "keys and values",
        }
    }
}

/// Reads all documents of a text. Empty documents are left out. The items of a top-level list are documents themselves.
pub fn read(text: &str) -> Result<Vec<Node>, Fault> {
    let mut reader = Reader { parser: Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text)) };
    let mut documents = Vec::new();
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            event => match reader.node(event, span, 0)? {
                Node { shape: Shape::Nothing, .. } => {}
                Node { shape: Shape::List(items), .. } => documents.extend(items),
                document => documents.push(document),
            },
        }
    }
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), Fault> {
        match self.parser.next_event() {
            None => Ok((Event::StreamEnd, Span::default())),
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Fault::new(error.marker().line(), format!("this is not YAML: {}", error.info()))),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Fault> {
        let line = span.start.line();
        if depth > DEPTH_MAX {
            return Err(Fault::new(line, format!("more than {DEPTH_MAX} levels")));
        }
        let bare = |anchor: usize, tag: bool| match (anchor, tag) {
            (0, false) => Ok(()),
            (0, true) => Err(Fault::new(line, "tags (!name) are not read; quote a text that begins with '!'")),
            _ => Err(Fault::new(line, "anchors (&name) are not read; write it out where it is meant")),
        };
        let shape = match event {
            Event::Scalar(text, style, anchor, tag) => {
                bare(anchor, tag.is_some())?;
                scalar(text, style)
            }
            Event::SequenceStart(anchor, tag) => {
                bare(anchor, tag.is_some())?;
                Shape::List(self.items(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                bare(anchor, tag.is_some())?;
                Shape::Map(self.pairs(depth)?)
            }
            Event::Alias(_) => {
                return Err(Fault::new(line, "aliases (*name) are not read; quote a text that begins with '*'"));
            }
            _ => return Err(Fault::new(line, "the text ends in the middle of a value")),
        };
        Ok(Node { line, shape })
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Node>, Fault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn pairs(&mut self, depth: usize) -> Result<Vec<(String, Node)>, Fault> {
        let mut pairs: Vec<(String, Node)> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(pairs);
            }
            let key = self.node(event, span, depth + 1)?;
            let Node { line, shape: Shape::Text(name) } = key else {
                return Err(Fault::new(key.line, format!("{} cannot be a key", key.noun())));
            };
            if let Some((_, earlier)) = pairs.iter().find(|(known, _)| *known == name) {
                return Err(Fault::new(line, format!("the key `{name}` is there twice: see line {}", earlier.line)));
            }
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            // Errors name the line of the key, where the user looks first.
            pairs.push((name, Node { line, ..value }));
        }
    }
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle) -> Shape {
    let is_plain = style == ScalarStyle::Plain;
    if is_plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL") {
        return Shape::Nothing;
    }
    Shape::Text(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let fault = read(text).expect_err(text);
        (fault.line, fault.message)
    }

    fn plain(node: &Node) -> String {
        match &node.shape {
            Shape::Nothing => "-".to_owned(),
            Shape::Text(text) | Shape::Plain(text) => format!("{text:?}"),
            Shape::List(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
            Shape::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| format!("{key}@{}={}", value.line, plain(value)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
            }
        }
    }

    fn all(text: &str) -> Vec<String> {
        read(text).unwrap_or_else(|fault| panic!("{fault:?}")).iter().map(plain).collect()
    }

    #[test]
    fn documents_keep_their_lines_and_the_order_of_their_keys() {
        let text = "kind: schedule\nb: 09:00\na: no # a comment\n---\n# nothing\n---\nto: [x, \"null\"]\nend: ~\n";
        assert_eq!(all(text), ["{kind@1=\"schedule\" b@2=\"09:00\" a@3=\"no\"}", "{to@7=[\"x\" \"null\"] end@8=-}"]);
        assert_eq!(all("text: |\n  a\n   b\n\nhtml: >-\n  c\n  d\n"), ["{text@1=\"a\\n b\\n\" html@5=\"c d\"}"]);
        assert_eq!(all(""), [""; 0]);
    }

    #[test]
    fn json_is_read_and_a_list_is_as_many_documents() {
        assert_eq!(
            all("[\n {\"a\": 1, \"b\": [true, null]},\n\t{\"a\": \"x\\ny\"}]"),
            ["{a@2=\"1\" b@2=[\"true\" -]}", "{a@3=\"x\\ny\"}"]
        );
    }

    #[test]
    fn ambiguous_yaml_is_refused_with_its_line() {
        assert_eq!(refused("a: 1\nb: 2\na: 3\n"), (3, "the key `a` is there twice: see line 1".to_owned()));
        assert_eq!(refused("a: 1\nb: &x 2\n").0, 2);
        assert_eq!(refused("a: &x 1\nb: *x\n").0, 1);
        assert_eq!(refused("a: 1\nb: !!str 2\n").0, 2);
        assert!(refused("a: 1\nb: [1, 2\n").1.starts_with("this is not YAML"));
        assert!(refused("a: 1\n b: 2\n").1.starts_with("this is not YAML"));
        assert!(refused(&format!("{}{}", "[".repeat(20), "]".repeat(20))).1.contains("levels"));
        assert!(read(&"[".repeat(100_000)).is_err());
        assert_eq!(refused("{[1]: 2}").1, "a list cannot be a key");
    }

    mod fuzz {
        use proptest::prelude::*;
        use reveille_fuzz::{cases, text};

        use super::*;
        use crate::cli::manifest::document::{Document, Source};

        #[rustfmt::skip]
        const FRAGMENTS: &[&str] = &[
            "kind: schedule\n", "kind: relay\n", "kind: template\n", "spec:\n", "  name: x\n", "  timing: {cron: '0 9 * * *'}\n",
            "  zone: UTC\n", "  host: 127.0.0.1\n", "  port: 25\n", "  content:\n", "    textFile: x\n", "  audience:\n",
            "    recipients: [{address: a@example.org}]\n", "  labels: {a: b}\n", "  startTime: soon\n", "key: ", "- ",
            "  ", "[", "]", "{", "}", ",", ": ", "|\n", ">\n", "'", "\"", "\\", "!x ", "&a ", "*a", "? ", "---\n",
            "...\n", "%YAML 1.2\n", "#", "\n", "\t", "\u{feff}", "é", "\0", "null", "~", "1e3",
        ];

        proptest! {
            #![proptest_config(cases(300))]

            #[test]
            fn document_is_read_or_refused_with_a_line_of_its_text(text in text(FRAGMENTS, 40)) {
                let lines = 2 + text.matches(['\n', '\r']).count();
                let source = Source { file: "f".to_owned(), folder: "/nowhere".into(), tenant: "default".to_owned() };
                let faults = match read(&text) {
                    Ok(nodes) => nodes.into_iter().filter_map(|node| Document::read(node, &source).err()).flatten().collect(),
                    Err(fault) => vec![fault],
                };
                for fault in faults {
                    prop_assert!(fault.line <= lines && !fault.message.is_empty(), "{fault:?}");
                }
            }
        }
    }
}

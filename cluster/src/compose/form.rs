//! A template as a text with holes, and a recipient's values for the holes.
//!
//! Called by `prepared.rs`. `{{ name }}` and `{{ name|urlencode }}` are evaluated without the template engine. The
//! engine renders all other code of a field at once.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use minijinja::HtmlEscape;

use super::RENDERED_BYTES_MAX;
use super::language::{self, URLENCODE};
use super::render::{FUEL, HTML, Templates, write_urlencoded};
use super::values::{Values, Variables};

/// Character on both sides of a mark in the text, and between the results of the engine. Content never contains it:
/// control characters are refused, and code that could create one is cut out of the text.
const MARK: char = '\0';
/// Upper bound of the engine's steps for code that is evaluated without the engine here.
const STEPS_PER_HOLE: u64 = 4;

/// The expressions of one field that depend on the recipient.
#[derive(Debug)]
pub(super) struct Expressions {
    field: String,
    holes: Vec<Hole>,
    /// One template for the engine, named by the field: the code that it must render, with [`MARK`] in between. `None`:
    /// there is no such code.
    templates: Option<Box<Templates>>,
    /// Number of holes that the engine fills.
    results: usize,
    /// Upper bound of the engine's steps for the rest of the field, if the field were rendered whole.
    steps: u64,
}

/// Content of a hole.
#[derive(Debug)]
enum Hole {
    /// Value of the variable at this position.
    Own(usize),
    /// Value of the variable at this position, percent-encoded.
    Link(usize),
    /// The engine's result with this number.
    Rendered(usize),
}

/// A recipient's values for the holes of one field.
pub(super) struct HoleValues<'a> {
    expressions: &'a Expressions,
    values: &'a Values<'a>,
    results: Vec<&'a str>,
}

impl Expressions {
    /// Splits a field into its expressions and its rendered text with marks. `None` if the field must be rendered
    /// whole.
    pub(super) fn new(templates: &Templates, field: &str, variables: &Variables) -> Option<(Expressions, String)> {
        let source = templates.source(field)?;
        let words = language::check(field, &source).ok()?;
        let mark = |index: usize| format!("{MARK}{index}{MARK}");
        let cut = words.cut(|word| variables.varying(word).is_some(), mark)?;
        let (mut holes, mut rest) = (Vec::new(), Vec::new());
        for code in cut.code {
            let hole = Hole::known(code, variables).unwrap_or(Hole::Rendered(rest.len()));
            if matches!(hole, Hole::Rendered(_)) {
                rest.push(code);
            }
            holes.push(hole);
        }
        let (marked, steps) =
            alone(field, &cut.text, variables)?.render_and_count(field, &variables.same(), RENDERED_BYTES_MAX).ok()?;
        let results = rest.len();
        let templates = match results {
            0 => None,
            _ => Some(alone(field, &rest.join(&MARK.to_string()), variables)?),
        };
        let steps = steps + STEPS_PER_HOLE * holes.len() as u64;
        Some((Expressions { field: field.to_owned(), holes, templates, results, steps }, marked))
    }

    /// Returns the engine's results for a recipient, for [`HoleValues::new`]. `None` if the engine fails, or if the
    /// whole field could exceed the fuel.
    pub(super) fn render(&self, values: &Values<'_>) -> Option<String> {
        let Some(templates) = &self.templates else { return (self.steps <= FUEL).then(String::new) };
        let results = templates.render_and_count(&self.field, values.for_templates(), RENDERED_BYTES_MAX);
        let (results, steps) = results.ok()?;
        (self.steps + steps <= FUEL).then_some(results)
    }
}

/// Returns one template alone, under the name of its field.
fn alone(field: &str, source: &str, variables: &Variables) -> Option<Box<Templates>> {
    let mut templates = Templates::new();
    let known: BTreeSet<&str> = variables.names().collect();
    templates.add(field, source, &known, &BTreeSet::new()).ok()?;
    Some(Box::new(templates))
}

impl Hole {
    /// Returns the hole for a piece of code that needs no engine. `None` if it needs the engine.
    fn known(code: &str, variables: &Variables) -> Option<Hole> {
        let code = code.strip_prefix("{{")?.strip_suffix("}}")?;
        let code = code.strip_prefix(['-', '+']).unwrap_or(code);
        let code = code.strip_suffix(['-', '+']).unwrap_or(code);
        let index = |name: &str| variables.varying(name.trim_ascii());
        match code.split_once('|') {
            None => index(code).map(Hole::Own),
            Some((name, filter)) if filter.trim_ascii() == URLENCODE => index(name).map(Hole::Link),
            Some(_) => None,
        }
    }
}

impl<'a> HoleValues<'a> {
    /// `results` comes from [`Expressions::render`]. Returns `None` if it has another number of parts than holes: a
    /// value contains the mark.
    pub(super) fn new(
        expressions: &'a Expressions,
        values: &'a Values<'a>,
        results: &'a str,
    ) -> Option<HoleValues<'a>> {
        let results: Vec<&str> = if expressions.results == 0 { Vec::new() } else { results.split(MARK).collect() };
        (results.len() == expressions.results).then_some(HoleValues { expressions, values, results })
    }

    /// Writes the content of a hole. Returns false if a value is missing or too long.
    fn write(&self, out: &mut String, hole: usize) -> bool {
        match self.expressions.holes.get(hole) {
            Some(Hole::Own(index)) => match self.values.own(*index) {
                None => return false,
                // Writing to a string never fails.
                Some(value) if self.expressions.field == HTML => drop(write!(out, "{}", HtmlEscape(value))),
                Some(value) => out.push_str(value),
            },
            Some(Hole::Link(index)) => {
                return self.values.own(*index).is_some_and(|value| write_urlencoded(out, value));
            }
            Some(Hole::Rendered(number)) => match self.results.get(*number) {
                None => return false,
                Some(result) => out.push_str(result),
            },
            None => return false,
        }
        true
    }
}

/// A text with holes.
#[derive(Debug)]
pub(super) struct TextWithHoles {
    pieces: Vec<Piece>,
    /// Bytes of the text without the content of its holes.
    pub(super) bytes: usize,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Hole(usize),
}

impl TextWithHoles {
    /// Cuts a text at its marks. `None` if a mark is malformed.
    pub(super) fn cut(marked: &str) -> Option<TextWithHoles> {
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        for (number, piece) in marked.split(MARK).enumerate() {
            if number % 2 == 1 {
                pieces.push(Piece::Hole(piece.parse().ok()?));
            } else if !piece.is_empty() {
                bytes += piece.len();
                pieces.push(Piece::Text(piece.to_owned()));
            }
        }
        Some(TextWithHoles { pieces, bytes })
    }

    pub(super) fn has_holes(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Hole(_)))
    }

    /// Returns the pieces of text between the holes.
    pub(super) fn fixed(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Hole(_) => None,
        })
    }

    /// Appends the filled text to `out`. Returns false if a hole cannot be filled, or if `out` exceeds `limit`.
    pub(super) fn fill(&self, out: &mut String, values: &HoleValues<'_>, limit: usize) -> bool {
        self.pieces.iter().all(|piece| {
            let is_written = match piece {
                Piece::Text(text) => {
                    out.push_str(text);
                    true
                }
                Piece::Hole(hole) => values.write(out, *hole),
            };
            is_written && out.len() <= limit
        })
    }
}

/// Returns true if a hole follows a CR. The hole's value then decides if the CR is part of a CRLF.
pub(super) fn a_hole_splits_a_line_end(marked: &str) -> bool {
    marked.contains(['\r', MARK].iter().collect::<String>().as_str())
}

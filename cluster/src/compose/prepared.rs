//! Prepares a content: renders once what is equal for all recipients, and per recipient only the expressions that
//! depend on it.
//!
//! Called by [`super::Compiled`]. `split.rs` separates these expressions of a template from the rest. The rest is
//! rendered once with marks instead of the expressions, and cut at the marks (`form.rs`). Lines of a body without a
//! mark are also encoded once.
//!
//! Invariant: the bytes equal those of an email that is rendered whole (property test in `tests/prepared.rs`). The
//! field is rendered whole for one recipient if the prepared pieces are not enough: a missing or long value, an
//! expression that fails, a lone CR, a text that is shorter in another encoding.

use std::borrow::Cow;

use super::RENDERED_BYTES_MAX;
use super::body::{self, Weight};
use super::form::{Expressions, HoleValues, TextWithHoles, a_hole_splits_a_line_end};
use super::render::Templates;
use super::values::{Values, Variables};

/// The fields of one content, prepared as far as possible without a recipient.
#[derive(Debug)]
pub(super) struct PreparedContent {
    pub(super) subject: Field,
    /// One for each header of the content.
    pub(super) headers: Vec<Field>,
    pub(super) text: Body,
    pub(super) html: Body,
}

impl PreparedContent {
    /// Returns a content without prepared parts, for a content with this number of headers.
    pub(super) fn none(headers: usize) -> PreparedContent {
        let headers = std::iter::repeat_with(|| Field::Whole).take(headers).collect();
        PreparedContent { subject: Field::Whole, headers, text: Body::Whole, html: Body::Whole }
    }

    /// Returns the estimated size of an email in bytes.
    pub(super) fn size(&self) -> usize {
        let size = |body: &Body| match body {
            Body::Whole => 4 * 1024,
            Body::Filled(_, text) => text.bytes * 3 / 2,
            Body::Lines(_, lines) => lines.encoded,
        };
        4 * 1024 + size(&self.text) + size(&self.html)
    }
}

/// The subject or a header.
#[derive(Debug)]
pub(super) enum Field {
    /// Rendered whole for each recipient.
    Whole,
    /// Encoded once: the field is the same for all recipients.
    Same(Vec<u8>),
    /// Filled for each recipient.
    Filled(Expressions, TextWithHoles),
}

impl Field {
    /// `encode` encodes a rendered field.
    pub(super) fn new(
        (templates, field, variables): (&Templates, &str, &Variables),
        encode: impl FnOnce(&str) -> Option<Vec<u8>>,
    ) -> Field {
        let ready = || {
            let (expressions, marked) = Expressions::new(templates, field, variables)?;
            let text = TextWithHoles::cut(&marked)?;
            if text.has_holes() {
                return Some(Field::Filled(expressions, text));
            }
            encode(&marked).map(Field::Same)
        };
        ready().unwrap_or(Field::Whole)
    }
}

/// The text or the html.
#[derive(Debug)]
pub(super) enum Body {
    /// Rendered whole for each recipient.
    Whole,
    /// Filled for each recipient, then encoded.
    Filled(Expressions, TextWithHoles),
    /// Encoded, except the lines with holes.
    Lines(Expressions, Lines),
}

impl Body {
    pub(super) fn new(templates: &Templates, field: &str, variables: &Variables) -> Body {
        let Some((expressions, marked)) = Expressions::new(templates, field, variables) else { return Body::Whole };
        match Lines::cut(&marked) {
            Some(lines) => Body::Lines(expressions, lines),
            None => TextWithHoles::cut(&marked).map_or(Body::Whole, |text| Body::Filled(expressions, text)),
        }
    }
}

/// Fills a text for a recipient. `None` if it must be rendered whole.
pub(super) fn fill(
    expressions: &Expressions,
    text: &TextWithHoles,
    values: &Values<'_>,
    limit: usize,
) -> Option<String> {
    let results = expressions.render(values)?;
    let hole_values = HoleValues::new(expressions, values, &results)?;
    let mut filled = String::with_capacity(text.bytes + 64);
    text.fill(&mut filled, &hole_values, limit).then_some(filled)
}

/// A body in quoted-printable.
#[derive(Debug)]
pub(super) struct Lines {
    blocks: Vec<Block>,
    /// Bytes of the rendered text outside lines with holes.
    rendered: usize,
    /// Sizes of the text for the choice of the encoding, without the lines with holes.
    weight: Weight,
    /// Bytes of the encoded blocks.
    encoded: usize,
    /// True if the text does not end with a line end.
    is_open: bool,
}

#[derive(Debug)]
enum Block {
    /// Whole lines, encoded.
    Encoded(Vec<u8>),
    /// One line without its line end. The content of its holes may contain more line ends.
    Template(TextWithHoles),
}

impl Lines {
    /// `None` if the text without values is shorter in base64, which does not keep lines.
    fn cut(marked: &str) -> Option<Lines> {
        if a_hole_splits_a_line_end(marked) {
            return None;
        }
        let (mut blocks, mut rendered, mut encoded) = (Vec::new(), marked.len(), 0);
        let (mut weight, mut with_holes) = (Weight::default(), Weight::default());
        for line in body::lines(&body::canonical(marked)) {
            let text = TextWithHoles::cut(line)?;
            if text.has_holes() {
                rendered -= line.len();
                text.fixed().for_each(|fixed| with_holes.add(fixed));
                blocks.push(Block::Template(text));
                continue;
            }
            weight.add_line(line);
            if !matches!(blocks.last(), Some(Block::Encoded(_))) {
                blocks.push(Block::Encoded(Vec::new()));
            }
            if let Some(Block::Encoded(block)) = blocks.last_mut() {
                encoded -= block.len();
                body::quote_line(block, line);
                encoded += block.len();
            }
        }
        let is_open = !marked.ends_with(['\r', '\n']);
        weight.and(with_holes).is_quoted().then_some(Lines { blocks, rendered, weight, encoded, is_open })
    }

    /// Writes the part. Returns false and writes nothing if it must be rendered whole.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        media_type: &str,
        expressions: &Expressions,
        values: &Values<'_>,
    ) -> bool {
        let start = out.len();
        body::head(out, media_type, body::QUOTED);
        let is_written = self.write_lines(out, expressions, values).is_some();
        if !is_written {
            out.truncate(start);
        }
        is_written
    }

    fn write_lines(&self, out: &mut Vec<u8>, expressions: &Expressions, values: &Values<'_>) -> Option<()> {
        let results = expressions.render(values)?;
        let hole_values = HoleValues::new(expressions, values, &results)?;
        let (mut weight, mut room) = (self.weight, RENDERED_BYTES_MAX.checked_sub(self.rendered)?);
        let mut filled = String::new();
        for (number, block) in self.blocks.iter().enumerate() {
            let text = match block {
                Block::Encoded(encoded) => {
                    out.extend_from_slice(encoded);
                    continue;
                }
                Block::Template(text) => text,
            };
            filled.clear();
            // A CR at the end is a line end or the first half of one.
            if !text.fill(&mut filled, &hole_values, room) || filled.ends_with('\r') {
                return None;
            }
            room -= filled.len();
            let lines = match filled.contains('\r') {
                true => Cow::Owned(filled.replace("\r\n", "\n").replace('\r', "\n")),
                false => Cow::Borrowed(filled.as_str()),
            };
            let is_last = number + 1 == self.blocks.len();
            let mut write = |line: &str| {
                weight.add_line(line);
                body::quote_line(out, line);
            };
            // A text without any line still has one.
            if is_last && self.is_open && !(number == 0 && lines.is_empty()) {
                lines.split_terminator('\n').for_each(&mut write);
            } else {
                lines.split('\n').for_each(&mut write);
            }
        }
        weight.is_quoted().then_some(())
    }
}

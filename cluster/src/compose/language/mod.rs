//! The part of the template language that content may use. It is checked before a template is compiled.
//!
//! Only [`super::Compiled::new`] calls this. A tenant writes a template and every node renders it, so only harmless
//! parts are allowed: variables, `if`, `for`, and the filters and tests listed here. Fuel and the limit on the output
//! bound the rest. This module refuses what they do not bound: values that double at each step (`~`, `*`, `+`, `set`,
//! `with`, macros), and expressions or `elif` chains that would overflow the compiler's stack, which `catch_unwind`
//! cannot catch.
//!
//! It is a scan, not a parser: a text that passes may still fail to compile and is refused then. It agrees with
//! minijinja's lexer about where code begins and ends, because every token that could make them differ (`raw`, braces
//! in code) is refused.

use std::ops::Range;

use super::ContentError;
use super::functions::{FILTERS, TESTS};

/// Maximum bytes of one `{{ … }}` or `{% … %}`. It bounds the depth of one expression.
pub(super) const CODE_BYTES_MAX: usize = 500;
/// Maximum depth of nested brackets in one expression.
pub(super) const BRACKETS_MAX: usize = 16;
/// Maximum depth of nested blocks.
pub(super) const BLOCKS_MAX: usize = 32;
/// Maximum number of `elif` branches in one template: each one is a level deeper for the compiler.
pub(super) const ELIF_MAX: usize = 50;
/// Tags that may begin a `{% … %}`.
const TAGS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];
/// Filter of Reveille itself: percent-encoding for links.
pub(super) const URLENCODE: &str = "urlencode";
/// The words in the code of a template, each with its byte offset.
pub(super) struct Words<'a> {
    pub(super) source: &'a str,
    pub(super) words: Vec<(usize, &'a str)>,
    pub(super) pieces: Vec<Piece>,
}

/// One piece of code: `{{ … }}` or `{% … %}`.
pub(super) struct Piece {
    pub(super) bytes: Range<usize>,
    /// Positions of its words among those of the template.
    pub(super) words: Range<usize>,
    /// True if a string in it contains a backslash.
    pub(super) escapes: bool,
}

impl Words<'_> {
    /// Returns the number of the line where a word is used first, from 1.
    pub(super) fn line_of(&self, word: &str) -> Option<u32> {
        let (offset, _) = self.words.iter().find(|(_, found)| *found == word)?;
        Some(line_at(self.source, *offset))
    }
}

/// Checks that `source` uses only the allowed language.
pub(super) fn check<'a>(field: &str, source: &'a str) -> Result<Words<'a>, ContentError> {
    let (words, pieces) = (Vec::new(), Vec::new());
    let mut scan =
        Scan { field, source, rest: source, brackets: 0, blocks: 0, elifs: 0, escapes: false, words, pieces };
    while let Some(offset) = scan.rest.find('{') {
        scan.skip(offset + 1);
        if scan.take('#') {
            scan.comment()?;
        } else if scan.take('{') {
            scan.code("}}", false)?;
        } else if scan.take('%') {
            scan.code("%}", true)?;
        }
    }
    Ok(Words { source, words: scan.words, pieces: scan.pieces })
}

fn line_at(source: &str, offset: usize) -> u32 {
    let before = source.as_bytes().iter().take(offset);
    u32::try_from(1 + before.filter(|byte| **byte == b'\n').count()).unwrap_or(u32::MAX)
}

struct Scan<'f, 'a> {
    field: &'f str,
    source: &'a str,
    rest: &'a str,
    brackets: usize,
    blocks: usize,
    elifs: usize,
    /// True if a string in the current piece of code contains a backslash.
    escapes: bool,
    words: Vec<(usize, &'a str)>,
    pieces: Vec<Piece>,
}

/// Kind of the next word of code.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    /// A tag's name.
    Tag,
    /// A filter's name.
    Filter,
    /// A test's name, or `not` before it.
    Test,
    /// A variable, an attribute or a key word.
    Anything,
}

impl Scan<'_, '_> {
    fn offset(&self) -> usize {
        self.source.len() - self.rest.len()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn take(&mut self, character: char) -> bool {
        match self.rest.strip_prefix(character) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn refuse<T>(&self, message: impl Into<String>) -> Result<T, ContentError> {
        let line = line_at(self.source, self.offset());
        Err(ContentError { field: self.field.to_owned(), line: Some(line), message: message.into() })
    }

    fn comment(&mut self) -> Result<(), ContentError> {
        let _ = self.take('-') || self.take('+');
        match self.rest.find("#}") {
            Some(end) => {
                self.skip(end + 2);
                Ok(())
            }
            None => self.refuse("the comment '{#' has no end; write '#}' where it ends"),
        }
    }

    /// Scans one piece of code after its opening marker, to behind `end`.
    fn code(&mut self, end: &str, tag: bool) -> Result<(), ContentError> {
        let (first_byte, first_word) = (self.offset() - 2, self.words.len());
        self.escapes = false;
        let _ = self.take('-') || self.take('+');
        let start = self.offset();
        self.brackets = 0;
        let mut expected = if tag { Expected::Tag } else { Expected::Anything };
        loop {
            self.rest = self.rest.trim_start_matches(|character: char| character.is_ascii_whitespace());
            if self.offset() - start > CODE_BYTES_MAX {
                return self.refuse(format!("an expression is longer than {CODE_BYTES_MAX} bytes; split it"));
            }
            let closing = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
            if let Some(rest) = closing.strip_prefix(end).or_else(|| self.rest.strip_prefix(end)) {
                self.rest = rest;
                let (bytes, words) = (first_byte..self.offset(), first_word..self.words.len());
                self.pieces.push(Piece { bytes, words, escapes: self.escapes });
                return if expected == Expected::Anything { Ok(()) } else { self.refuse("a name is missing") };
            }
            expected = self.token(end, expected)?;
        }
    }

    fn token(&mut self, end: &str, expected: Expected) -> Result<Expected, ContentError> {
        let Some(first) = self.rest.chars().next() else {
            return self.refuse(format!("'{end}' is missing; write it where the code ends"));
        };
        if first.is_ascii_alphabetic() || first == '_' {
            return self.word(expected);
        }
        if expected != Expected::Anything {
            return self.refuse(format!("'{first}' stands where a name is expected"));
        }
        match first {
            '"' | '\'' => self.text(first)?,
            '|' => {
                self.skip(1);
                return Ok(Expected::Filter);
            }
            '(' | '[' => self.open_bracket()?,
            ')' | ']' => {
                self.skip(1);
                self.brackets = self.brackets.saturating_sub(1);
            }
            '0'..='9' | '.' | ',' | '=' | '!' | '<' | '>' | '-' | '/' | '%' | ':' => self.skip(1),
            '~' | '+' | '*' => {
                return self.refuse(format!(
                    "'{first}' is not available; write the parts one after another: {{{{ a }}}}{{{{ b }}}}"
                ));
            }
            '{' | '}' => return self.refuse("a brace inside code; for a brace in the text write {{ \"{\" }}"),
            other => return self.refuse(format!("'{other}' has no meaning in a template")),
        }
        Ok(Expected::Anything)
    }

    fn open_bracket(&mut self) -> Result<(), ContentError> {
        self.skip(1);
        self.brackets += 1;
        if self.brackets > BRACKETS_MAX {
            return self.refuse(format!("more than {BRACKETS_MAX} brackets within brackets; simplify the expression"));
        }
        Ok(())
    }

    fn text(&mut self, quote: char) -> Result<(), ContentError> {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, character)| {
            let ends = *character == quote && !escaped;
            escaped = *character == '\\' && !escaped;
            ends
        });
        match end {
            Some((offset, _)) => {
                self.escapes |= self.rest.get(..offset).is_some_and(|text| text.contains('\\'));
                self.skip(offset + 1);
                Ok(())
            }
            None => self.refuse(format!("a text that begins with {quote} has no end; write {quote} where it ends")),
        }
    }

    fn word(&mut self, expected: Expected) -> Result<Expected, ContentError> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.check_word(word, expected)?;
        self.words.push((self.offset(), word));
        self.rest = rest;
        Ok(match (expected, word) {
            (Expected::Anything, "is") | (Expected::Test, "not") => Expected::Test,
            _ => Expected::Anything,
        })
    }

    fn check_word(&mut self, word: &str, expected: Expected) -> Result<(), ContentError> {
        let (kind, known) = match expected {
            Expected::Anything => return Ok(()),
            Expected::Test if word == "not" => return Ok(()),
            Expected::Filter if word == URLENCODE => return Ok(()),
            Expected::Tag => ("tag", TAGS.as_slice()),
            Expected::Filter => ("filter", FILTERS),
            Expected::Test => ("test", TESTS),
        };
        if !known.contains(&word) {
            let ours = if expected == Expected::Filter { &[URLENCODE][..] } else { &[] };
            let known = [known, ours].concat().join(", ");
            return self.refuse(format!("there is no {kind} '{word}'; there are: {known}"));
        }
        if expected == Expected::Tag {
            return self.count_tag(word);
        }
        Ok(())
    }

    fn count_tag(&mut self, tag: &str) -> Result<(), ContentError> {
        match tag {
            "if" | "for" => self.blocks += 1,
            "endif" | "endfor" => self.blocks = self.blocks.saturating_sub(1),
            "elif" => self.elifs += 1,
            _ => {}
        }
        if self.blocks > BLOCKS_MAX {
            return self.refuse(format!("more than {BLOCKS_MAX} blocks within blocks; use a column with the result"));
        }
        if self.elifs > ELIF_MAX {
            return self.refuse(format!("more than {ELIF_MAX} 'elif' in one template; use a column with the result"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

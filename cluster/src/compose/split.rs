//! Splits a template into the text that is the same for all recipients, and the code that depends on the recipient.
//!
//! Called by `prepared.rs`. Both stay source text of the template language: the text with a mark instead of each
//! piece of code is a template, and so is each piece of code.

use super::language::Words;

/// A template in two parts.
pub(super) struct Cut<'a> {
    /// The template, with a mark instead of each element of `code`.
    pub(super) text: String,
    /// Pieces of code, each from `{{` to `}}`, or a whole block from `{% if … %}` to `{% endif %}`.
    pub(super) code: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// Splits a template that compiles. `mark` returns the mark for the position of a piece of code; it has no quotes.
    ///
    /// Code with a backslash in a string counts as code that varies: the string could create a mark.
    pub(super) fn cut(&self, varies: impl Fn(&str) -> bool, mark: impl Fn(usize) -> String) -> Option<Cut<'a>> {
        let mut cut = Cut { text: String::with_capacity(self.source.len()), code: Vec::new() };
        // Everything before `copied_to` is in `cut.text`. The outermost open block or expression begins at
        // `block_start`.
        let (mut copied_to, mut block_start) = (0, 0);
        let (mut depth, mut block_varies) = (0_usize, false);
        for piece in &self.pieces {
            if depth == 0 {
                (block_start, block_varies) = (piece.bytes.start, false);
            }
            let words = self.words.get(piece.words.clone())?;
            block_varies |= piece.escapes || words.iter().any(|(_, word)| varies(word));
            let is_tag = self.source.get(piece.bytes.clone())?.starts_with("{%");
            match words.first().filter(|_| is_tag) {
                Some((_, "if" | "for")) => depth += 1,
                Some((_, "endif" | "endfor")) => depth = depth.checked_sub(1)?,
                _ => {}
            }
            if depth == 0 && block_varies {
                cut.text.push_str(self.source.get(copied_to..block_start)?);
                copied_to = piece.bytes.end;
                let code = self.source.get(block_start..copied_to)?;
                // Code that trims the text around it must be replaced by a mark that trims it in the same way.
                let left = if code.get(2..)?.starts_with('-') { "{{- \"" } else { "{{ \"" };
                let right = if code.get(..code.len() - 2)?.ends_with('-') { "\" -}}" } else { "\" }}" };
                for piece in [left, &mark(cut.code.len()), right] {
                    cut.text.push_str(piece);
                }
                cut.code.push(code);
            }
        }
        cut.text.push_str(self.source.get(copied_to..)?);
        (depth == 0).then_some(cut)
    }
}

#[cfg(test)]
mod tests {
    use crate::compose::language::check;

    fn cut(source: &str) -> Option<(String, Vec<&str>)> {
        let words = check("text", source).unwrap_or_else(|error| panic!("{error}"));
        let cut = words.cut(|word| word == "a", |number| number.to_string())?;
        Some((cut.text, cut.code))
    }

    #[test]
    fn code_that_varies_is_taken_out_and_leaves_a_mark() {
        for (source, text, code) in [
            ("", "", vec![]),
            ("x {{ b }} {# {{ a }} #}", "x {{ b }} {# {{ a }} #}", vec![]),
            ("x {{ a }} {{- b.a -}} {{'a'}}", "x {{ \"0\" }} {{- \"1\" -}} {{'a'}}", vec!["{{ a }}", "{{- b.a -}}"]),
            (
                "{% if b %}{% for c in d %}{{ a }}{% endfor %}{%- endif -%} {% if b %}{% endif %}",
                "{{ \"0\" -}} {% if b %}{% endif %}",
                vec!["{% if b %}{% for c in d %}{{ a }}{% endfor %}{%- endif -%}"],
            ),
            ("{{ '\\x00' }}{{+ a +}}", "{{ \"0\" }}{{ \"1\" }}", vec!["{{ '\\x00' }}", "{{+ a +}}"]),
        ] {
            assert_eq!(cut(source), Some((text.to_owned(), code)), "{source}");
        }
        assert_eq!(cut("{% if a %}"), None);
        assert_eq!(cut("{% endif %}"), None);
    }
}

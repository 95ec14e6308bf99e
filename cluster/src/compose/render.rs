//! Compiled templates and their rendering, with limits on time and memory.
//!
//! Only [`super::Compiled`] calls this. Each field of a content is one template with the field's name. Undefined
//! variables are errors, only the field `html` is escaped, and there is no loader: a template cannot use another
//! template, a file or the network. `language/mod.rs` decides what the language may contain; this module sets the fuel
//! and the limit on the output.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::functions::{register_filters, register_tests};
use super::language::{self, URLENCODE};
use super::{ContentError, VALUE_BYTES_MAX};

/// All but the unreserved characters of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Maximum number of instructions of one rendering, about 5 ms.
pub(super) const FUEL: u64 = 100_000;
/// Number of instructions of a text without code.
const LITERAL_STEPS: u64 = 1;
/// Name of the only field whose variables are escaped.
pub(super) const HTML: &str = "html";

/// The compiled templates of one content.
#[derive(Debug, Default)]
pub(super) struct Templates {
    /// Fields without code. An application often sends finished texts, and the engine takes 50 times as long for one.
    literals: BTreeMap<String, String>,
    /// The other fields.
    environment: Option<Environment<'static>>,
    /// Names of the variables that each field uses.
    used: BTreeMap<String, BTreeSet<String>>,
}

/// Returns the engine, without templates.
fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    // Without debug information errors contain no copies of source and values.
    environment.set_debug(false);
    environment.set_auto_escape_callback(|field| if field == HTML { AutoEscape::Html } else { AutoEscape::None });
    register_filters(&mut environment);
    environment.add_filter(URLENCODE, urlencode);
    register_tests(&mut environment);
    environment
}

impl Templates {
    pub(super) fn new() -> Templates {
        Templates::default()
    }

    /// Compiles `source` as `field`. Returns true if it renders the same for all recipients: it uses only variables in
    /// `constant`. `known` are all existing variables.
    pub(super) fn add(
        &mut self,
        field: &str,
        source: &str,
        known: &BTreeSet<&str>,
        constant: &BTreeSet<&str>,
    ) -> Result<bool, ContentError> {
        if !source.contains('{') {
            self.literals.insert(field.to_owned(), source.to_owned());
            return Ok(true);
        }
        let words = language::check(field, source)?;
        let engine = self.environment.get_or_insert_with(environment);
        engine.add_template_owned(field.to_owned(), source.to_owned()).map_err(|error| ContentError {
            field: field.to_owned(),
            line: line(&error),
            message: compile_message(&error),
        })?;
        let template = engine.get_template(field);
        let used = template.map(|template| template.undeclared_variables(false)).unwrap_or_default();
        // Ordered by name: the reported variable must not depend on a hash seed.
        let used: BTreeSet<String> = used.into_iter().collect();
        if let Some(unknown) = used.iter().find(|name| !known.contains(name.as_str())) {
            let known: Vec<&str> = known.iter().copied().collect();
            let message = format!(
                "unknown variable '{unknown}'; known are: {}. Correct the name, or add a variable or a column '{unknown}'",
                known.join(", ")
            );
            return Err(ContentError { field: field.to_owned(), line: words.line_of(unknown), message });
        }
        let same_for_all = used.iter().all(|name| constant.contains(name.as_str()));
        self.used.insert(field.to_owned(), used);
        Ok(same_for_all)
    }

    /// Returns the names of all variables that any template uses.
    pub(super) fn used(&self) -> BTreeSet<String> {
        self.used.values().flatten().cloned().collect()
    }

    /// Returns the names of the variables that one field uses.
    pub(super) fn used_by(&self, field: &str) -> impl Iterator<Item = &String> {
        self.used.get(field).into_iter().flatten()
    }

    /// Returns the source of a field.
    pub(super) fn source(&self, field: &str) -> Option<String> {
        let compiled = || self.environment.as_ref()?.get_template(field).ok().map(|known| known.source().to_owned());
        self.literals.get(field).cloned().or_else(compiled)
    }

    /// Renders one field into at most `limit` bytes.
    pub(super) fn render(&self, field: &str, values: &Value, limit: usize) -> Result<String, ContentError> {
        self.render_and_count(field, values, limit).map(|(text, _)| text)
    }

    /// Renders one field into at most `limit` bytes. Returns the number of steps with the text.
    pub(super) fn render_and_count(
        &self,
        field: &str,
        values: &Value,
        limit: usize,
    ) -> Result<(String, u64), ContentError> {
        let failed = |line, message| ContentError { field: field.to_owned(), line, message };
        let too_long = || failed(None, format!("is longer than {limit} bytes when rendered"));
        if let Some(literal) = self.literals.get(field) {
            let text = literal_text(literal);
            return if text.len() > limit { Err(too_long()) } else { Ok((text.to_owned(), LITERAL_STEPS)) };
        }
        let Some(environment) = &self.environment else { return Err(failed(None, "is no field".to_owned())) };
        let mut output = Bounded { bytes: Vec::new(), left: limit, full: false };
        let rendered = environment
            .get_template(field)
            .and_then(|template| template.render_captured_to(values.clone(), &mut output))
            .map(|captured| captured.state().fuel_levels().map_or(0, |(steps, _)| steps));
        if output.full {
            return Err(too_long());
        }
        let steps = rendered.map_err(|error| failed(line(&error), render_message(&error)))?;
        let text = String::from_utf8(output.bytes);
        text.map(|text| (text, steps)).map_err(|error| failed(None, error.to_string()))
    }
}

/// Returns what the engine makes of a text without code: it removes one end of line at the end.
fn literal_text(source: &str) -> &str {
    let text = source.strip_suffix('\n').unwrap_or(source);
    text.strip_suffix('\r').unwrap_or(text)
}

fn line(error: &Error) -> Option<u32> {
    error.line().and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0)
}

fn compile_message(error: &Error) -> String {
    format!("does not compile: {}. Correct the template", error.detail().unwrap_or("syntax error"))
}

fn render_message(error: &Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => format!("takes more than {FUEL} steps to render"),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    }
}

/// Percent-encodes all characters except the unreserved ones of RFC 3986. The length is limited because it may triple.
fn urlencode(text: &str) -> Result<String, Error> {
    let mut encoded = String::with_capacity(text.len());
    if !write_urlencoded(&mut encoded, text) {
        return Err(Error::new(ErrorKind::InvalidOperation, "the text is too long to be part of a link"));
    }
    Ok(encoded)
}

/// Appends the percent-encoded text. Returns false and appends nothing if the text is too long.
pub(super) fn write_urlencoded(out: &mut String, text: &str) -> bool {
    if text.len() > VALUE_BYTES_MAX / 3 {
        return false;
    }
    out.extend(utf8_percent_encode(text, RESERVED));
    true
}

/// A writer that fails after a limited number of bytes, which ends the rendering.
struct Bounded {
    bytes: Vec<u8>,
    left: usize,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            Some(left) => {
                self.left = left;
                self.bytes.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            None => {
                self.full = true;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::functions::{FILTERS, TESTS};

    fn render(field: &str, source: &str) -> Result<String, String> {
        let known = BTreeSet::from(["name", "count"]);
        let mut templates = Templates::new();
        templates.add(field, source, &known, &known).map_err(|error| error.to_string())?;
        let values = Value::from_pairs([("name", Value::from("<Ann & co>")), ("count", Value::from("3"))]);
        templates.render(field, &values, 10_000).map_err(|error| error.message)
    }

    #[test]
    fn every_filter_and_every_test_that_is_allowed_exists() {
        for &filter in FILTERS {
            let argument = if filter == "split" { "(' ')" } else { "" };
            let value = if matches!(filter, "abs" | "round" | "float") { "2" } else { "'2'" };
            assert!(render("text", &format!("{{{{ {value}|{filter}{argument} }}}}")).is_ok(), "{filter}");
        }
        for &test in TESTS {
            let argument = if test.ends_with("with") { "('x')" } else { "" };
            assert!(
                render(
                    "text",
                    &format!("{{{{ 2|{} is {test}{argument} }}}}", if argument.is_empty() { "int" } else { "e" })
                )
                .is_ok(),
                "{test}"
            );
        }
        assert_eq!(render("text", "{{ name|urlencode }}").as_deref(), Ok("%3CAnn%20%26%20co%3E"));
    }

    #[test]
    fn text_without_code_is_rendered_as_by_the_engine() {
        let none = BTreeSet::new();
        for text in ["", "a", "a\n", "a\r\n", "a\r", "\n\n", "<b>&amp; } %} #}\nä\n", "\r"] {
            for field in ["text", HTML] {
                let mut literal = Templates::new();
                assert_eq!(literal.add(field, text, &none, &none), Ok(true));
                let mut engine = Templates { environment: Some(environment()), ..Templates::default() };
                let compiled = engine.environment.as_mut().map(|engine| engine.add_template_owned(field, text));
                assert!(compiled.is_some_and(|compiled| compiled.is_ok()));
                let rendered = |of: &Templates| of.render_and_count(field, &Value::UNDEFINED, 100);
                let (text, steps) = rendered(&engine).unwrap();
                assert_eq!(rendered(&literal), Ok((text.clone(), LITERAL_STEPS)));
                assert!(steps <= LITERAL_STEPS, "{steps} steps");
                assert_eq!(literal.source(field), engine.source(field));
                assert_eq!(literal.render(field, &Value::UNDEFINED, text.len()).as_ref(), Ok(&text));
                if let Some(limit) = text.len().checked_sub(1) {
                    let refused = |of: &Templates| of.render(field, &Value::UNDEFINED, limit);
                    assert!(refused(&literal).is_err());
                    assert_eq!(refused(&literal), refused(&engine));
                }
            }
        }
    }

    #[test]
    fn only_html_is_escaped() {
        assert_eq!(render("html", "<b>{{ name }}</b>").as_deref(), Ok("<b>&lt;Ann &amp; co&gt;</b>"));
        assert_eq!(render("html", "{{ name|safe }}").as_deref(), Ok("<Ann & co>"));
        assert_eq!(render("text", "{{ name }}").as_deref(), Ok("<Ann & co>"));
        assert_eq!(render("headers.X-Html", "{{ name }}").as_deref(), Ok("<Ann & co>"));
    }

    #[test]
    fn rendering_ends_when_fuel_or_room_is_used_up() {
        let letters = "{% for a in '01234567890123456789' %}";
        let endless = format!("{}{}", letters.repeat(5), "{% endfor %}".repeat(5));
        assert_eq!(render("text", &endless), Err("takes more than 100000 steps to render".to_owned()));
        let wide = format!("{}{}{}", letters.repeat(2), "x".repeat(100), "{% endfor %}".repeat(2));
        assert_eq!(render("text", &wide), Err("is longer than 10000 bytes when rendered".to_owned()));
    }

    #[test]
    fn deepest_allowed_template_fits_into_small_stack() {
        let (brackets, blocks) = (language::BRACKETS_MAX, language::BLOCKS_MAX);
        let nested = format!("{}1{}", "(".repeat(brackets), ")".repeat(brackets));
        for source in [
            format!("{{{{ name{} }}}}", "|e".repeat(240)),
            format!("{{{{ name{} }}}}", ".b".repeat(240)),
            format!("{{{{ {}1 }}}}", "-".repeat(480)),
            format!("{{{{ {}1 }}}}", "not ".repeat(120)),
            format!("{{{{ 1{} }}}}", "/1".repeat(240)),
            format!("{{% if name %}}{}{{% endif %}}", "{% elif name %}".repeat(language::ELIF_MAX)),
            format!(
                "{}{{{{ {nested} }}}}{}",
                format!("{{% if {nested} %}}").repeat(blocks),
                "{% endif %}".repeat(blocks)
            ),
        ] {
            let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || render("text", &source));
            let rendered = thread.expect("a thread").join().expect("no panic");
            assert!(rendered.is_ok() || rendered == Err("undefined value".to_owned()), "{rendered:?}");
        }
    }

    #[test]
    fn unknown_variable_is_named_with_its_line() {
        assert_eq!(
            render("text", "Hello\n{{ nmae }}").unwrap_err(),
            "text, line 2: unknown variable 'nmae'; known are: count, name. Correct the name, or add a variable or a column 'nmae'"
        );
        assert_eq!(
            render("text", "\n\n{% if name %}")
                .unwrap_err()
                .split(". ")
                .next()
                .map(|text| text.starts_with("text, line 3: does not compile")),
            Some(true)
        );
        assert!(render("text", "{{ range(3) }}").unwrap_err().contains("unknown variable 'range'"), "no functions");
    }
}

//! The source of each variable's value, and the values of one recipient.
//!
//! Called by [`super::Compiled`]. A new kind of value that differs between recipients, for example a personal link, is
//! one more [`Source`]. Templates and prepared contents then treat it like a column.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use minijinja::Value;
use reveille_ledger::address::Mailbox;
use reveille_ledger::content::{Content, Recipient};
use reveille_ledger::ids::RunId;

use super::check::refuse;
use super::controls::not_one_line;
use super::render::Templates;
use super::{ContentError, RECIPIENT, RUN, SUBJECT, VALUE_BYTES_MAX};

/// Source of a variable's value.
#[derive(Debug)]
pub(super) enum Source {
    Same(Value),
    Column(usize),
    Recipient,
    Run,
}

/// The variables that any template uses, ordered by name.
#[derive(Debug)]
pub(super) struct Variables(Vec<(String, Source)>);

impl Variables {
    /// Finds the source of each used variable. The recipient's columns override the common values, and
    /// both override the built-in variables: a former release may have accepted the name of a newer one.
    pub(super) fn new(content: &Content, columns: &[String], used: &BTreeSet<String>) -> Variables {
        let source_of = |name: &String| {
            let column = columns.iter().position(|column| column == name).map(Source::Column);
            let same = || {
                let (_, value) = content.variables.iter().find(|(variable, _)| variable == name)?;
                Some(Source::Same(Value::from(value.as_str())))
            };
            column.or_else(same).or(match name.as_str() {
                RECIPIENT => Some(Source::Recipient),
                RUN => Some(Source::Run),
                _ => None,
            })
        };
        Variables(used.iter().filter_map(|name| source_of(name).map(|source| (name.clone(), source))).collect())
    }

    /// Returns the values that are the same for all emails.
    pub(super) fn same(&self) -> Value {
        self.with(|_, source| match source {
            Source::Same(value) => Some(value.clone()),
            Source::Column(_) | Source::Recipient | Source::Run => None,
        })
    }

    /// Returns the names of all variables.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the position of a variable whose value differs between emails. `None` for other names.
    pub(super) fn varying(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(known, source)| known == name && !matches!(source, Source::Same(_)))
    }

    fn with(&self, value: impl Fn(usize, &Source) -> Option<Value>) -> Value {
        let pairs = self.0.iter().enumerate();
        Value::from_pairs(pairs.filter_map(|(index, (name, source))| Some((name.as_str(), value(index, source)?))))
    }
}

/// The values of one recipient.
pub(super) struct Values<'a> {
    variables: &'a Variables,
    recipient: &'a Recipient,
    to: &'a Mailbox,
    run: String,
    gathered: OnceCell<Value>,
}

impl<'a> Values<'a> {
    pub(super) fn new(
        variables: &'a Variables,
        recipient: &'a Recipient,
        to: &'a Mailbox,
        run: RunId,
    ) -> Result<Values<'a>, ContentError> {
        let names_run = variables.0.iter().any(|(_, source)| matches!(source, Source::Run));
        let run = if names_run { run.to_string() } else { String::new() };
        let values = Values { variables, recipient, to, run, gathered: OnceCell::new() };
        for (index, (name, _)) in variables.0.iter().enumerate() {
            if values.own(index).is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
                let message = format!("the value is longer than {VALUE_BYTES_MAX} bytes");
                return refuse(format!("columns.{name}"), message);
            }
        }
        Ok(values)
    }

    /// Returns the value of a variable that differs between emails. `None` if the recipient's row is too short.
    pub(super) fn own(&self, index: usize) -> Option<&str> {
        match self.variables.0.get(index)?.1 {
            Source::Same(_) => None,
            Source::Column(column) => self.recipient.values.get(column).map(String::as_str),
            Source::Recipient => Some(self.to.address.as_given()),
            Source::Run => Some(&self.run),
        }
    }

    /// Returns all values for the template engine. A value is undefined if the row is too short, so that only templates
    /// that use it fail.
    pub(super) fn for_templates(&self) -> &Value {
        self.gathered.get_or_init(|| {
            self.variables.with(|index, source| match source {
                Source::Same(value) => Some(value.clone()),
                Source::Column(_) | Source::Recipient | Source::Run => self.own(index).map(Value::from),
            })
        })
    }
}

/// Returns the columns that the subject and the headers use. Also checks the common values that they use.
pub(super) fn in_headers(
    content: &Content,
    columns: &[String],
    headers: &[String],
    templates: &Templates,
) -> Result<Vec<(usize, String)>, ContentError> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for field in std::iter::once(SUBJECT).chain(headers.iter().map(String::as_str)) {
        for name in templates.used_by(field) {
            if let Some(index) = columns.iter().position(|column| column == name) {
                if !found.iter().any(|(known, _)| *known == index) {
                    found.push((index, field.to_owned()));
                }
                continue;
            }
            let value = content.variables.iter().find(|(variable, _)| variable == name);
            if let Some(why) = value.and_then(|(_, value)| not_one_line(value, field)) {
                return refuse(format!("variables.{name}"), why);
            }
        }
    }
    Ok(found)
}

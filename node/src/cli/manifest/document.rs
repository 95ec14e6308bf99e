//! Reads one document: `kind`, and as `spec` a message of the API.
//!
//! The message's descriptor says which keys there are and what each value is. So a scalar is read by the type of its
//! field: `09:00`, `no` and `1e3` are texts where the field is a text. A few keys name files instead ([`FILE_KEYS`]).

use std::collections::BTreeMap;
use std::path::PathBuf;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind as Type, MapKey, MessageDescriptor, Value};
use reveille_ledger::calendar::nearest_names;
use reveille_proto::admin::v1::Attachment;
use serde_json::json;

use super::kind::Kind;
use super::tree::{Fault, Node, Shape};
use crate::cli::failure::Failure;
use crate::cli::{attachments, input, recipients};
use crate::format;

/// Keys that name a file relative to the document: the message, the key in both spellings, and the field that the file
/// stands for.
const FILE_KEYS: [(&str, [&str; 2], &str); 4] = [
    ("Attachment", ["file", "file"], "data"),
    ("Content", ["textFile", "text_file"], "text"),
    ("Content", ["htmlFile", "html_file"], "html"),
    ("Audience", ["recipientsFile", "recipients_file"], "recipients"),
];
/// Unusable rows of a file that an error lists.
const BAD_ROWS_SHOWN: usize = 3;

/// A document that can be applied.
#[derive(Clone, Debug)]
pub struct Document {
    /// Where the document begins: `file:line`.
    pub place: String,
    /// The kind of object.
    pub kind: Kind,
    /// Tenant of the object; `None` for kinds without one.
    pub tenant: Option<String>,
    /// Name of the object.
    pub name: String,
    /// The message, files included.
    pub spec: DynamicMessage,
    /// Place of each field that the document gives, by its path in the spec.
    places: BTreeMap<String, String>,
}

/// Origin of documents.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name as the user gave it.
    pub file: String,
    /// Folder of the files that a document names.
    pub folder: PathBuf,
    /// Tenant of documents that name none.
    pub tenant: String,
}

impl Document {
    /// Reads a document and the files that it names. Each fault has the line of its key.
    pub fn read(node: Node, source: &Source) -> Result<Document, Vec<Fault>> {
        let Node { line, shape: Shape::Map(pairs) } = node else {
            return Err(vec![Fault::new(node.line, format!("a document is keys and values, not {}", node.noun()))]);
        };
        let (mut kind, mut spec, mut faults) = (None, None, Vec::new());
        for (key, node) in pairs {
            match key.as_str() {
                "kind" => kind = Some(node),
                "spec" => spec = Some(node),
                _ => {
                    let message = format!("unknown key `{key}`; a document has `kind` and `spec`, and all else in it");
                    faults.push(Fault::new(node.line, message));
                }
            }
        }
        let kind = kind_of(kind, line).map_err(|fault| faults.push(fault));
        let pairs = match spec {
            Some(Node { shape: Shape::Map(pairs), .. }) => Ok(pairs),
            Some(node) => Err(Fault::new(node.line, format!("`spec` is keys and values, not {}", node.noun()))),
            None => Err(Fault::new(line, "`spec` is missing: it has what the object is made of")),
        };
        let (Ok(kind), Ok(pairs)) = (kind, pairs.map_err(|fault| faults.push(fault))) else { return Err(faults) };
        let mut reader = Reader { kind, source, places: BTreeMap::new(), faults };
        let mut spec = reader.message(&kind.message(), pairs, "");
        let (named, path) = match kind {
            Kind::Campaign => (inner(&mut spec, "schedule"), "schedule.name"),
            _ => (Some(&mut spec), "name"),
        };
        let (name, tenant) = named.map(|named| name_and_tenant(named, &source.tenant)).unwrap_or_default();
        let Reader { places, mut faults, .. } = reader;
        if name.is_empty() && faults.is_empty() {
            faults.push(Fault::new(line, format!("`spec.{path}` is missing")));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Document { place: place(source, line), kind, tenant, name, spec, places })
    }

    /// Returns the place of an API field: `file:line` of its key, of the nearest key above it, or of the document.
    pub fn place_of(&self, field: &str) -> &str {
        let mut path = field.strip_prefix(self.kind.path_in_request()).unwrap_or(field);
        loop {
            match (self.places.get(path), path.rfind(['.', '['])) {
                (Some(place), _) => return place,
                (None, Some(end)) => path = path.get(..end).unwrap_or_default(),
                (None, None) => return &self.place,
            }
        }
    }
}

fn place(source: &Source, line: usize) -> String {
    format!("{}:{line}", source.file)
}

fn inner<'m>(message: &'m mut DynamicMessage, field: &str) -> Option<&'m mut DynamicMessage> {
    message.get_field_by_name_mut(field)?.as_message_mut()
}

/// Returns name and tenant of an object. Gives it the tenant if its kind has one and the document names none.
fn name_and_tenant(message: &mut DynamicMessage, tenant: &str) -> (String, Option<String>) {
    let text = |message: &DynamicMessage, field| Some(message.get_field_by_name(field)?.as_str()?.to_owned());
    if text(message, "tenant").is_some_and(|named| named.is_empty()) {
        message.set_field_by_name("tenant", Value::String(tenant.to_owned()));
    }
    (text(message, "name").unwrap_or_default(), text(message, "tenant"))
}

fn kind_of(node: Option<Node>, line: usize) -> Result<Kind, Fault> {
    let words = <Kind as clap::ValueEnum>::value_variants().iter().map(|kind| kind.word()).collect::<Vec<_>>();
    let known = format!("write one of {}", words.join(", "));
    let node = node.ok_or_else(|| Fault::new(line, format!("`kind` is missing: {known}")))?;
    let (line, text) = (node.line, scalar("kind", node)?);
    Kind::of(&text).ok_or_else(|| {
        let near = nearest_names(&text, &words).first().map(|near| format!("did you mean `{near}`?"));
        Fault::new(line, format!("unknown kind `{text}`; {}", near.unwrap_or(known)))
    })
}

/// Returns the text of a scalar.
fn scalar(key: &str, node: Node) -> Result<String, Fault> {
    match node.shape {
        Shape::Text(text) | Shape::Plain(text) => Ok(text),
        _ => Err(Fault::new(node.line, format!("`{key}` is one value, not {}", node.noun()))),
    }
}

/// Reads a tree as a message.
struct Reader<'s> {
    kind: Kind,
    source: &'s Source,
    places: BTreeMap<String, String>,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    /// Returns the message with all fields that can be read; the others are faults.
    fn message(&mut self, of: &MessageDescriptor, pairs: Vec<(String, Node)>, within: &str) -> DynamicMessage {
        let mut message = DynamicMessage::new(of.clone());
        let mut given: Vec<(FieldDescriptor, String)> = Vec::new();
        for (key, node) in pairs {
            let file_key = FILE_KEYS.iter().find(|(name, keys, _)| *name == of.name() && keys.contains(&key.as_str()));
            let name = file_key.map_or(key.as_str(), |(.., field)| field);
            let field = of.get_field_by_json_name(name).or_else(|| of.get_field_by_name(name));
            let Some(field) = field.filter(|field| !self.is_hidden(within, field)) else {
                self.faults.push(self.unknown(of, &key, node.line, within));
                continue;
            };
            // `null` is an absent value.
            if node.shape == Shape::Nothing {
                continue;
            }
            let excludes = |(other, _): &&(FieldDescriptor, String)| {
                *other == field || field.containing_oneof().is_some_and(|one| other.containing_oneof() == Some(one))
            };
            if let Some((_, other)) = given.iter().find(excludes) {
                let message = format!("`{other}` and `{key}` are both there: write one of them");
                self.faults.push(Fault::new(node.line, message));
                continue;
            }
            let path = if within.is_empty() { field.name().to_owned() } else { format!("{within}.{}", field.name()) };
            self.places.insert(path.clone(), place(self.source, node.line));
            let read = match file_key {
                Some(_) => self.file(&mut message, &field, &key, node, &path),
                None => self.value(&field, &key, node, &path).map(|value| message.set_field(&field, value)),
            };
            self.faults.extend(read.err());
            given.push((field, key));
        }
        message
    }

    fn is_hidden(&self, within: &str, field: &FieldDescriptor) -> bool {
        within.is_empty() && self.kind.hides(field.name())
    }

    fn unknown(&self, of: &MessageDescriptor, key: &str, line: usize, within: &str) -> Fault {
        let fields = of.fields().filter(|field| !self.is_hidden(within, field));
        let files = FILE_KEYS.iter().filter(|(name, ..)| *name == of.name()).map(|(_, [key, _], _)| (*key).to_owned());
        let names: Vec<String> = fields.map(|field| field.json_name().to_owned()).chain(files).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let near = nearest_names(key, &names).first().map(|near| format!("did you mean `{near}`?"));
        let near = near.unwrap_or_else(|| format!("known are {}", names.join(", ")));
        let place = if within.is_empty() { "spec".to_owned() } else { format!("spec.{within}") };
        Fault::new(line, format!("unknown key `{key}` in {place}; {near}"))
    }

    fn value(&mut self, field: &FieldDescriptor, key: &str, node: Node, path: &str) -> Result<Value, Fault> {
        let line = node.line;
        let wrong = |wanted: &str, node: Node| Fault::new(line, format!("`{key}` is {wanted}, not {}", node.noun()));
        match (field.kind(), node.shape) {
            (Type::Message(entry), Shape::Map(pairs)) if field.is_map() => {
                let kind = entry.map_entry_value_field();
                let pair = |(name, node): (String, Node)| {
                    let value = leaf(&kind, &name, node)?;
                    Ok((MapKey::String(name), value))
                };
                Ok(Value::Map(pairs.into_iter().map(pair).collect::<Result<_, Fault>>()?))
            }
            (_, shape) if field.is_map() => Err(wrong("keys and values", Node { line, shape })),
            (_, Shape::List(items)) if field.is_list() => {
                let mut values = Vec::with_capacity(items.len());
                for (number, item) in items.into_iter().enumerate() {
                    let path = format!("{path}[{number}]");
                    self.places.insert(path.clone(), place(self.source, item.line));
                    values.push(self.one(field, key, item, &path)?);
                }
                Ok(Value::List(values))
            }
            (_, shape) if field.is_list() => Err(wrong("a list", Node { line, shape })),
            (_, shape) => self.one(field, key, Node { line, shape }, path),
        }
    }

    fn one(&mut self, field: &FieldDescriptor, key: &str, node: Node, path: &str) -> Result<Value, Fault> {
        match (field.kind(), node.shape) {
            (Type::Message(inner), Shape::Map(pairs)) => Ok(Value::Message(self.message(&inner, pairs, path))),
            (Type::Message(inner), shape) if inner.package_name() != "google.protobuf" => {
                let node = Node { line: node.line, shape };
                Err(Fault::new(node.line, format!("`{key}` is keys and values, not {}", node.noun())))
            }
            (_, shape) => leaf(field, key, Node { line: node.line, shape }),
        }
    }

    /// Sets what a file stands for.
    fn file(
        &mut self,
        message: &mut DynamicMessage,
        field: &FieldDescriptor,
        key: &str,
        node: Node,
        path: &str,
    ) -> Result<(), Fault> {
        let line = node.line;
        let file = self.source.folder.join(scalar(key, node)?);
        let fault = |at: &str, message: &str| Fault::new(line, format!("{at}: {message}"));
        let failed = |failure: Failure| fault(failure.field.as_deref().unwrap_or_default(), &failure.message);
        match field.kind() {
            Type::String => {
                message.set_field(field, Value::String(input::text_file(&file).map_err(failed)?));
                return Ok(());
            }
            Type::Bytes => {
                let read = attachments::read(&[file.display().to_string()]).map_err(failed)?;
                for Attachment { name, content_type, data, .. } in read {
                    message.set_field(field, Value::Bytes(data.into()));
                    for (key, value) in [("name", name), ("content_type", content_type)] {
                        if !message.has_field_by_name(key) {
                            message.set_field_by_name(key, Value::String(value));
                        }
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        let read = recipients::read(&file).map_err(failed)?;
        let at = |line: u64| format!("{}:{line}", file.display());
        if let Some(first) = read.bad.first() {
            let shown = read.bad.iter().take(BAD_ROWS_SHOWN).map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Err(fault(
                &at(first.line),
                &format!("{} cannot be used: {shown}", format::counted(read.bad.len() as u64, "row")),
            ));
        }
        if read.lines.is_empty() {
            return Err(fault(&file.display().to_string(), "no row holds a recipient"));
        }
        let places = read.lines.iter().enumerate().map(|(number, line)| (format!("{path}[{number}]"), at(*line)));
        self.places.extend(places);
        // Cannot fail: the field is one of an audience.
        message.transcode_from(&read.audience).map_err(|error| fault(&file.display().to_string(), &error.to_string()))
    }
}

/// Reads one value that is a scalar in JSON.
fn leaf(field: &FieldDescriptor, key: &str, node: Node) -> Result<Value, Fault> {
    let line = node.line;
    let text = scalar(key, node)?;
    let value = match (field.kind(), text.as_str()) {
        (Type::Bool, "true") => json!(true),
        (Type::Bool, "false") => json!(false),
        _ => json!(text),
    };
    let value = if field.is_list() { json!([value]) } else { value };
    let alone = DynamicMessage::deserialize(field.parent_message().clone(), json!({ field.json_name(): value }));
    let read = alone.ok().map(|alone| alone.get_field(field).into_owned());
    let read = if field.is_list() { read.and_then(|list| list.as_list()?.first().cloned()) } else { read };
    read.ok_or_else(|| Fault::new(line, format!("`{key}` is {}, not {text:?}", wanted(field))))
}

/// Returns what a scalar has to be, in words.
fn wanted(field: &FieldDescriptor) -> String {
    match field.kind() {
        Type::Bool => "true or false".to_owned(),
        Type::Double | Type::Float => "a number".to_owned(),
        Type::String => "a text".to_owned(),
        Type::Bytes => "base64".to_owned(),
        Type::Enum(known) => {
            let names = known.values().filter(|value| value.number() != 0).map(|value| value.name().to_owned());
            format!("one of {}", names.collect::<Vec<_>>().join(", "))
        }
        Type::Message(inner) if inner.name() == "Duration" => "a length in seconds, such as 5400s".to_owned(),
        Type::Message(inner) if inner.name() == "Timestamp" => "an instant, such as 2030-01-01T09:00:00Z".to_owned(),
        _ => "a whole number in its range".to_owned(),
    }
}

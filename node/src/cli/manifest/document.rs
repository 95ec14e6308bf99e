//! Reads one document: its keys become flags of the command that creates such an object, and that command's parser
//! reads them.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches};
use reveille_ledger::calendar::nearest_names;

use super::tree::{Fault, Node, Shape};
use crate::cli::args::{AddRelayArgs, CampaignCreateArgs, CreateArgs, SetPoolArgs, SetTenantArgs, TLS_VALUES};
use crate::cli::recipients;

/// Kinds of objects that a document can describe.
const KINDS: [&str; 5] = ["schedule", "relay", "campaign", "tenant", "pool"];
/// Flags about the command's execution, which are no keys of a document.
const NO_KEYS: [&str; 2] = ["dry_run", "replace"];
/// Key of a document's list of recipients.
const RECIPIENTS: &str = "recipients";

/// Key of a schedule's labels.
const LABELS: &str = "labels";

/// A document that can be applied.
#[derive(Clone, Debug)]
pub struct Document {
    /// Where the document begins: `file:line`.
    pub place: String,
    /// The file's name as the user gave it.
    pub file: String,
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// Tenant of a schedule or a campaign; `None` for other kinds.
    pub tenant: Option<String>,
    /// Name of the object.
    pub name: String,
    /// Line number of each key.
    pub lines: BTreeMap<String, usize>,
    /// The object that the document describes.
    pub wish: DesiredObject,
}

/// The object that a document describes, as arguments of the command that creates it.
#[derive(Clone, Debug)]
pub enum DesiredObject {
    /// Arguments of `schedule create`.
    Schedule(Box<CreateArgs>),
    /// Arguments of `relay add`.
    Relay(Box<AddRelayArgs>),
    /// Arguments of `campaign create`.
    Campaign(Box<CampaignCreateArgs>),
    /// Arguments of `tenant set`. A limit that the document does not name is not set.
    Tenant(SetTenantArgs),
    /// Arguments of `pool set`.
    Pool(SetPoolArgs),
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
    /// Reads a document. Each fault has the line of its key.
    pub fn read(node: Node, source: &Source) -> Result<Document, Vec<Fault>> {
        let Node { line, shape: Shape::Map(mut pairs) } = node else {
            return Err(vec![Fault::new(node.line, format!("a document is keys and values, not {}", node.noun()))]);
        };
        let kind = kind(&mut pairs, line).map_err(|fault| vec![fault])?;
        let lines: BTreeMap<String, usize> = pairs.iter().map(|(key, node)| (key.clone(), node.line)).collect();
        let mut faults = Vec::new();
        let tenant = matches!(kind, "schedule" | "campaign").then(|| {
            let named = take(&mut pairs, "tenant").map(|node| scalar("tenant", node)).transpose();
            let named = named.map_err(|fault| faults.push(fault)).unwrap_or_default().flatten();
            named.unwrap_or_else(|| source.tenant.clone())
        });
        let listed = if kind == "schedule" { listed(&mut pairs) } else { Ok(None) };
        let listed = listed.map_err(|fault| faults.push(fault)).unwrap_or_default();
        let command = Command::new(kind);
        let command = match kind {
            "schedule" => CreateArgs::augment_args(command),
            "campaign" => CampaignCreateArgs::augment_args(command),
            "tenant" => SetTenantArgs::augment_args(command),
            "pool" => SetPoolArgs::augment_args(command),
            _ => AddRelayArgs::augment_args(command),
        };
        let words = words(&command, pairs, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let parsed = parse(command, words, listed, source);
        let wish = parsed.map_err(|error| vec![fault_of(&error, &lines, line)])?;
        if let DesiredObject::Relay(args) = &wish
            && args.encryption().is_none()
        {
            let line = lines.get("host").copied().unwrap_or(line);
            let message = format!("`tls` is missing, and {} is not on this machine: {TLS_VALUES}", args.host);
            return Err(vec![Fault::new(line, message)]);
        }
        let name = match &wish {
            DesiredObject::Schedule(args) => args.name.clone(),
            DesiredObject::Relay(args) => args.name.clone(),
            DesiredObject::Campaign(args) => args.name.clone(),
            DesiredObject::Tenant(args) => args.name.clone(),
            DesiredObject::Pool(args) => args.name.clone(),
        };
        let place = format!("{}:{line}", source.file);
        Ok(Document { place, file: source.file.clone(), kind, tenant, name, lines, wish })
    }

    /// Returns the place of an API field: `file:line` of its key, or of the document.
    pub fn place_of(&self, field: &str) -> String {
        let field = field.strip_prefix("schedule.").or_else(|| field.strip_prefix("relay.")).unwrap_or(field);
        let part = |whole: &str| field.strip_prefix(whole).map(|rest| rest.trim_start_matches('.'));
        let keys: Vec<&str> = match (part("when"), part("audience"), part("content").or(part("policies"))) {
            (Some(_), _, _) => vec!["cron", "daily", "every", "at"],
            (_, Some(_), _) => vec!["to", RECIPIENTS, "audience"],
            (_, _, Some("text")) => vec!["text", "inline_text"],
            (_, _, Some("html")) => vec!["html", "inline_html"],
            (_, _, Some(part)) if part.starts_with("headers") => vec!["header"],
            (_, _, Some(part)) if part.starts_with("variables") => vec!["var"],
            (_, _, Some(part)) => vec![part],
            _ => match field {
                "zone" => vec!["tz"],
                "rate_per_second" => vec!["rate"],
                "late_rate_per_second" => vec!["late_rate"],
                "max_sessions" => vec!["sessions"],
                "canary.percent" => vec!["canary"],
                "canary.hold_percent" => vec!["canary_hold", "canary"],
                label if label.starts_with("labels.") => vec![LABELS],
                other => vec![other],
            },
        };
        let line = keys.iter().find_map(|key| self.lines.get(*key));
        line.map_or_else(|| self.place.clone(), |line| format!("{}:{line}", self.file))
    }
}

fn take(pairs: &mut Vec<(String, Node)>, key: &str) -> Option<Node> {
    let place = pairs.iter().position(|(name, _)| name == key)?;
    Some(pairs.remove(place).1)
}

/// Returns the text of a scalar, or `None` if it is empty.
fn scalar(key: &str, node: Node) -> Result<Option<String>, Fault> {
    match node.shape {
        Shape::Nothing => Ok(None),
        Shape::Text(text) | Shape::Plain(text) => Ok(Some(text)),
        _ => Err(Fault::new(node.line, format!("`{key}` is one text, not {}", node.noun()))),
    }
}

fn kind(pairs: &mut Vec<(String, Node)>, line: usize) -> Result<&'static str, Fault> {
    let known = format!("`kind: {}`", KINDS.join("`, `kind: "));
    let Some(node) = take(pairs, "kind") else {
        return Err(Fault::new(line, format!("`kind` is missing: write one of {known}")));
    };
    let line = node.line;
    let text = scalar("kind", node)?.unwrap_or_default();
    KINDS.into_iter().find(|kind| *kind == text).ok_or_else(|| {
        let near = nearest_names(&text, &KINDS).first().map(|near| format!("did you mean `{near}`?"));
        Fault::new(line, format!("unknown kind `{text}`; {}", near.unwrap_or_else(|| format!("write one of {known}"))))
    })
}

/// Reads recipients with variables, as a document lists them. The first recipient sets the columns.
fn listed(pairs: &mut [(String, Node)]) -> Result<Option<recipients::Recipients>, Fault> {
    let is_listed = |(key, node): &&mut (String, Node)| key == RECIPIENTS && matches!(node.shape, Shape::List(_));
    let Some((_, node)) = pairs.iter_mut().find(is_listed) else { return Ok(None) };
    // The parser requires a flag for recipients. The caller replaces this placeholder by the list afterwards.
    let shape = std::mem::replace(&mut node.shape, Shape::Text(RECIPIENTS.to_owned()));
    let Shape::List(items) = shape else { return Ok(None) };
    let mut rows = Vec::with_capacity(items.len());
    for item in items {
        let line = item.line;
        let Shape::Map(fields) = item.shape else {
            let example = "each recipient is keys and values, such as `- email: ann@example.com`";
            return Err(Fault::new(line, format!("{example}; addresses alone stand in `to`")));
        };
        let mut row = Vec::with_capacity(fields.len());
        for (key, node) in fields {
            let value = scalar(&key, node)?.unwrap_or_default();
            row.push((key, value));
        }
        rows.push((line as u64, row));
    }
    recipients::of_rows(rows).map(Some).map_err(|bad| Fault::new(bad.line as usize, bad.problem))
}

/// Converts the keys to words of a command line.
fn words(command: &Command, pairs: Vec<(String, Node)>, faults: &mut Vec<Fault>) -> Vec<String> {
    let key_of = |argument: &Arg| argument.get_long().map_or("name".to_owned(), key_of);
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let known: BTreeMap<String, &Arg> = arguments
        .map(|argument| (key_of(argument), argument))
        .filter(|(key, _)| !NO_KEYS.contains(&key.as_str()))
        .collect();
    let mut words = Vec::new();
    let mut name = Vec::new();
    for (key, node) in pairs {
        let line = node.line;
        let Some(argument) = known.get(&key) else {
            faults.push(unknown(line, &key, &known));
            continue;
        };
        let Some(long) = argument.get_long() else {
            // A positional argument comes after `--`, in case it begins with a hyphen.
            let text = scalar(&key, node).map_err(|fault| faults.push(fault)).unwrap_or_default();
            name.extend(text.into_iter().flat_map(|text| ["--".to_owned(), text]));
            continue;
        };
        match said(&key, argument, node) {
            Ok(values) => words.extend(values.into_iter().map(|value| match value {
                None => format!("--{long}"),
                Some(value) => format!("--{long}={value}"),
            })),
            Err(fault) => faults.push(fault),
        }
    }
    words.extend(name);
    words
}

fn unknown(line: usize, key: &str, known: &BTreeMap<String, &Arg>) -> Fault {
    let names: Vec<&str> = ["kind", "tenant"].into_iter().chain(known.keys().map(String::as_str)).collect();
    let near = nearest_names(key, &names).first().map(|near| format!("did you mean `{near}`?"));
    let near = near.unwrap_or_else(|| format!("known are {}", names.join(", ")));
    Fault::new(line, format!("unknown key `{key}`; {near}"))
}

/// Returns the values of a key's flag, one for each time that the flag is given. `None` is a flag without a value.
fn said(key: &str, argument: &Arg, node: Node) -> Result<Vec<Option<String>>, Fault> {
    let is_pair = argument.get_value_names().is_some_and(|names| names.iter().any(|name| name.contains('=')));
    let line = node.line;
    match (argument.get_action(), node.shape) {
        (_, Shape::Nothing) => Ok(Vec::new()),
        (ArgAction::SetTrue, Shape::Text(text)) => match text.as_str() {
            "true" => Ok(vec![None]),
            "false" => Ok(Vec::new()),
            _ => Err(Fault::new(line, format!("`{key}` is true or false, not {text:?}"))),
        },
        (ArgAction::Append, Shape::Map(pairs)) if is_pair => {
            let pair = |(name, node): (String, Node)| {
                let value = scalar(&name, node)?.unwrap_or_default();
                Ok(Some(format!("{name}={value}")))
            };
            pairs.into_iter().map(pair).collect()
        }
        (ArgAction::Append, Shape::Text(text)) if !is_pair => Ok(vec![Some(text)]),
        (ArgAction::Append, Shape::List(items)) if !is_pair => {
            let values = items.into_iter().map(|item| scalar(key, item)).collect::<Result<Vec<_>, _>>()?;
            Ok(values.into_iter().flatten().map(Some).collect())
        }
        (ArgAction::Append, shape) => {
            let wanted = if is_pair { "keys and values" } else { "a text or a list of them" };
            Err(Fault::new(line, format!("`{key}` is {wanted}, not {}", Node { line, shape }.noun())))
        }
        (_, shape) => Ok(scalar(key, Node { line, shape })?.map(Some).into_iter().collect()),
    }
}

fn parse(
    command: Command,
    words: Vec<String>,
    listed: Option<recipients::Recipients>,
    source: &Source,
) -> Result<DesiredObject, clap::Error> {
    let kind = command.get_name().to_owned();
    let command = command.no_binary_name(true).disable_help_flag(true).disable_version_flag(true);
    let matches = command.try_get_matches_from(words)?;
    let beside = |path: &mut Option<PathBuf>| *path = path.take().map(|path| source.folder.join(path));
    match kind.as_str() {
        "relay" => return Ok(DesiredObject::Relay(Box::new(AddRelayArgs::from_arg_matches(&matches)?))),
        "tenant" => return Ok(DesiredObject::Tenant(SetTenantArgs::from_arg_matches(&matches)?)),
        "pool" => return Ok(DesiredObject::Pool(SetPoolArgs::from_arg_matches(&matches)?)),
        "campaign" => {
            let mut args = CampaignCreateArgs::from_arg_matches(&matches)?;
            beside(&mut args.content.texts.text);
            beside(&mut args.content.texts.html);
            return Ok(DesiredObject::Campaign(Box::new(args)));
        }
        _ => {}
    }
    let mut args = CreateArgs::from_arg_matches(&matches)?;
    beside(&mut args.content.texts.text);
    beside(&mut args.content.texts.html);
    beside(&mut args.recipients.recipients);
    if listed.is_some() {
        args.recipients.recipients = Some(PathBuf::from(&source.file));
    }
    args.recipients.listed = listed;
    Ok(DesiredObject::Schedule(Box::new(args)))
}

/// Converts an error of the flags' parser to one about keys.
fn fault_of(error: &clap::Error, lines: &BTreeMap<String, usize>, first: usize) -> Fault {
    let texts = |kind| -> Vec<&str> {
        match error.get(kind) {
            Some(ContextValue::String(text)) => vec![text],
            Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    };
    let keys = |kind| texts(kind).into_iter().flat_map(keys_of).collect::<Vec<String>>();
    let named = keys(ContextKind::InvalidArg);
    let line = named.iter().find_map(|key| lines.get(key)).copied().unwrap_or(first);
    let key = named.first().cloned().unwrap_or_default();
    let value = texts(ContextKind::InvalidValue).first().copied().unwrap_or_default();
    let message = match error.kind() {
        ErrorKind::ValueValidation => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            format!("`{key}`: {value:?}: {why}")
        }
        ErrorKind::InvalidValue => {
            let value = if value.is_empty() { "nothing".to_owned() } else { format!("{value:?}") };
            match texts(ContextKind::ValidValue).as_slice() {
                [] => format!("`{key}` cannot be {value}"),
                known => format!("`{key}` cannot be {value}; write one of {}", known.join(", ")),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            // Each text is a flag, or a group of flags of which one is required.
            let needed = texts(ContextKind::InvalidArg).into_iter().map(|text| match keys_of(text).as_slice() {
                [one] => format!("`{one}`"),
                several => format!("one of `{}`", several.join("`, `")),
            });
            match needed.collect::<Vec<_>>().as_slice() {
                [one] if one.starts_with('`') => format!("{one} is missing"),
                [one] => format!("{one} is needed"),
                several => format!("these are missing: {}", several.join("; ")),
            }
        }
        ErrorKind::ArgumentConflict => {
            let prior = keys(ContextKind::PriorArg);
            format!("`{key}` and `{}` are both there: write one of them", prior.join("`, `"))
        }
        _ => error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    };
    Fault::new(line, message)
}

/// Returns the key of a flag: `start_within` for `start-within`. `--label` sets one label, and its key sets all of
/// them.
fn key_of(long: &str) -> String {
    if long == "label" { LABELS.to_owned() } else { long.replace('-', "_") }
}

/// Returns the keys in a usage text: `--start-within <DURATION>` is `start_within`. A group has several keys.
fn keys_of(usage: &str) -> Vec<String> {
    let word = |text: &str| {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(text.len());
        key_of(text.get(..end).unwrap_or_default())
    };
    let keys: Vec<String> = usage.split("--").skip(1).map(word).collect();
    if keys.is_empty() { vec![word(usage.trim_start_matches('<')).to_lowercase()] } else { keys }
}

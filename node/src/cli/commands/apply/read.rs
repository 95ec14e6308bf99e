//! Reads all documents and the files that they name, before the first request. All problems are reported together, and
//! then nothing is sent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reveille_proto::admin::v1::{CreateCampaignRequest, Pool, Relay, ScheduleBody, Tenant};

use crate::cli::args::{ManifestFiles, SetPoolArgs, SetTenantArgs};
use crate::cli::commands::schedule::body;
use crate::cli::commands::{campaign, relay};
use crate::cli::failure::Failure;
use crate::cli::input;
use crate::cli::manifest::document::{DesiredObject, Document, Source};
use crate::cli::manifest::export;
use crate::cli::manifest::tree::{self, Fault, Node};
use crate::cli::recipients::Recipients;

/// Limit of one file's size in bytes.
const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// File name extensions that are read in a folder.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// Limit of problems that an error lists; the rest is only counted.
const PROBLEMS_SHOWN: usize = 20;

/// A document, and the request that it stands for.
pub struct Asked {
    pub document: Document,
    pub wish: Message,
}

/// The document as an API message.
pub enum Message {
    Schedule {
        body: Box<ScheduleBody>,
        recipients: Box<Recipients>,
    },
    Relay(Box<Relay>),
    Campaign(Box<CreateCampaignRequest>),
    /// The tenant's limits. A limit that the document does not name is not set.
    Tenant(Box<Tenant>),
    /// The pool's settings. Without a warm-up or a first day, the pool keeps its present value.
    Pool(Box<Pool>),
}

fn tenant(args: SetTenantArgs) -> Tenant {
    Tenant {
        name: args.name,
        rate_per_second: args.rate.unwrap_or_default(),
        concurrency: args.concurrency.unwrap_or_default(),
        share: args.share.unwrap_or(1),
        ..Tenant::default()
    }
}

fn pool(args: SetPoolArgs) -> Pool {
    let first_day = args.first_day.unwrap_or_default();
    let reveille_headers = args.reveille_headers.unwrap_or(true);
    Pool { name: args.name, warm_up: args.warm_up, first_day, reveille_headers, ..Pool::default() }
}

impl Asked {
    /// Returns the whole document as a tree.
    pub fn tree(&self) -> Node {
        match &self.wish {
            Message::Schedule { body, .. } => export::schedule(body),
            Message::Relay(relay) => export::relay(relay),
            Message::Campaign(asked) => {
                export::campaign(asked.schedule.as_ref().unwrap_or(&ScheduleBody::default()), asked.canary.as_ref())
            }
            Message::Tenant(tenant) => export::tenant(tenant),
            Message::Pool(pool) => export::pool(pool),
        }
    }

    /// Returns the cluster's refusal with the place in the document or the recipients file that it concerns.
    pub fn placed(&self, failure: Failure) -> Failure {
        if let (Message::Schedule { recipients, .. }, DesiredObject::Schedule(args)) = (&self.wish, &self.document.wish)
            && failure.field.as_deref().is_some_and(|field| field.contains("recipients["))
        {
            return body::at_line(failure, &args.recipients, recipients);
        }
        let message = match &failure.field {
            // The error names the line of the document; the author does not know the API's field path.
            Some(field) if !field.starts_with("--") => failure.message.replace(&format!("{field}: "), ""),
            _ => failure.message.clone(),
        };
        let field = match &failure.field {
            // A flag such as `--endpoint` is not part of a document.
            Some(flag) if flag.starts_with("--") => flag.clone(),
            Some(field) => self.document.place_of(field),
            None => self.document.place.clone(),
        };
        Failure { field: Some(field), message, ..failure }
    }
}

/// The place of a problem, and its message.
type Problem = (String, String);

/// Reads all documents of the named files and folders. Fails with all problems together.
pub async fn all(tenant: &str, manifest: &ManifestFiles) -> Result<Vec<Asked>, Failure> {
    let mut asked = Vec::new();
    let mut problems: Vec<Problem> = Vec::new();
    for path in &manifest.files {
        for file in files(path)? {
            let text = text(&file).await?;
            let folder = file.parent().filter(|_| !is_stdin(&file)).map(Path::to_owned).unwrap_or_default();
            let source = Source { file: name(&file), folder, tenant: tenant.to_owned() };
            match tree::read(&text) {
                Ok(nodes) => nodes.into_iter().for_each(|node| match document(node, &source) {
                    Ok(one) => asked.push(one),
                    Err(more) => problems.extend(more),
                }),
                Err(fault) => problems.push(at(&source, &fault)),
            }
        }
    }
    problems.extend(twice(&asked));
    if let Some(failure) = failure_of(&problems) {
        return Err(failure);
    }
    if asked.is_empty() {
        let names = manifest.files.iter().map(|path| name(path)).collect::<Vec<_>>().join(", ");
        let next =
            Some("reveille apply --help shows one; reveille schedule show NAME --manifest prints one".to_owned());
        return Err(Failure { next, ..Failure::file(names, "there is no document".to_owned()) });
    }
    Ok(asked)
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { path.display().to_string() }
}

fn at(source: &Source, fault: &Fault) -> Problem {
    (format!("{}:{}", source.file, fault.line), fault.message.clone())
}

/// Returns the file itself, or the document files of a folder sorted by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if is_stdin(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |error: std::io::Error| Failure::file(name(path), format!("cannot be read: {error}"));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        let message = "there is no file *.yaml, *.yml or *.json in this folder".to_owned();
        return Err(Failure::file(name(path), message));
    }
    files.sort();
    Ok(files)
}

async fn text(path: &Path) -> Result<String, Failure> {
    let refused = |message: String| Failure::file(name(path), message);
    let read = input::bytes(path, FILE_BYTES_MAX).await;
    let bytes = read.map_err(|error| refused(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(format!("more than {FILE_BYTES_MAX} bytes: split it")));
    }
    String::from_utf8(bytes).map_err(|_| refused("not UTF-8; save the file as UTF-8".to_owned()))
}

/// Reads one document and the files that it names.
fn document(node: Node, source: &Source) -> Result<Asked, Vec<Problem>> {
    let read = Document::read(node, source);
    let document = read.map_err(|faults| faults.iter().map(|fault| at(source, fault)).collect::<Vec<_>>())?;
    let problem = |failure: Failure| {
        let file = failure.field.map(|field| format!("{field}: ")).unwrap_or_default();
        vec![(document.place.clone(), format!("{file}{}", failure.message))]
    };
    let wish = match document.wish.clone() {
        DesiredObject::Relay(args) => Message::Relay(Box::new(relay::relay(*args).map_err(problem)?)),
        DesiredObject::Campaign(args) => {
            let tenant = document.tenant.clone().unwrap_or_default();
            Message::Campaign(Box::new(campaign::asked(tenant, *args).map_err(problem)?))
        }
        DesiredObject::Tenant(args) => Message::Tenant(Box::new(tenant(args))),
        DesiredObject::Pool(args) => Message::Pool(Box::new(pool(args))),
        DesiredObject::Schedule(args) => {
            let recipients = body::recipients(&args.recipients).map_err(problem)?;
            let tenant = document.tenant.clone().unwrap_or_default();
            let body = body::body(tenant, *args, &recipients).map_err(problem)?;
            Message::Schedule { body: Box::new(body), recipients: Box::new(recipients) }
        }
    };
    Ok(Asked { document, wish })
}

/// Reports documents that name the same object: they would undo each other.
fn twice(asked: &[Asked]) -> Vec<Problem> {
    let mut known: BTreeMap<(&str, Option<&str>, &str), &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for Asked { document, .. } in asked {
        let key = (document.kind, document.tenant.as_deref(), document.name.as_str());
        if let Some(earlier) = known.insert(key, &document.place) {
            let message = format!("{} {} is there twice: see {earlier}", document.kind, document.name);
            problems.push((document.place.clone(), message));
        }
    }
    problems
}

fn failure_of(problems: &[Problem]) -> Option<Failure> {
    let (place, message) = problems.first()?;
    let message = match problems.len() {
        1 => format!("{message}; nothing was changed"),
        count => {
            let mut message = format!("{count} problems, so nothing was changed");
            for (place, problem) in problems.iter().take(PROBLEMS_SHOWN) {
                message.push_str(&format!("\n  {place}: {problem}"));
            }
            if let Some(more) = count.checked_sub(PROBLEMS_SHOWN).filter(|more| *more > 0) {
                message.push_str(&format!("\n  and {more} more"));
            }
            message
        }
    };
    let next = Some("reveille apply --help shows a document".to_owned());
    Some(Failure { next, ..Failure::file(place.clone(), message) })
}

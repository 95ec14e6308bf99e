//! Reads all documents and the files that they name, before the first request. All problems are reported together, and
//! then nothing is sent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::commands::{Failure, Kind, input, listed};
use crate::cli::manifest::document::{Document, Source};
use crate::cli::manifest::tree::{self, Fault};

/// Where documents are.
#[derive(Debug, Args)]
pub struct ManifestFiles {
    /// A file, a folder (its *.yaml, *.yml and *.json), or - for stdin; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", required = true)]
    pub files: Vec<PathBuf>,
}

/// Limit of one file's size in bytes.
const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// File name extensions that are read in a folder.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// Limit of problems that an error lists; the rest is only counted.
const PROBLEMS_SHOWN: usize = 20;

/// Returns the cluster's refusal with the place in the document, or in a file that it names.
pub fn placed(document: &Document, failure: Failure) -> Failure {
    let message = match &failure.field {
        // The error names the line of the document; the author does not know the API's field path.
        Some(field) if !field.starts_with("--") => failure.message.replace(&format!("{field}: "), ""),
        _ => failure.message.clone(),
    };
    let field = match &failure.field {
        // A flag such as `--endpoint` is not part of a document.
        Some(flag) if flag.starts_with("--") => flag.clone(),
        Some(field) => document.place_of(field).to_owned(),
        None => document.place.clone(),
    };
    Failure { field: Some(field), message, ..failure }
}

/// The place of a problem, and its message.
type Problem = (String, String);

/// Reads all documents of the named files and folders. Fails with all problems together.
pub async fn all(tenant: &str, manifest: &ManifestFiles) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    let mut problems: Vec<Problem> = Vec::new();
    for path in &manifest.files {
        for file in files(path)? {
            let text = text(&file).await?;
            let folder = file.parent().filter(|_| !is_stdin(&file)).map(Path::to_owned).unwrap_or_default();
            let source = Source { file: name(&file), folder, tenant: tenant.to_owned() };
            match tree::read(&text) {
                Ok(nodes) => nodes.into_iter().for_each(|node| match Document::read(node, &source) {
                    Ok(one) => documents.push(one),
                    Err(faults) => problems.extend(faults.iter().map(|fault| at(&source, fault))),
                }),
                Err(fault) => problems.push(at(&source, &fault)),
            }
        }
    }
    problems.extend(twice(&documents));
    if let Some(failure) = failure_of(&problems) {
        return Err(failure);
    }
    if documents.is_empty() {
        let names = manifest.files.iter().map(|path| name(path)).collect::<Vec<_>>().join(", ");
        let next = "reveille apply --help shows one; reveille schedule show NAME --manifest prints one";
        return Err(Failure::file(names, "there is no document").then(next));
    }
    Ok(documents)
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
        return Err(Failure::file(name(path), "there is no file *.yaml, *.yml or *.json in this folder"));
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

/// Reports documents that name the same object: they would undo each other.
fn twice(documents: &[Document]) -> Vec<Problem> {
    let mut known: BTreeMap<(Kind, Option<&str>, &str), &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for document in documents {
        let key = (document.kind, document.tenant.as_deref(), document.name.as_str());
        if let Some(earlier) = known.insert(key, &document.place) {
            let message = format!("{} {} is there twice: see {earlier}", document.kind.word(), document.name);
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
            let problems = problems.iter().map(|(place, problem)| format!("{place}: {problem}"));
            listed(format!("{count} problems, so nothing was changed"), problems, PROBLEMS_SHOWN)
        }
    };
    Some(Failure::file(place.clone(), message).then("reveille apply --help shows a document"))
}

//! `reveille edit`: opens an object as a document in an editor, and applies what was changed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::Args;

use super::read::ManifestFiles;
use super::{AppliedView, objects, plan, read};
use crate::cli::commands::{CommandContext, Exit, Failure, Format, Kind, Stop};
use crate::cli::manifest::document::Document;
use crate::cli::manifest::tree::Node;
use crate::cli::manifest::write;

/// `reveille edit`.
#[derive(Debug, Args)]
#[command(
    long_about = "\
Open one object as a document in an editor, and apply the edit

The editor is $VISUAL, else $EDITOR, else vi. An unchanged document changes nothing. If the object was changed meanwhile, \
or the edit is refused, the file stays and is named.",
    after_long_help = "\
Examples:
  reveille edit schedule morning
  EDITOR='code --wait' reveille edit template welcome"
)]
pub struct EditArgs {
    /// Kind of the object
    pub kind: Kind,
    /// Its name
    pub name: String,
    /// Tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
}

/// Editor if neither `VISUAL` nor `EDITOR` names one.
const EDITOR: &str = "vi";

/// Edits the object. The file stays if anything fails after the editor was opened.
pub async fn run(context: &CommandContext<'_>, args: EditArgs) -> Result<(), Stop> {
    let EditArgs { kind, name, tenant } = args;
    if kind == Kind::Template && name.contains('@') {
        let message = format!("{name} is a version, and a version never changes: an edit stores another one");
        return Err(Failure::usage("NAME", message, "the name alone, which opens the newest version").into());
    }
    let former = objects::get(context, kind, &tenant, &name).await?.spec;
    let text = write::yaml(&kind.document(former.clone())) + "\n";
    let file = file(&format!("reveille-{}-", kind.word()), &text)?;
    let kept = |failure: Failure| {
        let path = file.display();
        let next = failure.next.clone().map(|next| format!("{next}; ")).unwrap_or_default();
        Failure { next: Some(format!("{next}your edit is in {path}: reveille apply -f {path}")), ..failure }
    };
    let begun = Instant::now();
    open(&file).map_err(kept)?;
    // The time that the user takes does not count.
    context.client.extend(begun.elapsed());
    if std::fs::read_to_string(&file).is_ok_and(|edited| edited == text) {
        context.terminal.say("nothing was changed");
    } else {
        let edited = edited(&tenant, &file, |document| (document.kind, &document.name) == (kind, &name)).await;
        let (view, whole) = apply(context, &edited.map_err(kept)?, &former).await.map_err(kept)?;
        match context.terminal.format() {
            Format::Table => context.terminal.lines(&view.difference(&whole))?,
            _ => context.terminal.show(&view)?,
        }
    }
    // A file that stays does no harm.
    let _ = std::fs::remove_file(&file);
    Ok(())
}

/// Creates a file that only this user can read.
fn file(prefix: &str, text: &str) -> Result<PathBuf, Failure> {
    let written = || {
        let mut file = tempfile::Builder::new().prefix(prefix).suffix(".yaml").tempfile()?;
        file.write_all(text.as_bytes())?;
        Ok(file.keep().map_err(|error| error.error)?.1)
    };
    written().map_err(|error: std::io::Error| {
        let message = format!("no file for the editor: {error}");
        Failure::general(message, "set TMPDIR to a folder that can be written")
    })
}

/// Runs the editor until it ends. Its name may have arguments, so a shell reads it, as git does.
fn open(file: &Path) -> Result<(), Failure> {
    let named = |variable| std::env::var(variable).ok().filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| EDITOR.to_owned());
    let ended = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file).status();
    let why = match ended {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let message = format!("the editor {editor} failed ({why}), and nothing was changed");
    Err(Failure::general(message, "set EDITOR to the editor of your choice"))
}

/// Reads the edited document.
async fn edited(tenant: &str, file: &Path, is_same: impl Fn(&Document) -> bool) -> Result<Document, Failure> {
    let files = ManifestFiles { files: vec![file.to_owned()] };
    let mut documents = read::all(tenant, &files).await?;
    match documents.pop().filter(|document| documents.is_empty() && is_same(document)) {
        Some(document) if document.tenant.as_deref().is_none_or(|named| named == tenant) => Ok(document),
        _ => {
            let message = "an edit keeps kind, tenant and name, and is one document; nothing was changed".to_owned();
            Err(Failure::file(file.display().to_string(), message))
        }
    }
}

/// Applies the document if the object is still as it was opened.
async fn apply(
    context: &CommandContext<'_>,
    document: &Document,
    former: &Node,
) -> Result<(AppliedView, String), Failure> {
    let placed = |failure| read::placed(document, failure);
    let plan = plan::plan(context, document).await.map_err(placed)?;
    if plan.former.as_ref() != Some(former) {
        let message = format!("{} {} was changed or deleted since it was opened", document.kind.word(), document.name);
        let next = "open it again, and merge your edit";
        return Err(Failure::new(Exit::Conflict, "ETAG_MISMATCH", message, next));
    }
    plan::make(context, document, &plan).await.map_err(placed)?;
    let whole = write::yaml(former);
    let outcome = plan.outcome(true);
    Ok((AppliedView { outcome, changes: plan.changes, notes: plan.notes, ..AppliedView::of(document) }, whole))
}

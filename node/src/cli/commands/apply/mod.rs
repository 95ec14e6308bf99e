//! `reveille apply`, `diff` and `edit`. The first two read all documents before the first request. Then they compute
//! the changes one document after the other. `apply` makes each change based on the state that it compared with.

mod edit;
mod objects;
mod plan;
mod read;

use super::{
    ApplyFiles, CommandContext, Exit, Failure, Format, Kind, ManifestFiles, Stop, View, counts, format, listed,
};
use crate::cli::manifest::document::Document;
use crate::cli::manifest::write;
use crate::cli::view::apply::{AppliedView, ApplyOutcome};

pub use edit::run as edit;
pub(super) use objects::template_version;
use plan::Plan;

/// Limit of failures that an error lists; the rest is only counted.
const FAILURES_SHOWN: usize = 10;

/// Applies the documents. With `--dry-run` it only reports what would change.
pub async fn run(context: &CommandContext<'_>, tenant: &str, what: &ApplyFiles) -> Result<(), Stop> {
    context.terminal.check_columns::<AppliedView>()?;
    let documents = read::all(tenant, &what.manifest).await?;
    // A first pass checks all documents. A single document needs none: its plan fails before anything is changed.
    let mut done = match documents.len() > 1 || what.dry_run {
        true => take(context, &documents, false).await,
        false => Vec::new(),
    };
    let is_made = !what.dry_run && done.iter().all(|one| one.failure.is_none());
    if is_made {
        done = take(context, &documents, true).await;
    }
    let views: Vec<AppliedView> = done.iter().map(|one| one.view.clone()).collect();
    context.list_names_of(&views, |view| view.outcome.is_well())?;
    let result = command_result(&done, is_made);
    // With `-o json`, stderr holds only the error object.
    if result.is_ok() || context.terminal.format() != Format::Json {
        let counts = counts(views.iter().map(|view| view.outcome), |outcome| outcome.word().0);
        context.terminal.say(&format!("{}: {counts}", format::counted(views.len() as u64, "document")));
        if !is_made {
            context.terminal.say("checked; nothing was changed");
        }
    }
    result
}

/// Prints what `apply` would change.
pub async fn diff(context: &CommandContext<'_>, tenant: &str, what: &ManifestFiles) -> Result<(), Stop> {
    let documents = read::all(tenant, what).await?;
    let done = take(context, &documents, false).await;
    let differs = |view: &AppliedView| matches!(view.outcome, ApplyOutcome::WouldCreate | ApplyOutcome::WouldUpdate);
    match context.terminal.format() {
        Format::Table => {
            let whole = |document: &Document| write::yaml(&document.kind.document(document.kind.spec(&document.spec)));
            let each = documents.iter().zip(&done);
            let lines = each.flat_map(|(document, one)| one.view.difference(&whole(document))).collect::<Vec<_>>();
            context.terminal.lines(&lines)?;
        }
        _ => context.list_names_of(&done.iter().map(|one| one.view.clone()).collect::<Vec<_>>(), differs)?,
    }
    command_result(&done, false)?;
    if done.iter().any(|one| differs(&one.view)) {
        return Err(Stop::No);
    }
    context.terminal.say("no difference");
    Ok(())
}

/// Result for one document.
struct Done {
    view: AppliedView,
    failure: Option<Failure>,
}

/// Plans the documents in order, and makes each change if `make` is set. Stops at a failure that all other documents
/// would meet too.
async fn take(context: &CommandContext<'_>, documents: &[Document], make: bool) -> Vec<Done> {
    let mut all: Vec<Done> = Vec::with_capacity(documents.len());
    let mut stopped = false;
    for document in documents {
        let mut done = Done { view: AppliedView::of(document), failure: None };
        if !stopped {
            match attempt(context, document, make).await {
                Ok(plan) => {
                    done.view.outcome = plan.outcome(make);
                    (done.view.changes, done.view.notes) = (plan.changes, plan.notes);
                }
                Err(failure) => {
                    let failure = read::placed(document, failure);
                    stopped = failure.concerns_all();
                    (done.view.outcome, done.view.reason) = (ApplyOutcome::Failed, Some(failure.message.clone()));
                    done.failure = Some(failure);
                }
            }
        }
        all.push(done);
    }
    all
}

async fn attempt(context: &CommandContext<'_>, document: &Document, make: bool) -> Result<Plan, Failure> {
    let plan = plan::plan(context, document).await?;
    if make {
        plan::make(context, document, &plan).await?;
    }
    Ok(plan)
}

/// Prints an object as the document that would make it.
pub async fn manifest(context: &CommandContext<'_>, kind: Kind, tenant: &str, name: &str) -> Result<(), Stop> {
    let found = objects::get(context, kind, tenant, name).await?;
    context.terminal.manifest(name, &kind.document(found.spec))
}

/// Returns the error of the command, if a document failed. A single document returns its own failure. With several
/// documents, the exit code is "partly done" if at least one was applied.
fn command_result(done: &[Done], is_made: bool) -> Result<(), Stop> {
    let failed: Vec<(&Done, &Failure)> =
        done.iter().filter_map(|one| one.failure.as_ref().map(|failure| (one, failure))).collect();
    let Some((_, first)) = failed.first() else { return Ok(()) };
    if done.len() == 1 {
        return Err((*first).clone().into());
    }
    let is_partly = is_made && done.iter().any(|one| one.view.outcome.is_well());
    let count = format::counted(done.len() as u64, "document");
    let unchanged = if is_made { "" } else { "; nothing was changed" };
    let problems = failed.iter().map(|(one, failure)| {
        let place = failure.field.as_deref().unwrap_or(&one.view.place);
        format!("{} ({place}): {}", one.view.name(), failure.message)
    });
    let message = listed(format!("{} of {count} failed{unchanged}", failed.len()), problems, FAILURES_SHOWN);
    let (exit, reason) = match is_partly {
        true => (Exit::Partly, "PARTLY_DONE".into()),
        false => (first.exit, first.reason.clone()),
    };
    // The failure that stopped the pass is the last one. Its next step and request id are those of the command.
    let last = failed.last().map_or(*first, |(_, failure)| *failure);
    let next = last.next.clone().filter(|_| last.concerns_all());
    let again = || match is_partly {
        true => "fix them, then the same command again: what is done stays as it is".to_owned(),
        false => "fix them, then the same command again".to_owned(),
    };
    let (field, request_id) = (first.field.clone(), last.request_id.clone());
    let failure = Failure::new(exit, &reason, message, next.unwrap_or_else(again));
    Err(Failure { field, request_id, ..failure }.into())
}

//! `reveille apply`, `diff` and `edit`. The first two read all documents before the first request. Then they compute
//! the changes one document after the other. `apply` makes each change based on the state that it compared with.

mod edit;
mod objects;
mod plan;
mod read;

use clap::Args;
pub use edit::EditArgs;
pub use edit::run as edit;
pub(super) use objects::template_version;
use plan::Plan;
use read::ManifestFiles;
use serde::Serialize;

use super::{CHECKED, CommandContext, Exit, Failure, Format, Kind, Stop, View, counts, format, listed};
use crate::cli::manifest::difference::Change;
use crate::cli::manifest::document::Document;
use crate::cli::manifest::write;
use crate::cli::view::layout::{Cell, Tone, card};
use crate::cli::view::own_objects;

/// `reveille apply`.
#[derive(Debug, Args)]
#[command(
    long_about = "\
Make schedules, templates, relays, campaigns, tenants and pools as documents say: created, updated or unchanged

A document is YAML or JSON: `kind`, and a `spec` in the JSON form of the API. Several stand in one file with --- between \
them. What a document does not say has its default; nothing is ever deleted. Twice changes nothing. Files that a \
document names (textFile, htmlFile, recipientsFile, file of an attachment) are looked for beside it.

Each document is applied alone: one that is refused spoils no other, and the exit code is 7.",
    after_long_help = "\
Examples:
  reveille apply -f news.yaml --dry-run
  reveille apply -f schedules/ -f relays.yaml
  reveille schedule show morning --manifest | reveille apply -f -

A document:
  kind: schedule
  spec:
    name: morning
    timing:
      daily: { hour: 9, minute: 0, days: mon-fri }
    zone: Europe/Berlin
    content:
      sender: News <news@example.com>
      subject: Good morning, {{ name }}
      textFile: body.txt              # or  text: | …
    audience:
      recipientsFile: people.csv      # or  recipients: [{ address: ann@example.com }]

The spec of a schedule is ScheduleBody, of a relay Relay, of a campaign CreateCampaignRequest, of a tenant
SetTenantRequest, of a pool SetPoolRequest, of a template PutTemplateRequest: docs/reference/http.md.
`paused` counts when it is created: pausing and resuming are acts of their own.
A campaign is drafted and never launched, and a draft is frozen: one that differs from its document is refused. \
A tenant's bounds are set as their document says, and what it does not say has no bound. A pool keeps its warm-up where
its document names none."
)]
pub struct ApplyArgs {
    /// Tenant of documents that name none
    #[arg(long, default_value = "default")]
    pub tenant: String,
    #[command(flatten)]
    pub manifest: ManifestFiles,
    /// Check everything, say what would be created and updated, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `reveille diff`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  reveille diff -f news.yaml
  reveille diff -f schedules/ -o json

Exit codes:
  0 no difference   1 at least one   2 and above: it could not be determined")]
pub struct DiffArgs {
    /// Tenant of documents that name none
    #[arg(long, default_value = "default")]
    pub tenant: String,
    #[command(flatten)]
    pub manifest: ManifestFiles,
}

/// Limit of failures that an error lists; the rest is only counted.
const FAILURES_SHOWN: usize = 10;

/// Applies the documents. With `--dry-run` it only reports what would change.
pub async fn run(context: &CommandContext<'_>, args: &ApplyArgs) -> Result<(), Stop> {
    context.terminal.check_columns::<AppliedView>()?;
    let documents = read::all(&args.tenant, &args.manifest).await?;
    // A first pass checks all documents. A single document needs none: its plan fails before anything is changed.
    let mut done = match documents.len() > 1 || args.dry_run {
        true => take(context, &documents, false).await,
        false => Vec::new(),
    };
    let is_made = !args.dry_run && done.iter().all(|one| one.failure.is_none());
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
            context.terminal.say(CHECKED);
        }
    }
    result
}

/// Prints what `apply` would change.
pub async fn diff(context: &CommandContext<'_>, args: &DiffArgs) -> Result<(), Stop> {
    let documents = read::all(&args.tenant, &args.manifest).await?;
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
            context.restart_default_limit();
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

/// Limit of keys that a table names; the rest is only counted.
const FIELDS_SHOWN: usize = 4;

/// Outcome of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplyOutcome {
    /// The object was created.
    Created,
    /// The object was updated.
    Updated,
    /// The object is already as the document says.
    Unchanged,
    /// The object would be created.
    WouldCreate,
    /// The object would be updated.
    WouldUpdate,
    /// The cluster refused the document.
    Failed,
    /// Not requested, because an earlier document got no answer.
    #[default]
    NotAsked,
}

impl ApplyOutcome {
    /// Returns the outcome for the user, and its meaning.
    pub fn word(self) -> (&'static str, Tone) {
        match self {
            ApplyOutcome::Created => ("created", Tone::Good),
            ApplyOutcome::Updated => ("updated", Tone::Good),
            ApplyOutcome::Unchanged => ("unchanged", Tone::Plain),
            ApplyOutcome::WouldCreate => ("would be created", Tone::Good),
            ApplyOutcome::WouldUpdate => ("would be updated", Tone::Good),
            ApplyOutcome::Failed => ("failed", Tone::Bad),
            ApplyOutcome::NotAsked => ("not asked", Tone::Notable),
        }
    }

    /// True if the object is as the document says, or would be.
    pub fn is_well(self) -> bool {
        !matches!(self, ApplyOutcome::Failed | ApplyOutcome::NotAsked)
    }
}

/// A document and its outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AppliedView {
    /// Kind of the object, such as `schedule` or `relay`.
    pub kind: &'static str,
    /// Null for objects without a tenant.
    pub tenant: Option<String>,
    /// Name of the object.
    pub name: String,
    /// Outcome of the document.
    pub outcome: ApplyOutcome,
    /// Changes by key; empty for a new object.
    pub changes: Vec<Change>,
    /// Further remarks for the user.
    pub notes: Vec<String>,
    /// Why the document failed; null otherwise.
    pub reason: Option<String>,
    /// Place of the document: `file:line`.
    pub place: String,
}

impl AppliedView {
    /// Returns the view of a document that was not requested yet.
    pub fn of(document: &Document) -> AppliedView {
        let (kind, tenant, place) = (document.kind.word(), document.tenant.clone(), document.place.clone());
        AppliedView { kind, tenant, name: document.name.clone(), place, ..AppliedView::default() }
    }

    /// Returns the lines that `diff` prints. Empty without a difference.
    pub fn difference(&self, whole: &str) -> Vec<String> {
        let mut lines = vec![format!("{} ({}): {}", self.name(), self.place, self.outcome.word().0)];
        match self.outcome {
            ApplyOutcome::Unchanged | ApplyOutcome::NotAsked => return Vec::new(),
            ApplyOutcome::Created | ApplyOutcome::WouldCreate => {
                lines.extend(whole.lines().map(|line| format!("  + {line}")))
            }
            _ => lines.extend(self.changes.iter().flat_map(Change::lines).map(|line| format!("  {line}"))),
        }
        lines.extend(self.notes.iter().map(|note| format!("  note: {note}")));
        lines.extend(self.reason.iter().map(|reason| format!("  {reason}")));
        lines
    }

    fn result_text(&self) -> String {
        let names = self.changes.iter().take(FIELDS_SHOWN).map(|change| change.field.as_str());
        let mut fields = names.collect::<Vec<_>>().join(", ");
        if let Some(more) = self.changes.len().checked_sub(FIELDS_SHOWN).filter(|more| *more > 0) {
            fields.push_str(&format!(" and {more} more"));
        }
        // The reason of a failure is printed on stderr.
        let lines = [fields].into_iter().chain(self.notes.iter().cloned());
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

own_objects!(AppliedView);

impl View for AppliedView {
    const NOUN: &'static str = "documents";
    const COLUMNS: &'static [&'static str] = &["OBJECT", "OUTCOME", "CHANGES"];

    fn name(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    fn cells(&self) -> Vec<Cell> {
        let (word, tone) = self.outcome.word();
        let changes = Cell::toned(self.result_text(), if self.outcome.is_well() { Tone::Plain } else { tone });
        vec![self.name().into(), Cell::toned(word, tone), changes]
    }

    fn text(&self, paint: bool) -> String {
        card(Self::COLUMNS.iter().copied().zip(self.cells()).collect(), paint)
    }
}

//! `reveille apply` and `reveille diff`, which `reveille schedule` has too, and `reveille edit`.

use super::{Args, PathBuf};

use crate::cli::manifest::kind::Kind;

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
    pub what: ApplyFiles,
}

/// What is applied.
#[derive(Debug, Args)]
pub struct ApplyFiles {
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
    pub what: ManifestFiles,
}

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

/// Where documents are.
#[derive(Debug, Args)]
pub struct ManifestFiles {
    /// A file, a folder (its *.yaml, *.yml and *.json), or - for stdin; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", required = true)]
    pub files: Vec<PathBuf>,
}

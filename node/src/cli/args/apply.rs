//! `reveille apply` and `reveille diff`, which `reveille schedule` has too.

use std::path::PathBuf;

use clap::Args;

/// `reveille apply`.
#[derive(Debug, Args)]
#[command(
    long_about = "\
Make schedules, relays, campaigns, tenants and pools as documents say: created, updated or unchanged

A document is YAML or JSON: `kind`, and what the flags of `schedule create`, `relay add`, `campaign create`, \
`tenant set` and `pool set` are called, with _ for -. \
Several stand in one file with --- between them. What a document does not say has its default, as without the flag; \
nothing is ever deleted. Twice changes nothing. Files that a document names are looked for beside it.

Each document is applied alone: one that is refused spoils no other, and the exit code is 7.",
    after_long_help = "\
Examples:
  reveille apply -f news.yaml --dry-run
  reveille apply -f schedules/ -f relays.yaml
  reveille schedule show morning --manifest | reveille apply -f -

A document:
  kind: schedule
  name: morning
  daily: 09:00
  days: mon-fri
  tz: Europe/Berlin
  recipients: people.csv          # or  to: [ann@example.com]
  sender: News <news@example.com>
  subject: Good morning, {{ name }}
  text: body.txt                  # or  inline_text: | …

`paused` counts when it is created: pausing and resuming are acts of their own.
A campaign is drafted and never launched, and a draft is frozen: one that differs from its document is refused. \
A tenant's bounds are set as their document says, and what it does not say has no bound. A pool keeps its warm-up where
its document names none; its emails carry X-Reveille-Run and -Fence unless it says `reveille_headers: false`."
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

/// Where documents are.
#[derive(Debug, Args)]
pub struct ManifestFiles {
    /// A file, a folder (its *.yaml, *.yml and *.json), or - for stdin; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", required = true)]
    pub files: Vec<PathBuf>,
}

//! Implements `reveille audience …`.

use std::io::BufWriter;

use clap::{Args, Subcommand};
use reveille_cluster::file_store::GeneratedAudience;
use reveille_ledger::content::Recipient;
use reveille_proto::admin::v1::{DeleteAudienceRequest, GetAudienceRequest, ListAudiencesRequest, SealedAudience};
use tempfile::NamedTempFile;

use super::upload::{ImportAudienceArgs, pairs};
use super::{CommandContext, DeleteArgs, Failure, OfTenant, Paging, Stop, View, Watch, upload};
use crate::cli::format;
use crate::cli::view::layout::{Cell, Tone, card};

#[derive(Debug, Subcommand)]
pub enum AudienceCommand {
    /// Seal the recipients of a file of any size under a name
    ///
    /// The file is CSV with a header: `email`, and a column for each variable. It may be packed by gzip or zstd. It
    /// is read twice: for rows that cannot be used and addresses that are there twice, then for its parts of 65,536
    /// recipients. The first row of an address stays. Each part is on the disks of a majority before the next ones
    /// are sent; when all are, the audience is sealed, and not before. Whatever ends in between, the same command
    /// goes on where it was.
    #[command(after_long_help = "Examples:\n  reveille audience import members members.csv\n  \
                           reveille audience import members members.csv.gz --skip-bad-rows --report left-out.csv\n  \
                           reveille schedule create news --audience members --daily 09:00 --zone Europe/Berlin \\\n      \
                           --sender news@example.com --subject 'Hello {{ name }}' --text body.txt")]
    Import(ImportAudienceArgs),
    /// Make an audience of a number, to try what your relay and your machines carry
    ///
    /// Its addresses are under .invalid, where no mailbox exists: point the relay at a sink. The list is written to a
    /// temporary file, some 40 bytes a recipient, and imported.
    #[command(
        after_long_help = "Example:\n  reveille audience generate million --recipients 1000000 --column name\n  \
                           reveille schedule create trial --audience million --at 2026-12-01T09:00:00Z --zone UTC \\\n      \
                           --sender news@example.com --subject 'Hello {{ name }}' --inline-text 'A trial.'"
    )]
    Generate(GenerateArgs),
    /// Sealed audiences, by name
    #[command(after_long_help = "Example:\n  reveille audience list -o json")]
    List(Paging),
    /// One of them
    #[command(after_long_help = "Example:\n  reveille audience show million")]
    Show {
        /// Its name
        name: String,
    },
    /// Forget one; refused while a schedule or a campaign sends to it, a draft too
    ///
    /// Runs that have opened keep what they need. The files are removed later, when no run needs them.
    #[command(after_long_help = "Example:\n  reveille audience delete million")]
    Delete(DeleteArgs),
}

/// `audience generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Its name, unique in the tenant
    pub name: String,
    /// How many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub recipients: u32,
    /// Another seed makes other addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A variable whose values are made up; may be repeated
    #[arg(long = "column", value_name = "NAME")]
    pub columns: Vec<String>,
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<AudienceCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        AudienceCommand::Import(args) => Box::pin(upload::run(context, tenant, args)).await,
        AudienceCommand::Generate(args) => generate(context, tenant, args).await,
        AudienceCommand::List(paging) => {
            context.list_of(paging, ListAudiencesRequest { tenant, ..ListAudiencesRequest::default() }).await
        }
        AudienceCommand::Show { name } => {
            let request = GetAudienceRequest { tenant, name, stale: context.stale };
            context.show(Watch { watch: false }, request, |answer| (answer.freshness, answer.audience)).await
        }
        AudienceCommand::Delete(DeleteArgs { name, dry_run, etag }) => {
            // A dry run says what a delete would do now, whatever an earlier call with the id did.
            let request_id = if dry_run { String::new() } else { context.client.request_id().to_owned() };
            let (etag, validate_only) = (etag.to_wire(), dry_run);
            let request = DeleteAudienceRequest { tenant, name: name.clone(), validate_only, etag, request_id };
            let question = format!("Delete audience {name}?");
            context.remove((&question, &name), request, dry_run, |answer| answer.index).await.map(drop)
        }
    }
}

/// Writes the recipients to a temporary file and imports it.
async fn generate(context: &CommandContext<'_>, tenant: String, args: GenerateArgs) -> Result<(), Stop> {
    let GenerateArgs { name, recipients, seed, columns } = args;
    let generated = GeneratedAudience { seed, recipients, columns };
    let list = tokio::task::spawn_blocking(move || write(&generated)).await.map_err(std::io::Error::other).flatten();
    let folder = std::env::temp_dir();
    let list = list.map_err(|error| {
        let message = format!("{} does not take the list: {error}", folder.display());
        Failure::general(message, "the same again with another folder in TMPDIR")
    })?;
    let file = list.path().to_owned();
    Box::pin(upload::run(context, tenant, ImportAudienceArgs { name, file, skip_bad_rows: false, report: None })).await
}

fn write(generated: &GeneratedAudience) -> std::io::Result<NamedTempFile> {
    let list = NamedTempFile::new()?;
    let mut rows = csv::Writer::from_writer(BufWriter::new(list.as_file()));
    rows.write_record(std::iter::once("email").chain(generated.columns.iter().map(String::as_str)))?;
    for number in 0..generated.recipients {
        let Recipient { address, values, .. } = generated.recipient(number);
        rows.write_record(std::iter::once(address).chain(values))?;
    }
    rows.flush()?;
    drop(rows);
    Ok(list)
}

impl View for SealedAudience {
    fn text(&self, paint: bool) -> String {
        card(pairs(self), paint)
    }

    const NOUN: &'static str = "audiences";
    const COLUMNS: &'static [&'static str] = &["NAME", "RECIPIENTS", "COLUMNS", "PARTS", "MISSING", "SEALED"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            format::count(self.recipients.into()).into(),
            Cell::or_dash(self.columns.join(", ").as_str()),
            self.parts.to_string().into(),
            Cell::count(self.missing.into(), Tone::Bad),
            Cell::at(self.seal_time.as_ref()),
        ]
    }
}

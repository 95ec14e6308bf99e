//! Implements `reveille audience …`.

use std::io::BufWriter;

use reveille_cluster::file_store::GeneratedAudience;
use reveille_ledger::content::Recipient;
use reveille_proto::admin::v1::{DeleteAudienceRequest, GetAudienceRequest, ListAudiencesRequest};
use tempfile::NamedTempFile;

use super::{
    AudienceCommand, CommandContext, Failure, GenerateArgs, ImportAudienceArgs, OfTenant, Stop, Watch, upload,
};

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
        AudienceCommand::Delete { name, dry_run } => {
            let request = DeleteAudienceRequest { tenant, name: name.clone(), validate_only: dry_run };
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

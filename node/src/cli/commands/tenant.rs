//! Implements `reveille tenant …`.

use reveille_proto::admin::v1::{GetTenantRequest, ListTenantsRequest, RemoveTenantRequest, SetTenantRequest};

use super::{CommandContext, Seen, apply};
use crate::cli::args::{SetTenantArgs, ShowArgs, TenantArgs, TenantCommand, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::failure::Stop;
use crate::cli::manifest::kind::Kind;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: TenantArgs) -> Result<(), Stop> {
    match args.command {
        TenantCommand::Set(args) => set(context, args).await,
        TenantCommand::List(paging) => context.list_of(paging, ListTenantsRequest::default()).await,
        TenantCommand::Show(ShowArgs { name, manifest: true, .. }) => {
            apply::manifest(context, Kind::Tenant, "", &name).await
        }
        TenantCommand::Show(ShowArgs { name, watch, .. }) => show(context, name, watch).await,
        TenantCommand::Remove { name } => remove(context, name).await,
    }
}

async fn set(context: &CommandContext<'_>, args: SetTenantArgs) -> Result<(), Stop> {
    let request = SetTenantRequest {
        name: args.name,
        rate_per_second: args.rate,
        concurrency: args.concurrency,
        share: args.share,
        request_id: context.client.request_id().to_owned(),
        validate_only: false,
    };
    let answer = context.change(request).await?;
    context.terminal.answer(&answer, answer.tenant.as_ref())
}

async fn show(context: &CommandContext<'_>, name: String, watch: Watch) -> Result<(), Stop> {
    let fetch = async || {
        let request = GetTenantRequest { name: name.clone(), stale: context.stale };
        let answer = context.client.ask(RetrySafety::Read, request).await?;
        Ok(Seen::of(answer.tenant.unwrap_or_default(), answer.freshness))
    };
    context.one(watch, fetch).await
}

async fn remove(context: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    context.terminal.confirm(&format!("Take the bounds of tenant {name} away?"))?;
    let request = RemoveTenantRequest { name: name.clone() };
    let answer = context.client.ask(RetrySafety::Repeatable, request).await?;
    context.removed(&answer, &name, answer.index, false)
}

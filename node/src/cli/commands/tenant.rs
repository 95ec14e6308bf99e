//! Implements `reveille tenant …`.

use reveille_proto::admin::v1::{
    Freshness, GetTenantRequest, ListTenantsRequest, RemoveTenantRequest, SetTenantRequest, Tenant,
};

use super::{CommandContext, Seen};
use crate::cli::args::{SetTenantArgs, ShowArgs, TenantArgs, TenantCommand, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::failure::{Failure, Stop};
use crate::cli::manifest::export;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: TenantArgs) -> Result<(), Stop> {
    match args.command {
        TenantCommand::Set(args) => set(context, args).await,
        TenantCommand::List(paging) => context.list_of(paging, ListTenantsRequest::default()).await,
        TenantCommand::Show(ShowArgs { name, manifest: true, .. }) => {
            let tenant = get(context, name).await?.0;
            context.terminal.manifest(&tenant.name, &export::tenant(&tenant))
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
        let (tenant, freshness) = get(context, name.clone()).await?;
        Ok(Seen::of(tenant, freshness))
    };
    context.one(watch, fetch).await
}

/// Reads the tenant.
pub(super) async fn get(context: &CommandContext<'_>, name: String) -> Result<(Tenant, Option<Freshness>), Failure> {
    let request = GetTenantRequest { name, stale: context.stale };
    let answer = context.client.ask(RetrySafety::Read, request).await?;
    Ok((answer.tenant.unwrap_or_default(), answer.freshness))
}

async fn remove(context: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    context.terminal.confirm(&format!("Take the bounds of tenant {name} away?"))?;
    let request = RemoveTenantRequest { name: name.clone() };
    let answer = context.client.ask(RetrySafety::Repeatable, request).await?;
    context.removed(&answer, &name, answer.index, false)
}

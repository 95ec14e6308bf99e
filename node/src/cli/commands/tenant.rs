//! Implements `reveille tenant …`.

use reveille_proto::admin::v1::tenant_service_client::TenantServiceClient as Service;
use reveille_proto::admin::v1::{
    Freshness, GetTenantRequest, ListTenantsRequest, RemoveTenantRequest, SetTenantRequest, Tenant,
};

use super::{CommandContext, Page, Seen};
use crate::cli::args::{SetTenantArgs, TenantArgs, TenantCommand, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::failure::{Failure, Stop};
use crate::cli::manifest::export;
use crate::cli::view::relay::RemovedView;
use crate::cli::view::tenant::TenantView;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: TenantArgs) -> Result<(), Stop> {
    match args.command {
        TenantCommand::Set(args) => set(context, args).await,
        TenantCommand::List(paging) => context.list(paging, |size, token| page(context, size, token)).await,
        TenantCommand::Show { name, manifest: true, .. } => {
            let tenant = get(context, name).await?.0;
            context.terminal.manifest(&tenant.name, &export::tenant(&tenant))
        }
        TenantCommand::Show { name, watch, .. } => show(context, name, watch).await,
        TenantCommand::Remove { name } => remove(context, name).await,
    }
}

async fn set(context: &CommandContext<'_>, args: SetTenantArgs) -> Result<(), Stop> {
    let question = SetTenantRequest {
        name: args.name,
        rate_per_second: args.rate,
        concurrency: args.concurrency,
        share: args.share,
        request_id: context.client.request_id().to_owned(),
        validate_only: false,
    };
    let call = |channel, question| async move { Service::new(channel).set_tenant(question).await };
    let answer = context.change(question, call).await?;
    context.terminal.show(&TenantView::from(answer.tenant.unwrap_or_default()))
}

async fn page(context: &CommandContext<'_>, page_size: i32, page_token: String) -> Result<Page<TenantView>, Failure> {
    let question = ListTenantsRequest { page_size, page_token, stale: context.stale };
    let call = |channel, question| async move { Service::new(channel).list_tenants(question).await };
    let answer = context.client.ask(RetrySafety::Read, question, call).await?;
    let rows = answer.tenants.into_iter().map(TenantView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

async fn show(context: &CommandContext<'_>, name: String, watch: Watch) -> Result<(), Stop> {
    let fetch = async || {
        let (tenant, freshness) = get(context, name.clone()).await?;
        Ok(Seen::of(TenantView::from(tenant), freshness))
    };
    context.one(watch, fetch).await
}

/// Reads the tenant.
pub(super) async fn get(context: &CommandContext<'_>, name: String) -> Result<(Tenant, Option<Freshness>), Failure> {
    let question = GetTenantRequest { name, stale: context.stale };
    let call = |channel, question| async move { Service::new(channel).get_tenant(question).await };
    let answer = context.client.ask(RetrySafety::Read, question, call).await?;
    Ok((answer.tenant.unwrap_or_default(), answer.freshness))
}

async fn remove(context: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    context.terminal.confirm(&format!("Take the bounds of tenant {name} away?"))?;
    let question = RemoveTenantRequest { name: name.clone() };
    let call = |channel, question| async move { Service::new(channel).remove_tenant(question).await };
    let answer = context.client.ask(RetrySafety::Repeatable, question, call).await?;
    context.removed(RemovedView { name, index: answer.index, dry_run: false })
}

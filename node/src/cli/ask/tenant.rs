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
pub async fn run(desk: &CommandContext<'_>, args: TenantArgs) -> Result<(), Stop> {
    match args.command {
        TenantCommand::Set(args) => set(desk, args).await,
        TenantCommand::List(paging) => desk.list(paging, |size, token| page(desk, size, token)).await,
        TenantCommand::Show { name, manifest: true, .. } => {
            let tenant = get(desk, name).await?.0;
            desk.terminal.manifest(&tenant.name, &export::tenant(&tenant))
        }
        TenantCommand::Show { name, watch, .. } => show(desk, name, watch).await,
        TenantCommand::Remove { name } => remove(desk, name).await,
    }
}

async fn set(desk: &CommandContext<'_>, args: SetTenantArgs) -> Result<(), Stop> {
    let question = SetTenantRequest {
        name: args.name,
        rate_per_second: args.rate,
        concurrency: args.concurrency,
        share: args.share,
        request_id: desk.client.request_id().to_owned(),
        validate_only: false,
    };
    let call = |channel, question| async move { Service::new(channel).set_tenant(question).await };
    let answer = desk.change(question, call).await?;
    desk.terminal.show(&TenantView::from(answer.tenant.unwrap_or_default()))
}

async fn page(desk: &CommandContext<'_>, page_size: i32, page_token: String) -> Result<Page<TenantView>, Failure> {
    let question = ListTenantsRequest { page_size, page_token, stale: desk.stale };
    let call = |channel, question| async move { Service::new(channel).list_tenants(question).await };
    let answer = desk.client.ask(RetrySafety::Read, question, call).await?;
    let rows = answer.tenants.into_iter().map(TenantView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

async fn show(desk: &CommandContext<'_>, name: String, watch: Watch) -> Result<(), Stop> {
    let look = async || {
        let (tenant, freshness) = get(desk, name.clone()).await?;
        Ok(Seen::of(TenantView::from(tenant), freshness))
    };
    desk.one(watch, look).await
}

/// Reads the tenant.
pub(super) async fn get(desk: &CommandContext<'_>, name: String) -> Result<(Tenant, Option<Freshness>), Failure> {
    let question = GetTenantRequest { name, stale: desk.stale };
    let call = |channel, question| async move { Service::new(channel).get_tenant(question).await };
    let answer = desk.client.ask(RetrySafety::Read, question, call).await?;
    Ok((answer.tenant.unwrap_or_default(), answer.freshness))
}

async fn remove(desk: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    desk.terminal.confirm(&format!("Take the bounds of tenant {name} away?"))?;
    let question = RemoveTenantRequest { name: name.clone() };
    let call = |channel, question| async move { Service::new(channel).remove_tenant(question).await };
    let answer = desk.client.ask(RetrySafety::Repeatable, question, call).await?;
    desk.removed(RemovedView { name, index: answer.index, dry_run: false })
}

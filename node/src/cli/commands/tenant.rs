//! Implements `reveille tenant …`.

use reveille_proto::admin::v1::{GetTenantRequest, ListTenantsRequest, RemoveTenantRequest, SetTenantRequest};

use super::{CommandContext, Kind, SetTenantArgs, Stop, TenantCommand};

/// What `--pool` says for no bound.
const ALL_POOLS: &str = "none";

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: TenantCommand) -> Result<(), Stop> {
    match command {
        TenantCommand::Set(args) => set(context, args).await,
        TenantCommand::List(paging) => context.list_of(paging, ListTenantsRequest::default()).await,
        TenantCommand::Show(args) => {
            let request = |name| GetTenantRequest { name, stale: context.stale };
            context.show_named((Kind::Tenant, ""), args, request, |answer| (answer.freshness, answer.tenant)).await
        }
        TenantCommand::Remove { name, etag } => {
            let question = format!("Take the bounds of tenant {name} away?");
            let request = RemoveTenantRequest { name: name.clone(), etag: etag.to_wire() };
            context.remove((&question, &name), request, false, |answer| answer.index).await.map(drop)
        }
    }
}

async fn set(context: &CommandContext<'_>, args: SetTenantArgs) -> Result<(), Stop> {
    let request = SetTenantRequest {
        name: args.name,
        rate_per_second: args.rate_per_second,
        concurrency: args.concurrency,
        share: args.share,
        all_pools: args.pools == [ALL_POOLS],
        pools: if args.pools == [ALL_POOLS] { Vec::new() } else { args.pools },
        request_id: context.client.request_id().to_owned(),
        etag: args.etag.to_wire(),
        ..Default::default()
    };
    let answer = context.change(request).await?;
    context.terminal.answer(&answer, answer.tenant.as_ref())
}

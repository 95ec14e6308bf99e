//! Implements `reveille pool …`.

use reveille_proto::admin::v1::{GetPoolRequest, ListPoolsRequest, RemovePoolRequest, SetPoolRequest};

use super::{CommandContext, Kind, PoolCommand, SetPoolArgs, Stop};

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: PoolCommand) -> Result<(), Stop> {
    match command {
        PoolCommand::Set(args) => set(context, args).await,
        PoolCommand::List(paging) => context.list_of(paging, ListPoolsRequest::default()).await,
        PoolCommand::Show(args) => {
            let request = |name| GetPoolRequest { name, stale: context.stale };
            context.show_named((Kind::Pool, ""), args, request, |answer| (answer.freshness, answer.pool)).await
        }
        PoolCommand::Remove { name, etag } => {
            let question = format!("Take away what is set of pool {name}?");
            let request = RemovePoolRequest { name: name.clone(), etag: etag.to_wire() };
            context.remove((&question, &name), request, false, |answer| answer.index).await.map(drop)
        }
    }
}

async fn set(context: &CommandContext<'_>, args: SetPoolArgs) -> Result<(), Stop> {
    let request = SetPoolRequest {
        name: args.name,
        warm_up: args.warm_up,
        first_day: args.first_day.unwrap_or_default(),
        request_id: context.client.request_id().to_owned(),
        reveille_headers: args.reveille_headers,
        etag: args.etag.to_wire(),
        ..Default::default()
    };
    let answer = context.change(request).await?;
    context.warn(&answer.warnings, None);
    context.terminal.answer(&answer, answer.pool.as_ref())
}

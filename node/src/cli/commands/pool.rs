//! Implements `reveille pool …`.

use reveille_proto::admin::v1::{GetPoolRequest, ListPoolsRequest, RemovePoolRequest, SetPoolRequest};

use super::{CommandContext, Seen, apply};
use crate::cli::args::{PoolArgs, PoolCommand, SetPoolArgs, ShowArgs, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::failure::Stop;
use crate::cli::manifest::kind::Kind;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: PoolArgs) -> Result<(), Stop> {
    match args.command {
        PoolCommand::Set(args) => set(context, args).await,
        PoolCommand::List(paging) => context.list_of(paging, ListPoolsRequest::default()).await,
        PoolCommand::Show(ShowArgs { name, manifest: true, .. }) => {
            apply::manifest(context, Kind::Pool, "", &name).await
        }
        PoolCommand::Show(ShowArgs { name, watch, .. }) => show(context, name, watch).await,
        PoolCommand::Remove { name } => remove(context, name).await,
    }
}

async fn set(context: &CommandContext<'_>, args: SetPoolArgs) -> Result<(), Stop> {
    let request = SetPoolRequest {
        name: args.name,
        warm_up: args.warm_up,
        first_day: args.first_day.unwrap_or_default(),
        request_id: context.client.request_id().to_owned(),
        validate_only: false,
        reveille_headers: args.reveille_headers,
    };
    let answer = context.change(request).await?;
    context.warn(&answer.warnings);
    context.terminal.answer(&answer, answer.pool.as_ref())
}

async fn show(context: &CommandContext<'_>, name: String, watch: Watch) -> Result<(), Stop> {
    let fetch = async || {
        let request = GetPoolRequest { name: name.clone(), stale: context.stale };
        let answer = context.client.ask(RetrySafety::Read, request).await?;
        Ok(Seen::of(answer.pool.unwrap_or_default(), answer.freshness))
    };
    context.one(watch, fetch).await
}

async fn remove(context: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    context.terminal.confirm(&format!("Take away what is set of pool {name}?"))?;
    let request = RemovePoolRequest { name: name.clone() };
    let answer = context.client.ask(RetrySafety::Repeatable, request).await?;
    context.removed(&answer, &name, answer.index, false)
}

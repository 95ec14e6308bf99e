//! Implements `reveille pool …`.

use reveille_proto::admin::v1::pool_service_client::PoolServiceClient as Service;
use reveille_proto::admin::v1::{Freshness, GetPoolRequest, ListPoolsRequest, Pool, RemovePoolRequest, SetPoolRequest};

use super::{CommandContext, Page, Seen};
use crate::cli::args::{PoolArgs, PoolCommand, SetPoolArgs, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::failure::{Failure, Stop};
use crate::cli::manifest::export;
use crate::cli::view::pool::PoolView;
use crate::cli::view::relay::RemovedView;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: PoolArgs) -> Result<(), Stop> {
    match args.command {
        PoolCommand::Set(args) => set(context, args).await,
        PoolCommand::List(paging) => context.list(paging, |size, token| page(context, size, token)).await,
        PoolCommand::Show { name, manifest: true, .. } => {
            let pool = get(context, name).await?.0;
            if pool.index == 0 {
                let message = format!("nothing is set of pool {}: there is nothing to print", pool.name);
                return Err(Failure::general(message, "reveille pool set --help").into());
            }
            context.terminal.manifest(&pool.name, &export::pool(&pool))
        }
        PoolCommand::Show { name, watch, .. } => show(context, name, watch).await,
        PoolCommand::Remove { name } => remove(context, name).await,
    }
}

async fn set(context: &CommandContext<'_>, args: SetPoolArgs) -> Result<(), Stop> {
    let question = SetPoolRequest {
        name: args.name,
        warm_up: args.warm_up,
        first_day: args.first_day.unwrap_or_default(),
        request_id: context.client.request_id().to_owned(),
        validate_only: false,
        reveille_headers: args.reveille_headers,
    };
    let call = |channel, question| async move { Service::new(channel).set_pool(question).await };
    let answer = context.change(question, call).await?;
    answer.warnings.iter().for_each(|warning| context.terminal.say(&format!("warning: {warning}")));
    context.terminal.show(&PoolView::from(answer.pool.unwrap_or_default()))
}

async fn page(context: &CommandContext<'_>, page_size: i32, page_token: String) -> Result<Page<PoolView>, Failure> {
    let question = ListPoolsRequest { page_size, page_token, stale: context.stale };
    let call = |channel, question| async move { Service::new(channel).list_pools(question).await };
    let answer = context.client.ask(RetrySafety::Read, question, call).await?;
    let rows = answer.pools.into_iter().map(PoolView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

async fn show(context: &CommandContext<'_>, name: String, watch: Watch) -> Result<(), Stop> {
    let fetch = async || {
        let (pool, freshness) = get(context, name.clone()).await?;
        Ok(Seen::of(PoolView::from(pool), freshness))
    };
    context.one(watch, fetch).await
}

/// Reads the pool.
pub(super) async fn get(context: &CommandContext<'_>, name: String) -> Result<(Pool, Option<Freshness>), Failure> {
    let question = GetPoolRequest { name, stale: context.stale };
    let call = |channel, question| async move { Service::new(channel).get_pool(question).await };
    let answer = context.client.ask(RetrySafety::Read, question, call).await?;
    Ok((answer.pool.unwrap_or_default(), answer.freshness))
}

async fn remove(context: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    context.terminal.confirm(&format!("Take away what is set of pool {name}?"))?;
    let question = RemovePoolRequest { name: name.clone() };
    let call = |channel, question| async move { Service::new(channel).remove_pool(question).await };
    let answer = context.client.ask(RetrySafety::Repeatable, question, call).await?;
    context.removed(RemovedView { name, index: answer.index, dry_run: false })
}

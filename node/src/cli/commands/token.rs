//! Implements `reveille token …`.

use reveille_proto::admin::v1::{CreateTokenRequest, ListTokensRequest, RevokeTokenRequest};

use super::CommandContext;
use crate::cli::args::{CreateTokenArgs, TokenArgs, TokenCommand};
use crate::cli::client::RetrySafety;
use crate::cli::failure::Stop;
use crate::cli::instant::duration_to_wire;
use crate::cli::view::relay::RemovedView;
use crate::cli::view::token::{NewTokenView, TokenView};

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: TokenArgs) -> Result<(), Stop> {
    match args.command {
        TokenCommand::Create(args) => create(context, args).await,
        TokenCommand::List(paging) => {
            let page = |size, token| context.page::<TokenView, _>(ListTokensRequest::default(), size, token);
            context.list(paging, page).await
        }
        TokenCommand::Revoke { id } => revoke(context, id).await,
    }
}

async fn create(context: &CommandContext<'_>, args: CreateTokenArgs) -> Result<(), Stop> {
    let CreateTokenArgs { name, roles, tenants, all_tenants, valid_for } = args;
    let valid_for = valid_for.map(duration_to_wire);
    let request = CreateTokenRequest { name, roles, tenants, all_tenants, valid_for };
    // A repetition would create a second token.
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    context.terminal.show(&NewTokenView::from(answer))?;
    context.terminal.say("keep it now: the cluster has only its hash, and shows it never again");
    Ok(())
}

async fn revoke(context: &CommandContext<'_>, id: String) -> Result<(), Stop> {
    context.terminal.confirm(&format!("Revoke token {id}?"))?;
    let answer = context.client.ask(RetrySafety::Repeatable, RevokeTokenRequest { id: id.clone() }).await?;
    context.removed(RemovedView { name: id, index: answer.index, dry_run: false })
}

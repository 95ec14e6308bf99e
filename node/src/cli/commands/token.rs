//! Implements `reveille token …`.

use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use reveille_proto::admin::v1::token_service_client::TokenServiceClient;
use reveille_proto::admin::v1::{
    CreateTokenRequest, GetOwnTokenRequest, ListTokensRequest, ResetTokensRequest, RevokeTokenRequest, Role, Token,
};
use tokio::net::UnixStream;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use super::{
    Answer, CommandContext, CreateTokenArgs, Exit, Failure, Json, RetrySafety, Stop, TokenCommand, View,
    duration_to_wire,
};
use crate::cli::word::name as name_of;
use crate::server::admin::socket_path;

/// Time for the answer to a reset: an election may be running.
const RESET_WITHIN: Duration = Duration::from_secs(15);
const KEEP_IT: &str = "keep it now: the cluster has only its hash, and shows it never again";

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: TokenCommand) -> Result<(), Stop> {
    match command {
        TokenCommand::Create(args) => create(context, args).await,
        TokenCommand::Show => context.terminal.show(&context.read(GetOwnTokenRequest {}).await?),
        TokenCommand::List(paging) => context.list_of(paging, ListTokensRequest::default()).await,
        TokenCommand::Reset { data_dir, keep } => reset(context, &data_dir, keep).await,
        TokenCommand::Revoke { id } => {
            context.terminal.confirm(&format!("Revoke token {id}?"))?;
            let answer = context.change(RevokeTokenRequest { id: id.clone() }).await?;
            let words = format!("{id} revoked, log index {}", answer.index);
            context.terminal.show(&Answer::new(&answer, id, words))
        }
    }
}

async fn create(context: &CommandContext<'_>, args: CreateTokenArgs) -> Result<(), Stop> {
    let CreateTokenArgs { name, roles, tenants, all_tenants, valid_for } = args;
    let valid_for = valid_for.map(duration_to_wire);
    let role_of = |word: &String| Role::from_str_name(&name_of("ROLE_", word)).unwrap_or_default().into();
    let roles = roles.iter().map(role_of).collect();
    let request = CreateTokenRequest { name, roles, tenants, all_tenants, valid_for };
    // A repetition would create a second token.
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    show_secret(context, &answer, answer.token.as_ref(), &answer.secret)
}

async fn reset(context: &CommandContext<'_>, data_dir: &Path, keep: bool) -> Result<(), Stop> {
    if !keep {
        context.terminal.confirm("Revoke all admin tokens of the cluster?")?;
    }
    let path = socket_path(data_dir);
    let unreachable = |error: String| {
        let message = format!("no node answers at {}: {error}", path.display());
        let next = "run it on the machine of a running node, with its data folder, as its user or as root";
        Failure::new(Exit::NoQuorum, "UNREACHABLE", message, next)
    };
    let socket = path.clone();
    let connect = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The address is not used: the connector knows the socket.
    let endpoint = Endpoint::from_static("http://localhost").timeout(RESET_WITHIN);
    let channel = endpoint
        .connect_with_connector(connect)
        .await
        .map_err(|error| unreachable(format!("{:#}", anyhow::Error::new(error))))?;
    let answer = TokenServiceClient::new(channel).reset_tokens(ResetTokensRequest { keep }).await;
    let answer = answer.map_err(|status| Failure::of_status(&status))?.into_inner();
    show_secret(context, &answer, answer.token.as_ref(), &answer.secret)
}

/// Prints a new token. `-o name` prints its secret.
fn show_secret<A: Json>(
    context: &CommandContext<'_>,
    answer: &A,
    token: Option<&Token>,
    secret: &str,
) -> Result<(), Stop> {
    let card = token.cloned().unwrap_or_default().text(context.terminal.paints());
    context.terminal.show(&Answer::new(answer, secret, format!("{card}\n\n{secret}")))?;
    context.terminal.say(KEEP_IT);
    Ok(())
}

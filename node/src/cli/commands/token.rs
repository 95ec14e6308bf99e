//! Implements `reveille token …`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use reveille_proto::admin::v1::token_service_client::TokenServiceClient;
use reveille_proto::admin::v1::{
    CreateTokenRequest, GetOwnTokenRequest, GetOwnTokenResponse, ListTokensRequest, ResetTokensRequest,
    RevokeTokenRequest, Role, Token,
};
use tokio::net::UnixStream;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use super::{Answer, CommandContext, Exit, Failure, Json, Paging, RetrySafety, Stop, View, duration_to_wire};
use crate::api_json::word;
use crate::cli::instant::parse_duration;
use crate::cli::view::layout::{Cell, Tone, card, pairs};
use crate::cli::word::values;
use crate::server::admin::socket_path;

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token, and print it: it is shown this once
    ///
    /// Roles: viewer (reads, without addresses of recipients), pii (reads them too), editor (schedules, drafts,
    /// audiences, opt-outs), sender (launch, trigger, resume, requeue, resolve), operator (relays, pools, limits,
    /// leadership), admin (everything, also tokens and members). All of them view; editor, sender and operator pause;
    /// sender and operator cancel. A token permits no more than the one that creates it.
    #[command(after_long_help = "\
Examples:
  reveille token create deploy --role editor --role pii --tenant acme
  reveille token create dashboard --role viewer --all-tenants --valid-for 365d -o name")]
    Create(CreateTokenArgs),
    /// The token that this command uses: what it permits, and until when
    #[command(after_long_help = "Example:\n  reveille token show -o json")]
    Show,
    /// Tokens, without their secrets; revoked and expired ones for 30 days
    #[command(after_long_help = "Example:\n  reveille token list -o json")]
    List(Paging),
    /// Replace lost admin tokens, on the machine of a running node: revoke them all, and print a new one
    ///
    /// It needs no token: it asks the node over a socket in its data folder, as the node's user or as root.
    #[command(after_long_help = "Example:\n  reveille token reset --data-dir /var/lib/reveille")]
    Reset {
        /// The data folder of the node
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// Revoke no token
        #[arg(long)]
        keep: bool,
    },
    /// Revoke a token: nothing is done by it any more
    #[command(after_long_help = "Example:\n  reveille token revoke 0123456789abcdef")]
    Revoke {
        /// Its id
        id: String,
    },
}

/// `token create`.
#[derive(Debug, Args)]
pub struct CreateTokenArgs {
    /// A name for people
    pub name: String,
    /// A role; may be given several times
    #[arg(
        long = "role",
        required = true,
        value_delimiter = ',',
        value_parser = ["viewer", "pii", "editor", "sender", "operator", "admin"]
    )]
    pub roles: Vec<String>,
    /// A tenant that it reaches; may be given several times
    #[arg(long = "tenant", value_name = "NAME", value_delimiter = ',', required_unless_present = "all_tenants")]
    pub tenants: Vec<String>,
    /// It reaches all tenants, and the cluster as a whole
    #[arg(long, conflicts_with = "tenants")]
    pub all_tenants: bool,
    /// How long it is valid, from 1m on [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub valid_for: Option<SignedDuration>,
}

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
            context.confirm(&format!("Revoke token {id}?")).await?;
            let answer = context.change(RevokeTokenRequest { id: id.clone() }).await?;
            let words = format!("{id} revoked, log index {}", answer.index);
            context.terminal.show(&Answer::new(&answer, id, words))
        }
    }
}

async fn create(context: &CommandContext<'_>, args: CreateTokenArgs) -> Result<(), Stop> {
    let CreateTokenArgs { name, roles, tenants, all_tenants, valid_for } = args;
    let valid_for = valid_for.map(duration_to_wire);
    let roles = values("ROLE_", &roles, Role::from_str_name);
    let request = CreateTokenRequest { name, roles, tenants, all_tenants, valid_for };
    // A repetition would create a second token.
    let answer = context.client.ask(RetrySafety::Once, request).await?;
    show_secret(context, &answer, answer.token.as_ref(), &answer.secret)
}

async fn reset(context: &CommandContext<'_>, data_dir: &Path, keep: bool) -> Result<(), Stop> {
    if !keep {
        context.confirm("Revoke all admin tokens of the cluster?").await?;
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

impl View for Token {
    const NAME: &'static str = "id";
    const NOUN: &'static str = "tokens";
    const COLUMNS: &'static [&'static str] = &["ID", "NAME", "ROLES", "TENANTS", "EXPIRES", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let tenants = if self.all_tenants { "all".to_owned() } else { self.tenants.join(", ") };
        let state = match (self.valid, &self.revoke_time) {
            (true, _) => Cell::toned("valid", Tone::Plain),
            (false, Some(_)) => Cell::toned("revoked", Tone::Dim),
            (false, None) => Cell::toned("expired", Tone::Dim),
        };
        let roles: Vec<String> = self.roles().map(|role| word(role.as_str_name())).collect();
        vec![
            self.id.as_str().into(),
            self.name.as_str().into(),
            roles.join(", ").into(),
            tenants.into(),
            Cell::at(self.expire_time.as_ref()),
            state,
        ]
    }
}

/// `token` is missing if the cluster asks for no token.
impl View for GetOwnTokenResponse {
    fn name(&self) -> String {
        self.token.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let none = || vec![("token".to_owned(), "the node asks for none".into())];
        let mut pairs = self.token.as_ref().map_or_else(none, pairs);
        pairs.insert(0, ("cluster".to_owned(), self.cluster.as_str().into()));
        card(pairs, paint)
    }
}

//! Implements `reveille pool …`.

use clap::{Args, Subcommand};
use reveille_proto::admin::v1::{GetPoolRequest, ListPoolsRequest, RemovePoolRequest, SetPoolRequest};

use super::{CommandContext, EtagArgs, Kind, Paging, ShowArgs, Stop};

#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Warm a pool up by a cap for each of its first days, or turn the headers X-Reveille-Run and -Fence off
    ///
    /// A pool need not be created: it is the name in `relay add --pool`. Days are UTC. What is beyond a day's cap
    /// waits for the next day, or for its deadline. What is not given stays as it is.
    #[command(after_long_help = "\
Examples:
  reveille pool set bulk --warm-up 50,100,500,1000,5000
  reveille pool set bulk --warm-up 50,100,500,1000,5000,10000 --first-day 2026-11-22
  reveille pool set bulk --reveille-headers false")]
    Set(SetPoolArgs),
    /// Pools with relays or settings
    #[command(after_long_help = "Example:\n  reveille pool list -o json")]
    List(Paging),
    /// One pool: today's cap, what of it is used, and how much waits
    #[command(
        after_long_help = "Examples:\n  reveille pool show bulk --watch\n  reveille pool show bulk --manifest > bulk.yaml"
    )]
    Show(ShowArgs),
    /// Remove its settings: no cap, and the headers X-Reveille-Run and -Fence
    ///
    /// What it sends today is counted all the same: another warm-up that is set today begins with that.
    #[command(after_long_help = "Example:\n  reveille pool remove bulk")]
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        etag: EtagArgs,
    },
}

/// `pool set`.
#[derive(Clone, Debug, Args)]
pub struct SetPoolArgs {
    /// Its name
    pub name: String,
    /// Emails on its first day, its second, and so on, at most; after the last one there is no bound
    #[arg(long, required_unless_present = "reveille_headers", value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub warm_up: Vec<u32>,
    /// The first of those days, as 2026-11-22: today or earlier [default: as it was while a plan runs, or today]
    #[arg(long, value_name = "DAY", requires = "warm_up")]
    pub first_day: Option<String>,
    /// Whether its emails carry X-Reveille-Run and X-Reveille-Fence [default: as it was, at first true]
    #[arg(long, value_name = "true|false")]
    pub reveille_headers: Option<bool>,
    #[command(flatten)]
    pub etag: EtagArgs,
}

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

//! Implements `reveille tenant …`.

use clap::{Args, Subcommand};
use reveille_proto::admin::v1::{GetTenantRequest, ListTenantsRequest, RemoveTenantRequest, SetTenantRequest, Tenant};

use super::{CommandContext, EtagArgs, Kind, Paging, ShowArgs, Stop, View, format};
use crate::cli::view::layout::{Cell, card, pairs};

#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Set the limits of a tenant; what is not named stays
    ///
    /// A tenant need not be created: it is the name in --tenant. Without bounds it has a share of 1, and no others.
    #[command(after_long_help = "\
Examples:
  reveille tenant set acme --rate-per-second 50 --concurrency 200
  reveille tenant set acme --share 3
  reveille tenant set acme --rate-per-second none
  reveille tenant set acme --pool acme,bulk")]
    Set(SetTenantArgs),
    /// Tenants that have anything, such as bounds, schedules, audiences or opt-outs
    #[command(after_long_help = "Example:\n  reveille tenant list -o json")]
    List(Paging),
    /// One tenant: its bounds, and how much of it is claimed now
    #[command(
        after_long_help = "Examples:\n  reveille tenant show acme --watch\n  reveille tenant show acme --manifest > acme.yaml"
    )]
    Show(ShowArgs),
    /// Remove its limits; its schedules stay
    #[command(after_long_help = "Example:\n  reveille tenant remove acme")]
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        etag: EtagArgs,
    },
}

/// `tenant set`.
#[derive(Clone, Debug, Args)]
pub struct SetTenantArgs {
    /// Its name
    pub name: String,
    /// Emails a second over the whole cluster, at most; 'none' for no bound
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate, required_unless_present_any = ["concurrency", "share", "pools"])]
    pub rate_per_second: Option<f64>,
    /// Recipients under way at once over the whole cluster, at most; 'none' for no bound
    #[arg(long, value_name = "N", value_parser = parse_concurrency)]
    pub concurrency: Option<u32>,
    /// Its weight beside other tenants that wait for the same pool: 1 to 16
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub share: Option<u32>,
    /// The pools that it may name; 'none' for no bound. What names others already stays
    #[arg(long = "pool", value_name = "POOL,…", value_delimiter = ',')]
    pub pools: Vec<String>,
    #[command(flatten)]
    pub etag: EtagArgs,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        _ if text == "none" => Ok(0.0),
        Ok(rate) if (0.001..=1_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("a rate is a number of emails a second, from 0.001 to 1000000, or 'none'".to_owned()),
    }
}

fn parse_concurrency(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        _ if text == "none" => Ok(0),
        Ok(count) if count > 0 => Ok(count),
        _ => Err("a number from 1 on, or 'none'".to_owned()),
    }
}

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

impl View for Tenant {
    const NOUN: &'static str = "tenants";
    const COLUMNS: &'static [&'static str] = &["NAME", "RATE", "CONCURRENCY", "SHARE", "CLAIMED"];

    fn cells(&self) -> Vec<Cell> {
        let concurrency = (self.concurrency > 0).then(|| format::count(self.concurrency.into()));
        vec![
            self.name.as_str().into(),
            Cell::rate(self.rate_per_second),
            Cell::or_dash(concurrency.as_deref()),
            self.share.to_string().into(),
            format::count(self.claimed.into()).into(),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = pairs(self);
        pairs.extend((!self.pools.is_empty()).then(|| ("pools".to_owned(), self.pools.join(", ").into())));
        pairs.extend((self.index > 0).then(|| ("set".to_owned(), format!("log index {}", self.index).into())));
        card(pairs, paint)
    }
}

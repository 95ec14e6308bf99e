//! `reveille tenant …`.

use super::{Args, EtagArgs, Paging, ShowArgs, Subcommand};

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
    /// Tenants that have bounds, schedules or campaigns
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

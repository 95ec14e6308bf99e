//! `reveille events`.

use clap::Args;
use clap::builder::PossibleValuesParser;
use reveille_proto::admin::v1::EventType;

use crate::cli::word::word;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  reveille events --limit 20
  reveille events --after 1042.3 --type run_finished,recipients_dead -o json
  reveille events --after latest --follow -o json")]
pub struct EventArgs {
    /// Tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Only what came after this: the cursor of an event, or `latest` for what comes from now on [default: the oldest
    /// event that is kept]
    #[arg(long, value_name = "CURSOR", default_value = "", hide_default_value = true)]
    pub after: String,
    /// Go on with new events, until Ctrl-C or --timeout, across lost nodes
    #[arg(long)]
    pub follow: bool,
    /// Only events of these types
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = types())]
    pub types: Vec<String>,
    /// One event for each recipient, with its address
    #[arg(long)]
    pub single: bool,
    /// Print at most so many
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "follow")]
    pub limit: u32,
}

/// Prefix of the generated names of types.
pub const TYPE_PREFIX: &str = "EVENT_TYPE_";

fn types() -> PossibleValuesParser {
    let known = (1..).map_while(|number| EventType::try_from(number).ok());
    PossibleValuesParser::new(known.map(|known| word(TYPE_PREFIX, known.as_str_name())))
}

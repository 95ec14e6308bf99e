//! `reveille events`.

use super::Args;

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
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = TYPES)]
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
/// The types, as users name them.
#[rustfmt::skip]
const TYPES: [&str; 16] = [
    "run_opened", "run_finished", "run_paused", "run_resumed", "run_cancelled", "run_expired", "recipients_sent",
    "recipients_dead", "recipients_in_doubt", "recipients_suppressed", "recipients_assumed", "recipients_expired",
    "recipients_cancelled", "recipients_pending", "opted_out", "schedule_blocked",
];

#[cfg(test)]
mod tests {
    use reveille_proto::admin::v1::EventType;

    use super::*;
    use crate::api_json::word;

    #[test]
    fn each_type_of_the_api_can_be_named() {
        let known = (1..).map_while(|number| EventType::try_from(number).ok());
        let known: Vec<String> = known.map(|known| word(known.as_str_name())).collect();
        assert_eq!(known, TYPES);
    }
}

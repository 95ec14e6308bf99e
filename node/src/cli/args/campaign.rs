//! `reveille campaign …`.

use super::labels::parse_label;
use super::{
    Args, CampaignPolicyArgs, ContentArgs, EtagArgs, Paging, SelectorArgs, ShowArgs, Subcommand, Timestamp,
    parse_instant,
};

#[derive(Debug, Subcommand)]
pub enum CampaignCommand {
    /// Draft a campaign: one content, one audience, one instant
    ///
    /// Nothing is sent before it is launched. Its content is frozen; the same name with the same body is the same
    /// campaign. The audience need not be sealed yet.
    #[command(
        after_long_help = "Example:\n  reveille campaign create spring --audience subscribers --at 2026-12-01T09:00:00+01:00 \\\n      \
                           --zone Europe/Berlin --sender 'News <news@example.com>' \\\n      \
                           --subject 'Spring, {{ name }}' --text body.txt --html body.html --canary-percent 1%\n  \
                           reveille campaign launch spring"
    )]
    Create(Box<CampaignCreateArgs>),
    /// Let it open at its instant; launched again, by anyone, it sends nothing more
    ///
    /// Says first whether the limits suffice: the rates of the pool's relays and of the tenant,
    /// and the caps of a warm-up. Refused where no relay is in its pool. An instant that is over by less than
    /// --start-within of `create` opens at once, late. What is not sent within --finish-by of `create` expires; where
    /// that was left out, within four hours or twice the forecast, whichever is longer.
    #[command(
        after_long_help = "Examples:\n  reveille campaign launch spring --dry-run\n  reveille campaign launch spring --at 2026-12-01T10:00:00Z"
    )]
    Launch {
        #[command(flatten)]
        launch: LaunchArgs,
        /// Check it, say whether it can be sent in time, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Say whether a draft can be launched, and be sent in time; changes nothing
    ///
    /// Its content against the columns of its audience, the relays of its pool, its instant, and whether the bounds
    /// that are set are wide enough: what `launch --dry-run` says. Ends as the launch would.
    #[command(
        after_long_help = "Examples:\n  reveille campaign validate spring\n  reveille campaign validate spring --at 2026-12-01T10:00:00Z"
    )]
    Validate(LaunchArgs),
    /// Stop it: before its instant nothing opens, after it no handoff starts
    #[command(after_long_help = "Example:\n  reveille campaign pause spring --reason 'wrong price in it'")]
    Pause {
        /// Its name
        name: String,
        /// Why; shown wherever the campaign is shown
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let it go on
    #[command(after_long_help = "\
Examples:
  reveille campaign resume spring
  reveille campaign resume spring --without-canary")]
    Resume {
        /// Its name
        name: String,
        /// Resume although the canary paused this campaign. An error if no canary paused it
        #[arg(long)]
        without_canary: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// End it for good: what is not sent is cancelled
    #[command(after_long_help = "Example:\n  reveille campaign cancel spring --yes")]
    Cancel {
        /// Its name
        name: String,
        /// Show what would be cancelled, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
    /// How far it has come
    #[command(after_long_help = "\
Examples:
  reveille campaign status spring -o json
  reveille campaign status spring --manifest > spring.yaml")]
    Status(ShowArgs),
    /// Follow it until no recipient is pending
    #[command(after_long_help = "Example:\n  reveille campaign watch spring")]
    Watch {
        /// Its name
        name: String,
    },
    /// All campaigns, by name
    #[command(after_long_help = "\
Examples:
  reveille campaign list
  reveille campaign list --state open,paused -l team=news --since-time 2026-12-01T00:00:00Z")]
    List {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        labels: SelectorArgs,
        /// Only those in this state
        #[arg(
            long = "state",
            value_delimiter = ',',
            value_parser = [
                "draft", "waiting", "launched", "open", "paused", "finished", "cancelled", "expired", "missed",
                "blocked",
            ]
        )]
        states: Vec<String>,
        /// Only those whose instant is then or later
        #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
        since_time: Option<Timestamp>,
        /// Only those whose instant is before then
        #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
        until_time: Option<Timestamp>,
    },
    /// Delete one that has ended or never began; its run stays
    #[command(after_long_help = "Example:\n  reveille campaign delete spring --yes")]
    Delete {
        /// Its name
        name: String,
        /// Say whether it can be deleted, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
}

/// `campaign launch` and `validate`.
#[derive(Debug, Args)]
pub struct LaunchArgs {
    /// Its name
    pub name: String,
    /// Another instant than the one it was created with
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub at: Option<Timestamp>,
    /// Launch although the same content went to the same audience within 30 days
    #[arg(long)]
    pub again: bool,
    #[command(flatten)]
    pub etag: EtagArgs,
}

/// `campaign create`.
#[derive(Clone, Debug, Args)]
pub struct CampaignCreateArgs {
    /// Its name, unique among campaigns and schedules of the tenant
    pub name: String,
    /// A sealed audience, or one that will be sealed by then: `reveille audience list`
    #[arg(long, value_name = "NAME")]
    pub audience: String,
    /// When it is to be sent
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub at: Timestamp,
    /// Time zone in which people speak of that instant
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub zone: String,
    /// Pool of relays
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Higher goes first within the tenant
    #[arg(long, value_name = "0-255", default_value_t = 0)]
    pub priority: u8,
    /// A label, by which campaigns are grouped; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub labels: Vec<(String, String)>,
    /// Send to this part of the recipients first, spread over the list, and to the others if it succeeds
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub canary_percent: Option<f64>,
    /// Pause it when more than so many of those are dead or in doubt [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, requires = "canary_percent")]
    pub canary_hold_percent: Option<f64>,
    /// Check everything, say whether it can be sent in time, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub content: ContentArgs,
    #[command(flatten)]
    pub policies: CampaignPolicyArgs,
}

/// `1%`, `0.5%` or `1`.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    number.map_err(|_| "a percentage is a number, such as 1% or 0.5%".to_owned())
}

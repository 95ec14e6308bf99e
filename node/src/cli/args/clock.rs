//! `reveille clock …`.

use super::{Args, SignedDuration, Subcommand, Timestamp, Watch, parse_duration, parse_instant};

#[derive(Debug, Subcommand)]
pub enum ClockCommand {
    /// What time it is, and when the next schedule is due
    #[command(
        after_long_help = "Example:\n  reveille clock show\n\nA clock to move by hand: reveille dev --test-clock"
    )]
    Show(Watch),
    /// Move it forward, from one due instant to the next, and wait until each one's work is done
    ///
    /// There is no way back. Without --timeout it goes on until it is there; Ctrl-C leaves the clock where it
    /// is.
    #[command(after_long_help = "\
Examples:
  reveille clock advance 20h
  reveille clock advance --target-time 2027-03-14T00:00:00Z
  reveille clock advance 4d --jump      # as if nothing had run for four days")]
    Advance(AdvanceArgs),
}

/// How far.
#[derive(Debug, Args)]
pub struct AdvanceArgs {
    /// How far from now, such as 90m, 20h or 365d
    #[arg(value_name = "DURATION", value_parser = parse_duration, required_unless_present = "target_time", conflicts_with = "target_time")]
    pub by: Option<SignedDuration>,
    /// To which instant
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub target_time: Option<Timestamp>,
    /// Leap at once, as an outage would: what falls due in between is missed, and caught up by its policy
    #[arg(long)]
    pub jump: bool,
}

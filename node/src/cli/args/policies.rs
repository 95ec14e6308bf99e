//! One flag a policy. What is not given is left to the cluster's default.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use reveille_ledger::calendar::{self, DstGap, DstOverlap};
use reveille_proto::admin::v1::{self, CatchUp, InDoubt, Overlap};

use super::{Args, SignedDuration, duration_to_wire, parse_duration};
use crate::cli::word::name;

/// What happens where the clocks change.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Policies")]
pub struct DstArgs {
    /// A local time that does not exist: the end of the gap, later by its width, or not that day
    #[arg(long, value_name = "POLICY", default_value = "after", value_parser =
        PossibleValuesParser::new(["after", "shift", "skip"]).try_map(|word| word.parse::<DstGap>()))]
    pub dst_gap: DstGap,
    /// A local time that exists twice: before the clocks go back, after, or both
    #[arg(long, value_name = "POLICY", default_value = "first", value_parser =
        PossibleValuesParser::new(["first", "second", "both"]).try_map(|word| word.parse::<DstOverlap>()))]
    pub dst_overlap: DstOverlap,
}

/// Policies of each run, also of what is sent once.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Policies")]
pub struct RunPolicyArgs {
    /// An occurrence later than this does not open [default: 12h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    pub start_within: Option<SignedDuration>,
    /// What a run has not sent this long after its instant expires [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    pub finish_by: Option<SignedDuration>,
    /// An email whose handoff may have happened: hold it for your decision, send again, or take it as sent
    #[arg(long, value_name = "POLICY", default_value = "hold",
        value_parser = PossibleValuesParser::new(["hold", "resend", "assume_sent"]))]
    pub in_doubt: String,
    /// Attempts without a named cause after which a recipient is dead [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub max_attempts: Option<u8>,
    /// Outcomes of recipients are kept this long after a run finished, and its counts for 400 days [default: 90d]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    pub retention: Option<SignedDuration>,
}

/// All policies of a schedule.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Policies")]
pub struct PolicyArgs {
    #[command(flatten)]
    pub dst: DstArgs,
    /// Instants that were missed: the latest one, each, or none
    #[arg(long, value_name = "POLICY", default_value = "one", value_parser = PossibleValuesParser::new(["one", "all", "none"]))]
    pub catch_up: String,
    /// While the former run is not finished: wait for it, not at all, side by side, or cancel what it has not sent
    #[arg(long, value_name = "POLICY", default_value = "buffer_one",
        value_parser = PossibleValuesParser::new(["buffer_one", "skip", "allow", "cancel_other"]))]
    pub overlap: String,
    /// A recipient gets at most one email of it within this time; or none [default: 20h if daily, else none]
    #[arg(long, value_name = "DURATION", value_parser = parse_gap, allow_hyphen_values = true)]
    pub min_gap: Option<SignedDuration>,
    /// Open within this after each instant, at a place that depends on the schedule's name; before the next one
    /// [default: none]
    #[arg(long, value_name = "DURATION", value_parser = parse_gap, allow_hyphen_values = true)]
    pub jitter: Option<SignedDuration>,
    #[command(flatten)]
    pub of_run: RunPolicyArgs,
}

impl RunPolicyArgs {
    /// For the API.
    pub fn to_wire(&self) -> v1::Policies {
        v1::Policies {
            start_within: self.start_within.map(duration_to_wire),
            finish_by: self.finish_by.map(duration_to_wire),
            in_doubt: InDoubt::from_str_name(&name("IN_DOUBT_", &self.in_doubt)).unwrap_or_default().into(),
            max_attempts: self.max_attempts.unwrap_or_default().into(),
            retention: self.retention.map(duration_to_wire),
            ..v1::Policies::default()
        }
    }
}

/// A length of time, or `none`.
pub fn parse_gap(text: &str) -> Result<SignedDuration, String> {
    if text == "none" { Ok(SignedDuration::ZERO) } else { parse_duration(text) }
}

impl DstArgs {
    /// For the calendar.
    pub fn to_calendar(self) -> calendar::DstPolicies {
        calendar::DstPolicies { gap: self.dst_gap, overlap: self.dst_overlap }
    }
}

impl PolicyArgs {
    /// For the API.
    pub fn to_wire(&self) -> v1::Policies {
        let mut policies = v1::Policies {
            min_gap: self.min_gap.map(duration_to_wire),
            jitter: self.jitter.map(duration_to_wire),
            ..self.of_run.to_wire()
        };
        let (gap, overlap) = (self.dst.dst_gap.to_string(), self.dst.dst_overlap.to_string());
        policies.set_dst_gap(v1::DstGap::from_str_name(&name("DST_GAP_", &gap)).unwrap_or_default());
        policies.set_dst_overlap(v1::DstOverlap::from_str_name(&name("DST_OVERLAP_", &overlap)).unwrap_or_default());
        policies.set_catch_up(CatchUp::from_str_name(&name("CATCH_UP_", &self.catch_up)).unwrap_or_default());
        policies.set_overlap(Overlap::from_str_name(&name("OVERLAP_", &self.overlap)).unwrap_or_default());
        policies
    }
}

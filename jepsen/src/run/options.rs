//! The options of `run`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reveille_check::events::InDoubt;

use super::faults::Family;

/// Emails per second while the leader is killed or the processors are busy, each of one schedule.
const STEADY_PER_SECOND: u64 = 10;
/// Recipients of each schedule of a cluster that is lost.
const RECIPIENTS_OF_LOST: u64 = 8;
/// Schedules and recipients before the first crash point.
const BEFORE_CRASHES: (u64, u64) = (60, 240);
/// Default number of schedules for each second of the fault phase.
const SCHEDULES_PER_SECOND: u64 = 3;
/// Maximum default number of schedules. A long run has more recipients for each schedule instead, because nodes
/// hash states of more than 10,000 rows more rarely (I11), and a finished schedule keeps at least three rows.
const SCHEDULES_MAX: u64 = 500;
const RECIPIENTS_PER_SECOND: u64 = 20;
const CAMPAIGN_PER_SECOND: u64 = 8;

/// Options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Decides everything random; `random` draws one and prints it
    #[arg(long, value_parser = seed)]
    pub seed: u64,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    pub nodes: u8,
    /// Recipients in all, each of one schedule [default: 20 a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub recipients: Option<u32>,
    /// Schedules, each due once, spread evenly over the fault phase [default: 3 a second,
    /// 500 at most: larger states are compared rarely]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub schedules: Option<u32>,
    /// Recipients of a campaign that is sent during most of the fault phase; 0: no campaign [default: 8 a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub campaign: Option<u32>,
    /// How long the fault phase is; the whole run takes at most twice that and 180 s, or 240 s with `restore`
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// What is broken: `all`, or some of these; `upgrade` needs nodes built with the feature `next-level`; or one of
    /// `failover`, `busy`, `loss` and `crash-points`, alone
    #[arg(long, default_value = "all", value_parser = families)]
    pub nemesis: FaultFamilies,
    /// The binary of the former release, from which `upgrade` starts [default: the nodes' own, which acts as both]
    #[arg(long, value_name = "PATH")]
    pub former: Option<PathBuf>,
    /// Crash points [default: all that the binary has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub points: Vec<String>,
    /// How often processes have to crash at each crash point
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub hits: u32,
    /// What the schedules do with emails in doubt [default: the seed decides, `hold` for 70 of 100]
    #[arg(long, value_name = "hold|resend|assume_sent", value_parser = in_doubt)]
    pub in_doubt: Option<InDoubt>,
    /// What is due
    #[arg(long, value_enum, default_value = "once")]
    pub workload: Due,
    /// Keep the history in this file [default: it is removed]
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Append the last line to this file
    #[arg(long, value_name = "FILE")]
    pub append: Option<PathBuf>,
}

/// Returns the seed for a text: a number, or `random`, which draws a seed.
pub fn seed(text: &str) -> Result<u64, &'static str> {
    match text {
        "random" => Ok(rand::random::<u32>().into()),
        _ => text.parse().map_err(|_| "a number below 2^64, or `random`"),
    }
}

/// The chosen families of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultFamilies {
    /// The text of the command line.
    pub text: String,
    families: BTreeSet<Family>,
    /// What acts instead of families.
    pub alone: Option<Alone>,
}

/// What acts alone, instead of families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Alone {
    /// The leader is killed every 8 s, under a steady stream of emails
    Failover,
    /// All processors are busy, and no fault acts
    Busy,
    /// The cluster is lost while emails flow, and restored from a backup
    Loss,
    /// Nodes crash at named points of their code
    CrashPoints,
}

impl FaultFamilies {
    /// Returns true if all families were requested. Then families that this machine or workload lacks are left out.
    pub fn is_all(&self) -> bool {
        self.text == "all"
    }
}

fn families(text: &str) -> Result<FaultFamilies, String> {
    let alone = Alone::from_str(text, false).ok();
    let families = match text {
        _ if alone.is_some() => Ok(BTreeSet::new()),
        "all" => Ok(Family::value_variants().iter().copied().collect()),
        _ => text.split(',').map(|name| Family::from_str(name, true)).collect(),
    };
    let names = || Family::value_variants().iter().map(|family| family.name()).collect::<Vec<_>>().join(", ");
    let families = families.map_err(|_| {
        format!("`all`, or some of {} with commas between, or failover, busy, loss or crash-points alone", names())
    })?;
    Ok(FaultFamilies { text: text.to_owned(), families, alone })
}

fn in_doubt(text: &str) -> Result<InDoubt, &'static str> {
    serde_json::from_value(text.into()).map_err(|_| "hold, resend or assume_sent")
}

/// Returns the policy of a run with this seed, with the shares of the simulation.
fn drawn_policy(seed: u64) -> InDoubt {
    // A stream of its own, so that it changes no other draw.
    match StdRng::seed_from_u64(seed.wrapping_mul(0xA24B_AED4_963E_E407)).random_range(0..100) {
        0..70 => InDoubt::Hold,
        70..85 => InDoubt::Resend,
        _ => InDoubt::AssumeSent,
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Due {
    /// Schedules that fire once, spread over the fault phase, and a campaign
    Once,
    /// Daily schedules in twelve zones, on the test clock; without `clock`, `operator` and `restore`
    Daily,
}

impl Args {
    /// Returns the number of schedules, and of recipients of all schedules.
    pub(super) fn sizes(&self) -> (u32, u32) {
        let due = self.seconds * SCHEDULES_PER_SECOND;
        let (schedules, recipients) = match self.nemesis.alone {
            Some(Alone::Failover | Alone::Busy) => (self.seconds * STEADY_PER_SECOND, 0),
            Some(Alone::Loss) => (due, due * RECIPIENTS_OF_LOST),
            Some(Alone::CrashPoints) => BEFORE_CRASHES,
            None => (due.min(SCHEDULES_MAX), self.seconds * RECIPIENTS_PER_SECOND),
        };
        let schedules = self.schedules.unwrap_or(schedules as u32);
        let recipients = self.recipients.unwrap_or(recipients as u32);
        (schedules, recipients.max(schedules))
    }

    /// Returns the policy for emails in doubt: as requested, or as the seed decides if families act.
    pub(super) fn policy(&self) -> InDoubt {
        let drawn = || if self.nemesis.alone.is_some() { InDoubt::Hold } else { drawn_policy(self.seed) };
        self.in_doubt.unwrap_or_else(drawn)
    }

    /// Returns the number of recipients of the campaign.
    pub(super) fn campaign_size(&self) -> u32 {
        match (self.workload, self.nemesis.alone) {
            (Due::Once, None) => self.campaign.unwrap_or((self.seconds * CAMPAIGN_PER_SECOND) as u32),
            _ => 0,
        }
    }

    /// Returns the families. With `--workload daily` the test clock drives time. So `clock`, `operator` and `restore`
    /// are refused if named, and left out of `all`. So is `upgrade` if the binary of the nodes lacks the next level.
    pub(super) fn families(&self, lacks_next_level: Option<&'static str>) -> Result<Vec<Family>> {
        let unfit = |family: &Family| match family {
            Family::Clock | Family::Operator | Family::Restore if self.workload == Due::Daily => {
                Some("--workload daily goes without it")
            }
            Family::Upgrade => lacks_next_level,
            _ => None,
        };
        if self.nemesis.alone.is_some() && self.workload == Due::Daily {
            anyhow::bail!("--nemesis {}: --workload daily goes without it", self.nemesis.text);
        }
        let families = &self.nemesis.families;
        if let Some((family, why)) = families.iter().find_map(|family| Some((family, unfit(family)?)))
            && !self.nemesis.is_all()
        {
            anyhow::bail!("--nemesis {}: {why}", family.name());
        }
        Ok(families.iter().filter(|family| unfit(family).is_none()).copied().collect())
    }

    /// Returns true if ledger time can be compared with the time of the history.
    pub(super) fn ledger_time_is_ours(&self, families: &[Family]) -> bool {
        self.workload == Due::Once && !families.contains(&Family::Clock)
    }
}

/// Returns the command that repeats a run: the current command with the drawn seed.
pub(super) fn command(seed: u64) -> String {
    let words = std::env::args().skip(1).map(|word| if word == "random" { seed.to_string() } else { word });
    format!("reveille-jepsen {}", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_chosen_once_each_by_name() {
        let chosen = families("kill,pause,kill").unwrap();
        assert_eq!(chosen.families, BTreeSet::from([Family::Kill, Family::Pause]));
        assert_eq!(families("all").unwrap().families.len(), Family::value_variants().len());
        assert!(families("earthquake").unwrap_err().contains("partition"));
        assert_eq!(families("crash-points").unwrap().alone, Some(Alone::CrashPoints));
        assert!(families("crash-points,kill").unwrap_err().contains("alone"));
    }

    #[test]
    fn policy_drawn_by_seed_is_mostly_hold_and_each_occurs() {
        let count = |policy| (0..1_000).filter(|seed| drawn_policy(*seed) == policy).count();
        let counts = [InDoubt::Hold, InDoubt::Resend, InDoubt::AssumeSent].map(count);
        assert!((650..750).contains(&counts[0]), "{counts:?}");
        assert!(counts[1..].iter().all(|count| (110..190).contains(count)), "{counts:?}");
        assert_eq!(in_doubt("assume_sent"), Ok(InDoubt::AssumeSent));
    }

    #[test]
    fn seed_is_number_or_random() {
        assert_eq!(seed("7"), Ok(7));
        assert!(seed("random").is_ok() && seed("seven").is_err());
    }
}

//! The options of `run`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reveille_check::history::InDoubt;
use reveille_proto::admin::v1 as api;

use super::faults::Family;

/// Defaults for each second of the fault phase.
const SCHEDULES_PER_SECOND: u64 = 3;
/// A long run has fewer schedules with more recipients each: the product does not hash states of more than 10,000 rows (I11),
/// and a finished schedule keeps at least three.
const SCHEDULES_MAX: u64 = 500;
const RECIPIENTS_PER_SECOND: u64 = 20;
const CAMPAIGN_PER_SECOND: u64 = 8;

/// Options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Decides everything random; `random` draws one and prints it
    #[arg(long, value_parser = seed)]
    pub seed: Seed,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    pub nodes: u8,
    /// Recipients in all, each of one schedule [default: 20 a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub recipients: Option<u32>,
    /// Schedules, each due once, spread evenly over the fault phase [default: 3 a second,
    /// 500 at most: larger states are not compared]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub schedules: Option<u32>,
    /// Recipients of a campaign that is sent during most of the fault phase; 0: no campaign [default: 8 a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub campaign: Option<u32>,
    /// How long the fault phase is; the whole run takes at most twice that and 180 s
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// What is broken: `all`, or some of these; `upgrade` needs nodes built with the feature `next-level`
    #[arg(long, default_value = "all", value_delimiter = ',', value_parser = family)]
    pub nemesis: Vec<Nemeses>,
    /// What the schedules do with emails in doubt [default: the seed decides, `hold` for 70 of 100]
    #[arg(long, value_enum)]
    pub in_doubt: Option<Policy>,
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

/// A seed, given or drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

/// A number, or `random`.
pub fn seed(text: &str) -> Result<Seed, String> {
    match text {
        "random" => Ok(Seed(rand::random::<u32>().into())),
        _ => text.parse().map(Seed).map_err(|_| "a number below 2^64, or `random`".to_owned()),
    }
}

/// One family, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nemeses {
    /// All.
    All,
    /// One.
    One(Family),
}

fn family(text: &str) -> Result<Nemeses, String> {
    use clap::ValueEnum;
    let names = || Family::ALL.iter().filter_map(|family| Some(family.to_possible_value()?.get_name().to_owned()));
    match text {
        "all" => Ok(Nemeses::All),
        _ => Family::from_str(text, true)
            .map(Nemeses::One)
            .map_err(|_| format!("`all` or some of {}, with commas between", names().collect::<Vec<_>>().join(", "))),
    }
}

/// What schedules do with emails in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Never sent again without a decision
    Hold,
    /// Sent again: duplicates by choice
    Resend,
    /// Closed as assumed when the run ends
    #[value(name = "assume_sent")]
    AssumeSent,
}

impl Policy {
    /// The policy of a run with this seed, with the shares of the simulation.
    fn drawn(seed: u64) -> Policy {
        // Its own stream, so that it changes no other draw.
        match StdRng::seed_from_u64(seed.wrapping_mul(0xA24B_AED4_963E_E407)).random_range(0..100) {
            0..70 => Policy::Hold,
            70..85 => Policy::Resend,
            _ => Policy::AssumeSent,
        }
    }

    /// Its name on the command line and in the last line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Policy::Hold => "hold",
            Policy::Resend => "resend",
            Policy::AssumeSent => "assume_sent",
        }
    }

    /// As the admin API names it.
    pub(super) fn wire(self) -> api::InDoubt {
        match self {
            Policy::Hold => api::InDoubt::Hold,
            Policy::Resend => api::InDoubt::Resend,
            Policy::AssumeSent => api::InDoubt::AssumeSent,
        }
    }

    /// As histories name it.
    pub(super) fn judged(self) -> InDoubt {
        match self {
            Policy::Hold => InDoubt::Hold,
            Policy::Resend => InDoubt::Resend,
            Policy::AssumeSent => InDoubt::AssumeSent,
        }
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Due {
    /// Schedules that fire once, spread over the fault phase, and a campaign
    Once,
    /// Daily schedules in twelve zones, on the test clock; without `clock` and `operator`
    Daily,
}

impl Args {
    /// Schedules, and recipients of all of them.
    pub(super) fn sizes(&self) -> (u32, u32) {
        let schedules = self.schedules.unwrap_or((self.seconds * SCHEDULES_PER_SECOND).min(SCHEDULES_MAX) as u32);
        let recipients = self.recipients.unwrap_or((self.seconds * RECIPIENTS_PER_SECOND) as u32);
        (schedules, recipients.max(schedules))
    }

    /// The policy for emails in doubt: as asked for, or as the seed decides.
    pub(super) fn policy(&self) -> Policy {
        self.in_doubt.unwrap_or_else(|| Policy::drawn(self.seed.0))
    }

    /// Recipients of the campaign.
    pub(super) fn campaign_size(&self) -> u32 {
        match self.workload {
            Due::Once => self.campaign.unwrap_or((self.seconds * CAMPAIGN_PER_SECOND) as u32),
            Due::Daily => 0,
        }
    }

    /// The families. On the test clock nodes' own clocks are not changed, and operators know only the harness's time: with
    /// the daily workload these two are refused if named, and left out of `all`; and so is an upgrade if the binary of the
    /// nodes lacks the next level.
    pub(super) fn families(&self, lacks_next_level: Option<&'static str>) -> Result<Vec<Family>> {
        let unfit = |family: &Family| match family {
            Family::Clock | Family::Operator if self.workload == Due::Daily => Some("--workload daily goes without it"),
            Family::Upgrade => lacks_next_level,
            _ => None,
        };
        for named in &self.nemesis {
            if let Nemeses::One(family) = named
                && let Some(why) = unfit(family)
            {
                anyhow::bail!("--nemesis {}: {why}", words(&[*named]));
            }
        }
        Ok(each(&self.nemesis).into_iter().filter(|family| unfit(family).is_none()).collect())
    }

    /// Whether ledger time can be compared with the history's.
    pub(super) fn ledger_time_is_ours(&self, families: &[Family]) -> bool {
        self.workload == Due::Once && !families.contains(&Family::Clock)
    }

    /// The families as on the command line.
    pub(super) fn nemesis_words(&self) -> String {
        words(&self.nemesis)
    }

    /// The command that repeats the run.
    pub(super) fn command(&self) -> String {
        let (seed, nodes, seconds) = (self.seed.0, self.nodes, self.seconds);
        let mut command = format!(
            "reveille-jepsen run --seed {seed} --nodes {nodes} --seconds {seconds} --nemesis {}",
            self.nemesis_words()
        );
        let sizes = [("schedules", self.schedules), ("recipients", self.recipients), ("campaign", self.campaign)];
        for (name, size) in sizes.into_iter().filter_map(|(name, size)| Some((name, size?))) {
            command.push_str(&format!(" --{name} {size}"));
        }
        if self.workload == Due::Daily {
            command.push_str(" --workload daily");
        }
        if let Some(policy) = self.in_doubt {
            command.push_str(&format!(" --in-doubt {}", policy.word()));
        }
        command
    }
}

fn each(chosen: &[Nemeses]) -> BTreeSet<Family> {
    let each = chosen.iter().flat_map(|chosen| match chosen {
        Nemeses::All => Family::ALL.to_vec(),
        Nemeses::One(family) => vec![*family],
    });
    each.collect()
}

/// As on the command line.
fn words(chosen: &[Nemeses]) -> String {
    use clap::ValueEnum;
    let word = |chosen: &Nemeses| match chosen {
        Nemeses::All => "all".to_owned(),
        Nemeses::One(family) => {
            family.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
        }
    };
    chosen.iter().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_chosen_once_each_by_name() {
        let chosen = ["kill", "pause", "kill"].map(|name| family(name).unwrap());
        assert_eq!(each(&chosen), BTreeSet::from([Family::Kill, Family::Pause]));
        assert_eq!(words(&chosen), "kill,pause,kill");
        assert_eq!(each(&[family("all").unwrap()]).len(), Family::ALL.len());
        assert!(family("earthquake").unwrap_err().contains("partition"));
    }

    #[test]
    fn policy_drawn_by_seed_is_mostly_hold_and_each_occurs() {
        use clap::ValueEnum;
        let count = |policy| (0..1_000).filter(|seed| Policy::drawn(*seed) == policy).count();
        let counts = [Policy::Hold, Policy::Resend, Policy::AssumeSent].map(count);
        assert!((650..750).contains(&counts[0]), "{counts:?}");
        assert!(counts[1..].iter().all(|count| (110..190).contains(count)), "{counts:?}");
        for policy in Policy::value_variants() {
            assert_eq!(Policy::from_str(policy.word(), false), Ok(*policy));
        }
    }

    #[test]
    fn seed_is_number_or_random() {
        assert_eq!(seed("7"), Ok(Seed(7)));
        assert!(seed("random").is_ok() && seed("seven").is_err());
    }
}

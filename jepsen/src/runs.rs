//! `runs`: sums up a file of runs, as `run --append` writes it: what a campaign came to, in figures that nobody typed.
//!
//! A line is a run. One that was not valid counts as one that was not valid, and adds to no sum but duplicates and
//! losses, which are never hidden: what else it saw proves nothing. Duplicates under `resend` are by choice, so the policies
//! are summed apart; those that an operator decided for are told apart from those that nobody did.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use reveille_check::{Failover, Failovers, Times};
use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::run::Ends;

/// Options of `runs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What `run --append` wrote: one JSON object a line
    pub file: PathBuf,
}

/// What is read of a line.
#[derive(Debug, Deserialize)]
struct Line {
    seed: u64,
    commit: String,
    valid: bool,
    nemesis: String,
    in_doubt_policy: String,
    nodes: u8,
    /// Lines of before there was a choice say nothing.
    #[serde(default)]
    workload: Option<String>,
    /// So do lines of before links could be proxies.
    #[serde(default)]
    links: Option<String>,
    fault_seconds: u64,
    accepted: u64,
    duplicates: u64,
    /// Lines of before operators decided say nothing.
    #[serde(default)]
    duplicates_decided: u64,
    /// Lines of before anybody read say nothing.
    #[serde(default)]
    reads: u64,
    lost: Option<u64>,
    in_doubt: u64,
    in_doubt_arrived: u64,
    /// Lines of before these were counted say nothing.
    #[serde(default)]
    resent: u64,
    #[serde(default)]
    assumed: u64,
    faults: BTreeMap<String, Tally>,
    /// Lines of before names were counted say nothing.
    #[serde(default)]
    seen: BTreeMap<String, u64>,
    ends: Ends,
    /// Lines of before times were counted from a majority say nothing.
    #[serde(default)]
    failovers: Each,
    invariants: BTreeMap<String, Verdict>,
    /// How often lives ended at each crash point.
    #[serde(default)]
    points: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Tally {
    observed: u64,
    skipped: u64,
}

#[derive(Debug, Default, Deserialize)]
struct Each {
    each: Vec<Failover>,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    verdict: String,
}

impl Line {
    /// Families of faults, and whatever is not as usual: the size of the cluster, what it was given to do, what stood
    /// between its nodes, how long it was broken.
    fn kind(&self) -> String {
        let nodes = (self.nodes != 3).then(|| format!("{} nodes", self.nodes));
        let workload = self.workload.clone().filter(|workload| workload != "once");
        let links = self.links.as_deref().filter(|links| *links == "proxy").map(|_| "proxies".to_owned());
        let length = (self.fault_seconds != 60).then(|| format!("{} s", self.fault_seconds));
        let kind: Vec<String> =
            [Some(self.nemesis.clone()), nodes, workload, links, length].into_iter().flatten().collect();
        format!("{} ({})", kind.join(", "), self.in_doubt_policy)
    }
}

/// What runs of one kind come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    runs: u64,
    valid: u64,
    fault_seconds: u64,
    mails: u64,
    /// Under `hold` and `assume_sent` no operator decided for them.
    duplicates: u64,
    /// An operator decided for these.
    duplicates_decided: u64,
    /// Reads of administrators that were answered and judged.
    reads: u64,
    lost: u64,
    /// Runs of which nobody could say how many were lost: they did not come to their end.
    lost_unknown: u64,
    /// Of who led, of who had a mail in hand, of others.
    kills_of_leader: u64,
    kills_of_sender: u64,
    kills_of_other: u64,
    kills_between_dot_and_250: u64,
    power_cuts: u64,
    /// At the end, by whatever fault.
    in_doubt: u64,
    in_doubt_arrived: u64,
    in_doubt_per_kill: Option<f64>,
    /// Doubts that ended so, by policy or by an operator.
    resent: u64,
    assumed: u64,
    /// From a majority to the next leader, and to the first email under it.
    leader_ms: Times,
    email_ms: Times,
}

#[derive(Debug, Serialize)]
struct Report {
    file: PathBuf,
    commits: BTreeSet<String>,
    /// Under `hold`, of which 0 duplicates are promised.
    hold: Sum,
    /// Under `resend`.
    resend: Sum,
    /// Under `assume_sent`, of which 0 duplicates are promised too.
    assume_sent: Sum,
    /// By families of faults, size of the cluster, workload and policy.
    by_nemesis: BTreeMap<String, Sum>,
    /// Faults that were seen to have an effect, by kind.
    faults: BTreeMap<String, u64>,
    /// The same by name, of the lines that tell names.
    seen: BTreeMap<String, u64>,
    /// And those that were skipped.
    skipped: BTreeMap<String, u64>,
    /// In how many valid runs each invariant held. Those that were not valid are named below.
    invariants: BTreeMap<String, u64>,
    /// How often lives ended at each crash point, in valid runs.
    points: BTreeMap<String, u64>,
    not_valid: Vec<String>,
}

/// Reads the file; valid when every run is, and nothing was double or lost under `hold` and `assume_sent`.
pub fn run(args: &Args) -> Result<Outcome> {
    let text = std::fs::read_to_string(&args.file).with_context(|| args.file.display().to_string())?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines = lines.map(|(number, line)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", args.file.display(), number + 1))
    });
    let lines: Vec<Line> = lines.collect::<Result<_>>()?;
    let report = sum(args.file.clone(), &lines);
    eprintln!("{}", table(&report));
    let promised = [&report.hold, &report.assume_sent];
    let valid = report.not_valid.is_empty() && promised.iter().all(|sum| sum.duplicates == 0 && sum.lost == 0);
    Outcome::new(&report, valid && !lines.is_empty())
}

fn sum(file: PathBuf, lines: &[Line]) -> Report {
    let of = |picks: &dyn Fn(&Line) -> bool| Sum::of(lines.iter().filter(|line| picks(line)));
    let kinds: BTreeSet<String> = lines.iter().map(Line::kind).collect();
    let by_nemesis = kinds.into_iter().map(|kind| {
        let sum = of(&|line| line.kind() == kind);
        (kind, sum)
    });
    let valid = || lines.iter().filter(|line| line.valid);
    let (mut faults, mut skipped, mut invariants) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (kind, tally) in valid().flat_map(|line| &line.faults) {
        *faults.entry(kind.clone()).or_default() += tally.observed;
        *skipped.entry(kind.clone()).or_default() += tally.skipped;
    }
    let mut seen = BTreeMap::new();
    for (name, count) in valid().flat_map(|line| &line.seen) {
        *seen.entry(name.clone()).or_default() += count;
    }
    for (name, verdict) in valid().flat_map(|line| &line.invariants) {
        *invariants.entry(name.clone()).or_default() += u64::from(verdict.verdict == "true");
    }
    let mut points = BTreeMap::new();
    for (name, hits) in valid().flat_map(|line| &line.points) {
        *points.entry(name.clone()).or_default() += hits;
    }
    skipped.retain(|_, count| *count > 0);
    let bad = lines.iter().filter(|line| !line.valid);
    Report {
        file,
        commits: lines.iter().map(|line| line.commit.clone()).collect(),
        hold: of(&|line| line.in_doubt_policy == "hold"),
        resend: of(&|line| line.in_doubt_policy == "resend"),
        assume_sent: of(&|line| line.in_doubt_policy == "assume_sent"),
        by_nemesis: by_nemesis.collect(),
        faults,
        seen,
        skipped,
        invariants,
        points,
        not_valid: bad.map(|line| format!("seed {} of {} at {}", line.seed, line.nemesis, line.commit)).collect(),
    }
}

impl Sum {
    fn of<'a>(lines: impl Iterator<Item = &'a Line>) -> Sum {
        let (mut sum, mut failovers) = (Sum::default(), Vec::new());
        for line in lines {
            sum.runs += 1;
            // What a run that is not valid found is told by name; duplicates and losses are never hidden.
            sum.duplicates += line.duplicates;
            sum.duplicates_decided += line.duplicates_decided;
            sum.lost += line.lost.unwrap_or(0);
            sum.lost_unknown += u64::from(line.lost.is_none());
            if !line.valid {
                continue;
            }
            sum.valid += 1;
            sum.fault_seconds += line.fault_seconds;
            sum.mails += line.accepted;
            sum.reads += line.reads;
            sum.kills_of_leader += line.ends.leader;
            sum.kills_of_sender += line.ends.sender;
            sum.kills_of_other += line.ends.other;
            sum.kills_between_dot_and_250 += line.ends.between_dot_and_250;
            sum.power_cuts += line.ends.power_cuts;
            sum.in_doubt += line.in_doubt;
            sum.in_doubt_arrived += line.in_doubt_arrived;
            sum.resent += line.resent;
            sum.assumed += line.assumed;
            failovers.extend_from_slice(&line.failovers.each);
        }
        let kills = sum.kills_of_leader + sum.kills_of_sender + sum.kills_of_other;
        sum.in_doubt_per_kill = (kills > 0).then(|| (sum.in_doubt as f64 / kills as f64 * 100.0).round() / 100.0);
        let Failovers { leader_ms, email_ms, .. } = Failovers::of(failovers);
        (sum.leader_ms, sum.email_ms) = (leader_ms, email_ms);
        sum
    }
}

fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([
        "faults",
        "runs",
        "valid",
        "mails",
        "double",
        "lost",
        "kills: leader, sender, other",
        "dot to 250",
        "power cuts",
        "in doubt",
        "arrived",
        "a kill",
        "resent, assumed",
        "to a leader p50, p99, max ms",
        "to an email p50, p99, max ms",
    ]);
    let sums = report.by_nemesis.iter().map(|(name, sum)| (name.as_str(), sum));
    let policies = [
        ("all under hold", &report.hold),
        ("all under resend", &report.resend),
        ("all under assume_sent", &report.assume_sent),
    ];
    for (name, sum) in sums.chain(policies) {
        let ms = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.0}"));
        let three = |Times { p50, p99, max, .. }: &Times| format!("{}, {}, {}", ms(*p50), ms(*p99), ms(*max));
        table.add_row([
            name.to_owned(),
            sum.runs.to_string(),
            sum.valid.to_string(),
            sum.mails.to_string(),
            match sum.duplicates_decided {
                0 => sum.duplicates.to_string(),
                decided => format!("{}, {decided} by decision", sum.duplicates),
            },
            match sum.lost_unknown {
                0 => sum.lost.to_string(),
                unknown => format!("{}, unknown of {unknown}", sum.lost),
            },
            format!("{}, {}, {}", sum.kills_of_leader, sum.kills_of_sender, sum.kills_of_other),
            sum.kills_between_dot_and_250.to_string(),
            sum.power_cuts.to_string(),
            sum.in_doubt.to_string(),
            sum.in_doubt_arrived.to_string(),
            sum.in_doubt_per_kill.map_or("-".to_owned(), |each| each.to_string()),
            format!("{}, {}", sum.resent, sum.assumed),
            three(&sum.leader_ms),
            three(&sum.email_ms),
        ]);
    }
    let mut told = table.to_string();
    if let Some(fewest) = report.points.values().min() {
        let (points, deaths) = (report.points.len(), report.points.values().sum::<u64>());
        told.push_str(&format!("\n{deaths} deaths at {points} crash points, at least {fewest} at each"));
    }
    for bad in &report.not_valid {
        told.push_str(&format!("\nnot valid: {bad}"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A majority without a leader and without an email for so long.
    fn gap(leader_ms: f64, email_ms: Option<f64>) -> serde_json::Value {
        let at = |ms: f64| 1_000.0 + ms;
        serde_json::json!({
            "epoch": 7, "struck_ms": 900.0, "majority_ms": 1_000.0, "leader_ms": at(leader_ms), "claim_ms": null,
            "email_ms": email_ms.map(at),
        })
    }

    fn line(change: impl Fn(&mut serde_json::Value)) -> Line {
        let mut line = serde_json::json!({
            "seed": 7, "commit": "abc", "valid": true, "nodes": 3, "nemesis": "kill", "in_doubt_policy": "hold",
            "fault_seconds": 60, "accepted": 1_200, "duplicates": 0, "lost": 0, "in_doubt": 6, "in_doubt_arrived": 5,
            "faults": {"kill": {"installed": 4, "observed": 3, "skipped": 1, "indeterminate": 0, "inside_data": 2}},
            "ends": {"leader": 2, "sender": 1, "other": 1, "between_dot_and_250": 2, "power_cuts": 0, "past_gate": 6},
            "failovers": {"each": [gap(1.0, Some(5.0)), gap(3.0, None)]},
            "invariants": {"I1": {"verdict": "true"}}, "coverage": {"verdict": "true"},
        });
        change(&mut line);
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn runs_add_up_and_those_that_prove_nothing_are_named() {
        let bad = line(|line| {
            line["valid"] = false.into();
            line["seed"] = 8.into();
            line["lost"] = 1.into();
        });
        let other = line(|line| {
            line["failovers"]["each"] = serde_json::json!([gap(2.0, Some(9.0))]);
            (line["duplicates_decided"], line["reads"]) = (2.into(), 200.into());
            line["seen"] = serde_json::json!({"kill -9 of the leader": 3});
        });
        let five = line(|line| {
            (line["nodes"], line["workload"], line["in_doubt_policy"]) = (5.into(), "daily".into(), "resend".into());
            (line["links"], line["fault_seconds"]) = ("proxy".into(), 90.into());
        });
        assert_eq!(five.kind(), "kill, 5 nodes, daily, proxies, 90 s (resend)");
        let plain = line(|line| line["links"] = "hosts".into());
        assert_eq!((plain.kind(), line(|_| {}).kind()), ("kill (hold)".to_owned(), "kill (hold)".to_owned()));
        let report = sum(PathBuf::from("runs.jsonl"), &[line(|_| {}), other, bad]);
        let hold = &report.hold;
        assert_eq!((hold.runs, hold.valid, hold.mails, hold.lost), (3, 2, 2_400, 1), "a loss is never hidden");
        assert_eq!((hold.kills_of_leader, hold.kills_between_dot_and_250, hold.in_doubt), (4, 4, 12));
        assert_eq!(hold.lost_unknown, 0);
        assert_eq!((hold.duplicates, hold.duplicates_decided, hold.reads), (0, 2, 200), "by choice, and told apart");
        assert!(table(&report).contains("0, 2 by decision"));
        assert_eq!(hold.in_doubt_per_kill, Some(1.5));
        assert_eq!((hold.leader_ms.count, hold.leader_ms.p50, hold.leader_ms.max), (3, Some(2.0), Some(3.0)));
        assert_eq!((hold.email_ms.count, hold.email_ms.max), (2, Some(9.0)), "of one nothing came in time");
        assert_eq!(report.not_valid, ["seed 8 of kill at abc"]);
        assert_eq!((report.faults["kill"], report.skipped["kill"], report.invariants["I1"]), (6, 2, 2));
        assert_eq!(report.seen["kill -9 of the leader"], 3);
        assert_eq!((report.resend.runs, report.by_nemesis.len()), (0, 1));
        let died = |at: &str, hits: u64| line(move |line| line["points"] = serde_json::json!({at: hits}));
        let died =
            sum(PathBuf::from("runs.jsonl"), &[died("wal.purge", 3), died("admin.seal", 2), died("wal.purge", 4)]);
        assert!(table(&died).contains("9 deaths at 2 crash points, at least 2 at each"));
        let undrained = line(|line| (line["valid"], line["lost"]) = (false.into(), serde_json::Value::Null));
        assert_eq!(sum(PathBuf::from("runs.jsonl"), &[undrained]).hold.lost_unknown, 1, "nobody's loss is no loss");
        assert!(table(&report).contains("not valid: seed 8"));
    }
}

//! `runs`: sums up a file of runs, as `run --append` writes it.
//!
//! Each line is a run. An invalid run adds only its duplicates and losses, which are never hidden; what else it saw proves
//! nothing. The policies for emails in doubt are summed separately, since duplicates under `resend` are by choice. Lines of
//! older versions lack some fields, which count as 0.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use reveille_check::{Failover, Failovers, Times};
use reveille_harness::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Options of `runs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What `run --append` wrote: one JSON object a line
    pub file: PathBuf,
}

/// Sums over all runs, and their fields.
const OF_ALL: [(&str, &str); 3] =
    [("duplicates", "/duplicates"), ("duplicates_decided", "/duplicates_decided"), ("lost", "/lost")];
/// Sums over valid runs.
const OF_VALID: [(&str, &str); 12] = [
    ("fault_seconds", "/fault_seconds"),
    ("emails", "/accepted"),
    ("reads", "/reads"),
    ("kills_of_leader", "/ends/leader"),
    ("kills_of_sender", "/ends/sender"),
    ("kills_of_other", "/ends/other"),
    ("between_dot_and_250", "/ends/between_dot_and_250"),
    ("power_cuts", "/ends/power_cuts"),
    ("in_doubt", "/in_doubt"),
    ("in_doubt_arrived", "/in_doubt_arrived"),
    ("resent", "/resent"),
    ("assumed", "/assumed"),
];
/// Policies under which the product promises no duplicates.
const NO_DUPLICATES: [&str; 2] = ["hold", "assume_sent"];

/// The sums of some runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Sum {
    runs: u64,
    valid: u64,
    /// Runs that did not end, so that their losses are unknown.
    lost_unknown: u64,
    #[serde(flatten)]
    counts: BTreeMap<&'static str, u64>,
    /// From a majority to the next leader, and to its first email.
    leader_ms: Times,
    email_ms: Times,
}

#[derive(Debug, Serialize)]
struct Sums {
    file: PathBuf,
    commits: BTreeSet<String>,
    by_policy: BTreeMap<String, Sum>,
    /// By families of faults, and whatever differs from the default.
    by_nemesis: BTreeMap<String, Sum>,
    /// Effects of faults by kind and by name, and skipped faults by kind; of valid runs.
    faults: BTreeMap<String, u64>,
    seen: BTreeMap<String, u64>,
    skipped: BTreeMap<String, u64>,
    /// In how many valid runs each invariant held.
    invariants: BTreeMap<String, u64>,
    /// Deaths at each crash point, of valid runs.
    points: BTreeMap<String, u64>,
    not_valid: Vec<String>,
}

/// Reads the file. The result is valid if every run is, and no email was double or lost under a policy that promises it.
pub fn run(args: &Args) -> Result<Report> {
    let text = std::fs::read_to_string(&args.file).with_context(|| args.file.display().to_string())?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines = lines.map(|(number, line)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", args.file.display(), number + 1))
    });
    let lines: Vec<Value> = lines.collect::<Result<_>>()?;
    let sums = sum(args.file.clone(), &lines)?;
    eprintln!("{}", table(&sums));
    let promised = NO_DUPLICATES.iter().filter_map(|policy| sums.by_policy.get(*policy));
    let kept = |sum: &Sum| ["duplicates", "lost"].iter().all(|name| sum.counts.get(name).copied().unwrap_or(0) == 0);
    let valid = sums.not_valid.is_empty() && promised.into_iter().all(kept);
    Report::new(&sums, valid && !lines.is_empty())
}

fn text<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or_default()
}

fn is_valid(line: &Value) -> bool {
    line["valid"] == true
}

/// Families of faults, and the number of nodes, the workload and the length where they are not the default.
fn kind(line: &Value) -> String {
    let nodes = line["nodes"].as_u64().filter(|nodes| *nodes != 3).map(|nodes| format!("{nodes} nodes"));
    let workload = line["workload"].as_str().filter(|workload| *workload != "once").map(str::to_owned);
    let links = line["links"].as_str().filter(|links| *links == "proxy").map(|_| "proxies".to_owned());
    let seconds = line["fault_seconds"].as_u64().filter(|seconds| *seconds != 60).map(|seconds| format!("{seconds} s"));
    let parts: Vec<String> =
        [Some(text(line, "nemesis").to_owned()), nodes, workload, links, seconds].into_iter().flatten().collect();
    format!("{} ({})", parts.join(", "), text(line, "in_doubt_policy"))
}

fn sum(file: PathBuf, lines: &[Value]) -> Result<Sums> {
    let (mut by_policy, mut by_nemesis) = (BTreeMap::new(), BTreeMap::new());
    for (sums, key) in [(&mut by_policy, policy as fn(&Value) -> String), (&mut by_nemesis, kind)] {
        for key_of in lines.iter().map(key).collect::<BTreeSet<_>>() {
            let own = lines.iter().filter(|line| key(line) == key_of);
            sums.insert(key_of.clone(), Sum::of(own)?);
        }
    }
    let add = |field: &str, count: &dyn Fn(&Value) -> u64| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let valid = lines.iter().filter(|line| is_valid(line));
        for (name, value) in valid.filter_map(|line| line[field].as_object()).flatten() {
            *counts.entry(name.clone()).or_default() += count(value);
        }
        counts
    };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut skipped = add("faults", &|fault| number(&fault["skipped"]));
    skipped.retain(|_, count| *count > 0);
    let not_valid = lines
        .iter()
        .filter(|line| !is_valid(line))
        .map(|line| format!("seed {} of {} at {}", line["seed"], text(line, "nemesis"), text(line, "commit")));
    Ok(Sums {
        file,
        commits: lines.iter().map(|line| text(line, "commit").to_owned()).collect(),
        by_policy,
        by_nemesis,
        faults: add("faults", &|fault| number(&fault["observed"])),
        seen: add("seen", &number),
        skipped,
        invariants: add("invariants", &|verdict| u64::from(verdict["verdict"] == "true")),
        points: add("points", &number),
        not_valid: not_valid.collect(),
    })
}

fn policy(line: &Value) -> String {
    text(line, "in_doubt_policy").to_owned()
}

impl Sum {
    fn of<'a>(lines: impl Iterator<Item = &'a Value>) -> Result<Sum> {
        let (mut sum, mut failovers) = (Sum::default(), Vec::new());
        for line in lines {
            sum.runs += 1;
            sum.valid += u64::from(is_valid(line));
            sum.lost_unknown += u64::from(line["lost"].is_null());
            let of_valid = OF_VALID.iter().filter(|_| is_valid(line));
            for (name, pointer) in OF_ALL.iter().chain(of_valid) {
                *sum.counts.entry(*name).or_default() += line.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
            }
            if let (true, Some(each)) = (is_valid(line), line.pointer("/failovers/each")) {
                failovers.extend(Vec::<Failover>::deserialize(each).context("fail-overs")?);
            }
        }
        let Failovers { leader_ms, email_ms, .. } = Failovers::of(failovers);
        (sum.leader_ms, sum.email_ms) = (leader_ms, email_ms);
        Ok(sum)
    }
}

fn table(sums: &Sums) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let names = || OF_ALL.iter().chain(&OF_VALID).map(|(name, _)| *name);
    let times = ["to leader p50, p99, max ms", "to email p50, p99, max ms"];
    table.set_header(["faults", "runs", "valid", "lost_unknown"].into_iter().chain(names()).chain(times));
    let all = sums.by_policy.iter().map(|(policy, sum)| (format!("all under {policy}"), sum));
    for (name, sum) in sums.by_nemesis.iter().map(|(name, sum)| (name.clone(), sum)).chain(all) {
        let ms = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.0}"));
        let three = |Times { p50, p99, max, .. }: &Times| format!("{}, {}, {}", ms(*p50), ms(*p99), ms(*max));
        let counts = [sum.runs, sum.valid, sum.lost_unknown].into_iter();
        let counts = counts.chain(names().map(|name| sum.counts.get(name).copied().unwrap_or(0)));
        let counts = counts.map(|count| count.to_string());
        table.add_row([name].into_iter().chain(counts).chain([three(&sum.leader_ms), three(&sum.email_ms)]));
    }
    let mut lines = vec![table.to_string()];
    if let Some(fewest) = sums.points.values().min() {
        let (points, deaths) = (sums.points.len(), sums.points.values().sum::<u64>());
        lines.push(format!("{deaths} deaths at {points} crash points, at least {fewest} at each"));
    }
    lines.extend(sums.not_valid.iter().map(|run| format!("not valid: {run}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A majority without a leader and without an email for so long.
    fn gap(leader_ms: f64, email_ms: Option<f64>) -> Value {
        let at = |ms: f64| 1_000.0 + ms;
        serde_json::json!({
            "epoch": 7, "struck_ms": 900.0, "majority_ms": 1_000.0, "leader_ms": at(leader_ms), "claim_ms": null,
            "email_ms": email_ms.map(at),
        })
    }

    fn line(change: impl Fn(&mut Value)) -> Value {
        let mut line = serde_json::json!({
            "seed": 7, "commit": "abc", "valid": true, "nodes": 3, "nemesis": "kill", "in_doubt_policy": "hold",
            "fault_seconds": 60, "accepted": 1_200, "duplicates": 0, "lost": 0, "in_doubt": 6, "in_doubt_arrived": 5,
            "faults": {"kill": {"installed": 4, "observed": 3, "skipped": 1, "indeterminate": 0, "inside_data": 2}},
            "ends": {"leader": 2, "sender": 1, "other": 1, "between_dot_and_250": 2, "power_cuts": 0, "past_gate": 6},
            "failovers": {"each": [gap(1.0, Some(5.0)), gap(3.0, None)]},
            "invariants": {"I1": {"verdict": "true"}}, "coverage": {"verdict": "true"},
        });
        change(&mut line);
        line
    }

    fn sum_of(lines: &[Value]) -> Sums {
        sum(PathBuf::from("runs.jsonl"), lines).unwrap()
    }

    #[test]
    fn invalid_run_adds_only_duplicates_and_losses() {
        let bad = line(|line| {
            (line["valid"], line["seed"], line["lost"]) = (false.into(), 8.into(), 1.into());
        });
        let other = line(|line| {
            line["failovers"]["each"] = serde_json::json!([gap(2.0, Some(9.0))]);
            (line["duplicates_decided"], line["reads"]) = (2.into(), 200.into());
            line["seen"] = serde_json::json!({"kill -9 of the leader": 3});
        });
        let sums = sum_of(&[line(|_| {}), other, bad]);
        let hold = &sums.by_policy["hold"];
        let count = |name| hold.counts[name];
        assert_eq!((hold.runs, hold.valid, count("emails"), count("lost")), (3, 2, 2_400, 1), "a loss is never hidden");
        assert_eq!((count("kills_of_leader"), count("between_dot_and_250"), count("in_doubt")), (4, 4, 12));
        assert_eq!((count("duplicates"), count("duplicates_decided"), count("reads")), (0, 2, 200));
        assert_eq!((hold.leader_ms.count, hold.leader_ms.p50, hold.leader_ms.max), (3, Some(2.0), Some(3.0)));
        assert_eq!((hold.email_ms.count, hold.email_ms.max), (2, Some(9.0)), "one fail-over had no email in time");
        assert_eq!(sums.not_valid, ["seed 8 of kill at abc"]);
        assert_eq!((sums.faults["kill"], sums.skipped["kill"], sums.invariants["I1"]), (6, 2, 2));
        assert_eq!((sums.seen["kill -9 of the leader"], sums.by_nemesis.len()), (3, 1));
        assert!(table(&sums).contains("not valid: seed 8"));
    }

    #[test]
    fn kind_names_what_differs_from_default() {
        let five = line(|line| {
            (line["nodes"], line["workload"], line["in_doubt_policy"]) = (5.into(), "daily".into(), "resend".into());
            (line["links"], line["fault_seconds"]) = ("proxy".into(), 90.into());
        });
        assert_eq!(kind(&five), "kill, 5 nodes, daily, proxies, 90 s (resend)");
        assert_eq!(kind(&line(|line| line["links"] = "hosts".into())), "kill (hold)");
    }

    #[test]
    fn deaths_at_crash_points_are_summed_and_unknown_loss_is_counted() {
        let died = |at: &str, hits: u64| line(move |line| line["points"] = serde_json::json!({at: hits}));
        let sums = sum_of(&[died("wal.purge", 3), died("admin.seal", 2), died("wal.purge", 4)]);
        assert!(table(&sums).contains("9 deaths at 2 crash points, at least 2 at each"));
        let undrained = line(|line| (line["valid"], line["lost"]) = (false.into(), Value::Null));
        assert_eq!(sum_of(&[undrained]).by_policy["hold"].lost_unknown, 1);
    }
}

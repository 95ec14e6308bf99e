//! What seeds come to together: the last line of `simulate`, which `--append` writes down, and the sum of such lines.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Args, Job, Line};
use crate::run::{append, commit};
use reveille_harness::Report;

/// One call of `simulate`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Every seed came to its end, and nothing was wrong.
    pub valid: bool,
    /// The commit of the tree in which it was called.
    pub commit: String,
    /// The seeds that were asked for: A..B, without B; null: the kept ones alone.
    pub range: Option<String>,
    /// Virtual minutes of each; kept seeds have their own.
    pub minutes: u64,
    /// Heartbeat of all seeds; null: every third seed has 50 ms, the others 250.
    pub heartbeat_ms: Option<u64>,
    /// How many came to their end.
    pub seeds: u64,
    pub failed: Vec<u64>,
    pub virtual_hours: f64,
    /// Real time, from the first one's beginning to the last one's end.
    pub seconds: f64,
    /// Processor time of all seeds.
    pub cpu_seconds: f64,
    /// Virtual time by the real time of one process.
    pub times_real: f64,
    /// Virtual time by processor time.
    pub times_cpu: f64,
    /// Hash over the hashes of all seeds, in their order.
    pub hash: String,
    pub figures: BTreeMap<String, u64>,
    pub faults: BTreeMap<String, u64>,
}

impl Summary {
    /// Of these, in their order, and of those that gave no line. `took`: real time of all their processes.
    pub fn of(args: &Args, lines: Vec<(Job, Line)>, failed: Vec<u64>, took: Duration) -> Summary {
        let virtual_seconds: f64 = lines.iter().map(|(_, line)| line.virtual_seconds).sum();
        let cpu_seconds: f64 = lines.iter().map(|(_, line)| line.cpu_seconds).sum();
        let hashes: String = lines.iter().map(|(_, line)| line.hash.as_str()).collect();
        let mut summary = Summary {
            valid: failed.is_empty(),
            commit: commit(),
            range: args.seeds.map(|seeds| seeds.to_string()),
            minutes: args.minutes,
            heartbeat_ms: args.heartbeat_ms,
            seeds: lines.len() as u64,
            failed,
            virtual_hours: virtual_seconds / 3_600.0,
            cpu_seconds,
            times_real: virtual_seconds / took.as_secs_f64().max(0.001),
            times_cpu: virtual_seconds / cpu_seconds.max(0.001),
            hash: reveille_simulation::short_hash(&hashes),
            ..Summary::default()
        };
        for (_, line) in lines {
            add(&mut summary.figures, line.figures);
            add(&mut summary.faults, line.faults);
        }
        summary
    }

    /// As the last line, and at the end of a file where one is named.
    pub fn report(&self, file: Option<&Path>) -> Result<Report> {
        let report = Report::new(self, self.valid)?;
        if let Some(file) = file {
            append(file, &report.line)?;
        }
        Ok(report)
    }
}

fn add(to: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    more.into_iter().for_each(|(name, count)| *to.entry(name).or_default() += count);
}

/// What a file of such lines comes to.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Sum {
    calls: u64,
    seeds: u64,
    failed: Vec<u64>,
    commits: Vec<String>,
    virtual_hours: f64,
    cpu_seconds: f64,
    times_cpu: f64,
    figures: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
}

/// Sums up what `--append` wrote.
pub fn sum(file: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let sum = sum_of(&text).with_context(|| format!("{}", file.display()))?;
    Report::new(&sum, sum.failed.is_empty())
}

fn sum_of(text: &str) -> Result<Sum> {
    let mut sum = Sum::default();
    for (number, line) in text.lines().enumerate() {
        let one: Summary = serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?;
        sum.calls += 1;
        sum.seeds += one.seeds;
        sum.failed.extend(one.failed);
        sum.virtual_hours += one.virtual_hours;
        sum.cpu_seconds += one.cpu_seconds;
        if !sum.commits.contains(&one.commit) {
            sum.commits.push(one.commit);
        }
        add(&mut sum.figures, one.figures);
        add(&mut sum.faults, one.faults);
    }
    sum.times_cpu = sum.virtual_hours * 3_600.0 / sum.cpu_seconds.max(0.001);
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_and_line_that_is_none_is_named() {
        let line = |failed: Vec<u64>, hours, deaths| {
            let figures = BTreeMap::from([("deaths".to_owned(), deaths)]);
            let (seeds, commit, cpu_seconds) = (2, "abc".to_owned(), 8.0);
            let summary =
                Summary { seeds, commit, failed, virtual_hours: hours, cpu_seconds, figures, ..Summary::default() };
            serde_json::to_string(&summary).expect("a line")
        };
        let text = format!("{}\n{}\n", line(vec![], 0.5, 3), line(vec![7], 0.25, 4));
        let sum = sum_of(&text).expect("a sum");
        assert_eq!((sum.calls, sum.seeds, sum.failed), (2, 4, vec![7]));
        assert_eq!((sum.virtual_hours, sum.times_cpu), (0.75, 168.75));
        assert_eq!((sum.figures["deaths"], sum.commits), (7, vec!["abc".to_owned()]));
        assert!(sum_of(&format!("{text}x")).is_err_and(|error| error.to_string().contains("line 3")));
    }
}

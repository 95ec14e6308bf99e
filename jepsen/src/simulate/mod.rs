//! `reveille-jepsen simulate`: seeds of the deterministic simulation, each in a process of its own.
//!
//! Random numbers that a thread or a process draws once, at its first hash map or runtime, are part of a seed. So no
//! process runs two seeds. The command starts itself again for each seed, as many at a time as there are processors,
//! and reads one line of JSON from each. It stops at the first seed that fails, with the last lines of its trace and
//! the command that repeats it. With `--append` it continues, to count the seeds that fail.

mod injected_bugs;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use reveille_harness::Report;
use reveille_harness::measure::cpu_seconds;
use reveille_simulation::injected_bugs::VARIABLE;
use reveille_simulation::{Options, SeedReport, run};
use serde_json::json;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::run::{commit, report};

/// Seeds that ever failed, which are replayed forever. Each line has a seed, its minutes, the commit on which it
/// failed, and the reason.
const KEPT: &str = include_str!("../../simulation/seeds.txt");
/// Number of lines of a failing trace that are shown. `--trace` writes all lines.
const LINES_SHOWN: usize = 60;
/// Real time after which a seed counts as hanging. A minute of virtual time takes a second on a slow machine.
const HANGS_AFTER: Duration = Duration::from_secs(600);

/// What is simulated.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Seeds, such as 0..200 (without 200), or one
    #[arg(long, value_name = "A..B", required_unless_present = "kept", value_parser = seeds)]
    pub seeds: Option<Range<u64>>,
    /// Also replays the seeds that ever failed (jepsen/simulation/seeds.txt), each with its minutes
    #[arg(long)]
    pub kept: bool,
    /// Injects a bug, or all one after the other, and looks for the first seed that finds it: see
    /// docs/reference/simulation.md
    #[arg(long, value_name = "NAME", conflicts_with_all = ["kept", "trace", "history"])]
    pub inject: Option<injected_bugs::Bugs>,
    /// Virtual minutes of each seed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..=1_440))]
    pub minutes: u64,
    /// File for the whole trace; for one seed
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// File for the history, which `check` judges again; for one seed
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Does not stop at a seed that fails, and appends the last line to this file (docs/reliability/simulations.jsonl)
    #[arg(long, value_name = "FILE", conflicts_with = "inject")]
    pub append: Option<PathBuf>,
    /// Runs the seed in this very process, with its files in this folder
    #[arg(long, hide = true)]
    pub folder: Option<PathBuf>,
}

/// Returns a range of seeds without its end, or one seed.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no seed; give A..B, or a number"));
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (number(from)?, number(to)?),
        None => (number(text)?, number(text)?.saturating_add(1)),
    };
    if from < to { Ok(from..to) } else { Err(format!("'{text}' holds no seed")) }
}

/// Runs one seed in this process, which must not have drawn anything random before.
pub fn run_here(args: &Args, folder: &Path) -> Result<Report> {
    let job = args.jobs_of_seeds().next().context("a seed")?;
    let options = Options {
        seed: job.seed,
        minutes: args.minutes,
        folder: folder.to_owned(),
        history: args.history.clone(),
        command: repeat(job),
        commit: if args.history.is_some() { commit() } else { String::new() },
    };
    let file = args.trace.as_ref().map(|path| -> Result<Box<dyn std::io::Write + Send>> {
        let file = std::fs::File::create(path).with_context(|| format!("{}", path.display()))?;
        Ok(Box::new(std::io::BufWriter::new(file)))
    });
    let file = file.transpose()?;
    // A thread of its own, because this thread has drawn random numbers already.
    let seed = std::thread::Builder::new().name("seed".into()).spawn(|| run(options, file))?;
    let mut report = seed.join().map_err(|_| anyhow::anyhow!("the simulation panicked"))??;
    let valid = report.violations.is_empty();
    if !valid {
        let skipped = report.lines.len().saturating_sub(LINES_SHOWN);
        report.lines.iter().skip(skipped).for_each(|line| eprintln!("{line}"));
    }
    report.cpu_seconds = cpu_seconds(std::process::id())?;
    Report::new(&report, valid)
}

/// Returns the command that repeats a seed, with its trace and its history written to files.
fn repeat(Job { seed, minutes }: Job) -> String {
    format!(
        "reveille-jepsen simulate --seeds {seed} --minutes {minutes} --trace seed-{seed}.trace --history seed-{seed}.jsonl"
    )
}

/// One seed, and its virtual minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    seed: u64,
    minutes: u64,
}

/// Runs all seeds, each in a process of its own.
pub async fn run_all(args: &Args) -> Result<Report> {
    if let Some(bugs) = &args.inject {
        return injected_bugs::run(args, bugs).await;
    }
    let mut jobs = if args.kept { kept_seeds()? } else { Vec::new() };
    jobs.extend(args.jobs_of_seeds());
    if (args.trace.is_some() || args.history.is_some()) && jobs.len() != 1 {
        bail!("--trace and --history write down one seed: give --seeds N");
    }
    let begun = Instant::now();
    let (mut reports, mut failed) = (Vec::new(), Vec::new());
    let mut seeds = RunningSeeds::new(args, jobs);
    while let Some((job, report)) = seeds.next().await? {
        match report {
            Ok(report) => {
                if !report.violations.is_empty() {
                    eprintln!("seed {} fails:", job.seed);
                    report.violations.iter().for_each(|violation| eprintln!("  {violation}"));
                    failed.push(job);
                }
                reports.push((job, report));
            }
            Err(error) => {
                eprintln!("seed {} gave no verdict: {error:#}", job.seed);
                failed.push(job);
            }
        }
        if failed.last() == Some(&job) {
            eprintln!("repeat it with: {}", repeat(job));
            if args.append.is_none() {
                seeds.stop();
            }
        }
    }
    reports.sort_by_key(|(job, _)| *job);
    failed.sort_unstable();
    summary(args, reports, failed, begun.elapsed())
}

/// Returns the last line, which `--append` also writes to a file.
fn summary(args: &Args, reports: Vec<(Job, SeedReport)>, failed: Vec<Job>, took: Duration) -> Result<Report> {
    let virtual_seconds: f64 = reports.iter().map(|(_, report)| report.virtual_seconds).sum();
    let cpu_seconds: f64 = reports.iter().map(|(_, report)| report.cpu_seconds).sum();
    let hashes: String = reports.iter().map(|(_, report)| report.hash.as_str()).collect();
    let seeds = reports.len();
    let [mut figures, mut faults] = [const { BTreeMap::<String, u64>::new() }; 2];
    for (_, report) in reports {
        for (sums, counts) in [(&mut figures, report.figures), (&mut faults, report.faults)] {
            counts.into_iter().for_each(|(name, count)| *sums.entry(name).or_default() += count);
        }
    }
    let line = json!({
        "valid": failed.is_empty(),
        "commit": commit(),
        "range": args.seeds.as_ref().map(|seeds| format!("{seeds:?}")),
        "minutes": args.minutes,
        "seeds": seeds,
        "failed": failed.iter().map(|job| job.seed).collect::<Vec<u64>>(),
        "virtual_hours": virtual_seconds / 3_600.0,
        "seconds": took.as_secs_f64(),
        "cpu_seconds": cpu_seconds,
        "times_cpu": virtual_seconds / cpu_seconds.max(0.001),
        // Hash of the hashes of all seeds, in their order.
        "hash": reveille_simulation::short_hash(&hashes),
        "figures": figures,
        "faults": faults,
    });
    report(&line, failed.is_empty(), args.append.as_deref())
}

/// Returns the seeds that ever failed.
fn kept_seeds() -> Result<Vec<Job>> {
    let lines = KEPT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| kept_seed(line).with_context(|| format!("the kept seed '{line}'"))).collect()
}

fn kept_seed(line: &str) -> Option<Job> {
    let mut words = line.split_whitespace();
    let mut number = || words.next()?.parse::<u64>().ok();
    let job = Job { seed: number()?, minutes: number()? };
    // A commit and a reason, for the reader.
    (words.count() >= 2).then_some(job)
}

impl Args {
    fn jobs_of_seeds(&self) -> impl Iterator<Item = Job> + use<> {
        let minutes = self.minutes;
        self.seeds.clone().unwrap_or(0..0).map(move |seed| Job { seed, minutes })
    }
}

/// Seeds that run, as many at the same time as there are processors.
struct RunningSeeds<'a> {
    args: &'a Args,
    /// The bug that is injected.
    bug: Option<String>,
    waiting: std::vec::IntoIter<Job>,
    running: JoinSet<(Job, Result<SeedReport>)>,
}

impl<'a> RunningSeeds<'a> {
    fn new(args: &'a Args, jobs: Vec<Job>) -> RunningSeeds<'a> {
        RunningSeeds { args, bug: None, waiting: jobs.into_iter(), running: JoinSet::new() }
    }

    /// Starts no further seed.
    fn stop(&mut self) {
        self.waiting = Vec::new().into_iter();
    }

    /// Returns the next seed that has ended. `None`: all seeds have ended.
    async fn next(&mut self) -> Result<Option<(Job, Result<SeedReport>)>> {
        while self.running.len() < std::thread::available_parallelism().map_or(1, usize::from) {
            let Some(job) = self.waiting.next() else { break };
            let (args, bug) = (self.args.clone(), self.bug.clone());
            self.running.spawn(async move { (job, child(&args, job, bug.as_deref()).await) });
        }
        self.running.join_next().await.transpose().context("a seed")
    }
}

/// Runs one seed in a process and reads its line.
async fn child(args: &Args, job: Job, bug: Option<&str>) -> Result<SeedReport> {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).context("a folder")?;
    let mut command = Command::new(std::env::current_exe().context("this binary")?);
    command.args(["simulate", "--seeds", &job.seed.to_string(), "--folder"]).arg(folder.path());
    command.args(["--minutes", &job.minutes.to_string()]);
    for (name, file) in [("--trace", &args.trace), ("--history", &args.history)] {
        if let Some(file) = file {
            command.arg(name).arg(file);
        }
    }
    // A seed whose invariants must hold runs without a bug, whatever the environment says.
    command.env_remove(VARIABLE);
    command.envs(bug.map(|bug| (VARIABLE, bug)));
    // The output of a seed with a bug is expected.
    command.stderr(if bug.is_some() { Stdio::null() } else { Stdio::inherit() });
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(HANGS_AFTER, command.spawn()?.wait_with_output());
    let output = output.await.with_context(|| format!("it hangs for {HANGS_AFTER:?}"))??;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().with_context(|| format!("it says nothing: {}", output.status))?;
    serde_json::from_str(last).with_context(|| format!("its line: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_of_seeds_is_read_and_one_seed_is_one() {
        assert_eq!(seeds("0..200"), Ok(0..200));
        assert_eq!(seeds("7"), Ok(7..8));
        for nonsense in ["", "a..b", "7..7", "9..3", "-1"] {
            assert!(seeds(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn every_kept_seed_can_be_read() {
        let kept = kept_seeds().expect("seeds");
        assert!(kept.iter().all(|job| job.minutes >= 5), "{kept:?}");
        assert_eq!(kept_seed("7 20 abc123 it lost one"), Some(Job { seed: 7, minutes: 20 }));
        assert_eq!(kept_seed("7 20"), None, "the reason is missing");
    }
}

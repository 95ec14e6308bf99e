//! `reveille-jepsen simulate`: seeds of the deterministic simulation, each in a process of its own.
//!
//! What a thread or a process draws once, at its first hash map or runtime, is part of a seed; so no process runs two.
//! The command starts itself again for each seed, as many at a time as there are processors, and reads one line of JSON
//! from each. It stops at the first seed that fails, with the last lines of its trace and the command that repeats it;
//! but with `--append` it goes on, to count how many of all seeds fail.

mod injected_bugs;
mod kept;
mod record;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use reveille_harness::Report;
use reveille_simulation::injected_bugs::VARIABLE;
use reveille_simulation::{Options, Verdict, run};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::task::JoinSet;

use self::record::Summary;
use crate::run::commit;

/// The heartbeat of the product, in milliseconds (`raft/src/options.rs`). Every third seed has it: several leaders may
/// follow one another within one lease, as in production.
const SHIPPED_HEARTBEAT_MS: u64 = 50;
/// The heartbeat of all other seeds, in milliseconds. A fifth of the messages: these seeds run about twice as fast.
const SLOW_HEARTBEAT_MS: u64 = 250;
/// Lines of a failing trace that are shown; `--trace` writes all.
const LINES_SHOWN: usize = 60;
/// A seed that takes so long, in real time, hangs: a minute of virtual time takes a second on a slow machine.
const HANGS_AFTER: Duration = Duration::from_secs(600);

/// What is simulated.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Seeds, such as 0..200 (without 200), or one
    #[arg(long, value_name = "A..B", required_unless_present_any = ["kept", "sum"])]
    pub seeds: Option<Seeds>,
    /// Also replays the seeds that ever failed (jepsen/simulation/seeds.txt), each with its minutes and heartbeats
    #[arg(long)]
    pub kept: bool,
    /// Injects a bug, or all one after the other, and looks for the first seed that finds it: see
    /// docs/reference/simulation.md
    #[arg(long, value_name = "NAME", conflicts_with_all = ["kept", "trace", "history"])]
    pub inject: Option<injected_bugs::Bugs>,
    /// Virtual minutes of each seed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=1_440))]
    pub minutes: u64,
    /// Heartbeat interval in milliseconds; elections take 6 to 12 times as long [default: 50 for seeds that 3 divides,
    /// as the product has it; 250 for the others]
    #[arg(long, value_parser = clap::value_parser!(u64).range(20..=1_000))]
    pub heartbeat_ms: Option<u64>,
    /// Seeds at the same time; as many as there are processors where nothing is said
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub jobs: Option<u64>,
    /// Breaks nothing
    #[arg(long)]
    pub calm: bool,
    /// Writes the whole trace there; for one seed
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Writes the history there, which `check` judges again; for one seed
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Does not stop at a seed that fails, and appends the last line to this file (docs/reliability/simulations.jsonl)
    #[arg(long, value_name = "FILE", conflicts_with = "inject")]
    pub append: Option<PathBuf>,
    /// Runs nothing: sums up what --append wrote
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub sum: Option<PathBuf>,
    /// Runs the seed in this very process, with its files in this folder
    #[arg(long, hide = true)]
    pub folder: Option<PathBuf>,
}

/// A range of seeds without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    from: u64,
    to: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is no seed; give A..B, or a number"));
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(text)?, number(text)?.saturating_add(1)),
        };
        if from < to { Ok(Seeds { from, to }) } else { Err(format!("'{text}' holds no seed")) }
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.from, self.to)
    }
}

/// What one seed says, on one line.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    seed: u64,
    hash: String,
    events: u64,
    virtual_seconds: f64,
    /// Processor time of the process.
    cpu_seconds: f64,
    violations: Vec<String>,
    figures: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
}

/// One seed in this process, which does nothing else: call it before anything was drawn.
pub fn alone(args: &Args, folder: &Path) -> ExitCode {
    match simulate(args, folder) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(args: &Args, folder: &Path) -> Result<bool> {
    let job = args.jobs_of_seeds().next().context("a seed")?;
    let options = Options {
        seed: job.seed,
        minutes: args.minutes,
        heartbeat_ms: job.heartbeat_ms,
        faults: !args.calm,
        folder: folder.to_owned(),
        history: args.history.clone(),
        command: repeat(args, job),
        commit: if args.history.is_some() { commit() } else { String::new() },
    };
    let file = args.trace.as_ref().map(|path| -> Result<Box<dyn std::io::Write + Send>> {
        let file = std::fs::File::create(path).with_context(|| format!("{}", path.display()))?;
        Ok(Box::new(std::io::BufWriter::new(file)))
    });
    // The thread of a process that has done something already has drawn something already.
    let report = std::thread::scope(|scope| {
        let file = file.transpose()?;
        let seed = std::thread::Builder::new().name("seed".into()).spawn_scoped(scope, || run(options, file))?;
        seed.join().map_err(|_| anyhow::anyhow!("the simulation panicked"))?
    })?;
    let (verdict, mut violations) = match report.verdict {
        Ok(verdict) => (verdict.clone(), verdict.violations),
        Err(error) => (Verdict::default(), vec![format!("the run did not come to its end: {error:#}")]),
    };
    violations.dedup();
    let valid = violations.is_empty();
    if !valid {
        let skipped = report.lines.len().saturating_sub(LINES_SHOWN);
        report.lines.iter().skip(skipped).for_each(|line| eprintln!("{line}"));
    }
    let faults = verdict.faults.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let line = Line {
        seed: report.seed,
        hash: report.hash,
        events: report.events,
        virtual_seconds: report.passed.as_secs_f64(),
        cpu_seconds: cpu_seconds(),
        violations,
        figures: verdict.figures.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect(),
        faults,
    };
    println!("{}", serde_json::to_string(&line).context("the report")?);
    Ok(valid)
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// The heartbeat interval of a seed, where the command line names none. Milliseconds.
fn heartbeat_of(seed: u64) -> u64 {
    if seed.is_multiple_of(3) { SHIPPED_HEARTBEAT_MS } else { SLOW_HEARTBEAT_MS }
}

/// The command that does the same again, with everything written down.
fn repeat(args: &Args, Job { seed, minutes, heartbeat_ms }: Job) -> String {
    let mut command = format!("reveille-jepsen simulate --seeds {seed} --minutes {minutes}");
    if heartbeat_ms != heartbeat_of(seed) {
        command += &format!(" --heartbeat-ms {heartbeat_ms}");
    }
    if args.calm {
        command += " --calm";
    }
    command + &format!(" --trace seed-{seed}.trace --history seed-{seed}.jsonl")
}

/// One seed and how it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    seed: u64,
    minutes: u64,
    heartbeat_ms: u64,
}

/// All seeds, each in a process of its own.
pub async fn run_all(args: &Args) -> Result<Report> {
    if let Some(file) = &args.sum {
        return record::sum(file);
    }
    if let Some(bugs) = &args.inject {
        return injected_bugs::run(args, bugs).await;
    }
    let mut jobs: Vec<Job> = Vec::new();
    if args.kept {
        jobs.extend(kept::all()?);
    }
    jobs.extend(args.jobs_of_seeds());
    if (args.trace.is_some() || args.history.is_some()) && jobs.len() != 1 {
        bail!("--trace and --history write down one seed: give --seeds N");
    }
    let begun = Instant::now();
    let (mut lines, mut failed, mut took_all) = (Vec::new(), Vec::new(), Duration::ZERO);
    let mut several = Several::new(args, jobs);
    while let Some((job, line, took)) = several.next().await? {
        took_all += took;
        match line {
            Ok(line) => {
                if !line.violations.is_empty() {
                    eprintln!("seed {} fails:", job.seed);
                    line.violations.iter().for_each(|violation| eprintln!("  {violation}"));
                    failed.push(job);
                }
                lines.push((job, line));
            }
            Err(error) => {
                eprintln!("seed {} gave no verdict: {error:#}", job.seed);
                failed.push(job);
            }
        }
        if failed.last() == Some(&job) {
            eprintln!("repeat it with: {}", repeat(args, job));
            if args.append.is_none() {
                several.stop();
            }
        }
        if lines.len().is_multiple_of(20) {
            eprintln!("{} seeds, {:.2} a second", lines.len(), lines.len() as f64 / begun.elapsed().as_secs_f64());
        }
    }
    lines.sort_by_key(|(job, _)| (job.seed, job.minutes, job.heartbeat_ms));
    failed.sort_by_key(|job| job.seed);
    let mut summary = Summary::of(args, lines, failed.iter().map(|job| job.seed).collect(), took_all);
    summary.seconds = begun.elapsed().as_secs_f64();
    summary.report(args.append.as_deref())
}

impl Args {
    fn jobs_of_seeds(&self) -> impl Iterator<Item = Job> + use<> {
        let (minutes, heartbeat_ms) = (self.minutes, self.heartbeat_ms);
        let seeds = self.seeds.map_or(0..0, |seeds| seeds.from..seeds.to);
        seeds.map(move |seed| Job { seed, minutes, heartbeat_ms: heartbeat_ms.unwrap_or(heartbeat_of(seed)) })
    }

    fn at_a_time(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(processors, |jobs| jobs as usize)
    }
}

/// Jobs that are done some at the same time.
struct Several<'a> {
    args: &'a Args,
    /// The bug that they have.
    bug: Option<String>,
    waiting: std::vec::IntoIter<Job>,
    running: JoinSet<(Job, Duration, Result<Line>)>,
}

impl<'a> Several<'a> {
    fn new(args: &'a Args, jobs: Vec<Job>) -> Several<'a> {
        Several { args, bug: None, waiting: jobs.into_iter(), running: JoinSet::new() }
    }

    /// Begins no further one.
    fn stop(&mut self) {
        self.waiting = Vec::new().into_iter();
    }

    /// The next one that is done, and how long it took; none when all are.
    async fn next(&mut self) -> Result<Option<(Job, Result<Line>, Duration)>> {
        while self.running.len() < self.args.at_a_time() {
            let Some(job) = self.waiting.next() else { break };
            let (args, bug) = (self.args.clone(), self.bug.clone());
            self.running.spawn(async move {
                let started = Instant::now();
                let line = child(&args, job, bug.as_deref()).await;
                (job, started.elapsed(), line)
            });
        }
        let Some(ended) = self.running.join_next().await else { return Ok(None) };
        let (job, took, line) = ended.context("a seed")?;
        Ok(Some((job, line, took)))
    }
}

/// Runs one seed in a process and reads its line.
async fn child(args: &Args, job: Job, bug: Option<&str>) -> Result<Line> {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).context("a folder")?;
    let mut command = Command::new(std::env::current_exe().context("this binary")?);
    command.args(["simulate", "--seeds", &job.seed.to_string(), "--folder"]).arg(folder.path());
    command.args(["--minutes", &job.minutes.to_string(), "--heartbeat-ms", &job.heartbeat_ms.to_string()]);
    command.args(args.calm.then_some("--calm"));
    for (name, file) in [("--trace", &args.trace), ("--history", &args.history)] {
        if let Some(file) = file {
            command.arg(name).arg(file);
        }
    }
    // A seed that must hold runs without a bug, whatever the environment says.
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
        assert_eq!("0..200".parse(), Ok(Seeds { from: 0, to: 200 }));
        assert_eq!("7".parse(), Ok(Seeds { from: 7, to: 8 }));
        for nonsense in ["", "a..b", "7..7", "9..3", "-1"] {
            assert!(nonsense.parse::<Seeds>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn every_third_seed_has_shipped_heartbeat() {
        let heartbeats: Vec<u64> = (9..15).map(heartbeat_of).collect();
        assert_eq!(heartbeats, [50, 250, 250, 50, 250, 250]);
    }
}

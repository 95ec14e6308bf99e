//! `reveille-jepsen simulate`: seeds of the deterministic simulation, each in a process of its own.
//!
//! What a thread or a process draws once, at its first hash map or runtime, is part of a seed; so no process runs two.
//! The command starts itself again for each seed, reads one line of JSON from it, and stops at the first seed that fails,
//! with the last lines of its trace and the command that repeats it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use reveille_simulation::{Options, Verdict, run};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::run::commit;

/// A simulated leader shows itself this often; a real one five times as often.
const HEARTBEAT_MS: u64 = 250;
/// Lines of a failing trace that are shown; `--trace` writes all.
const LINES_SHOWN: usize = 60;
/// A seed that takes so long, in real time, hangs: a minute of virtual time takes a second on a slow machine.
const HANGS_AFTER: Duration = Duration::from_secs(600);

/// What is simulated.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Seeds, such as 0..200 (without 200), or one
    #[arg(long, value_name = "A..B")]
    pub seeds: Seeds,
    /// Virtual minutes of each seed
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=1_440))]
    pub minutes: u64,
    /// How often a leader shows itself, in milliseconds; elections take 6 to 12 times as long
    #[arg(long, default_value_t = HEARTBEAT_MS, value_parser = clap::value_parser!(u64).range(20..=1_000))]
    pub heartbeat_ms: u64,
    /// Seeds at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub jobs: u64,
    /// Breaks nothing
    #[arg(long)]
    pub calm: bool,
    /// Writes the whole trace there; for one seed
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Writes the history there, which `check` judges again; for one seed
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
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
    violations: Vec<String>,
    figures: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
}

/// The last line.
#[derive(Debug, Default, Serialize)]
struct Summary {
    valid: bool,
    seeds: u64,
    failed: Vec<u64>,
    virtual_hours: f64,
    seconds: f64,
    /// Virtual time by the real time of one process.
    times_real: f64,
    /// Hash over the hashes of all seeds, in their order.
    hash: String,
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
    let options = Options {
        seed: args.seeds.from,
        minutes: args.minutes,
        heartbeat_ms: args.heartbeat_ms,
        faults: !args.calm,
        folder: folder.to_owned(),
        history: args.history.clone(),
        command: repeat(args, args.seeds.from),
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
        violations,
        figures: verdict.figures.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect(),
        faults,
    };
    println!("{}", serde_json::to_string(&line).context("the report")?);
    Ok(valid)
}

/// The command that does the same again, with everything written down.
fn repeat(args: &Args, seed: u64) -> String {
    let Args { minutes, heartbeat_ms, .. } = args;
    let mut command = format!("reveille-jepsen simulate --seeds {seed} --minutes {minutes}");
    if *heartbeat_ms != HEARTBEAT_MS {
        command += &format!(" --heartbeat-ms {heartbeat_ms}");
    }
    if args.calm {
        command += " --calm";
    }
    command + &format!(" --trace seed-{seed}.trace --history seed-{seed}.jsonl")
}

/// All seeds, each in a process of its own.
pub async fn run_all(args: &Args) -> Result<Outcome> {
    if (args.trace.is_some() || args.history.is_some()) && args.seeds.to - args.seeds.from != 1 {
        bail!("--trace and --history write down one seed: give --seeds N");
    }
    let begun = Instant::now();
    let mut waiting = args.seeds.from..args.seeds.to;
    let mut running = JoinSet::new();
    let (mut lines, mut busy, mut failed) = (BTreeMap::new(), 0.0, Vec::new());
    loop {
        while running.len() < args.jobs as usize && failed.is_empty() {
            let Some(seed) = waiting.next() else { break };
            let args = args.clone();
            running.spawn(async move { (seed, Instant::now(), child(&args, seed).await) });
        }
        let Some(ended) = running.join_next().await else { break };
        let (seed, started, line) = ended.context("a seed")?;
        busy += started.elapsed().as_secs_f64();
        let repeat = repeat(args, seed);
        match line {
            Ok(line) if line.violations.is_empty() => {
                lines.insert(seed, line);
            }
            Ok(line) => {
                eprintln!("seed {seed} fails:");
                line.violations.iter().for_each(|violation| eprintln!("  {violation}"));
                eprintln!("repeat it with: {repeat}");
                failed.push(seed);
                lines.insert(seed, line);
            }
            Err(error) => {
                eprintln!("seed {seed} gave no verdict: {error:#}\nrepeat it with: {repeat}");
                failed.push(seed);
            }
        }
        if lines.len() % 20 == 0 {
            eprintln!("{} seeds, {:.2} a second", lines.len(), lines.len() as f64 / begun.elapsed().as_secs_f64());
        }
    }
    let mut summary = Summary { valid: failed.is_empty(), failed, seeds: lines.len() as u64, ..Summary::default() };
    summary.seconds = begun.elapsed().as_secs_f64();
    let virtual_seconds: f64 = lines.values().map(|line| line.virtual_seconds).sum();
    summary.virtual_hours = virtual_seconds / 3_600.0;
    summary.times_real = virtual_seconds / busy.max(0.001);
    let hashes: String = lines.values().map(|line| line.hash.as_str()).collect();
    summary.hash = reveille_simulation::short_hash(&hashes);
    for line in lines.into_values() {
        line.figures.into_iter().for_each(|(name, figure)| *summary.figures.entry(name).or_default() += figure);
        line.faults.into_iter().for_each(|(name, count)| *summary.faults.entry(name).or_default() += count);
    }
    Outcome::new(&summary, summary.valid)
}

/// Runs one seed in a process and reads its line.
async fn child(args: &Args, seed: u64) -> Result<Line> {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).context("a folder")?;
    let mut command = Command::new(std::env::current_exe().context("this binary")?);
    command.args(["simulate", "--seeds", &seed.to_string(), "--folder"]).arg(folder.path());
    command.args(["--minutes", &args.minutes.to_string(), "--heartbeat-ms", &args.heartbeat_ms.to_string()]);
    command.args(args.calm.then_some("--calm"));
    for (name, file) in [("--trace", &args.trace), ("--history", &args.history)] {
        if let Some(file) = file {
            command.arg(name).arg(file);
        }
    }
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
    fn a_range_of_seeds_is_read_and_one_seed_is_one() {
        assert_eq!("0..200".parse(), Ok(Seeds { from: 0, to: 200 }));
        assert_eq!("7".parse(), Ok(Seeds { from: 7, to: 8 }));
        for nonsense in ["", "a..b", "7..7", "9..3", "-1"] {
            assert!(nonsense.parse::<Seeds>().is_err(), "{nonsense}");
        }
    }
}

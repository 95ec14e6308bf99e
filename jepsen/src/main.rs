//! The binary `reveille-jepsen`: starts real nodes, measures or breaks them, and judges by what arrived.
//!
//! It knows the product from outside only: the binary, its admin API, its HTTP pages, and what its own sink
//! recorded. Only `simulate` runs the product's crates, in processes of its own; they are judged by the same checker.
//!
//! What every command promises: talk on stderr; the last line on stdout is one JSON object; exit code 0 when
//! what it measured is also right, 1 when it is not or could not be measured, 130 when it was interrupted (and
//! then nothing on stdout: half of a measurement is none); and at its end, whatever the end was, no process of its own
//! runs and nothing of its own lies in a temporary folder or in `/dev/shm` (a `kill -9` of this very process excepted).
//!
//! Reading order: this page, `cluster.rs` with `node.rs` (the processes), `admin.rs` and `pages.rs` (how they
//! are asked), `load.rs` (what they are given to do), `tally.rs` (the judgement), then one file a command.

mod admin;
mod almanac;
mod bench;
mod bulkhead;
mod busy;
mod calendar;
mod campaigns;
mod check;
mod cluster;
mod creates;
mod decisions;
mod doubt;
mod edits;
mod failover;
mod flow;
mod footing;
mod grounds;
mod hosts;
mod idle;
mod load;
mod measure;
mod node;
mod orders;
mod overload;
mod pages;
mod proxies;
mod punctual;
mod quota;
mod round;
mod run;
mod runs;
mod simulate;
mod sink;
mod stream;
mod tally;
mod tool;
mod volume;
mod watch;
mod wires;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use cluster::Start;

const AFTER: &str = "\
Each command starts nodes of its own on free ports of this machine, with data in a temporary folder and
journals in /dev/shm, and removes them at its end, also after Ctrl-C. Figures are worth something on a quiet
machine and with release builds only:

  cargo build --release -p reveille -p reveille-jepsen
  target/release/reveille-jepsen punctual --schedules 1000 --kept 100000
  target/release/reveille-jepsen bench --recipients 1000000 --compare
  target/release/reveille-jepsen bench --recipients 1000000 --kill-leader
  target/release/reveille-jepsen bulkhead --recipients 1000000
  target/release/reveille-jepsen idle --schedules 100000
  target/release/reveille-jepsen creates --clients 64 --seconds 10
  target/release/reveille-jepsen doubt --journal keep
  target/release/reveille-jepsen doubt --journal delete
  target/release/reveille-jepsen failover --kills 20 --busy
  target/release/reveille-jepsen calendar --schedules 10000 --days 30
  target/release/reveille-jepsen run --seed random --seconds 60 --nemesis all
  target/release/reveille-jepsen run --seed 7 --seconds 60 --nemesis kill,partition
  target/release/reveille-jepsen run --seed 7 --seconds 60 --nemesis all --workload daily
  target/release/reveille-jepsen overload --case tenfold --seconds 180
  target/release/reveille-jepsen crash-points --hits 20 --reveille target/debug/reveille
  target/release/reveille-jepsen sink --listen 127.0.0.1:2526 --record accepts.jsonl --fault rcpt:450@0.05
  target/release/reveille-jepsen simulate --seeds 0..200

`check HISTORY` and `runs FILE` start nothing: they judge and sum up what was recorded.

Talk goes to stderr. The last line on stdout is one JSON object.

Exit codes:
  0 measured, and right   1 something is wrong (the JSON says what) or could not be measured   2 usage
  130 interrupted";

/// Starts real nodes of Reveille, measures or breaks them, and judges by what really arrived.
#[derive(Debug, Parser)]
#[command(name = "reveille-jepsen", version, max_term_width = 110, after_help = AFTER)]
struct Cli {
    #[command(flatten)]
    start: Start,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// How many mails a second one run to a sealed audience comes to
    Bench(bench::Args),
    /// How late one tenant's mails are beside another one's backlog and dead relay
    Bulkhead(bulkhead::Args),
    /// How late mails come when many schedules are due in the same second
    Punctual(punctual::Args),
    /// What future schedules cost while nothing is due: CPU and memory of each node
    Idle(idle::Args),
    /// Durable creates a second through gRPC, and how few syncs they take
    Creates(creates::Args),
    /// How many mails a kill -9 leaves in doubt, with and without the journal
    Doubt(doubt::Args),
    /// How long nothing is claimed after a kill -9 of the leader; elections on a busy machine
    Failover(failover::Args),
    /// A month of daily schedules on a clock that is moved by hand, with outages and kills of the leader
    Calendar(calendar::Args),
    /// Judges a recorded history, and nothing else
    Check(check::Args),
    /// Breaks a cluster on purpose while mail flows, by a seed, and judges by what really arrived
    Run(Box<run::Args>),
    /// More than can be done: elections, memory and what arrives, while too much is offered and after it
    Overload(overload::Args),
    /// Lets nodes of a build with crash points die at each of them, again and again, while mail flows
    CrashPoints(run::crash::Args),
    /// Sums up a file of runs, as `run --append` writes it
    Runs(runs::Args),
    /// The SMTP server alone, which writes down what it accepts and misbehaves on request
    Sink(sink::Args),
    /// Whole clusters on one thread in virtual time, by seed: workload, faults and judgement
    Simulate(simulate::Args),
}

/// What a command comes to.
struct Outcome {
    /// The last line on stdout.
    line: String,
    /// Is what was measured also right?
    valid: bool,
}

impl Outcome {
    fn new(report: &impl Serialize, valid: bool) -> Result<Outcome> {
        Ok(Outcome { line: serde_json::to_string(report).context("the report")?, valid })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.command {
        // Before this process has drawn any chance of its own.
        Command::Simulate(args) if args.folder.is_some() => {
            simulate::alone(args, args.folder.as_deref().unwrap_or(Path::new("")))
        }
        _ => command(cli),
    }
}

#[tokio::main]
async fn command(cli: Cli) -> ExitCode {
    if let Command::Sink(args) = &cli.command {
        return told(sink::run(args, told_to_stop()).await);
    }
    let outcome = tokio::select! {
        // Dropping the command kills its nodes and removes its folders.
        outcome = obey(cli) => outcome,
        told = told_to_stop() => {
            eprintln!("{}", told.map_or_else(|error| format!("error: {error:#}"), |()| "interrupted".to_owned()));
            return ExitCode::from(130);
        }
    };
    told(outcome)
}

/// The last line, and the exit code.
fn told(outcome: Result<Outcome>) -> ExitCode {
    match outcome {
        Ok(outcome) => {
            // Where nobody reads stdout any more, the exit code still says how it went.
            let _ = writeln!(std::io::stdout(), "{}", outcome.line);
            if outcome.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn obey(cli: Cli) -> Result<Outcome> {
    match cli.command {
        Command::Bench(args) => Box::pin(bench::run(&cli.start, &args)).await,
        Command::Bulkhead(args) => Box::pin(bulkhead::run(&cli.start, &args)).await,
        Command::Punctual(args) => Box::pin(punctual::run(&cli.start, &args)).await,
        Command::Idle(args) => Box::pin(idle::run(&cli.start, &args)).await,
        Command::Creates(args) => Box::pin(creates::run(&cli.start, &args)).await,
        Command::Doubt(args) => Box::pin(doubt::run(&cli.start, &args)).await,
        Command::Failover(args) => Box::pin(failover::run(&cli.start, &args)).await,
        Command::Calendar(args) => Box::pin(calendar::run(&cli.start, &args)).await,
        Command::Check(args) => check::run(&args),
        Command::Run(args) => Box::pin(run::run(&cli.start, &args)).await,
        Command::Overload(args) => Box::pin(overload::run(&cli.start, &args)).await,
        Command::CrashPoints(args) => Box::pin(run::crash::run(&cli.start, &args)).await,
        Command::Runs(args) => runs::run(&args),
        Command::Sink(args) => sink::run(&args, told_to_stop()).await,
        Command::Simulate(args) => Box::pin(simulate::run_all(&args)).await,
    }
}

/// Returns on Ctrl-C, on SIGTERM, and when the terminal goes.
async fn told_to_stop() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut hang_up = signal(SignalKind::hangup()).context("SIGHUP")?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("reveille-jepsen").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_holds_together() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// Whoever measures again types what a page says. A word in capitals stands for what the reader chooses.
    #[test]
    fn the_pages_of_what_was_measured_name_commands_that_there_are() {
        use clap::CommandFactory;
        let names: Vec<String> =
            Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let chosen = |word: &str| match word {
            "N" => "1".to_owned(),
            "FAMILIES" => "kill,pause".to_owned(),
            "NAME" => "all".to_owned(),
            word => word.to_owned(),
        };
        for page in ["performance.md", "reliability.md", "reference/fault-runs.md", "reference/simulation.md"] {
            let text = std::fs::read_to_string(format!("{}/../docs/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
            let lines: Vec<&str> = code.filter_map(|code| code.strip_prefix("reveille-jepsen ")).collect();
            // A command alone is named, not typed.
            for line in lines.iter().filter(|line| !names.iter().any(|name| name == *line)) {
                let typed: Vec<String> = line.split(' ').map(chosen).collect();
                assert!(parse(&typed.join(" ")).is_ok(), "{page}: {line}");
            }
            assert!(!lines.is_empty(), "{page} names no command");
        }
    }

    #[test]
    fn every_command_has_defaults_for_all_but_what_it_is_about() {
        for line in [
            "bench --recipients 5",
            "bulkhead",
            "punctual --schedules 5",
            "idle --schedules 5",
            "creates",
            "doubt",
            "failover",
            "calendar",
            "check history.jsonl",
            "run --seed 1",
            "runs docs/reliability/runs.jsonl",
            "overload",
            "overload --case twice,rendering --seconds 30",
            "crash-points",
            "crash-points --name wal.purge,smtp.before-dot --hits 2 --seed 1",
            "run --seed random --nemesis kill,pause --in-doubt resend",
            "run --seed 7 --nemesis kill,partition --workload daily --nodes 5",
            "run --seed 7 --nemesis link --links proxy",
            "sink --listen 127.0.0.1:0 --record x --fault rcpt:450@0.05,after-commit:close#3",
            "simulate --seeds 0..2",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        assert!(parse("punctual").is_err());
        let Ok(Command::Failover(args)) = parse("failover").map(|cli| cli.command) else { panic!("failover") };
        assert_eq!((args.kills, args.busy, args.seconds), (20, false, 60));
    }

    #[test]
    fn sizes_that_mean_nothing_are_refused() {
        for line in ["punctual --schedules 0", "creates --clients 0", "doubt --sessions 0", "doubt --nodes 2"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_binary_may_be_named_on_either_side_of_the_command() {
        for line in ["--reveille /x/reveille creates", "creates --reveille /x/reveille"] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.start.reveille.as_deref(), Some(std::path::Path::new("/x/reveille")), "{line}");
        }
    }
}

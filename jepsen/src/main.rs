//! The binary `reveille-jepsen`: starts real nodes, breaks or measures them, and judges by what arrived.
//!
//! It knows the product only from outside: the binary, its admin API, its HTTP pages, and the record of its own sink.
//! Only `simulate` runs the product's crates, in processes of its own, and the same checker judges them.
//!
//! Every command writes messages to stderr and one JSON object as the last line on stdout. It exits with 0 if the
//! result is valid, and with 1 if it is invalid or an error occurred. If interrupted, it exits with 130 and without
//! output. At its end none of its processes runs and none of its files is left, except after a `kill -9` of the command
//! itself.
//!
//! Reading order: this file, the crate `reveille-harness` (the processes), `run` (fault runs), `simulate`, `check`.
//! Benchmarks are in the crate `reveille-bench`.

mod check;
mod run;
mod simulate;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use reveille_bench::Benchmark;
use reveille_harness::{Report, StartArgs};
use tokio::signal::unix::{SignalKind, signal};

const AFTER: &str = "\
Commands start their own nodes on free ports of this machine, with data in a temporary folder and journals in
/dev/shm, and remove them at their end, also after Ctrl-C. `check` starts none. The last line on
stdout is one JSON object; messages go to stderr. docs/performance.md and docs/reference/fault-runs.md have examples.

Exit codes:
  0 valid   1 not valid (the JSON says why) or an error   2 usage   130 interrupted";

/// Starts real nodes of Reveille, breaks or measures them, and judges by what arrived.
#[derive(Debug, Parser)]
#[command(name = "reveille-jepsen", version, max_term_width = 110, after_help = AFTER)]
struct Cli {
    #[command(flatten)]
    start: StartArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures a cluster
    #[command(subcommand)]
    Bench(Benchmark),
    /// Judges a recorded history
    Check(check::Args),
    /// Breaks a cluster while emails are sent, by a seed, and judges by what arrived
    Run(Box<run::Args>),
    /// Whole clusters on one thread in virtual time, by seed: workload, faults and judgement
    Simulate(simulate::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // This comes first, because a seed must run before this process has drawn a random number.
    if let Command::Simulate(args) = &cli.command
        && let Some(folder) = &args.folder
    {
        return finish(simulate::run_here(args, folder));
    }
    command(cli)
}

#[tokio::main]
async fn command(cli: Cli) -> ExitCode {
    let report = tokio::select! {
        // Dropping the command kills its nodes and removes its folders.
        report = execute(cli) => report,
        stopped = stopped() => {
            eprintln!("{}", stopped.map_or_else(|error| format!("error: {error:#}"), |()| "interrupted".to_owned()));
            return ExitCode::from(130);
        }
    };
    finish(report)
}

/// Prints the last line. Returns the exit code.
fn finish(report: Result<Report>) -> ExitCode {
    match report {
        Ok(report) => {
            // If stdout is closed, only the exit code shows the result.
            let _ = writeln!(std::io::stdout(), "{}", report.line);
            if report.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn execute(cli: Cli) -> Result<Report> {
    match cli.command {
        Command::Bench(benchmark) => benchmark.run(&cli.start).await,
        Command::Check(args) => check::run(&args),
        Command::Run(args) => Box::pin(run::run(&cli.start, &args)).await,
        Command::Simulate(args) => Box::pin(simulate::run_all(&args)).await,
    }
}

/// Returns on Ctrl-C, SIGTERM and SIGHUP.
async fn stopped() -> Result<()> {
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
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    /// A word in capitals is a placeholder.
    #[test]
    fn commands_in_docs_can_be_parsed() {
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
            // A command's name without arguments is not a command line.
            for line in lines.iter().filter(|line| !names.iter().any(|name| name == *line)) {
                let typed: Vec<String> = line.split(' ').map(chosen).collect();
                assert!(parse(&typed.join(" ")).is_ok(), "{page}: {line}");
            }
            assert!(!lines.is_empty(), "{page} names no command");
        }
    }

    #[test]
    fn recorded_results_are_json_lines() {
        for name in ["runs", "crash-points", "simulations"] {
            let file = format!("{}/../docs/reliability/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
            for line in std::fs::read_to_string(file).unwrap().lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(line["valid"].is_boolean(), "{name}: {line}");
            }
        }
    }

    #[test]
    fn commands_have_defaults() {
        for line in [
            "bench campaign --recipients 5",
            "bench campaign --recipients 5 --compare-tls",
            "bench tenants",
            "bench schedules --schedules 5",
            "bench schedules --schedules 5 --kept 100",
            "bench messages",
            "bench days --schedules 20000 --days 90",
            "check history.jsonl",
            "run --seed 1",
            "run --seed 1 --nemesis failover --seconds 160",
            "run --seed 1 --nemesis crash-points --points wal.purge,smtp.before-dot --hits 2",
            "run --seed random --nemesis kill,pause --in-doubt resend",
            "run --seed 7 --nemesis kill,partition --workload daily --nodes 5",
            "simulate --seeds 0..2",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        assert!(parse("bench schedules").is_err());
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for line in [
            "bench schedules --schedules 0",
            "bench campaign --recipients 0",
            "bench days --days 5",
            "run --seed 1 --nodes 2",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn binary_may_be_named_before_or_after_command() {
        for line in ["--reveille /x/reveille bench days", "bench days --reveille /x/reveille"] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.start.reveille.as_deref(), Some(std::path::Path::new("/x/reveille")), "{line}");
        }
    }
}

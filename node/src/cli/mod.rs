//! The command line: what a person or a script types, asked of a cluster by gRPC.
//!
//! Called by `main` alone. What it promises:
//! - **Data on stdout, talk on stderr.** With `-o json` stdout holds nothing but the objects of `view`, and
//!   an error is one JSON object on stderr. Fields are added, never renamed.
//! - **The exit code says what happened** ([`failure::Exit`]); 8 means that it may have happened, and
//!   names the way to find out.
//! - **Any node will do.** The addresses of `--endpoint` are tried in turn ([`client`]); whether a lost
//!   answer may be asked for again is said for each request.
//! - **Every wait ends**: by `--timeout`, by Ctrl-C, or when the peer shows no life.
//!
//! What it is not: it decides nothing that the cluster decides. It reads files, and the calendar only for
//! `schedule preview`, which needs no cluster.
//!
//! Reading order: `args` (the tree, with its help), `ask` (one function a command), `view` (what is
//! printed), then [`client`], [`terminal`] and [`failure`].

mod args;
mod ask;
mod client;
mod early;
mod failure;
mod human;
mod instant;
mod recipients;
mod terminal;
mod view;
mod word;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command};
use early::Early;
use failure::{Exit, Failure, Stop};
use terminal::Terminal;

/// Reads the command line, does what it says, and answers with the exit code.
pub fn run() -> ExitCode {
    let early = Early::read(std::env::args_os());
    let cli = match parse(&early) {
        Ok(cli) => cli,
        Err(error) => return early.refuse(&error),
    };
    let terminal = Terminal::new(&cli.global);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return terminal.end(Err(Failure::general(format!("no runtime: {error}")).into())),
    };
    let result = runtime.block_on(until_interrupted(cli, &terminal));
    terminal.end(result)
}

fn parse(early: &Early) -> Result<Cli, clap::Error> {
    let matches = Cli::command().color(early.color()).try_get_matches()?;
    Cli::from_arg_matches(&matches)
}

/// Ctrl-C ends a command wherever it waits; what was asked for by then may have happened.
async fn until_interrupted(cli: Cli, terminal: &Terminal) -> Result<(), Stop> {
    let request_id = cli.global.request_id.clone();
    tokio::select! {
        result = Box::pin(dispatch(cli, terminal)) => result,
        Ok(()) = tokio::signal::ctrl_c() => Err(Failure {
            exit: Exit::Interrupted,
            reason: "INTERRUPTED".into(),
            message: "interrupted; a change that was asked for may have happened".to_owned(),
            request_id,
            ..Failure::default()
        }
        .into()),
    }
}

async fn dispatch(cli: Cli, terminal: &Terminal) -> Result<(), Stop> {
    let desk = ask::Desk::new(&cli.global, terminal);
    match cli.command {
        Command::Cluster(args) => ask::cluster::run(&desk, args).await,
        Command::Relay(args) => ask::relay::run(&desk, args).await,
        Command::Schedule(args) => ask::schedule::run(&desk, args).await,
        Command::Run(args) => ask::run::run(&desk, args).await,
        Command::Explain(args) => ask::run::explain(&desk, args).await,
        Command::InDoubt(args) => ask::doubt::run(&desk, args).await,
        Command::DeadLetter(args) => ask::dead_letter::run(&desk, args).await,
        Command::Optout(args) => ask::opt_out::run(&desk, args).await,
        Command::Version => ask::version::run(&desk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }
}

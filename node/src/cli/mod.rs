//! The command line: parses commands of users and scripts, and sends their requests to a cluster by gRPC. `main` calls
//! it. It decides nothing that the cluster decides.
//!
//! - **Data on stdout, messages on stderr.** With `-o json`, stdout has only the API's JSON: of a read the resource, of
//!   a list an array of them, of a change the whole answer. An error is one JSON object on stderr.
//! - **The exit code names the result** ([`failure::Exit`]). 8 means that the request may have been carried out.
//! - **Any node will do.** The addresses of `--endpoint` are tried in turn ([`client`]). Each request states if it may
//!   be repeated after a lost answer.
//! - **Every wait ends**: by `--timeout`, by Ctrl-C, or when the peer stops answering pings.
//!
//! Reading order: `command_tree`, `commands` (a file for each: arguments, call, output), `args` and `view` (what several
//! commands have), [`client`], [`terminal`], [`failure`]; [`doctor`] has the checks of `commands::doctor`.

mod args;
mod attachments;
pub(crate) mod bytes_codec;
mod client;
mod clocks;
mod command_tree;
mod commands;
mod connection;
mod contexts;
mod doctor;
mod early;
mod endpoint;
mod failure;
mod flags;
#[cfg(test)]
mod handbook_tests;
mod import;
mod input;
mod instant;
mod lines;
mod manifest;
mod next_step;
mod recipients;
mod relay_fix;
mod suppressions;
mod target;
mod terminal;
mod view;
mod word;
pub(crate) mod wording;
mod yaml;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use reveille_cluster::process::lifecycle::StartError;
use reveille_ledger::refusal::CommandRefusal;
use reveille_raft::FatalError;
use reveille_raft::tls::JoinError;

use crate::server::bootstrap::BootstrapError;
use crate::server::node_identity::NodeIdentityError;
use crate::{escape, format};
use args::{Format, Global};
use command_tree::{Cli, ClientCommand, Command};
use early::Early;
use failure::{Exit, Failure, Stop};
use flags::CommandPath;
use terminal::Terminal;

/// Returns true if this user's commands address the cluster of a context.
fn has_context() -> bool {
    contexts::Contexts::read().is_ok_and(|contexts| contexts.current.is_some())
}

/// Parses the command line, runs the command and returns the exit code.
pub fn run() -> ExitCode {
    let early = Early::read(std::env::args_os());
    let (cli, path) = match parse(&early) {
        Ok(parsed) => parsed,
        Err(error) => return early.refuse(&early::without_globals(error)),
    };
    let terminal = Terminal::new(&cli.global);
    let mut threads = match cli.command {
        Command::Client(_) => tokio::runtime::Builder::new_current_thread(),
        Command::Demo(_) | Command::Dev(_) | Command::Start(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = match threads.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let next = "look at the limits of this session: ulimit -a";
            return terminal.end(Err(Failure::general(format!("no runtime: {error}"), next).into()));
        }
    };
    let result = runtime.block_on(dispatch(cli, &path, &terminal));
    // Does not wait for a thread that reads a large file or stdin; its receiver is gone.
    runtime.shutdown_background();
    terminal.end(result)
}

fn parse(early: &Early) -> Result<(Cli, CommandPath), clap::Error> {
    let matches = Cli::command().color(early.color()).try_get_matches()?;
    Ok((Cli::from_arg_matches(&matches)?, CommandPath::of(&matches)))
}

async fn dispatch(cli: Cli, path: &CommandPath, terminal: &Terminal) -> Result<(), Stop> {
    match cli.command {
        Command::Demo(args) => demo(args).await,
        Command::Dev(args) => process(Box::pin(crate::dev::run(args, has_context())).await),
        Command::Start(args) => process(Box::pin(crate::server::start::run(*args)).await),
        Command::Client(command) => until_interrupted(&cli.global, (command, path), terminal).await,
    }
}

/// Converts the error of a node process, with its chain of causes. The process handles its signals itself and stops in
/// order.
fn process(ended: anyhow::Result<()>) -> Result<(), Stop> {
    ended.map_err(|error| {
        let (exit, reason, next) = if error.is::<crate::server::config::ConfigError>() {
            (Exit::Usage, "GENERAL", "reveille config check names what is wrong with a configuration")
        } else if is_other_folder(&error) {
            let next = "put back the data folder that this node ran with last, as a whole; if it is gone, leave this node \
                        stopped, remove it from the cluster (reveille cluster member remove NODE --dead), and admit \
                        a new one with an empty data folder (reveille cluster member add)";
            (Exit::General, "DATA_FOLDER", next)
        } else if is_of_no_use(&error) {
            let next = "keep the folder for inspection, leave this node stopped, remove it from the cluster (reveille \
                        cluster member remove NODE --dead), and admit a new one with an empty data folder (reveille \
                        cluster member add)";
            (Exit::General, "DATA_FOLDER", next)
        } else if let Some(BootstrapError::Join(JoinError::NoAnswer { .. })) = error.downcast_ref() {
            (Exit::General, "NOT_A_MEMBER", "start it again with the same token: a join may be repeated")
        } else if let Some(BootstrapError::Join(JoinError::Refused(_))) = error.downcast_ref() {
            let next = "do what it names, and start it again; --name and --advertise are its own; reveille \
                        cluster member add makes another token";
            (Exit::General, "NOT_A_MEMBER", next)
        } else if error.is::<BootstrapError>() {
            (Exit::General, "NOT_A_MEMBER", "do what it names, and start it again")
        } else {
            (Exit::General, "GENERAL", "fix what it names, and start it again: what was answered is kept")
        };
        Failure::new(exit, reason, format!("{error:#}"), next).into()
    })
}

/// True if no node may start with that data folder again.
fn is_of_no_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(FatalError::Damaged(_)))
        || matches!(error.downcast_ref(), Some(NodeIdentityError::Damaged { .. }))
}

/// True if the data folder is not the one with which the node ran last: an older copy (P10), the folder of another
/// node, or a folder that lacks a file.
fn is_other_folder(error: &anyhow::Error) -> bool {
    use FatalError::{BadIdentity, Foreign, Outdated};
    matches!(error.downcast_ref(), Some(Outdated(_) | Foreign(_) | BadIdentity { .. }))
        || matches!(error.downcast_ref(), Some(NodeIdentityError::Missing { .. }))
        || matches!(error.downcast_ref(), Some(StartError::NotAccepted(CommandRefusal::OldIncarnation { .. })))
}

async fn demo(args: crate::demo::Args) -> Result<(), Stop> {
    match Box::pin(crate::demo::run(args)).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let next = "the nodes' logs, in the folder that it named";
            Err(Failure::general("the demo is not valid: see the table above", next).into())
        }
        Err(error) => process(Err(error)),
    }
}

/// Runs a command until it ends, or until Ctrl-C.
async fn until_interrupted(
    global: &Global,
    (command, path): (ClientCommand, &CommandPath),
    terminal: &Terminal,
) -> Result<(), Stop> {
    if !global.table_columns.is_empty() && global.output != Format::Table {
        let message = "chooses columns of a table, and --output chooses another form";
        return Err(Failure::usage("--columns", message, "one of --columns and --output").into());
    }
    let context = commands::CommandContext::new(global, terminal);
    let result = tokio::select! {
        // Ctrl-C first: its handler is there before the command asks the user.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => Err(context.interrupted()),
        result = Box::pin(run_client_command(&context, command)) => result,
    };
    result.map_err(|stop| path.name_flags(Cli::command(), stop))
}

async fn run_client_command(context: &commands::CommandContext<'_>, command: ClientCommand) -> Result<(), Stop> {
    match command {
        ClientCommand::Cluster(args) => commands::cluster::run(context, args).await,
        ClientCommand::Backup(args) => commands::backup::run(context, args).await,
        ClientCommand::Clock(args) => commands::clock::run(context, args).await,
        ClientCommand::Recover(args) => Box::pin(commands::recover::run(context, args)).await,
        ClientCommand::Restore(args) => commands::restore::run(context, args).await,
        ClientCommand::Relay(args) => commands::relay::run(context, args).await,
        ClientCommand::Message(args) => commands::message::run(context, args).await,
        ClientCommand::Schedule(args) => commands::schedule::run(context, args).await,
        ClientCommand::Apply(args) => Box::pin(commands::apply::run(context, &args)).await,
        ClientCommand::Diff(args) => Box::pin(commands::apply::diff(context, &args)).await,
        ClientCommand::Edit(args) => Box::pin(commands::apply::edit(context, args)).await,
        ClientCommand::Template(args) => commands::template::run(context, args).await,
        ClientCommand::Import(args) => commands::import::run(context, args).await,
        ClientCommand::Run(args) => commands::run::run(context, args).await,
        ClientCommand::Explain(args) => commands::run::explain(context, args).await,
        ClientCommand::InDoubt(args) => commands::doubt::run(context, args).await,
        ClientCommand::DeadLetter(args) => commands::dead_letter::run(context, args).await,
        ClientCommand::Audience(args) => commands::audience::run(context, args).await,
        ClientCommand::Campaign(args) => commands::campaign::run(context, args).await,
        ClientCommand::Optout(args) => commands::opt_out::run(context, args).await,
        ClientCommand::Recipient(args) => commands::recipient::run(context, args).await,
        ClientCommand::Events(args) => commands::event::run(context, args).await,
        ClientCommand::Tenant(args) => commands::tenant::run(context, args).await,
        ClientCommand::Token(args) => commands::token::run(context, args).await,
        ClientCommand::Audit(args) => commands::audit::run(context, args).await,
        ClientCommand::Pool(args) => commands::pool::run(context, args).await,
        ClientCommand::Doctor(args) => commands::doctor::run(context, args).await,
        ClientCommand::Login(args) => commands::login::run(context, args).await,
        ClientCommand::Context(args) => commands::context::run(context, args).await,
        ClientCommand::Config(args) => commands::config::run(context, args).await,
        ClientCommand::Completion(args) => commands::completion::run(context, &args, &Cli::command()),
        ClientCommand::CompleteNames(args) => commands::names::run(context, args, Cli::command()).await,
        ClientCommand::Man(args) => commands::completion::man(context, &args, Cli::command()),
        ClientCommand::Version => commands::version::run(context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_ledger::ids::Incarnation;

    #[test]
    fn unusable_folder_error_does_not_advise_a_restart() {
        let next = |error: anyhow::Error| match process(Err(error)) {
            Err(Stop::Failed(failure)) => failure.next.unwrap_or_default(),
            other => panic!("{other:?}"),
        };
        let (requested, known) = (Incarnation(1), Incarnation(12));
        let old = StartError::NotAccepted(CommandRefusal::OldIncarnation { requested, known });
        let remembered = FatalError::Outdated("its life 12 is known".into());
        let other = FatalError::Foreign("identity belongs to node 2".into());
        let garbled = FatalError::BadIdentity { path: "data/identity".into(), detail: "no first line".into() };
        let missing =
            NodeIdentityError::Missing { path: "data/node".into(), later: "data/wal".into(), lost: "is another node" };
        for error in [
            anyhow::Error::new(old),
            anyhow::Error::new(remembered),
            anyhow::Error::new(other),
            anyhow::Error::new(garbled),
            anyhow::Error::new(missing),
        ] {
            let next = next(error);
            assert!(next.contains("put back the data folder") && next.contains("leave this node stopped"), "{next}");
        }
        assert!(next(anyhow::Error::new(FatalError::Damaged("wal/1.log".into()))).contains("leave this node stopped"));
        assert!(next(anyhow::Error::new(FatalError::Log("no space".into()))).contains("start it again"));
    }

    #[test]
    fn tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }
}

//! Shared by `restore run` and `recover run`: writes the data folder of the first node of a new cluster from a state.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use jiff::SignedDuration;
use reveille_cluster::backup::opt_outs::StreamedOptOuts;
use reveille_cluster::backup::{self, LostFiles, StateFiles};
use reveille_ledger::Ledger;
use reveille_ledger::command::{Actor, Command, Entry};
use reveille_ledger::ids::{Epoch, Time};
use reveille_ledger::invariants::violations;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::restore::Restore;
use reveille_raft::{ClusterId, Member};
use serde_json::json;

use super::backup::{aside, failure};
use super::cluster::store;
use super::context::say_in_use;
use super::{Answer, CommandContext, Exit, Failure, Own, Stop, config, duration_to_wire, format};
use crate::api_json;
use crate::cli::contexts::Contexts;
use crate::server::bootstrap::{self, BootstrapError};
use crate::server::config::{Config, Settings, environment, file_or_default};
use crate::server::first_token;
use crate::token_text::TokenText;

/// Settings of the first node.
#[derive(Debug, Args)]
pub struct NewNodeArgs {
    /// Configuration file of the new node (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}

impl NewNodeArgs {
    /// Loads the configuration. Fails unless the data folder of the new node is empty.
    pub fn load(self) -> Result<Config, Failure> {
        let file = file_or_default(self.config);
        let config = Config::load(file.as_deref(), environment(), self.settings).map_err(config::failure)?;
        bootstrap::check_empty(&config.data_dir).map_err(|error| folder_failure(&error))?;
        Ok(config)
    }
}

/// The state that the new cluster begins with.
pub struct FormerState {
    /// Id of the cluster that had it.
    pub cluster: ClusterId,
    /// The state, without the entry of the restore.
    pub ledger: Ledger,
    /// Opt-outs after that state.
    pub opt_outs: StreamedOptOuts,
}

/// Applies the restore, and writes the folder, which [`NewNodeArgs::load`] has checked.
pub async fn found(
    context: &CommandContext<'_>,
    config: Config,
    former: FormerState,
    files: impl StateFiles + Send + 'static,
) -> Result<(), Stop> {
    let mut contexts = Contexts::read()?;
    let FormerState { cluster: former_cluster, mut ledger, opt_outs } = former;
    let token = TokenText::generate();
    let last = (ledger.head().applied, ledger.head().now);
    apply(&mut ledger, former_cluster, &token)?;
    let opted_out = backup::apply_opt_outs(&mut ledger, &opt_outs.changes);
    if let Some(broken) = violations(&ledger).first() {
        let message = format!("nothing was written: the restored state breaks a rule: {broken}");
        return Err(Failure::general(message, "report it, with the backup").into());
    }
    let (node, tls) = bootstrap::begin_restore(&config.data_dir).map_err(|error| folder_failure(&error))?;
    let (name, address) = (config.name.clone(), config.advertise.clone());
    let member = Member { name, address, votes: true, key: Some(tls.pin()) };
    let (data_dir, state) = (config.data_dir.clone(), ledger.clone());
    let written = aside(context, move |work| backup::write_folder(&data_dir, (node, &member), &state, &files, work));
    let LostFiles { archive, parts } = written.await?.map_err(failure)?;
    let in_use = contexts.current.clone();
    let stored = if config.insecure { None } else { Some(store(&mut contexts, &config, &tls, &token)?) };
    bootstrap::finish_restore(&config.data_dir).map_err(|error| folder_failure(&error))?;
    if let Some(written) = &opt_outs.written {
        context.terminal.say(&format!("opt-outs until {written} are in force again"));
    }
    let in_doubt: u64 = ledger.claims().iter().map(|(_, claim)| u64::from(claim.in_doubt.len())).sum();
    let (cluster, folder) = (tls.authority().cluster().to_string(), config.data_dir.display().to_string());
    let (index, ledger_time) = (last.0, backup::time_text(last.1));
    let age_ms = now().since_ms(last.1).max(0);
    let (name, address) = (config.name, config.advertise);
    let own = json!({
        "cluster": cluster,
        "node": name,
        "address": address,
        "folder": folder,
        // Null if clients need none.
        "context": stored,
        "formerCluster": former_cluster.to_string(),
        "index": index,
        "ledgerTime": ledger_time,
        "age": api_json::of(&duration_to_wire(SignedDuration::from_millis(age_ms))),
        // Recipients whose opt-out changed after that state, and is in force again.
        "optOuts": opted_out,
        "inDoubt": in_doubt,
        "lostArchiveBlocks": archive,
        "lostAudienceParts": parts,
    });
    let (age, changes) = (format::duration(age_ms), format::counted(opted_out, "change"));
    let mut lines = vec![
        format!("cluster {cluster} of node {name} at {address} in {folder}"),
        format!("from entry {index} of {ledger_time}, {age} ago; {changes} of opt-outs after it are in force"),
        format!("{} in doubt, and held until you decide", format::counted(in_doubt, "email")),
    ];
    if archive + parts > 0 {
        let (blocks, parts) = (format::counted(archive, "block"), format::counted(parts, "audience part"));
        lines.push(format!("lost: {blocks} of the archive, {parts}; runs that need these parts cannot send"));
    }
    context.terminal.show(&Answer::new(&Own(own), cluster, lines.join("\n")))?;
    if stored.is_some() {
        say_in_use(context, &contexts, in_use.as_deref());
    }
    context.terminal.say("what the former cluster did after that is not known here, and nothing is sent yet");
    context.terminal.say("next: reveille start with the same settings; then reveille restore status");
    Ok(())
}

fn apply(ledger: &mut Ledger, ClusterId(former_cluster): ClusterId, token: &TokenText) -> Result<(), Failure> {
    let grant = first_token::grant(token.hash());
    let command = Command::Restore(Box::new(Restore { former_cluster, token: token.id, grant }));
    // Drawn, so that two restores of one backup, such as a drill and a real one, never give out the same ids.
    let ahead = ledger.limits().restore_ahead;
    let index = ledger.head().applied + ahead + uuid::Uuid::new_v4().as_u64_pair().1 % ahead;
    let entry = Entry { epoch: Epoch(0), now: now(), actor: Actor::System, command };
    match ledger.apply(index, &entry).reply.outcome {
        CommandOutcome::Done => Ok(()),
        outcome => {
            let message = format!("nothing was written: the state cannot be restored: {outcome:?}");
            Err(Failure::general(message, "check the clock of this machine; else report it"))
        }
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn folder_failure(error: &BootstrapError) -> Failure {
    Failure::new(Exit::General, "DATA_FOLDER", error.to_string(), "give an empty folder with --data-dir")
}

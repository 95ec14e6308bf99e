//! Implements `reveille restore …`.

use clap::{Args, Subcommand};
use reveille_proto::admin::v1::{AcceptRestoreRequest, GetRestoreRequest, GetRestoreResponse, Restore};

use super::restore_run::RestoreRunArgs;
use super::{CommandContext, Failure, Seen, Stop, View, Watch, format, restore_run};
use crate::cli::instant::text;
use crate::cli::view::layout::{Cell, Tone, card, table};

#[derive(Debug, Subcommand)]
pub enum RestoreCommand {
    /// Make a new cluster of a backup: write the data folder of its first node; offline
    ///
    /// The new cluster has other ids, keys and tokens than the former one, and sends nothing until `restore accept`.
    /// Every file is checked before anything is written, and the folder must be empty. Opt-outs that the target has
    /// from after the backup are in force.
    #[command(after_long_help = "\
Example:
  reveille restore run --from /mnt/backups --config /etc/reveille/reveille.toml

Next: reveille start with the same settings, then reveille restore status")]
    Run(Box<RestoreRunArgs>),
    /// What is in doubt since the backup, and what fires next
    #[command(after_long_help = "\
Example:
  reveille restore status

Pause or delete what the former cluster had paused, deleted or changed after the backup: it is unknown here.")]
    Status(Watch),
    /// Let the restored cluster send
    ///
    /// Instants up to now are explained and never fire by themselves, since the former cluster may have sent them. What
    /// is in doubt stays so until you decide.
    #[command(after_long_help = "\
Example:
  reveille restore accept --former-cluster-is-dead

While a node of the former cluster runs, both clusters send: stop each of them for good first.")]
    Accept(AcceptArgs),
}

/// `restore accept`.
#[derive(Debug, Args)]
pub struct AcceptArgs {
    /// No node of the former cluster runs, and none ever will
    #[arg(long, required = true)]
    pub former_cluster_is_dead: bool,
}

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: RestoreCommand) -> Result<(), Stop> {
    match command {
        RestoreCommand::Run(args) => Box::pin(restore_run::run(context, *args)).await,
        RestoreCommand::Status(watch) => context.one(watch, async || status(context).await).await,
        RestoreCommand::Accept(args) => accept(context, args).await,
    }
}

async fn status(context: &CommandContext<'_>) -> Result<Seen<GetRestoreResponse>, Failure> {
    let mut view = context.read(GetRestoreRequest { stale: context.stale }).await?;
    let freshness = view.freshness.take();
    let held = view.restore.as_ref().is_some_and(|restore| restore.accept_time.is_none());
    let doubts = (view.in_doubt > 0).then(|| {
        "next: reveille in-doubt settle FILE reads the relay's log; reveille in-doubt list, with \
             --tenant NAME for each other tenant"
            .to_owned()
    });
    let accept = held.then(|| {
        "pause what must not fire; then, with the former cluster stopped for good: reveille restore accept \
         --former-cluster-is-dead"
            .to_owned()
    });
    Ok(Seen { view, freshness, remarks: doubts.into_iter().chain(accept).collect() })
}

async fn accept(context: &CommandContext<'_>, args: AcceptArgs) -> Result<(), Stop> {
    let seen = status(context).await?.view;
    let doubts = format::counted(seen.in_doubt, "email");
    context.confirm(&format!(
        "Let this cluster send? What the former cluster did after the backup is unknown: {doubts} in doubt stay so until \
         you decide, and schedules fire as they stand here."
    )).await?;
    let request = AcceptRestoreRequest { former_cluster_is_dead: args.former_cluster_is_dead };
    let answer = context.change(request).await?;
    context.terminal.answer(&answer, answer.restore.as_ref())
}

fn pairs(restore: &Restore) -> Vec<(&'static str, Cell)> {
    let accepted = match &restore.accept_time {
        Some(at) => Cell::at(Some(at)),
        None => Cell::toned("no: nothing is sent before reveille restore accept", Tone::Bad),
    };
    vec![
        ("backup of", Cell::at(restore.backup_time.as_ref())),
        ("restored", Cell::at(restore.restore_time.as_ref())),
        ("accepted", accepted),
    ]
}

impl View for Restore {
    fn name(&self) -> String {
        text(self.restore_time.as_ref()).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        card(pairs(self), paint)
    }
}

/// `restore` is missing if the cluster was never restored.
impl View for GetRestoreResponse {
    fn name(&self) -> String {
        self.restore.as_ref().map(View::name).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let Some(restore) = &self.restore else { return "this cluster was never restored from a backup".to_owned() };
        let mut pairs = pairs(restore);
        pairs.push(("in doubt", format::counted(self.in_doubt, "email").into()));
        pairs.push(("schedules", format!("{} active", format::count(self.active_schedules)).into()));
        let rows = self
            .upcoming
            .iter()
            .map(|one| vec![Cell::at(one.due_time.as_ref()), one.tenant.as_str().into(), one.schedule.as_str().into()]);
        let rows: Vec<Vec<Cell>> = rows.collect();
        if rows.is_empty() {
            return card(pairs, paint);
        }
        format!("{}\n\n{}", card(pairs, paint), table(&["NEXT", "TENANT", "SCHEDULE"], rows, paint))
    }
}

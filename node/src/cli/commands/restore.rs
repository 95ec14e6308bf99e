//! Implements `reveille restore …`.

use reveille_proto::admin::v1::{AcceptRestoreRequest, GetRestoreRequest, GetRestoreResponse};

use super::{AcceptArgs, CommandContext, Failure, RestoreCommand, Seen, Stop, format, restore_run};

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
    context.terminal.confirm(&format!(
        "Let this cluster send? What the former cluster did after the backup is unknown: {doubts} in doubt stay so until \
         you decide, and schedules fire as they stand here."
    ))?;
    let request = AcceptRestoreRequest { former_cluster_is_dead: args.former_cluster_is_dead };
    let answer = context.change(request).await?;
    context.terminal.answer(&answer, answer.restore.as_ref())
}

//! Implements `reveille cluster ca …`.

use std::time::Duration;

use reveille_proto::admin::v1::{AbortRotationRequest, Authority, GetAuthorityRequest, RotateAuthorityRequest};
use tokio::time::{Instant, sleep};

use super::{CaCommand, CommandContext, Exit, Failure, Seen, Stop, WITHIN};
use crate::cli::view::authority::{doing, is_rotating, late, remarks};

/// Pause between two requests of a rotation.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: CaCommand) -> Result<(), Stop> {
    match command {
        CaCommand::Status(watch) => context.one(watch, async || status(context).await).await,
        CaCommand::Rotate => rotate(context).await,
        CaCommand::Abort => abort(context).await,
    }
}

async fn status(context: &CommandContext<'_>) -> Result<Seen<Authority>, Failure> {
    let view = context.read(GetAuthorityRequest {}).await?.authority.unwrap_or_default();
    Ok(Seen { remarks: remarks(&view), view, freshness: None })
}

/// Repeats the request until no member is waited for.
async fn rotate(context: &CommandContext<'_>) -> Result<(), Stop> {
    let before = status(context).await?.view;
    if !is_rotating(&before) {
        context.terminal.confirm(&format!(
            "Replace the certificate authority {}? Join tokens that were not used end.",
            before.fingerprint
        ))?;
    }
    let until = Instant::now() + context.global.timeout.unwrap_or(WITHIN);
    let mut said = "";
    loop {
        context.client.set_timeout(WITHIN);
        let (replaces, request_id) = (before.fingerprint.clone(), context.client.request_id().to_owned());
        let answer = context.change(RotateAuthorityRequest { replaces, request_id }).await?;
        let now = answer.authority.clone().unwrap_or_default();
        if now.fingerprint != before.fingerprint && !is_rotating(&now) && now.waits_for.is_empty() {
            // At a new handshake the node shows the new authority, and the context stores it. If that fails, the next
            // command does it.
            context.client.disconnect();
            let _ = status(context).await;
            return context.terminal.answer(&answer, Some(&now));
        }
        if said != doing(&now) {
            said = doing(&now);
            context.terminal.say(said);
        }
        if Instant::now() >= until {
            return Err(waits(&now).into());
        }
        sleep(ASK_EVERY).await;
    }
}

fn waits(now: &Authority) -> Failure {
    let late: Vec<String> = now.waits_for.iter().map(late).collect();
    let message = format!("the rotation waits: {}", late.join("; "));
    let next = "start these members, or remove them: reveille cluster member remove NAME --dead; then the same command \
                goes on";
    Failure::new(Exit::General, "ROTATION_WAITS", message, next)
}

async fn abort(context: &CommandContext<'_>) -> Result<(), Stop> {
    let request = AbortRotationRequest { request_id: context.client.request_id().to_owned() };
    let answer = context.change(request).await?;
    context.terminal.answer(&answer, answer.authority.as_ref())
}

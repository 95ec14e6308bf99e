//! Implements `reveille cluster ca …`.

use std::time::Duration;

use clap::Subcommand;
use reveille_proto::admin::v1::{
    AbortRotationRequest, Authority, AuthorityWait, AuthorityWaitReason, GetAuthorityRequest, RotateAuthorityRequest,
    RotationStep,
};
use tokio::time::{Instant, sleep};

use crate::api_json::word;
use crate::cli::commands::{CommandContext, Exit, Failure, Seen, Stop, View, WITHIN, Watch, time_limit};
use crate::cli::view::layout::{Cell, card};
use crate::cli::view::some;

/// The certificate authority of the cluster.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// The authority, and how far its rotation is
    #[command(after_long_help = "Examples:\n  reveille cluster ca status\n  reveille cluster ca status -o json")]
    Status(Watch),
    /// Replace the authority by a new one, without a restart
    ///
    /// Use it when another may have its key, for example after a machine was stolen: remove that member first. All
    /// members must run. First each trusts the new authority too, then each uses it, and then each forgets the former
    /// one. If the command is interrupted, give it again: it goes on. Join tokens that were not used end.
    #[command(after_long_help = "\
Examples:
  reveille cluster ca rotate
  reveille cluster ca rotate --yes --timeout 5m

A context learns the new authority at its next command. One that missed two rotations: reveille login")]
    Rotate,
    /// End a rotation, if no member uses the new authority yet
    #[command(after_long_help = "Example:\n  reveille cluster ca abort")]
    Abort,
}

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
        context
            .confirm(&format!(
                "Replace the certificate authority {}? Join tokens that were not used end.",
                before.fingerprint
            ))
            .await?;
    }
    let until = Instant::now() + time_limit(context.global);
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

/// Returns what the members do now.
fn doing(authority: &Authority) -> &'static str {
    match authority.step() {
        RotationStep::Adding => "members trust the new authority too",
        RotationStep::Using => "members use the new authority",
        RotationStep::Unspecified => "members forget the former authority",
    }
}

/// True while a rotation is under way.
fn is_rotating(authority: &Authority) -> bool {
    authority.step() != RotationStep::Unspecified
}

/// Says why a rotation waits for a member.
fn late(wait: &AuthorityWait) -> String {
    let why = match wait.reason() {
        AuthorityWaitReason::Silent => "does not answer",
        AuthorityWaitReason::TrustsFormer => "does not trust the new authority yet",
        AuthorityWaitReason::UsesFormer => "does not use the new authority yet",
        AuthorityWaitReason::KnowsOther => "has not forgotten another authority yet",
        AuthorityWaitReason::Unspecified => "is not ready",
    };
    format!("{} {why}", wait.member)
}

/// Returns the members that are not there, and the next command.
fn remarks(authority: &Authority) -> Vec<String> {
    let next = is_rotating(authority).then(|| "a rotation is under way; next: reveille cluster ca rotate".to_owned());
    authority.waits_for.iter().map(late).chain(next).collect()
}

impl View for Authority {
    const NAME: &'static str = "fingerprint";

    fn text(&self, paint: bool) -> String {
        let mut lines = vec![("authority", Cell::from(self.fingerprint.as_str()))];
        lines.extend(some(&self.next_fingerprint).map(|next| ("next", next.into())));
        lines.extend(is_rotating(self).then(|| ("step", word(self.step().as_str_name()).into())));
        card(lines, paint)
    }
}

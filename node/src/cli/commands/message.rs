//! `reveille message …`: sends one email under a key, shows it, cancels it.

use reveille_proto::admin::v1::{CancelMessageRequest, GetMessageRequest, KeyRule, Policies, SendMessageRequest};

use super::schedule::body;
use super::{CHECKED, CommandContext, MessageCommand, OfTenant, SendMessageArgs, Stop, duration_to_wire, to_wire};
use crate::cli::view::barrier::sentence;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<MessageCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        MessageCommand::Send(args) => send(context, tenant, *args).await,
        MessageCommand::Show { key, watch } => {
            let request = GetMessageRequest { tenant, key, stale: context.stale };
            context.show(watch, request, |answer| (answer.freshness, answer.message)).await
        }
        MessageCommand::Cancel { key, dry_run } => {
            cancel(context, CancelMessageRequest { tenant, key, validate_only: dry_run }).await
        }
    }
}

/// The rule that a flag `--first-wins` chooses.
pub(super) fn key_rule(first_wins: bool) -> i32 {
    if first_wins { KeyRule::FirstWins.into() } else { KeyRule::Strict.into() }
}

async fn send(context: &CommandContext<'_>, tenant: String, args: SendMessageArgs) -> Result<(), Stop> {
    let SendMessageArgs { key, to, at, first_wins, finish_by, pool, priority, dry_run, content } = args;
    let template = content.template.clone().unwrap_or_default();
    let request = SendMessageRequest {
        tenant,
        key,
        template,
        key_rule: key_rule(first_wins),
        content: body::content(content)?,
        to,
        send_time: at.map(to_wire),
        pool,
        priority: priority.into(),
        policies: Some(Policies { finish_by: finish_by.map(duration_to_wire), ..Policies::default() }),
        validate_only: dry_run,
        ..SendMessageRequest::default()
    };
    let answer = context.change(request).await?;
    context.warn(&answer.warnings, None);
    context.terminal.answer(&answer, answer.message.as_ref())?;
    context.terminal.say(match (dry_run, answer.replayed) {
        (true, _) => CHECKED,
        (false, true) => "an earlier call with this key sent it; nothing more is sent",
        (false, false) => "taken: it is on its way, or waits for its instant",
    });
    Ok(())
}

async fn cancel(context: &CommandContext<'_>, request: CancelMessageRequest) -> Result<(), Stop> {
    let dry_run = request.validate_only;
    let question = format!("Cancel what message {} has not sent? It is never sent then.", request.key);
    context.confirm_unless(dry_run, &question)?;
    let answer = context.change(request).await?;
    if !dry_run {
        context.terminal.say(&format!("cancelled: {}", sentence(answer.barrier.as_ref())));
    }
    context.answer(&answer, answer.message.as_ref(), dry_run)
}

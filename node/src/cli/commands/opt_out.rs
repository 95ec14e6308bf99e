//! Implements `reveille optout …`.

use reveille_proto::admin::v1::{
    AddOptOutRequest, CheckOptOutRequest, CheckOptOutResponse, ListOptOutsRequest, TakeBackOptOutRequest,
};

use super::export::export;
use super::{Answer, CommandContext, OfTenant, OptOutCommand, Stop, Watch, suppress};
use crate::cli::view::barrier::sentence;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<OptOutCommand>) -> Result<(), Stop> {
    let OfTenant { tenant, command } = args;
    match command {
        OptOutCommand::Add { recipient } => add(context, tenant, recipient).await,
        OptOutCommand::Remove { recipient, reason, dry_run } => {
            let (validate_only, etag) = (dry_run, String::new());
            take_back(context, TakeBackOptOutRequest { tenant, recipient, reason, validate_only, etag }).await
        }
        OptOutCommand::Check { recipient } => {
            let request = CheckOptOutRequest { tenant, recipient, stale: context.stale };
            let take = |mut answer: CheckOptOutResponse| (answer.freshness.take(), Some(answer));
            context.show(Watch { watch: false }, request, take).await
        }
        OptOutCommand::List { paging } => {
            context.list_of(paging, ListOptOutsRequest { tenant, ..ListOptOutsRequest::default() }).await
        }
        OptOutCommand::Export { file, format } => {
            let request = ListOptOutsRequest { tenant, ..ListOptOutsRequest::default() };
            export(context, (file, format), "opt-out", request).await
        }
        OptOutCommand::Import { file, dry_run } => suppress::run(context, tenant, &file, dry_run).await,
    }
}

async fn add(context: &CommandContext<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    let request = AddOptOutRequest { tenant, recipient, request_id: context.client.request_id().to_owned() };
    let answer = context.change(request).await?;
    let words = format!("{} opted out: {}", answer.recipient, sentence(answer.barrier.as_ref()));
    context.terminal.show(&Answer::new(&answer, answer.recipient.as_str(), words))
}

async fn take_back(context: &CommandContext<'_>, request: TakeBackOptOutRequest) -> Result<(), Stop> {
    let dry_run = request.validate_only;
    let preview_request = TakeBackOptOutRequest { validate_only: true, ..request.clone() };
    let preview = context.read(preview_request).await?;
    let is_done = preview.taken_back.is_some();
    if dry_run || is_done {
        context.terminal.show(&preview)?;
        context.checked(dry_run);
        return Ok(());
    }
    let (recipient, tenant) = (&preview.recipient, &request.tenant);
    context.terminal.confirm(&format!("Send mail of tenant {tenant} to {recipient} again? It has opted out."))?;
    // With the etag a repeat does not take back a new opt-out.
    let answer = context.change(TakeBackOptOutRequest { etag: preview.etag, ..request }).await?;
    context.terminal.show(&answer)
}

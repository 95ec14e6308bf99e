//! Implements `reveille optout …`.

use reveille_proto::admin::v1::opt_out_service_client::OptOutServiceClient as Service;
use reveille_proto::admin::v1::{AddOptOutRequest, CheckOptOutRequest, ListOptOutsRequest, TakeBackOptOutRequest};

use super::export::export;
use super::{CommandContext, Page, suppress};
use crate::cli::args::{OptOutArgs, OptOutCommand};
use crate::cli::client::{Client, RetrySafety};
use crate::cli::failure::{Failure, Stop};
use crate::cli::view::opt_out::{OptOutCheckView, OptOutView, OptedOutView, TakenBackView};

/// Runs the subcommand.
pub async fn run(desk: &CommandContext<'_>, args: OptOutArgs) -> Result<(), Stop> {
    let OptOutArgs { tenant, command } = args;
    match command {
        OptOutCommand::Add { recipient } => add(desk, tenant, recipient).await,
        OptOutCommand::Remove { recipient, reason, dry_run } => {
            take_back(desk, TakeBackOptOutRequest { tenant, recipient, reason, validate_only: dry_run }).await
        }
        OptOutCommand::Check { recipient } => check(desk, tenant, recipient).await,
        OptOutCommand::List { paging } => {
            let question = ListOptOutsRequest { tenant, stale: desk.stale, ..ListOptOutsRequest::default() };
            desk.list(paging, |page_size, page_token| {
                page(&desk.client, ListOptOutsRequest { page_size, page_token, ..question.clone() })
            })
            .await
        }
        OptOutCommand::Export { file, format } => {
            let client = desk.patient_client();
            let question = ListOptOutsRequest { tenant, stale: desk.stale, ..ListOptOutsRequest::default() };
            export(desk, (file, format), |page_size, page_token| {
                page(&client, ListOptOutsRequest { page_size, page_token, ..question.clone() })
            })
            .await
        }
        OptOutCommand::Import { file, dry_run } => suppress::run(desk, tenant, &file, dry_run).await,
    }
}

async fn add(desk: &CommandContext<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    let question = AddOptOutRequest { tenant, recipient, request_id: desk.client.request_id().to_owned() };
    let call = |channel, question| async move { Service::new(channel).add_opt_out(question).await };
    let answer = desk.change(question, call).await?;
    desk.terminal.show(&OptedOutView::from(answer))
}

async fn take_back(desk: &CommandContext<'_>, question: TakeBackOptOutRequest) -> Result<(), Stop> {
    let dry_run = question.validate_only;
    let call = |channel, question| async move { Service::new(channel).take_back_opt_out(question).await };
    let look = TakeBackOptOutRequest { validate_only: true, ..question.clone() };
    let looked = desk.client.ask(RetrySafety::Read, look, call).await?;
    let is_done = looked.taken_back.is_some();
    if dry_run || is_done {
        desk.terminal.show(&TakenBackView::from(looked))?;
        desk.checked(dry_run);
        return Ok(());
    }
    let (recipient, tenant) = (&looked.recipient, &question.tenant);
    desk.terminal.confirm(&format!("Send mail of tenant {tenant} to {recipient} again? It has opted out."))?;
    let answer = desk.client.ask(RetrySafety::Once, question, call).await?;
    desk.terminal.show(&TakenBackView::from(answer))
}

async fn check(desk: &CommandContext<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    let question = CheckOptOutRequest { tenant, recipient, stale: desk.stale };
    let call = |channel, question| async move { Service::new(channel).check_opt_out(question).await };
    let answer = desk.client.ask(RetrySafety::Read, question, call).await?;
    desk.note(answer.freshness.as_ref());
    desk.terminal.show(&OptOutCheckView::from(answer))
}

async fn page(client: &Client, question: ListOptOutsRequest) -> Result<Page<OptOutView>, Failure> {
    let call = |channel, question| async move { Service::new(channel).list_opt_outs(question).await };
    let answer = client.ask(RetrySafety::Read, question, call).await?;
    let rows = answer.opt_outs.into_iter().map(OptOutView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

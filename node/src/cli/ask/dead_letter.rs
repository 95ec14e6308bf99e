//! `reveille dead-letter …`.

use reveille_proto::admin::v1::dead_letter_service_client::DeadLetterServiceClient as Service;
use reveille_proto::admin::v1::{DiscardDeadLettersRequest, ListDeadLettersRequest, RequeueDeadLettersRequest};

use super::{Desk, Page, whom};
use crate::cli::args::{DeadLetterArgs, DeadLetterCommand, Picked};
use crate::cli::client::Nature;
use crate::cli::failure::{Failure, Stop};
use crate::cli::view::dead_letter::DeadLetterView;
use crate::cli::view::moved::MovedView;

/// Does what the verb says.
pub async fn run(desk: &Desk<'_>, args: DeadLetterArgs) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        DeadLetterCommand::List { paging, run } => {
            let run = run.unwrap_or_default();
            let question =
                ListDeadLettersRequest { tenant, run, stale: desk.stale, ..ListDeadLettersRequest::default() };
            desk.list(paging, |page_size, page_token| {
                page(desk, ListDeadLettersRequest { page_size, page_token, ..question.clone() })
            })
            .await
        }
        DeadLetterCommand::Requeue(picked) => requeue(desk, tenant, picked).await,
        DeadLetterCommand::Discard(picked) => discard(desk, tenant, picked).await,
    }
}

async fn page(desk: &Desk<'_>, question: ListDeadLettersRequest) -> Result<Page<DeadLetterView>, Failure> {
    let call = |channel, question| async move { Service::new(channel).list_dead_letters(question).await };
    let answer = desk.client.ask(Nature::Read, question, call).await?;
    let rows = answer.dead_letters.into_iter().map(DeadLetterView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

async fn requeue(desk: &Desk<'_>, tenant: String, picked: Picked) -> Result<(), Stop> {
    desk.terminal.detail(&format!("again: {}", whom(&picked)?));
    let (run, recipients, all) = (picked.run.clone(), picked.recipients.clone(), picked.all);
    let question = RequeueDeadLettersRequest { tenant, run: run.clone(), recipients, all };
    let call = |channel, question| async move { Service::new(channel).requeue_dead_letters(question).await };
    let answer = desk.client.ask(Nature::Once, question, call).await?;
    desk.moved(&picked, &MovedView { run, verb: "requeued", moved: answer.requeued, index: answer.index })
}

async fn discard(desk: &Desk<'_>, tenant: String, picked: Picked) -> Result<(), Stop> {
    desk.terminal.confirm(&format!("Take off the list for good: {}?", whom(&picked)?))?;
    let (run, recipients, all) = (picked.run.clone(), picked.recipients.clone(), picked.all);
    let question = DiscardDeadLettersRequest { tenant, run: run.clone(), recipients, all };
    let call = |channel, question| async move { Service::new(channel).discard_dead_letters(question).await };
    let answer = desk.client.ask(Nature::Once, question, call).await?;
    desk.moved(&picked, &MovedView { run, verb: "discarded", moved: answer.discarded, index: answer.index })
}

//! Implements `reveille recipient …`.

use reveille_proto::admin::v1::{EraseRecipientRequest, FindRecipientRequest};

use super::export::export;
use super::{CommandContext, WITHIN};
use crate::cli::args::{ExportFormat, PersonArgs, PersonCommand};
use crate::cli::client::RetrySafety;
use crate::cli::failure::Stop;
use crate::cli::view::recipient::{ErasedView, RecipientPlaceView};

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: PersonArgs) -> Result<(), Stop> {
    let PersonArgs { tenant, command } = args;
    let find = |recipient, with_events| FindRecipientRequest {
        tenant: tenant.clone(),
        recipient,
        with_events,
        ..FindRecipientRequest::default()
    };
    match command {
        PersonCommand::Find { recipient, paging } => {
            let request = find(recipient, false);
            context
                .list(paging, |size, token| context.page::<RecipientPlaceView, _>(request.clone(), size, token))
                .await
        }
        PersonCommand::Export { recipient, file } => {
            export::<RecipientPlaceView, _>(context, (file, ExportFormat::Jsonl), find(recipient, true)).await
        }
        PersonCommand::Erase { recipient } => erase(context, tenant, recipient).await,
    }
}

async fn erase(context: &CommandContext<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    context
        .terminal
        .confirm(&format!("Erase {recipient} from all lists of tenant {tenant}? This cannot be undone."))?;
    let client = context.retrying_client();
    let mut request = EraseRecipientRequest { tenant, recipient, page_token: String::new() };
    let mut view = ErasedView { recipient: request.recipient.clone(), ..ErasedView::default() };
    loop {
        client.give(WITHIN);
        let answer = client.ask(RetrySafety::Repeatable, request.clone()).await?;
        let next = answer.next_page_token.clone();
        view.take(answer);
        if next.is_empty() {
            return context.terminal.show(&view);
        }
        request.page_token = next;
    }
}

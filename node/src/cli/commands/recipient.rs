//! Implements `reveille recipient …`.

use reveille_proto::admin::v1::{EraseRecipientRequest, EraseRecipientResponse, FindRecipientRequest};

use super::export::export;
use super::{Answer, CommandContext, ExportFormat, OfTenant, PersonCommand, RetrySafety, Stop, WITHIN};
use crate::cli::view::recipient::{add, erased};

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<PersonCommand>) -> Result<(), Stop> {
    let OfTenant { tenant, command } = args;
    let find = |recipient, with_events| FindRecipientRequest {
        tenant: tenant.clone(),
        recipient,
        with_events,
        ..FindRecipientRequest::default()
    };
    match command {
        PersonCommand::Find { recipient, paging } => context.list_of(paging, find(recipient, false)).await,
        PersonCommand::Export { recipient, file } => {
            export(context, (file, ExportFormat::Jsonl), "place", find(recipient, true)).await
        }
        PersonCommand::Erase { recipient } => erase(context, tenant, recipient).await,
    }
}

async fn erase(context: &CommandContext<'_>, tenant: String, recipient: String) -> Result<(), Stop> {
    let question = format!("Erase {recipient} from all lists of tenant {tenant}? This cannot be undone.");
    context.terminal.confirm(&question)?;
    let client = context.retrying_client();
    let mut request = EraseRecipientRequest { tenant, recipient, page_token: String::new() };
    let mut sum = EraseRecipientResponse::default();
    loop {
        client.set_timeout(WITHIN);
        let answer = client.ask(RetrySafety::Repeatable, request.clone()).await?;
        let next = answer.next_page_token.clone();
        add(&mut sum, answer);
        if next.is_empty() {
            let words = erased(&request.recipient, &sum);
            return context.terminal.show(&Answer::new(&sum, request.recipient, words));
        }
        request.page_token = next;
    }
}

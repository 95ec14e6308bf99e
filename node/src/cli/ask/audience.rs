//! Implements `reveille audience …`.

use std::time::Duration;

use reveille_proto::admin::v1::audience_service_client::AudienceServiceClient as Service;
use reveille_proto::admin::v1::{
    DeleteAudienceRequest, GenerateAudienceRequest, GetAudienceRequest, ListAudiencesRequest,
};
use tokio::time::{Instant, timeout};

use super::{Desk, Page, upload};
use crate::cli::args::{AudienceArgs, AudienceCommand, Format, GenerateArgs};
use crate::cli::client::{Nature, is_passing};
use crate::cli::failure::{Exit, Failure, Stop};
use crate::cli::view::audience::AudienceView;
use crate::cli::view::relay::RemovedView;
use crate::format;

/// Interval of progress lines.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Runs the subcommand.
pub async fn run(desk: &Desk<'_>, args: AudienceArgs) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        AudienceCommand::Import(args) => Box::pin(upload::run(desk, tenant, args)).await,
        AudienceCommand::Generate(args) => generate(desk, tenant, args).await,
        AudienceCommand::List(paging) => desk.list(paging, |size, token| page(desk, tenant.clone(), size, token)).await,
        AudienceCommand::Show { name } => show(desk, tenant, name).await,
        AudienceCommand::Delete { name, dry_run } => {
            delete(desk, DeleteAudienceRequest { tenant, name, validate_only: dry_run }).await
        }
    }
}

async fn generate(desk: &Desk<'_>, tenant: String, args: GenerateArgs) -> Result<(), Stop> {
    let name = args.name.clone();
    let Some(within) = desk.global.timeout else { return write(desk, tenant, args).await };
    let Ok(result) = timeout(within, write(desk, tenant, args)).await else {
        return Err(cut_short(&name, "the time is over").into());
    };
    result
}

/// Asks one node, which lets all members write the parts. The request may be repeated: a part that exists is not
/// written again.
async fn write(desk: &Desk<'_>, tenant: String, args: GenerateArgs) -> Result<(), Stop> {
    let GenerateArgs { name, recipients, seed, columns } = args;
    let request_id = desk.client.request_id().to_owned();
    let question = GenerateAudienceRequest { tenant, name: name.clone(), recipients, seed, columns, request_id };
    let call = |channel, question| async move { Service::new(channel).generate_audience(question).await };
    let client = desk.patient_client();
    let mut stream = client.ask(Nature::Repeatable, question, call).await?;
    let mut said = Instant::now();
    loop {
        match stream.message().await {
            Ok(Some(word)) => {
                if let Some(audience) = word.audience {
                    return desk.terminal.show(&AudienceView::from(audience));
                }
                // With `-o json`, stderr holds only the error object.
                if said.elapsed() >= SAY_EVERY && desk.terminal.format() == Format::Table {
                    said = Instant::now();
                    let parts = format::counted(word.parts.into(), "part");
                    desk.terminal.say(&format!("{} of {parts} on a majority", word.written));
                }
            }
            Ok(None) => return Err(cut_short(&name, "the node ended before its last word").into()),
            Err(status) if is_passing(&status) => return Err(cut_short(&name, status.message()).into()),
            Err(status) => return Err(Failure::of_status(&status).into()),
        }
    }
}

fn cut_short(name: &str, cause: &str) -> Failure {
    Failure {
        exit: Exit::TimedOut,
        reason: "ANSWER_LOST".into(),
        message: format!("{cause}; the audience may be sealed or not"),
        next: Some(format!("reveille audience show {name}; if it is not there, the same command again")),
        ..Failure::default()
    }
}

async fn page(
    desk: &Desk<'_>,
    tenant: String,
    page_size: i32,
    page_token: String,
) -> Result<Page<AudienceView>, Failure> {
    let question = ListAudiencesRequest { tenant, page_size, page_token, stale: desk.stale };
    let call = |channel, question| async move { Service::new(channel).list_audiences(question).await };
    let answer = desk.client.ask(Nature::Read, question, call).await?;
    let rows = answer.audiences.into_iter().map(AudienceView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

async fn show(desk: &Desk<'_>, tenant: String, name: String) -> Result<(), Stop> {
    let question = GetAudienceRequest { tenant, name, stale: desk.stale };
    let call = |channel, question| async move { Service::new(channel).get_audience(question).await };
    let answer = desk.client.ask(Nature::Read, question, call).await?;
    desk.note(answer.freshness.as_ref());
    desk.terminal.show(&AudienceView::from(answer.audience.unwrap_or_default()))
}

async fn delete(desk: &Desk<'_>, question: DeleteAudienceRequest) -> Result<(), Stop> {
    let (name, dry_run) = (question.name.clone(), question.validate_only);
    if !dry_run {
        desk.terminal.confirm(&format!("Delete audience {name}?"))?;
    }
    let call = |channel, question| async move { Service::new(channel).delete_audience(question).await };
    let answer = desk.client.ask(Nature::Repeatable, question, call).await?;
    desk.removed(RemovedView { name, index: answer.index, dry_run })
}

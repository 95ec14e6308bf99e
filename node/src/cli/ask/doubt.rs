//! `reveille in-doubt …`.

use reveille_proto::admin::v1::doubt_service_client::DoubtServiceClient as Service;
use reveille_proto::admin::v1::{GetDoubtRequest, ListDoubtsRequest, Resolution, ResolveDoubtsRequest};

use super::{Desk, Page, Seen, whom};
use crate::cli::args::{DoubtArgs, DoubtCommand, Picked, ResolveArgs};
use crate::cli::client::Nature;
use crate::cli::failure::{Failure, Stop};
use crate::cli::view::doubt::DoubtView;
use crate::cli::view::moved::MovedView;

/// Does what the verb says.
pub async fn run(desk: &Desk<'_>, args: DoubtArgs) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        DoubtCommand::List { paging, run } => {
            let run = run.unwrap_or_default();
            let question = ListDoubtsRequest { tenant, run, stale: desk.stale, ..ListDoubtsRequest::default() };
            desk.list(paging, |page_size, page_token| {
                page(desk, ListDoubtsRequest { page_size, page_token, ..question.clone() })
            })
            .await
        }
        DoubtCommand::Show { run, recipient, watch } => {
            let question = GetDoubtRequest { tenant, run, recipient, stale: desk.stale };
            desk.one(watch, async || get(desk, question.clone()).await).await
        }
        DoubtCommand::Resolve(args) => resolve(desk, tenant, args).await,
    }
}

async fn page(desk: &Desk<'_>, question: ListDoubtsRequest) -> Result<Page<DoubtView>, Failure> {
    let call = |channel, question| async move { Service::new(channel).list_doubts(question).await };
    let answer = desk.client.ask(Nature::Read, question, call).await?;
    let rows = answer.doubts.into_iter().map(DoubtView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

async fn get(desk: &Desk<'_>, question: GetDoubtRequest) -> Result<Seen<DoubtView>, Failure> {
    let call = |channel, question| async move { Service::new(channel).get_doubt(question).await };
    let answer = desk.client.ask(Nature::Read, question, call).await?;
    Ok(Seen::of(DoubtView::from(answer.doubt.unwrap_or_default()), answer.freshness))
}

/// Who of those that are named is in doubt; the others would be left as they are.
async fn would_resolve(desk: &Desk<'_>, tenant: String, picked: &Picked) -> Result<(), Stop> {
    whom(picked)?;
    let run = picked.run.clone();
    let question = ListDoubtsRequest { tenant, run, stale: desk.stale, ..ListDoubtsRequest::default() };
    let of_run = |page_size, page_token| page(desk, ListDoubtsRequest { page_size, page_token, ..question.clone() });
    let mut seen = desk.pages(u32::MAX, &of_run).await?;
    desk.note(seen.freshness.as_ref());
    seen.rows.retain(|row| picked.all || picked.recipients.iter().any(|named| row.is_of(named)));
    desk.terminal.list(&seen.rows)?;
    desk.checked(true);
    Ok(())
}

async fn resolve(desk: &Desk<'_>, tenant: String, args: ResolveArgs) -> Result<(), Stop> {
    let ResolveArgs { picked, resend, dry_run, .. } = args;
    if dry_run {
        return would_resolve(desk, tenant, &picked).await;
    }
    let resolution = if resend { Resolution::Resend } else { Resolution::Sent };
    let what = match resend {
        true => "Send again what may have arrived: it may come twice",
        false => "Take as sent what may never have arrived",
    };
    desk.terminal.confirm(&format!("{what} ({})?", whom(&picked)?))?;
    let question = ResolveDoubtsRequest {
        tenant,
        run: picked.run.clone(),
        recipients: picked.recipients.clone(),
        all: picked.all,
        resolution: resolution.into(),
    };
    let call = |channel, question| async move { Service::new(channel).resolve_doubts(question).await };
    let answer = desk.client.ask(Nature::Once, question, call).await?;
    let run = picked.run.clone();
    desk.moved(&picked, &MovedView { run, verb: "resolved", moved: answer.resolved, index: answer.index })
}

//! Implements `reveille in-doubt …`.

use reveille_proto::admin::v1::{DoubtGroup, GetDoubtRequest, ListDoubtsRequest, Resolution, ResolveDoubtsRequest};

use super::{CommandContext, Seen, selection};
use crate::cli::args::{DoubtArgs, DoubtCommand, Format, ResolveArgs};
use crate::cli::client::RetrySafety;
use crate::cli::failure::{Exit, Failure, Stop};
use crate::cli::view::doubt::{DoubtView, GroupView};
use crate::cli::view::moved::MovedView;
use crate::format;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: DoubtArgs) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        DoubtCommand::List { paging, run } => {
            let run = run.unwrap_or_default();
            let request = ListDoubtsRequest { tenant, run, ..ListDoubtsRequest::default() };
            context.list(paging, |size, token| context.page::<DoubtView, _>(request.clone(), size, token)).await
        }
        DoubtCommand::Show { run, recipient, watch } => {
            let request = GetDoubtRequest { tenant, run, recipient, stale: context.stale };
            context.one(watch, async || get(context, request.clone()).await).await
        }
        DoubtCommand::Resolve(args) => resolve(context, tenant, args).await,
    }
}

async fn get(context: &CommandContext<'_>, request: GetDoubtRequest) -> Result<Seen<DoubtView>, Failure> {
    let answer = context.client.ask(RetrySafety::Read, request).await?;
    Ok(Seen::of(DoubtView::from(answer.doubt.unwrap_or_default()), answer.freshness))
}

async fn resolve(context: &CommandContext<'_>, tenant: String, args: ResolveArgs) -> Result<(), Stop> {
    let ResolveArgs { picked, resend, dry_run, fence, .. } = args;
    let words = selection(&picked)?;
    let resolution = if resend { Resolution::Resend } else { Resolution::Sent };
    let request = ResolveDoubtsRequest {
        tenant,
        run: picked.run.clone(),
        recipients: picked.recipients.clone(),
        all: picked.all,
        resolution: resolution.into(),
        validate_only: true,
        fence: fence.unwrap_or_default(),
        request_id: String::new(),
    };
    let preview = context.client.ask(RetrySafety::Read, request.clone()).await?;
    let counted = format!("{} in doubt, {words}{}", format::counted(preview.resolved, "email"), known(&preview.groups));
    let (run, verb) = (Some(picked.run.clone()), "resolved");
    if dry_run || preview.resolved == 0 {
        // With `-o json`, stderr holds only the error object.
        if context.terminal.format() == Format::Table {
            context.terminal.say(&counted);
        }
        let groups = dry_run.then(|| preview.groups.into_iter().map(GroupView::from).collect());
        let (moved, inside_gap) = (preview.resolved, preview.inside_gap);
        let view = MovedView { run, verb, moved, inside_gap, index: None, dry_run, groups };
        return if inside_gap > 0 { show(context, &view) } else { context.moved(&picked.recipients, &view) };
    }
    let what = match resend {
        true => "Send again what may have arrived: it may come twice",
        false => "Take as sent what may never have arrived",
    };
    context.terminal.confirm(&format!("{what}: {counted}?"))?;
    let request = ResolveDoubtsRequest {
        validate_only: false,
        // The fence excludes recipients that came into doubt after the user confirmed.
        fence: preview.fence,
        request_id: context.client.request_id().to_owned(),
        ..request
    };
    let answer = context.client.ask(RetrySafety::Repeatable, request).await?;
    let (moved, inside_gap) = (answer.resolved, answer.inside_gap);
    let view = MovedView { run, verb, moved, inside_gap, index: Some(answer.index), dry_run, groups: None };
    if inside_gap > 0 { show(context, &view) } else { context.moved(&picked.recipients, &view) }
}

/// Prints the answer. Fails with "partly done" if another email within the min gap kept recipients in doubt.
fn show(context: &CommandContext<'_>, view: &MovedView) -> Result<(), Stop> {
    context.terminal.show(view)?;
    if view.inside_gap == 0 {
        return Ok(());
    }
    let left = format::counted(view.inside_gap, "email");
    Err(Failure::new(
        Exit::Partly,
        "PARTLY_DONE",
        format!("{left} left in doubt: they got an email of another run less than the min gap away"),
        "reveille in-doubt resolve --sent takes them as sent",
    )
    .into())
}

/// Returns the known groups in a few words: count, node and cause.
fn known(groups: &[DoubtGroup]) -> String {
    let describe = |group: &DoubtGroup| format!("{} on {}: {}", format::count(group.count), group.node, group.cause);
    let described: Vec<String> = groups.iter().map(describe).collect();
    if described.is_empty() { String::new() } else { format!(" ({})", described.join("; ")) }
}

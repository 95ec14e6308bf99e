//! Implements `reveille in-doubt …`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use reveille_ledger::ids::Fence;
use reveille_proto::admin::v1::{
    Doubt, DoubtGroup, GetDoubtRequest, ListDoubtsRequest, Resolution, ResolveDoubtsRequest,
};
use tokio::sync::oneshot;

use super::{
    CommandContext, DoubtCommand, Failure, OfTenant, ResolveArgs, SettleArgs, Stop, format, relay_log, selection,
};
use crate::cli::view::doubt::cause;
use crate::cli::view::moved::MovedView;

/// Rows requested per page.
const PAGE_SIZE: i32 = 1_000;
/// Maximum number of recipients that one request settles.
const SETTLED_MAX: usize = 1_000;

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, args: OfTenant<DoubtCommand>) -> Result<(), Stop> {
    let tenant = args.tenant;
    match args.command {
        DoubtCommand::List { paging, run } => {
            let run = run.unwrap_or_default();
            context.list_of(paging, ListDoubtsRequest { tenant, run, ..ListDoubtsRequest::default() }).await
        }
        DoubtCommand::Show { run, recipient, watch } => {
            let request = GetDoubtRequest { tenant, run, recipient, stale: context.stale };
            context.show(watch, request, |answer| (answer.freshness, answer.doubt)).await
        }
        DoubtCommand::Resolve(args) => resolve(context, tenant, args).await,
        DoubtCommand::Settle(args) => settle(context, tenant, args).await,
    }
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
        // A dry run shows what is in doubt now, whatever an earlier call with the id did.
        request_id: if dry_run { String::new() } else { context.client.request_id().to_owned() },
    };
    let preview = context.read(request.clone()).await?;
    let counted = format!("{} in doubt, {words}{}", format::counted(preview.resolved, "email"), known(&preview.groups));
    let (run, verb) = (Some(picked.run.clone()), "resolved");
    // A repeated request id is answered as before.
    let is_repeat = preview.index > 0;
    if dry_run || preview.resolved == 0 && !is_repeat {
        context.terminal.remark(&counted);
        let groups = if dry_run { preview.groups } else { Vec::new() };
        let (moved, inside_gap) = (preview.resolved, preview.inside_gap);
        let view = MovedView { run, verb, moved, inside_gap, index: None, dry_run, groups };
        return show(context, &picked.recipients, &view);
    }
    let answer = if is_repeat {
        preview
    } else {
        let what = match resend {
            true => "Send again what may have arrived: it may come twice",
            false => "Take as sent what may never have arrived",
        };
        context.terminal.confirm(&format!("{what}: {counted}?"))?;
        // The fence excludes recipients that came into doubt after the user confirmed.
        let request = ResolveDoubtsRequest { validate_only: false, fence: preview.fence, ..request };
        context.change(request).await?
    };
    let (moved, inside_gap) = (answer.resolved, answer.inside_gap);
    let view = MovedView { run, verb, moved, inside_gap, index: Some(answer.index), dry_run, groups: Vec::new() };
    show(context, &picked.recipients, &view)
}

/// Settles as sent what the log of a relay shows as accepted: reads all doubts, and resolves those that it names.
async fn settle(context: &CommandContext<'_>, tenant: String, args: SettleArgs) -> Result<(), Stop> {
    let SettleArgs { log, run, dry_run } = args;
    let accepted = read_log(&log).await?;
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let (mut left, mut page_token) = (0_u64, String::new());
    loop {
        let run = run.clone().unwrap_or_default();
        let request = ListDoubtsRequest { tenant: tenant.clone(), run, ..ListDoubtsRequest::default() };
        let page = context.client.page(request, context.stale, PAGE_SIZE, page_token).await?;
        for doubt in page.rows {
            match accepted.contains(&doubt.message_id) {
                true => found.entry(doubt.run.clone()).or_default().add(&doubt),
                false => left += 1,
            }
        }
        page_token = page.next;
        if page_token.is_empty() {
            break;
        }
    }
    let mut moved: u64 = found.values().map(|of_run| of_run.recipients.len() as u64).sum();
    let mut index = None;
    if !dry_run && moved > 0 {
        let emails = format::counted(moved, "email");
        context.terminal.confirm(&format!("Settle as sent what the log shows: {emails}?"))?;
        moved = 0;
        let mut numbers = 1..;
        for (run, of_run) in found {
            for (recipients, number) in of_run.recipients.chunks(SETTLED_MAX).zip(&mut numbers) {
                let request = ResolveDoubtsRequest {
                    tenant: tenant.clone(),
                    run: run.clone(),
                    recipients: recipients.to_vec(),
                    all: false,
                    resolution: Resolution::Accepted.into(),
                    validate_only: false,
                    fence: of_run.newest.map(|fence| fence.to_string()).unwrap_or_default(),
                    request_id: format!("{}-{number}", context.client.request_id()),
                };
                let answer = context.change(request).await?;
                moved += answer.resolved;
                index = Some(answer.index);
            }
        }
    }
    let view = MovedView { run, verb: "settled as sent", moved, inside_gap: 0, index, dry_run, groups: Vec::new() };
    context.terminal.show(&view)?;
    if left > 0 {
        let left = format::counted(left, "email");
        context.terminal.say(&format!("the log shows nothing of {left}, which proves nothing: they stay in doubt"));
    }
    Ok(())
}

/// Recipients of a run that a relay's log shows as accepted.
#[derive(Default)]
struct Found {
    recipients: Vec<String>,
    newest: Option<Fence>,
}

impl Found {
    fn add(&mut self, doubt: &Doubt) {
        self.recipients.push(format!("#{}", doubt.number));
        self.newest = self.newest.max(doubt.fence.parse().ok());
    }
}

/// Reads the log on a separate thread, so that Ctrl-C can end a wait for stdin.
async fn read_log(path: &Path) -> Result<BTreeSet<String>, Failure> {
    let (give, get) = oneshot::channel();
    let owned = path.to_owned();
    std::thread::spawn(move || {
        let read = || match owned.as_path() == Path::new("-") {
            true => relay_log::accepted(io::stdin().lock()),
            false => relay_log::accepted(io::BufReader::new(std::fs::File::open(&owned)?)),
        };
        // The receiver is gone if the command was interrupted.
        let _ = give.send(read());
    });
    let read = get.await.unwrap_or_else(|_| Err(io::Error::other("its reader ended")));
    read.map_err(|error| {
        let message = format!("the log {} cannot be read: {error}", path.display());
        Failure::usage("FILE", message, "give the log of the relay, or - for stdin")
    })
}

/// Prints the answer. Fails with "partly done" if another email within the min gap kept recipients in doubt.
fn show(context: &CommandContext<'_>, named: &[String], view: &MovedView) -> Result<(), Stop> {
    if view.inside_gap == 0 {
        return context.moved(named, view);
    }
    context.terminal.show(view)?;
    let left = format::counted(view.inside_gap, "email");
    let message = format!("{left} left in doubt: they got an email of another run less than the min gap away");
    Err(Failure::partly(message, "reveille in-doubt resolve --sent takes them as sent").into())
}

/// Returns the known groups in a few words: count, node and cause.
fn known(groups: &[DoubtGroup]) -> String {
    let describe =
        |group: &DoubtGroup| format!("{} on {}: {}", format::count(group.count), group.node, cause(group.cause()));
    let described: Vec<String> = groups.iter().map(describe).collect();
    if described.is_empty() { String::new() } else { format!(" ({})", described.join("; ")) }
}

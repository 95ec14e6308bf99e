//! Implements `reveille relay …`.

use reveille_proto::admin::v1::relay_service_client::RelayServiceClient as Service;
use reveille_proto::admin::v1::{
    AddRelayRequest, GetRelayRequest, ListRelaysRequest, Relay, RelayTls, RemoveRelayRequest, TestRelayRequest,
};

use super::{CommandContext, Page, Seen};
use crate::cli::args::{AddRelayArgs, RelayArgs, RelayCommand, TLS_VALUES, Tls, Watch};
use crate::cli::client::RetrySafety;
use crate::cli::failure::{Failure, Stop};
use crate::cli::manifest::export;
use crate::cli::view::relay::{RelayTestView, RelayView, RemovedView};

/// Runs the subcommand.
pub async fn run(desk: &CommandContext<'_>, args: RelayArgs) -> Result<(), Stop> {
    match args.command {
        RelayCommand::Add(args) => add(desk, args).await,
        RelayCommand::List(paging) => desk.list(paging, |size, token| page(desk, size, token)).await,
        RelayCommand::Show { name, manifest: true, .. } => manifest(desk, name).await,
        RelayCommand::Show { name, watch, .. } => show(desk, name, watch).await,
        RelayCommand::Test { name, auth } => test(desk, name, auth).await,
        RelayCommand::Remove { name, dry_run: false } => remove(desk, name).await,
        RelayCommand::Remove { name, dry_run: true } => would_remove(desk, name).await,
    }
}

/// Returns the relay that the flags describe. Fails if they leave out the encryption towards another host.
pub(super) fn relay(args: AddRelayArgs) -> Result<Relay, Failure> {
    let tls = match args.encryption() {
        Some(Tls::None) => RelayTls::None,
        Some(Tls::Starttls) => RelayTls::Starttls,
        Some(Tls::Implicit) => RelayTls::Implicit,
        None => {
            let message = format!("--tls is missing, and {} is not on this machine: {TLS_VALUES}", args.host);
            return Err(Failure::usage("--tls", message, "the same command with --tls starttls, implicit or none"));
        }
    };
    Ok(Relay {
        name: args.name,
        pool: args.pool,
        host: args.host,
        port: args.port.into(),
        tls: tls.into(),
        rate_per_second: args.rate.unwrap_or_default(),
        max_sessions: args.sessions.unwrap_or_default(),
        ca: args.ca.unwrap_or_default(),
        tls_name: args.tls_name.unwrap_or_default(),
        credentials: args.credentials.unwrap_or_default(),
        health: None,
        late_rate_per_second: args.late_rate.unwrap_or_default(),
        weight: args.weight.unwrap_or_default(),
    })
}

async fn add(desk: &CommandContext<'_>, args: AddRelayArgs) -> Result<(), Stop> {
    let (replace, dry_run) = (args.replace, args.dry_run);
    let question = AddRelayRequest {
        relay: Some(relay(args)?),
        replace,
        request_id: desk.client.request_id().to_owned(),
        validate_only: dry_run,
    };
    let call = |channel, question| async move { Service::new(channel).add_relay(question).await };
    let answer = desk.change(question, call).await?;
    let view = RelayView::from(answer.relay.unwrap_or_default());
    desk.terminal.show(&view)?;
    if dry_run {
        desk.terminal.say(super::CHECKED);
    }
    Ok(())
}

pub(super) async fn page(
    desk: &CommandContext<'_>,
    page_size: i32,
    page_token: String,
) -> Result<Page<RelayView>, Failure> {
    let question = ListRelaysRequest { page_size, page_token, stale: desk.stale };
    let call = |channel, question| async move { Service::new(channel).list_relays(question).await };
    let answer = desk.client.ask(RetrySafety::Read, question, call).await?;
    let rows = answer.relays.into_iter().map(RelayView::from).collect();
    Ok(Page { rows, next: answer.next_page_token, freshness: answer.freshness })
}

async fn get(desk: &CommandContext<'_>, name: &str) -> Result<Seen<Relay>, Failure> {
    let question = GetRelayRequest { name: name.to_owned(), stale: desk.stale };
    let call = |channel, question| async move { Service::new(channel).get_relay(question).await };
    let answer = desk.client.ask(RetrySafety::Read, question, call).await?;
    Ok(Seen::of(answer.relay.unwrap_or_default(), answer.freshness))
}

async fn show(desk: &CommandContext<'_>, name: String, watch: Watch) -> Result<(), Stop> {
    let look = async || {
        let seen = get(desk, &name).await?;
        Ok(Seen::of(RelayView::from(seen.view), seen.freshness))
    };
    desk.one(watch, look).await
}

async fn manifest(desk: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    let seen = get(desk, &name).await?;
    desk.note(seen.freshness.as_ref());
    desk.terminal.manifest(&name, &export::relay(&seen.view))
}

async fn test(desk: &CommandContext<'_>, name: String, auth: bool) -> Result<(), Stop> {
    let question = TestRelayRequest { name: name.clone(), stale: desk.stale, authenticate: auth };
    let call = |channel, question| async move { Service::new(channel).test_relay(question).await };
    let view = RelayTestView::new(name, desk.client.ask(RetrySafety::Read, question, call).await?);
    desk.terminal.show(&view)?;
    let Some(problem) = &view.problem else {
        if let Some(rest) = view.left_alone() {
            desk.terminal.say(&rest);
        }
        if !auth && view.offers_auth() {
            desk.terminal.say(&format!("no login was tried; with one: reveille relay test {} --auth", view.name));
        }
        return Ok(());
    };
    let reason = if view.reachable { "RELAY_UNUSABLE" } else { "RELAY_UNREACHABLE" };
    Err(Failure {
        reason: reason.into(),
        message: format!("{} cannot be used: {problem}", view.name),
        next: Some(view.next.clone().unwrap_or_else(|| format!("reveille relay show {}", view.name))),
        ..Failure::default()
    }
    .into())
}

async fn would_remove(desk: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    let seen = get(desk, &name).await?;
    desk.note(seen.freshness.as_ref());
    let pool = seen.view.pool.clone();
    let all = desk.pages(u32::MAX, &|size, token| page(desk, size, token)).await?;
    let left: Vec<&str> = all.rows.iter().filter(|one| one.pool() == pool).map(RelayView::own_name).collect();
    let left: Vec<&str> = left.into_iter().filter(|one| *one != name).collect();
    desk.terminal.show(&RelayView::from(seen.view))?;
    desk.terminal.say(&match left.as_slice() {
        [] => format!("pool {pool} would have no relay: its mail would wait until it expires"),
        left => format!("pool {pool} would have {} left", left.join(", ")),
    });
    desk.checked(true);
    Ok(())
}

async fn remove(desk: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    desk.terminal.confirm(&format!("Remove relay {name}? Mail of its pool waits for another relay."))?;
    let question = RemoveRelayRequest { name: name.clone() };
    let call = |channel, question| async move { Service::new(channel).remove_relay(question).await };
    let answer = desk.client.ask(RetrySafety::Repeatable, question, call).await?;
    desk.removed(RemovedView { name, index: answer.index, dry_run: false })?;
    answer.warnings.iter().for_each(|warning| desk.terminal.say(&format!("warning: {warning}")));
    Ok(())
}

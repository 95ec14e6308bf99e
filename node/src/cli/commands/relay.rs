//! Implements `reveille relay …`.

use reveille_proto::admin::v1::{
    AddRelayRequest, GetRelayRequest, ListRelaysRequest, Relay, RelayTls, RemoveRelayRequest, TestRelayRequest,
};

use super::{AddRelayArgs, CommandContext, Exit, Failure, Kind, RelayCommand, Stop, TLS_VALUES, Tls};
use crate::cli::relay_fix;
use crate::cli::view::{Answer, relay as view};

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: RelayCommand) -> Result<(), Stop> {
    match command {
        RelayCommand::Add(args) => add(context, args).await,
        RelayCommand::List(paging) => context.list_of(paging, ListRelaysRequest::default()).await,
        RelayCommand::Show(args) => {
            let request = |name| GetRelayRequest { name, stale: context.stale };
            context.show_named((Kind::Relay, ""), args, request, |answer| (answer.freshness, answer.relay)).await
        }
        RelayCommand::Test { name, authenticate } => test(context, name, authenticate).await,
        RelayCommand::Remove { name, dry_run: false, etag } => {
            remove(context, RemoveRelayRequest { name, etag: etag.to_wire() }).await
        }
        RelayCommand::Remove { name, dry_run: true, .. } => would_remove(context, name).await,
    }
}

/// Returns the relay that the flags describe. Fails if they leave out the encryption towards another host.
fn relay(args: AddRelayArgs) -> Result<Relay, Failure> {
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
        rate_per_second: args.rate_per_second.unwrap_or_default(),
        max_sessions: args.max_sessions.unwrap_or_default(),
        ca: args.ca.unwrap_or_default(),
        tls_name: args.tls_name.unwrap_or_default(),
        credentials: args.credentials.unwrap_or_default(),
        late_rate_per_second: args.late_rate_per_second.unwrap_or_default(),
        weight: args.weight.unwrap_or_default(),
        ..Relay::default()
    })
}

async fn add(context: &CommandContext<'_>, args: AddRelayArgs) -> Result<(), Stop> {
    let (replace, dry_run, etag) = (args.replace, args.dry_run, args.etag.to_wire());
    let request = AddRelayRequest {
        relay: Some(relay(args)?),
        replace,
        request_id: context.client.request_id().to_owned(),
        validate_only: dry_run,
        etag,
    };
    let answer = context.change(request).await?;
    context.answer(&answer, answer.relay.as_ref(), dry_run)
}

/// Reads all relays.
pub(super) async fn all(context: &CommandContext<'_>) -> Result<Vec<Relay>, Failure> {
    let page = |size, token| context.client.page(ListRelaysRequest::default(), context.stale, size, token);
    Ok(context.pages(u32::MAX, &page).await?.rows)
}

async fn test(context: &CommandContext<'_>, name: String, authenticate: bool) -> Result<(), Stop> {
    let request = TestRelayRequest { name: name.clone(), stale: context.stale, authenticate };
    let answer = context.read(request).await?;
    let card = view::tested(&name, &answer, context.terminal.paints());
    context.terminal.show(&Answer::new(&answer, name.as_str(), card))?;
    if answer.problem.is_empty() {
        if let Some(rest) = view::left_alone(&answer) {
            context.terminal.say(&rest);
        }
        if !authenticate && view::offers_auth(&answer) {
            context.terminal.say(&format!("no login was tried; with one: reveille relay test {name} --authenticate"));
        }
        return Ok(());
    }
    let reason = if answer.reachable { "RELAY_UNUSABLE" } else { "RELAY_UNREACHABLE" };
    let next = relay_fix::next_step(&answer);
    let message = format!("{name} cannot be used: {}", answer.problem);
    Err(Failure::new(Exit::General, reason, message, next).into())
}

async fn would_remove(context: &CommandContext<'_>, name: String) -> Result<(), Stop> {
    let answer = context.read(GetRelayRequest { name: name.clone(), stale: context.stale }).await?;
    context.note(answer.freshness.as_ref());
    let relay = answer.relay.unwrap_or_default();
    let pool = &relay.pool;
    let all = all(context).await?;
    let left = all.iter().filter(|one| one.pool == *pool && one.name != name).map(|one| one.name.as_str());
    let left: Vec<&str> = left.collect();
    context.terminal.show(&relay)?;
    context.terminal.say(&match left.as_slice() {
        [] => format!("pool {pool} would have no relay: its mail would wait until it expires"),
        left => format!("pool {pool} would have {} left", left.join(", ")),
    });
    context.checked(true);
    Ok(())
}

async fn remove(context: &CommandContext<'_>, request: RemoveRelayRequest) -> Result<(), Stop> {
    let name = request.name.clone();
    let question = format!("Remove relay {name}? Mail of its pool waits for another relay.");
    let answer = context.remove((&question, &name), request, false, |answer| answer.index).await?;
    context.warn(&answer.warnings, None);
    Ok(())
}

//! Implements `reveille relay …`.

use clap::{Args, Subcommand, ValueEnum};
use reveille_ledger::access::is_loopback;
use reveille_proto::admin::v1::{
    AddRelayRequest, GetRelayRequest, ListRelaysRequest, Relay, RelayCondition, RelayHealth, RelayTls,
    RemoveRelayRequest, TestRelayRequest, TestRelayResponse,
};

use super::{CommandContext, EtagArgs, Exit, Failure, Kind, Paging, ShowArgs, Stop, View, duration_ms, format};
use crate::api_json::word;
use crate::cli::instant::text;
use crate::cli::relay_fix;
use crate::cli::view::layout::{Cell, Tone, card, pairs};
use crate::cli::view::{Answer, some};
use crate::cli::wording::relay_cause;

#[derive(Debug, Subcommand)]
pub enum RelayCommand {
    /// Add a relay
    #[command(after_long_help = "\
Examples:
  reveille relay add main --host 127.0.0.1 --port 2525 --tls none
  reveille relay add bulk --host mx.example.org --port 25 --tls starttls --ca /etc/reveille/ca.pem --pool bulk --rate-per-second 500
  reveille relay add ses --host email-smtp.eu-west-1.amazonaws.com --port 587 --tls starttls \\
      --credentials ses --rate-per-second 14 --max-sessions 10")]
    Add(AddRelayArgs),
    /// All relays
    #[command(after_long_help = "Example:\n  reveille relay list -o json")]
    List(Paging),
    /// One relay, with its state at the asked node
    #[command(
        after_long_help = "Examples:\n  reveille relay show main\n  reveille relay show main --manifest > main.yaml"
    )]
    Show(ShowArgs),
    /// Let a node open a session with the relay and close it; no email is sent
    ///
    /// The node that answers does it: --endpoint names another. What failed is named with the step and what to do.
    #[command(after_long_help = "Examples:\n  reveille relay test main\n  reveille relay test main --authenticate")]
    Test {
        /// Its name
        name: String,
        /// Also log in, with the credentials of the node's configuration
        #[arg(long)]
        authenticate: bool,
    },
    /// Remove a relay; emails of its pool wait for another one
    #[command(after_long_help = "Example:\n  reveille relay remove main")]
    Remove {
        /// Its name
        name: String,
        /// Show which relays the pool would keep, and change nothing
        #[arg(long, conflicts_with = "etag")]
        dry_run: bool,
        #[command(flatten)]
        etag: EtagArgs,
    },
}

/// `relay add`.
#[derive(Clone, Debug, Args)]
pub struct AddRelayArgs {
    /// Its name
    pub name: String,
    /// Host name or address
    #[arg(long)]
    pub host: String,
    /// Port
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Encryption towards the relay; required unless the host is a loopback address or localhost [default there: none]
    #[arg(long, value_enum)]
    pub tls: Option<Tls>,
    /// PEM file of the only trusted certificates; each node reads its own [default: the system's roots]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<String>,
    /// Name in the relay's certificate [default: the host]
    #[arg(long, value_name = "NAME")]
    pub tls_name: Option<String>,
    /// Credentials that each node's configuration defines for this host and port [default: no AUTH]
    #[arg(long, value_name = "NAME")]
    pub credentials: Option<String>,
    /// Relays of one pool share a reputation; a schedule names its pool
    #[arg(long, default_value = "default")]
    pub pool: String,
    /// Emails a second over the whole cluster, at most [default: no bound]
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub rate_per_second: Option<f64>,
    /// Of these, late ones at most: caught up after an outage, or backfilled [default: half of the rate]
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub late_rate_per_second: Option<f64>,
    /// Open dialogues on one node, at most [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: Option<u32>,
    /// Weight beside other relays of the pool that have room [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub weight: Option<u32>,
    /// Replace the relay of that name
    #[arg(long)]
    pub replace: bool,
    /// Check it, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub etag: EtagArgs,
}

/// The values of `--tls`, for the error when none is given.
pub const TLS_VALUES: &str = "starttls encrypts by STARTTLS and never falls back (usual on ports 25 and 587), implicit \
                              encrypts from the first byte (usual on port 465), none sends emails and addresses unencrypted";

impl AddRelayArgs {
    /// Returns the encryption. Without `--tls` it is none for a relay on loopback, and `None` for any other: a
    /// forgotten flag must not send emails unencrypted through a network.
    pub fn encryption(&self) -> Option<Tls> {
        self.tls.or_else(|| is_loopback(&self.host).then_some(Tls::None))
    }
}

/// Encryption towards a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tls {
    /// In the clear
    None,
    /// By STARTTLS, without falling back; usual on ports 25 and 587
    Starttls,
    /// From the first byte; usual on port 465
    Implicit,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.001..=1_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("a rate is a number of emails a second, from 0.001 to 1000000".to_owned()),
    }
}

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
    let card = tested(&name, &answer, context.terminal.paints());
    context.terminal.show(&Answer::new(&answer, name.as_str(), card))?;
    if answer.problem.is_empty() {
        if let Some(rest) = left_alone(&answer) {
            context.terminal.say(&rest);
        }
        if !authenticate && offers_auth(&answer) {
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
        [] => format!("pool {pool} would have no relay: its emails would wait until they expire"),
        left => format!("pool {pool} would have {} left", left.join(", ")),
    });
    context.checked(true);
    Ok(())
}

async fn remove(context: &CommandContext<'_>, request: RemoveRelayRequest) -> Result<(), Stop> {
    let name = request.name.clone();
    let question = format!("Remove relay {name}? Emails of its pool wait for another relay.");
    let answer = context.remove((&question, &name), request, false, |answer| answer.index).await?;
    context.warn(&answer.warnings, None);
    Ok(())
}

fn tone(health: &RelayHealth) -> Tone {
    match health.condition() {
        RelayCondition::Ready => Tone::Good,
        RelayCondition::Throttled => Tone::Notable,
        _ => Tone::Bad,
    }
}

/// Returns the whole state on a node, for the view of one relay.
fn condition_text(health: &RelayHealth) -> String {
    let until = text(health.retry_time.as_ref()).map(|until| format!(", tried at {until}")).unwrap_or_default();
    let cause = health.cause.as_ref().map(|cause| format!(": {}", relay_cause(cause))).unwrap_or_default();
    format!("{} on {}{until}{cause}", word(health.condition().as_str_name()), health.node)
}

/// True if the relay offers AUTH at the point that the test reached.
fn offers_auth(test: &TestRelayResponse) -> bool {
    let is_auth = |offer: &String| offer.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case("AUTH"));
    test.extensions.iter().any(is_auth)
}

fn health(test: &TestRelayResponse) -> Option<&RelayHealth> {
    test.relay.as_ref()?.health.as_ref()
}

/// Returns a warning if the relay answers but the node does not use it, for example because of a quota.
fn left_alone(test: &TestRelayResponse) -> Option<String> {
    use RelayCondition::{Ready, Refusing, Throttled};
    let health = health(test).filter(|health| !matches!(health.condition(), Ready | Throttled | Refusing))?;
    Some(format!("warning: it answers, but no email goes out by it now: it is {}", condition_text(health)))
}

impl View for Relay {
    const NOUN: &'static str = "relays";
    const COLUMNS: &'static [&'static str] = &["NAME", "POOL", "ENDPOINT", "TLS", "RATE", "SESSIONS", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let state = |health: &RelayHealth| Cell::toned(word(health.condition().as_str_name()), tone(health));
        vec![
            self.name.as_str().into(),
            self.pool.as_str().into(),
            format!("{}:{}", self.host, self.port).into(),
            word(self.tls().as_str_name()).into(),
            Cell::rate(self.rate_per_second),
            self.max_sessions.to_string().into(),
            self.health.as_ref().map_or_else(|| Cell::or_dash(None), state),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = pairs(self);
        if let (Some(health), Some(state)) = (&self.health, pairs.last_mut()) {
            state.1 = Cell::toned(condition_text(health), tone(health));
        }
        let late = (self.late_rate_per_second > 0.0).then(|| format!("{}/s", self.late_rate_per_second));
        let weight = (self.weight > 1).then(|| self.weight.to_string());
        let more = [
            ("late rate", late.as_deref()),
            ("weight", weight.as_deref()),
            ("ca", some(&self.ca)),
            ("tls name", some(&self.tls_name)),
            ("credentials", some(&self.credentials)),
        ];
        pairs.extend(more.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))));
        card(pairs, paint)
    }
}

/// Returns the card of a relay's test.
fn tested(name: &str, test: &TestRelayResponse, paint: bool) -> String {
    let reachable = if test.reachable { Cell::toned("yes", Tone::Good) } else { Cell::toned("no", Tone::Bad) };
    let elapsed = test.elapsed.as_ref().map(duration_ms).unwrap_or_default();
    let mut pairs = vec![
        ("relay", name.into()),
        ("reachable", reachable),
        ("from node", test.node.as_str().into()),
        ("took", format::duration(elapsed).into()),
        ("banner", Cell::or_dash(test.banner.as_str())),
    ];
    if !test.extensions.is_empty() {
        pairs.push(("offers", test.extensions.join(", ").into()));
    }
    let expires = text(test.certificate_expire_time.as_ref());
    let more = [
        ("tls", some(&test.tls_version)),
        ("certificate", some(&test.certificate_subject)),
        ("expires", expires.as_deref()),
        ("auth", some(&test.auth_mechanism)),
    ];
    pairs.extend(more.into_iter().filter_map(|(name, text)| Some((name, text?.into()))));
    if let Some(health) = health(test).filter(|health| health.condition() != RelayCondition::Ready) {
        pairs.push(("state", Cell::toned(condition_text(health), tone(health))));
    }
    pairs.extend(some(&test.problem).map(|problem| ("problem", Cell::toned(problem, Tone::Bad))));
    card(pairs, paint)
}

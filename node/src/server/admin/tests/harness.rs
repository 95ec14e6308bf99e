//! A one-node cluster, its API, and the mailbox that it sends to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_cluster::compose::unsubscribe::Unsubscribe;
use reveille_cluster::file_store::FileStore;
use reveille_cluster::process::clock::{Clock, SystemClock};
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::context::NodeIntroduction;
use reveille_cluster::process::lifecycle::{self, LeadershipHandle, NodeRuntime};
use reveille_cluster::process::peer_handler::PeerHandler;
use reveille_cluster::process::secret::Secret;
use reveille_cluster::process::zones::Zones;
use reveille_cluster::smtp::{RelayRules, TcpDialer};
use reveille_ledger::LEVEL;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{ClaimRequest, Command, NodeUp};
use reveille_ledger::ids::{ClaimOwner, Incarnation, NodeId, PageId};
use reveille_ledger::reply::CommandOutcome;
use reveille_proto::admin::v1::audience_service_client::AudienceServiceClient;
use reveille_proto::admin::v1::campaign_service_client::CampaignServiceClient;
use reveille_proto::admin::v1::clock_service_client::ClockServiceClient;
use reveille_proto::admin::v1::cluster_service_client::ClusterServiceClient;
use reveille_proto::admin::v1::dead_letter_service_client::DeadLetterServiceClient;
use reveille_proto::admin::v1::doubt_service_client::DoubtServiceClient;
use reveille_proto::admin::v1::message_service_client::MessageServiceClient;
use reveille_proto::admin::v1::opt_out_service_client::OptOutServiceClient;
use reveille_proto::admin::v1::pool_service_client::PoolServiceClient;
use reveille_proto::admin::v1::recipient_service_client::RecipientServiceClient;
use reveille_proto::admin::v1::relay_service_client::RelayServiceClient;
use reveille_proto::admin::v1::run_service_client::RunServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::template_service_client::TemplateServiceClient;
use reveille_proto::admin::v1::tenant_service_client::TenantServiceClient;
use reveille_proto::admin::v1::{
    AddRelayRequest, Audience, Content, CreateScheduleRequest, CreateScheduleResponse, GetRunRequest, ListRunsRequest,
    Overlap, Policies, Recipient, Relay, RelayTls, Run, ScheduleBody, TriggerScheduleRequest, TriggerScheduleResponse,
    WarningReason, When, when,
};
use reveille_raft::{ClusterId, GrpcTransport, Member, Replica, ReplicaOptions};
use reveille_sink::{Sink, SinkOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::wrong_clock::WrongClock;
use crate::server::admin::{Admin, serve};

/// Timeout far beyond what any step takes, so that no test fails on a loaded machine.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(90);
/// URL of the unsubscribe page.
pub const UNSUBSCRIBE: &str = "https://news.example.org/u";
/// Maximum number of emails whose text the mailbox keeps: those of three schedules in a year.
const EMAILS_KEPT: usize = 2_000;

/// A node without a cluster, with its API.
pub struct Founder {
    pub context: Arc<NodeContext>,
    pub channel: Channel,
    leadership_handle: LeadershipHandle,
    stop: CancellationToken,
    folder: TempDir,
}

pub async fn founder(number: u64) -> Founder {
    founder_by(number, 1, Arc::new(SystemClock)).await
}

async fn founder_by(number: u64, incarnation: u64, clock: Arc<dyn Clock>) -> Founder {
    let folder = tempfile::tempdir().expect("a folder");
    let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let transport = GrpcTransport::bind(loopback).expect("a port");
    let introduction = NodeIntroduction {
        name: format!("node-{number}"),
        address: transport.address().to_string(),
        version: "0.1.0".to_owned(),
        tzdb: "2026x".to_owned(),
    };
    let peer_handler = Arc::new(PeerHandler::new(clock.clone(), introduction.clone()));
    let me = ClaimOwner { node: NodeId(number), incarnation: Incarnation(incarnation) };
    let mut options = ReplicaOptions::new(folder.path().join("data"), me, Arc::new(transport));
    options.heartbeat_ms = 100;
    options.election_ms = 600..1_200;
    let parts = FileStore::open(folder.path().join("parts")).expect("a folder");
    let replica = Replica::start(options, peer_handler.clone()).await.expect("a replica");
    let key = folder.path().join("unsubscribe.key");
    std::fs::write(&key, "k".repeat(32)).expect("written");
    let key = Secret::File(key.to_string_lossy().into_owned());
    let unsubscribe = Unsubscribe::new(UNSUBSCRIBE, None, &[key]).expect("an address and a key");
    let mut context = NodeContext::new(replica, me, introduction, clock, Zones::bundled("2026x"), parts);
    context.unsubscribe = Some(unsubscribe);
    let context = Arc::new(context);
    peer_handler.open(&context);
    let leadership_handle = NodeRuntime::start_leadership_actor(&context);
    let listener = TcpListener::bind(loopback).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = CancellationToken::new();
    let admin = Admin::new(Arc::clone(&context)).with_insecure_callers().dial_by(Arc::new(TcpDialer::default()));
    tokio::spawn(serve(admin, listener, None, stop.clone()));
    let channel = Channel::from_shared(format!("http://{address}")).expect("an address").timeout(STEP_TIMEOUT);
    let channel = channel.connect().await.expect("a connection");
    Founder { context, channel, leadership_handle, stop, folder }
}

/// A one-node cluster with running actors, and a mailbox as its relay.
pub struct Node {
    pub channel: Channel,
    pub sink: Sink,
    node_runtime: Option<NodeRuntime>,
    stop: CancellationToken,
    pub folder: TempDir,
}

impl Founder {
    /// Starts the actors. The cluster must be initialized.
    pub async fn work(self, faults: &str) -> Node {
        let options = lifecycle::RuntimeOptions {
            name: "node-1".to_owned(),
            hello_name: Some("node-1".to_owned()),
            credentials: Arc::default(),
            reply_rules: RelayRules::default(),
            journal_dir: self.folder.path().join("journal"),
            dialer: Arc::new(TcpDialer::default()),
        };
        let (context, cancel) = (Arc::clone(&self.context), CancellationToken::new());
        let node_runtime =
            NodeRuntime::start(context, self.leadership_handle, options, &cancel).await.expect("a node runtime");
        let faults = faults.parse().expect("a fault plan");
        let options = SinkOptions { faults, keep_bodies: EMAILS_KEPT, ..SinkOptions::default() };
        let sink = Sink::start(options).expect("a mailbox");
        let node = Node {
            channel: self.channel,
            sink,
            node_runtime: Some(node_runtime),
            stop: self.stop,
            folder: self.folder,
        };
        let relay = node.relay();
        node.relays()
            .add_relay(AddRelayRequest { relay: Some(relay), ..AddRelayRequest::default() })
            .await
            .expect("added");
        node
    }
}

/// Starts a one-node cluster.
pub async fn node(faults: &str) -> Node {
    started(founder(1).await, faults, false).await
}

/// Starts a one-node cluster whose wall clock can be wrong.
pub async fn node_by(clock: &Arc<WrongClock>) -> Node {
    started(founder_by(1, 1, Arc::clone(clock) as Arc<dyn Clock>).await, "", false).await
}

/// Starts a one-node cluster with a test clock.
pub async fn node_with_test_clock(faults: &str) -> Node {
    started(founder(1).await, faults, true).await
}

/// Starts a one-node cluster with a test clock, in its fourth incarnation. Each earlier incarnation crashed with a
/// claim of one recipient of a run. So the node is in crash backoff (P12).
pub async fn node_in_crash_back_off(recipients: &[&str]) -> (Node, String) {
    const CRASHES: u64 = 3;
    let founder = founder_by(1, CRASHES + 1, Arc::new(SystemClock)).await;
    initialize(&[&founder]).await;
    give_test_clock(&founder).await;
    let (_, triggered) = opened(&founder.channel, yearly("report", recipients)).await;
    let run = triggered.run.expect("a run");
    let page = PageId(run.run.parse().expect("a run"));
    for life in 1..=CRASHES {
        let holder = ClaimOwner { incarnation: Incarnation(life), ..founder.context.me };
        let up = NodeUp { owner: holder, name: "node-1".to_owned(), level: LEVEL, process_nonce: life };
        let slice = Bitmap::range(life as u32 - 1, 1);
        for command in
            [Command::NodeUp(up), Command::Claim(vec![ClaimRequest { chunk: page.chunk(0), slice, owner: holder }])]
        {
            let reply =
                founder.context.replica.propose(&command, Instant::now() + STEP_TIMEOUT).await.expect("an answer");
            assert!(matches!(reply.outcome, CommandOutcome::Done | CommandOutcome::Claimed(_)), "{reply:?}");
        }
    }
    (founder.work("").await, run.run)
}

/// Makes a cluster of these nodes.
pub async fn initialize(founders: &[&Founder]) {
    let member = |founder: &&Founder| {
        let NodeIntroduction { name, address, .. } = founder.context.introduction.clone();
        (founder.context.me.node, Member { name, address, votes: true, key: None })
    };
    let members = founders.iter().map(member).collect();
    founders[0].context.replica.initialize(ClusterId(7), &members).await.expect("a cluster");
}

async fn give_test_clock(founder: &Founder) {
    let deadline = Instant::now() + STEP_TIMEOUT;
    let reply = founder.context.replica.propose(&Command::TestClock, deadline).await.expect("an answer");
    assert_eq!(reply.outcome, CommandOutcome::Done);
}

async fn started(founder: Founder, faults: &str, test_clock: bool) -> Node {
    initialize(&[&founder]).await;
    if test_clock {
        give_test_clock(&founder).await;
    }
    founder.work(faults).await
}

macro_rules! clients {
    ($($name:ident: $client:ident),*) => {
        impl Node {
            $(pub fn $name(&self) -> $client<Channel> { $client::new(self.channel.clone()) })*
        }
    };
}

clients!(
    audiences: AudienceServiceClient,
    campaigns: CampaignServiceClient,
    clocks: ClockServiceClient,
    recipients: RecipientServiceClient,
    relays: RelayServiceClient,
    schedules: ScheduleServiceClient,
    messages: MessageServiceClient,
    runs: RunServiceClient,
    doubts: DoubtServiceClient,
    dead_letters: DeadLetterServiceClient,
    opt_outs: OptOutServiceClient,
    templates: TemplateServiceClient,
    tenants: TenantServiceClient,
    pools: PoolServiceClient,
    cluster: ClusterServiceClient
);

impl Node {
    /// Returns the mailbox as a relay.
    pub fn relay(&self) -> Relay {
        let (host, port) = (self.sink.address().ip().to_string(), u32::from(self.sink.address().port()));
        Relay { name: "mailbox".to_owned(), host, port, tls: RelayTls::None.into(), ..Relay::default() }
    }

    /// Creates a schedule that is next due in a year, and opens a run of it.
    pub async fn triggered(&self, name: &str, recipients: &[&str], pool: &str) -> Run {
        let policies = Policies { overlap: Overlap::Allow.into(), ..Policies::default() };
        let body = ScheduleBody { pool: pool.to_owned(), policies: Some(policies), ..yearly(name, recipients) };
        let (created, triggered) = opened(&self.channel, body).await;
        let unserved = !pool.is_empty();
        assert_eq!(
            created.warnings.iter().any(|warning| warning.reason() == WarningReason::NoRelay),
            unserved,
            "{created:?}"
        );
        assert_eq!(triggered.warnings, created.warnings);
        triggered.run.expect("a run")
    }

    /// Waits until the condition holds for the run, and returns the run.
    pub async fn until(&self, run: &str, is_so: impl Fn(&Run) -> bool) -> Run {
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let request = GetRunRequest { run: run.to_owned(), ..GetRunRequest::default() };
            let known = self.runs().get_run(request).await.expect("a run").into_inner().run.expect("a run");
            if is_so(&known) {
                return known;
            }
            assert!(Instant::now() < end, "not within {STEP_TIMEOUT:?}: {known:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the schedule has a run, and returns the first one.
    pub async fn first_run(&self, schedule: &str) -> Run {
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let request = ListRunsRequest { schedule: schedule.to_owned(), ..ListRunsRequest::default() };
            let runs = self.runs().list_runs(request).await.expect("a list").into_inner().runs;
            if let Some(run) = runs.into_iter().next() {
                return run;
            }
            assert!(Instant::now() < end, "no run within {STEP_TIMEOUT:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the state that the actors share.
    pub fn context(&self) -> &NodeContext {
        &self.node_runtime.as_ref().expect("it is at work").context
    }

    /// Returns the same state as an owned reference.
    pub fn shared_context(&self) -> Arc<NodeContext> {
        Arc::clone(&self.node_runtime.as_ref().expect("it is at work").context)
    }

    /// Stops the API. The actors continue.
    pub fn close(&self) {
        self.stop.cancel();
    }

    pub async fn stop(mut self) {
        if let Some(node_runtime) = self.node_runtime.take() {
            let context = Arc::clone(&node_runtime.context);
            node_runtime.stop(Duration::from_secs(10)).await;
            self.stop.cancel();
            assert!(context.replica.shutdown(Instant::now() + STEP_TIMEOUT).await, "the replica ends");
        }
        self.sink.stop().await;
    }
}

/// Creates a schedule, and opens a run of it.
pub async fn opened(channel: &Channel, body: ScheduleBody) -> (CreateScheduleResponse, TriggerScheduleResponse) {
    // A request id belongs to one body (P17), so each schedule has a different one.
    let (tenant, name, request_id) = (String::new(), body.name.clone(), format!("once-{}", body.name));
    let mut schedules = ScheduleServiceClient::new(channel.clone());
    let created = schedules.create_schedule(creation(body)).await.expect("created").into_inner();
    let request = TriggerScheduleRequest { tenant, name, request_id, ..TriggerScheduleRequest::default() };
    (created, schedules.trigger_schedule(request).await.expect("triggered").into_inner())
}

/// Returns a body that fires once a year.
pub fn yearly(name: &str, recipients: &[&str]) -> ScheduleBody {
    let recipient = |address: &&str| Recipient { address: (*address).to_owned(), values: Vec::new() };
    ScheduleBody {
        name: name.to_owned(),
        timing: Some(When { pattern: Some(when::Pattern::Cron("@yearly".to_owned())) }),
        zone: "UTC".to_owned(),
        content: Some(Content {
            sender: "Reports <reports@example.org>".to_owned(),
            subject: "Hello".to_owned(),
            text: Some("Dear {{ recipient }}".to_owned()),
            ..Content::default()
        }),
        audience: Some(Audience { recipients: recipients.iter().map(recipient).collect(), ..Audience::default() }),
        ..ScheduleBody::default()
    }
}

pub fn creation(body: ScheduleBody) -> CreateScheduleRequest {
    CreateScheduleRequest { schedule: Some(body), request_id: String::new(), validate_only: false }
}

/// Returns code and reason of an error.
pub fn reason(status: &Status) -> (Code, String) {
    let info = status.get_details_error_info().map(|info| info.reason);
    (status.code(), info.unwrap_or_default())
}

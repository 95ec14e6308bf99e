//! The cluster as a user of its admin API: any node takes any request, so a dead one is simply passed over.
//!
//! Every request here may be asked twice without harm: reads, and writes that carry a request id or name what
//! they make.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use reveille_proto::admin::v1::advance_clock_request::Target;
use reveille_proto::admin::v1::audience_service_client::AudienceServiceClient;
use reveille_proto::admin::v1::clock_service_client::ClockServiceClient;
use reveille_proto::admin::v1::cluster_service_client::ClusterServiceClient;
use reveille_proto::admin::v1::doubt_service_client::DoubtServiceClient;
use reveille_proto::admin::v1::pool_service_client::PoolServiceClient;
use reveille_proto::admin::v1::relay_service_client::RelayServiceClient;
use reveille_proto::admin::v1::run_service_client::RunServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::tenant_service_client::TenantServiceClient;
use reveille_proto::admin::v1::{
    AddRelayRequest, AdvanceClockRequest, CreateScheduleRequest, GenerateAudienceRequest, GetClockRequest,
    GetRunRequest, HistoryOutcome, InitClusterRequest, ListDoubtsRequest, ListRunsRequest, ListScheduleHistoryRequest,
    Relay, RelayTls, RemovePoolRequest, Run, RunCounts, ScheduleBody, SetPoolRequest, SetTenantRequest,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::almanac::wire;

/// One node is waited for this long before the next one is asked.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// All nodes are asked in turn for this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause after all nodes were asked in vain.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// A walk tells where it stands four times a second; one without a word for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// A node that makes an audience is given up when it says nothing for so long; sealing fifty million takes minutes.
const WORDS_WITHIN: Duration = Duration::from_secs(900);
/// Walks that were cut short, one after the other.
const WALKS_IN_VAIN_MAX: usize = 200;
/// Entries of one page.
const PAGE: i32 = 1_000;

/// A user with connections of its own to every node.
#[derive(Clone)]
pub struct Admin {
    endpoints: Vec<String>,
    channels: Vec<Channel>,
    /// Whose everything is that it asks for or makes; the default one's where it is empty.
    tenant: String,
}

/// What became of the instants of a schedule, by the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// A run opened.
    pub fired: u64,
    /// It says why not.
    pub explained: u64,
}

/// How a write went.
pub struct Written {
    /// Questions beyond the first: a node did not answer in time or could not.
    pub retries: u64,
}

impl Admin {
    /// Connects when it first asks.
    pub fn new(endpoints: Vec<String>) -> Result<Admin> {
        let channel = |address: &String| -> Result<Channel> {
            let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
            Ok(endpoint.connect_timeout(CONNECT_WITHIN).timeout(ANSWER_WITHIN).connect_lazy())
        };
        let channels = endpoints.iter().map(channel).collect::<Result<_>>()?;
        Ok(Admin { endpoints, channels, tenant: String::new() })
    }

    /// Admin addresses of the nodes.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Another user, whose first choice is the node of this number (counted round).
    pub fn another(&self, number: usize) -> Result<Admin> {
        let mut endpoints = self.endpoints.clone();
        let places = endpoints.len().max(1);
        endpoints.rotate_left(number % places);
        Ok(Admin { tenant: self.tenant.clone(), ..Admin::new(endpoints)? })
    }

    /// The same user, for this tenant.
    pub fn of_tenant(&self, tenant: &str) -> Admin {
        Admin { tenant: tenant.to_owned(), ..self.clone() }
    }

    pub(crate) fn tenant(&self) -> String {
        self.tenant.clone()
    }

    /// The connection to the node of this number, counted round.
    pub(crate) fn channel_to(&self, number: usize) -> Option<Channel> {
        self.channels.get(number % self.channels.len().max(1)).cloned()
    }

    /// Makes the cluster of the first node and these peers; with a clock that is moved by hand, or without.
    pub async fn init(&self, peers: Vec<String>, test_clock: bool) -> Result<()> {
        let channel = self.channels.first().context("a cluster without nodes")?.clone();
        let request = InitClusterRequest { peers, test_clock, ..InitClusterRequest::default() };
        ClusterServiceClient::new(channel).init_cluster(request).await.map_err(|status| refused("init", &status))?;
        Ok(())
    }

    /// The sink as the only relay, without a rate, with so many sessions on each node.
    pub async fn add_relay(&self, sink: SocketAddr, sessions: u32) -> Result<()> {
        self.add_relay_of(("sink", "default"), sink, (sessions, 0)).await
    }

    /// A relay of a pool, with so many sessions on each node, and mails a second from all of them; 0: any number.
    pub async fn add_relay_of(
        &self,
        (name, pool): (&str, &str),
        address: SocketAddr,
        (sessions, rate_per_second): (u32, u32),
    ) -> Result<()> {
        let relay = Relay {
            name: name.to_owned(),
            pool: pool.to_owned(),
            host: address.ip().to_string(),
            port: address.port().into(),
            tls: RelayTls::None.into(),
            rate_per_second: rate_per_second.into(),
            max_sessions: sessions,
            ..Relay::default()
        };
        let request = AddRelayRequest { relay: Some(relay), ..AddRelayRequest::default() };
        self.ask("relay add", |channel| {
            let request = request.clone();
            async move { RelayServiceClient::new(channel).add_relay(request).await }
        })
        .await?;
        Ok(())
    }

    /// So many emails a second are claimed of a tenant.
    pub async fn set_tenant_rate(&self, name: &str, per_second: f64) -> Result<()> {
        let request = SetTenantRequest {
            name: name.to_owned(),
            rate_per_second: Some(per_second),
            ..SetTenantRequest::default()
        };
        self.ask("tenant set", |channel| {
            let request = request.clone();
            async move { TenantServiceClient::new(channel).set_tenant(request).await }
        })
        .await?;
        Ok(())
    }

    /// A pool has these caps, from today on.
    pub async fn warm_up(&self, pool: &str, caps: Vec<u32>) -> Result<()> {
        let request = SetPoolRequest { name: pool.to_owned(), warm_up: caps, ..SetPoolRequest::default() };
        self.ask("pool set", |channel| {
            let request = request.clone();
            async move { PoolServiceClient::new(channel).set_pool(request).await }
        })
        .await?;
        Ok(())
    }

    /// And has none.
    pub async fn remove_pool(&self, pool: &str) -> Result<()> {
        let request = RemovePoolRequest { name: pool.to_owned() };
        self.ask("pool remove", |channel| {
            let request = request.clone();
            async move { PoolServiceClient::new(channel).remove_pool(request).await }
        })
        .await?;
        Ok(())
    }

    /// Creates a schedule; returns when it is durable.
    pub async fn create(&self, schedule: ScheduleBody) -> Result<Written> {
        let request_id = uuid::Uuid::now_v7().to_string();
        let request = CreateScheduleRequest { schedule: Some(schedule), request_id, validate_only: false };
        let (_, retries) = self
            .ask("schedule create", |channel| {
                let request = request.clone();
                async move { ScheduleServiceClient::new(channel).create_schedule(request).await }
            })
            .await?;
        Ok(Written { retries })
    }

    /// Makes a sealed audience by one node; returns when it is known.
    pub async fn generate_audience(&self, name: &str, recipients: u32, seed: u64, columns: &[&str]) -> Result<()> {
        let endpoint = self.endpoints.first().context("a cluster without nodes")?;
        // No limit for the whole: it takes as long as the disks of the nodes do. But a word is to come now and then.
        let channel =
            Endpoint::from_shared(format!("http://{endpoint}"))?.connect_timeout(CONNECT_WITHIN).connect().await?;
        let name = name.to_owned();
        let request = GenerateAudienceRequest {
            tenant: self.tenant(),
            name,
            recipients,
            seed,
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            ..GenerateAudienceRequest::default()
        };
        let silent = || format!("audience generate: no word from {endpoint} for {} s", WORDS_WITHIN.as_secs());
        let mut audiences = AudienceServiceClient::new(channel);
        let answer =
            tokio::time::timeout(WORDS_WITHIN, audiences.generate_audience(request)).await.with_context(silent)?;
        let mut words = answer.map_err(|status| refused("audience generate", &status))?.into_inner();
        loop {
            let word = tokio::time::timeout(WORDS_WITHIN, words.message()).await.with_context(silent)?;
            match word.map_err(|status| refused("audience generate", &status))? {
                Some(word) if word.audience.is_some() => return Ok(()),
                Some(_) => {}
                None => anyhow::bail!("audience generate: the node ended before its last word"),
            }
        }
    }

    /// The only run of a schedule, once it has opened.
    pub async fn run_of(&self, schedule: &str) -> Result<Option<Run>> {
        let request =
            ListRunsRequest { tenant: self.tenant(), schedule: schedule.to_owned(), ..ListRunsRequest::default() };
        let (answer, _) = self
            .ask("run list", |channel| {
                let request = request.clone();
                async move { RunServiceClient::new(channel).list_runs(request).await }
            })
            .await?;
        Ok(answer.runs.into_iter().next())
    }

    /// Where the recipients of a run stand.
    pub async fn counts(&self, run: &str) -> Result<RunCounts> {
        let request = GetRunRequest { tenant: self.tenant(), run: run.to_owned(), ..GetRunRequest::default() };
        let (answer, _) = self
            .ask("run show", |channel| {
                let request = request.clone();
                async move { RunServiceClient::new(channel).get_run(request).await }
            })
            .await?;
        answer.run.and_then(|run| run.counts).context("an answer without a run")
    }

    /// Addresses that are in doubt in a run, or in all runs where none is named.
    pub async fn doubts(&self, run: &str) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        let mut page_token = String::new();
        loop {
            let request = ListDoubtsRequest {
                tenant: self.tenant(),
                run: run.to_owned(),
                page_size: PAGE,
                page_token,
                ..ListDoubtsRequest::default()
            };
            let (answer, _) = self
                .ask("in-doubt list", |channel| {
                    let request = request.clone();
                    async move { DoubtServiceClient::new(channel).list_doubts(request).await }
                })
                .await?;
            found.extend(answer.doubts.into_iter().map(|doubt| doubt.recipient));
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(found);
            }
        }
    }

    /// How often each address is in doubt, over all runs.
    pub async fn doubts_of_addresses(&self) -> Result<BTreeMap<String, u64>> {
        let (mut found, mut page_token) = (BTreeMap::new(), String::new());
        loop {
            let request = ListDoubtsRequest {
                tenant: self.tenant(),
                page_size: PAGE,
                page_token,
                ..ListDoubtsRequest::default()
            };
            let (answer, _) = self
                .ask("in-doubt list", |channel| {
                    let request = request.clone();
                    async move { DoubtServiceClient::new(channel).list_doubts(request).await }
                })
                .await?;
            for doubt in answer.doubts {
                *found.entry(doubt.recipient).or_default() += 1;
            }
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(found);
            }
        }
    }

    /// What became of the instants of a schedule.
    pub async fn accounts(&self, schedule: &str) -> Result<Accounts> {
        let (mut accounts, mut page_token) = (Accounts::default(), String::new());
        loop {
            let name = schedule.to_owned();
            let request = ListScheduleHistoryRequest {
                tenant: self.tenant(),
                name,
                page_size: PAGE,
                page_token,
                ..ListScheduleHistoryRequest::default()
            };
            let (answer, _) = self
                .ask("schedule history", |channel| {
                    let request = request.clone();
                    async move { ScheduleServiceClient::new(channel).list_schedule_history(request).await }
                })
                .await?;
            for entry in answer.entries {
                match entry.outcome() {
                    HistoryOutcome::Fired => accounts.fired += 1,
                    _ => accounts.explained += u64::from(entry.count),
                }
            }
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(accounts);
            }
        }
    }

    /// Moves the test clock to an instant, over lost nodes; answers in how many steps that are known of.
    pub async fn advance(&self, to: Timestamp, jump: bool) -> Result<u64> {
        let (mut steps, mut vain) = (0, 0);
        loop {
            let (clock, _) = self
                .ask("clock show", |channel| async move {
                    ClockServiceClient::new(channel).get_clock(GetClockRequest::default()).await
                })
                .await?;
            if clock.now.is_some_and(|now| now.seconds >= to.as_second()) {
                return Ok(steps);
            }
            let channel = self.channels.get(vain % self.channels.len().max(1)).context("a cluster without nodes")?;
            let (walked, ended) = walk(channel.clone(), to, jump).await;
            steps += walked;
            if let Err(status) = ended {
                vain += 1;
                eprintln!("  {}", refused("clock advance", &status));
                if vain > WALKS_IN_VAIN_MAX || !passes(status.code()) && status.code() != Code::InvalidArgument {
                    return Err(refused("clock advance", &status));
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }

    /// Asks one node after the other until one answers; also how often in vain.
    async fn ask<Answer, Asked>(&self, what: &str, call: impl Fn(Channel) -> Asked) -> Result<(Answer, u64)>
    where
        Asked: Future<Output = Result<tonic::Response<Answer>, Status>>,
    {
        let asked = self.ask_for(PATIENCE, ANSWER_WITHIN, call).await;
        asked.map_err(|unanswered| match unanswered.last {
            Some(status) if unanswered.is_final => refused(what, &status),
            last => {
                let error = match last {
                    Some(status) => refused(what, &status),
                    None => anyhow::anyhow!("{what}: no answer in {} s", ANSWER_WITHIN.as_secs()),
                };
                error.context(format!("no node answered within {} s", PATIENCE.as_secs()))
            }
        })
    }

    /// Asks one node after the other, each at most so long (`each`), for so long in all.
    pub(crate) async fn ask_for<Answer, Asked>(
        &self,
        patience: Duration,
        each: Duration,
        call: impl Fn(Channel) -> Asked,
    ) -> Result<(Answer, u64), Unanswered>
    where
        Asked: Future<Output = Result<tonic::Response<Answer>, Status>>,
    {
        let until = Instant::now() + patience;
        let mut retries = 0;
        loop {
            let mut last = None;
            for channel in &self.channels {
                match tokio::time::timeout(each, call(channel.clone())).await {
                    Ok(Ok(answer)) => return Ok((answer.into_inner(), retries)),
                    Ok(Err(status)) if passes(status.code()) => last = Some(status),
                    Ok(Err(status)) => return Err(Unanswered { last: Some(status), retries, is_final: true }),
                    Err(_) => {}
                }
                retries += 1;
            }
            if Instant::now() > until {
                return Err(Unanswered { last, retries, is_final: false });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// A question without the answer that was hoped for.
pub(crate) struct Unanswered {
    /// What the last node said; none where it said nothing.
    pub last: Option<Status>,
    /// How often it was asked in vain before.
    pub retries: u64,
    /// Will asking again come to the same?
    pub is_final: bool,
}

/// One walk by one node: its steps, and whether it came to its end.
async fn walk(channel: Channel, to: Timestamp, jump: bool) -> (u64, Result<(), Status>) {
    let request = AdvanceClockRequest { target: Some(Target::To(wire(to))), jump };
    let mut words = match ClockServiceClient::new(channel).advance_clock(request).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return (0, Err(status)),
    };
    let mut steps = 0;
    loop {
        match tokio::time::timeout(SILENCE_MAX, words.message()).await {
            Ok(Ok(Some(word))) => steps = word.steps,
            Ok(Ok(None)) => return (steps, Ok(())),
            Ok(Err(status)) => return (steps, Err(status)),
            Err(_) => return (steps, Err(Status::deadline_exceeded("a walk without a word"))),
        }
    }
}

/// What may be otherwise when it is asked again: no leader, no connection, no time.
pub(crate) fn passes(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::ResourceExhausted
    )
}

fn refused(what: &str, status: &Status) -> anyhow::Error {
    anyhow::anyhow!("{what}: {:?}: {}", status.code(), status.message())
}

//! The demo as a user of the admin API: any node takes any request, so a dead one is simply passed over.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use reveille_proto::admin::v1::cluster_service_client::ClusterServiceClient;
use reveille_proto::admin::v1::doubt_service_client::DoubtServiceClient;
use reveille_proto::admin::v1::relay_service_client::RelayServiceClient;
use reveille_proto::admin::v1::run_service_client::RunServiceClient;
use reveille_proto::admin::v1::schedule_service_client::ScheduleServiceClient;
use reveille_proto::admin::v1::{
    AddRelayRequest, Audience, Content, CreateScheduleRequest, Daily, ExplainRequest, Field, GetClusterStatusRequest,
    GetRunRequest, InitClusterRequest, ListDoubtsRequest, ListRunsRequest, Recipient, Relay, RelayTls, Run,
    ScheduleBody, TransferLeaderRequest, When, when,
};
use tonic::transport::{Channel, Endpoint};

/// One answer is waited for this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A thing that is to come is waited for this long.
const COMES_WITHIN: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The campaign is due so long after it was created.
const STARTS_IN: Duration = Duration::from_secs(2);
/// Sessions to the mailbox on each node.
const SESSIONS: u32 = 4;

/// The admin API of a cluster.
pub struct DemoClient {
    channel: Channel,
    each: Vec<Channel>,
}

impl DemoClient {
    /// Spreads its requests over these nodes.
    pub fn new(endpoints: Vec<String>) -> Result<DemoClient> {
        let endpoint = |address: &String| -> Result<Endpoint> {
            Ok(Endpoint::from_shared(format!("http://{address}"))?
                .connect_timeout(Duration::from_secs(1))
                .timeout(ANSWER_WITHIN))
        };
        let endpoints: Vec<Endpoint> = endpoints.iter().map(endpoint).collect::<Result<_>>()?;
        let each = endpoints.iter().map(Endpoint::connect_lazy).collect();
        Ok(DemoClient { channel: Channel::balance_list(endpoints.into_iter()), each })
    }

    fn first(&self) -> Result<Channel> {
        self.each.first().cloned().context("a demo without nodes")
    }

    /// Makes the cluster of the first node and its peers.
    pub async fn init(&self, peers: Vec<String>) -> Result<()> {
        let request = InitClusterRequest { peers, ..InitClusterRequest::default() };
        ClusterServiceClient::new(self.first()?).init_cluster(request).await?;
        Ok(())
    }

    /// Name of the leader; waits for one.
    pub async fn leader(&self) -> Result<String> {
        let until = std::time::Instant::now() + COMES_WITHIN;
        loop {
            for channel in &self.each {
                let mut client = ClusterServiceClient::new(channel.clone());
                let asked = client.get_cluster_status(GetClusterStatusRequest {});
                if let Ok(Ok(answer)) = tokio::time::timeout(Duration::from_secs(2), asked).await {
                    let status = answer.into_inner();
                    if !status.leader.is_empty() && status.epoch > 0 {
                        return Ok(status.leader);
                    }
                }
            }
            if std::time::Instant::now() > until {
                bail!("no leader within {} s", COMES_WITHIN.as_secs());
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Asks for another leader. Whether it leads is for `leader` to tell.
    pub async fn transfer_leader(&self, to: &str) {
        let request = TransferLeaderRequest { to: to.to_owned() };
        let asked = ClusterServiceClient::new(self.channel.clone()).transfer_leader(request).await;
        if let Err(error) = asked {
            tracing::debug!(%error, to, "no hand-over yet");
        }
    }

    /// The mailbox as a relay, with this many emails a second over the whole cluster.
    pub async fn add_relay(&self, mailbox: SocketAddr, rate_per_second: f64) -> Result<()> {
        let relay = Relay {
            name: "mailbox".to_owned(),
            pool: "default".to_owned(),
            host: mailbox.ip().to_string(),
            port: mailbox.port().into(),
            tls: RelayTls::None.into(),
            rate_per_second,
            max_sessions: SESSIONS,
            ..Relay::default()
        };
        let request = AddRelayRequest { relay: Some(relay), ..AddRelayRequest::default() };
        RelayServiceClient::new(self.channel.clone()).add_relay(request).await.context("relay add")?;
        Ok(())
    }

    /// A daily schedule, as most people have one.
    pub async fn create_daily(&self, name: &str) -> Result<()> {
        let pattern = when::Pattern::Daily(Daily { hour: 9, ..Daily::default() });
        self.create(name, pattern, "Europe/Berlin", 1).await
    }

    /// A campaign that starts in a moment; answers its run once it has opened.
    pub async fn start_campaign(&self, name: &str, recipients: u32) -> Result<String> {
        let at = prost_types::Timestamp::from(SystemTime::now() + STARTS_IN);
        self.create(name, when::Pattern::At(at), "UTC", recipients).await?;
        let until = std::time::Instant::now() + COMES_WITHIN;
        loop {
            let request = ListRunsRequest { schedule: name.to_owned(), ..ListRunsRequest::default() };
            if let Ok(answer) = RunServiceClient::new(self.channel.clone()).list_runs(request).await
                && let Some(run) = answer.into_inner().runs.into_iter().next()
            {
                return Ok(run.run);
            }
            if std::time::Instant::now() > until {
                bail!("the campaign did not open within {} s", COMES_WITHIN.as_secs());
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    async fn create(&self, name: &str, pattern: when::Pattern, zone: &str, recipients: u32) -> Result<()> {
        let content = Content {
            sender: "Reveille demo <demo@example.org>".to_owned(),
            subject: "Hello {{ name }}".to_owned(),
            text: Some("Dear {{ name }},\n\nthis mail was sent once.\n\n{{ signature }}\n".to_owned()),
            html: Some(
                "<p>Dear {{ name }},</p><p>this email was sent <b>once</b>.</p><p>{{ signature }}</p>".to_owned(),
            ),
            variables: vec![Field { name: "signature".to_owned(), value: "Reveille".to_owned() }],
            bulk: false,
            ..Content::default()
        };
        let recipient = |number| Recipient { address: address_of(number), values: vec![format!("reader {number}")] };
        let audience = Audience {
            columns: vec!["name".to_owned()],
            recipients: (0..recipients).map(recipient).collect(),
            sealed: String::new(),
        };
        let schedule = ScheduleBody {
            name: name.to_owned(),
            when: Some(When { pattern: Some(pattern) }),
            zone: zone.to_owned(),
            content: Some(content),
            audience: Some(audience),
            ..ScheduleBody::default()
        };
        let request = CreateScheduleRequest {
            schedule: Some(schedule),
            request_id: uuid::Uuid::now_v7().to_string(),
            validate_only: false,
        };
        let mut client = ScheduleServiceClient::new(self.channel.clone());
        client.create_schedule(request).await.with_context(|| format!("schedule create {name}"))?;
        Ok(())
    }

    /// A run as it stands.
    pub async fn run(&self, run: &str) -> Result<Run> {
        let request = GetRunRequest { run: run.to_owned(), ..GetRunRequest::default() };
        let answer = RunServiceClient::new(self.channel.clone()).get_run(request).await?;
        answer.into_inner().run.context("an answer without a run")
    }

    /// When a recipient was claimed under a fence, as the ledger tells it.
    pub async fn claimed_at(&self, run: &str, recipient: &str, fence: &str) -> Option<SystemTime> {
        let request =
            ExplainRequest { run: run.to_owned(), recipient: recipient.to_owned(), ..ExplainRequest::default() };
        let story = RunServiceClient::new(self.channel.clone()).explain(request).await.ok()?.into_inner();
        let claimed = story.events.into_iter().find(|event| event.what == "claimed" && event.fence == fence)?;
        SystemTime::try_from(claimed.instant?).ok()
    }

    /// Addresses that are in doubt in a run.
    pub async fn doubts(&self, run: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut page_token = String::new();
        loop {
            let request =
                ListDoubtsRequest { run: run.to_owned(), page_size: 1_000, page_token, ..ListDoubtsRequest::default() };
            let answer = DoubtServiceClient::new(self.channel.clone()).list_doubts(request).await?.into_inner();
            found.extend(answer.doubts.into_iter().map(|doubt| doubt.recipient));
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                return Ok(found);
            }
        }
    }
}

/// Address of a recipient by number.
pub fn address_of(number: u32) -> String {
    format!("reader-{number}@example.net")
}

/// Nothing pending, nothing claimed.
pub fn is_finished(run: &Run) -> bool {
    run.counts.is_some_and(|counts| counts.pending == 0 && counts.claimed == 0)
}

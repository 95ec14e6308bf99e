//! Cluster, relays, limits, audiences and the test clock.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use reveille_proto::admin::v1::advance_clock_request::Target;
use reveille_proto::admin::v1::backup_service_client::BackupServiceClient;
use reveille_proto::admin::v1::clock_service_client::ClockServiceClient;
use reveille_proto::admin::v1::cluster_service_client::ClusterServiceClient;
use reveille_proto::admin::v1::pool_service_client::PoolServiceClient;
use reveille_proto::admin::v1::relay_service_client::RelayServiceClient;
use reveille_proto::admin::v1::tenant_service_client::TenantServiceClient;
use reveille_proto::admin::v1::{self as api, Authority, GetClusterStatusResponse, RelayTls};
use tokio::process::Command;
use tonic::{Code, Status};

use crate::access::AdminChannel;

use super::{ASK_AGAIN_AFTER, AdminClient, CallResult, is_transient, refused, rpc, timestamp};

/// Maximum silence of a node that moves the clock. Such a node reports its progress four times a second.
const CLOCK_SILENCE_MAX: Duration = Duration::from_secs(120);
/// Maximum number of tries to move the clock.
const CLOCK_TRIES_MAX: usize = 200;

impl AdminClient {
    /// Makes a join token, which admits one new node.
    pub async fn join_token(&self) -> Result<String> {
        let call = rpc!(ClusterServiceClient, add_member);
        Ok(self.read("member add", call, api::AddMemberRequest::default()).await?.token)
    }

    /// Returns the number of members that vote.
    pub async fn voters(&self) -> Result<usize> {
        Ok(self.members().await?.iter().filter(|member| member.votes).count())
    }

    /// Returns true if a node of this name votes.
    pub async fn votes(&self, name: &str) -> Result<bool> {
        Ok(self.members().await?.iter().any(|member| member.votes && member.name == name))
    }

    async fn members(&self) -> Result<Vec<api::Member>> {
        let call = rpc!(ClusterServiceClient, list_members);
        Ok(self.read("members", call, api::ListMembersRequest {}).await?.members)
    }

    /// Removes a member. `dead`: it never comes back; otherwise it runs, and is drained first.
    pub async fn remove_member(&self, name: &str, dead: bool) -> CallResult {
        let request = api::RemoveMemberRequest { member: name.to_owned(), dead };
        self.change(rpc!(ClusterServiceClient, remove_member), request).await.map(drop)
    }

    /// Returns the certificate authority, and how far its rotation is.
    pub async fn authority(&self) -> Result<Authority> {
        let call = rpc!(ClusterServiceClient, get_authority);
        Ok(self.read("cluster ca status", call, api::GetAuthorityRequest {}).await?.authority.unwrap_or_default())
    }

    /// Makes the next step of a rotation. Returns true if nothing is left to do.
    pub async fn rotate_authority(&self, replaces: &str) -> CallResult<bool> {
        let request = api::RotateAuthorityRequest { replaces: replaces.to_owned(), request_id: String::new() };
        let call = rpc!(ClusterServiceClient, rotate_authority);
        let is_over =
            |now: Authority| now.fingerprint != replaces && now.next_fingerprint.is_empty() && now.waits_for.is_empty();
        self.change(call, request).await.map(|answer| answer.authority.is_some_and(is_over))
    }

    /// Adds the sink as the relay of the default pool, without a rate.
    pub async fn add_relay(&self, sink: SocketAddr, sessions: u32) -> Result<()> {
        self.add_relay_of(("sink", "default"), sink, (sessions, 0.0)).await
    }

    /// Adds a relay to a pool, with this number of sessions on each node, and a rate over all nodes (0: unlimited).
    pub async fn add_relay_of(
        &self,
        (name, pool): (&str, &str),
        address: SocketAddr,
        (max_sessions, rate_per_second): (u32, f64),
    ) -> Result<()> {
        let (name, pool, tls) = (name.to_owned(), pool.to_owned(), RelayTls::None.into());
        let (host, port) = (address.ip().to_string(), address.port().into());
        let relay = api::Relay { name, pool, host, port, tls, rate_per_second, max_sessions, ..Default::default() };
        let request = api::AddRelayRequest { relay: Some(relay), ..Default::default() };
        self.read("relay add", rpc!(RelayServiceClient, add_relay), request).await.map(drop)
    }

    /// Sets the maximum number of emails per second of a tenant.
    pub async fn set_tenant_rate(&self, name: &str, per_second: f64) -> Result<()> {
        let (name, rate_per_second) = (name.to_owned(), Some(per_second));
        let request = api::SetTenantRequest { name, rate_per_second, ..Default::default() };
        self.read("tenant set", rpc!(TenantServiceClient, set_tenant), request).await.map(drop)
    }

    /// Starts the warm-up of a pool today, with these daily caps.
    pub async fn warm_up(&self, pool: &str, caps: Vec<u32>) -> Result<()> {
        let request = api::SetPoolRequest { name: pool.to_owned(), warm_up: caps, ..Default::default() };
        self.read("pool set", rpc!(PoolServiceClient, set_pool), request).await.map(drop)
    }

    /// Ends the warm-up of a pool.
    pub async fn remove_pool(&self, pool: &str) -> Result<()> {
        let request = api::RemovePoolRequest { name: pool.to_owned(), ..Default::default() };
        self.read("pool remove", rpc!(PoolServiceClient, remove_pool), request).await.map(drop)
    }

    /// Returns the state of the cluster from the first node that answers.
    pub async fn status(&self) -> Result<GetClusterStatusResponse> {
        let call = rpc!(ClusterServiceClient, get_cluster_status);
        self.read("cluster status", call, api::GetClusterStatusRequest {}).await
    }

    /// Transfers leadership to a node, or to any node if the name is empty. Returns the new leader.
    pub async fn transfer_leader(&self, to: &str) -> CallResult<String> {
        let call = rpc!(ClusterServiceClient, transfer_leader);
        self.change(call, api::TransferLeaderRequest { to: to.to_owned() }).await.map(|answer| answer.leader)
    }

    /// Raises the ledger to the highest level that all nodes apply.
    pub async fn finish_upgrade(&self) -> CallResult<u32> {
        let call = rpc!(ClusterServiceClient, finish_upgrade);
        self.change(call, api::FinishUpgradeRequest::default()).await.map(|answer| answer.level)
    }

    /// Returns the ledger's level.
    pub async fn ledger_level(&self) -> Result<u32> {
        let call = rpc!(ClusterServiceClient, get_upgrade);
        Ok(self.read("cluster upgrade status", call, api::GetUpgradeRequest {}).await?.level)
    }

    /// Generates and seals an audience.
    pub async fn generate_audience(&self, name: &str, recipients: u32, seed: u64, columns: &[&str]) -> Result<()> {
        let (recipients, seed) = (recipients.to_string(), seed.to_string());
        let mut words = vec!["audience", "generate", name, "--recipients", &recipients, "--seed", &seed];
        words.extend(columns.iter().flat_map(|column| ["--column", column]));
        if !self.tenant.is_empty() {
            words.extend(["--tenant", &self.tenant]);
        }
        self.command(&words).await.map(drop)
    }

    /// Makes a backup now, at the first node that can. Returns it when it was read back whole.
    ///
    /// Not by the command line: its context does not follow two rotations of the authority, as this client does.
    pub async fn back_up(&self) -> Result<api::Backup> {
        let mut reasons = Vec::new();
        for channel in &self.channels {
            match back_up_by(channel.clone()).await {
                Ok(made) => return made.context("a backup ended without its last message"),
                Err(status) => reasons.push(status.message().to_owned()),
            }
        }
        anyhow::bail!("no node made a backup: {}", reasons.join("; "))
    }

    /// Lets a restored cluster send.
    pub async fn accept_restore(&self) -> Result<()> {
        self.command(&["restore", "accept", "--former-cluster-is-dead", "--yes"]).await.map(drop)
    }

    /// Runs a command line of the product. Returns its output.
    async fn command(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.binary);
        command.args(words).stdin(Stdio::null());
        command.envs(self.access.folder().map(|folder| ("XDG_CONFIG_HOME", folder)));
        let scheme = if self.access.folder().is_some() { "https" } else { "http" };
        let endpoints: Vec<String> = self.endpoints.iter().map(|address| format!("{scheme}://{address}")).collect();
        let ended = command.args(["--endpoint", &endpoints.join(",")]).kill_on_drop(true).output().await?;
        let output = String::from_utf8_lossy(&ended.stderr);
        anyhow::ensure!(ended.status.success(), "{}: {}", words.join(" "), output.trim());
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }

    /// Returns the test clock.
    pub async fn clock(&self) -> Result<api::GetClockResponse> {
        self.read("clock show", rpc!(ClockServiceClient, get_clock), api::GetClockRequest::default()).await
    }

    /// Moves the test clock to an instant. If one node fails, it asks another node.
    pub async fn advance_clock(&self, to_unix_ms: i64) -> Result<()> {
        for node in 0..CLOCK_TRIES_MAX {
            if self.clock().await?.current_time.is_some_and(|now| now.seconds >= to_unix_ms.div_euclid(1_000)) {
                return Ok(());
            }
            let channel = self.channel(node).context("a cluster without nodes")?;
            if let Err(status) = advance(channel, to_unix_ms).await {
                let error = refused("clock advance", &status);
                eprintln!("  {error}");
                if !is_transient(status.code()) && status.code() != Code::InvalidArgument {
                    return Err(error);
                }
                tokio::time::sleep(ASK_AGAIN_AFTER).await;
            }
        }
        anyhow::bail!("clock advance: failed {CLOCK_TRIES_MAX} times")
    }
}

async fn advance(channel: AdminChannel, to_unix_ms: i64) -> Result<(), Status> {
    let request = api::AdvanceClockRequest { target: Some(Target::TargetTime(timestamp(to_unix_ms))), jump: false };
    let mut progress = ClockServiceClient::new(channel).advance_clock(request).await?.into_inner();
    loop {
        match tokio::time::timeout(CLOCK_SILENCE_MAX, progress.message()).await {
            Ok(Ok(Some(_))) => {}
            Ok(ended) => return ended.map(|_| ()),
            Err(_) => return Err(Status::deadline_exceeded("the node reports no progress")),
        }
    }
}

/// Makes a backup at one node. `None`: the answer ended early.
async fn back_up_by(channel: AdminChannel) -> Result<Option<api::Backup>, Status> {
    let mut answers = BackupServiceClient::new(channel).create_backup(api::CreateBackupRequest {}).await?.into_inner();
    let mut made = None;
    while let Some(answer) = answers.message().await? {
        made = answer.backup;
    }
    Ok(made)
}

//! Initializes a cluster: once, on one node, with founders that belong to no cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use reveille_ledger::command::Command;
use reveille_ledger::ids::NodeId;
use reveille_proto::admin::v1::{ErrorReason, InitClusterRequest, InitClusterResponse};
use reveille_raft::peer::{PeerError, Rejection};
use reveille_raft::{ClusterId, Member};
use tokio::task::JoinSet;
use tonic::Code;

use crate::server::admin::validate::Fields;
use crate::server::admin::{Admin, ApiError, ApiResult, error_texts, views};
use crate::server::config::Config;

/// Timeout for a founder to describe itself.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(3);
/// Maximum number of other founders. More voters slow down every write without more safety.
const FOUNDERS_MAX: usize = 7;

/// Maximum time for which a node with a cluster id may know no members.
const MEMBERS_WITHIN: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(20);

type Members = BTreeMap<NodeId, Member>;

/// Initializes a cluster, or returns the existing one if it has the same founders.
pub async fn found(admin: &Admin, request: InitClusterRequest, deadline: Instant) -> ApiResult<InitClusterResponse> {
    let named = if request.peers.is_empty() { &admin.join } else { &request.peers };
    let peers = addresses(named)?;
    if let Some(cluster) = admin.context.replica.cluster() {
        let made = again(admin, cluster, &peers, deadline).await?;
        keep_time(admin, cluster, &request, deadline).await?;
        return Ok(InitClusterResponse { existed: true, ..made });
    }
    let members = introductions(admin, peers, deadline).await?;
    if request.validate_only {
        return Ok(answer(String::new(), &members));
    }
    let cluster = ClusterId(uuid::Uuid::new_v4().as_u128());
    let made = admin.context.replica.initialize(cluster, &members).await;
    made.map_err(|error| error_texts::not_changed(&error).request(&request.request_id))?;
    tracing::info!(%cluster, founders = members.len(), "a cluster was made");
    known_members(admin, deadline).await;
    keep_time(admin, cluster, &request, deadline).await?;
    Ok(answer(cluster.to_string(), &members))
}

fn answer(cluster: String, members: &Members) -> InitClusterResponse {
    let members = members.iter().map(|(node, member)| views::member(*node, member)).collect();
    InitClusterResponse { cluster, members, existed: false }
}

/// Sets the test clock, which is chosen only once (P19). If an earlier attempt was interrupted, the same request
/// completes it.
async fn keep_time(
    admin: &Admin,
    cluster: ClusterId,
    request: &InitClusterRequest,
    deadline: Instant,
) -> ApiResult<()> {
    if request.test_clock && !request.validate_only {
        admin.write(Command::TestClock, &request.request_id, deadline).await?;
    } else if !request.test_clock && admin.context.replica.read(|ledger| ledger.head().test_clock.is_some()) {
        let message = format!("this node belongs to cluster {cluster}, whose clock is a test's for good");
        return Err(error_texts::already_initialized(message));
    }
    Ok(())
}

/// Returns the members. Waits for them, because a node gets its cluster id shortly before the members.
async fn known_members(admin: &Admin, deadline: Instant) -> Members {
    let end = deadline.min(Instant::now() + MEMBERS_WITHIN);
    loop {
        let known = admin.context.replica.members();
        if !known.is_empty() || Instant::now() >= end {
            return known;
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Handles a node that belongs to a cluster: the same founders get the same answer, others an error.
async fn again(
    admin: &Admin,
    cluster: ClusterId,
    peers: &BTreeSet<String>,
    deadline: Instant,
) -> ApiResult<InitClusterResponse> {
    let known = known_members(admin, deadline).await;
    if known.is_empty() {
        let message = format!(
            "this node was called by cluster {cluster}, or its own making was cut short; when its status does not \
             change, wipe its data folder, in which nothing is yet"
        );
        return Err(error_texts::already_initialized(message));
    }
    let own = &admin.context.introduction.address;
    let wanted: BTreeSet<&String> = peers.iter().chain([own]).collect();
    let founders: BTreeSet<&String> = known.values().map(|member| &member.address).collect();
    if wanted == founders {
        return Ok(answer(cluster.to_string(), &known));
    }
    Err(error_texts::already_initialized(format!("this node belongs to cluster {cluster} already")))
}

/// Returns the peer addresses without duplicates, if all are well formed.
fn addresses(named: &[String]) -> ApiResult<BTreeSet<String>> {
    let mut fields = Fields::default();
    if named.len() > FOUNDERS_MAX {
        fields.refuse("peers", format!("{} others, at most {FOUNDERS_MAX}; leave some out", named.len()));
    }
    for (place, address) in named.iter().enumerate() {
        if !is_address(address) {
            let message = format!("{address:?} is not an address; write HOST:PORT, such as 10.0.0.2:7601");
            fields.refuse(format!("peers[{place}]"), message);
        }
    }
    fields.done(Some(named.iter().cloned().collect()))
}

fn is_address(text: &str) -> bool {
    if text.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_host = (1..=253).contains(&host.len()) && host.bytes().all(named) && host.parse::<Ipv6Addr>().is_err();
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Returns this node and all founders. Each founder must report that it belongs to no cluster.
async fn introductions(admin: &Admin, peers: BTreeSet<String>, deadline: Instant) -> ApiResult<Members> {
    let own = &admin.context.introduction;
    let myself = Member { name: own.name.clone(), address: own.address.clone(), votes: true };
    let mut members = Members::from([(admin.context.me.node, myself)]);
    let limit = INTRODUCED_WITHIN.min(deadline.saturating_duration_since(Instant::now()));
    let mut asked = JoinSet::new();
    for address in peers {
        let replica = admin.context.replica.clone();
        asked.spawn(async move {
            let end = Instant::now() + limit;
            let answer = loop {
                match replica.identify(&address, end.saturating_duration_since(Instant::now())).await {
                    // A node listens shortly before it can describe itself.
                    Err(PeerError::Rejected(Rejection::Unavailable(_))) if Instant::now() < end => {
                        tokio::time::sleep(POLL_EVERY).await;
                    }
                    answer => break answer,
                }
            };
            (address, answer)
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by(|one, other| one.0.cmp(&other.0));
    let (mut fields, mut silent) = (Fields::default(), Vec::new());
    for (address, answer) in answers {
        let description = match answer {
            Ok(description) => description,
            Err(PeerError::Rejected(Rejection::Unimplemented(_))) => {
                let port = Config::PEER_PORT;
                let next = format!("give its --peer-listen ({port} unless it says otherwise), not its admin port");
                fields.refuse("peers", format!("{address} answers, but is no peer port; {next}"));
                continue;
            }
            Err(error) => {
                silent.push(format!("{address} does not answer: {error}"));
                continue;
            }
        };
        if description.node == admin.context.me.node {
            continue;
        }
        if let Some(cluster) = description.cluster {
            fields.refuse(
                "peers",
                format!(
                    "{} at {address} belongs to cluster {cluster}; leave it out, or start it with an empty data folder",
                    description.name
                ),
            );
        }
        if let Some(same) = members.get(&description.node) {
            fields.refuse("peers", format!("{} and {address} are one node; name it once", same.address));
            continue;
        }
        if members.values().any(|member| member.name == description.name) {
            fields.refuse("peers", format!("two founders are named '{}'; give each its own --name", description.name));
        }
        // The reached address counts, not the address that the founder reports: the other nodes will use it.
        members.insert(description.node, Member { name: description.name, address, votes: true });
    }
    let members = fields.done(Some(members))?;
    if silent.is_empty() {
        return Ok(members);
    }
    // The request is valid, but some founders do not answer yet.
    let fault = ApiError::new(Code::Unavailable, ErrorReason::NoQuorum, silent.join("; "));
    Err(fault.next("start each of the founders, and give the same command again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_address_has_a_host_and_a_port() {
        for text in ["10.0.0.2:7601", "[::1]:7601", "node-2.example.org:7601", "localhost:1"] {
            assert!(is_address(text), "{text}");
        }
        for text in
            ["", "10.0.0.2", "node-2:", ":7601", "::1:7601", "node 2:7601", "node:0", "node:70000", "http://n:1"]
        {
            assert!(!is_address(text), "{text}");
        }
    }
}

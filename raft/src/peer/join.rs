//! Admits new nodes: checks the join token, adds the node as a learner, and issues its certificate.
//!
//! Any member takes the request; the leader carries it out. A token is spent when the membership has its node id. The
//! same node may repeat its request until it has the answer: its key shows that it is the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::async_runtime::WatchReceiver;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1::{JoinRequest, JoinResponse};
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::{PeerError, Rejection};
use crate::Raft;
use crate::election::role::Role;
use crate::membership::{Member, MembershipError, change_membership, members, peer_node};
use crate::router::Router;
use crate::tls::{JoiningNode, NodeTls, TokenError};

/// Limit of one join: the new member is in the log, on a majority.
const JOIN_LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of a member's name, as `name` in its configuration.
const NAME_BYTES_MAX: usize = 64;
/// Maximum length of an address: a host name of 253 bytes and a port.
const ADDRESS_BYTES_MAX: usize = 260;

/// Admits new nodes.
pub(crate) struct JoinHandler {
    pub tls: Option<NodeTls>,
    pub raft: Raft,
    pub router: Arc<Router>,
    pub role: watch::Receiver<Role>,
    /// Held from reading the members until the change is in the log: two nodes must not get one id or name.
    pub changing: tokio::sync::Mutex<()>,
}

impl JoinHandler {
    /// Admits the node, or has the leader do it. Ends within twice [`JOIN_LIMIT`].
    pub async fn join(&self, request: JoinRequest) -> Result<JoinResponse, Rejection> {
        let unauthorized = |text: &dyn ToString| Rejection::Unauthorized(text.to_string());
        let tls = self.tls.as_ref().ok_or_else(|| unauthorized(&"this cluster has no certificate authority"))?;
        let joining = tls.check(&request.token, &request.key).map_err(|error| unauthorized(&error))?;
        check_words(&request)?;
        let role = *self.role.borrow();
        match role {
            Role::Leader { .. } => {
                let deadline = Instant::now() + JOIN_LIMIT;
                let adding = timeout_at(deadline.into(), self.add_learner(joining, request, deadline));
                let late = |_| Rejection::Unavailable("the members could not be changed in time; try again".to_owned());
                let joining = adding.await.map_err(late)??;
                self.answer(tls, &joining)
            }
            Role::Follower { leader: Some(leader) } if request.header.is_none() => self.pass_on(leader, request).await,
            _ => Err(Rejection::Unavailable("no leader is known now; try again".to_owned())),
        }
    }

    /// Issues the certificate of a member. The state is read after the node is in the membership: a rotation that
    /// begins later waits for it, and one that began before is in the answer.
    fn answer(&self, tls: &NodeTls, joining: &JoiningNode) -> Result<JoinResponse, Rejection> {
        let state = self.router.applied_state.read(|ledger| ledger.head().authority);
        let answer = tls
            .issue_certificate(joining, state.as_ref())
            .map_err(|error| Rejection::Unavailable(error.to_string()))?;
        let rotates = || Rejection::Unavailable("the certificate authority is being rotated; try again".to_owned());
        answer.ok_or_else(rotates)
    }

    async fn pass_on(&self, leader: NodeId, request: JoinRequest) -> Result<JoinResponse, Rejection> {
        let unknown = || Rejection::Unavailable("the leader is not known yet; try again".to_owned());
        let to = self.router.destination(leader).ok_or_else(unknown)?;
        self.router.client.ask(&to, request, JOIN_LIMIT).await.map_err(|error| match error {
            PeerError::Rejected(rejection) => rejection,
            error => Rejection::Unavailable(format!("the leader does not answer: {error}; try again")),
        })
    }

    /// Makes the node a learner. Returns it when a majority has the entry.
    async fn add_learner(
        &self,
        joining: JoiningNode,
        request: JoinRequest,
        deadline: Instant,
    ) -> Result<JoiningNode, Rejection> {
        let _changing = self.changing.lock().await;
        // A leader that was cut off must not answer by members that no majority has.
        let no_majority = || Rejection::Unavailable("this leader reaches no majority; try again".to_owned());
        let known = self.router.read_index_here(deadline).await.ok_or_else(no_majority)?;
        self.router.wait_applied(known, deadline).await.ok_or_else(no_majority)?;
        if self.router.applied_state.read(|ledger| ledger.removed_nodes().contains(&joining.node)) {
            return Err(Rejection::Unauthorized(format!(
                "node {} was removed, and its id is never used again; make another token, and start \
                 with an empty data folder",
                joining.node
            )));
        }
        let member = Member { name: request.name, address: request.address, votes: false, key: Some(joining.pin()) };
        if self.is_member(&joining, &member)? {
            return Ok(joining);
        }
        let adding = self.raft.add_learner(joining.node.0, peer_node(&member), false);
        change_membership(adding, deadline).await.map_err(|error| match error {
            MembershipError::NotPossible(why) => Rejection::Unauthorized(why),
            error => Rejection::Unavailable(format!("{error}; try again")),
        })?;
        tracing::info!(node = %joining.node, name = member.name, address = member.address, "a node was admitted");
        Ok(joining)
    }

    /// Returns true if the node is a member already, by an earlier request of its own.
    fn is_member(&self, joining: &JoiningNode, new: &Member) -> Result<bool, Rejection> {
        let unauthorized = |text: String| Err(Rejection::Unauthorized(text));
        // No clock of a single machine counts, neither that of the member that made the token nor this one (P18).
        let now = self.router.applied_state.read(|ledger| ledger.head().real_now());
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let members = members(&metrics.committed_membership_config);
        if let Some(known) = members.get(&joining.node) {
            if known.key != new.key {
                return unauthorized("another node has used this join token; make another one".to_owned());
            }
            if known.address != new.address {
                return unauthorized(format!("this node was admitted with the address {}", known.address));
            }
            return Ok(true);
        }
        if joining.is_expired(now) {
            return unauthorized(TokenError::Expired.to_string());
        }
        if let Some(known) = members.values().find(|known| known.name == new.name) {
            return unauthorized(format!("a member is named '{}' already; give this node its own name", known.name));
        }
        match members.values().find(|known| known.address == new.address) {
            Some(Member { name, address, .. }) => unauthorized(format!(
                "member '{name}' has the address {address} already; give this node an address of its own"
            )),
            None => Ok(false),
        }
    }
}

/// Checks the name and the address that all members will store and log.
fn check_words(request: &JoinRequest) -> Result<(), Rejection> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=NAME_BYTES_MAX).contains(&request.name.len()) || !request.name.bytes().all(plain) {
        let text = format!("field name has other than 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'");
        return Err(Rejection::Malformed(text));
    }
    let host = |host: &str| !host.is_empty() && host.bytes().all(|byte| plain(byte) || b"[]:".contains(&byte));
    let is_address = |(of, port): (&str, &str)| host(of) && port.parse::<u16>().is_ok_and(|port| port > 0);
    if request.address.len() > ADDRESS_BYTES_MAX || !request.address.rsplit_once(':').is_some_and(is_address) {
        return Err(Rejection::Malformed("field address is not HOST:PORT".to_owned()));
    }
    Ok(())
}

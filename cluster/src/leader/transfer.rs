//! Leadership goes elsewhere: because an operator wants it, because this node stops, or because it cannot do
//! a leader's work (P13, P18).

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::ids::NodeId;

use crate::node::context::NodeContext;
use crate::node::peer_messages::{self, HandOver};

/// How long one heir is waited for before the next is asked.
const EACH: Duration = Duration::from_millis(1_500);
/// How long a leader that is not fit tries to find an heir before its leadership just ends.
const ALL: Duration = Duration::from_secs(5);
/// How long a node that was not fit to lead does not stand again (P13).
const REST: Duration = Duration::from_secs(60);

/// Why leadership did not move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// No node leads.
    #[error("no leader is known")]
    NoLeader,
    /// The leader does not do it.
    #[error("{0}")]
    Refused(String),
}

/// Why a node should not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// What is committed is not applied for too long.
    Lags,
    /// A write or sync of the log takes too long.
    DiskHangs,
    /// There is work and credit, and nothing is granted.
    GrantsNothing,
    /// Its clock is off.
    ClockIsOff,
}

impl Unfit {
    /// As metrics call it.
    fn cause(self) -> &'static str {
        match self {
            Unfit::Lags => "lag",
            Unfit::DiskHangs => "disk",
            Unfit::GrantsNothing => "no grants",
            Unfit::ClockIsOff => "clock",
        }
    }

    /// As people read it.
    fn text(self) -> &'static str {
        match self {
            Unfit::Lags => "what is committed is not applied for 2 s",
            Unfit::DiskHangs => "the disk of the log has not answered for 5 s",
            Unfit::GrantsNothing => "there is work and room for it, and nothing was granted for 10 s",
            Unfit::ClockIsOff => "its clock is more than 2 s off the median of the voters'",
        }
    }
}

/// Has the leader hand over to `to`; done at once when it leads already.
pub async fn to(context: &Arc<NodeContext>, to: NodeId, deadline: Instant) -> Result<(), TransferError> {
    let current = context.leader().ok_or(TransferError::NoLeader)?;
    if current == to {
        return Ok(());
    }
    let peer = context.replica.peer(current).ok_or(TransferError::NoLeader)?;
    let answer = peer_messages::ask(&peer, HandOver { to }, deadline.saturating_duration_since(Instant::now())).await;
    answer.map_err(|error| TransferError::Refused(error.to_string()))?.map_err(TransferError::Refused)
}

/// This leader is not fit: it rests, and hands over to a voter of which `may` is true. Returns true when it has
/// tried: then the leadership must end, whether another node took over or not. False where no other node votes, and an
/// unfit leader is better than none.
///
/// Another leader ends the leadership, and with it the caller.
pub(crate) async fn step_down(context: &NodeContext, unfit: Unfit, may: impl Fn(NodeId) -> bool) -> bool {
    if context.voters().len() < 2 {
        tracing::warn!(cause = unfit.cause(), "this leader should hand over, but votes alone: {}", unfit.text());
        return false;
    }
    tracing::error!(cause = unfit.cause(), "this leader hands over: {}", unfit.text());
    metrics::counter!("reveille_handovers_total", "cause" => unfit.cause()).increment(1);
    context.replica.pause_candidacy(REST);
    if away(context, may, Instant::now() + ALL).await.is_none() {
        tracing::warn!("no voter took over: the leadership ends");
    }
    true
}

/// Hands leadership to another voter, of those that `may` lead the one whose log is the longest. Answers who
/// leads now.
pub(crate) async fn away(context: &NodeContext, may: impl Fn(NodeId) -> bool, deadline: Instant) -> Option<NodeId> {
    for heir in heirs(context).into_iter().filter(|heir| may(*heir)) {
        let until = deadline.min(Instant::now() + EACH);
        match context.replica.transfer_leader(heir, until).await {
            Ok(()) => {
                tracing::info!(to = %heir, "leadership was handed over");
                return Some(heir);
            }
            Err(error) => tracing::debug!(%error, to = %heir, "leadership was not handed over"),
        }
    }
    None
}

/// The other voters, the most caught-up first.
fn heirs(context: &NodeContext) -> Vec<NodeId> {
    let members = context.replica.status().members;
    let others = members.into_iter().filter(|(node, standing)| *node != context.me.node && standing.member.votes);
    let mut heirs: Vec<_> = others.map(|(node, standing)| (standing.lag.unwrap_or(u64::MAX), node)).collect();
    heirs.sort_unstable();
    heirs.into_iter().map(|(_, node)| node).collect()
}

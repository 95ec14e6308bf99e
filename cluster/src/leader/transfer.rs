//! Moves leadership to another node: on an operator's request, because this node stops, or because it is not fit to
//! lead (P13, P18).

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::ids::NodeId;

use crate::process::context::NodeContext;
use crate::process::peer_messages::{self, HandOver};

/// Maximum time to wait for one voter to take over before the next is tried.
const VOTER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Maximum time in which an unfit leader tries to hand over. After it the leadership ends without a successor.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a node that was unfit to lead is no candidate (P13).
const CANDIDACY_PAUSE: Duration = Duration::from_secs(60);

/// Reason why leadership did not move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// This node knows of no leader, or has no connection to it.
    #[error("no leader is known")]
    NoLeader,
    /// The leader refused, or did not answer in time; the text says why.
    #[error("{0}")]
    Refused(String),
}

/// Reason why a node should not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// Label of the metric.
    cause: &'static str,
    /// Text for log lines.
    text: &'static str,
}

impl Unfit {
    pub const LAGS: Unfit = Unfit { cause: "lag", text: "what is committed is not applied for 2 s" };
    pub const DISK_HANGS: Unfit = Unfit { cause: "disk", text: "the disk of the log has not answered for 5 s" };
    pub const DISK_FULL: Unfit = Unfit { cause: "disk_full", text: "its volume is full, and another node has space" };
    pub const GRANTS_NOTHING: Unfit =
        Unfit { cause: "no_grants", text: "there is work and room for it, and nothing was granted for 10 s" };
    pub const CLOCK_IS_OFF: Unfit =
        Unfit { cause: "clock", text: "its clock is more than 2 s off the median of the voters'" };
    pub const DRAINS: Unfit = Unfit { cause: "drain", text: "it drains, or was removed" };
}

/// Asks the leader to hand over to `to`. Returns at once if `to` already leads.
///
/// # Errors
/// [`TransferError`] if leadership did not move before `deadline`.
pub async fn request_transfer(context: &Arc<NodeContext>, to: NodeId, deadline: Instant) -> Result<(), TransferError> {
    let current = context.leader().ok_or(TransferError::NoLeader)?;
    if current == to {
        return Ok(());
    }
    let peer = context.replica.peer(current).ok_or(TransferError::NoLeader)?;
    let answer = peer_messages::ask(&peer, HandOver { to }, deadline.saturating_duration_since(Instant::now())).await;
    answer.map_err(|error| TransferError::Refused(error.to_string()))?.map_err(TransferError::Refused)
}

/// Hands over from this unfit leader to a voter for which `may` is true, and pauses this node's candidacy. Returns true
/// after the attempt: then the leadership must end, even if no voter took over. Returns false if no other node votes,
/// because an unfit leader is better than none.
///
/// If another node takes over, the leadership ends, and with it the caller.
pub(crate) async fn step_down(context: &NodeContext, unfit: Unfit, may: impl Fn(NodeId) -> bool) -> bool {
    if context.voters().len() < 2 {
        tracing::warn!(cause = unfit.cause, "this leader should hand over, but votes alone: {}", unfit.text);
        return false;
    }
    tracing::error!(cause = unfit.cause, "this leader hands over: {}", unfit.text);
    metrics::counter!("reveille_handovers_total", "cause" => unfit.cause).increment(1);
    context.replica.pause_candidacy(CANDIDACY_PAUSE);
    if transfer_to_any(context, may, Instant::now() + TRANSFER_TIMEOUT).await.is_none() {
        tracing::warn!("no voter took over: the leadership ends");
    }
    true
}

/// Hands leadership to another voter for which `may` is true; those with the longest log are tried first. Returns the
/// new leader; `None` if no voter took over before `deadline`.
pub(crate) async fn transfer_to_any(
    context: &NodeContext,
    may: impl Fn(NodeId) -> bool,
    deadline: Instant,
) -> Option<NodeId> {
    for successor in voters_by_lag(context).into_iter().filter(|successor| may(*successor)) {
        let until = deadline.min(Instant::now() + VOTER_TIMEOUT);
        match context.replica.transfer_leader(successor, until).await {
            Ok(()) => {
                tracing::info!(to = %successor, "leadership was handed over");
                return Some(successor);
            }
            Err(error) => tracing::debug!(%error, to = %successor, "leadership was not handed over"),
        }
    }
    None
}

/// Returns the other voters, the one with the smallest lag first.
fn voters_by_lag(context: &NodeContext) -> Vec<NodeId> {
    let members = context.replica.status().members;
    let others = members.into_iter().filter(|(node, status)| *node != context.me.node && status.member.votes);
    let mut voters_by_lag: Vec<_> = others.map(|(node, status)| (status.lag.unwrap_or(u64::MAX), node)).collect();
    voters_by_lag.sort_unstable();
    voters_by_lag.into_iter().map(|(_, node)| node).collect()
}

//! Builds messages from the ledger's state. Pure functions: they make no requests and do not wait.

mod campaign;
mod doubt;
pub mod event;
pub mod forecast;
mod history;
mod relay;
mod run;
mod schedule;

use std::collections::BTreeSet;

use prost_types::{Duration, Timestamp};
use reveille_cluster::process::peer_messages::BarrierReport;
use reveille_ledger::Ledger;
use reveille_ledger::ids::{ClaimOwner, NodeId, Time};
use reveille_proto::admin::v1;
use reveille_raft::Member;

pub use campaign::{campaign, campaign_body, campaign_state, finish_by_ms};
pub use doubt::{DoubtRow, dead_letter, doubt, run_recipient};
pub use history::{explained, inside_gap, opened, opened_and_lost, waiting};
pub use relay::{health, relay, relay_stage};
pub use run::{canary, missing_file, pause, run_of, run_state, run_to_open, state_word};
pub use schedule::{
    ReadTime, block, body, etag, instant_of, is_other_etag, mail, next_instants, schedule, schedule_state,
};

/// Converts an instant.
pub fn timestamp(time: Time) -> Timestamp {
    let nanos = time.0.rem_euclid(1_000) * 1_000_000;
    Timestamp { seconds: time.0.div_euclid(1_000), nanos: i32::try_from(nanos).unwrap_or_default() }
}

/// Converts a duration from milliseconds.
pub fn duration(ms: i64) -> Duration {
    let nanos = ms % 1_000 * 1_000_000;
    Duration { seconds: ms / 1_000, nanos: i32::try_from(nanos).unwrap_or_default() }
}

/// Returns the name of a node, also of a removed one, or its id if the ledger does not know it.
pub fn node_name(ledger: &Ledger, node: NodeId) -> String {
    if node == ClaimOwner::NONE.node {
        return "none".to_owned();
    }
    let removed = || ledger.removed_nodes().get(&node).map(|removed| removed.name.clone());
    let known = ledger.nodes().get(&node).map(|node| node.name.clone()).or_else(removed);
    known.filter(|name| !name.is_empty()).unwrap_or_else(|| node.to_string())
}

/// Builds the message of a member.
pub fn member(node: NodeId, member: &Member, draining: &BTreeSet<NodeId>) -> v1::Member {
    let (name, address) = (member.name.clone(), member.address.clone());
    v1::Member { id: node.to_string(), name, address, votes: member.votes, drains: draining.contains(&node) }
}

/// Builds the message of a barrier's result (P15).
pub fn barrier(ledger: &Ledger, index: u64, report: &BarrierReport) -> v1::Barrier {
    let crossed = report.crossed.iter().map(|crossed| v1::Crossing {
        run: crossed.run.to_string(),
        number: crossed.recipient,
        fence: crossed.fence.to_string(),
    });
    let unconfirmed = report.unconfirmed.iter().map(|node| node_name(ledger, *node));
    v1::Barrier { index, crossed: crossed.collect(), unconfirmed: unconfirmed.collect() }
}

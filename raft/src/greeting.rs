//! A node shows its peers what its data folder holds, before it votes or acknowledges anything (P21).
//!
//! Whoever remembers more refuses it, and then it must stop: see [`crate::peer::recall`]. At its start it asks
//! all at once and waits a moment only, since a cluster that starts as a whole must not wait for itself. Whom it
//! did not reach then it asks again until each has answered once: who comes later may remember more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use openraft::async_runtime::WatchReceiver;
use reveille_ledger::ids::NodeId;
use reveille_proto::peer::v1;
use tokio_util::sync::CancellationToken;

use crate::Raft;
use crate::membership::{Member, members};
use crate::peer::Destination;
use crate::peer::client::Caller;

/// A peer that runs answers well within this; at the start nobody waits longer.
const LIMIT: Duration = Duration::from_millis(500);
/// Pause between two attempts to reach those who have not answered.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Asks everybody but this node and those in `met`, at once; adds to these who took it.
pub(crate) async fn greet(caller: &Caller, members: &BTreeMap<NodeId, Member>, met: &mut BTreeSet<NodeId>) {
    let own = caller.identity.node();
    let others = members.iter().filter(|(id, _)| **id != own && !met.contains(*id));
    let asked = others.map(|(id, member)| async move {
        let to = Destination { node: *id, address: member.address.clone() };
        let answer = caller.ask(&to, v1::GreetRequest::default(), LIMIT).await;
        answer.is_ok().then_some(*id)
    });
    let took: Vec<Option<NodeId>> = join_all(asked).await;
    met.extend(took.into_iter().flatten());
}

/// Goes on asking until every member has answered once.
pub(crate) async fn keep(caller: Caller, raft: Raft, mut met: BTreeSet<NodeId>, stop: CancellationToken) {
    let metrics = raft.metrics();
    loop {
        let known = members(&metrics.borrow_watched().membership_config);
        let alone = known.is_empty();
        if !alone && known.keys().all(|id| *id == caller.identity.node() || met.contains(id)) {
            return;
        }
        greet(&caller, &known, &mut met).await;
        if stop.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await.is_none() {
            return;
        }
    }
}

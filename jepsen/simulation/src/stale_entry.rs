//! Proposes entries that are stamped with a former epoch. In real nodes an epoch may end between the stamp and the
//! entry; on one thread this does not occur by itself.

use std::sync::Arc;
use std::time::Instant;

use reveille_cluster::process::context::NodeContext;
use reveille_ledger::command::{Actor, Command, Entry};
use reveille_ledger::ids::Epoch;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::CommandOutcome;
use reveille_raft::Role;
use tokio::time::Duration;

use crate::network::Network;

/// Maximum time of the proposal.
const WITHIN: Duration = Duration::from_secs(5);

/// Proposes a stale entry at the leader. `apply` must refuse it for its epoch (P13).
pub fn propose(context: Option<Arc<NodeContext>>, network: Network) {
    let Some(context) = context else { return };
    let Role::Leader { term } = *context.replica.role().borrow() else { return };
    tokio::spawn(async move {
        let (current, now) = context.replica.read(|ledger| (ledger.head().epoch, ledger.head().now));
        let Some(epoch) = current.map(|current| Epoch(current.epoch.0.saturating_sub(1))) else { return };
        let entry = Entry { epoch, now, actor: Actor::System, command: Command::Tick };
        let written = context.replica.propose_stamped(term, &entry, Instant::now() + WITHIN).await;
        if let Some(Ok(reply)) = written
            && !matches!(reply.outcome, CommandOutcome::Refused(CommandRefusal::WrongEpoch { .. }))
        {
            let index = reply.index;
            network.record_violation(format!("P13: entry {index} of epoch {} was taken after it was over", epoch.0));
        }
    });
}

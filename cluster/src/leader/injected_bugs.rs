//! A bug that tests inject into a leader's actors, to prove that the judge finds it (`reveille_ledger::injected_bugs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::command::Command;
use reveille_ledger::reply::CommandOutcome;

use crate::process::context::NodeContext;

/// Time for which one attempt waits for its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// Time for which the attempts are repeated.
const REPEATS_FOR: Duration = Duration::from_secs(60);

/// `Bug::TimerTrustsLeader`: a timer that trusts that it leads. It sends the command to any leader until it gets an
/// answer, and does not stop when its leadership ends.
pub(crate) async fn propose_to_any_leader(context: Arc<NodeContext>, command: Command) -> Option<CommandOutcome> {
    let over = Instant::now() + REPEATS_FOR;
    let asked = tokio::spawn(async move {
        while Instant::now() < over {
            if let Ok(reply) = context.replica.propose(&command, Instant::now() + ANSWER_WITHIN).await {
                return Some(reply.outcome);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        None
    });
    asked.await.ok().flatten()
}

//! The bug [`Bug::AckBeforeCommit`]. Only a build with the feature `injected-bugs` has this file.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use reveille_ledger::command::{Actor, Command};
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use tokio::sync::{oneshot, watch};

use super::{EntryStamp, Proposal, TryResult, answer, stamped};
use crate::Raft;
use crate::types::EntryBytes;

/// Time from the answer to the write. A leader that ends within this time loses the command. Without it, a fault would
/// have to strike in the instant between answer and write.
const WRITTEN_AFTER: Duration = Duration::from_secs(5);

/// Answers a command before it is in any log and writes it later, if this process has the bug and the normal reply is
/// `Done`. Otherwise returns the proposal.
pub(super) fn acknowledge_before_commit(
    raft: &Raft,
    stamps: &watch::Receiver<Option<Arc<dyn EntryStamp>>>,
    proposal: Proposal,
) -> Option<Proposal> {
    let command = postcard::from_bytes::<(Actor, Command)>(&proposal.command);
    let is_plain = matches!(
        command,
        Ok((
            _,
            Command::OptOutTakeBack(_) | Command::SchedulePause(_) | Command::ScheduleResume(_) | Command::RunResume(_)
        ))
    );
    if !is_plain || !injected_bugs::is(Bug::AckBeforeCommit) {
        return Some(proposal);
    }
    let index = raft.metrics().borrow_watched().last_log_index.unwrap_or(0) + 1;
    let reply = CommandReply { index, is_repeat: false, outcome: CommandOutcome::Done };
    let _ = proposal.outcome.send(TryResult::Done(reply));
    let (raft, stamps, command) = (raft.clone(), stamps.clone(), proposal.command);
    tokio::spawn(async move {
        tokio::time::sleep(WRITTEN_AFTER).await;
        let stamp = stamps.borrow().as_ref().and_then(|stamp| stamp.stamp());
        if let Some((epoch, now)) = stamp {
            let entry = EntryBytes(stamped(epoch, now, &command));
            let _ = raft.write(entry).responder(answer(None, oneshot::channel().0)).await;
        }
    });
    None
}

//! The bug [`Bug::AckBeforeCommit`]. Only a build with the feature `injected-bugs` has this file.

use openraft::async_runtime::WatchReceiver;
use reveille_ledger::command::{Actor, Command};
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use tokio::sync::oneshot;

use super::{Proposal, TryResult};
use crate::Raft;

/// Acknowledges a command before it is in any log, if this process has the bug and the normal reply is `Done`. The
/// caller of the returned proposal hears nothing more.
pub(super) fn acknowledge_before_commit(raft: &Raft, proposal: Proposal) -> Proposal {
    let command = postcard::from_bytes::<(Actor, Command)>(&proposal.command);
    let is_plain = matches!(
        command,
        Ok((
            _,
            Command::OptOutTakeBack(_) | Command::SchedulePause(_) | Command::ScheduleResume(_) | Command::RunResume(_)
        ))
    );
    if !is_plain || !injected_bugs::is(Bug::AckBeforeCommit) {
        return proposal;
    }
    let index = raft.metrics().borrow_watched().last_log_index.unwrap_or(0) + 1;
    let _ = proposal.outcome.send(TryResult::Done(CommandReply { index, outcome: CommandOutcome::Done }));
    Proposal { outcome: oneshot::channel().0, ..proposal }
}

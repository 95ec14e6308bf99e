//! Writes: a command is proposed through the leader. When the call returns, this node has applied it.

use reveille_ledger::command::Command;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use reveille_raft::{ProposeError, crash};

use super::error_texts::CallKind;
use super::{Admin, ApiError, ApiResult, Call, error_texts};

/// Why a write returns no reply of the ledger.
#[derive(Debug)]
pub enum WriteError {
    /// The ledger refused the command, and nothing changed.
    Refused(CommandRefusal),
    /// The command was not proposed, or its outcome is unknown.
    Failed(ApiError),
}

impl WriteError {
    /// Returns the error for the caller. `text` words a refusal.
    pub fn worded(self, text: impl FnOnce(&CommandRefusal) -> ApiError) -> ApiError {
        match self {
            WriteError::Refused(refusal) => text(&refusal),
            WriteError::Failed(error) => error,
        }
    }
}

impl From<ApiError> for WriteError {
    fn from(error: ApiError) -> WriteError {
        WriteError::Failed(error)
    }
}

impl Admin {
    /// Proposes the command, waits until this node has applied it, and returns the ledger's reply. A refusal is an
    /// error.
    pub(crate) async fn write(&self, command: Command, call: &Call) -> ApiResult<CommandReply> {
        self.try_write(command, call).await.map_err(|error| error.worded(error_texts::refused))
    }

    /// Like [`Admin::write`]. With `dry_run` it only runs the ledger's check of the command, and returns `None`.
    pub(crate) async fn write_unless(
        &self,
        dry_run: bool,
        command: Command,
        call: &Call,
    ) -> ApiResult<Option<CommandReply>> {
        let written = self.try_write_unless(dry_run, command, call).await;
        written.map_err(|error| error.worded(error_texts::refused))
    }

    /// Like [`Admin::write_unless`], but returns the ledger's refusal, so that the caller can word the error.
    pub(crate) async fn try_write_unless(
        &self,
        dry_run: bool,
        command: Command,
        call: &Call,
    ) -> Result<Option<CommandReply>, WriteError> {
        if dry_run {
            let checked = self.read_latest(call, |ledger| ledger.check(&command)).await?;
            return checked.map(|()| None).map_err(WriteError::Refused);
        }
        self.try_write(command, call).await.map(Some)
    }

    /// Like [`Admin::write`], but returns the ledger's refusal, so that the caller can read the state again.
    pub(crate) async fn try_write(&self, command: Command, call: &Call) -> Result<CommandReply, WriteError> {
        if is_new_work(&command)
            && let Some(why) = self.context.disk.shortage()
        {
            return Err(error_texts::no_room(&self.context.introduction.name, &why).into());
        }
        self.record_step("propose");
        let reply = match self.context.replica.propose_while_led(call.actor(), &command, call.deadline).await {
            Ok(reply) => reply,
            Err(ProposeError::NoLeader | ProposeError::NotReady) => {
                return Err(self.no_leader(CallKind::Write, call).await.into());
            }
            Err(error) => return Err(error_texts::not_proposed(&error, self.leader().as_ref()).into()),
        };
        if let CommandOutcome::Refused(refusal) = reply.outcome {
            return Err(WriteError::Refused(refusal));
        }
        call.wrote(reply.index);
        let applied = self.context.replica.wait_applied(reply.index, call.deadline).await;
        applied.ok_or_else(|| error_texts::not_seen(reply.index))?;
        crash::point("admin.after-commit-before-reply");
        Ok(reply)
    }
}

/// Returns true if a node whose volume is nearly full refuses the command. What is on its way, and what ends or holds
/// something, goes on.
fn is_new_work(command: &Command) -> bool {
    matches!(
        command,
        Command::ScheduleCreate(_)
            | Command::SchedulesCreate(_)
            | Command::ScheduleEdit(_)
            | Command::Trigger(_)
            | Command::Backfill(_)
            | Command::SendMessages(_)
            | Command::AudienceSeal(_)
            | Command::CampaignCreate(_)
            | Command::CampaignLaunch(_)
            | Command::TemplatePut(_)
    )
}

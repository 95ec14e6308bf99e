//! Quarantine: a schedule or a run at which the leader fails is stopped, and the others go on.

use super::Context;
use crate::command::{Quarantine, Quarantined};
use crate::model::{BlockCause, CommandOutcome, CommandRefusal, EventKind, Ledger, PauseReason, ScheduleState};

impl Ledger {
    pub(super) fn quarantine(
        &mut self,
        context: &mut Context,
        quarantine: &Quarantine,
    ) -> Result<CommandOutcome, CommandRefusal> {
        match quarantine.item {
            Quarantined::Schedule(id) => {
                let cause = BlockCause::Quarantined(quarantine.cause.as_str().into());
                let event = EventKind::ScheduleBlocked(cause.clone());
                self.change_state(context, id, |_| ScheduleState::Blocked { cause })?;
                self.add_blocked_event(context, id, event);
                context.alarm(format!("schedule {id} is blocked: {}", quarantine.cause));
                Ok(CommandOutcome::Done)
            }
            Quarantined::Run(run) => {
                let outcome = self.halt_run(context, run, PauseReason::Quarantined(quarantine.cause.clone()))?;
                context.alarm(format!("run {run} is paused: {}", quarantine.cause));
                Ok(outcome)
            }
        }
    }
}

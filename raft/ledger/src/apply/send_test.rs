//! A test email: a temporary schedule opens one run and is deleted, all in one entry.
//!
//! The run is like any other: its email is claimed, passes the gate and is settled (P3). So there is no second way to
//! send an email, and no cleanup: a run outlives its schedule as after a delete.

use std::sync::Arc;

use super::Context;
use super::bounds::{bounded, refuse_if};
use super::fire::OpeningOccurrence;
use crate::calendar::When;
use crate::command::{Opening, SendTest};
use crate::model::{
    Activity, Bounded, CancelledRuns, CommandOutcome, CommandRefusal, Impossible, Labels, Ledger, Nominal,
    OpeningCause, Overlap, Plan, Policies, Schedule, ScheduleId, ScheduleSettings, ScheduleTiming,
};

/// Name of the schedule in runs of test emails. No schedule is found by it.
pub const TEST_NAME: &str = "send-test";

impl Ledger {
    pub(super) fn send_test(
        &mut self,
        context: &mut Context,
        test: &SendTest,
    ) -> Result<CommandOutcome, CommandRefusal> {
        let (content, audience) = (test.content.blob(), test.audience.blob());
        bounded(Bounded::ContentBytes, content.bytes.len(), self.limits().content_bytes_max)?;
        bounded(Bounded::InlineBytes, audience.bytes.len(), self.limits().inline_bytes_max)?;
        refuse_if(test.audience.recipients.len() != 1, Impossible::NotOneRecipient)?;
        let id = ScheduleId::new(context.index, 0);
        let schedule = Schedule {
            name: TEST_NAME.into(),
            timing: Arc::new(ScheduleTiming {
                when: When::At { instant_ms: context.now.0 },
                zone: "UTC".to_owned(),
                start: None,
                end: None,
                max_runs: Some(1),
            }),
            settings: Arc::new(ScheduleSettings {
                tenant: test.tenant.as_str().into(),
                policies: Arc::new(Policies {
                    // The first answer about the mailbox is the result of the test.
                    max_attempts: 1,
                    overlap: Overlap::Allow,
                    ..test.policies.clone()
                }),
                pool: test.pool.as_str().into(),
                priority: u8::MAX,
            }),
            content: content.hash,
            audience: audience.hash,
            recipients: 1,
            activity: Activity::Done,
            plan: Plan { opened: 1, ..Plan::new(None, context.now, "".into()) },
            index: context.index,
            labels: Labels::default(),
        };
        self.store_blob(content);
        self.store_blob(audience);
        self.schedules.put(id, schedule);
        let opening = Opening {
            nominal: Nominal::Trigger(test.request.clone()),
            due: context.now,
            cause: OpeningCause::Test,
            finish_by: context.now.plus_ms(test.policies.finish_by_ms),
        };
        let runs = self.open_runs(context, vec![OpeningOccurrence { schedule: id, opening, waited_for: None }]);
        if let Some(schedule) = self.schedules.remove(&id) {
            self.release_blob(&schedule.content);
            self.release_blob(&schedule.audience);
        }
        let run = runs.first().map(|(_, run)| *run).ok_or(CommandRefusal::NoSuchSchedule(id))?;
        Ok(CommandOutcome::Run { run, cancelled: CancelledRuns::default() })
    }
}

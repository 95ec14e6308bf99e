//! Operations while faults are in force. Operators trigger, pause, resume and cancel runs, pause schedules, decide
//! about recipients in doubt and requeue dead letters. Recipients opt out and withdraw their opt-outs.

use reveille_check::events::{Operation, Target};
use reveille_cluster::process::peer_messages::BarrierSubject;
use reveille_ledger::command::{
    Command, Decide, Decider, Decision, OptOut, OptOutTakeBack, PickedRecipients, Requeue, RunPause, RunResume,
    SchedulePause, ScheduleResume, Trigger,
};
use reveille_ledger::ids::RunId;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Ledger, RecipientState, RunState};
use tokio::time::Duration;

use crate::clients::{AnsweredCall, Clients, Created, answer, try_once};
use crate::final_records::recipients;
use crate::random::RandomStream;

/// Length of a pause.
const PAUSE_FOR: Duration = Duration::from_secs(20);
/// Number of recipients that opt out at once, and the time within which a triggered run is interrupted.
const OPT_OUTS: u32 = 6;
const STOP_WITHIN_MS: u64 = 800;
/// Maximum number of tries to resume a schedule.
const RESUMES_MAX: usize = 3;

impl Clients {
    /// Starts one random operation on an existing object.
    pub fn operate(&self, random: &mut RandomStream) {
        let (kind, which, number) = (random.within(0..100), random.next(), self.next_request());
        let clients = self.clone();
        tokio::spawn(async move {
            match kind {
                0..12 => clients.trigger(which, &format!("trigger-{number}")).await,
                12..22 => clients.send_message(which, &format!("message-{number}")).await,
                22..30 => clients.trigger_twice(which, &format!("trigger-{number}")).await,
                30..42 => {
                    if let Some(run) = clients.some_run(which) {
                        clients.pause(run).await;
                    }
                }
                42..50 => {
                    if let Some(run) = clients.some_run(which) {
                        clients.cancel(run).await;
                    }
                }
                50..62 => clients.opt_out(which).await,
                62..74 => clients.interrupt_large_run(which, &format!("trigger-{number}")).await,
                74..82 => clients.take_back(which).await,
                82..90 => clients.decide(which).await,
                90..95 => clients.requeue(which).await,
                _ => clients.pause_schedule(which).await,
            }
        });
    }

    /// Triggers a large run and interrupts it while its emails are sent.
    pub fn interrupt_new_run(&self, which: u64) {
        let (clients, number) = (self.clone(), self.next_request());
        tokio::spawn(async move { clients.interrupt_large_run(which, &format!("rush-{number}")).await });
    }

    fn next_request(&self) -> u64 {
        let mut known = self.known.lock();
        known.requests += 1;
        known.requests
    }

    async fn trigger(&self, which: u64, request: &str) {
        if let Some(created) = self.some_schedule(which) {
            self.trigger_as("operator", &created, request).await;
        }
    }

    /// Lets two clients trigger with the same request id, which must open one run.
    async fn trigger_twice(&self, which: u64, request: &str) {
        let Some(created) = self.some_schedule(which) else { return };
        let _ = tokio::join!(
            self.trigger_as("operator", &created, request),
            self.trigger_as("another operator", &created, request)
        );
    }

    /// Triggers a run. Returns the run if it is known.
    async fn trigger_as(&self, client: &str, created: &Created, request: &str) -> Option<RunId> {
        let (schedule, name) = (created.id, &created.planned.name);
        let operation = Operation::Trigger {
            tenant: created.planned.tenant.to_owned(),
            schedule: name.clone(),
            audience: name.clone(),
        };
        let trigger = Trigger::new(schedule, request);
        let answered = self.call((client, Some(request)), operation, None, |_| Some(Command::Trigger(trigger.clone())));
        let CommandOutcome::Run { run, .. } = answered.await?.reply.outcome else { return None };
        if created.planned.launch.is_some() {
            self.known.lock().violations.push(format!("P7: a trigger opened {run} of the campaign {name}"));
        }
        Some(run)
    }

    async fn pause(&self, run: RunId) {
        self.known.lock().paused.push(run);
        let target = Target::Run(run.to_string());
        let pause = RunPause { run, reason: "an operator checks it".into() };
        let operation = Operation::Pause { target: target.clone() };
        self.call(("operator", None), operation, Some(BarrierSubject::Run(run)), |_| {
            Some(Command::RunPause(pause.clone()))
        })
        .await;
        tokio::time::sleep(PAUSE_FOR).await;
        let resume = RunResume { run, without_canary: false, expected: None };
        self.call(("operator", None), Operation::Resume { target }, None, |_| Some(Command::RunResume(resume))).await;
        let mut known = self.known.lock();
        if let Some(position) = known.paused.iter().position(|paused| *paused == run) {
            known.paused.swap_remove(position);
        }
    }

    async fn cancel(&self, run: RunId) {
        let operation = Operation::Cancel { target: Target::Run(run.to_string()) };
        self.call(("operator", None), operation, Some(BarrierSubject::Run(run)), |_| Some(Command::RunCancel(run)))
            .await;
    }

    async fn pause_schedule(&self, which: u64) {
        let Some(Created { planned, id, .. }) = self.some_schedule(which) else { return };
        if planned.launch.is_some() {
            return;
        }
        let target = Target::Schedule { tenant: planned.tenant.to_owned(), schedule: planned.name };
        let pause = SchedulePause { schedule: id, reason: "not now".into() };
        let operation = Operation::Pause { target: target.clone() };
        self.call(("operator", None), operation, None, |_| Some(Command::SchedulePause(pause.clone()))).await;
        // Resuming is refused if the node has not applied the plan's version yet, or if nothing is paused.
        for _ in 0..RESUMES_MAX {
            tokio::time::sleep(PAUSE_FOR).await;
            let operation = Operation::Resume { target: target.clone() };
            let resumed = self.call(("operator", None), operation, None, |context| {
                let version =
                    context.replica.read(|ledger| ledger.schedules().get(&id).map(|found| found.plan.version));
                Some(Command::ScheduleResume(ScheduleResume { schedule: id, plan_version: version? }))
            });
            if resumed.await.is_some() {
                return;
            }
        }
    }

    /// Opts a recipient out, if possible a recipient that is about to get an email.
    async fn opt_out(&self, which: u64) {
        let Some(ChosenRecipient { tenant, address: recipient, .. }) =
            self.some_recipient(which, &[RecipientState::Claimed, RecipientState::Pending, RecipientState::Sent])
        else {
            return;
        };
        let operation = Operation::OptOut { tenant: tenant.clone(), recipient: recipient.clone() };
        let keys = vec![recipient.clone()];
        let about = BarrierSubject::OptedOut { tenant: tenant.clone(), keys: keys.iter().cloned().collect() };
        let command = Command::OptOut(OptOut { tenant: tenant.clone(), keys });
        let answered = self.call(("recipient", None), operation, Some(about), |_| Some(command.clone())).await;
        if answered.is_some() {
            self.known.lock().opted_out.push((tenant, recipient));
        }
    }

    /// Triggers the largest schedule; then several recipients opt out, or the run is paused or cancelled.
    async fn interrupt_large_run(&self, which: u64, request: &str) {
        let largest = self.known(|known| {
            let schedules = known.created.iter().filter(|created| created.planned.launch.is_none());
            schedules.max_by_key(|created| created.planned.recipients.len()).cloned()
        });
        let Some(largest) = largest else { return };
        let Some(run) = self.trigger_as("operator", &largest, request).await else { return };
        tokio::time::sleep(Duration::from_millis(which % STOP_WITHIN_MS)).await;
        match which.rotate_left(16) % 10 {
            0 | 1 => self.pause(run).await,
            2 => self.cancel(run).await,
            _ => {
                let opt_outs = (0..OPT_OUTS).map(|number| self.opt_out(which.rotate_left(number * 8)));
                futures::future::join_all(opt_outs).await;
            }
        }
    }

    async fn take_back(&self, which: u64) {
        let opted_out = self.known(|known| known.opted_out.clone());
        let Some(opt_out) = pick(&opted_out, which) else { return };
        let operation = Operation::TakeBack { tenant: opt_out.0.clone(), recipient: opt_out.1.clone() };
        self.call(("operator", None), operation, None, |context| {
            // A node that has not applied the opt-out yet refuses, and another node is called.
            let last = context.replica.read(|ledger| ledger.opted_out().get(&opt_out).map_or(0, |known| known.last));
            let (tenant, key, reason) = (opt_out.0.clone(), opt_out.1.clone(), "by letter".to_owned());
            Some(Command::OptOutTakeBack(OptOutTakeBack { tenant, key, last, reason }))
        })
        .await;
    }

    /// Decides about a recipient in doubt, with one call: after a lost answer, a second call could be a second
    /// decision.
    async fn decide(&self, which: u64) {
        let Some(ChosenRecipient { run, number, address: recipient, .. }) =
            self.some_recipient(which, &[RecipientState::InDoubt])
        else {
            return;
        };
        let (of, target) = (run.to_string(), Some(recipient));
        let (decision, operation) = match which.is_multiple_of(2) {
            true => (Decision::Resend, Operation::Resend { run: of, recipient: target }),
            false => (Decision::Assume, Operation::Assume { run: of, recipient: target }),
        };
        let recipients = vec![number];
        self.once(
            operation,
            Command::Decide(Decide { run, recipients, decision, by: Decider::Operator, up_to: None, request: None }),
        )
        .await;
    }

    async fn requeue(&self, which: u64) {
        let Some(ChosenRecipient { run, number, address: recipient, .. }) =
            self.some_recipient(which, &[RecipientState::Dead])
        else {
            return;
        };
        // A requeue would open a run again that finished while it was paused. No entry records the end of such a pause,
        // so the checker could not know that end.
        if self.known(|known| known.paused.contains(&run)) {
            return;
        }
        let operation = Operation::Resend { run: run.to_string(), recipient: Some(recipient) };
        let picked = vec![PickedRecipients { run, recipients: vec![number] }];
        self.once(operation, Command::Requeue(Requeue { letters: picked.into(), pool: None })).await;
    }

    async fn once(&self, operation: Operation, command: Command) {
        let Some(context) = self.contexts.lock().iter().flatten().next().cloned() else { return };
        let what = format!("{operation:?}");
        let asked = self.recorder.call_began("operator", None, operation);
        match try_once(&context, &command, None).await {
            Ok((reply, barrier)) => {
                self.trace.say(format_args!("client: {what}: {:?}", reply.outcome));
                self.recorder
                    .call_answered(asked, answer(&AnsweredCall { reply, command, barrier, may_be_older: false }));
            }
            Err(error) => self.trace.say(format_args!("client: {what}: {error}")),
        }
    }

    fn some_schedule(&self, which: u64) -> Option<Created> {
        pick(&self.known(|known| known.created.clone()), which)
    }

    /// Reads the ledger of the first running node.
    fn read_ledger<T>(&self, read: impl FnOnce(&Ledger) -> Option<T>) -> Option<T> {
        let context = self.contexts.lock().iter().flatten().next().cloned()?;
        context.replica.read(read)
    }

    /// Returns one of the open runs.
    fn some_run(&self, which: u64) -> Option<RunId> {
        self.read_ledger(|ledger| {
            let open = ledger.runs().filter(|(_, _, run)| matches!(run.state, RunState::Open));
            pick(&open.map(|(id, _, _)| id).collect::<Vec<_>>(), which)
        })
    }

    /// Returns a recipient in one of the latest runs, in the first of these states that any recipient is in.
    fn some_recipient(&self, which: u64, states: &[RecipientState]) -> Option<ChosenRecipient> {
        self.read_ledger(|ledger| {
            states.iter().find_map(|state| {
                let has_any = |count: &reveille_ledger::RecipientCounts| count.get(*state) > 0;
                let runs: Vec<_> = ledger.runs().rev().filter(|(_, _, run)| has_any(&run.counts)).take(8).collect();
                let (id, page, run) = *runs.get((which % runs.len().max(1) as u64) as usize)?;
                let numbers: Vec<u32> =
                    (0..run.count).filter(|number| ledger.state(id, *number) == Some(*state)).collect();
                let number = pick(&numbers, which >> 8)?;
                let address = recipients(ledger, &self.lists, &run.audience).get(number as usize)?.clone();
                Some(ChosenRecipient { tenant: page.tenant.to_string(), run: id, number, address })
            })
        })
    }
}

/// A recipient of a run.
struct ChosenRecipient {
    tenant: String,
    run: RunId,
    number: u32,
    address: String,
}

fn pick<T: Clone>(from: &[T], which: u64) -> Option<T> {
    from.get((which % from.len().max(1) as u64) as usize).cloned()
}

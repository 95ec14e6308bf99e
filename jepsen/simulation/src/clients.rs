//! Clients. Each client calls any node that answers, and tries again until the result is known. The history has calls
//! and answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use reveille_check::events::{Answer, Crossing, ObjectKind, Operation};
use reveille_cluster::leader::barrier;
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::peer_messages::{BarrierReport, BarrierSubject};
use reveille_ledger::RunStateKind;
use reveille_ledger::command::{AudienceSeal, Command};
use reveille_ledger::ids::{RunId, ScheduleId, Time};
use reveille_ledger::impossible::Impossible;
use reveille_ledger::policy::InDoubt;
use reveille_ledger::refusal::CommandRefusal;
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use reveille_raft::ProposeError;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::observer::fence_of;
use crate::plan::SeedPlan;
use crate::recorder::{HistoryRecorder, name};
use crate::schedule::{AddressLists, PlannedSchedule};
use crate::trace::Trace;

/// The running nodes, by index.
pub type NodeContexts = Arc<Mutex<Vec<Option<Arc<NodeContext>>>>>;

/// Maximum time of one try.
pub const TRY_FOR: Duration = Duration::from_secs(5);
/// Number of nodes that store an audience's part before it is sealed: a majority of three.
const PARTS_ON: usize = 2;
/// Pause between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(700);

/// A schedule that was created.
#[derive(Clone)]
pub struct Created {
    /// The planned schedule.
    pub planned: PlannedSchedule,
    /// Id of the schedule.
    pub id: ScheduleId,
    /// Ledger time of the first try, which may have created the schedule. No earlier instant is due.
    pub after_first: Time,
    /// Ledger time of the answered try. All later instants are due.
    pub after_last: Time,
}

/// What the clients know from answered calls.
#[derive(Default)]
pub struct Known {
    /// Created schedules.
    pub created: Vec<Created>,
    /// Number of planned schedules that no longer fire when they are created, and of campaigns that are launched too
    /// late.
    pub never: u64,
    /// Violations that a history cannot show.
    pub violations: Vec<String>,
    /// Opt-outs: tenant and address.
    pub opted_out: Vec<(String, String)>,
    /// Messages: key and addresses.
    pub messages: Vec<(String, Vec<String>)>,
    /// Runs that a client has paused and will resume.
    pub paused: Vec<RunId>,
    /// Number of requests so far, which numbers the next request.
    pub requests: u64,
}

/// All clients.
#[derive(Clone)]
pub struct Clients {
    pub(crate) contexts: NodeContexts,
    pub(crate) trace: Trace,
    pub(crate) recorder: HistoryRecorder,
    pub(crate) known: Arc<Mutex<Known>>,
    pub(crate) lists: Arc<AddressLists>,
    begins: Time,
    pub(crate) in_doubt: InDoubt,
    stop: CancellationToken,
}

/// An answered call, with the command that was answered.
pub(crate) struct AnsweredCall {
    pub reply: CommandReply,
    pub command: Command,
    /// The report of a barrier.
    pub barrier: BarrierReport,
    /// True if an earlier try without a request id may have been done.
    pub may_be_older: bool,
}

/// Reason why a try has no result.
#[derive(derive_more::Display)]
pub(crate) enum NoResult {
    /// The product reported that the command was not executed.
    NotDone(String),
    /// The command may have been executed: the answer was lost, or the command was applied and its barrier failed.
    MaybeDone(String),
}

impl Clients {
    /// Creates clients of these nodes.
    pub fn new(contexts: NodeContexts, plan: &SeedPlan, trace: Trace, recorder: HistoryRecorder) -> Clients {
        let (lists, begins, in_doubt) = (Arc::new(plan.lists()), plan.begins, plan.in_doubt);
        let (known, stop) = (Arc::default(), CancellationToken::new());
        Clients { contexts, trace, recorder, lists, begins, in_doubt, known, stop }
    }

    /// Returns the time of a clock without error.
    pub(crate) fn now(&self) -> Time {
        self.begins.plus_ms(self.trace.elapsed().as_millis() as i64)
    }

    /// Waits between two tries. `None`: the clients stop.
    pub(crate) async fn try_later(&self) -> Option<()> {
        self.stop.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await
    }

    /// Returns the next running node in turn, if a linearizable read succeeds there.
    pub(crate) async fn fresh_context(&self, number: usize) -> Option<Arc<NodeContext>> {
        let running: Vec<Arc<NodeContext>> = self.contexts.lock().iter().flatten().cloned().collect();
        let context = running.get(number % running.len().max(1))?;
        context.replica.linearizable(Instant::now() + TRY_FOR).await.ok().map(|_| Arc::clone(context))
    }

    /// Stops all clients.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Reads what the clients know.
    pub fn known<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.known.lock())
    }

    /// Calls nodes until the answer is definite. A command with a barrier needs more than the ledger's answer (P15):
    /// the barrier must succeed too, or the call is repeated. `make` builds the command from the state of the called
    /// node after a linearizable read, as the admin API does. It returns `None` if the command has become pointless.
    pub(crate) async fn ask(
        &self,
        what: &str,
        about: Option<BarrierSubject>,
        make: impl Fn(&NodeContext) -> Option<Command>,
    ) -> Option<AnsweredCall> {
        let mut may_be_older = false;
        for number in 0_usize.. {
            if let Some(context) = self.fresh_context(number).await {
                let command = make(&context)?;
                match try_once(&context, &command, about.as_ref()).await {
                    Ok((reply, barrier)) => {
                        let unconfirmed = barrier.unconfirmed.len();
                        let crossed = barrier.crossed.len();
                        let outcome = &reply.outcome;
                        let word =
                            format_args!("client: {what}: {outcome:?}, {crossed} crossed, {unconfirmed} unconfirmed");
                        self.trace.say(word);
                        return Some(AnsweredCall { reply, command, barrier, may_be_older });
                    }
                    Err(missed) => {
                        may_be_older |= matches!(missed, NoResult::MaybeDone(_));
                        self.trace.say(format_args!("client: {what} by n{}: {missed}", context.me.node.0));
                    }
                }
            }
            self.try_later().await?;
        }
        None
    }

    /// Calls nodes as `ask` does, and records the call in the history. `None`: the command was not executed.
    pub(crate) async fn call(
        &self,
        (client, request): (&str, Option<&str>),
        operation: Operation,
        about: Option<BarrierSubject>,
        make: impl Fn(&NodeContext) -> Option<Command>,
    ) -> Option<AnsweredCall> {
        let what = format!("{operation:?}");
        let asked = self.recorder.call_began(client, request, operation);
        let mut answered = self.ask(&what, about, make).await?;
        // With a request id the ledger gives a repeated try the answer of the first try.
        answered.may_be_older &= request.is_none();
        self.recorder.call_answered(asked, answer(&answered));
        Some(answered).filter(|answered| !matches!(answered.reply.outcome, CommandOutcome::Refused(_)))
    }

    /// Proposes a command as soon as a node answers.
    pub fn set(&self, command: Command) {
        let clients = self.clone();
        tokio::spawn(async move {
            clients.ask("set", None, |_| Some(command.clone())).await;
        });
    }

    /// Seals an audience: writes its part to a majority of the nodes, then proposes the seal until it is in the ledger.
    /// Other nodes fetch the part from a peer.
    pub(crate) async fn seal(&self, planned: &PlannedSchedule) {
        let part = planned.part();
        let mut holders = BTreeSet::new();
        while holders.len() < PARTS_ON {
            let running: Vec<Arc<NodeContext>> = self.contexts.lock().iter().flatten().cloned().collect();
            let missing = running.iter().filter(|context| !holders.contains(&context.me.node)).collect::<Vec<_>>();
            let wrote =
                missing.into_iter().filter(|context| context.files.put(&part).is_ok()).map(|context| context.me.node);
            holders.extend(wrote.take(PARTS_ON - holders.len()).collect::<Vec<_>>());
            if self.try_later().await.is_none() {
                return;
            }
        }
        let request = Some(format!("seal-{}", planned.name));
        let seal = AudienceSeal { request, tenant: planned.tenant.to_owned(), seal: planned.seal() };
        self.ask("seal", None, |_| Some(Command::AudienceSeal(seal.clone()))).await;
    }

    /// Creates a schedule as soon as a node answers.
    pub fn create(&self, planned: PlannedSchedule) {
        let clients = self.clone();
        tokio::spawn(async move {
            if let Some(launch) = planned.launch {
                return clients.campaign(planned, launch).await;
            }
            if planned.is_sealed {
                clients.seal(&planned).await;
            }
            let first: Mutex<Option<Time>> = Mutex::new(None);
            let make = |context: &NodeContext| {
                let zone = context.zones.get(planned.zone.name()).ok()?;
                let now = context.ledger_time(context.replica.read(|ledger| ledger.head().now));
                first.lock().get_or_insert(now);
                planned.create(&zone, now).map(|create| Command::ScheduleCreate(Box::new(create)))
            };
            let operation = Operation::Write {
                kind: ObjectKind::Schedule,
                tenant: planned.tenant.to_owned(),
                name: planned.name.clone(),
                value: Some(planned.value()),
            };
            let request = format!("create-{}", planned.name);
            let answered = clients.call(("creator", Some(&request)), operation, None, make).await;
            let answered = answered.map(|answered| (answered.reply.outcome, answered.command));
            let mut known = clients.known.lock();
            match answered {
                Some((CommandOutcome::Schedule(id), Command::ScheduleCreate(create))) => {
                    let after_last = create.after;
                    let after_first = first.lock().unwrap_or(after_last).min(after_last);
                    known.created.push(Created { planned: planned.clone(), id, after_first, after_last });
                }
                _ => known.never += 1,
            }
        });
    }
}

/// Makes one try at one node.
pub(crate) async fn try_once(
    context: &Arc<NodeContext>,
    command: &Command,
    about: Option<&BarrierSubject>,
) -> Result<(CommandReply, BarrierReport), NoResult> {
    let reply = context.replica.propose(command, Instant::now() + TRY_FOR).await.map_err(|error| match error {
        ProposeError::Unknown => NoResult::MaybeDone(error.to_string()),
        _ => NoResult::NotDone(error.to_string()),
    })?;
    match about {
        Some(about) if !matches!(reply.outcome, CommandOutcome::Refused(_)) => {
            // A barrier waits for leases, so its deadline is longer.
            let held = barrier::through_leader(context, reply.index, about.clone(), Instant::now() + 2 * TRY_FOR).await;
            held.map(|report| (reply, report)).map_err(|error| NoResult::MaybeDone(error.to_string()))
        }
        _ => Ok((reply, BarrierReport { crossed: Vec::new(), unconfirmed: Vec::new() })),
    }
}

/// Returns true if this refusal shows that a pause is over: a finished run is no longer paused (P15). A refusal because
/// the run is open does not show it.
fn ends_the_pause(command: &Command, refusal: &CommandRefusal) -> bool {
    let finished = CommandRefusal::from(Impossible::RunIs(RunStateKind::Finished));
    matches!(command, Command::RunResume(_)) && *refusal == finished
}

/// Returns the answer in the format of histories. If an earlier try may have been done, a refusal of this try says
/// nothing about the earlier try. If this try succeeded, the log index of the resumption is unknown.
pub(crate) fn answer(answered: &AnsweredCall) -> Answer {
    let run = match &answered.reply.outcome {
        CommandOutcome::Refused(refusal) if ends_the_pause(&answered.command, refusal) => None,
        CommandOutcome::Refused(_) if answered.may_be_older => return Answer::Unknown,
        CommandOutcome::Refused(refusal) => return Answer::Failed { reason: refusal.to_string() },
        CommandOutcome::Run { run, .. } => Some(RunId::to_string(run)),
        CommandOutcome::Messages(receipts) => receipts.iter().flatten().next().map(|receipt| receipt.run.to_string()),
        _ => None,
    };
    let crossed = answered.barrier.crossed.iter().map(|crossed| Crossing {
        run: crossed.run.to_string(),
        number: crossed.recipient,
        fence: fence_of(&crossed.fence),
    });
    let unconfirmed = answered.barrier.unconfirmed.iter().map(|node| name(*node));
    let resumes = matches!(answered.command, Command::RunResume(_) | Command::ScheduleResume(_));
    let index = Some(answered.reply.index).filter(|_| !(resumes && answered.may_be_older));
    Answer::Ok { index, run, crossed: crossed.collect(), unconfirmed: unconfirmed.collect() }
}

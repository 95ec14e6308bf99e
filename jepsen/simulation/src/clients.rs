//! Clients: each calls any node that answers, and tries again until the result is known. Calls and answers go into the
//! history.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use reveille_check::history::{Answer, Crossing, ObjectKind, Operation};
use reveille_cluster::leader::barrier;
use reveille_cluster::node::context::NodeContext;
use reveille_cluster::node::peer_messages::{BarrierReport, BarrierSubject};
use reveille_ledger::RunKind;
use reveille_ledger::command::{AudienceSeal, Command};
use reveille_ledger::ids::{RunId, ScheduleId, Time};
use reveille_ledger::impossible::Impossible;
use reveille_ledger::refusal::Refusal;
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use reveille_raft::ProposeError;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::observer::fence_of;
use crate::plan::SeedPlan;
use crate::recorder::{HistoryRecorder, name};
use crate::schedule::{AddressLists, PlannedSchedule};
use crate::trace::Trace;

/// The nodes that can be asked, for the clients.
pub type NodeContexts = Arc<Mutex<Vec<Option<Arc<NodeContext>>>>>;

/// How long one try waits for its answer.
pub const TRY_FOR: Duration = Duration::from_secs(5);
/// Nodes that hold the part of an audience when it is sealed: a majority of three.
const PARTS_ON: usize = 2;
/// The pause between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(700);

/// A schedule that was created.
#[derive(Clone)]
pub struct Created {
    /// As it was planned.
    pub planned: PlannedSchedule,
    /// What it became.
    pub id: ScheduleId,
    /// It fires after this instant at the earliest: that of the first try, which may have been the one that counted.
    pub after_first: Time,
    /// And after this one at the latest: that of the try that was answered.
    pub after_last: Time,
}

/// What the clients know from answered calls.
#[derive(Default)]
pub struct Known {
    /// Created schedules.
    pub created: Vec<Created>,
    /// Planned ones that fire no more when they are created, and campaigns that are not launched in time.
    pub never: u64,
    /// Broken rules that no history shows.
    pub violations: Vec<String>,
    /// Opt-outs: tenant and address.
    pub opted_out: Vec<(String, String)>,
    /// Paused runs that their client will resume.
    pub paused: Vec<RunId>,
    /// Requests so far, to number them.
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
    stop: CancellationToken,
}

/// An answered call, with the command that was answered.
pub(crate) struct AnsweredCall {
    pub reply: CommandReply,
    pub command: Command,
    /// Of a barrier: what it proved.
    pub barrier: BarrierReport,
    /// An earlier try of the same may have been done, and nothing but this one's answer tells: it has no request id.
    pub may_be_older: bool,
}

/// Why a try has no result.
pub(crate) enum NoResult {
    /// It did not happen, says the product, and is held to it.
    NotDone(String),
    /// It may have happened: its answer is lost, or the command was applied and its barrier failed.
    MaybeDone(String),
}

impl fmt::Display for NoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (NoResult::NotDone(why) | NoResult::MaybeDone(why)) = self;
        f.write_str(why)
    }
}

impl Clients {
    /// Clients of these nodes.
    pub fn new(contexts: NodeContexts, plan: &SeedPlan, trace: Trace, recorder: HistoryRecorder) -> Clients {
        let (lists, begins) = (Arc::new(plan.lists()), plan.begins);
        Clients { contexts, trace, recorder, lists, begins, known: Arc::default(), stop: CancellationToken::new() }
    }

    /// What a clock without error shows.
    pub(crate) fn now(&self) -> Time {
        self.begins.plus_ms(self.trace.elapsed().as_millis() as i64)
    }

    /// Waits between two tries; none when the clients stop.
    pub(crate) async fn try_later(&self) -> Option<()> {
        self.stop.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await
    }

    /// One of the nodes that run, in turn, if it reads linearizably now.
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
    pub fn known<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.lock())
    }

    /// Asks until something definite is answered: by the ledger, and where there is a barrier, by its holders. An
    /// answer that only the ledger gave is none yet (P15), and the same is asked again. `make` gives the command from
    /// the state of the node that is asked, which has read linearizably before, as in the admin API; none: there is
    /// nothing to ask any more.
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

    /// The same, into the history; none where it was not done.
    pub(crate) async fn call(
        &self,
        (client, request): (&str, Option<&str>),
        operation: Operation,
        about: Option<BarrierSubject>,
        make: impl Fn(&NodeContext) -> Option<Command>,
    ) -> Option<AnsweredCall> {
        let what = format!("{operation:?}");
        let asked = self.recorder.call_began(client, request, operation);
        let mut told = self.ask(&what, about, make).await?;
        // By its request id the ledger knows a try from a second one, and answers both alike.
        told.may_be_older &= request.is_none();
        self.recorder.call_answered(asked, answer(&told));
        Some(told).filter(|told| !matches!(told.reply.outcome, CommandOutcome::Refused(_)))
    }

    /// Proposes a command as soon as a node answers.
    pub fn set(&self, command: Command) {
        let clients = self.clone();
        tokio::spawn(async move {
            clients.ask("set", None, |_| Some(command.clone())).await;
        });
    }

    /// Seals an audience: writes its part to a majority of the nodes, and asks until the seal is in the ledger. A node
    /// that lacks the part fetches it from a peer.
    pub(crate) async fn seal(&self, planned: &PlannedSchedule) {
        let part = planned.part();
        let mut holders = BTreeSet::new();
        while holders.len() < PARTS_ON {
            let running: Vec<Arc<NodeContext>> = self.contexts.lock().iter().flatten().cloned().collect();
            let lacking = running.iter().filter(|context| !holders.contains(&context.me.node)).collect::<Vec<_>>();
            let wrote =
                lacking.into_iter().filter(|context| context.parts.put(&part).is_ok()).map(|context| context.me.node);
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
            let told = clients.call(("creator", Some(&request)), operation, None, make).await;
            let told = told.map(|told| (told.reply.outcome, told.command));
            let mut known = clients.known.lock();
            match told {
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

/// One try by one node.
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
            // The barrier waits for leases, so it takes longer than an entry.
            let held = barrier::through_leader(context, reply.index, about.clone(), Instant::now() + 2 * TRY_FOR).await;
            held.map(|report| (reply, report)).map_err(|error| NoResult::MaybeDone(error.to_string()))
        }
        _ => Ok((reply, BarrierReport { crossed: Vec::new(), unconfirmed: Vec::new() })),
    }
}

/// A run that finishes is paused no more (P15): by the entry that says so the pause is over, and what an operator sends
/// again of it later is claimed. A refusal because the run is open does not say so.
fn ends_the_pause(command: &Command, refusal: &Refusal) -> bool {
    let finished = Refusal::from(Impossible::RunIs(RunKind::Finished));
    matches!(command, Command::RunResume(_)) && *refusal == finished
}

/// As histories write it. What an earlier try may have done is no longer there to be done: that the second one is
/// refused says nothing of the first. And where it is taken, the first may have been taken before: since which
/// entry a resumed run went on is then unknown.
pub(crate) fn answer(told: &AnsweredCall) -> Answer {
    let run = match &told.reply.outcome {
        CommandOutcome::Refused(refusal) if ends_the_pause(&told.command, refusal) => None,
        CommandOutcome::Refused(_) if told.may_be_older => return Answer::Unknown,
        CommandOutcome::Refused(refusal) => return Answer::Failed { reason: refusal.to_string() },
        CommandOutcome::Run { run, .. } => Some(RunId::to_string(run)),
        _ => None,
    };
    let crossed = told.barrier.crossed.iter().map(|crossed| Crossing {
        run: crossed.run.to_string(),
        number: crossed.recipient,
        fence: fence_of(&crossed.fence),
    });
    let unconfirmed = told.barrier.unconfirmed.iter().map(|node| name(*node));
    let resumes = matches!(told.command, Command::RunResume(_) | Command::ScheduleResume(_));
    let index = Some(told.reply.index).filter(|_| !(resumes && told.may_be_older));
    Answer::Ok { index, run, crossed: crossed.collect(), unconfirmed: unconfirmed.collect() }
}

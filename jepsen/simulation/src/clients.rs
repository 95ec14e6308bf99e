//! Those who ask: they create what is planned, trigger, pause, resume and cancel, each from whatever node answers, and
//! they ask again until they know.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use reveille_cluster::site::Site;
use reveille_ledger::access::Access;
use reveille_ledger::command::{Command, Relay, RelayPut, RunPause, RunResume, Trigger};
use reveille_ledger::ids::{RunId, ScheduleId, Time};
use reveille_ledger::reply::Outcome;
use reveille_ledger::{Ledger, RunState};
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::chance::Chance;
use crate::plan::Planned;
use crate::trace::Trace;
use crate::world::Sites;

/// How long one try waits for its answer.
const TRY_FOR: Duration = Duration::from_secs(5);
/// The pause between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(700);
/// A run that somebody paused goes on after this.
const PAUSE_FOR: Duration = Duration::from_secs(20);

/// A schedule that was created.
#[derive(Clone)]
pub struct Created {
    /// As it was planned.
    pub planned: Planned,
    /// What it became.
    pub id: ScheduleId,
    /// It fires after this instant at the earliest: that of the first try, which may have been the one that counted.
    pub after_first: Time,
    /// And after this one at the latest: that of the try that was answered.
    pub after_last: Time,
}

/// What is known of what was asked.
#[derive(Default)]
pub struct Known {
    /// Created schedules.
    pub created: Vec<Created>,
    /// Planned ones that fire no more when they are created.
    pub never: u64,
    /// Runs that somebody cancelled, and when that was answered.
    pub cancelled: Vec<(RunId, Duration)>,
    /// Triggers that were answered, and their runs.
    pub triggered: Vec<(String, RunId)>,
}

/// All clients.
#[derive(Clone)]
pub struct Clients {
    sites: Sites,
    trace: Trace,
    known: Arc<Mutex<Known>>,
    stop: CancellationToken,
    /// Numbers requests.
    requests: Arc<Mutex<u64>>,
}

impl Clients {
    /// Who ask these nodes.
    pub fn new(sites: Sites, trace: Trace) -> Clients {
        Clients { sites, trace, known: Arc::default(), stop: CancellationToken::new(), requests: Arc::default() }
    }

    /// Nobody asks any more.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Looks at what is known.
    pub fn known<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.lock())
    }

    /// Asks until something definite is answered. `make` gives the command from the state of the node that is asked;
    /// none: there is nothing to ask any more.
    async fn ask(&self, what: &str, make: impl Fn(&Site) -> Option<Command>) -> Option<(Outcome, Command)> {
        for number in 0_usize.. {
            let running: Vec<Arc<Site>> = self.sites.lock().iter().flatten().cloned().collect();
            if let Some(site) = running.get(number % running.len().max(1)) {
                let command = make(site)?;
                match site.replica.propose(&command, Instant::now() + TRY_FOR).await {
                    Ok(reply) => {
                        self.trace.say(format_args!("client: {what}: {:?}", reply.outcome));
                        return Some((reply.outcome, command));
                    }
                    Err(error) => self.trace.say(format_args!("client: {what} by n{}: {error}", site.me.node.0)),
                }
            }
            self.stop.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await?;
        }
        None
    }

    /// Makes the relay known.
    pub fn put_relay(&self) {
        let clients = self.clone();
        tokio::spawn(async move {
            let relay = Relay {
                name: "relay".into(),
                pool: "default".into(),
                host: "relay.simulation".into(),
                port: 25,
                access: Access::default(),
                rate_milli: 0,
                max_sessions: 4,
                late_rate_milli: 0,
                weight: 1,
            };
            let put = RelayPut { relay, replace: false, request: Some("relay".into()) };
            clients.ask("relay", |_| Some(Command::RelayPut(put.clone()))).await;
        });
    }

    /// Creates a schedule as soon as somebody answers.
    pub fn create(&self, planned: Planned) {
        let clients = self.clone();
        tokio::spawn(async move {
            let first: Mutex<Option<Time>> = Mutex::new(None);
            let make = |site: &Site| {
                let zone = site.zones.get(planned.zone.name()).ok()?;
                let now = site.replica.read(|ledger| ledger.head().now);
                first.lock().get_or_insert(now);
                planned.create(&zone, now).map(|create| Command::ScheduleCreate(Box::new(create)))
            };
            match clients.ask(&planned.name, make).await {
                Some((Outcome::Schedule(id), Command::ScheduleCreate(create))) => {
                    let after_last = create.after;
                    let after_first = first.lock().unwrap_or(after_last).min(after_last);
                    clients.known.lock().created.push(Created { planned, id, after_first, after_last });
                }
                _ => clients.known.lock().never += 1,
            }
        });
    }

    /// Somebody does something to what there is.
    pub fn operate(&self, chance: &mut Chance) {
        let (kind, which) = (chance.within(0..100), chance.next());
        let number = {
            let mut requests = self.requests.lock();
            *requests += 1;
            *requests
        };
        let clients = self.clone();
        tokio::spawn(async move {
            match kind {
                0..50 => clients.trigger(which, format!("trigger-{number}")).await,
                50..80 => clients.pause(which).await,
                _ => clients.cancel(which).await,
            }
        });
    }

    async fn trigger(&self, which: u64, request: String) {
        let created: Vec<ScheduleId> = self.known(|known| known.created.iter().map(|created| created.id).collect());
        let Some(id) = pick(&created, which) else { return };
        let make = |_: &Site| Some(Command::Trigger(Trigger { schedule: id, request: request.clone() }));
        if let Some((Outcome::Run(run), _)) = self.ask(&request, make).await {
            self.known.lock().triggered.push((request, run));
        }
    }

    async fn pause(&self, which: u64) {
        let Some(run) = self.some_run(which) else { return };
        let pause = RunPause { run, reason: "somebody looks at it".into() };
        let paused = self.ask(&format!("pause {run}"), |_| Some(Command::RunPause(pause.clone()))).await;
        if paused.is_none() {
            return;
        }
        tokio::time::sleep(PAUSE_FOR).await;
        let resume = RunResume { run, without_canary: false };
        self.ask(&format!("resume {run}"), |_| Some(Command::RunResume(resume))).await;
    }

    async fn cancel(&self, which: u64) {
        let Some(run) = self.some_run(which) else { return };
        let cancelled = self.ask(&format!("cancel {run}"), |_| Some(Command::RunCancel(run))).await;
        if let Some((Outcome::Done | Outcome::Moved(_), _)) = cancelled {
            let at = self.trace.elapsed();
            self.known.lock().cancelled.push((run, at));
        }
    }

    /// One of the open runs, as the first node that can be asked knows them.
    fn some_run(&self, which: u64) -> Option<RunId> {
        let site = self.sites.lock().iter().flatten().next().cloned()?;
        let open = |ledger: &Ledger| {
            let open = ledger.runs().filter(|(_, _, run)| matches!(run.state, RunState::Open));
            open.map(|(id, _, _)| id).collect::<Vec<_>>()
        };
        pick(&site.replica.read(open), which)
    }
}

fn pick<T: Copy>(from: &[T], which: u64) -> Option<T> {
    from.get((which % from.len().max(1) as u64) as usize).copied()
}

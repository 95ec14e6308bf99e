//! One run: three nodes, a relay, operators and faults, in two phases. While faults occur, all safety invariants must
//! hold. Then a quorum stays undisturbed, and everything must finish.
//!
//! One task owns the whole run, and executes the steps of an agenda in the order of virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use reveille_check::events::Event;
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::Ledger;
use reveille_ledger::ids::{NodeId, Time};
use reveille_ledger::injected_bugs;
use reveille_raft::{ClusterId, Member, Role};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use crate::agenda::{AgendaStep, FaultScope, upgrade_plan};
use crate::clients::{Clients, NodeContexts};
use crate::clock::NodeClock;
use crate::faults::{self, NodeIndex};
use crate::final_records::WholeLedger;
use crate::limits::Limited;
use crate::network::Network;
use crate::node::{CrashKind, SimulatedEnvironment, SimulatedNode};
use crate::observer::{self, Observer};
use crate::options::{FAULTS_AFTER, Options};
use crate::plan::SeedPlan;
use crate::random::{Purpose, RandomStream};
use crate::recorder::{EventId, HistoryRecorder};
use crate::relay::{SenderKill, SimulatedRelay};
use crate::schedule::LAST_MS;
use crate::trace::Trace;
use crate::verdict::{LedgerWatch, SimulationResult};
use crate::{final_records, history, node};

/// Interval between checks of the ledgers' invariants and state hashes.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// Interval between stale entries, in a build with injected bugs.
const STALE_ENTRY_EVERY: Duration = Duration::from_secs(15);
/// Maximum time of the last read of a node. An isolated node does not answer.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// A run.
pub struct Simulation {
    pub(crate) options: Options,
    pub(crate) plan: SeedPlan,
    pub(crate) limited: Limited,
    pub(crate) nodes: Vec<SimulatedNode>,
    pub(crate) env: SimulatedEnvironment,
    pub(crate) clients: Clients,
    pub(crate) agenda: BTreeMap<(Instant, u64), AgendaStep>,
    steps: u64,
    pub(crate) randoms: RandomStreams,
    ledger_watch: LedgerWatch,
    observer: Observer,
    begun: Instant,
    /// Nodes that never restart.
    pub(crate) lost: Vec<NodeIndex>,
    contexts: NodeContexts,
    /// True if a boot clock has run fast in this run.
    pub(crate) fast_boot_clock: bool,
    /// Faults in force, by scope.
    pub(crate) broken: BTreeMap<FaultScope, Vec<EventId>>,
    /// Faults by kind.
    tally: BTreeMap<&'static str, u64>,
}

pub(crate) struct RandomStreams {
    pub faults: RandomStream,
    pub disk: RandomStream,
    pub workload: RandomStream,
}

impl Simulation {
    /// Runs a seed to its end.
    pub async fn run(options: Options, trace: Trace) -> Result<SimulationResult> {
        let (mut simulation, kills) = Simulation::new(options, trace);
        simulation.initialize_cluster().await?;
        simulation.run_agenda(kills).await?;
        simulation.judge().await
    }

    fn new(options: Options, trace: Trace) -> (Simulation, mpsc::Receiver<SenderKill>) {
        let stream = |purpose| RandomStream::of(options.seed, purpose);
        let mut workload = stream(Purpose::Workload);
        let limited = Limited::of(options.seed);
        let plan = SeedPlan::draw(&mut workload, options.seed, options.minutes as i64);
        trace.say(format_args!(
            "seed {}: {} in {}, {}",
            options.seed, plan.scenario.name, plan.scenario.zone, plan.begins
        ));
        let promise_lasts = Duration::from_millis(options.heartbeat_ms() * node::ELECTION.end);
        let network = Network::new(stream(Purpose::Network), trace.clone(), promise_lasts);
        let (relay, kills) = SimulatedRelay::new(stream(Purpose::Relay), network.clone(), trace.clone());
        relay.refuse_recipients(plan.unknown.iter().cloned());
        let mut sizes = stream(Purpose::Disk);
        let recorder = HistoryRecorder::new(trace.clone());
        let env = SimulatedEnvironment {
            network,
            relay,
            trace: trace.clone(),
            recorder: recorder.clone(),
            root: options.folder.clone(),
            heartbeat_ms: options.heartbeat_ms(),
            snapshot_every: *sizes.one_of(&[100, 400, 2_000]),
        };
        let mut clocks = stream(Purpose::Clock);
        let nodes = (1..=3).map(|number| {
            let error_ms = clocks.within(0..400) as i64 - 200;
            let up = Duration::from_secs(clocks.within(100..1_000_000));
            SimulatedNode::new(NodeId(number), NodeClock::new(plan.begins.plus_ms(error_ms), up), env.clone())
        });
        let contexts: NodeContexts = Arc::new(Mutex::new(vec![None, None, None]));
        let simulation = Simulation {
            clients: Clients::new(Arc::clone(&contexts), &plan, trace.clone(), recorder.clone()),
            nodes: nodes.collect(),
            agenda: BTreeMap::new(),
            steps: 0,
            randoms: RandomStreams { faults: stream(Purpose::Faults), disk: sizes, workload },
            ledger_watch: LedgerWatch::new(trace, recorder.clone()),
            observer: Observer::new(recorder),
            begun: Instant::now(),
            lost: Vec::new(),
            fast_boot_clock: false,
            broken: BTreeMap::new(),
            contexts,
            tally: BTreeMap::new(),
            env,
            plan,
            limited,
            options,
        };
        (simulation, kills)
    }

    pub(crate) fn after(&mut self, delay: Duration, step: AgendaStep) {
        self.steps += 1;
        self.agenda.insert((Instant::now() + delay, self.steps), step);
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.env.trace
    }

    /// Initializes the cluster of three nodes and its relays.
    async fn initialize_cluster(&mut self) -> Result<()> {
        self.nodes.iter_mut().for_each(SimulatedNode::start);
        let first = timeout(Duration::from_secs(30), async {
            loop {
                if let Some(context) = self.nodes[0].context() {
                    return context;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let first = first.await.context("the first node does not open")?;
        let member = |node: &SimulatedNode| Member {
            name: format!("n{}", node.id.0),
            address: Network::address_of(node.id),
            votes: true,
            key: None,
        };
        let members = self.nodes.iter().map(|node| (node.id, member(node))).collect();
        first.replica.initialize(ClusterId(u128::from(self.options.seed)), &members).await?;
        self.refresh();
        self.limited.set(self.plan.begins).into_iter().for_each(|command| self.clients.set(command));
        Ok(())
    }

    /// Gives the clients the running nodes.
    fn refresh(&self) {
        *self.contexts.lock() = self.nodes.iter().map(SimulatedNode::context).collect();
    }

    async fn run_agenda(&mut self, mut kills: mpsc::Receiver<SenderKill>) -> Result<()> {
        let length = self.length();
        for number in 0..self.plan.schedules.len() {
            self.after(
                Duration::from_millis(self.plan.schedules[number].at_ms.unsigned_abs()),
                AgendaStep::Create(number),
            );
        }
        self.after(CHECK_EVERY, AgendaStep::CheckLedgers);
        self.after(observer::EVERY, AgendaStep::Observe);
        if injected_bugs::COMPILED {
            self.after(STALE_ENTRY_EVERY, AgendaStep::StaleEntry);
        }
        self.after(Duration::from_secs(60), AgendaStep::Operate);
        self.after(length * 6 / 10, AgendaStep::Heal);
        self.after(length, AgendaStep::End);
        self.after(FAULTS_AFTER, AgendaStep::NextFault);
        for (percent, step) in upgrade_plan(self.options.seed) {
            self.after(length * percent / 100, step);
        }
        while let Some(((at, _), _)) = self.agenda.first_key_value() {
            let at = *at;
            let cuts: Vec<_> = self.nodes.iter().map(|node| node.disk().cloned()).collect();
            let cut = |index: usize| {
                let disk = cuts[index].clone();
                async move {
                    match disk {
                        Some(disk) => disk.was_cut().await,
                        None => std::future::pending().await,
                    }
                }
            };
            tokio::select! {
                biased;
                kill = kills.recv() => if let Some(kill) = kill {
                    self.kill_sender(kill)?;
                },
                () = cut(0) => self.cut(0)?,
                () = cut(1) => self.cut(1)?,
                () = cut(2) => self.cut(2)?,
                () = sleep_until(at) => {
                    let Some((_, step)) = self.agenda.pop_first() else { continue };
                    if matches!(step, AgendaStep::End) {
                        return Ok(());
                    }
                    self.do_step(step)?;
                }
            }
            self.refresh();
        }
        Ok(())
    }

    fn do_step(&mut self, step: AgendaStep) -> Result<()> {
        match step {
            AgendaStep::NextFault => {
                let aimed = faults::draw(&mut self.randoms.faults);
                self.schedule_fault(aimed)?;
                let pause = faults::pause(&mut self.randoms.faults);
                self.after(pause, AgendaStep::NextFault);
            }
            AgendaStep::InstallFault(fault) => self.install_fault(fault)?,
            AgendaStep::EndFaults(scope) => self.end_faults(scope),
            AgendaStep::Start(index) => {
                if self.nodes[index].process().is_none() && !self.lost.contains(&index) {
                    self.nodes[index].start();
                }
            }
            AgendaStep::Create(number) => self.clients.create(self.plan.schedules[number].clone()),
            AgendaStep::Operate => {
                self.clients.operate(&mut self.randoms.workload);
                let pause = Duration::from_millis(self.randoms.workload.within(2_000..30_000));
                // A pause that begins too late could not end before the run ends.
                if self.begun.elapsed() + pause < self.length() * 8 / 10 {
                    self.after(pause, AgendaStep::Operate);
                }
            }
            AgendaStep::Observe => {
                let contexts: Vec<Arc<NodeContext>> = self.nodes.iter().filter_map(SimulatedNode::context).collect();
                // In the last part of the run nothing becomes due.
                let last = Duration::from_millis(LAST_MS.unsigned_abs());
                let is_quiet = self.begun.elapsed() > (self.length() - last).max(self.length() * 9 / 10);
                self.observer.observe(&contexts, is_quiet);
                self.after(observer::EVERY, AgendaStep::Observe);
            }
            AgendaStep::CheckLedgers => {
                self.check_ledgers();
                self.after(CHECK_EVERY, AgendaStep::CheckLedgers);
            }
            AgendaStep::StaleEntry => {
                #[cfg(feature = "injected-bugs")]
                if let Some(index) = self.leader() {
                    crate::stale_entry::propose(self.nodes[index].context(), self.env.network.clone());
                }
                self.after(STALE_ENTRY_EVERY, AgendaStep::StaleEntry);
            }
            AgendaStep::Install(index, level) => self.install(index, level)?,
            AgendaStep::Finish => self.finish_upgrade(),
            AgendaStep::Heal => self.heal(),
            AgendaStep::End => {}
        }
        Ok(())
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.options.minutes * 60)
    }

    /// Returns the time of a clock without error.
    pub(crate) fn true_time(&self) -> Time {
        self.plan.begins.plus_ms(self.begun.elapsed().as_millis() as i64)
    }

    pub(crate) fn leader(&self) -> Option<NodeIndex> {
        let leads = |node: &SimulatedNode| {
            node.context().is_some_and(|context| matches!(*context.replica.role().borrow(), Role::Leader { .. }))
        };
        self.nodes.iter().position(leads)
    }

    fn check_ledgers(&mut self) {
        for node in &self.nodes {
            if node.ended_by_itself() {
                self.ledger_watch.ended_by_itself(node.id);
            }
        }
        for broken in self.env.network.broken_promises() {
            self.ledger_watch.record_violation(broken);
        }
        let contexts: Vec<Arc<NodeContext>> = self.nodes.iter().filter_map(SimulatedNode::context).collect();
        self.ledger_watch.check(&contexts);
    }

    async fn judge(mut self) -> Result<SimulationResult> {
        self.clients.stop();
        self.check_ledgers();
        let contexts: Vec<Arc<NodeContext>> = self.nodes.iter().filter_map(SimulatedNode::context).collect();
        ensure!(contexts.len() >= 2, "only {} nodes run at the end", contexts.len());
        let mut indices = Vec::new();
        for context in &contexts {
            indices.push(context.replica.linearizable(std::time::Instant::now() + READ_WITHIN).await.ok());
        }
        let newest = indices.iter().enumerate().filter_map(|(context, index)| Some((index.as_ref()?, context))).max();
        let (_, newest) = newest.context("no node answers a read at the end")?;
        self.check_ledgers();
        self.observer.end();
        if let Some(violation) = self.upgrade_left_open() {
            self.ledger_watch.record_violation(violation);
        }
        let created = self.clients.known(|known| (known.created.clone(), known.created.len() as u64 + known.never));
        self.clients
            .known(|known| known.violations.clone())
            .into_iter()
            .for_each(|violation| self.ledger_watch.record_violation(violation));
        let planned = self.plan.schedules.len() as u64;
        if created.1 < planned {
            self.ledger_watch.record_violation(format!("{} schedules were never created", planned - created.1));
        }
        // The records of the relay and the ledger are read at one instant, because emails are sent until a node
        // answers.
        let recorder = &self.env.recorder;
        self.env.relay.emails().into_iter().for_each(|email| recorder.record(Event::Handoff(email)));
        let replica = &contexts[newest].replica;
        let ledger = WholeLedger::open(replica.read(Ledger::clone), replica).await?;
        final_records::due(recorder, &self.plan, &created.0, &ledger);
        let messages = self.clients.known(|known| known.messages.clone());
        messages.iter().for_each(|(key, addresses)| final_records::audience(recorder, key, addresses));
        final_records::runs(recorder, &self.plan, &ledger);
        final_records::objects(recorder, &ledger.hot);
        let history = history::index(&self.options, &self.plan, recorder.events(), recorder.now_ns())?;
        let mut verdict = self.ledger_watch.judge(&history);
        verdict.faults = std::mem::take(&mut self.tally);
        for node in &mut self.nodes {
            node.crash(CrashKind::Kill)?;
        }
        Ok(verdict)
    }
}

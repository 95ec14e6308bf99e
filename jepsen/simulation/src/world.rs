//! One run: three nodes, a relay, operators and a nemesis, in two phases. While faults come, everything must be safe;
//! after that a quorum is whole for good, and everything must come to its end.
//!
//! One task owns all of it and does one thing after the other; what lies ahead is a list by virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use reveille_cluster::node::context::NodeContext;
use reveille_ledger::ids::{NodeId, Time};
use reveille_ledger::injected_bugs;
use reveille_raft::{ClusterId, Member, Role};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use crate::agenda::{AgendaStep, Thing, upgrade_plan};
use crate::chance::{Chance, Concern};
use crate::chronicle::{Broken, Chronicle};
use crate::clients::{Clients, Sites};
use crate::clock::NodeClock;
use crate::faults::{self, NodeIndex};
use crate::limits::Limited;
use crate::network::Network;
use crate::node::{Death, SimulatedNode, Surroundings};
use crate::observer::{self, Observer};
use crate::options::{FAULTS_AFTER, Options};
use crate::plan::SeedPlan;
use crate::relay::{SimulatedRelay, Struck};
use crate::schedule::LAST_MS;
use crate::trace::Trace;
use crate::verdict::{Verdict, Watch};
use crate::{aftermath, history, node};

/// How often invariants are checked, and hashes of states taken.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often something arrives that a former leadership left behind, in a build that can bring it.
const LATE_EVERY: Duration = Duration::from_secs(15);
/// How long a node may take to answer the last read; one that is cut off for good does not.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// A run under way.
pub struct World {
    pub(crate) options: Options,
    pub(crate) plan: SeedPlan,
    pub(crate) limited: Limited,
    pub(crate) nodes: Vec<SimulatedNode>,
    pub(crate) around: Surroundings,
    pub(crate) clients: Clients,
    pub(crate) agenda: BTreeMap<(Instant, u64), AgendaStep>,
    steps: u64,
    pub(crate) chances: Chances,
    watch: Watch,
    observer: Observer,
    begun: Instant,
    /// Nodes that never come back.
    pub(crate) lost: Vec<NodeIndex>,
    sites: Sites,
    /// A boot clock ran fast already in this run.
    pub(crate) fast_boot_clock: bool,
    /// Faults in force, by what ends them together.
    pub(crate) broken: BTreeMap<Thing, Vec<Broken>>,
    /// Faults by kind.
    tally: BTreeMap<&'static str, u64>,
}

pub(crate) struct Chances {
    pub faults: Chance,
    pub disk: Chance,
    pub workload: Chance,
}

impl World {
    /// Runs a seed to its end.
    pub async fn run(options: Options, trace: Trace) -> Result<Verdict> {
        let (mut world, strikes) = World::new(options, trace);
        world.found().await?;
        world.live(strikes).await?;
        world.judge().await
    }

    fn new(options: Options, trace: Trace) -> (World, mpsc::Receiver<Struck>) {
        let of = |concern| Chance::of(options.seed, concern);
        let mut workload = of(Concern::Workload);
        let limited = Limited::of(options.seed);
        let plan = SeedPlan::draw(&mut workload, options.seed, options.minutes as i64);
        trace.say(format_args!("seed {}: {} in {}, {}", options.seed, plan.scene.name, plan.scene.zone, plan.begins));
        let oath = Duration::from_millis(options.heartbeat_ms * node::ELECTION.end);
        let network = Network::new(of(Concern::Network), trace.clone(), oath);
        let (relay, strikes) = SimulatedRelay::new(of(Concern::Relay), network.clone(), trace.clone());
        relay.does_not_know(plan.unknown.iter().cloned());
        let mut sizes = of(Concern::Disk);
        let chronicle = Chronicle::new(trace.clone());
        let around = Surroundings {
            network,
            relay,
            trace: trace.clone(),
            chronicle: chronicle.clone(),
            root: options.folder.clone(),
            heartbeat_ms: options.heartbeat_ms,
            snapshot_every: *sizes.one_of(&[100, 400, 2_000]),
        };
        let mut clocks = of(Concern::Clock);
        let nodes = (1..=3).map(|number| {
            let error_ms = clocks.within(0..400) as i64 - 200;
            let up = Duration::from_secs(clocks.within(100..1_000_000));
            SimulatedNode::new(NodeId(number), NodeClock::new(plan.begins.plus_ms(error_ms), up), around.clone())
        });
        let sites: Sites = Arc::new(Mutex::new(vec![None, None, None]));
        let world = World {
            clients: Clients::new(Arc::clone(&sites), &plan, trace.clone(), chronicle.clone()),
            nodes: nodes.collect(),
            agenda: BTreeMap::new(),
            steps: 0,
            chances: Chances { faults: of(Concern::Faults), disk: sizes, workload },
            watch: Watch::new(trace, chronicle.clone()),
            observer: Observer::new(chronicle),
            begun: Instant::now(),
            lost: Vec::new(),
            fast_boot_clock: false,
            broken: BTreeMap::new(),
            sites,
            tally: BTreeMap::new(),
            around,
            plan,
            limited,
            options,
        };
        (world, strikes)
    }

    pub(crate) fn after(&mut self, delay: Duration, step: AgendaStep) {
        self.steps += 1;
        self.agenda.insert((Instant::now() + delay, self.steps), step);
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.around.trace
    }

    /// Initializes the cluster of three nodes and its relays.
    async fn found(&mut self) -> Result<()> {
        self.nodes.iter_mut().for_each(SimulatedNode::start);
        let first = timeout(Duration::from_secs(30), async {
            loop {
                if let Some(site) = self.nodes[0].site() {
                    return site;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let first = first.await.context("the first node does not open")?;
        let member = |node: &SimulatedNode| Member {
            name: format!("n{}", node.id.0),
            address: Network::address_of(node.id),
            votes: true,
        };
        let members = self.nodes.iter().map(|node| (node.id, member(node))).collect();
        first.replica.initialize(ClusterId(u128::from(self.options.seed)), &members).await?;
        self.refresh();
        self.limited.set(self.plan.begins).into_iter().for_each(|command| self.clients.set(command));
        Ok(())
    }

    /// Gives the clients the nodes that run.
    fn refresh(&self) {
        *self.sites.lock() = self.nodes.iter().map(SimulatedNode::site).collect();
    }

    async fn live(&mut self, mut strikes: mpsc::Receiver<Struck>) -> Result<()> {
        let whole = self.whole();
        for number in 0..self.plan.schedules.len() {
            self.after(
                Duration::from_millis(self.plan.schedules[number].at_ms.unsigned_abs()),
                AgendaStep::Create(number),
            );
        }
        self.after(LOOK_EVERY, AgendaStep::Look);
        self.after(observer::EVERY, AgendaStep::Observe);
        if injected_bugs::COMPILED {
            self.after(LATE_EVERY, AgendaStep::Late);
        }
        self.after(Duration::from_secs(60), AgendaStep::Operate);
        self.after(whole * 6 / 10, AgendaStep::Heal);
        self.after(whole, AgendaStep::End);
        self.after(FAULTS_AFTER, AgendaStep::NextFault);
        for (percent, step) in upgrade_plan(self.options.seed) {
            self.after(whole * percent / 100, step);
        }
        while let Some(((at, _), _)) = self.agenda.first_key_value() {
            let at = *at;
            let cuts: Vec<_> = self.nodes.iter().map(|node| node.disk().cloned()).collect();
            let cut = |place: usize| {
                let disk = cuts[place].clone();
                async move {
                    match disk {
                        Some(disk) => disk.was_cut().await,
                        None => std::future::pending().await,
                    }
                }
            };
            tokio::select! {
                biased;
                struck = strikes.recv() => if let Some(struck) = struck {
                    self.strike(struck)?;
                },
                () = cut(0) => self.cut(0)?,
                () = cut(1) => self.cut(1)?,
                () = cut(2) => self.cut(2)?,
                () = sleep_until(at) => {
                    let Some((_, step)) = self.agenda.pop_first() else { continue };
                    if matches!(step, AgendaStep::End) {
                        return Ok(());
                    }
                    self.take(step)?;
                }
            }
            self.refresh();
        }
        Ok(())
    }

    fn take(&mut self, step: AgendaStep) -> Result<()> {
        match step {
            AgendaStep::NextFault => {
                let blow = faults::draw(&mut self.chances.faults);
                self.aim(blow)?;
                let pause = faults::pause(&mut self.chances.faults);
                self.after(pause, AgendaStep::NextFault);
            }
            AgendaStep::Break(fault) => self.break_something(fault)?,
            AgendaStep::Start(place) => {
                if self.nodes[place].life().is_none() && !self.lost.contains(&place) {
                    self.nodes[place].start();
                }
            }
            AgendaStep::HealNetwork => {
                self.trace().say("the network is whole");
                self.around.network.heal();
                self.repaired(Thing::Network);
            }
            AgendaStep::Thaw(place) => {
                self.trace().say(format_args!("n{} goes on", place + 1));
                self.around.network.thaw(self.nodes[place].id);
                self.repaired(Thing::Process(place));
            }
            AgendaStep::Mood(mood) => {
                self.trace().say(format_args!("relay: {mood:?}"));
                self.around.relay.set_mood(mood);
                self.repaired(Thing::Relay);
            }
            AgendaStep::SetClock(place) => {
                let right = self.true_time();
                self.trace().say(format_args!("n{}: its clock is right", place + 1));
                self.nodes[place].clock.set(right);
                self.repaired(Thing::Clock(place));
            }
            AgendaStep::Create(number) => self.clients.create(self.plan.schedules[number].clone()),
            AgendaStep::Operate => {
                self.clients.operate(&mut self.chances.workload);
                let pause = Duration::from_millis(self.chances.workload.within(2_000..30_000));
                // A pause that begins late could not end before the run does.
                if self.begun.elapsed() + pause < self.whole() * 8 / 10 {
                    self.after(pause, AgendaStep::Operate);
                }
            }
            AgendaStep::Observe => {
                let sites: Vec<Arc<NodeContext>> = self.nodes.iter().filter_map(SimulatedNode::site).collect();
                // Nothing becomes due any more; clients still ask only because no node answers.
                let last = Duration::from_millis(LAST_MS.unsigned_abs());
                let is_quiet = self.begun.elapsed() > (self.whole() - last).max(self.whole() * 9 / 10);
                self.observer.look(&sites, is_quiet);
                self.after(observer::EVERY, AgendaStep::Observe);
            }
            AgendaStep::Look => {
                self.look();
                self.after(LOOK_EVERY, AgendaStep::Look);
            }
            AgendaStep::Late => {
                #[cfg(feature = "injected-bugs")]
                if let Some(place) = self.leader() {
                    crate::late::propose(self.nodes[place].site(), self.around.network.clone());
                }
                self.after(LATE_EVERY, AgendaStep::Late);
            }
            AgendaStep::Install(place, level) => self.install(place, level)?,
            AgendaStep::Finish => self.finish_upgrade(),
            AgendaStep::Heal => self.heal(),
            AgendaStep::End => {}
        }
        Ok(())
    }

    fn whole(&self) -> Duration {
        Duration::from_secs(self.options.minutes * 60)
    }

    /// What a clock without error shows.
    pub(crate) fn true_time(&self) -> Time {
        self.plan.begins.plus_ms(self.begun.elapsed().as_millis() as i64)
    }

    pub(crate) fn leader(&self) -> Option<NodeIndex> {
        let leads = |node: &SimulatedNode| {
            node.site().is_some_and(|site| matches!(*site.replica.role().borrow(), Role::Leader { .. }))
        };
        self.nodes.iter().position(leads)
    }

    fn look(&mut self) {
        for node in &self.nodes {
            if node.ended_by_itself() {
                self.watch.ended_by_itself(node.id);
            }
        }
        for broken in self.around.network.broken_oaths() {
            self.watch.wrong(broken);
        }
        let sites: Vec<Arc<NodeContext>> = self.nodes.iter().filter_map(SimulatedNode::site).collect();
        self.watch.look(&sites);
    }

    async fn judge(mut self) -> Result<Verdict> {
        self.clients.stop();
        self.look();
        let sites: Vec<Arc<NodeContext>> = self.nodes.iter().filter_map(SimulatedNode::site).collect();
        ensure!(sites.len() >= 2, "only {} nodes run at the end", sites.len());
        let mut indices = Vec::new();
        for site in &sites {
            indices.push(site.replica.linearizable(std::time::Instant::now() + READ_WITHIN).await.ok());
        }
        let newest = indices.iter().enumerate().filter_map(|(place, index)| Some((index.as_ref()?, place))).max();
        let (_, newest) = newest.context("no node answers a read at the end")?;
        self.look();
        self.observer.end();
        if let Some(wrong) = self.upgrade_left_open() {
            self.watch.wrong(wrong);
        }
        let created = self.clients.known(|known| (known.created.clone(), known.created.len() as u64 + known.never));
        self.clients.known(|known| known.wrong.clone()).into_iter().for_each(|wrong| self.watch.wrong(wrong));
        let planned = self.plan.schedules.len() as u64;
        if created.1 < planned {
            self.watch.wrong(format!("{} schedules were never created", planned - created.1));
        }
        // The record of the relay and the ledger are read in one instant: until a node answers, mail goes on.
        let chronicle = &self.around.chronicle;
        aftermath::emails(chronicle, &self.around.relay.arrivals());
        sites[newest].replica.read(|ledger| {
            aftermath::due(chronicle, &self.plan, &created.0, ledger);
            aftermath::runs(chronicle, &self.plan, ledger);
            aftermath::objects(chronicle, ledger);
        });
        let history = history::whole(&self.options, &self.plan, self.around.chronicle.events(), chronicle.now_ns());
        if let Some(path) = &self.options.history {
            history::write(path, &history)?;
        }
        let mut verdict = self.watch.judge(&history::book(history));
        verdict.faults = std::mem::take(&mut self.tally);
        for node in &mut self.nodes {
            node.die(Death::Kill)?;
        }
        Ok(verdict)
    }
}

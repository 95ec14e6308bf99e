//! One run: three nodes, a relay, operators and a nemesis, in two phases. While faults come, everything must be safe;
//! after that a quorum is whole for good, and everything must come to its end.
//!
//! One task owns all of it and does one thing after the other; what lies ahead is a list by virtual time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use reveille_cluster::site::Site;
use reveille_ledger::ids::{NodeId, Time};
use reveille_raft::{ClusterId, Member, Role};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use crate::chance::{Chance, Concern};
use crate::clients::Clients;
use crate::clock::NodeClock;
use crate::faults::{self, Fault, Place};
use crate::network::{Life, Network};
use crate::node::{Death, Node, Surroundings};
use crate::plan::Plan;
use crate::relay::{Mood, Relay};
use crate::trace::Trace;
use crate::verdict::{Verdict, Watch};

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// All chance comes from this.
    pub seed: u64,
    /// How long it lasts, in minutes of virtual time.
    pub minutes: u64,
    /// How often a leader shows itself, in milliseconds.
    pub heartbeat_ms: u64,
    /// Whether anything is broken.
    pub faults: bool,
    /// A folder in memory for what nodes keep in files; removed by whoever made it.
    pub folder: PathBuf,
}

/// How often invariants are looked at, and hashes of states compared.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What lies ahead.
#[derive(Clone, Debug)]
enum Step {
    NextFault,
    Start(Place),
    HealNetwork,
    Mood(Mood),
    SetClock(Place),
    Create(usize),
    Operate,
    Look,
    Heal,
    End,
}

/// A run under way.
pub struct World {
    options: Options,
    plan: Plan,
    nodes: Vec<Node>,
    around: Surroundings,
    clients: Clients,
    agenda: BTreeMap<(Instant, u64), Step>,
    steps: u64,
    chances: Chances,
    watch: Watch,
    begun: Instant,
    /// Nodes that never come back.
    lost: Vec<Place>,
    sites: Sites,
    /// Kills, by what they were.
    pub tally: BTreeMap<&'static str, u64>,
}

/// The nodes that can be asked, for the clients.
pub type Sites = Arc<Mutex<Vec<Option<Arc<Site>>>>>;

struct Chances {
    faults: Chance,
    disk: Chance,
    workload: Chance,
}

impl World {
    /// Runs a seed to its end.
    pub async fn run(options: Options, trace: Trace) -> Result<Verdict> {
        let (mut world, strikes) = World::new(options, trace);
        world.found().await?;
        world.live(strikes).await?;
        world.judge().await
    }

    fn new(options: Options, trace: Trace) -> (World, mpsc::Receiver<Life>) {
        let of = |concern| Chance::of(options.seed, concern);
        let mut workload = of(Concern::Workload);
        let plan = Plan::draw(&mut workload, options.minutes as i64);
        trace.say(format_args!("seed {}: {} in {}, {}", options.seed, plan.scene.name, plan.scene.zone, plan.begins));
        let network = Network::new(of(Concern::Network), trace.clone());
        let (relay, strikes) = Relay::new(of(Concern::Relay), network.clone(), trace.clone());
        relay.does_not_know(plan.unknown.iter().cloned());
        let mut sizes = of(Concern::Disk);
        let around = Surroundings {
            network,
            relay,
            trace: trace.clone(),
            root: options.folder.clone(),
            heartbeat_ms: options.heartbeat_ms,
            snapshot_every: *sizes.one_of(&[100, 400, 2_000]),
        };
        let mut clocks = of(Concern::Clock);
        let nodes = (1..=3).map(|number| {
            let error_ms = clocks.within(0..400) as i64 - 200;
            let up = Duration::from_secs(clocks.within(100..1_000_000));
            Node::new(NodeId(number), NodeClock::new(plan.begins.plus_ms(error_ms), up), around.clone())
        });
        let sites: Sites = Arc::new(Mutex::new(vec![None, None, None]));
        let world = World {
            clients: Clients::new(Arc::clone(&sites), trace.clone()),
            nodes: nodes.collect(),
            agenda: BTreeMap::new(),
            steps: 0,
            chances: Chances { faults: of(Concern::Faults), disk: sizes, workload },
            watch: Watch::new(trace),
            begun: Instant::now(),
            lost: Vec::new(),
            sites,
            tally: BTreeMap::new(),
            around,
            plan,
            options,
        };
        (world, strikes)
    }

    fn after(&mut self, delay: Duration, step: Step) {
        self.steps += 1;
        self.agenda.insert((Instant::now() + delay, self.steps), step);
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    fn trace(&self) -> &Trace {
        &self.around.trace
    }

    /// Three nodes become a cluster that knows its relay.
    async fn found(&mut self) -> Result<()> {
        self.nodes.iter_mut().for_each(Node::start);
        let first = timeout(Duration::from_secs(30), async {
            loop {
                if let Some(site) = self.nodes[0].site() {
                    return site;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let first = first.await.context("the first node does not open")?;
        let member = |node: &Node| Member {
            name: format!("n{}", node.id.0),
            address: Network::address_of(node.id),
            votes: true,
        };
        let members = self.nodes.iter().map(|node| (node.id, member(node))).collect();
        first.replica.initialize(ClusterId(u128::from(self.options.seed)), &members).await?;
        self.refresh();
        self.clients.put_relay();
        Ok(())
    }

    /// Shows the clients who can be asked.
    fn refresh(&self) {
        *self.sites.lock() = self.nodes.iter().map(Node::site).collect();
    }

    async fn live(&mut self, mut strikes: mpsc::Receiver<Life>) -> Result<()> {
        let whole = Duration::from_secs(self.options.minutes * 60);
        for number in 0..self.plan.schedules.len() {
            self.after(Duration::from_millis(self.plan.schedules[number].at_ms.unsigned_abs()), Step::Create(number));
        }
        self.after(LOOK_EVERY, Step::Look);
        self.after(Duration::from_secs(60), Step::Operate);
        self.after(whole * 6 / 10, Step::Heal);
        self.after(whole, Step::End);
        if self.options.faults {
            self.after(Duration::from_secs(10), Step::NextFault);
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
                struck = strikes.recv() => if let Some(life) = struck {
                    self.strike(life)?;
                },
                () = cut(0) => self.cut(0)?,
                () = cut(1) => self.cut(1)?,
                () = cut(2) => self.cut(2)?,
                () = sleep_until(at) => {
                    let Some((_, step)) = self.agenda.pop_first() else { continue };
                    if matches!(step, Step::End) {
                        return Ok(());
                    }
                    self.take(step)?;
                }
            }
            self.refresh();
        }
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::NextFault => {
                let fault = faults::draw(&mut self.chances.faults);
                self.break_something(fault)?;
                let pause = faults::pause(&mut self.chances.faults);
                self.after(pause, Step::NextFault);
            }
            Step::Start(place) => {
                if self.nodes[place].life().is_none() && !self.lost.contains(&place) {
                    self.nodes[place].start();
                }
            }
            Step::HealNetwork => {
                self.trace().say("the network is whole");
                self.around.network.heal();
            }
            Step::Mood(mood) => {
                self.trace().say(format_args!("relay: {mood:?}"));
                self.around.relay.set_mood(mood);
            }
            Step::SetClock(place) => {
                let right = self.true_time();
                self.trace().say(format_args!("n{}: its clock is right", place + 1));
                self.nodes[place].clock.set(right);
            }
            Step::Create(number) => self.clients.create(self.plan.schedules[number].clone()),
            Step::Operate => {
                self.clients.operate(&mut self.chances.workload);
                let pause = Duration::from_millis(self.chances.workload.within(5_000..60_000));
                // What somebody pauses late could not go on before the end.
                if self.begun.elapsed() + pause < Duration::from_secs(self.options.minutes * 60) * 8 / 10 {
                    self.after(pause, Step::Operate);
                }
            }
            Step::Look => {
                self.look();
                self.after(LOOK_EVERY, Step::Look);
            }
            Step::Heal => self.heal(),
            Step::End => {}
        }
        Ok(())
    }

    /// What a clock without error shows.
    fn true_time(&self) -> Time {
        self.plan.begins.plus_ms(self.begun.elapsed().as_millis() as i64)
    }

    fn leader(&self) -> Option<Place> {
        let leads =
            |node: &Node| node.site().is_some_and(|site| matches!(*site.replica.role().borrow(), Role::Leader { .. }));
        self.nodes.iter().position(leads)
    }

    fn break_something(&mut self, fault: Fault) -> Result<()> {
        self.trace().say(format_args!("fault: {fault:?}"));
        let leader = self.leader();
        let whom = |place: Option<Place>| place.or(leader).unwrap_or(0);
        match fault {
            Fault::Kill(place, absence) => {
                self.count("kill");
                self.kill(whom(place), Death::Kill, absence)?;
            }
            Fault::PowerCut(place, syncs, absence) => {
                self.count("power cut");
                if let Some(disk) = self.nodes[whom(place)].disk() {
                    disk.arm(syncs);
                }
                // It starts again however long the cut takes to come.
                self.after(absence + Duration::from_secs(10), Step::Start(whom(place)));
            }
            Fault::All(absences, power) => {
                self.count(if power { "power cut of all" } else { "kill of all" });
                for (place, absence) in absences.into_iter().enumerate() {
                    let death = if power { Death::PowerCut(self.chances.disk.next()) } else { Death::Kill };
                    self.kill(place, death, absence)?;
                }
            }
            Fault::Isolate(place, stay) => {
                self.count("isolation");
                let alone = self.nodes[whom(place)].id;
                for other in self.nodes.iter().map(|node| node.id).filter(|other| *other != alone) {
                    self.around.network.cut(alone, other);
                    self.around.network.cut(other, alone);
                }
                self.after(stay, Step::HealNetwork);
            }
            Fault::OneWay(from, to, stay) => {
                self.count("one way cut");
                self.around.network.cut(self.nodes[from].id, self.nodes[to].id);
                self.after(stay, Step::HealNetwork);
            }
            Fault::Disturb(lossy, slow_ms, stay) => {
                self.count("disturbed network");
                self.around.network.disturb(lossy, slow_ms);
                self.after(stay, Step::HealNetwork);
            }
            Fault::Jump(place, by_ms, stay) => {
                self.count("clock jump");
                self.nodes[place].clock.jump(by_ms);
                self.after(stay, Step::SetClock(place));
            }
            Fault::Drift(place, ppm, stay) => {
                self.count("clock drift");
                self.nodes[place].clock.drift(ppm);
                self.after(stay, Step::SetClock(place));
            }
            Fault::Relay(mood, stay) => {
                self.count("relay");
                self.around.relay.set_mood(mood);
                self.after(stay, Step::Mood(Mood::default()));
            }
        }
        Ok(())
    }

    fn kill(&mut self, place: Place, death: Death, absence: Duration) -> Result<()> {
        self.nodes[place].die(death)?;
        self.after(absence, Step::Start(place));
        Ok(())
    }

    /// The relay wants a sender dead, between its dot and the answer.
    fn strike(&mut self, life: Life) -> Result<()> {
        let struck = self.nodes.iter().position(|node| node.life() == Some(life));
        let Some(place) = struck else { return Ok(()) };
        self.count("kill between dot and answer");
        let absence = Duration::from_millis(self.chances.faults.within(100..20_000));
        self.kill(place, Death::Kill, absence)
    }

    /// An armed power cut has come.
    fn cut(&mut self, place: Place) -> Result<()> {
        self.count("torn sync");
        let death = Death::PowerCut(self.chances.disk.next());
        let absence = Duration::from_millis(self.chances.faults.within(100..20_000));
        self.kill(place, death, absence)
    }

    fn look(&mut self) {
        for node in &self.nodes {
            if node.ended_by_itself() {
                self.watch.ended_by_itself(node.id);
            }
        }
        let sites: Vec<Arc<Site>> = self.nodes.iter().filter_map(Node::site).collect();
        self.watch.look(&sites);
    }

    /// From here on a quorum is whole. One node may stay dead for good, or cut off one way.
    fn heal(&mut self) {
        self.trace().say("faults end; a quorum is whole from here on");
        self.agenda.retain(|_, step| {
            !matches!(step, Step::NextFault | Step::HealNetwork | Step::Start(_) | Step::Mood(_) | Step::SetClock(_))
        });
        self.around.network.heal();
        self.around.relay.set_mood(Mood::default());
        let right = self.true_time();
        self.nodes.iter().for_each(|node| node.clock.set(right));
        if self.options.faults && self.chances.faults.percent(40) {
            let place = self.chances.faults.within(0..3) as Place;
            if self.chances.faults.percent(50) {
                self.count("node lost for good");
                self.trace().say(format_args!("n{} is lost for good", place + 1));
                self.lost.push(place);
                // Nothing of it is needed again, not even its folder.
                let _ = self.nodes[place].die(Death::Kill);
            } else {
                self.count("half cut off for good");
                let (from, to) = (self.nodes[place].id, self.nodes[(place + 1) % 3].id);
                self.trace().say(format_args!("what n{} says to n{} is lost for good", from.0, to.0));
                self.around.network.cut(from, to);
            }
        }
        for place in 0..self.nodes.len() {
            if self.nodes[place].life().is_none() {
                self.after(Duration::from_millis(100), Step::Start(place));
            }
        }
    }

    async fn judge(mut self) -> Result<Verdict> {
        self.clients.stop();
        self.look();
        let sites: Vec<Arc<Site>> = self.nodes.iter().filter_map(Node::site).collect();
        ensure!(sites.len() >= 2, "only {} nodes run at the end", sites.len());
        let end = self.true_time();
        let arrivals = || self.around.relay.arrivals();
        let verdict = self.watch.judge(&sites, &self.plan, end, &self.clients, arrivals).await;
        let mut verdict = verdict?;
        verdict.faults = std::mem::take(&mut self.tally);
        for node in &mut self.nodes {
            node.die(Death::Kill)?;
        }
        Ok(verdict)
    }
}

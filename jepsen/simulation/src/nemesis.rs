//! Installs faults and ends them.

use anyhow::Result;
use reveille_check::history::{Event, Fault as Told, FaultKind, FaultStatus, Phase, PhaseName};
use tokio::time::Duration;

use crate::agenda::{AgendaStep, Thing};
use crate::chronicle::name;
use crate::disk::LogDisk;
use crate::faults::{self, Blow, Fault, Moment, Mood, NodeIndex};
use crate::node::{Death, SimulatedNode};
use crate::relay::Struck;
use crate::world::World;

/// A fault waits at most this long for something to become due.
const DUE_WITHIN: Duration = Duration::from_secs(60);

impl World {
    /// Installs a fault at its moment.
    pub(crate) fn aim(&mut self, Blow { fault, moment }: Blow) -> Result<()> {
        let wait = match moment {
            Moment::Now => Duration::ZERO,
            Moment::Due(before) => self.until_due().map_or(Duration::ZERO, |due| due.saturating_sub(before)),
            Moment::Mail(after) => {
                self.clients.rush(self.chances.faults.next());
                after
            }
        };
        if wait.is_zero() {
            return self.break_something(fault);
        }
        self.trace().say(format_args!("aimed, {:.3} s from now: {fault:?}", wait.as_secs_f64()));
        self.after(wait, AgendaStep::Break(fault));
        Ok(())
    }

    /// How long until something becomes due, as a node's ledger says; none where nothing does soon.
    fn until_due(&self) -> Option<Duration> {
        let site = self.nodes.iter().find_map(SimulatedNode::site)?;
        let due = site.replica.read(|ledger| ledger.due().next().map(|(due, _)| due))?;
        let wait = Duration::from_millis(u64::try_from(due.since_ms(self.true_time())).ok()?);
        Some(wait).filter(|wait| *wait <= DUE_WITHIN)
    }

    pub(crate) fn break_something(&mut self, fault: Fault) -> Result<()> {
        self.trace().say(format_args!("fault: {fault:?}"));
        let word = format!("{fault:?}");
        let leader = self.leader();
        let target = |place: Option<NodeIndex>| place.or(leader).unwrap_or(0);
        match fault {
            Fault::Kill(place, absence) => {
                self.count("kill");
                self.kill(target(place), Death::Kill, absence)?;
            }
            Fault::PowerCut(place, syncs, absence) => {
                self.count("power cut");
                if let Some(disk) = self.nodes[target(place)].disk() {
                    disk.arm(syncs);
                }
                // It starts again however long the cut takes to come.
                self.after(absence + Duration::from_secs(10), AgendaStep::Start(target(place)));
            }
            Fault::Strike(emails, end) => {
                self.count("armed strike");
                self.around.relay.arm(emails, end);
            }
            Fault::Bounce(absence) => {
                self.count("bounce of all");
                for place in 0..self.nodes.len() {
                    self.kill(place, Death::Kill, absence)?;
                }
            }
            Fault::All(absences, power) => {
                self.count(if power { "power cut of all" } else { "kill of all" });
                for (place, absence) in absences.into_iter().enumerate() {
                    let death = if power { Death::PowerCut(self.chances.disk.next()) } else { Death::Kill };
                    self.kill(place, death, absence)?;
                }
            }
            Fault::Freeze(place, stay) => {
                let place = target(place);
                if self.nodes[place].life().is_none() {
                    return Ok(());
                }
                self.count("freeze");
                self.breaks((Thing::Process(place), FaultKind::Pause), word, &[place]);
                self.around.network.freeze(self.nodes[place].id);
                self.after(stay, AgendaStep::Thaw(place));
            }
            Fault::Isolate(place, stay) => {
                self.count("isolation");
                let alone = self.nodes[target(place)].id;
                self.breaks((Thing::Network, FaultKind::Partition), word, &[target(place)]);
                for other in self.nodes.iter().map(|node| node.id).filter(|other| *other != alone) {
                    self.around.network.cut(alone, other);
                    self.around.network.cut(other, alone);
                }
                self.after(stay, AgendaStep::HealNetwork);
            }
            Fault::OneWay(from, to, stay) => {
                self.count("one way cut");
                self.breaks((Thing::Network, FaultKind::Partition), word, &[from, to]);
                self.around.network.cut(self.nodes[from].id, self.nodes[to].id);
                self.after(stay, AgendaStep::HealNetwork);
            }
            Fault::Disturb(lossy, slow_ms, stay) => {
                self.count("disturbed network");
                self.breaks((Thing::Network, FaultKind::Link), word, &[0, 1, 2]);
                self.around.network.disturb(lossy, slow_ms);
                self.after(stay, AgendaStep::HealNetwork);
            }
            Fault::Jump(place, by_ms, stay) => {
                // What two of three clocks say is the time (P18).
                if self.broken.keys().any(|thing| matches!(thing, Thing::Clock(other) if *other != place)) {
                    return Ok(());
                }
                self.count("clock jump");
                self.breaks((Thing::Clock(place), FaultKind::Clock), word, &[place]);
                self.nodes[place].clock.jump(by_ms);
                self.after(stay, AgendaStep::SetClock(place));
            }
            Fault::Drift(place, ppm, stay) => {
                self.count("clock drift");
                self.breaks((Thing::Clock(place), FaultKind::Clock), word, &[place]);
                self.nodes[place].clock.drift(ppm);
                self.after(stay, AgendaStep::SetClock(place));
            }
            Fault::BootRate(place, ppm, stay) => {
                // A second one that is fast would add its error of ledger time to that of the first.
                if ppm > 0 && std::mem::replace(&mut self.fast_boot_clock, true) {
                    return Ok(());
                }
                self.count("boot clock rate");
                self.breaks((Thing::Clock(place), FaultKind::Clock), word, &[place]);
                self.nodes[place].clock.boot_rate(ppm);
                self.after(stay, AgendaStep::SetClock(place));
            }
            Fault::Relay(mood, stay) => {
                self.count("relay");
                self.breaks((Thing::Relay, FaultKind::Relay), word, &[]);
                self.around.relay.set_mood(mood);
                self.after(stay, AgendaStep::Mood(Mood::default()));
            }
        }
        Ok(())
    }

    fn breaks(&mut self, (thing, kind): (Thing, FaultKind), word: String, places: &[NodeIndex]) {
        let nodes: Vec<_> = places.iter().map(|place| self.nodes[*place].id).collect();
        let broken = self.around.chronicle.breaks(kind, word, &nodes);
        self.broken.entry(thing).or_default().push(broken);
    }

    pub(crate) fn repaired(&mut self, thing: Thing) {
        for broken in self.broken.remove(&thing).unwrap_or_default() {
            self.around.chronicle.fault_ended(broken);
        }
    }

    pub(crate) fn kill(&mut self, place: NodeIndex, death: Death, absence: Duration) -> Result<()> {
        self.ends(place, if death == Death::Kill { FaultKind::Kill } else { FaultKind::PowerCut });
        self.nodes[place].die(death)?;
        self.after(absence, AgendaStep::Start(place));
        Ok(())
    }

    /// Records the end of a process, with what the relay sees of it now.
    fn ends(&self, place: NodeIndex, kind: FaultKind) {
        let node = &self.nodes[place];
        let past_gate = node.life().map(|life| self.around.relay.past_gate(life));
        // A node that is down can be lost too: the hand-offs in its journal stay in doubt.
        let strikes = past_gate.is_some() || kind == FaultKind::NodeLost;
        let term = node.site().and_then(|site| site.leadership());
        self.around.chronicle.breaks_as(Told {
            kind,
            name: format!("{kind:?} of n{}", node.id.0),
            nodes: vec![name(node.id)],
            from_ns: self.around.chronicle.now_ns(),
            until_ns: None,
            status: if strikes { FaultStatus::Installed } else { FaultStatus::Skipped },
            cannot: false,
            observed: strikes.then_some(true),
            word: String::new(),
            inside_data: past_gate.map(|past| past > 0),
            past_gate,
            journals_lost: kind == FaultKind::PowerCut,
            led_epoch: term.map(|term| term.epoch().0),
        });
    }

    /// Kills a sender between its dot and the answer.
    pub(crate) fn strike(&mut self, Struck { life, end }: Struck) -> Result<()> {
        let struck = self.nodes.iter().position(|node| node.life() == Some(life));
        let Some(place) = struck else { return Ok(()) };
        let end = end.unwrap_or_else(|| faults::end(&mut self.chances.faults));
        let (word, death) = match end.power {
            true => ("power cut between dot and answer", Death::PowerCut(self.chances.disk.next())),
            false => ("kill between dot and answer", Death::Kill),
        };
        self.count(word);
        self.kill(place, death, end.absence)
    }

    /// An armed power cut has come.
    pub(crate) fn cut(&mut self, place: NodeIndex) -> Result<()> {
        self.count("torn sync");
        let death = Death::PowerCut(self.chances.disk.next());
        let absence = Duration::from_millis(self.chances.faults.within(100..20_000));
        self.kill(place, death, absence)
    }

    /// Ends all faults. One node may stay dead for good, or cut off one way.
    pub(crate) fn heal(&mut self) {
        self.trace().say("faults end; a quorum is whole from here on");
        let at_ns = self.around.chronicle.now_ns();
        self.around.chronicle.note(Event::Phase(Phase { at_ns, phase: PhaseName::Healed }));
        if let Some(command) = self.limited.lift() {
            self.around.chronicle.note(Event::Limit(self.limited.limit(self.plan.begins, Some(at_ns))));
            self.clients.set(command);
        }
        self.agenda.retain(|_, step| {
            use AgendaStep::{Break, HealNetwork, Mood, NextFault, SetClock, Start, Thaw};
            !matches!(step, NextFault | Break(_) | HealNetwork | Thaw(_) | Start(_) | Mood(_) | SetClock(_))
        });
        self.around.network.heal();
        self.nodes.iter().for_each(|node| self.around.network.thaw(node.id));
        self.around.relay.set_mood(Mood::default());
        self.around.relay.disarm();
        self.nodes.iter().filter_map(|node| node.disk()).for_each(LogDisk::disarm);
        let right = self.true_time();
        self.nodes.iter().for_each(|node| node.clock.set(right));
        let broken: Vec<Thing> = self.broken.keys().copied().collect();
        broken.into_iter().for_each(|thing| self.repaired(thing));
        if self.chances.faults.percent(40) {
            let place = self.chances.faults.within(0..3) as NodeIndex;
            if self.chances.faults.percent(50) {
                self.count("node lost for good");
                self.trace().say(format_args!("n{} is lost for good", place + 1));
                self.lost.push(place);
                self.ends(place, FaultKind::NodeLost);
                // Nothing of it is needed again, not even its folder.
                let _ = self.nodes[place].die(Death::Kill);
            } else {
                self.count("half cut off for good");
                let (from, to) = (self.nodes[place].id, self.nodes[(place + 1) % 3].id);
                let ends = [place, (place + 1) % 3];
                self.breaks((Thing::Network, FaultKind::Partition), "one way for good".to_owned(), &ends);
                self.trace().say(format_args!("what n{} says to n{} is lost for good", from.0, to.0));
                self.around.network.cut(from, to);
            }
        }
        for place in 0..self.nodes.len() {
            if self.nodes[place].life().is_none() {
                self.after(Duration::from_millis(100), AgendaStep::Start(place));
            }
        }
    }
}

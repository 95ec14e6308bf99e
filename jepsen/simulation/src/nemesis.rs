//! Installs faults and ends them.

use anyhow::Result;
use reveille_check::events::{Event, Fault as FaultRecord, FaultKind, FaultStatus, Phase, PhaseName};
use tokio::time::Duration;

use crate::agenda::{AgendaStep, FaultScope};
use crate::disk::LogDisk;
use crate::faults::{self, AimedFault, Fault, FaultTiming, NodeIndex, RelayBehavior};
use crate::node::{CrashKind, SimulatedNode};
use crate::recorder::name;
use crate::relay::SenderKill;
use crate::simulation::Simulation;

/// Maximum time for which a fault waits for an instant.
const DUE_WITHIN: Duration = Duration::from_secs(60);

impl Simulation {
    /// Installs a fault now, or schedules it.
    pub(crate) fn schedule_fault(&mut self, AimedFault { fault, timing }: AimedFault) -> Result<()> {
        let wait = match timing {
            FaultTiming::Now => Duration::ZERO,
            FaultTiming::Due(before) => self.until_due().map_or(Duration::ZERO, |due| due.saturating_sub(before)),
            FaultTiming::Mail(after) => {
                self.clients.interrupt_new_run(self.randoms.faults.next());
                after
            }
        };
        if wait.is_zero() {
            return self.install_fault(fault);
        }
        self.trace().say(format_args!("aimed, {:.3} s from now: {fault:?}", wait.as_secs_f64()));
        self.after(wait, AgendaStep::InstallFault(fault));
        Ok(())
    }

    /// Returns the time until the next instant by a node's ledger. `None`: there is no instant soon.
    fn until_due(&self) -> Option<Duration> {
        let context = self.nodes.iter().find_map(SimulatedNode::context)?;
        let due = context.replica.read(|ledger| ledger.due().next().map(|(due, _)| due))?;
        let wait = Duration::from_millis(u64::try_from(due.since_ms(self.true_time())).ok()?);
        Some(wait).filter(|wait| *wait <= DUE_WITHIN)
    }

    pub(crate) fn install_fault(&mut self, fault: Fault) -> Result<()> {
        self.trace().say(format_args!("fault: {fault:?}"));
        let word = format!("{fault:?}");
        let leader = self.leader();
        let target = |index: Option<NodeIndex>| index.or(leader).unwrap_or(0);
        match fault {
            Fault::Kill(index, absence) => {
                self.count("kill");
                self.kill(target(index), CrashKind::Kill, absence)?;
            }
            Fault::PowerCut(index, syncs, absence) => {
                self.count("power cut");
                if let Some(disk) = self.nodes[target(index)].disk() {
                    disk.arm(syncs);
                }
                // The node restarts even if the power cut comes late.
                self.after(absence + Duration::from_secs(10), AgendaStep::Start(target(index)));
            }
            Fault::KillBeforeAnswer(emails, end) => {
                self.count("armed strike");
                self.env.relay.arm(emails, end);
            }
            Fault::Bounce(absence) => {
                self.count("bounce of all");
                for index in 0..self.nodes.len() {
                    self.kill(index, CrashKind::Kill, absence)?;
                }
            }
            Fault::All(absences, power) => {
                self.count(if power { "power cut of all" } else { "kill of all" });
                for (index, absence) in absences.into_iter().enumerate() {
                    let kind = if power { CrashKind::PowerCut(self.randoms.disk.next()) } else { CrashKind::Kill };
                    self.kill(index, kind, absence)?;
                }
            }
            Fault::Freeze(index, stay) => {
                let index = target(index);
                if self.nodes[index].process().is_none() {
                    return Ok(());
                }
                self.fault_lasts("freeze", stay, (FaultScope::Process(index), FaultKind::Pause), word, &[index]);
                self.env.network.freeze(self.nodes[index].id);
            }
            Fault::Isolate(index, stay) => {
                let alone = self.nodes[target(index)].id;
                self.fault_lasts(
                    "isolation",
                    stay,
                    (FaultScope::Network, FaultKind::Partition),
                    word,
                    &[target(index)],
                );
                for other in self.nodes.iter().map(|node| node.id).filter(|other| *other != alone) {
                    self.env.network.cut(alone, other);
                    self.env.network.cut(other, alone);
                }
            }
            Fault::OneWay(from, to, stay) => {
                self.fault_lasts("one way cut", stay, (FaultScope::Network, FaultKind::Partition), word, &[from, to]);
                self.env.network.cut(self.nodes[from].id, self.nodes[to].id);
            }
            Fault::Disturb(lossy, slow_ms, stay) => {
                self.fault_lasts("disturbed network", stay, (FaultScope::Network, FaultKind::Link), word, &[0, 1, 2]);
                self.env.network.disturb(lossy, slow_ms);
            }
            Fault::Jump(index, by_ms, stay) => {
                // Only one clock may be wrong: ledger time follows two of three clocks (P18).
                if self.broken.keys().any(|scope| matches!(scope, FaultScope::Clock(other) if *other != index)) {
                    return Ok(());
                }
                self.fault_lasts("clock jump", stay, (FaultScope::Clock(index), FaultKind::Clock), word, &[index]);
                self.nodes[index].clock.jump(by_ms);
            }
            Fault::Drift(index, ppm, stay) => {
                self.fault_lasts("clock drift", stay, (FaultScope::Clock(index), FaultKind::Clock), word, &[index]);
                self.nodes[index].clock.drift(ppm);
            }
            Fault::BootRate(index, ppm, stay) => {
                // The errors of two fast boot clocks would add up in ledger time.
                if ppm > 0 && std::mem::replace(&mut self.fast_boot_clock, true) {
                    return Ok(());
                }
                self.fault_lasts("boot clock rate", stay, (FaultScope::Clock(index), FaultKind::Clock), word, &[index]);
                self.nodes[index].clock.boot_rate(ppm);
            }
            Fault::Relay(behavior, stay) => {
                self.fault_lasts("relay", stay, (FaultScope::Relay, FaultKind::Relay), word, &[]);
                self.env.relay.set_behavior(behavior);
            }
        }
        Ok(())
    }

    /// Counts a fault and records that it begins, and ends it after `stay`.
    fn fault_lasts(
        &mut self,
        what: &'static str,
        stay: Duration,
        of: (FaultScope, FaultKind),
        word: String,
        indices: &[NodeIndex],
    ) {
        self.count(what);
        self.fault_began(of, word, indices);
        self.after(stay, AgendaStep::EndFaults(of.0));
    }

    fn fault_began(&mut self, (scope, kind): (FaultScope, FaultKind), word: String, indices: &[NodeIndex]) {
        let nodes: Vec<_> = indices.iter().map(|index| self.nodes[*index].id).collect();
        let broken = self.env.recorder.fault_began(kind, word, &nodes);
        self.broken.entry(scope).or_default().push(broken);
    }

    /// Ends all faults of a scope.
    pub(crate) fn end_faults(&mut self, scope: FaultScope) {
        match scope {
            FaultScope::Network => {
                self.trace().say("the network is whole");
                self.env.network.heal();
            }
            FaultScope::Process(index) => {
                self.trace().say(format_args!("n{} goes on", index + 1));
                self.env.network.thaw(self.nodes[index].id);
            }
            FaultScope::Relay => {
                let behavior = RelayBehavior::default();
                self.trace().say(format_args!("relay: {behavior:?}"));
                self.env.relay.set_behavior(behavior);
            }
            FaultScope::Clock(index) => {
                self.trace().say(format_args!("n{}: its clock is right", index + 1));
                self.nodes[index].clock.set(self.true_time());
            }
        }
        self.fault_over(scope);
    }

    fn fault_over(&mut self, scope: FaultScope) {
        for broken in self.broken.remove(&scope).unwrap_or_default() {
            self.env.recorder.fault_ended(broken);
        }
    }

    pub(crate) fn kill(&mut self, index: NodeIndex, kind: CrashKind, absence: Duration) -> Result<()> {
        self.ends(index, if kind == CrashKind::Kill { FaultKind::Kill } else { FaultKind::PowerCut });
        self.nodes[index].crash(kind)?;
        self.after(absence, AgendaStep::Start(index));
        Ok(())
    }

    /// Records the end of a process, with its handoffs past the gate.
    fn ends(&self, index: NodeIndex, kind: FaultKind) {
        let node = &self.nodes[index];
        let past_gate = node.process().map(|process| self.env.relay.past_gate(process));
        // A node that is down can be lost too: the handoffs in its journal stay in doubt.
        let kills = past_gate.is_some() || kind == FaultKind::NodeLost;
        let term = node.context().and_then(|context| context.leadership());
        let (text, nodes) = (format!("{kind:?} of n{}", node.id.0), vec![name(node.id)]);
        self.env.recorder.record(Event::Fault(FaultRecord {
            status: if kills { FaultStatus::Installed } else { FaultStatus::Skipped },
            observed: kills.then_some(true),
            past_gate: past_gate.map(|past_gate| (name(node.id), past_gate)).into_iter().collect(),
            journals_lost: kind == FaultKind::PowerCut,
            led_epoch: term.map(|term| term.epoch().0),
            ..FaultRecord::installed(kind, text, nodes, self.env.recorder.now_ns())
        }));
    }

    /// Kills a sender between its final dot and the answer.
    pub(crate) fn kill_sender(&mut self, SenderKill { process, end }: SenderKill) -> Result<()> {
        let victim = self.nodes.iter().position(|node| node.process() == Some(process));
        let Some(index) = victim else { return Ok(()) };
        let end = end.unwrap_or_else(|| faults::end(&mut self.randoms.faults));
        let (word, kind) = match end.power {
            true => ("power cut between dot and answer", CrashKind::PowerCut(self.randoms.disk.next())),
            false => ("kill between dot and answer", CrashKind::Kill),
        };
        self.count(word);
        self.kill(index, kind, end.absence)
    }

    /// Called when an armed power cut has occurred.
    pub(crate) fn cut(&mut self, index: NodeIndex) -> Result<()> {
        self.count("torn sync");
        let kind = CrashKind::PowerCut(self.randoms.disk.next());
        let absence = Duration::from_millis(self.randoms.faults.within(100..20_000));
        self.kill(index, kind, absence)
    }

    /// Ends all faults, except that one node may stay down, or unreachable in one direction, until the end.
    pub(crate) fn heal(&mut self) {
        self.trace().say("faults end; a quorum is whole from here on");
        let at_ns = self.env.recorder.now_ns();
        self.env.recorder.record(Event::Phase(Phase { at_ns, phase: PhaseName::Healed }));
        if let Some(command) = self.limited.lift() {
            self.env.recorder.record(Event::Limit(self.limited.limit(self.plan.begins, Some(at_ns))));
            self.clients.set(command);
        }
        self.agenda.retain(|_, step| {
            use AgendaStep::{EndFaults, InstallFault, NextFault, Start};
            !matches!(step, NextFault | InstallFault(_) | EndFaults(_) | Start(_))
        });
        self.env.network.heal();
        self.nodes.iter().for_each(|node| self.env.network.thaw(node.id));
        self.env.relay.set_behavior(RelayBehavior::default());
        self.env.relay.disarm();
        self.nodes.iter().filter_map(|node| node.disk()).for_each(LogDisk::disarm);
        let right = self.true_time();
        self.nodes.iter().for_each(|node| node.clock.set(right));
        let broken: Vec<FaultScope> = self.broken.keys().copied().collect();
        broken.into_iter().for_each(|scope| self.fault_over(scope));
        if self.randoms.faults.percent(40) {
            let index = self.randoms.faults.within(0..3) as NodeIndex;
            if self.randoms.faults.percent(50) {
                self.count("node lost for good");
                self.trace().say(format_args!("n{} is lost for good", index + 1));
                self.lost.push(index);
                self.ends(index, FaultKind::NodeLost);
                // The node never restarts, so an error in copying its folder does not matter.
                let _ = self.nodes[index].crash(CrashKind::Kill);
            } else {
                self.count("half cut off for good");
                let (from, to) = (self.nodes[index].id, self.nodes[(index + 1) % 3].id);
                let ends = [index, (index + 1) % 3];
                self.fault_began((FaultScope::Network, FaultKind::Partition), "one way for good".to_owned(), &ends);
                self.trace().say(format_args!("what n{} says to n{} is lost for good", from.0, to.0));
                self.env.network.cut(from, to);
            }
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].process().is_none() {
                self.after(Duration::from_millis(100), AgendaStep::Start(index));
            }
        }
    }
}

//! `kill -9`, SIGSTOP and power loss, between dot and 250 if the plan says so.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use reveille_check::events::Fault;
use reveille_sink::{Held, HoldPoint, HoldRequest};

use super::actions::FaultTarget;
use super::disk;
use super::nemesis::{Injected, Injection, Nemesis, NotInjected, Repair, required};
use super::plan::PlannedFault;

/// Maximum wait for an email of the victim. After it the fault is injected without an email.
const HELD_WITHIN: Duration = Duration::from_millis(3_000);
/// Maximum time for which the sink holds an answer. The victim is dead or stopped by then.
const HOLD_FOR: Duration = Duration::from_secs(10);
/// Number of answers that are held at the same time.
const HELD_AT_ONCE: usize = 8;
/// Wait for each further answer.
const NEXT_HELD_WITHIN: Duration = Duration::from_millis(20);

/// A chosen victim, and the record of its fault.
struct Caught {
    victim: String,
    /// Answers that the sink holds.
    held: Vec<Held>,
    fault: Fault,
    /// Number of emails of the victim that are past their gates.
    past_gate: u64,
}

impl Nemesis {
    pub(super) async fn kill(&mut self, planned: &PlannedFault, target: FaultTarget, inside: bool) -> Injection {
        let Caught { victim, held, mut fault, past_gate } = self.catch(planned, "kill -9", target, inside).await?;
        self.processes.kill(&victim)?;
        // From now on the sink answers a dead process.
        drop(held);
        fault.observed = Some(true);
        fault.detail = format!("{past_gate} past the gate, down for {} ms", planned.lasts.as_millis());
        Ok(Injected { fault, repair: Repair::start(vec![victim]) })
    }

    pub(super) async fn pause(&mut self, planned: &PlannedFault, target: FaultTarget, inside: bool) -> Injection {
        let Caught { victim, held, mut fault, past_gate } = self.catch(planned, "SIGSTOP", target, inside).await?;
        self.processes.pause(&victim)?;
        // The answer arrives while the process is stopped. The process reads it when it resumes, possibly long after
        // its lease.
        drop(held);
        fault.detail = format!("for {} ms, {past_gate} past the gate", planned.lasts.as_millis());
        Ok(Injected { fault, repair: Repair::Resume(victim) })
    }

    /// Chooses the victim and begins the record of the fault. With `inside` the sink holds answers, and the victim of a
    /// sender's fault is the sender of a held email.
    async fn catch(
        &mut self,
        planned: &PlannedFault,
        what: &str,
        target: FaultTarget,
        inside: bool,
    ) -> Injection<Caught> {
        // If no node runs, no email will arrive.
        self.target(target)?;
        let held = if inside { self.hold_answers(target).await } else { Vec::new() };
        // A node that ended by itself meanwhile cannot be the victim.
        self.record_ends()?;
        let sender = held.first().map(|held| held.accepted.ehlo.clone());
        let victim = match (target, sender) {
            (FaultTarget::Sender, Some(sender)) if self.processes.running().contains(&sender) => sender,
            _ => self.target(target)?,
        };
        let mut fault = self.fault(planned, &format!("{what} of {target}"), std::slice::from_ref(&victim));
        // The count comes after the instant of the fault, because a dot that is read from then on was in transit.
        let past_gate = self.count_past_gate(&victim, &mut fault);
        Ok(Caught { victim, held, fault, past_gate })
    }

    /// Counts the emails of the victim between dot and 250.
    pub(super) fn count_past_gate(&self, victim: &str, fault: &mut Fault) -> u64 {
        let past_gate = self.processes.past_gate(victim);
        fault.past_gate.insert(victim.to_owned(), past_gate);
        past_gate
    }

    /// Holds answers to emails of the target, or of any node if the target is a sender.
    async fn hold_answers(&mut self, target: FaultTarget) -> Vec<Held> {
        let ehlo = match target {
            FaultTarget::Sender => None,
            _ => self.target(target).ok(),
        };
        // Alternates between before and after the sink's commit, so that the email has not arrived, or has arrived.
        self.holds += 1;
        let point = if self.holds.is_multiple_of(2) { HoldPoint::BeforeCommit } else { HoldPoint::AfterCommit };
        let request = HoldRequest { ehlo, point, count: HELD_AT_ONCE, limit: HOLD_FOR };
        let mut hold = self.processes.sink.hold_next_answer(request);
        let mut held: Vec<Held> = hold.next(HELD_WITHIN).await.into_iter().collect();
        while !held.is_empty() && held.len() < HELD_AT_ONCE {
            let Some(next) = hold.next(NEXT_HELD_WITHIN).await else { break };
            held.push(next);
        }
        held
    }

    pub(super) fn kill_all(&mut self, planned: &PlannedFault) -> Injection {
        self.record_ends()?;
        let mut fault = self.fault(planned, "kill -9 of all", &self.processes.running());
        let past_gate = self.kill_each(&mut fault)?;
        fault.observed = Some(true);
        fault.detail = format!("{past_gate} past the gate");
        let victims = fault.nodes.clone();
        Ok(Injected { fault, repair: Repair::start(victims) })
    }

    /// Kills the nodes of a fault. Returns the number of their emails past the gate. A node that just ended by itself
    /// is removed from the fault.
    fn kill_each(&mut self, fault: &mut Fault) -> Injection<u64> {
        let each = fault.nodes.iter().map(|name| (name.clone(), self.processes.past_gate(name)));
        let each: Vec<(String, u64)> = each.collect();
        for (name, past_gate) in each {
            match self.processes.kill(&name) {
                Ok(()) => _ = fault.past_gate.insert(name, past_gate),
                Err(_) => fault.nodes.retain(|known| *known != name),
            }
        }
        if fault.nodes.is_empty() {
            return Err(NotInjected::no_node_runs());
        }
        Ok(fault.past_gate.values().sum())
    }

    pub(super) async fn power(&mut self, planned: &PlannedFault, target: Option<FaultTarget>, torn: bool) -> Injection {
        self.record_ends()?;
        let victims = match target {
            Some(target) => vec![self.target(target)?],
            None => self.processes.running(),
        };
        if victims.is_empty() {
            return Err(NotInjected::no_node_runs());
        }
        required(&self.processes.cluster.environment.volumes)?;
        let name = if target.is_some() { "power cut of one" } else { "power cut of all" };
        // If strace cannot attach, the cut is not aimed, and falls between two writes in most cases.
        let traces = if torn { self.hold_syncs(&victims).await } else { Vec::new() };
        self.record_ends()?;
        let mut fault = self.fault(planned, name, &victims);
        let past_gate = self.kill_each(&mut fault)?;
        // A node that ended by itself keeps its disk.
        let victims = fault.nodes.clone();
        // The processes are dead, even if a later step with their disks fails.
        let (mut failed, mut torn_logs, mut words) =
            (Vec::new(), Vec::new(), vec![format!("{past_gate} past the gate")]);
        for name in &victims {
            match self.cut_power(name, torn) {
                Ok(Some(word)) => {
                    torn_logs.push(name.clone());
                    words.push(word);
                }
                Ok(None) => {}
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
        for trace in traces {
            trace.end().await;
        }
        (fault.observed, fault.journals_lost) = (Some(failed.is_empty()), true);
        self.power_cuts += 1;
        fault.detail = words.into_iter().chain(failed).collect::<Vec<_>>().join("; ");
        Ok(Injected { fault, repair: Repair::Start { nodes: victims, torn: torn_logs } })
    }

    /// Removes everything that was in memory or not synced. With `torn`, a part of the unsynced log survives, and is
    /// reported.
    fn cut_power(&mut self, name: &str, torn: bool) -> Result<Option<String>> {
        let cluster = &mut self.processes.cluster;
        let node = cluster.node(name)?;
        node.delete_journals()?;
        let folder = node.folder().join("wal");
        // The log is read before the cut, with its unsynced part. A node that just started has no log yet.
        let segment = disk::last_segment(&folder).ok().filter(|_| torn);
        let written = segment.map(|segment| Ok::<_, std::io::Error>((fs::read(&segment)?, segment))).transpose()?;
        let volumes = cluster.environment.volumes.as_mut().ok();
        let volume = volumes.and_then(|volumes| volumes.get_mut(name)).context("a node without a disk of its own")?;
        tokio::task::block_in_place(|| volume.cut_power())?;
        let random = self.seed.wrapping_add(self.power_cuts);
        let kept = written.map(|(written, segment)| disk::keep_part(&segment, &written, random)).transpose()?;
        Ok(kept.flatten().map(|word| format!("{name}: {word}")))
    }
}

//! Injects and repairs each fault, or returns why a fault cannot be injected.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use reveille_check::events::{Fault, FaultStatus};
use reveille_harness::clocks::CORRECT;
use reveille_harness::measure::unix_us;
use reveille_harness::{CallResult, wait};
use reveille_sink::FaultPlan;

use super::actions::{FaultAction, FaultTarget, LinkFault, PartitionShape};
use super::links;
use super::nemesis::{Injected, Injection, Nemesis, NotInjected, Repair, required};
use super::plan::PlannedFault;
use crate::run::PACE;

/// Maximum wait of a rolling restart until a node is ready, before the next node is restarted.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// Maximum wait for a new leader.
const LEADS_WITHIN: Duration = Duration::from_secs(3);
/// Maximum time of a backup that faults may hinder.
const BACKED_UP_WITHIN: Duration = Duration::from_secs(30);
/// Time after which a node sees its new clock: libfaketime reads its file again when the second of its last read is two
/// seconds ago.
const CLOCK_IS_READ_WITHIN: Duration = Duration::from_millis(2_300);
/// Minimum errors of a clock that jumped, and of a clock that drifted by a tenth for at least two seconds. Otherwise
/// all nodes share one correct clock, and report it within some milliseconds.
const JUMP_MS: u64 = 400;
const DRIFT_MS: u64 = 150;

impl Nemesis {
    /// Injects a fault. `None`: an operation, which records its own fault, or a family that has nothing left to do.
    pub(super) async fn inject(&mut self, planned: &PlannedFault) -> Injection<Option<Injected>> {
        let injected = match &planned.action {
            FaultAction::Kill { target, inside } => self.kill(planned, *target, *inside).await?,
            FaultAction::KillAll => self.kill_all(planned)?,
            FaultAction::Pause { target, inside } => self.pause(planned, *target, *inside).await?,
            FaultAction::Cut(shape) => self.cut(planned, *shape)?,
            FaultAction::Link { target, how } => self.disturb_links(planned, *target, *how)?,
            FaultAction::Clock { target, offset } => self.set_clock(planned, *target, offset).await?,
            FaultAction::Disk { target, how } => self.disk(planned, *target, *how).await?,
            FaultAction::Power { target, torn } => self.power(planned, *target, *torn).await?,
            FaultAction::Relay { name, faults } => self.break_relay(planned, name, faults)?,
            FaultAction::Roll => self.roll(planned).await?,
            FaultAction::Transfer => self.transfer(planned).await?,
            FaultAction::Rotate => return self.rotate(planned).map(|()| None),
            FaultAction::BackUp => {
                self.back_up(planned);
                return Ok(None);
            }
            FaultAction::Replace { target } => return self.replace(planned, *target).await,
            FaultAction::Resize { target, grows } => {
                return self.resize(planned, *target, *grows).map(|()| None);
            }
            FaultAction::Upgrade { number, goes_back } => return self.upgrade(planned, *number, *goes_back).await,
            FaultAction::Operator(action) => {
                let (operator, action, pause) = (self.operator.clone(), *action, planned.lasts);
                let mut fault = self.fault(planned, &format!("an operator: {action:?}"), &[]);
                let recorder = self.processes.recorder.clone();
                self.operator.number += 1;
                self.operations.spawn(async move {
                    fault.observed = Some(Box::pin(operator.perform(action, pause)).await);
                    fault.until_ns = Some(recorder.now_ns());
                    fault
                });
                return Ok(None);
            }
        };
        Ok(Some(injected))
    }

    /// Begins a backup, unless one was made.
    fn back_up(&mut self, planned: &PlannedFault) {
        if self.backed_up_us().is_some() {
            return;
        }
        let mut fault = self.fault(planned, "a backup", &[]);
        let (admin, recorder) = (self.operator.admin.clone(), self.processes.recorder.clone());
        let backed_up_us = Arc::clone(&self.backed_up_us);
        self.operations.spawn(async move {
            let made = tokio::time::timeout(BACKED_UP_WITHIN, admin.back_up()).await.map_err(anyhow::Error::from);
            let made = made.and_then(|made| made);
            if made.is_ok() {
                backed_up_us.store(unix_us(SystemTime::now()), Ordering::Relaxed);
            }
            (fault.observed, fault.until_ns) = (Some(made.is_ok()), Some(recorder.now_ns()));
            fault.detail = made.err().map(|error| format!("{error:#}")).unwrap_or_default();
            fault
        });
    }

    fn cut(&mut self, planned: &PlannedFault, shape: PartitionShape) -> Injection {
        let nodes = self.processes.names().len();
        let (broken, name) = match shape {
            PartitionShape::Alone(target) => (links::alone(nodes, self.index(target)?), format!("{target} alone")),
            PartitionShape::Halves(first) => (links::halves(nodes, first), "a minority cut off".to_owned()),
            PartitionShape::Ring => (links::ring(nodes), "a ring".to_owned()),
            PartitionShape::Bridge(middle) => (links::bridge(nodes, middle), "a bridge".to_owned()),
            PartitionShape::OneWay(target, into) => {
                let name = format!("nothing {} {target}", if into { "in to" } else { "out of" });
                (links::one_way(nodes, self.index(target)?, into), name)
            }
        };
        let names = self.processes.names();
        // Both ends count, because a node whose messages do not arrive loses its lease too.
        let ends = broken.iter().flat_map(|link| [link.from, link.to]);
        let mut nodes: Vec<String> = ends.filter_map(|index| names.get(index).cloned()).collect();
        nodes.sort();
        nodes.dedup();
        let fault = self.fault(planned, &name, &nodes);
        Ok(Injected { fault, repair: self.break_links(&broken)? })
    }

    fn disturb_links(&mut self, planned: &PlannedFault, target: FaultTarget, how: LinkFault) -> Injection {
        let victim = self.target(target)?;
        let fault = self.fault(planned, &format!("a bad link: {how:?}"), std::slice::from_ref(&victim));
        let broken = links::around(self.processes.names().len(), self.processes.index(&victim), how);
        Ok(Injected { fault, repair: self.break_links(&broken)? })
    }

    fn index(&self, target: FaultTarget) -> Injection<usize> {
        Ok(self.processes.index(&self.target(target)?))
    }

    async fn set_clock(&mut self, planned: &PlannedFault, target: FaultTarget, offset: &str) -> Injection {
        let victim = self.target(target)?;
        // Two clocks must agree (P18), so only one clock may be wrong.
        let wrong = self.active.iter().find_map(|active| match &active.repair {
            Repair::Clock(name) => Some(name),
            _ => None,
        });
        if let Some(wrong) = wrong {
            return Err(NotInjected::NotNow(format!("the clock of {wrong} is wrong already")));
        }
        let mut fault = self.fault(planned, &format!("the clock of {target}: {offset}"), std::slice::from_ref(&victim));
        let clocks = required(&self.processes.cluster.environment.clocks)?;
        clocks.set(&victim, offset)?;
        tokio::time::sleep(CLOCK_IS_READ_WITHIN).await;
        // A drift shows at the end of the fault.
        if !offset.contains('x') {
            self.observe_clocks(JUMP_MS, &mut fault).await;
        }
        Ok(Injected { fault, repair: Repair::Clock(victim) })
    }

    fn break_relay(&mut self, planned: &PlannedFault, name: &str, faults: &str) -> Injection {
        if self.active.iter().any(|active| matches!(active.repair, Repair::Relay)) {
            return Err(NotInjected::NotNow("the relay is broken already".to_owned()));
        }
        let fault = self.fault(planned, name, &[]);
        let plan: FaultPlan = format!("seed={},{faults},{PACE}", self.seed).parse().map_err(anyhow::Error::new)?;
        self.processes.sink.set_faults(plan);
        Ok(Injected { fault, repair: Repair::Relay })
    }

    async fn roll(&mut self, planned: &PlannedFault) -> Injection {
        let names = self.processes.running();
        if names.is_empty() {
            return Err(NotInjected::no_node_runs());
        }
        let mut fault = self.fault(planned, "restarted in order", &names);
        let mut words = Vec::new();
        for name in names {
            let stopped = self.stop(&name).await?;
            words.push(format!("{name} {}", if stopped { "stopped" } else { "had to be killed" }));
            self.processes.start(&name)?;
            self.wait_until_ready(&name, READY_WITHIN).await;
        }
        (fault.observed, fault.detail) = (Some(true), words.join(", "));
        Ok(Injected { fault, repair: Repair::Nothing })
    }

    async fn transfer(&mut self, planned: &PlannedFault) -> Injection {
        let no_leader = || NotInjected::NotNow("no node leads".to_owned());
        let (leader, epoch) = self.processes.leads_now().ok_or_else(no_leader)?;
        let mut fault = self.fault(planned, "leadership transferred", std::slice::from_ref(&leader));
        let result = self.operator.admin.transfer_leader("").await;
        (fault.status, fault.detail) = (status_of(&result), format!("{result:?}"));
        let passed = || async { self.processes.leader().is_some_and(|(_, now)| now > epoch) };
        fault.observed = Some(wait::until(LEADS_WITHIN, passed).await);
        Ok(Injected { fault, repair: Repair::Nothing })
    }

    /// Records as observed effect if the cluster reports a clock that is wrong by at least `least_ms`.
    async fn observe_clocks(&self, least_ms: u64, fault: &mut Fault) {
        let Some(status) = self.operator.admin.status().await.ok() else {
            fault.observed = Some(false);
            return;
        };
        let offsets = status.members.iter().filter_map(|member| {
            let offset = member.clock_offset_ms.filter(|offset| offset.unsigned_abs() >= least_ms)?;
            Some((member.member.as_ref()?.name.clone(), offset))
        });
        let offsets: Vec<(String, i64)> = offsets.collect();
        fault.observed = Some(!offsets.is_empty());
        if !offsets.is_empty() {
            fault.detail = format!("{} sees {offsets:?} ms", status.answered_by);
        }
    }

    pub(super) async fn repair(&mut self, repair: Repair, fault: &mut Fault) -> Result<()> {
        match repair {
            Repair::Nothing => {}
            Repair::Start { nodes, torn } => {
                nodes.iter().try_for_each(|name| self.processes.start(name))?;
                if self.have_truncated_logs(&torn).await {
                    fault.name.push_str(", a torn log");
                }
            }
            Repair::Resume(name) => {
                match fault.led_epoch {
                    Some(led) => self.observe_leadership(led, fault),
                    // A stopped process does not answer.
                    None => fault.observed = Some(!self.processes.is_alive(&name).await),
                }
                self.processes.resume(&name)?;
            }
            Repair::Links { table, hosts } => {
                if let Some(led) = fault.led_epoch {
                    self.observe_leadership(led, fault);
                }
                let matched = self.restore_links(&table, &hosts)?;
                fault.observed = Some(matched > 0);
                fault.detail = format!("{}{matched} packets were hit", prefix(&fault.detail));
            }
            Repair::Clock(name) => {
                if fault.observed.is_none() {
                    self.observe_clocks(DRIFT_MS, fault).await;
                }
                if let Ok(clocks) = &self.processes.cluster.environment.clocks {
                    clocks.set(&name, CORRECT)?;
                    // The next clock fault must find this clock correct.
                    tokio::time::sleep(CLOCK_IS_READ_WITHIN).await;
                }
            }
            Repair::Untrace { node, trace, fails } => self.untrace(&node, trace, fails, fault).await?,
            Repair::Empty(name) => self.empty(&name, fault)?,
            Repair::Relay => {
                let pace: FaultPlan = PACE.parse()?;
                // In the plan the rules of the pace follow the rules of the fault, and always apply.
                let tally = self.processes.sink.fault_tally();
                let rules = tally.len().saturating_sub(pace.rules.len());
                let hits: u64 = tally.iter().take(rules).sum();
                self.processes.sink.set_faults(pace);
                (fault.observed, fault.detail) = (Some(hits > 0), format!("hit {hits} times"));
            }
        }
        Ok(())
    }

    /// Records as observed effect if another epoch began since the epoch that the node led.
    fn observe_leadership(&self, led: u64, fault: &mut Fault) {
        let now = self.processes.leader().map_or(led, |(_, epoch)| epoch);
        fault.observed = Some(now > led);
        if now > led {
            fault.detail = format!("{}epoch {led} was followed by {now}", prefix(&fault.detail));
        }
    }
}

/// Returns the status of a fault that consists of this call.
pub fn status_of<T>(result: &CallResult<T>) -> FaultStatus {
    match result {
        CallResult::Done(_) => FaultStatus::Installed,
        CallResult::Refused(_) => FaultStatus::Skipped,
        CallResult::Unknown => FaultStatus::Indeterminate,
    }
}

fn prefix(word: &str) -> String {
    if word.is_empty() { String::new() } else { format!("{word}; ") }
}

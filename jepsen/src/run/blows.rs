//! Each blow as it falls and as it is mended. A blow that cannot fall says why; nothing is left out in silence.

use std::time::{Duration, Instant};

use anyhow::Result;
use reveille_check::history::{Fault, FaultStatus};
use reveille_sink::FaultPlan;

use super::links::{self, BadLink};
use super::nemesis::{Begun, Nemesis, Skipped};
use super::plan::{Bad, Blow, Shape, Strike, Whom};
use super::trace::Trace;
use crate::footing::RIGHT;
use crate::orders::Came;

/// While nodes are restarted in order, the next one waits this long for the former to be ready.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// A new leader is looked for this long.
const LEADS_WITHIN: Duration = Duration::from_secs(3);
/// A node sees its new clock after this: libfaketime looks again when the second of its last look is two seconds back.
const CLOCK_IS_READ_WITHIN: Duration = Duration::from_millis(2_300);
/// So far off is a clock that jumped, and one that ran a tenth wrong for two seconds or more (all nodes here have one clock
/// otherwise, and tell each other what it says within some milliseconds).
const JUMP_MS: u64 = 400;
const DRIFT_MS: u64 = 150;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a blow is mended.
pub(super) enum Undo {
    /// It needs no mending.
    Nothing,
    /// These nodes are started.
    Start(Vec<String>),
    /// The same; the log of each of `torn` ends inside a batch.
    StartTorn { nodes: Vec<String>, torn: Vec<String> },
    /// This one goes on.
    Resume(String),
    /// These links are whole again.
    Links {
        /// These.
        bad: Vec<BadLink>,
        /// How often what they carry was struck, as far as it was counted by now.
        struck: u64,
    },
    /// This clock is right again.
    Clock(String),
    /// This disk works again.
    Untrace {
        /// Of this node.
        name: String,
        /// What strikes its syncs.
        trace: Trace,
        /// The process that is traced.
        process: u32,
        /// They fail, and not just take long.
        fails: bool,
    },
    /// This disk has room again.
    Empty(String),
    /// The relay works again.
    Relay,
}

impl Undo {
    /// Will it start this node?
    pub fn starts(&self, name: &str) -> bool {
        let (Undo::Start(nodes) | Undo::StartTorn { nodes, .. }) = self else { return false };
        nodes.iter().any(|known| known == name)
    }
}

impl Nemesis {
    pub(super) async fn blow(&mut self, strike: &Strike) -> Result<Option<Begun>, Skipped> {
        match &strike.blow {
            Blow::Kill { whom, inside } => self.kill(strike, *whom, *inside).await.map(Some),
            Blow::KillAll => self.kill_all(strike).map(Some),
            Blow::Pause { whom, inside } => self.pause(strike, *whom, *inside).await.map(Some),
            Blow::Cut(shape) => self.cut(strike, *shape).map(Some),
            Blow::Link { whom, how } => self.spoil(strike, *whom, *how).map(Some),
            Blow::Clock { whom, offset } => self.clock(strike, *whom, offset).await.map(Some),
            Blow::Disk { whom, how } => self.disk(strike, *whom, *how).await.map(Some),
            Blow::Power { whom, torn } => self.power(strike, *whom, *torn).await.map(Some),
            Blow::Relay { name, faults } => self.relay(strike, name, faults).map(Some),
            Blow::Roll => self.roll(strike).await.map(Some),
            Blow::Transfer => self.transfer(strike).await.map(Some),
            Blow::Operator(order) => {
                let (operator, order, pause) = (self.operator.clone(), *order, strike.lasts);
                let mut fault = self.fault(strike, &format!("an operator: {order:?}"), &[]);
                let recorder = self.stage.recorder.clone();
                self.operator.number += 1;
                self.orders.spawn(async move {
                    let (said_yes, word) = Box::pin(operator.obey(order, pause)).await;
                    (fault.observed, fault.word) = (Some(said_yes), word);
                    fault.until_ns = Some(recorder.now_ns());
                    fault
                });
                Ok(None)
            }
        }
    }

    fn cut(&mut self, strike: &Strike, shape: Shape) -> Result<Begun, Skipped> {
        let nodes = self.stage.names().len();
        let (bad, name) = match shape {
            Shape::Alone(whom) => (links::alone(nodes, self.place(whom)?), format!("{whom} alone")),
            Shape::Halves(first) => (links::halves(nodes, first), "a minority cut off".to_owned()),
            Shape::Ring => (links::ring(nodes), "a ring".to_owned()),
            Shape::Bridge(middle) => (links::bridge(nodes, middle), "a bridge".to_owned()),
            Shape::OneWayIn(whom) => (links::one_way(nodes, self.place(whom)?, true), format!("nothing in to {whom}")),
            Shape::OneWayOut(whom) => {
                (links::one_way(nodes, self.place(whom)?, false), format!("nothing out of {whom}"))
            }
        };
        let names = self.stage.names();
        // Both ends: who is not heard any more loses its lease, as much as who hears nothing.
        let ends = bad.iter().flat_map(|link| [link.from, link.to]);
        let mut struck: Vec<String> = ends.filter_map(|place| names.get(place).cloned()).collect();
        struck.sort();
        struck.dedup();
        let fault = self.fault(strike, &name, &struck);
        self.add_links(&bad)?;
        Ok(Begun { fault, undo: Undo::Links { bad, struck: 0 } })
    }

    fn spoil(&mut self, strike: &Strike, whom: Whom, how: Bad) -> Result<Begun, Skipped> {
        let victim = self.whom(whom)?;
        let (nodes, place) = (self.stage.names().len(), self.stage.place(&victim));
        let how = self.stage.cluster.footing().wires.as_ref().map_or(how, |wires| wires.instead_of(how));
        let fault = self.fault(strike, &format!("a bad link: {how:?}"), std::slice::from_ref(&victim));
        let bad = links::around(nodes, place, how);
        self.add_links(&bad)?;
        Ok(Begun { fault, undo: Undo::Links { bad, struck: 0 } })
    }

    fn place(&self, whom: Whom) -> Result<usize, Skipped> {
        Ok(self.stage.place(&self.whom(whom)?))
    }

    async fn clock(&mut self, strike: &Strike, whom: Whom, offset: &str) -> Result<Begun, Skipped> {
        let victim = self.whom(whom)?;
        // What two of the clocks say is the time (P18): never two that are wrong.
        let wrong = self.active.iter().find_map(|active| match &active.undo {
            Undo::Clock(name) => Some(name),
            _ => None,
        });
        if let Some(wrong) = wrong {
            return Err(Skipped::NotNow(format!("the clock of {wrong} is wrong already")));
        }
        let mut fault = self.fault(strike, &format!("the clock of {whom}: {offset}"), std::slice::from_ref(&victim));
        let clocks = self.stage.cluster.footing().clocks.as_ref().map_err(|why| Skipped::Cannot(why.clone()))?;
        clocks.set(&victim, offset).map_err(skipped)?;
        tokio::time::sleep(CLOCK_IS_READ_WITHIN).await;
        // One that drifts is as good as right yet: it is looked at when this is over.
        if !offset.contains('x') {
            self.note_clocks(JUMP_MS, &mut fault).await;
        }
        Ok(Begun { fault, undo: Undo::Clock(victim) })
    }

    fn relay(&mut self, strike: &Strike, name: &str, faults: &str) -> Result<Begun, Skipped> {
        if self.active.iter().any(|active| matches!(active.undo, Undo::Relay)) {
            return Err(Skipped::NotNow("the relay is broken already".to_owned()));
        }
        let fault = self.fault(strike, name, &[]);
        let plan: FaultPlan = format!("seed={},{faults},{}", self.seed, self.pace)
            .parse()
            .map_err(|error| skipped(anyhow::Error::new(error)))?;
        self.stage.sink.set_faults(plan);
        Ok(Begun { fault, undo: Undo::Relay })
    }

    async fn roll(&mut self, strike: &Strike) -> Result<Begun, Skipped> {
        let names = self.stage.running();
        if names.is_empty() {
            return Err(Skipped::NotNow("no node runs".to_owned()));
        }
        let mut fault = self.fault(strike, "restarted in order", &names);
        let mut words = Vec::new();
        for name in names {
            let obeyed = self.stop(&name).await.map_err(skipped)?;
            words.push(format!("{name} {}", if obeyed { "stopped" } else { "had to be killed" }));
            self.stage.start(&name).map_err(skipped)?;
            let until = Instant::now() + READY_WITHIN;
            while !self.stage.is_ready(&name).await && Instant::now() < until {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        fault.observed = Some(!words.is_empty());
        fault.word = words.join(", ");
        Ok(Begun { fault, undo: Undo::Nothing })
    }

    async fn transfer(&mut self, strike: &Strike) -> Result<Begun, Skipped> {
        let nobody = || Skipped::NotNow("nobody leads".to_owned());
        let (leader, epoch) = self.stage.leads_now().ok_or_else(nobody)?;
        let mut fault = self.fault(strike, "leadership handed over", std::slice::from_ref(&leader));
        let came = self.operator.admin.transfer_leader().await;
        fault.word = format!("{came:?}");
        match came {
            Came::Done(_) => {}
            Came::Refused(_) => fault.status = FaultStatus::Skipped,
            Came::Unknown => fault.status = FaultStatus::Indeterminate,
        }
        let until = Instant::now() + LEADS_WITHIN;
        let passed = loop {
            let passed = self.stage.leader().is_some_and(|(_, now)| now > epoch);
            if passed || Instant::now() > until {
                break passed;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        fault.observed = Some(passed);
        Ok(Begun { fault, undo: Undo::Nothing })
    }

    /// Is a clock off by so many milliseconds? By the word of the cluster, not by ours.
    async fn note_clocks(&self, least_ms: u64, fault: &mut Fault) {
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
            fault.word = format!("{} sees {offsets:?} ms", status.answered_by);
        }
    }

    pub(super) async fn undo(&mut self, undo: Undo, fault: &mut Fault) -> Result<()> {
        match undo {
            Undo::Nothing => {}
            Undo::Start(names) => names.iter().try_for_each(|name| self.stage.start(name))?,
            Undo::StartTorn { nodes, torn } => {
                nodes.iter().try_for_each(|name| self.stage.start(name))?;
                if self.have_cut_tails(&torn).await {
                    fault.name.push_str(", a torn log");
                }
            }
            Undo::Resume(name) => {
                match fault.led_epoch {
                    Some(led) => self.note_leadership(led, fault),
                    // By its page: who is stopped answers nobody.
                    None => fault.observed = Some(!self.stage.is_alive(&name).await),
                }
                self.stage.resume(&name)?;
            }
            Undo::Links { bad, struck } => {
                if let Some(led) = fault.led_epoch {
                    self.note_leadership(led, fault);
                }
                let (struck, word) = self.remove_links(&bad, struck)?;
                fault.observed = Some(struck > 0);
                fault.word = format!("{}{word}", spaced(&fault.word));
            }
            Undo::Clock(name) => {
                if fault.observed.is_none() {
                    self.note_clocks(DRIFT_MS, fault).await;
                }
                if let Ok(clocks) = &self.stage.cluster.footing().clocks {
                    clocks.set(&name, RIGHT)?;
                    // The next one that is wrong must find this one right.
                    tokio::time::sleep(CLOCK_IS_READ_WITHIN).await;
                }
            }
            Undo::Untrace { name, trace, process, fails } => {
                self.untrace(&name, trace, fails.then_some(process), fault).await?;
            }
            Undo::Empty(name) => self.empty(&name, fault)?,
            Undo::Relay => {
                let pace: FaultPlan = self.pace.parse()?;
                // The pace stands behind the faults in the plan, and strikes whatever is broken.
                let tally = self.stage.sink.fault_tally();
                let faults = tally.len().saturating_sub(pace.rules.len());
                let struck: u64 = tally.iter().take(faults).map(|tally| tally.struck).sum();
                self.stage.sink.set_faults(pace);
                fault.observed = Some(struck > 0);
                fault.word = format!("struck {struck} times");
            }
        }
        Ok(())
    }

    /// Did another epoch begin since the one that the victim led?
    fn note_leadership(&self, led: u64, fault: &mut Fault) {
        let now = self.stage.leader().map_or(led, |(_, epoch)| epoch);
        fault.observed = Some(now > led);
        if now > led {
            fault.word = format!("{}epoch {led} gave way to {now}", spaced(&fault.word));
        }
    }
}

fn spaced(word: &str) -> String {
    if word.is_empty() { String::new() } else { format!("{word}; ") }
}

pub(super) fn skipped(error: anyhow::Error) -> Skipped {
    Skipped::NotNow(told(error))
}

pub(super) fn told(error: anyhow::Error) -> String {
    format!("{error:#}")
}

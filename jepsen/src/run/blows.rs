//! Each blow as it falls and as it is mended. A blow that cannot fall says why; nothing is left out in silence.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::history::{Fault, FaultStatus};
use reveille_sink::{FaultPlan, Held, HoldPoint, HoldRequest};

use super::lies::Lie;
use super::links::{self, BadLink};
use super::nemesis::{Begun, Nemesis, Skipped, Victim};
use super::plan::{Bad, Blow, Shape, Strike, Whom};
use super::trace::Trace;
use crate::orders::Came;

/// A mail of the victim must come within this, or it is killed without one.
const HELD_WITHIN: Duration = Duration::from_millis(3_000);
/// A held answer waits at most so long: the victim is dead by then.
const HOLD_FOR: Duration = Duration::from_secs(10);
/// So many answers are held, if they come at the same time.
const HELD_AT_ONCE: usize = 8;
/// Further answers are waited for this long.
const NEXT_HELD_WITHIN: Duration = Duration::from_millis(20);
/// While nodes are restarted in order, the next one waits this long for the former to be ready.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// A new leader is looked for this long.
const LEADS_WITHIN: Duration = Duration::from_secs(3);
/// A node sees its new clock after this.
const CLOCK_IS_READ_WITHIN: Duration = Duration::from_millis(1_300);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a blow is mended.
pub(super) enum Undo {
    /// It needs no mending.
    Nothing,
    /// These nodes are started.
    Start(Vec<String>),
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
    /// This copy of this node's folder is put back, and then what it had last.
    PutBack { name: String, kept: PathBuf },
    /// The power of this lying disk fails.
    CutOff(Lie),
}

impl Undo {
    /// Will it start this node?
    pub fn starts(&self, name: &str) -> bool {
        matches!(self, Undo::Start(names) if names.iter().any(|known| known == name))
    }
}

impl Nemesis {
    pub(super) async fn blow(&mut self, strike: &Strike) -> Result<Option<Begun>, Skipped> {
        match &strike.blow {
            Blow::Kill { whom, inside } => self.kill(strike, *whom, *inside).await.map(Some),
            Blow::KillAll => self.kill_all(strike).map(Some),
            Blow::Pause { whom } => self.pause(strike, *whom).map(Some),
            Blow::Cut(shape) => self.cut(strike, *shape).map(Some),
            Blow::Link { whom, how } => self.spoil(strike, *whom, *how).map(Some),
            Blow::Clock { whom, offset } => self.clock(strike, *whom, offset).await.map(Some),
            Blow::Disk { whom, how } => self.disk(strike, *whom, *how).await.map(Some),
            Blow::Power { whom } => self.power(strike, *whom).map(Some),
            Blow::Relay { name, faults } => self.relay(strike, name, faults).map(Some),
            Blow::OldFolder { whom } => self.copy_folder(strike, *whom).await.map(Some),
            Blow::Lie { number } => self.lie(strike, *number).await.map(Some),
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

    async fn kill(&mut self, strike: &Strike, whom: Whom, inside: bool) -> Result<Begun, Skipped> {
        // Where nobody runs there is no mail to wait for.
        self.whom(whom)?;
        let held = if inside { self.hold(whom).await } else { Vec::new() };
        // Who ended by itself meanwhile is nobody's victim.
        self.note_ends().map_err(skipped)?;
        let sender = held.first().map(|held| held.accepted.ehlo.clone());
        let victim = match (whom, sender) {
            (Whom::Sender, Some(sender)) if self.stage.running().contains(&sender) => sender,
            _ => self.whom(whom)?,
        };
        let mut fault = self.fault(strike, &format!("kill -9 of {whom}"), std::slice::from_ref(&victim));
        // After the instant of the fault: a dot that is read from then on was under way.
        let past_gate = self.stage.past_gate(&victim);
        let is_inside = held.iter().any(|held| held.accepted.ehlo == victim) || past_gate > 0;
        (fault.inside_data, fault.past_gate) = (Some(is_inside), Some(past_gate));
        let was = self.victim(&victim, is_inside);
        self.stage.kill(&victim).map_err(skipped)?;
        self.count_kill(was, is_inside, past_gate);
        // Now the sink answers somebody who is no more.
        drop(held);
        fault.observed = Some(true);
        fault.word = format!("{past_gate} past the gate, down for {} ms", strike.lasts.as_millis());
        Ok(Begun { fault, undo: Undo::Start(vec![victim]) })
    }

    /// Waits until answers to mails are held: of the one who is meant, or of anybody.
    async fn hold(&mut self, whom: Whom) -> Vec<Held> {
        let ehlo = match whom {
            Whom::Sender => None,
            _ => self.whom(whom).ok(),
        };
        // Both sides of the commit, in turn: after the one it has arrived, after the other it still will.
        self.holds += 1;
        let point = if self.holds.is_multiple_of(2) { HoldPoint::BeforeCommit } else { HoldPoint::AfterCommit };
        let request = HoldRequest { ehlo, point, count: HELD_AT_ONCE, limit: HOLD_FOR, ..HoldRequest::default() };
        let mut hold = self.stage.sink.hold_next_answer(request);
        let mut held: Vec<Held> = hold.next(HELD_WITHIN).await.into_iter().collect();
        while !held.is_empty() && held.len() < HELD_AT_ONCE {
            let Some(next) = hold.next(NEXT_HELD_WITHIN).await else { break };
            held.push(next);
        }
        held
    }

    fn kill_all(&mut self, strike: &Strike) -> Result<Begun, Skipped> {
        self.note_ends().map_err(skipped)?;
        let mut fault = self.fault(strike, "kill -9 of all", &self.stage.running());
        let mut past_gate = 0;
        for (was, of_it) in self.kill_each(&mut fault)? {
            self.count_kill(was, of_it > 0, of_it);
            past_gate += of_it;
        }
        fault.observed = Some(true);
        fault.word = format!("{past_gate} past the gate");
        let victims = fault.nodes.clone();
        Ok(Begun { fault, undo: Undo::Start(victims) })
    }

    /// Kills the nodes of a fault: what each was, and how many of its mails were past the gate. Who has ended by itself in
    /// this moment is nobody's victim, and no more a node of the fault.
    fn kill_each(&mut self, fault: &mut Fault) -> Result<Vec<(Victim, u64)>, Skipped> {
        let each = fault.nodes.iter().map(|name| (name.clone(), self.stage.past_gate(name)));
        let each: Vec<(String, u64)> = each.collect();
        let mut killed = Vec::new();
        for (name, past_gate) in each {
            let was = self.victim(&name, past_gate > 0);
            match self.stage.kill(&name) {
                Ok(()) => killed.push((was, past_gate)),
                Err(_) => fault.nodes.retain(|known| *known != name),
            }
        }
        if killed.is_empty() {
            return Err(Skipped::NotNow("no node runs".to_owned()));
        }
        let past_gate = killed.iter().map(|(_, past_gate)| past_gate).sum();
        (fault.inside_data, fault.past_gate) = (Some(past_gate > 0), Some(past_gate));
        Ok(killed)
    }

    fn pause(&mut self, strike: &Strike, whom: Whom) -> Result<Begun, Skipped> {
        self.note_ends().map_err(skipped)?;
        let victim = self.whom(whom)?;
        let mut fault = self.fault(strike, &format!("SIGSTOP of {whom}"), std::slice::from_ref(&victim));
        let past_gate = self.stage.past_gate(&victim);
        self.stage.pause(&victim).map_err(skipped)?;
        (fault.inside_data, fault.past_gate) = (Some(past_gate > 0), Some(past_gate));
        fault.word = format!("for {} ms, {past_gate} past the gate", strike.lasts.as_millis());
        Ok(Begun { fault, undo: Undo::Resume(victim) })
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
        // By the word of the cluster, not by ours.
        let seen = self.operator.admin.status().await.ok().and_then(|status| {
            let asked = status.answered_by.clone();
            let offsets =
                status.members.into_iter().filter_map(|member| Some((member.member?.name, member.clock_offset_ms?)));
            let offsets: Vec<(String, i64)> = offsets.filter(|(_, offset)| offset.abs() > 400).collect();
            (!offsets.is_empty()).then(|| format!("{asked} sees {offsets:?} ms"))
        });
        if !offset.contains('x') {
            fault.observed = Some(seen.is_some());
        }
        fault.word = seen.unwrap_or_default();
        Ok(Begun { fault, undo: Undo::Clock(victim) })
    }

    fn power(&mut self, strike: &Strike, whom: Option<Whom>) -> Result<Begun, Skipped> {
        self.note_ends().map_err(skipped)?;
        let victims = match whom {
            Some(whom) => vec![self.whom(whom)?],
            None => self.stage.running(),
        };
        if victims.is_empty() {
            return Err(Skipped::NotNow("no node runs".to_owned()));
        }
        if let Err(why) = &self.stage.cluster.footing().volumes {
            return Err(Skipped::Cannot(why.clone()));
        }
        if let Some(lying) = self.lying.iter().find(|name| victims.contains(name)) {
            return Err(Skipped::NotNow(format!(
                "the disk of {lying} lies: its power is cut in its own time, while all others are well"
            )));
        }
        let name = if whom.is_some() { "power cut of one" } else { "power cut of all" };
        let mut fault = self.fault(strike, name, &victims);
        let past_gate: u64 = self.kill_each(&mut fault)?.iter().map(|(_, past_gate)| past_gate).sum();
        // Who has ended by itself keeps its disk.
        let victims = fault.nodes.clone();
        // They are dead, whatever becomes of their disks.
        let failed: Vec<String> = victims.iter().filter_map(|name| self.cut_power(name).err()).map(told).collect();
        (fault.observed, fault.journals_lost) = (Some(failed.is_empty()), true);
        (self.ends.power_cuts, self.ends.past_gate) = (self.ends.power_cuts + 1, self.ends.past_gate + past_gate);
        fault.word = std::iter::once(format!("{past_gate} past the gate")).chain(failed).collect::<Vec<_>>().join("; ");
        Ok(Begun { fault, undo: Undo::Start(victims) })
    }

    /// What lay in memory is gone, and so is what was not synced.
    pub(super) fn cut_power(&mut self, name: &str) -> Result<()> {
        self.stage.cluster.delete_journals(name)?;
        let volumes = self.stage.cluster.footing_mut().volumes.as_mut();
        let volume =
            volumes.ok().and_then(|volumes| volumes.get_mut(name)).context("a node without a disk of its own")?;
        tokio::task::block_in_place(|| volume.cut_power())
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

    pub(super) async fn undo(&mut self, undo: Undo, fault: &mut Fault) -> Result<()> {
        match undo {
            Undo::Nothing => {}
            Undo::Start(names) => names.iter().try_for_each(|name| self.stage.start(name))?,
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
                if let Ok(clocks) = &self.stage.cluster.footing().clocks {
                    clocks.set(&name, "+0")?;
                    // The next one that is wrong must find this one right.
                    tokio::time::sleep(CLOCK_IS_READ_WITHIN).await;
                }
            }
            Undo::Untrace { name, trace, process, fails } => {
                self.untrace(&name, trace, fails.then_some(process), fault).await?;
            }
            Undo::PutBack { name, kept } => self.put_back(&name, &kept).await?,
            Undo::CutOff(lie) => self.cut_off(lie, fault).await?,
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

fn told(error: anyhow::Error) -> String {
    format!("{error:#}")
}

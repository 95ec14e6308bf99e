//! Deaths and trances: `kill -9` and SIGSTOP, between dot and 250 where it is asked for, and power that fails.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use reveille_check::history::Fault;
use reveille_sink::{Held, HoldPoint, HoldRequest};

use super::blows::{Undo, skipped, told};
use super::disk;
use super::nemesis::{Begun, Nemesis, Skipped, Victim};
use super::plan::{Strike, Whom};

/// A mail of the victim must come within this, or it is struck without one.
const HELD_WITHIN: Duration = Duration::from_millis(3_000);
/// A held answer waits at most so long: the victim is dead by then, or stands still.
const HOLD_FOR: Duration = Duration::from_secs(10);
/// So many answers are held, if they come at the same time.
const HELD_AT_ONCE: usize = 8;
/// Further answers are waited for this long.
const NEXT_HELD_WITHIN: Duration = Duration::from_millis(20);

impl Nemesis {
    pub(super) async fn kill(&mut self, strike: &Strike, whom: Whom, inside: bool) -> Result<Begun, Skipped> {
        let (victim, held) = self.caught(whom, inside).await?;
        let mut fault = self.fault(strike, &format!("kill -9 of {whom}"), std::slice::from_ref(&victim));
        // After the instant of the fault: a dot that is read from then on was under way.
        let (is_inside, past_gate) = self.note_gate(&victim, &held, &mut fault);
        let was = self.victim(&victim, is_inside);
        self.stage.kill(&victim).map_err(skipped)?;
        self.count_kill(was, is_inside, past_gate);
        // Now the sink answers somebody who is no more.
        drop(held);
        fault.observed = Some(true);
        fault.word = format!("{past_gate} past the gate, down for {} ms", strike.lasts.as_millis());
        Ok(Begun { fault, undo: Undo::Start(vec![victim]) })
    }

    pub(super) async fn pause(&mut self, strike: &Strike, whom: Whom, inside: bool) -> Result<Begun, Skipped> {
        let (victim, held) = self.caught(whom, inside).await?;
        let mut fault = self.fault(strike, &format!("SIGSTOP of {whom}"), std::slice::from_ref(&victim));
        let (_, past_gate) = self.note_gate(&victim, &held, &mut fault);
        self.stage.pause(&victim).map_err(skipped)?;
        // The answer comes while it stands still, and is read when it goes on: perhaps by one that is given up long since.
        drop(held);
        fault.word = format!("for {} ms, {past_gate} past the gate", strike.lasts.as_millis());
        Ok(Begun { fault, undo: Undo::Resume(victim) })
    }

    /// Who is meant; with the answers of the sink that are held back then, where `inside` asks for them.
    async fn caught(&mut self, whom: Whom, inside: bool) -> Result<(String, Vec<Held>), Skipped> {
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
        Ok((victim, held))
    }

    /// Is a mail of the victim between dot and 250, and how many are past the gate.
    fn note_gate(&self, victim: &str, held: &[Held], fault: &mut Fault) -> (bool, u64) {
        let past_gate = self.stage.past_gate(victim);
        let is_inside = held.iter().any(|held| held.accepted.ehlo == victim) || past_gate > 0;
        (fault.inside_data, fault.past_gate) = (Some(is_inside), Some(past_gate));
        (is_inside, past_gate)
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

    pub(super) fn kill_all(&mut self, strike: &Strike) -> Result<Begun, Skipped> {
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

    pub(super) async fn power(&mut self, strike: &Strike, whom: Option<Whom>, torn: bool) -> Result<Begun, Skipped> {
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
        let name = if whom.is_some() { "power cut of one" } else { "power cut of all" };
        // Without a tracer it fails at any time, mostly between two writes.
        let traces = if torn { self.amid_writes(&victims).await } else { Vec::new() };
        self.note_ends().map_err(skipped)?;
        let mut fault = self.fault(strike, name, &victims);
        let past_gate: u64 = self.kill_each(&mut fault)?.iter().map(|(_, past_gate)| past_gate).sum();
        // Who has ended by itself keeps its disk.
        let victims = fault.nodes.clone();
        // They are dead, whatever becomes of their disks.
        let (mut failed, mut logs) = (Vec::new(), Vec::new());
        for name in &victims {
            match self.cut_power(name, torn) {
                Ok(Some(word)) => logs.push((name.clone(), word)),
                Ok(None) => {}
                Err(error) => failed.push(told(error)),
            }
        }
        for trace in traces {
            trace.end().await;
        }
        (fault.observed, fault.journals_lost) = (Some(failed.is_empty()), true);
        (self.ends.power_cuts, self.ends.past_gate) = (self.ends.power_cuts + 1, self.ends.past_gate + past_gate);
        let (torn, words): (Vec<String>, Vec<String>) = logs.into_iter().unzip();
        let words = std::iter::once(format!("{past_gate} past the gate")).chain(words).chain(failed);
        fault.word = words.collect::<Vec<_>>().join("; ");
        Ok(Begun { fault, undo: Undo::StartTorn { nodes: victims, torn } })
    }

    /// What lay in memory is gone, and so is what was not synced; `torn`: but for a part of what was written to the log,
    /// which is told.
    fn cut_power(&mut self, name: &str, torn: bool) -> Result<Option<String>> {
        self.stage.cluster.delete_journals(name)?;
        let folder = self.stage.cluster.node(name)?.folder().join("wal");
        // What was only written too: this machine still shows it. A node that has just started has no log yet.
        let segment = disk::last_segment(&folder).ok().filter(|_| torn);
        let written = segment.map(|segment| Ok::<_, std::io::Error>((fs::read(&segment)?, segment))).transpose()?;
        let volumes = self.stage.cluster.footing_mut().volumes.as_mut();
        let volume =
            volumes.ok().and_then(|volumes| volumes.get_mut(name)).context("a node without a disk of its own")?;
        tokio::task::block_in_place(|| volume.cut_power())?;
        let chance = self.seed.wrapping_add(self.ends.power_cuts);
        let kept = written.map(|(written, segment)| disk::keep_part(&segment, &written, chance)).transpose()?;
        Ok(kept.flatten().map(|word| format!("{name}: {word}")))
    }
}

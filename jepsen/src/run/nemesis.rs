//! Carries a plan of faults out: when a strike is due it begins, when its time is over it ends, and what was seen of
//! it is written down. In the end everything is mended.
//!
//! Nothing here decides what to break (that is `plan`) or whether it was survived (that is the checker).

use std::time::{Duration, Instant};

use anyhow::Result;
use reveille_check::history::{Event, Fault, FaultKind, FaultStatus};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::blows::Undo;
use super::operator::Operator;
use super::plan::{Blow, DiskBlow, Strike, Whom};
use super::stage::{Doing, Stage, Stopped};
use super::wiring::BadLinks;

/// How often nodes that ended by themselves are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
/// A strike at who leads waits so long for somebody to lead.
const LED_WITHIN: Duration = Duration::from_secs(4);
/// One that needs all else to be well waits so long for that: most faults are over by then.
const QUIET_WITHIN: Duration = Duration::from_secs(8);
/// A strike that is later than this falls no more: about a period of the plan.
const BEHIND_MAX: Duration = Duration::from_secs(10);
/// One that did is started again after this.
const REVIVED_AFTER: Duration = Duration::from_millis(1_500);
/// All nodes must be ready so soon after everything was mended.
const WHOLE_WITHIN: Duration = Duration::from_secs(45);

/// Whoever breaks things.
pub struct Nemesis {
    pub(super) stage: Stage,
    pub(super) operator: Operator,
    pub(super) orders: JoinSet<Fault>,
    pub(super) bad_links: BadLinks,
    /// How the relay behaves when nothing is wrong with it.
    pub(super) pace: &'static str,
    pub(super) seed: u64,
    /// How often answers were held.
    pub(super) holds: u32,
    /// What ended lives on purpose, so far.
    pub(super) ends: Ends,
    /// Since when the next strike waits for its moment.
    waits: Option<Instant>,
    pub(super) active: Vec<Active>,
    revivals: Vec<(Instant, String)>,
}

/// Lives that were ended on purpose, by what the node was doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// `kill -9` of who led.
    pub leader: u64,
    /// Of one who did not lead and had a mail in hand, as the sink saw it.
    pub sender: u64,
    /// Of one who did neither.
    pub other: u64,
    /// Of all these, between a final dot of its and the 250.
    pub between_dot_and_250: u64,
    /// Times that power was cut, of one node or of all.
    pub power_cuts: u64,
    /// Hand-offs that all of these found past the gate, as the sink saw it.
    pub past_gate: u64,
}

/// A fault in force.
pub(super) struct Active {
    until: Instant,
    fault: Fault,
    pub undo: Undo,
}

/// What a node did that is to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// It led, by its own word of a moment ago.
    Leader,
    /// It did not, and had a mail in hand, as the sink saw it.
    Sender,
    /// Neither.
    Other,
}

/// A strike that could not be, and why.
pub(super) enum Skipped {
    /// This machine cannot do it.
    Cannot(String),
    /// There was nobody to strike, it was not the moment, or it failed.
    NotNow(String),
}

/// What the beginning of a strike came to.
pub(super) struct Begun {
    /// As far as it is known by now.
    pub fault: Fault,
    /// How it is mended.
    pub undo: Undo,
}

impl Nemesis {
    /// Nothing is broken.
    pub fn new(stage: Stage, operator: Operator, seed: u64, pace: &'static str) -> Nemesis {
        Nemesis {
            stage,
            operator,
            orders: JoinSet::new(),
            bad_links: BadLinks::default(),
            pace,
            seed,
            holds: 0,
            ends: Ends::default(),
            waits: None,
            active: Vec::new(),
            revivals: Vec::new(),
        }
    }

    /// Carries the plan out from `start` on; returns when `phase` is over, with whatever is broken then.
    pub async fn strike(&mut self, plan: &[Strike], start: Instant, phase: Duration) -> Result<()> {
        let mut due = plan.iter().peekable();
        while start.elapsed() < phase {
            self.revive()?;
            while let Some(place) = self.active.iter().position(|active| active.until <= Instant::now()) {
                self.end(place).await?;
            }
            // What has fallen behind by a period would make the last one, in which everything is to strike, come never.
            while let Some(strike) = due.next_if(|strike| start.elapsed() >= strike.at + BEHIND_MAX) {
                self.waits = None;
                self.skip(strike, Skipped::NotNow("others took until long after its time".to_owned()));
            }
            // One at a time: it may take a while, and who is to be started meanwhile must not wait for the next one.
            if let Some(strike) = due.next_if(|strike| start.elapsed() >= strike.at && self.is_time_for(strike)) {
                self.waits = None;
                self.begin(strike).await?;
            }
            let next_end = self.active.iter().map(|active| active.until).min();
            let next = due.peek().map(|strike| start + strike.at).into_iter().chain(next_end).min();
            let sleep = next.map_or(LOOK_EVERY, |next| next.saturating_duration_since(Instant::now()).min(LOOK_EVERY));
            // What waits for somebody to lead is due already.
            tokio::time::sleep(sleep.max(SHORTEST_SLEEP)).await;
        }
        for strike in due {
            self.skip(strike, Skipped::NotNow("the fault phase was over before it".to_owned()));
        }
        Ok(())
    }

    /// A kill of the leader or of a sender, and a hand-over of leadership, wait a while until a node leads: to kill the last
    /// node that runs once more shows nothing, and without a leader nothing is handed over. A log loses its tail only while
    /// all else is well. No other strike begins before the one that waits.
    fn is_time_for(&mut self, strike: &Strike) -> bool {
        let (is_time, within) = match strike.blow {
            Blow::Kill { whom: Whom::Leader | Whom::Sender, .. } | Blow::Transfer => (self.stage.is_led(), LED_WITHIN),
            Blow::Disk { how: DiskBlow::TornTail, .. } => (self.is_quiet(), QUIET_WITHIN),
            _ => return true,
        };
        is_time || self.waits.get_or_insert_with(Instant::now).elapsed() >= within
    }

    fn skip(&mut self, strike: &Strike, skipped: Skipped) {
        let mut fault = self.fault(strike, &format!("{:?}", strike.blow), &[]);
        fault.status = FaultStatus::Skipped;
        (fault.cannot, fault.word) = match skipped {
            Skipped::Cannot(why) => (true, why),
            Skipped::NotNow(why) => (false, why),
        };
        self.write_down(fault);
    }

    /// Mends everything; returns when every node is ready.
    pub async fn heal(&mut self) -> Result<()> {
        while !self.active.is_empty() {
            self.end(0).await?;
        }
        while let Some(ended) = self.orders.join_next().await {
            self.write_down(ended?);
        }
        self.all_ready().await
    }

    /// Is every fault written down, and has every order of an operator come to its end?
    pub fn has_told_all(&self) -> bool {
        self.active.is_empty() && self.orders.is_empty()
    }

    /// Stops a node; that it had to be killed for it is a fault like any other kill. Answers whether it obeyed.
    pub(super) async fn stop(&mut self, name: &str) -> Result<bool> {
        let Stopped::Killed { past_gate } = self.stage.stop(name).await? else { return Ok(true) };
        let (node, at_ns) = (vec![name.to_owned()], self.stage.recorder.now_ns());
        let mut fault = Fault::installed(FaultKind::Kill, "kill -9: it did not stop".to_owned(), node, at_ns);
        (fault.observed, fault.past_gate) = (Some(true), Some(past_gate));
        eprintln!("  {name} did not stop when it was asked to, and was killed");
        self.write_down(fault);
        Ok(false)
    }

    /// Starts who is down, and waits until everybody follows or leads.
    async fn all_ready(&mut self) -> Result<()> {
        let until = Instant::now() + WHOLE_WITHIN;
        loop {
            self.stage.look_for_ends()?;
            self.revivals.clear();
            let mut unready = Vec::new();
            for name in self.stage.names() {
                self.stage.resume(&name)?;
                self.stage.start(&name)?;
                if !self.stage.is_ready(&name).await {
                    unready.push(name);
                }
            }
            if unready.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                anyhow::bail!("{unready:?} are not ready {} s after all was mended", WHOLE_WITHIN.as_secs());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends by themselves go on to be looked for while nothing is broken.
    pub fn look(&mut self) -> Result<()> {
        self.revive()
    }

    async fn begin(&mut self, strike: &Strike) -> Result<()> {
        let from_ns = self.stage.recorder.now_ns();
        let begun = Box::pin(self.blow(strike)).await;
        match begun {
            Ok(Some(Begun { fault, undo })) => {
                eprintln!("  {:>5.1} s {} {}: {}", seconds(from_ns), fault.name, fault.nodes.join(" "), fault.word);
                self.active.push(Active { until: Instant::now() + strike.lasts, fault, undo });
            }
            // An order reports for itself.
            Ok(None) => {}
            Err(skipped) => self.skip(strike, skipped),
        }
        Ok(())
    }

    async fn end(&mut self, place: usize) -> Result<()> {
        let Active { mut fault, undo, .. } = self.active.swap_remove(place);
        if let Err(error) = Box::pin(self.undo(undo, &mut fault)).await {
            fault.word = format!("{}; mending it: {error:#}", fault.word);
            // What nobody mended may be in force to the end.
            self.stage.surprises.push(format!("{} was not mended: {error:#}", fault.name));
        }
        fault.until_ns = Some(self.stage.recorder.now_ns());
        self.write_down(fault);
        Ok(())
    }

    pub(super) fn write_down(&mut self, fault: Fault) {
        if fault.status != FaultStatus::Installed {
            eprintln!("  {:?}: {}: {}", fault.status, fault.name, fault.word);
        }
        self.stage.recorder.event(&Event::Fault(fault));
    }

    /// A fault of a strike that begins now, as installed.
    pub(super) fn fault(&self, strike: &Strike, name: &str, nodes: &[String]) -> Fault {
        let led_epoch = self.stage.leads_now().filter(|(leader, _)| nodes.contains(leader)).map(|(_, epoch)| epoch);
        let from_ns = self.stage.recorder.now_ns();
        Fault { led_epoch, ..Fault::installed(kind(&strike.blow), name.to_owned(), nodes.to_vec(), from_ns) }
    }

    /// Whom the kill meets that is about to come.
    pub(super) fn victim(&self, name: &str, inside: bool) -> Victim {
        if self.stage.leads_now().is_some_and(|(leader, _)| leader == name) {
            Victim::Leader
        } else if inside || self.stage.is_sending(name) {
            Victim::Sender
        } else {
            Victim::Other
        }
    }

    /// Counts a kill.
    pub(super) fn count_kill(&mut self, victim: Victim, inside: bool, past_gate: u64) {
        let ends = &mut self.ends;
        *match victim {
            Victim::Leader => &mut ends.leader,
            Victim::Sender => &mut ends.sender,
            Victim::Other => &mut ends.other,
        } += 1;
        ends.between_dot_and_250 += u64::from(inside);
        ends.past_gate += past_gate;
    }

    /// Who is meant now, of those that run.
    pub(super) fn whom(&self, whom: Whom) -> Result<String, Skipped> {
        let running = self.stage.running();
        let meant = match whom {
            Whom::Leader => self.stage.leader().map(|(name, _)| name),
            Whom::Sender => self.stage.senders().into_iter().next(),
            Whom::Node(number) => self.stage.names().into_iter().cycle().nth(number),
        };
        // Where the one who is meant is down or nobody is meant, another one will do.
        let found = meant.filter(|name| running.contains(name)).or_else(|| running.first().cloned());
        found.ok_or_else(|| Skipped::NotNow("no node runs".to_owned()))
    }

    /// What is active on a node beside its being killed.
    pub(super) fn is_quiet(&self) -> bool {
        let all_run = self.stage.names().iter().all(|name| self.stage.doing(name) == Doing::Runs);
        all_run && self.active.iter().all(|active| matches!(active.fault.kind, FaultKind::Relay | FaultKind::Clock))
    }

    /// Looks for nodes that ended by themselves, to start them again later.
    pub(super) fn note_ends(&mut self) -> Result<()> {
        let down = self.stage.look_for_ends()?;
        self.revivals.extend(down.into_iter().map(|end| (Instant::now() + REVIVED_AFTER, end.node)));
        Ok(())
    }

    fn revive(&mut self) -> Result<()> {
        self.note_ends()?;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.revivals).into_iter().partition(|(at, _)| *at <= Instant::now());
        self.revivals = later;
        for (_, name) in due {
            // Whoever is down by a strike is started when that is over.
            if !self.active.iter().any(|active| active.undo.starts(&name)) {
                self.stage.start(&name)?;
            }
        }
        Ok(())
    }
}

/// As histories call it.
pub(super) fn kind(blow: &Blow) -> FaultKind {
    match blow {
        Blow::Kill { .. } | Blow::KillAll => FaultKind::Kill,
        Blow::Pause { .. } => FaultKind::Pause,
        Blow::Cut(_) => FaultKind::Partition,
        Blow::Link { .. } => FaultKind::Link,
        Blow::Clock { .. } => FaultKind::Clock,
        Blow::Disk { how: DiskBlow::StateLost | DiskBlow::StateDamaged | DiskBlow::TornTail, .. } => FaultKind::Damage,
        Blow::Disk { .. } => FaultKind::Disk,
        Blow::Power { .. } => FaultKind::PowerCut,
        Blow::Relay { .. } => FaultKind::Relay,
        Blow::Roll => FaultKind::Restart,
        Blow::Transfer => FaultKind::Transfer,
        Blow::Operator(_) => FaultKind::Operator,
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

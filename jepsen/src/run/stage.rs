//! The cluster under test with everybody who watches it: processes are killed, stopped and started here and nowhere
//! else, so that each life of each node is written down.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use reveille_check::history::{Event, Life, LifeEnd};
use reveille_sink::{DialogueState, Sink};
use rustix::process::Signal;

use super::crash::died_at;
use super::lives::Lives;
use super::recorder::Recorder;
use crate::cluster::Cluster;
use crate::measure::monotonic_us;
use crate::pages;
use crate::watch::{SILENCE_US, Watch};

/// A node that is asked to stop gets so long.
const STOPS_WITHIN: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A life that ended by itself is told with this much of its log.
const LAST_WORDS_BYTES: usize = 2_000;

/// What a node is doing, as far as this process did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Its process runs.
    Runs,
    /// It is stopped by a signal.
    Paused,
    /// There is no process.
    Down,
}

/// The end of a process that nobody here killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Whose.
    pub node: String,
    /// The crash point that it died at.
    pub point: Option<String>,
    /// The epoch that it led.
    pub led_epoch: Option<u64>,
}

/// Cluster, sink, and observers.
pub struct Stage {
    pub cluster: Cluster,
    pub sink: Sink,
    pub recorder: Recorder,
    pub watch: Arc<Watch>,
    /// When the last life of each began.
    began: BTreeMap<String, u64>,
    over: Lives,
    doing: BTreeMap<String, Doing>,
    /// Nodes whose end by themselves would surprise nobody, until when.
    excused: BTreeMap<String, Instant>,
    /// Nodes whose disk is full.
    full_disks: BTreeSet<String>,
    /// Nodes that were asked to stop.
    leaving: BTreeSet<String>,
    /// Ends by themselves that were seen while something else was done.
    ends: Vec<End>,
    /// Ends that surprise: node and last words.
    pub surprises: Vec<String>,
}

/// What came of asking a node to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It obeyed, or had ended before.
    Obeyed,
    /// It was killed in the end, with so many hand-offs past the gate.
    Killed { past_gate: u64 },
}

impl Stage {
    /// All nodes run.
    pub fn new(cluster: Cluster, sink: Sink, recorder: Recorder, watch: Arc<Watch>) -> Stage {
        let names: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
        let began = names.iter().map(|name| (name.clone(), 0)).collect();
        let doing = names.into_iter().map(|name| (name, Doing::Runs)).collect();
        let (over, excused, surprises) = (Lives::default(), BTreeMap::new(), Vec::new());
        let (full_disks, leaving, ends) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        Stage { cluster, sink, recorder, watch, began, over, doing, excused, full_disks, leaving, ends, surprises }
    }

    /// Names of all nodes, in order.
    pub fn names(&self) -> Vec<String> {
        self.cluster.nodes().iter().map(|node| node.name.clone()).collect()
    }

    /// The place of a node.
    pub fn place(&self, name: &str) -> usize {
        self.cluster.nodes().iter().position(|node| node.name == name).unwrap_or(0)
    }

    /// What it does.
    pub fn doing(&self, name: &str) -> Doing {
        self.doing.get(name).copied().unwrap_or(Doing::Down)
    }

    /// Nodes whose process runs.
    pub fn running(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| self.doing(name) == Doing::Runs).collect()
    }

    /// Who led last, if the watch has seen it.
    pub fn leader(&self) -> Option<(String, u64)> {
        let latest = self.watch.latest()?;
        Some((latest.node?, latest.epoch))
    }

    /// Who runs and said a moment ago that it leads.
    pub fn leads_now(&self) -> Option<(String, u64)> {
        let latest = self.watch.latest().filter(|leadership| monotonic_us() - leadership.last_us < SILENCE_US)?;
        Some((latest.node?, latest.epoch)).filter(|(node, _)| self.doing(node) == Doing::Runs)
    }

    /// Does anybody?
    pub fn is_led(&self) -> bool {
        self.leads_now().is_some()
    }

    /// Mails of a node whose final dot the sink has and which it has not answered.
    pub fn past_gate(&self, name: &str) -> u64 {
        let waiting = self.sink.connections().into_iter();
        let waiting = waiting.filter(|dialogue| dialogue.state == DialogueState::AfterDot && dialogue.ehlo == name);
        waiting.map(|dialogue| dialogue.unanswered.len() as u64).sum()
    }

    /// Does it have a mail in hand, as the sink sees it?
    pub fn is_sending(&self, name: &str) -> bool {
        let open = self.sink.connections();
        open.iter().any(|dialogue| dialogue.ehlo == name && dialogue.state != DialogueState::Idle)
    }

    /// Nodes that have a dialogue with the sink, those past the gate first.
    pub fn senders(&self) -> Vec<String> {
        let mut open = self.sink.connections();
        open.sort_by_key(|dialogue| (dialogue.state != DialogueState::AfterDot, dialogue.unanswered.is_empty()));
        let mut names: Vec<String> = Vec::new();
        for dialogue in open {
            if self.doing(&dialogue.ehlo) == Doing::Runs && !names.contains(&dialogue.ehlo) {
                names.push(dialogue.ehlo);
            }
        }
        names
    }

    /// `kill -9`; an error where it had ended by itself.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        self.notice_ends()?;
        anyhow::ensure!(self.doing(name) != Doing::Down, "{name} had ended before it was killed");
        let incarnation = self.cluster.node(name)?.incarnation();
        self.cluster.kill(name)?;
        self.is_over(name, incarnation, LifeEnd::Killed);
        Ok(())
    }

    /// SIGTERM; `kill -9` for one that does not obey. One that obeys with an error is a surprise.
    pub async fn stop(&mut self, name: &str) -> Result<Stopped> {
        self.notice_ends()?;
        if self.doing(name) == Doing::Down {
            return Ok(Stopped::Obeyed);
        }
        let incarnation = self.cluster.node(name)?.incarnation();
        self.cluster.named(name)?.signal(Signal::TERM)?;
        let until = Instant::now() + STOPS_WITHIN;
        let status = loop {
            if let Some(status) = self.cluster.named(name)?.ended() {
                break status;
            }
            if Instant::now() > until {
                let past_gate = self.past_gate(name);
                self.kill(name)?;
                return Ok(Stopped::Killed { past_gate });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        let words = self.cluster.node(name)?.last_words();
        self.cluster.kill(name)?;
        let end = end_of_a_leaver(status);
        self.is_over(name, incarnation, end);
        if end == LifeEnd::ByItself {
            self.wonder(name, status, &words);
        }
        Ok(Stopped::Obeyed)
    }

    /// From now on, and for this long, its end by itself surprises nobody; a new life has to prove itself anew.
    pub fn excuse(&mut self, name: &str, length: Duration) {
        self.excused.insert(name.to_owned(), Instant::now() + length);
    }

    /// From now on no life of it surprises anybody by its end, a new one neither: who starts on a full disk ends again.
    pub fn disk_is_full(&mut self, name: &str) {
        self.full_disks.insert(name.to_owned());
    }

    /// Its disk has room again; a life that met the full one may end for this long.
    pub fn disk_has_room(&mut self, name: &str, length: Duration) {
        self.full_disks.remove(name);
        self.excuse(name, length);
    }

    /// Starts it again, unless it runs; without any crash point.
    pub fn start(&mut self, name: &str) -> Result<()> {
        self.start_armed(name, None)
    }

    /// The same with crash points, in the words of FAILPOINTS.
    pub fn start_armed(&mut self, name: &str, points: Option<&str>) -> Result<()> {
        if self.doing(name) == Doing::Down {
            self.excused.remove(name);
            self.leaving.remove(name);
            self.cluster.named(name)?.arm(points);
            self.cluster.restart(name)?;
            self.began.insert(name.to_owned(), self.recorder.now_ns());
            self.doing.insert(name.to_owned(), Doing::Runs);
        }
        Ok(())
    }

    /// SIGSTOP.
    pub fn pause(&mut self, name: &str) -> Result<()> {
        self.cluster.named(name)?.signal(Signal::STOP)?;
        self.doing.insert(name.to_owned(), Doing::Paused);
        Ok(())
    }

    /// SIGCONT, unless it was killed meanwhile.
    pub fn resume(&mut self, name: &str) -> Result<()> {
        if self.doing(name) == Doing::Paused {
            self.cluster.named(name)?.signal(Signal::CONT)?;
            self.doing.insert(name.to_owned(), Doing::Runs);
        }
        Ok(())
    }

    /// SIGTERM, and nobody waits: its end is seen by [`Stage::look_for_ends`]. Once: who is told twice ends at once.
    pub fn ask_to_stop(&mut self, name: &str) -> Result<()> {
        if self.leaving.insert(name.to_owned()) {
            self.cluster.named(name)?.signal(Signal::TERM)?;
        }
        Ok(())
    }

    /// Nodes that ended by themselves since this was asked last. They stay down.
    pub fn look_for_ends(&mut self) -> Result<Vec<End>> {
        self.notice_ends()?;
        Ok(std::mem::take(&mut self.ends))
    }

    /// Writes down nodes that ended by themselves. Who was not excused, did not die at a crash point and was not asked to
    /// stop is a surprise. Before every kill and stop, so that nobody's own death is taken for one of ours.
    fn notice_ends(&mut self) -> Result<()> {
        for (name, status) in self.cluster.ended() {
            if self.doing(&name) == Doing::Down {
                continue;
            }
            let node = self.cluster.node(&name)?;
            let (incarnation, words) = (node.incarnation(), node.last_words());
            let led_epoch = self.leader().filter(|(leader, _)| *leader == name).map(|(_, epoch)| epoch);
            self.cluster.kill(&name)?;
            let end = if self.leaving.remove(&name) { end_of_a_leaver(status) } else { LifeEnd::ByItself };
            let was_asked = end != LifeEnd::ByItself;
            self.is_over(&name, incarnation, end);
            let point = died_at(&words).filter(|_| !status.success()).map(str::to_owned);
            if point.is_none() && !was_asked {
                self.wonder(&name, status, &words);
            }
            self.ends.push(End { node: name, point, led_epoch });
        }
        Ok(())
    }

    fn wonder(&mut self, name: &str, status: ExitStatus, words: &str) {
        let start = words.len().saturating_sub(LAST_WORDS_BYTES);
        let words = words.get(start..).unwrap_or(words);
        if self.full_disks.contains(name) || self.excused.get(name).is_some_and(|until| Instant::now() < *until) {
            eprintln!("  {name} ended by itself ({status}), as was to be expected");
        } else {
            eprintln!("  {name} ended by itself ({status}):\n{words}");
            self.surprises.push(format!("{name} ({status}): {words}"));
        }
    }

    fn is_over(&mut self, name: &str, incarnation: Option<u64>, end: LifeEnd) {
        self.doing.insert(name.to_owned(), Doing::Down);
        let life = Life {
            node: name.to_owned(),
            incarnation,
            started_ns: self.began.get(name).copied().unwrap_or(0),
            ended_ns: Some(self.recorder.now_ns()),
            end: Some(end),
        };
        self.recorder.event(&Event::Life(life.clone()));
        self.over.add(life);
    }

    /// All lives so far, those that go on among them.
    pub fn lives(&self) -> Lives {
        let mut lives = self.over.clone();
        self.living().for_each(|life| lives.add(life));
        lives
    }

    /// Writes down the lives that are not over.
    pub fn record_living(&self) {
        self.living().for_each(|life| self.recorder.event(&Event::Life(life)));
    }

    fn living(&self) -> impl Iterator<Item = Life> + '_ {
        let nodes = self.cluster.nodes().iter().filter(|node| self.doing(&node.name) != Doing::Down);
        nodes.map(|node| Life {
            node: node.name.clone(),
            incarnation: node.incarnation(),
            started_ns: self.began.get(&node.name).copied().unwrap_or(0),
            ended_ns: None,
            end: None,
        })
    }

    /// Does its process answer at all?
    pub async fn is_alive(&self, name: &str) -> bool {
        match self.cluster.node(name) {
            Ok(node) => pages::is_alive(node.http).await,
            Err(_) => false,
        }
    }

    /// Is it ready, by its own word?
    pub async fn is_ready(&self, name: &str) -> bool {
        match self.cluster.node(name) {
            Ok(node) => pages::is_ready(node.http).await,
            Err(_) => false,
        }
    }
}

/// How a life ended that was asked to stop.
fn end_of_a_leaver(status: ExitStatus) -> LifeEnd {
    match status.signal() {
        _ if status.success() => LifeEnd::Stopped,
        // It was asked before it could hear anything: our signal ended it as a kill does.
        Some(signal) if signal == Signal::TERM.as_raw() => LifeEnd::Killed,
        _ => LifeEnd::ByItself,
    }
}

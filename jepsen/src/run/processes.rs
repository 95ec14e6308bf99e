//! The processes of the cluster under test. Only this file kills, stops and starts processes, so that the history has
//! every lifetime of every node.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use reveille_check::events::{Event, Lifetime, LifetimeEnd};
use reveille_harness::leader_watch::{LeaderWatch, SILENCE_US};
use reveille_harness::measure::monotonic_us;
use reveille_harness::{Cluster, http};
use reveille_sink::Sink;
use rustix::process::Signal;

use super::observe::Recorder;

/// Maximum time until a node that is asked to stop has ended.
const STOPS_WITHIN: Duration = Duration::from_secs(8);
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Number of bytes of the log that are reported for a process that ended by itself.
const LOG_BYTES: usize = 2_000;

/// The state of a node's process, as far as this harness caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// The process runs.
    Runs,
    /// A signal has stopped the process.
    Paused,
    /// There is no process.
    Down,
}

/// A process that ended and was not killed by this harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedProcess {
    /// Name of the node.
    pub node: String,
    /// Crash point at which the process crashed. `None`: it ended for another reason.
    pub crash_point: Option<String>,
    /// Epoch that the process led. `None`: it did not lead.
    pub led_epoch: Option<u64>,
}

/// Cluster, sink and their observers.
pub struct Processes {
    pub cluster: Cluster,
    pub sink: Sink,
    pub recorder: Recorder,
    /// Nodes that ended unexpectedly, with the end of their logs.
    pub unexpected_ends: Vec<String>,
    watch: Arc<LeaderWatch>,
    over: Vec<Lifetime>,
    nodes: BTreeMap<String, ProcessRecord>,
    /// Nodes of the cluster: neither lost nor spare ones.
    members: Vec<String>,
    /// Processes that ended by themselves and were not taken yet.
    ended: Vec<EndedProcess>,
}

/// The current or last process of a node.
struct ProcessRecord {
    began_ns: u64,
    state: ProcessState,
    /// True if the node never starts again.
    is_lost: bool,
    /// True if the node is being removed, and may stop without being asked.
    may_leave: bool,
    /// Time until which the process may end by itself.
    excused: Option<Instant>,
    has_full_disk: bool,
    was_asked_to_stop: bool,
}

impl ProcessRecord {
    fn new(state: ProcessState) -> ProcessRecord {
        ProcessRecord {
            began_ns: 0,
            state,
            is_lost: false,
            may_leave: false,
            excused: None,
            has_full_disk: false,
            was_asked_to_stop: false,
        }
    }
}

/// The result of asking a node to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The node stopped, or had ended before.
    ByItself,
    /// The node had to be killed, with this number of handoffs past the gate.
    Killed { past_gate: u64 },
}

impl Processes {
    /// Takes a cluster whose nodes all run.
    pub fn new(cluster: Cluster, sink: Sink, recorder: Recorder, watch: Arc<LeaderWatch>) -> Processes {
        let members: Vec<String> = cluster.founders().iter().map(|node| node.name.clone()).collect();
        let nodes = members.iter().map(|name| (name.clone(), ProcessRecord::new(ProcessState::Runs))).collect();
        let (unexpected_ends, over, ended) = (Vec::new(), Vec::new(), Vec::new());
        Processes { cluster, sink, recorder, unexpected_ends, watch, over, nodes, members, ended }
    }

    /// Returns the names of the nodes of the cluster, in order.
    pub fn names(&self) -> Vec<String> {
        self.members.clone()
    }

    /// Returns the nodes that have never run.
    pub fn spares(&self) -> Vec<String> {
        let names = self.cluster.nodes().iter().map(|node| node.name.clone());
        names.filter(|name| !self.nodes.contains_key(name)).collect()
    }

    /// Kills a node, which never starts again. Fails as [`Processes::kill`].
    pub fn lose(&mut self, name: &str) -> Result<()> {
        self.kill(name)?;
        self.forget(name);
        Ok(())
    }

    /// Takes a node without a process for no member any more. It never starts again.
    pub fn forget(&mut self, name: &str) {
        self.members.retain(|member| member != name);
        self.process(name).is_lost = true;
    }

    /// Allows the node to stop without being asked, or no longer. It must end without an error.
    pub fn may_leave(&mut self, name: &str, may: bool) {
        self.process(name).may_leave = may;
    }

    /// Starts a spare node, which joins the cluster.
    pub fn join(&mut self, name: &str) -> Result<()> {
        self.members.push(name.to_owned());
        self.members.sort();
        self.start(name)
    }

    /// Returns the index of a node in [`Processes::names`].
    pub fn index(&self, name: &str) -> usize {
        self.members.iter().position(|member| member == name).unwrap_or(0)
    }

    /// Returns the state of the node's process.
    pub fn state(&self, name: &str) -> ProcessState {
        self.nodes.get(name).map_or(ProcessState::Down, |node| node.state)
    }

    /// Returns the nodes whose process runs.
    pub fn running(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| self.state(name) == ProcessState::Runs).collect()
    }

    /// Returns the last leader that was seen, and its epoch.
    pub fn leader(&self) -> Option<(String, u64)> {
        self.watch.latest().map(|latest| (latest.node, latest.epoch))
    }

    /// Returns a running node whose page just showed that it leads, and its epoch.
    pub fn leads_now(&self) -> Option<(String, u64)> {
        let latest = self.watch.latest().filter(|latest| monotonic_us() - latest.last_us < SILENCE_US)?;
        Some((latest.node, latest.epoch)).filter(|(node, _)| self.state(node) == ProcessState::Runs)
    }

    /// Returns the number of emails of a node whose final dot the sink has read and not answered.
    pub fn past_gate(&self, name: &str) -> u64 {
        let own = self.sink.connections().into_iter().filter(|dialogue| dialogue.ehlo == name);
        own.map(|dialogue| dialogue.unanswered.len() as u64).sum()
    }

    /// Returns the node of each dialogue at the sink. Nodes with a handoff past the gate come first.
    pub fn senders(&self) -> Vec<String> {
        let mut open = self.sink.connections();
        open.sort_by_key(|dialogue| dialogue.unanswered.is_empty());
        let names = open.into_iter().map(|dialogue| dialogue.ehlo);
        names.filter(|name| self.state(name) == ProcessState::Runs).collect()
    }

    /// Kills the node (`kill -9`). Fails if the node had ended by itself.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        self.record_ends()?;
        anyhow::ensure!(self.state(name) != ProcessState::Down, "{name} had ended before it was killed");
        let incarnation = self.cluster.node(name)?.incarnation();
        self.cluster.node_mut(name)?.kill()?;
        self.record_end(name, incarnation, LifetimeEnd::Killed);
        Ok(())
    }

    /// Sends SIGTERM, and `kill -9` if the node does not stop in time. An error status is unexpected.
    pub async fn stop(&mut self, name: &str) -> Result<Stopped> {
        let until = Instant::now() + STOPS_WITHIN;
        loop {
            self.record_ends()?;
            if self.state(name) == ProcessState::Down {
                return Ok(Stopped::ByItself);
            }
            self.ask_to_stop(name)?;
            if Instant::now() > until {
                let past_gate = self.past_gate(name);
                self.kill(name)?;
                return Ok(Stopped::Killed { past_gate });
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Allows the node to end by itself within `length`, but not after its next start.
    pub fn excuse(&mut self, name: &str, length: Duration) {
        self.process(name).excused = Some(Instant::now() + length);
    }

    /// Allows the node to end by itself from now on, even after each start, because it starts on a full disk.
    pub fn disk_is_full(&mut self, name: &str) {
        self.process(name).has_full_disk = true;
    }

    /// Records that the disk has room again. A process that met the full disk may end within `length`.
    pub fn disk_has_room(&mut self, name: &str, length: Duration) {
        self.process(name).has_full_disk = false;
        self.excuse(name, length);
    }

    /// Starts the node without crash points, unless it runs or is lost.
    pub fn start(&mut self, name: &str) -> Result<()> {
        self.start_with_crash_points(name, None)
    }

    /// Starts the node with crash points, in the syntax of FAILPOINTS, unless it runs or is lost.
    pub fn start_with_crash_points(&mut self, name: &str, points: Option<&str>) -> Result<()> {
        if self.state(name) == ProcessState::Down && !self.process(name).is_lost {
            let node = self.cluster.node_mut(name)?;
            node.crash_points = points.map(str::to_owned);
            // No email may come before the recorded start of its process (I2).
            let began_ns = self.recorder.now_ns();
            node.start()?;
            let process = self.process(name);
            let (has_full_disk, may_leave) = (process.has_full_disk, process.may_leave);
            *process = ProcessRecord { began_ns, has_full_disk, may_leave, ..ProcessRecord::new(ProcessState::Runs) };
        }
        Ok(())
    }

    /// Returns the state of the process as the kernel names it: `T` for a stopped one. `?`: it does not run.
    pub fn kernel_state(&self, name: &str) -> char {
        let id = self.cluster.node(name).ok().and_then(|node| node.process_id());
        let stat = id.and_then(|id| std::fs::read_to_string(format!("/proc/{id}/stat")).ok());
        stat.and_then(|stat| stat.rsplit_once(") ")?.1.chars().next()).unwrap_or('?')
    }

    /// Stops the process (SIGSTOP).
    pub fn pause(&mut self, name: &str) -> Result<()> {
        self.cluster.node_mut(name)?.signal(Signal::STOP)?;
        self.process(name).state = ProcessState::Paused;
        Ok(())
    }

    /// Lets the process continue (SIGCONT), unless the node was killed meanwhile.
    pub fn resume(&mut self, name: &str) -> Result<()> {
        if self.state(name) == ProcessState::Paused {
            self.cluster.node_mut(name)?.signal(Signal::CONT)?;
            self.process(name).state = ProcessState::Runs;
        }
        Ok(())
    }

    /// Sends SIGTERM without waiting. [`Processes::take_ends`] reports the end. The signal is sent only once, because a
    /// second signal ends the node at once.
    pub fn ask_to_stop(&mut self, name: &str) -> Result<()> {
        if !std::mem::replace(&mut self.process(name).was_asked_to_stop, true) {
            self.cluster.node_mut(name)?.signal(Signal::TERM)?;
        }
        Ok(())
    }

    /// Returns the processes that ended by themselves since the last call. They stay down.
    pub fn take_ends(&mut self) -> Result<Vec<EndedProcess>> {
        self.record_ends()?;
        Ok(std::mem::take(&mut self.ended))
    }

    /// Records processes that ended by themselves. Such an end is unexpected, unless it was excused, requested or at a
    /// crash point. Called before every kill and stop, so that such an end is not attributed to the kill or stop.
    fn record_ends(&mut self) -> Result<()> {
        for (name, status) in self.cluster.ended() {
            if self.state(&name) == ProcessState::Down {
                continue;
            }
            let node = self.cluster.node(&name)?;
            let (incarnation, log) = (node.incarnation(), node.log_end());
            let led_epoch = self.leader().filter(|(leader, _)| *leader == name).map(|(_, epoch)| epoch);
            self.cluster.node_mut(&name)?.kill()?;
            let was_asked = std::mem::take(&mut self.process(&name).was_asked_to_stop);
            let end = if was_asked { end_after_stop(status) } else { LifetimeEnd::ByItself };
            self.record_end(&name, incarnation, end);
            let crash_point = crash_point_of(&log).filter(|_| !status.success()).map(str::to_owned);
            if crash_point.is_none() && end == LifetimeEnd::ByItself {
                self.record_unexpected_end(&name, status, &log);
            }
            self.ended.push(EndedProcess { node: name, crash_point, led_epoch });
        }
        Ok(())
    }

    fn record_unexpected_end(&mut self, name: &str, status: ExitStatus, log: &str) {
        let log = log.get(log.len().saturating_sub(LOG_BYTES)..).unwrap_or(log);
        let process = self.process(name);
        let leaves = process.may_leave && status.success();
        if leaves || process.has_full_disk || process.excused.is_some_and(|until| Instant::now() < until) {
            eprintln!("  {name} ended by itself ({status}), as expected");
        } else {
            eprintln!("  {name} ended by itself ({status}):\n{log}");
            self.unexpected_ends.push(format!("{name} ({status}): {log}"));
        }
    }

    fn record_end(&mut self, name: &str, incarnation: Option<u64>, end: LifetimeEnd) {
        let process = self.process(name);
        process.state = ProcessState::Down;
        let (node, started_ns, ended_ns) = (name.to_owned(), process.began_ns, Some(self.recorder.now_ns()));
        let lifetime = Lifetime { node, incarnation, started_ns, ended_ns, end: Some(end) };
        self.recorder.event(&Event::Lifetime(lifetime.clone()));
        self.over.push(lifetime);
    }

    /// Returns all lifetimes so far, including those of running processes.
    pub fn lifetimes(&self) -> Vec<Lifetime> {
        self.over.iter().cloned().chain(self.alive()).collect()
    }

    /// Records the lifetimes of running processes.
    pub fn record_alive(&self) {
        self.alive().for_each(|lifetime| self.recorder.event(&Event::Lifetime(lifetime)));
    }

    fn alive(&self) -> impl Iterator<Item = Lifetime> + '_ {
        self.cluster.nodes().iter().filter_map(|node| {
            let process = self.nodes.get(&node.name).filter(|process| process.state != ProcessState::Down)?;
            let (name, incarnation, started_ns) = (node.name.clone(), node.incarnation(), process.began_ns);
            Some(Lifetime { node: name, incarnation, started_ns, ended_ns: None, end: None })
        })
    }

    fn process(&mut self, name: &str) -> &mut ProcessRecord {
        self.nodes.entry(name.to_owned()).or_insert_with(|| ProcessRecord::new(ProcessState::Down))
    }

    /// Returns true if the process of the node answers.
    pub async fn is_alive(&self, name: &str) -> bool {
        let Ok(node) = self.cluster.node(name) else { return false };
        http::is_alive(&node.http).await
    }

    /// Returns true if the node follows or leads.
    pub async fn is_ready(&self, name: &str) -> bool {
        let Ok(node) = self.cluster.node(name) else { return false };
        http::is_ready(&node.http).await
    }
}

/// Returns how a process that was asked to stop has ended.
fn end_after_stop(status: ExitStatus) -> LifetimeEnd {
    match status.signal() {
        _ if status.success() => LifetimeEnd::Stopped,
        // SIGTERM came before the process handled signals, and killed it.
        Some(signal) if signal == Signal::TERM.as_raw() => LifetimeEnd::Killed,
        _ => LifetimeEnd::ByItself,
    }
}

/// Returns the crash point at which a process crashed, by its log. If two threads reach it at once, the second line may
/// be incomplete.
fn crash_point_of(log: &str) -> Option<&str> {
    let names = log.lines().rev().filter_map(|line| line.split_once("crashed at the crash point "));
    names.filter_map(|(_, name)| name.split_whitespace().next()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_point_is_read_from_log() {
        assert_eq!(crash_point_of("INFO one\ncrashed at the crash point wal.purge\n"), Some("wal.purge"));
        let cut = "crashed at the crash point wal.purge\ncrashed at the crash point ";
        assert_eq!(crash_point_of(cut), Some("wal.purge"));
        assert_eq!(crash_point_of("INFO ended\n"), None);
    }
}

//! Executes a plan of faults: injects each fault when it is due, repairs it when its time is over, and records it. At
//! the end it repairs everything.
//!
//! It decides neither what to break (`plan`), nor if the product survived (the checker).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reveille_check::events::{Event, Fault, FaultKind, FaultStatus};
use tokio::task::{JoinHandle, JoinSet};

use super::actions::{DiskFault, FaultAction, FaultTarget};
use super::plan::PlannedFault;
use super::syscall_trace::SyncTrace;
use crate::run::clients::Operator;
use crate::run::processes::{ProcessState, Processes, Stopped};

/// Interval of checks for nodes that ended by themselves.
const POLL_EVERY: Duration = Duration::from_millis(100);
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
/// Maximum wait of a fault that needs a leader.
const LED_WITHIN: Duration = Duration::from_secs(4);
/// Maximum wait of a fault that needs everything else to work. Most faults are shorter.
const QUIET_WITHIN: Duration = Duration::from_secs(8);
/// Time for which faults go on during a change of the members. In a long run with a fault a second none would end.
const CHANGED_WITHIN: Duration = Duration::from_secs(60);
/// Maximum time of the last steps of an upgrade.
const UPGRADED_WITHIN: Duration = Duration::from_secs(60);
/// Delay after which a fault is skipped: about a period of the plan.
const LATE_MAX: Duration = Duration::from_secs(10);
/// Time after which a node that ended by itself is started again.
const RESTART_AFTER: Duration = Duration::from_millis(1_500);
/// Maximum time from the last repair until all nodes are ready. If all logs were torn, no node votes for a minute
/// (`raft/src/election/eligibility.rs`).
const READY_WITHIN: Duration = Duration::from_secs(105);

/// Progress of the upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpgradeProgress {
    /// A node went back to the former release.
    pub(super) went_back: bool,
    /// The plan has an upgrade.
    pub(super) is_planned: bool,
    /// The operator requested the next level. The level may be raised, so no node goes back.
    pub(super) is_asked: bool,
    /// The ledger has the next level.
    pub(super) is_finished: bool,
}

/// A change of the members in progress.
pub(super) enum MemberChange {
    /// A token for the new node is requested, after a lost node was removed if there is one. `fault` begins when the
    /// new node starts.
    Admitting { new: String, kind: FaultKind, name: String, task: JoinHandle<Result<String>> },
    /// The new node joins. The task returns true when it votes.
    Joining { fault: Fault, task: JoinHandle<bool> },
    /// A node that runs is drained and removed. The task returns true when it is removed.
    Draining { fault: Fault, leaving: String, task: JoinHandle<bool> },
    /// A removed node stops by itself.
    Stopping { fault: Fault, leaving: String, since: Instant },
}

/// Repair of a fault.
pub(super) enum Repair {
    /// No repair is needed.
    Nothing,
    /// Starts these nodes. The log of each of `torn` ends inside a batch.
    Start { nodes: Vec<String>, torn: Vec<String> },
    /// Resumes this node.
    Resume(String),
    /// Removes this table of filter rules from these hosts.
    Links { table: String, hosts: Vec<String> },
    /// Corrects the clock of this node.
    Clock(String),
    /// Ends the tracing of a node's syncs. `fails`: the process whose syncs failed.
    Untrace { node: String, trace: SyncTrace, fails: Option<u32> },
    /// Frees the disk of this node.
    Empty(String),
    /// Restores the relay.
    Relay,
}

impl Repair {
    /// Returns the repair that starts these nodes, whose logs are whole.
    pub fn start(nodes: Vec<String>) -> Repair {
        Repair::Start { nodes, torn: Vec::new() }
    }

    /// Returns true if the repair will start this node.
    pub fn starts(&self, name: &str) -> bool {
        matches!(self, Repair::Start { nodes, .. } if nodes.iter().any(|known| known == name))
    }
}

/// An injected fault.
pub(super) struct Injected {
    /// The fault, as far as it is known.
    pub fault: Fault,
    pub repair: Repair,
}

/// Reason why a fault was not injected.
pub(super) enum NotInjected {
    /// This machine cannot inject the fault.
    Cannot(String),
    /// The fault had no target, came at an unsuitable time, or failed.
    NotNow(String),
}

/// Returns a part of the environment, or why this machine does not have it.
pub(super) fn required<T>(part: &Result<T, String>) -> Injection<&T> {
    part.as_ref().map_err(|why| NotInjected::Cannot(why.clone()))
}

/// The result of a step of an injection.
pub type Injection<T = Injected> = Result<T, NotInjected>;

impl NotInjected {
    pub fn no_node_runs() -> NotInjected {
        NotInjected::NotNow("no node runs".to_owned())
    }
}

impl From<anyhow::Error> for NotInjected {
    fn from(error: anyhow::Error) -> NotInjected {
        NotInjected::NotNow(format!("{error:#}"))
    }
}

/// Injects faults and repairs them.
pub struct Nemesis {
    /// The processes under test.
    pub processes: Processes,
    /// Template of the operators that act meanwhile.
    pub operator: Operator,
    /// Actions of operators in progress. Each returns its fault.
    pub operations: JoinSet<Fault>,
    /// Number of power cuts so far.
    pub(super) power_cuts: u64,
    /// Number of faults of links so far. Each has a table of filter rules.
    pub(super) link_faults: u32,
    pub(super) seed: u64,
    /// Number of times that answers of the sink were held.
    pub(super) holds: u32,
    pub(super) upgrade: UpgradeProgress,
    pub(super) change: Option<MemberChange>,
    /// A rotation in progress, with its fault. The task returns true when it is over.
    pub(super) rotation: Option<(Fault, JoinHandle<bool>)>,
    /// When an operator's backup was done, in microseconds since 1970. 0: none was.
    pub(super) backed_up_us: Arc<AtomicI64>,
    pub(super) active: Vec<ActiveFault>,
    /// Time since which the next fault waits.
    waits_since: Option<Instant>,
    /// Time since which the members change, or the certificate authority is rotated.
    changing_since: Option<Instant>,
    restarts: Vec<(Instant, String)>,
}

pub(super) struct ActiveFault {
    until: Instant,
    fault: Fault,
    pub repair: Repair,
}

impl Nemesis {
    /// Creates a nemesis without faults in force.
    pub fn new(processes: Processes, operator: Operator, seed: u64) -> Nemesis {
        Nemesis {
            processes,
            operator,
            operations: JoinSet::new(),
            power_cuts: 0,
            link_faults: 0,
            seed,
            holds: 0,
            upgrade: UpgradeProgress::default(),
            change: None,
            rotation: None,
            backed_up_us: Arc::default(),
            active: Vec::new(),
            waits_since: None,
            changing_since: None,
            restarts: Vec::new(),
        }
    }

    /// Executes the plan from `start` on. Returns when `phase` is over. Some faults may still be in force.
    pub async fn execute(&mut self, plan: &[PlannedFault], start: Instant, phase: Duration) -> Result<()> {
        self.upgrade.is_planned = plan.iter().any(|planned| matches!(planned.action, FaultAction::Upgrade { .. }));
        let mut due = plan.iter().peekable();
        while start.elapsed() < phase {
            self.restart_ended()?;
            let is_changing = self.go_on_changing().await? | self.go_on_rotating().await?;
            self.changing_since = is_changing.then(|| self.changing_since.unwrap_or_else(Instant::now));
            while let Some(index) = self.active.iter().position(|active| active.until <= Instant::now()) {
                self.end(index).await?;
            }
            // Without this, faults that are late by a period would delay the last period, in which every family acts.
            while let Some(planned) = due.next_if(|planned| start.elapsed() >= planned.at + LATE_MAX) {
                self.waits_since = None;
                self.skip(planned, NotInjected::NotNow("other faults took until long after its time".to_owned()));
            }
            // One fault at a time, because an injection takes a while, and nodes that are due must be started
            // meanwhile.
            if let Some(planned) = due.next_if(|planned| start.elapsed() >= planned.at && self.is_time_for(planned)) {
                self.waits_since = None;
                self.begin(planned).await?;
            }
            let next_end = self.active.iter().map(|active| active.until).min();
            let next = due.peek().map(|planned| start + planned.at).into_iter().chain(next_end).min();
            let sleep = next.map_or(POLL_EVERY, |next| next.saturating_duration_since(Instant::now()).min(POLL_EVERY));
            // A fault that waits for a leader is due already.
            tokio::time::sleep(sleep.max(SHORTEST_SLEEP)).await;
        }
        for planned in due {
            self.skip(planned, NotInjected::NotNow("the fault phase was over before it".to_owned()));
        }
        Ok(())
    }

    /// Returns true if a fault need not wait. Kills of the leader or of a sender, and transfers, wait for a leader,
    /// because another kill of the last running node shows nothing. A log loses its tail, and a node its snapshots,
    /// only while everything else works. Later faults wait too, and all wait for a change of the members that takes long.
    fn is_time_for(&mut self, planned: &PlannedFault) -> bool {
        if self.changing_since.is_some_and(|since| since.elapsed() >= CHANGED_WITHIN) {
            return false;
        }
        let (is_time, within) = match planned.action {
            FaultAction::Kill { target: FaultTarget::Leader | FaultTarget::Sender, .. } | FaultAction::Transfer => {
                (self.processes.leads_now().is_some(), LED_WITHIN)
            }
            FaultAction::Disk { how: DiskFault::SnapshotsDamaged | DiskFault::TornTail, .. } => {
                (self.is_quiet(), QUIET_WITHIN)
            }
            _ => return true,
        };
        is_time || self.waits_since.get_or_insert_with(Instant::now).elapsed() >= within
    }

    fn skip(&mut self, planned: &PlannedFault, why: NotInjected) {
        let mut fault = self.fault(planned, &format!("{:?}", planned.action), &[]);
        fault.status = FaultStatus::Skipped;
        (fault.cannot, fault.detail) = match why {
            NotInjected::Cannot(why) => (true, why),
            NotInjected::NotNow(why) => (false, why),
        };
        self.record(fault);
    }

    /// Repairs everything, and ends a planned upgrade. Returns when every node is ready.
    pub async fn heal(&mut self) -> Result<()> {
        while !self.active.is_empty() {
            self.end(0).await?;
        }
        while let Some(ended) = self.operations.join_next().await {
            self.record(ended?);
        }
        while self.go_on_changing().await? || self.go_on_rotating().await? {
            self.restart_ended()?;
            tokio::time::sleep(POLL_EVERY).await;
        }
        self.all_ready().await?;
        if self.upgrade.is_planned { self.end_upgrade().await } else { Ok(()) }
    }

    /// Takes the remaining steps of the upgrade after all other faults have ended: downgrades one node unless one was
    /// downgraded before, upgrades every node, and raises the ledger's level.
    async fn end_upgrade(&mut self) -> Result<()> {
        let action = FaultAction::Upgrade { number: 0, goes_back: false };
        let step = PlannedFault { at: Duration::ZERO, lasts: Duration::ZERO, action };
        let until = Instant::now() + UPGRADED_WITHIN;
        while !self.upgrade.is_finished {
            ensure!(Instant::now() < until, "the upgrade does not end");
            self.begin(&step).await?;
            while !self.active.is_empty() {
                self.end(0).await?;
            }
            self.all_ready().await?;
        }
        Ok(())
    }

    /// Returns when an operator's backup was done, in microseconds since 1970. `None`: none was.
    pub fn backed_up_us(&self) -> Option<i64> {
        Some(self.backed_up_us.load(Ordering::Relaxed)).filter(|at_us| *at_us > 0)
    }

    /// Returns true if every fault is recorded and every operation has ended.
    pub fn has_ended(&self) -> bool {
        self.active.is_empty() && self.operations.is_empty() && self.change.is_none() && self.rotation.is_none()
    }

    /// Stops a node. If the node must be killed, the kill is recorded as a fault. Returns true if the node stopped.
    pub(super) async fn stop(&mut self, name: &str) -> Result<bool> {
        let Stopped::Killed { past_gate } = self.processes.stop(name).await? else { return Ok(true) };
        let (node, at_ns) = (vec![name.to_owned()], self.processes.recorder.now_ns());
        let mut fault = Fault::installed(FaultKind::Kill, "kill -9: it did not stop".to_owned(), node, at_ns);
        (fault.observed, fault.past_gate) = (Some(true), [(name.to_owned(), past_gate)].into());
        eprintln!("  {name} did not stop when asked, and was killed");
        self.record(fault);
        Ok(false)
    }

    /// Starts all nodes, and waits until every node follows or leads.
    async fn all_ready(&mut self) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            self.processes.take_ends()?;
            self.restarts.clear();
            let mut unready = Vec::new();
            for name in self.processes.names() {
                self.processes.resume(&name)?;
                self.processes.start(&name)?;
                if !self.processes.is_ready(&name).await {
                    unready.push(name);
                }
            }
            if unready.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                let unready: Vec<String> =
                    unready.iter().map(|name| format!("{name} ({})", self.processes.kernel_state(name))).collect();
                anyhow::bail!("{} s after all repairs are not ready: {}", READY_WITHIN.as_secs(), unready.join(", "));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    async fn begin(&mut self, planned: &PlannedFault) -> Result<()> {
        let from_ns = self.processes.recorder.now_ns();
        match Box::pin(self.inject(planned)).await {
            Ok(Some(Injected { fault, repair })) => {
                let at = from_ns as f64 / 1e9;
                eprintln!("  {at:>5.1} s {} {}: {}", fault.name, fault.nodes.join(" "), fault.detail);
                self.active.push(ActiveFault { until: Instant::now() + planned.lasts, fault, repair });
            }
            // An operation records its own fault, or its family has nothing left to do.
            Ok(None) => {}
            Err(why) => self.skip(planned, why),
        }
        Ok(())
    }

    async fn end(&mut self, index: usize) -> Result<()> {
        let ActiveFault { mut fault, repair, .. } = self.active.swap_remove(index);
        if let Err(error) = Box::pin(self.repair(repair, &mut fault)).await {
            fault.detail = format!("{}; repairing it: {error:#}", fault.detail);
            // The fault may be in force until the end.
            self.processes.unexpected_ends.push(format!("{} was not repaired: {error:#}", fault.name));
        }
        fault.until_ns = Some(self.processes.recorder.now_ns());
        self.record(fault);
        Ok(())
    }

    pub(super) fn record(&mut self, fault: Fault) {
        if fault.status != FaultStatus::Installed {
            eprintln!("  {:?}: {}: {}", fault.status, fault.name, fault.detail);
        }
        self.processes.recorder.event(&Event::Fault(fault));
    }

    /// Returns a fault that begins now, as installed.
    pub(super) fn fault(&self, planned: &PlannedFault, name: &str, nodes: &[String]) -> Fault {
        let led_epoch = self.processes.leads_now().filter(|(leader, _)| nodes.contains(leader)).map(|(_, epoch)| epoch);
        let from_ns = self.processes.recorder.now_ns();
        Fault { led_epoch, ..Fault::installed(planned.action.kind(), name.to_owned(), nodes.to_vec(), from_ns) }
    }

    /// Returns the node that a target means now. Another running node replaces a node that is down or unknown.
    pub(super) fn target(&self, target: FaultTarget) -> Injection<String> {
        let running = self.processes.running();
        let meant = match target {
            FaultTarget::Leader => self.processes.leader().map(|(name, _)| name),
            FaultTarget::Sender => self.processes.senders().into_iter().next(),
            FaultTarget::Node(number) => self.processes.names().into_iter().cycle().nth(number),
        };
        let found = meant.filter(|name| running.contains(name)).or_else(|| running.first().cloned());
        found.ok_or_else(NotInjected::no_node_runs)
    }

    /// Returns true if all nodes run, the members do not change, and only faults of the relay or a clock are in force.
    pub(super) fn is_quiet(&self) -> bool {
        let all_run = self.processes.names().iter().all(|name| self.processes.state(name) == ProcessState::Runs);
        all_run
            && self.change.is_none()
            && self.active.iter().all(|active| matches!(active.fault.kind, FaultKind::Relay | FaultKind::Clock))
    }

    /// Records nodes that ended by themselves, to start them again later.
    pub(super) fn record_ends(&mut self) -> Result<()> {
        let ended = self.processes.take_ends()?;
        self.restarts.extend(ended.into_iter().map(|end| (Instant::now() + RESTART_AFTER, end.node)));
        Ok(())
    }

    /// Records nodes that ended by themselves, and starts nodes again that have been down for [`RESTART_AFTER`].
    pub fn restart_ended(&mut self) -> Result<()> {
        self.record_ends()?;
        let due = self.restarts.extract_if(.., |(at, _)| *at <= Instant::now()).collect::<Vec<_>>();
        for (_, name) in due {
            if !self.is_held_down(&name) {
                self.processes.start(&name)?;
            }
        }
        Ok(())
    }

    /// Returns true if a fault holds the node down: it is started when the fault is over.
    pub(super) fn is_held_down(&self, name: &str) -> bool {
        self.active.iter().any(|active| active.repair.starts(name))
    }
}

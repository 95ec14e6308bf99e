//! Starts processes with crash points, and causes the events that lead to points which emails alone do not reach.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reveille_check::events::{Event, Fault, FaultKind};

use super::traffic::Traffic;
use crate::run::faults::{Nemesis, status_of};
use crate::run::processes::{EndedProcess, ProcessState};

/// Number of log entries between two snapshots. Few, so that a node that was down for a short time needs a snapshot.
pub const SNAPSHOT_EVERY: u64 = 100;
/// Number of entries after which a node cannot catch up without a snapshot.
const FAR: u64 = 2 * SNAPSHOT_EVERY + 20;
const POLL_EVERY: Duration = Duration::from_millis(50);
const STOPS_WITHIN: Duration = Duration::from_secs(8);
/// One process in this number of processes has no crash point, so that emails are sent.
const WITHOUT_POINT_ONE_IN: u32 = 6;
const WITHOUT_POINT_FOR: Duration = Duration::from_secs(5);
/// Maximum time for which a node is down that is to need a snapshot.
const FAR_AT_MOST: Duration = Duration::from_secs(25);
const DOWN_MS: [u64; 6] = [100, 100, 200, 300, 600, 1_200];
/// Intervals of leadership transfers, and of isolations of the leader.
const TRANSFER_EVERY: Duration = Duration::from_secs(6);
const ISOLATE_EVERY: Duration = Duration::from_secs(5);
/// Time for which a leader is isolated, far less than a lease. Afterwards the other nodes elect a leader within
/// [`ELECTION`].
const ISOLATED_FOR: Duration = Duration::from_millis(800);
const ELECTION: Duration = Duration::from_secs(2);
const REPORT_EVERY: Duration = Duration::from_secs(15);

/// How a crash point is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// Emails that this node sends. A node that crashed three times with claims gets no claims for a while (P12), so
    /// this may take long.
    Sending,
    /// A start of this node after the other nodes have dropped the entries that it lacks.
    OwnSnapshot,
    /// A start of another node after the rest have dropped the entries that it lacks.
    OthersSnapshot,
    /// A start of this node after it led alone, with entries that the other nodes do not have.
    Truncation,
    /// Another leader.
    LeaderChange,
    /// An imported audience.
    Import,
    /// Any activity.
    Any,
}

/// Routes by the beginning of a point's name. The first match counts.
const ROUTES: [(&str, Route); 14] = [
    ("admin.", Route::Import),
    ("smtp.", Route::Sending),
    ("claim.after", Route::Sending),
    ("journal.", Route::Sending),
    ("settle.", Route::Sending),
    ("snapshot.send-block", Route::OthersSnapshot),
    ("wal.purge", Route::OthersSnapshot),
    ("snapshot.offer", Route::OwnSnapshot),
    ("snapshot.take-block", Route::OwnSnapshot),
    ("snapshot.install", Route::OwnSnapshot),
    ("state-machine.replace", Route::OwnSnapshot),
    ("wal.truncate", Route::Truncation),
    ("lifecycle.leadership-lost", Route::LeaderChange),
    ("wal.vote", Route::LeaderChange),
];

fn route(point: &str) -> Route {
    ROUTES.iter().find(|(beginning, _)| point.starts_with(beginning)).map_or(Route::Any, |(_, route)| *route)
}

/// Returns the time for which a process runs that does not reach its point.
fn runs_for(point: Option<&str>) -> Duration {
    match point.map(route) {
        None => WITHOUT_POINT_FOR,
        Some(Route::Sending) => Duration::from_secs(24),
        Some(_) => Duration::from_secs(9),
    }
}

/// The state of a node, and the time at which it ends.
#[derive(Clone, Debug)]
enum PointState {
    /// The node runs, and is stopped at `until`.
    Runs { until: Instant, point: Option<String> },
    /// The node was asked to stop, and is killed at `until`.
    Stopping { until: Instant },
    /// The node is down. It starts at `until` with this point, but not before the log has this index.
    Down { until: Instant, index: Option<u64>, point: Option<String> },
}

/// Starts and ends the processes.
pub struct Driver<'a> {
    nemesis: &'a mut Nemesis,
    traffic: &'a Traffic,
    /// Number of crashes at each point.
    hits: BTreeMap<String, u32>,
    wanted: u32,
    random: StdRng,
    states: BTreeMap<String, PointState>,
    transferred: Instant,
    isolated: Instant,
    reported: Instant,
}

impl<'a> Driver<'a> {
    /// Starts with nodes that run without crash points. They are stopped soon, one after the other.
    pub fn new(nemesis: &'a mut Nemesis, points: Vec<String>, wanted: u32, traffic: &'a Traffic, seed: u64) -> Self {
        let now = Instant::now();
        let names = nemesis.processes.names().into_iter().zip(0..);
        let state = |seconds| PointState::Runs { until: now + Duration::from_secs(seconds), point: None };
        let states = names.map(|(name, seconds)| (name, state(seconds))).collect();
        let hits = points.into_iter().map(|point| (point, 0)).collect();
        let random = StdRng::seed_from_u64(seed);
        Driver { nemesis, traffic, hits, wanted, random, states, transferred: now, isolated: now, reported: now }
    }

    /// Returns the number of crashes at each point.
    pub fn into_hits(self) -> BTreeMap<String, u32> {
        self.hits
    }

    /// Runs until every point was reached often enough, or until this instant. Then all nodes run without points.
    pub async fn drive(&mut self, until: Instant) -> Result<()> {
        while Instant::now() < until && self.left().next().is_some() {
            self.record_ends()?;
            self.advance()?;
            self.transfer_leadership()?;
            self.isolate_leader().await?;
            if !self.wants(Route::Import) {
                self.traffic.stop_importing();
            }
            if !self.wants(Route::OwnSnapshot) && !self.wants(Route::OthersSnapshot) {
                self.traffic.stop_filling();
            }
            self.report();
            tokio::time::sleep(POLL_EVERY).await;
        }
        self.restart_all().await
    }

    /// Returns the points that still need crashes.
    fn left(&self) -> impl Iterator<Item = &String> {
        self.hits.iter().filter(|(_, hits)| **hits < self.wanted).map(|(point, _)| point)
    }

    fn wants(&self, of: Route) -> bool {
        self.left().any(|point| route(point) == of)
    }

    /// Records processes that ended, and plans their next start.
    fn record_ends(&mut self) -> Result<()> {
        for EndedProcess { node, crash_point, led_epoch } in self.nemesis.processes.take_ends()? {
            // An end without a point was requested, or is unexpected.
            if let Some(point) = crash_point {
                *self.hits.entry(point.clone()).or_default() += 1;
                let mut fault = self.fault(FaultKind::CrashPoint, &point);
                (fault.nodes, fault.led_epoch) = (vec![node.clone()], led_epoch);
                self.nemesis.processes.recorder.event(&Event::Fault(fault));
            }
            self.plan_start(node, Duration::ZERO);
        }
        Ok(())
    }

    /// Chooses the next point of a node: a point with the fewest crashes that no other node has. Only
    /// [`Driver::isolate_leader`] chooses a point of a truncation.
    fn plan_start(&mut self, node: String, longer: Duration) {
        let used = |point: &String| {
            self.states.iter().any(|(other, state)| {
                let (PointState::Runs { point: of, .. } | PointState::Down { point: of, .. }) = state else {
                    return false;
                };
                *other != node && of.as_ref() == Some(point)
            })
        };
        let free: Vec<&String> =
            self.left().filter(|point| route(point) != Route::Truncation && !used(point)).collect();
        let fewest = free.iter().map(|point| self.hits[*point]).min();
        let chosen: Vec<String> = free.into_iter().filter(|point| Some(self.hits[*point]) == fewest).cloned().collect();
        let point = match self.random.random_ratio(1, WITHOUT_POINT_ONE_IN) {
            true => None,
            false => chosen.choose(&mut self.random).cloned(),
        };
        // Only a minority of the nodes may be down for long, so that a majority remains.
        let far = self.states.values().filter(|state| matches!(state, PointState::Down { index: Some(_), .. })).count();
        let may_be_far = far < (self.states.len() - 1) / 2;
        let must_fall_behind = match point.as_deref().map(route) {
            Some(Route::OwnSnapshot) => may_be_far,
            _ => may_be_far && self.wants(Route::OthersSnapshot) && self.random.random_bool(0.5),
        };
        let index = must_fall_behind.then(|| self.traffic.applied() + FAR);
        let down = Duration::from_millis(DOWN_MS.choose(&mut self.random).copied().unwrap_or(100)) + longer;
        self.states.insert(node, PointState::Down { until: Instant::now() + down, index, point });
    }

    /// Starts nodes that are due, and stops nodes that do not reach their points.
    fn advance(&mut self) -> Result<()> {
        let now = Instant::now();
        for (node, state) in self.states.clone() {
            match state {
                PointState::Down { until, index, point } if now >= until => {
                    let log_is_ahead = index.is_none_or(|index| self.traffic.applied() >= index);
                    if log_is_ahead || now > until + FAR_AT_MOST {
                        let failpoint = point.as_ref().map(|point| format!("{point}=return"));
                        self.nemesis.processes.start_with_crash_points(&node, failpoint.as_deref())?;
                        self.states.insert(node, PointState::Runs { until: now + runs_for(point.as_deref()), point });
                    }
                }
                // Without a leader a process may not be ready yet. Nodes are stopped one at a time.
                PointState::Runs { until, .. } if now > until && self.nemesis.processes.leads_now().is_some() => {
                    self.nemesis.processes.ask_to_stop(&node)?;
                    self.states.insert(node, PointState::Stopping { until: now + STOPS_WITHIN });
                    return Ok(());
                }
                PointState::Stopping { until } if now > until => self.kill(&node, "it did not stop", None)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn transfer_leadership(&mut self) -> Result<()> {
        if self.wants(Route::LeaderChange) && self.transferred.elapsed() > TRANSFER_EVERY {
            self.transferred = Instant::now();
            let admin = self.nemesis.operator.admin.clone();
            let mut fault = self.fault(FaultKind::Transfer, "leadership transferred");
            self.nemesis.operations.spawn(async move {
                let result = admin.transfer_leader("").await;
                (fault.status, fault.observed, fault.detail) = (status_of(&result), None, format!("{result:?}"));
                fault
            });
        }
        while let Some(ended) = self.nemesis.operations.try_join_next() {
            self.nemesis.processes.recorder.event(&Event::Fault(ended?));
        }
        Ok(())
    }

    /// Lets the leader append entries that no other node gets, and kills it. When it returns, another node has led, and
    /// its log must be truncated.
    async fn isolate_leader(&mut self) -> Result<()> {
        let Some(point) = self.left().find(|point| route(point) == Route::Truncation).cloned() else { return Ok(()) };
        let Some((leader, led_epoch)) = self.nemesis.processes.leader() else { return Ok(()) };
        let all_run = self.states.values().all(|state| matches!(state, PointState::Runs { .. }))
            && self.nemesis.processes.running().len() == self.states.len();
        if self.isolated.elapsed() < ISOLATE_EVERY || !all_run {
            return Ok(());
        }
        self.isolated = Instant::now();
        let mut pauses = Vec::new();
        for name in self.nemesis.processes.names().into_iter().filter(|name| *name != leader) {
            let mut fault = self.fault(FaultKind::Pause, "SIGSTOP of a follower");
            fault.past_gate = [(name.clone(), self.nemesis.processes.past_gate(&name))].into();
            if self.nemesis.processes.pause(&name).is_ok() {
                fault.nodes = vec![name];
                pauses.push(fault);
            }
        }
        tokio::time::sleep(ISOLATED_FOR).await;
        let killed = self.kill(&leader, "a leader that was cut off", Some(led_epoch));
        if let Some(PointState::Down { index, point: next, .. }) = self.states.get_mut(&leader) {
            (*index, *next) = (None, Some(point));
        }
        let processes = &mut self.nemesis.processes;
        for mut fault in pauses {
            for name in &fault.nodes {
                processes.resume(name)?;
            }
            fault.until_ns = Some(processes.recorder.now_ns());
            processes.recorder.event(&Event::Fault(fault));
        }
        killed
    }

    fn kill(&mut self, node: &str, why: &str, led_epoch: Option<u64>) -> Result<()> {
        // The node may have reached its point meanwhile.
        self.record_ends()?;
        let processes = &self.nemesis.processes;
        let past_gate = processes.past_gate(node);
        if processes.state(node) == ProcessState::Runs {
            let mut fault = self.fault(FaultKind::Kill, &format!("kill -9: {why}"));
            (fault.nodes, fault.led_epoch) = (vec![node.to_owned()], led_epoch);
            fault.past_gate = [(node.to_owned(), past_gate)].into();
            self.nemesis.processes.kill(node)?;
            self.nemesis.processes.recorder.event(&Event::Fault(fault));
        }
        self.plan_start(node.to_owned(), if led_epoch.is_some() { ELECTION } else { Duration::ZERO });
        Ok(())
    }

    fn report(&mut self) {
        if self.reported.elapsed() > REPORT_EVERY {
            self.reported = Instant::now();
            let left: Vec<&str> = self.left().map(String::as_str).collect();
            let crashes: u32 = self.hits.values().sum();
            eprintln!("  {crashes} crashes; {} points left: {}", left.len(), left.join(" "));
        }
    }

    /// Stops all nodes, and starts them without crash points.
    async fn restart_all(&mut self) -> Result<()> {
        for name in self.nemesis.processes.names() {
            self.record_ends()?;
            if self.nemesis.processes.state(&name) != ProcessState::Down {
                self.nemesis.processes.resume(&name)?;
                self.nemesis.processes.ask_to_stop(&name)?;
            }
            let asked = Instant::now();
            while self.nemesis.processes.state(&name) != ProcessState::Down {
                if asked.elapsed() > STOPS_WITHIN {
                    self.kill(&name, "it did not stop", None)?;
                }
                self.record_ends()?;
                tokio::time::sleep(POLL_EVERY).await;
            }
            self.nemesis.processes.start(&name)?;
        }
        Ok(())
    }

    /// Returns a fault that begins now, with an effect.
    fn fault(&self, kind: FaultKind, name: &str) -> Fault {
        let from_ns = self.nemesis.processes.recorder.now_ns();
        Fault { observed: Some(true), ..Fault::installed(kind, name.to_owned(), Vec::new(), from_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_is_decided_by_name() {
        for (point, of) in [
            ("smtp.before-dot", Route::Sending),
            ("claim.before-propose", Route::Any),
            ("claim.after-commit-before-send", Route::Sending),
            ("snapshot.install-after-rename", Route::OwnSnapshot),
            ("snapshot.send-block", Route::OthersSnapshot),
            ("wal.truncate", Route::Truncation),
            ("wal.before-append", Route::Any),
            ("admin.seal", Route::Import),
        ] {
            assert_eq!(route(point), of, "{point}");
        }
    }
}

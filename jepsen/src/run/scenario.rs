//! A fault run from its first observer to its judgement. Every command that breaks a cluster does its work between
//! [`Scenario::open`] and [`Scenario::close`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::Judgement;
use reveille_check::events::{Event, Header, Phase, PhaseName};
use reveille_harness::Cluster;
use reveille_harness::leader_watch::LeaderWatch;
use reveille_sink::{Sink, SinkOptions};
use tokio::task::JoinSet;

use super::clients::{Coordination, Operator};
use super::faults::Nemesis;
use super::observe::{GateReader, LedgerTimeline, Recorder, drain, final_state, handoffs, outages};
use super::processes::Processes;
use super::workload::{Workload, WorkloadLimits};
use super::{PACE, SESSIONS};
use crate::check;

/// Maximum number of accepts in memory.
const EMAILS: usize = 2_000_000;
/// Number of first bytes of a body that contain its compared lines.
const CONTENT_BYTES: usize = 512;
/// Time for judging after the final state was read.
const TO_JUDGE: Duration = Duration::from_secs(8);

/// The observers of a run.
pub struct Scenario {
    /// Writes the history.
    pub recorder: Recorder,
    /// Records the leaders.
    pub watch: Arc<LeaderWatch>,
    /// Clients that read through the admin API, until the backlog has drained.
    pub readers: JoinSet<()>,
    /// The limits of the workload.
    pub limits: WorkloadLimits,
    history: PathBuf,
    gates: GateReader,
    /// Civil time at the beginning. `None`: the nodes' clocks are set wrong.
    ledger_time: Option<i64>,
}

/// The end of a run.
pub struct ScenarioResult {
    /// Judgement by the history.
    pub judgement: Judgement,
    /// True if nothing was left to send.
    pub drained: bool,
    /// Nodes that ended unexpectedly.
    pub unexpected_ends: Vec<String>,
    /// Errors of the harness.
    pub errors: HarnessErrors,
}

impl ScenarioResult {
    /// Returns true if the history is valid, nothing was left to send, no node ended unexpectedly, and the harness had
    /// no error.
    pub fn is_valid(&self) -> bool {
        self.judgement.valid && self.drained && self.unexpected_ends.is_empty() && self.errors.0.is_empty()
    }
}

/// Errors of the harness itself. They are reported, and the run is judged anyway.
#[derive(Default)]
pub struct HarnessErrors(pub Vec<String>);

impl HarnessErrors {
    /// Keeps an error.
    pub fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        let report = |error: &anyhow::Error| {
            eprintln!("error: {error:#}");
            self.0.push(format!("{error:#}"));
        };
        result.inspect_err(report).ok()
    }
}

impl Scenario {
    /// Begins a history with a header that was just made, and starts a sink as the cluster's relay.
    pub async fn open(
        cluster: &Cluster,
        header: &Header,
        history: Option<&Path>,
        clocks_are_right: bool,
    ) -> Result<(Scenario, Sink)> {
        let history = history.map_or_else(|| cluster.folder().join("history.jsonl"), Path::to_owned);
        let recorder = Recorder::begin(&history, header)?;
        let sink = Sink::start(SinkOptions {
            listen: SocketAddr::from((cluster.environment.harness_address(), 0)),
            faults: PACE.parse().context("the pace of the sink")?,
            dots: Some(handoffs::watcher(recorder.clone())),
            keep_records: EMAILS,
            keep_bodies: 0,
            excerpt_bytes: CONTENT_BYTES,
            ..SinkOptions::default()
        })?;
        cluster.admin().add_relay(cluster.environment.relay_address(sink.address())?, SESSIONS).await?;
        let watch = Arc::new(LeaderWatch::start(cluster));
        let mut readers = JoinSet::new();
        readers.spawn(final_state::sample_hashes(cluster.admin().clone(), recorder.clone()));
        let scenario = Scenario {
            gates: GateReader::start(cluster, &recorder),
            recorder,
            watch,
            readers,
            limits: WorkloadLimits::default(),
            history,
            ledger_time: clocks_are_right.then_some(header.began_unix_ms),
        };
        Ok((scenario, sink))
    }

    /// Returns the nemesis of this cluster, with the operators that act meanwhile.
    pub fn nemesis(&self, cluster: Cluster, sink: Sink, workload: Workload, seed: u64) -> Nemesis {
        let (admin, recorder) = (cluster.admin().clone(), self.recorder.clone());
        let coordination = Coordination::default();
        let operator = Operator { admin, recorder: recorder.clone(), workload, coordination, number: 0 };
        let processes = Processes::new(cluster, sink, recorder, Arc::clone(&self.watch));
        Nemesis::new(processes, operator, seed)
    }

    /// Begins a phase.
    pub fn phase(&self, phase: PhaseName) {
        self.recorder.event(&Event::Phase(Phase { at_ns: self.recorder.now_ns(), phase }));
    }

    /// Repairs everything, waits until nothing is left to send, reads the final state of every recipient, and judges.
    /// It ends at `ends`. The last part, `to_read`, is for reading and judging.
    pub async fn close(
        mut self,
        nemesis: &mut Nemesis,
        mut errors: HarnessErrors,
        ends: Instant,
        to_read: Duration,
    ) -> Result<ScenarioResult> {
        errors.note(nemesis.heal().await);
        let (mut operator, recorder) = (nemesis.operator.clone(), self.recorder.clone());
        errors.note(self.limits.lift(&operator.admin, &recorder).await);
        operator.release_all(ends - to_read).await;
        operator.workload.settle(&operator.admin, &recorder).await;
        self.phase(PhaseName::Healed);
        let drained = drain::drain(&mut operator, ends - to_read, || nemesis.restart_ended()).await;
        let drained = errors.note(drained).unwrap_or(false);
        let (admin, workload) = (&operator.admin, &operator.workload);
        // The final reads come after all reads of the readers.
        self.readers.shutdown().await;
        eprintln!("reading the final state of {} recipients", workload.recipients());
        let processes = &nemesis.processes;
        let lifetimes = processes.lifetimes();
        let clock = LedgerTimeline::new(self.ledger_time);
        let read = final_state::read(admin, workload, &recorder, &clock, ends - TO_JUDGE).await;
        let mut missing = errors.note(read).unwrap_or_else(|| vec!["the final state".to_owned()]);
        // Accepts are recorded before gate readings, because an email passes its gate before it is accepted.
        processes.sink.stop().await;
        if !self.gates.record(&processes.cluster, &processes.names(), &recorder, &lifetimes).await {
            missing.push("the gate counter of a running process".to_owned());
        }
        outages::record(&self.watch, &recorder);
        workload.record(&recorder);
        workload.record_overload(&recorder, &processes.sink);
        processes.record_alive();
        if !workload.is_known() {
            missing.push("what was due".to_owned());
        }
        if !nemesis.has_ended() {
            missing.push("the end of faults and calls".to_owned());
        }
        recorder.end(missing)?;
        let unexpected_ends = std::mem::take(&mut nemesis.processes.unexpected_ends);
        Ok(ScenarioResult { judgement: check::judge(&self.history)?, drained, unexpected_ends, errors })
    }
}

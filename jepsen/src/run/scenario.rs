//! A fault run from its first observer to its judgement. Faults act between [`Scenario::open`] and
//! [`Scenario::close`].

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::Judgement;
use reveille_check::events::{Event, Header, Phase, PhaseName};
use reveille_harness::leader_watch::LeaderWatch;
use reveille_harness::{Cluster, Report};
use reveille_sink::{Sink, SinkOptions};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::clients::{Coordination, Operator};
use super::faults::Nemesis;
use super::observe::{
    EventFollower, GateReader, LedgerRecorder, Recorder, dot_watcher, drain, files, final_state, record_leaders,
};
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
    /// Follows the events, which must tell the final states.
    events: EventFollower,
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
    /// What came of the cluster that was restored afterwards, with the field `valid`. `None`: none was.
    pub restored: Option<Value>,
}

impl ScenarioResult {
    /// Returns true if the history is valid, nothing was left to send, no node ended unexpectedly, the harness had no
    /// error, and a restored cluster is valid.
    pub fn is_valid(&self) -> bool {
        let restored = self.restored.as_ref().is_none_or(|restored| restored["valid"] == true);
        self.judgement.valid && self.drained && self.unexpected_ends.is_empty() && self.errors.0.is_empty() && restored
    }

    /// Returns a report with the judgement, the figures of all runs, the particulars of this run, and those of what
    /// acted alone. Also appends it to a file if one is given.
    pub fn report(&self, particulars: Value, of_alone: Value, append_to: Option<&Path>) -> Result<Report> {
        let common = json!({
            "drained": self.drained,
            // Nodes that ended unexpectedly, with the end of their logs.
            "ended_by_themselves": self.unexpected_ends,
            "errors": self.errors.0,
            "valid": self.is_valid(),
        });
        let mut line = serde_json::to_value(&self.judgement)?;
        for part in [particulars, of_alone, common] {
            if let (Value::Object(line), Value::Object(part)) = (&mut line, part) {
                line.extend(part);
            }
        }
        report(&line, self.is_valid(), append_to)
    }
}

/// Returns a report of this line. If `append_to` is given, the line is also appended to that file.
pub fn report(line: &Value, valid: bool, append_to: Option<&Path>) -> Result<Report> {
    let report = Report::new(line, valid)?;
    if let Some(file) = append_to {
        let open = OpenOptions::new().create(true).append(true).open(file);
        let written = open.and_then(|mut open| writeln!(open, "{}", report.line));
        written.with_context(|| format!("appending to {}", file.display()))?;
    }
    Ok(report)
}

/// Errors of the harness itself. They are reported, and the run is judged anyway.
#[derive(Default)]
pub struct HarnessErrors(pub Vec<String>);

impl HarnessErrors {
    /// Keeps an error.
    pub fn record<T>(&mut self, result: Result<T>) -> Option<T> {
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
        let dots = Some(dot_watcher(recorder.clone()));
        let sink = Sink::start(SinkOptions {
            listen: SocketAddr::from((cluster.environment.harness_address(), 0)),
            faults: PACE.parse().context("the pace of the sink")?,
            keep_records: EMAILS,
            keep_bodies: 0,
            dots,
            excerpt_bytes: CONTENT_BYTES,
            ..SinkOptions::default()
        })?;
        cluster.admin().add_relay(cluster.environment.relay_address(sink.address())?, SESSIONS).await?;
        let watch = Arc::new(LeaderWatch::start(cluster));
        let mut readers = JoinSet::new();
        readers.spawn(final_state::sample_hashes(cluster.admin().clone(), recorder.clone()));
        let scenario = Scenario {
            gates: GateReader::start(cluster, &recorder),
            events: EventFollower::start(cluster.admin()),
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
        errors.record(nemesis.heal().await);
        let (mut operator, recorder) = (nemesis.operator.clone(), self.recorder.clone());
        errors.record(self.limits.lift(&operator.admin, &recorder).await);
        operator.release_all(ends - to_read).await;
        operator.workload.settle(&operator.admin).await;
        self.phase(PhaseName::Healed);
        let drained = drain::drain(&mut operator, ends - to_read, || nemesis.restart_ended()).await;
        let drained = errors.record(drained).unwrap_or(false);
        errors.record(self.events.compare().await);
        errors.record(files::on_majority(&nemesis.processes.cluster, &nemesis.processes.names()).await);
        operator.coordination.take_unexpected().into_iter().for_each(|answer| errors.0.push(answer));
        let (admin, workload) = (&operator.admin, &operator.workload);
        // The final reads come after all reads of the readers.
        self.readers.shutdown().await;
        eprintln!("reading the final state of {} recipients", workload.recipients());
        let processes = &nemesis.processes;
        let lifetimes = processes.lifetimes();
        let ledger = LedgerRecorder::new(recorder.clone(), self.ledger_time);
        let read = final_state::read(admin, workload, &ledger, ends - TO_JUDGE).await;
        let mut missing = errors.record(read).unwrap_or_else(|| vec!["the final state".to_owned()]);
        // Accepts are recorded before gate readings, because an email passes its gate before it is accepted.
        processes.sink.stop().await;
        if !self.gates.record(&processes.cluster, &processes.names(), &recorder, &lifetimes).await {
            missing.push("the gate counter of a running process".to_owned());
        }
        record_leaders(&self.watch, &recorder);
        workload.record();
        workload.record_overload(&processes.sink);
        processes.record_alive();
        if !workload.is_known() {
            missing.push("what was due".to_owned());
        }
        if !nemesis.has_ended() {
            missing.push("the end of faults and calls".to_owned());
        }
        recorder.end(missing)?;
        let unexpected_ends = std::mem::take(&mut nemesis.processes.unexpected_ends);
        Ok(ScenarioResult { judgement: check::judge(&self.history)?, drained, unexpected_ends, errors, restored: None })
    }
}

/// Returns the commit of the working tree, marked if it has changes, and `unknown` outside of a working tree.
pub fn commit() -> String {
    let arguments = ["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=-changed"];
    match Command::new("git").args(arguments).output() {
        Ok(answer) if answer.status.success() => String::from_utf8_lossy(&answer.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Returns the current instant, for a last line.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

//! A run from its first observer to its verdict: what all commands that break a cluster have in common. What is broken,
//! and what the cluster is given to do, lies between [`Scene::open`] and [`Scene::close`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::Judgement;
use reveille_check::history::{Event, Header, Part, Phase, PhaseName};
use reveille_sink::{Sink, SinkOptions};
use tokio::task::JoinSet;

use super::accepts;
use super::aftermath;
use super::dots::Dots;
use super::gates::Gates;
use super::limits::Limits;
use super::nemesis::Nemesis;
use super::outages;
use super::recorder::Recorder;
use super::stories::Clocks;
use crate::check;
use crate::cluster::Cluster;
use crate::watch::Watch;

/// Accepts that are kept in memory.
const MAILS: usize = 2_000_000;
/// The lines of a body that are compared stand within so many bytes.
const CONTENT_BYTES: usize = 512;
/// The sink's own record, in the folder of the cluster.
const ACCEPTS: &str = "accepts.jsonl";
/// Of the time that is left, so much is for judging when the reading has to be over.
const TO_JUDGE: Duration = Duration::from_secs(8);

/// Everybody who watches.
pub struct Scene {
    /// Where it is written down.
    pub recorder: Recorder,
    /// Who leads.
    pub watch: Arc<Watch>,
    history: PathBuf,
    dots: Dots,
    gates: Gates,
    over: Arc<AtomicBool>,
    observers: JoinSet<()>,
    /// Reads the state hashes, until all is drained.
    samples: JoinSet<()>,
    /// Users who read through the admin API, until all is drained.
    pub readers: JoinSet<()>,
    /// What the workload may not exceed.
    pub limits: Limits,
    /// Civil time at the beginning; none where the nodes' clocks are set wrong.
    ledger_time: Option<i64>,
}

/// How a run ended.
pub struct Closed {
    /// By its history.
    pub judgement: Judgement,
    /// Was nothing left to send?
    pub drained: bool,
    /// Ends of nodes that nothing asked for.
    pub surprises: Vec<String>,
}

/// What kept the run itself from going on.
#[derive(Default)]
pub struct Trouble(pub Vec<String>);

impl Trouble {
    /// Whatever goes wrong is told, and what was seen is judged all the same.
    pub fn note<T>(&mut self, came: Result<T>) -> Option<T> {
        came.inspect_err(|error| {
            eprintln!("trouble: {error:#}");
            self.0.push(format!("{error:#}"));
        })
        .ok()
    }
}

impl Scene {
    /// Begins a history at this instant of CLOCK_BOOTTIME (microseconds), and a sink that the cluster mails to.
    pub async fn open(
        cluster: &Cluster,
        header: &Header,
        began_us: i64,
        history: Option<&Path>,
        (pace, sessions): (&str, u32),
        clocks_are_right: bool,
    ) -> Result<(Scene, Sink)> {
        let history = history.map_or_else(|| cluster.folder().join("history.jsonl"), Path::to_owned);
        let recorder = Recorder::begin(&history, header, began_us)?;
        let dots = Dots::default();
        let sink = Sink::start(SinkOptions {
            listen: SocketAddr::from((cluster.footing().ours(), 0)),
            record: Some(cluster.folder().join(ACCEPTS)),
            faults: pace.parse().context("the pace of the sink")?,
            dots: Some(dots.watcher(&recorder)),
            keep_records: MAILS,
            keep_bodies: 0,
            excerpt_bytes: CONTENT_BYTES,
            ..SinkOptions::default()
        })?;
        cluster.admin().add_relay(cluster.footing().reach(sink.address())?, sessions).await?;
        let watch = Arc::new(Watch::start(cluster));
        let over = Arc::new(AtomicBool::new(false));
        let gates = Gates::start(cluster, &recorder);
        let mut observers = JoinSet::new();
        observers.spawn(outages::observe(Arc::clone(&watch), recorder.clone(), Arc::clone(&over)));
        let mut samples = JoinSet::new();
        samples.spawn(aftermath::sample_hashes(cluster.admin().clone(), recorder.clone()));
        let ledger_time = clocks_are_right.then_some(header.began_unix_ms);
        let (readers, limits) = (JoinSet::new(), Limits::default());
        let scene =
            Scene { recorder, watch, history, dots, gates, over, observers, samples, readers, limits, ledger_time };
        Ok((scene, sink))
    }

    /// Another phase begins.
    pub fn phase(&self, phase: PhaseName) {
        self.recorder.event(&Event::Phase(Phase { at_ns: self.recorder.now_ns(), phase }));
    }

    /// Mends everything, waits until nothing is left to send, reads what became of everybody, and judges. It is over at
    /// `ends`; of that `to_read` is for reading and judging.
    pub async fn close(
        mut self,
        nemesis: &mut Nemesis,
        trouble: &mut Trouble,
        ends: Instant,
        to_read: Duration,
    ) -> Result<Closed> {
        trouble.note(nemesis.heal().await);
        let (mut operator, recorder) = (nemesis.operator.clone(), self.recorder.clone());
        trouble.note(self.limits.lift(&operator.admin, &recorder).await);
        operator.let_all_go(ends - to_read).await;
        operator.workload.settle(&operator.admin, &recorder).await;
        self.phase(PhaseName::Healed);
        let drained = aftermath::drain(&mut operator, ends - to_read, || nemesis.look()).await;
        let drained = trouble.note(drained).unwrap_or(false);
        let (admin, workload) = (&operator.admin, &operator.workload);
        // What is read at the end comes after all that they have seen.
        self.readers.shutdown().await;
        self.samples.shutdown().await;
        eprintln!("reading what became of {} recipients", workload.recipients());
        let lives = nemesis.stage.lives();
        let clocks = Clocks::new(lives.clone(), self.ledger_time, &nemesis.stage.sink, &recorder);
        let read = aftermath::read(admin, workload, &recorder, &clocks, ends - TO_JUDGE).await;
        let mut whole = trouble.note(read).unwrap_or_default();
        let compared = accepts::compare(&nemesis.stage.cluster.folder().join(ACCEPTS), &nemesis.stage.sink).await;
        whole.extend(trouble.note(compared).map(|()| Part::Accepts));
        // Accepts first: a mail on its way passes its gate before.
        if self.dots.record_the_rest(&recorder, &nemesis.stage.sink) {
            whole.extend([Part::Dots, Part::Contents]);
        }
        if self.gates.record(&nemesis.stage.cluster, &recorder, &lives).await {
            whole.push(Part::Gates);
        }
        self.over.store(true, Ordering::Relaxed);
        while self.observers.join_next().await.is_some() {}

        workload.record(&recorder);
        workload.record_overload(&recorder, &nemesis.stage.sink);
        nemesis.stage.record_living();
        // Each process is started, and each end of one seen, in `stage.rs`; nodes were asked who leads until now.
        whole.extend([Part::Lives, Part::Outages]);
        if workload.is_known() {
            whole.push(Part::Due);
        }
        if nemesis.has_told_all() {
            whole.extend([Part::Calls, Part::Faults]);
        }
        recorder.end(whole)?;
        let surprises = std::mem::take(&mut nemesis.stage.surprises);
        Ok(Closed { judgement: check::judge(&self.history)?, drained, surprises })
    }
}

//! Runs one seed from its start to its verdict, on the calling thread.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use reveille_stand_in as stand_in;
use serde::{Deserialize, Serialize};

use crate::options::Options;
use crate::plan::SeedPlan;
use crate::random::{Purpose, RandomStream};
use crate::simulation::Simulation;
use crate::trace::Trace;
use crate::verdict::SimulationResult;

/// The result of a seed. As JSON it is one line.
#[derive(Debug, Serialize, Deserialize)]
pub struct SeedReport {
    /// The seed.
    pub seed: u64,
    /// Hash of the whole trace.
    pub hash: String,
    /// Virtual time of the run.
    pub virtual_seconds: f64,
    /// Processor time of the process. The caller sets it.
    pub cpu_seconds: f64,
    /// Violations of invariants. Empty: all invariants hold.
    pub violations: Vec<String>,
    /// Figures by name.
    pub figures: BTreeMap<String, u64>,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// The last lines of the trace.
    #[serde(skip)]
    pub lines: Vec<String>,
}

/// Runs a seed on this thread. It must be a new thread of a process that has run no other seed, because random numbers
/// that a thread or process draws once, for its first hash map or runtime, belong to the seed.
///
/// All lines of the trace are written to `file`.
pub fn run(options: Options, file: Option<Box<dyn Write + Send>>) -> Result<SeedReport> {
    let seed = options.seed;
    let begins = SeedPlan::draw(&mut RandomStream::of(seed, Purpose::Workload), seed, options.minutes as i64).begins;
    stand_in::begin(RandomStream::of(seed, Purpose::System).next(), Duration::from_millis(begins.0.unsigned_abs()));
    let start = std::time::Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // Virtual time advances while the runtime is idle. The next reading of a clock includes the advance.
        .on_thread_unpark(move || {
            let elapsed = tokio::time::Instant::now().into_std().duration_since(start);
            stand_in::set_elapsed(elapsed);
        })
        .build()
        .context("the runtime")?;
    let (report, flushed) = runtime.block_on(async move {
        let trace = Trace::new(file);
        let mut verdict = Simulation::run(options, trace.clone()).await.unwrap_or_else(|error| {
            let violations = vec![format!("the run did not come to its end: {error:#}")];
            SimulationResult { violations, ..SimulationResult::default() }
        });
        verdict.violations.dedup();
        let named =
            |counts: BTreeMap<&str, u64>| counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let report = SeedReport {
            seed,
            hash: trace.hash(),
            virtual_seconds: trace.elapsed().as_secs_f64(),
            cpu_seconds: 0.0,
            violations: verdict.violations,
            figures: named(verdict.figures),
            faults: named(verdict.faults),
            lines: trace.lines(),
        };
        // Tasks of ended nodes still hold the trace, so it is flushed here and not when it is dropped.
        (report, trace.flush())
    });
    // Tasks of ended nodes are dropped with the runtime.
    runtime.shutdown_background();
    stand_in::end();
    flushed.context("the end of the trace")?;
    Ok(report)
}

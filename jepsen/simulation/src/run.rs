//! A seed from its first instant to its verdict, on the thread that calls.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use reveille_stand_in as stand_in;

use crate::chance::{Chance, Concern};
use crate::options::Options;
use crate::plan::SeedPlan;
use crate::trace::Trace;
use crate::verdict::Verdict;
use crate::world::World;

/// The result of a seed.
#[derive(Debug)]
pub struct SeedReport {
    /// The seed.
    pub seed: u64,
    /// Hash over all that happened.
    pub hash: String,
    /// How much that was.
    pub events: u64,
    /// Virtual time.
    pub passed: Duration,
    /// The judgement. An error: the run could not be brought to its end.
    pub verdict: Result<Verdict>,
    /// The last lines of the trace.
    pub lines: Vec<String>,
}

/// Runs a seed on this thread, which must be a fresh one of a process that has run no other: what a thread or a process
/// draws once, at its first hash map or runtime, is part of the seed.
///
/// `file` gets all lines of the trace.
pub fn run(options: Options, file: Option<Box<dyn Write + Send>>) -> Result<SeedReport> {
    let seed = options.seed;
    let begins = SeedPlan::draw(&mut Chance::of(seed, Concern::Workload), seed, options.minutes as i64).begins;
    stand_in::begin(Chance::of(seed, Concern::System).next(), Duration::from_millis(begins.0.unsigned_abs()));
    let start = std::time::Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // The runtime lets time pass while it has nothing else to do; the next reading of a clock sees it.
        .on_thread_unpark(move || {
            let elapsed = tokio::time::Instant::now().into_std().duration_since(start);
            stand_in::passed(elapsed);
        })
        .build()
        .context("the runtime")?;
    let (report, flushed) = runtime.block_on(async move {
        let trace = Trace::new(file);
        let verdict = World::run(options, trace.clone()).await;
        let (hash, events) = trace.hash();
        let report = SeedReport { seed, hash, events, passed: trace.elapsed(), verdict, lines: trace.lines() };
        // Tasks of dead nodes still hold the trace: its last owner would not flush it.
        (report, trace.flush())
    });
    // Tasks of dead nodes end with the runtime; they are not waited for.
    runtime.shutdown_background();
    stand_in::end();
    flushed.context("the end of the trace")?;
    Ok(report)
}

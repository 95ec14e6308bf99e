//! Waits after all repairs until nothing is left to send.

use std::time::{Duration, Instant};

use anyhow::Result;
use reveille_check::events::Event;
use reveille_proto::admin::v1 as api;

use super::final_state::all_runs;
use crate::run::clients::Operator;

const POLL_EVERY: Duration = Duration::from_millis(300);
/// Time for which the counts must be stable, because a journal may still resolve a doubt.
const STABLE_FOR: Duration = Duration::from_secs(3);

/// Waits until every schedule has its run and no recipient is pending or claimed. Returns true if that happened in
/// time. Paused runs are recorded and resumed. When nothing else is left, paused schedules are released again, because
/// the run before the next instant may have ended only then.
pub async fn drain(operator: &mut Operator, until: Instant, mut restart: impl FnMut() -> Result<()>) -> Result<bool> {
    let (mut before, mut since) = (Vec::new(), Instant::now());
    loop {
        restart()?;
        let runs = all_runs(&operator.admin).await?;
        for run in runs.iter().filter(|run| run.state() == api::RunState::Paused) {
            operator.recorder.event(&Event::Paused { run: run.run.as_str().into() });
            let pause = run.pause.clone().unwrap_or_default();
            eprintln!("  {} is paused ({:?} {}) and is resumed", run.run, pause.cause(), pause.text);
            operator.resume(&run.tenant, &run.run).await;
        }
        let counts: Vec<api::RunCounts> = runs.iter().filter_map(|run| run.counts).collect();
        let left: u32 = counts.iter().map(|counts| counts.pending + counts.claimed).sum();
        let is_asked_for = |run: &&api::Run| matches!(run.cause(), api::RunCause::Trigger | api::RunCause::Message);
        let opened = runs.iter().filter(|run| !is_asked_for(run)).count();
        let due = operator.workload.instants_ms().len();
        if counts != before {
            (before, since) = (counts, Instant::now());
        }
        if opened >= due && left == 0 && since.elapsed() >= STABLE_FOR {
            operator.recorder.event(&Event::Drained { at_ns: operator.recorder.now_ns() });
            return Ok(true);
        }
        if left == 0 && opened < due {
            operator.release_all(until).await;
        }
        if Instant::now() > until {
            eprintln!("not drained: {opened} of {due} runs opened, {left} recipients pending or claimed");
            return Ok(false);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

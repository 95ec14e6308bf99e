//! `failover`: kills the leader repeatedly under a steady stream of emails, and reports the times without a leader and
//! without an email. With `--busy` it then keeps all processors busy, and counts leadership changes that no fault
//! caused.
//!
//! It is a fault run with a fixed plan. The same checker judges the history, and measures the fail-overs.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use reveille_bench::bounds::{self, Bounds};
use reveille_check::events::{Coverage, FaultKind, InDoubt, PhaseName};
use reveille_harness::measure::sleep_until;
use reveille_harness::{Cluster, Needs, Report, StartArgs};
use serde_json::json;

use super::faults::{FaultAction, FaultTarget, PlannedFault};
use super::header::{asks, plain_header};
use super::scenario::{HarnessErrors, Scenario};
use super::workload::{self, Workload};
use super::{LEAD, LEAD_A_SCHEDULE, TO_READ, WHOLE};

/// Time from one kill to the next. The killed node is ready again long before.
const KILL_EVERY: Duration = Duration::from_secs(8);
const DOWN_FOR: Duration = Duration::from_secs(3);
/// Time for which the processors are busy.
const BUSY_FOR: Duration = Duration::from_secs(60);
/// Emails per second.
const RATE: u32 = 10;
/// Milliseconds by which each kill is shifted, so that it hits another phase of heartbeats and lease renewals.
const PHASE_STEP_MS: u64 = 137;
const PHASES_MS: u64 = 1_000;

/// Options of `failover`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Kills of the leader
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub kills: u32,
    /// Afterwards keep all processors busy, and count leadership changes without a cause
    #[arg(long)]
    pub busy: bool,
}

/// Runs the command `failover`.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    ensure!(args.kills > 0 || args.busy, "--kills 0 without --busy leaves nothing to do");
    let killing = KILL_EVERY * args.kills;
    let busy = if args.busy { BUSY_FOR } else { Duration::ZERO };
    let phase = killing + busy;
    let schedules = (phase.as_secs() as u32 * RATE).max(1);
    let cluster = Cluster::start(start, 3, Needs::default()).await?;
    let command = format!("reveille-jepsen failover --kills {}", args.kills);
    let coverage = Coverage {
        mails_per_second: RATE / 2,
        kills_inside_data: 0,
        faults: (args.kills > 0).then_some((FaultKind::Kill, args.kills)).into_iter().collect(),
    };
    let header = reveille_check::events::Header {
        asks: asks(true, false),
        drain_within_ms: (phase + WHOLE).as_millis() as u64,
        coverage,
        ..plain_header(0, command, InDoubt::Hold, &cluster)
    };
    let (scenario, sink) = Scenario::open(&cluster, &header, None, true).await?;
    let first = SystemTime::now() + LEAD + LEAD_A_SCHEDULE * schedules;
    let items = workload::spread(schedules, schedules, first, phase);
    let workload = Workload::new(items, InDoubt::Hold, &scenario.recorder);
    workload.create(cluster.admin()).await?;
    let mut nemesis = scenario.nemesis(cluster, sink, workload, 0);
    sleep_until(first).await;

    scenario.phase(PhaseName::Faults);
    let (began, mut errors) = (Instant::now(), HarnessErrors::default());
    errors.note(nemesis.execute(&plan(args.kills), began, killing).await);
    errors.note(nemesis.heal().await);
    let epochs = || scenario.watch.all().len() as u64;
    let before = epochs();
    let without_cause = if args.busy {
        eprintln!("all processors are kept busy for {} s", busy.as_secs());
        keep_processors_busy(busy).await;
        Some(epochs() - before)
    } else {
        None
    };
    let elections = epochs().saturating_sub(1);
    let ends = Instant::now() + WHOLE;
    let result = scenario.close(&mut nemesis, errors, ends, TO_READ).await?;
    let times = &result.judgement.failovers.email_ms;
    let mut bounds = Bounds::default();
    if args.kills >= bounds::MANY_KILLS {
        bounds.add(bounds::FAILOVER_P50_MS, times.p50);
        bounds.add(bounds::FAILOVER_MAX_MS, times.max);
    }
    let particulars = json!({
        "kills": args.kills,
        // Number of leaderships after the first.
        "elections": elections,
        // Number of leaderships after the last kill; null without `--busy`.
        "elections_without_cause": without_cause,
        "bounds": bounds.figures(),
        "held": bounds.are_held(),
    });
    let report = result.report(particulars, None)?;
    Ok(Report { valid: report.valid && bounds.are_held(), ..report })
}

fn plan(kills: u32) -> Vec<PlannedFault> {
    let kill = |number: u32| PlannedFault {
        at: KILL_EVERY * number + Duration::from_millis(u64::from(number) * PHASE_STEP_MS % PHASES_MS),
        lasts: DOWN_FOR,
        action: FaultAction::Kill { target: FaultTarget::Leader, inside: false },
    };
    (0..kills).map(kill).collect()
}

/// Keeps all processors busy for `length`, with a thread for each processor.
async fn keep_processors_busy(length: Duration) {
    let until = Instant::now() + length;
    for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
        // The thread is not joined, so that it ends with the process after Ctrl-C.
        std::thread::spawn(move || while Instant::now() < until {});
    }
    tokio::time::sleep(length).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_in_order_at_different_phases() {
        let plan = plan(20);
        assert!(plan.is_sorted_by_key(|planned| planned.at) && plan.len() == 20);
        assert!(plan.iter().all(|planned| planned.at < KILL_EVERY * 20));
    }
}

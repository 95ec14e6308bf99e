//! Fault runs: real nodes, real emails, and injected faults.
//!
//! A run has these phases. A cluster is started and gets its workload. Faults begin and end while emails are sent: in
//! each period those of a subset of the chosen families, in the last period those of all families. Everything is
//! repaired. The backlog must drain. The final state of every recipient is read. All observations go into a history,
//! and the run is judged only by its history (`reveille_check`). With the family `restore` the cluster is then lost and
//! restored, and judged by what comes after that (`restore`).
//!
//! Instead of families one of these acts alone: kills of the leader, busy processors, crash points (`crash_points`), or
//! the loss of the cluster while emails flow. The loss is judged by the mailbox, since the history would have two logs.
//!
//! Reading order: `options` and `header` (the request), `workload` (the due emails), `faults`, `clients` (operators and
//! readers), `processes` (the nodes), `observe` (the record), `scenario` (from the first observer to the last line).

mod clients;
mod crash_points;
mod faults;
mod header;
mod observe;
mod options;
mod processes;
mod restore;
mod scenario;
mod version;
mod workload;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use reveille_bench::bounds::{self, Bounds};
use reveille_check::events::PhaseName;
use reveille_harness::measure::sleep_until;
use reveille_harness::{Cluster, Needs, Report, StartArgs};
use serde_json::json;
use tokio::task::JoinSet;

use self::clients::{backfills, edits, messages, readers};
use self::faults::{Family, PlannedFault, kills_per_minute};
pub use self::options::Args;
use self::options::{Alone, Due};
use self::scenario::{HarnessErrors, Scenario, ScenarioResult, now};
pub use self::scenario::{commit, report};
use self::version::Version;
use self::workload::daily::{self, ClockDriver};
use self::workload::{Workload, WorkloadItem, WorkloadLimits};

/// Number of sessions of each node with the sink.
const SESSIONS: u32 = 8;
/// Fault rule by which the sink answers as slowly as a relay on another host, so that kills find handoffs past the
/// gate.
const PACE: &str = "after-commit:stall=40ms@0.7";
/// Time from the first create to the first instant, and the time that each schedule adds.
const LEAD: Duration = Duration::from_secs(4);
const LEAD_A_SCHEDULE: Duration = Duration::from_millis(25);
/// Number of new nodes that may join in a run.
const SPARES: u8 = 4;
/// Number of log entries between two snapshots.
const SNAPSHOT_EVERY: u64 = 150;
/// Seconds from the end of a run to its archiving: the minimum, so that even short fault runs archive.
pub(crate) const ARCHIVE_AFTER: u64 = 10;
/// Time in addition to twice the fault phase within which the whole run ends.
const WHOLE: Duration = Duration::from_secs(300);
/// Time for reading and judging at the end of a run.
const TO_READ: Duration = Duration::from_secs(35);

/// Runs the command `run`. The result is valid if every invariant holds, the backlog drained, and no process ended
/// unexpectedly.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let began = Instant::now();
    let phase = Duration::from_secs(args.seconds);
    let ends = began + 2 * phase + WHOLE;
    let (binary, alone) = (start.binary()?, args.nemesis.alone);
    let version = Version::of(&binary)?;
    let lacks_next_level = version.lacks_next_level();
    let points = match alone {
        Some(Alone::CrashPoints) => crash_points::chosen(version.crash_points, &args.points)?,
        _ => Vec::new(),
    };
    let families = args.families(lacks_next_level)?;
    if let Some(why) = lacks_next_level.filter(|_| args.nemesis.is_all()) {
        eprintln!("upgrades are left out: {why}");
    }
    let plan = plan_of(args, &families);
    let policy = args.policy();
    let (seed, count, seconds) = (args.seed, plan.len(), args.seconds);
    eprintln!("seed {seed}: {count} faults planned for {seconds} s, in doubt: {policy:?}");
    if args.former.is_some() && !families.contains(&Family::Upgrade) {
        anyhow::bail!("--former is for runs with the nemesis `upgrade`: without it all nodes stay at that release");
    }
    let needs = needs(&families, args);
    let start = StartArgs { former: args.former.clone(), ..start.clone() };
    let cluster = Cluster::start(&start, args.nodes, needs).await?;
    report_missing(&cluster, needs);

    let mut limits = WorkloadLimits::draw(seed, args.campaign_size(), args.seconds);
    let header = header::header(args, &families, &plan, &limits, &cluster);
    let clocks_are_right = args.ledger_time_is_ours(&families);
    let history = args.history.as_deref();
    let (mut scenario, sink) = Scenario::open(&cluster, &header, history, clocks_are_right).await?;
    let (admin, recorder) = (cluster.admin().clone(), scenario.recorder.clone());

    let first = SystemTime::now() + LEAD + LEAD_A_SCHEDULE * args.sizes().0;
    limits.set(&admin, &recorder, sink.address()).await?;
    let has_operators = families.contains(&Family::Operator);
    let mut items = items_of(args, first, has_operators)?;
    items.extend(limits.items(first, phase));
    let workload = Workload::new(items, policy, &recorder);
    workload.create(&admin).await?;
    scenario.limits = limits;
    let mut nemesis = scenario.nemesis(cluster, sink, workload.clone(), seed);
    if has_operators {
        backfills::pause_all(&nemesis.operator).await?;
        edits::create_spares(&nemesis.operator).await?;
        messages::put_template(&nemesis.operator).await?;
    }
    let mut clock = JoinSet::new();
    match args.workload {
        Due::Once => sleep_until(first).await,
        Due::Daily => {
            let mut driver =
                ClockDriver::new(admin.clone(), recorder.clone(), header.began_unix_ms, workload.instants_ms());
            driver.begin(LEAD).await?;
            clock.spawn(driver.drive());
        }
    }

    if alone.is_none() {
        readers::start(&nemesis.operator, seed, &mut scenario.readers);
    }
    scenario.phase(PhaseName::Faults);
    eprintln!("{} instants are due from now on; faults begin", workload.instants_ms().len());
    // From here on the run is judged, whatever fails.
    let (mut errors, faults_began) = (HarnessErrors::default(), Instant::now());
    let (mut of_alone, mut is_met) = (json!({}), true);
    match alone {
        Some(Alone::Loss) => {
            drop(scenario);
            return Box::pin(restore::run_alone(nemesis, &plan, (began, faults_began), args, &workload)).await;
        }
        Some(Alone::CrashPoints) => {
            (of_alone, is_met) = crash_points::drive(&mut nemesis, points, args, &binary, &mut errors).await?;
        }
        Some(Alone::Busy) => keep_processors_busy(phase).await,
        Some(Alone::Failover) | None => {
            errors.record(nemesis.execute(&plan, faults_began, phase).await);
        }
    }
    eprintln!("the fault phase is over");
    let (fault_seconds, watch) = (faults_began.elapsed().as_secs(), Arc::clone(&scenario.watch));
    let mut result = scenario.close(&mut nemesis, errors, ends, TO_READ).await?;
    if let Some(ended) = clock.try_join_next() {
        result.errors.record(ended?);
    }
    if families.contains(&Family::Restore) {
        let items = workload.items().clone();
        let restored = Box::pin(restore::lose_and_restore(&mut nemesis, &items, false)).await;
        result.restored = result.errors.record(restored);
    }
    if alone == Some(Alone::Failover) && plan.len() >= bounds::MANY_KILLS {
        let bounds = failover_bounds(&result);
        is_met = bounds.are_held();
        of_alone = json!({"bounds": bounds.figures(), "held": is_met});
    }
    let density = || (kills_per_minute(seed) * 10.0).round() / 10.0;
    let particulars = json!({
        "nemesis": args.nemesis.text,
        "workload": if args.workload == Due::Daily { "daily" } else { "once" },
        "in_doubt_policy": policy,
        "nodes": args.nodes,
        "kills_per_minute": families.contains(&Family::Kill).then(density),
        // Number of leaderships after the first.
        "elections": watch.all().len().saturating_sub(1),
        "restored": result.restored,
        "fault_seconds": fault_seconds,
        "seconds": began.elapsed().as_secs(),
        "at": now(),
    });
    let report = result.report(particulars, of_alone, args.append.as_deref())?;
    // A bound that is broken or a crash point that was reached too seldom does not make the history invalid.
    Ok(Report { valid: report.valid && is_met, ..report })
}

/// Returns the faults of the run in order.
fn plan_of(args: &Args, families: &[Family]) -> Vec<PlannedFault> {
    let phase = Duration::from_secs(args.seconds);
    match args.nemesis.alone {
        Some(Alone::Failover) => faults::kills_of_leader(phase),
        Some(Alone::Loss) => restore::plan(phase),
        _ => faults::draw(args.seed, phase, families),
    }
}

/// Returns the items of the workload without those of its limits. `first`: the beginning of the fault phase.
fn items_of(args: &Args, first: SystemTime, has_operators: bool) -> Result<Vec<WorkloadItem>> {
    let (phase, alone) = (Duration::from_secs(args.seconds), args.nemesis.alone);
    let (schedules, recipients) = args.sizes();
    let mut items = match (args.workload, alone) {
        (Due::Once, Some(Alone::CrashPoints)) => {
            workload::spread(schedules, recipients, first, crash_points::FIRST_FOR)
        }
        (Due::Once, _) => workload::spread(schedules, recipients, first, phase),
        (Due::Daily, _) => daily::schedules(args.seed, phase, recipients, jiff::Timestamp::now())?,
    };
    if alone == Some(Alone::Loss) {
        items.extend(restore::large(first, phase));
    }
    items.extend(workload::campaign(args.campaign_size(), args.seed, first, phase));
    if has_operators {
        items.extend(backfills::items(first, phase));
    }
    Ok(items)
}

/// Compares the times without email at fail-overs with their bounds.
fn failover_bounds(result: &ScenarioResult) -> Bounds {
    let (times, mut bounds) = (&result.judgement.failovers.email_ms, Bounds::default());
    bounds.add(bounds::FAILOVER_P50_MS, times.p50);
    bounds.add(bounds::FAILOVER_MAX_MS, times.max);
    bounds
}

fn needs(families: &[Family], args: &Args) -> Needs {
    let any = |of: &[Family]| families.iter().any(|family| of.contains(family));
    let alone = args.nemesis.alone;
    // What is measured is measured with the defaults.
    let is_measured = matches!(alone, Some(Alone::Failover | Alone::Busy));
    let snapshot_every = if alone == Some(Alone::CrashPoints) { crash_points::SNAPSHOT_EVERY } else { SNAPSHOT_EVERY };
    Needs {
        network: any(&[Family::Partition, Family::Link]),
        volumes: any(&[Family::Disk, Family::Power]),
        clocks: any(&[Family::Clock]),
        snapshot_every: (!is_measured).then_some(snapshot_every),
        archive_after: (!is_measured).then_some(ARCHIVE_AFTER),
        test_clock: args.workload == Due::Daily,
        backups: any(&[Family::Restore]) || alone == Some(Alone::Loss),
        spares: if families.contains(&Family::Membership) { SPARES } else { 0 },
    }
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

fn report_missing(cluster: &Cluster, needs: Needs) {
    let environment = &cluster.environment;
    let parts = [
        (needs.network, "cut and bad links", environment.network.as_ref().err()),
        (needs.volumes, "power cuts and full disks", environment.volumes.as_ref().err()),
        (needs.clocks, "wrong clocks", environment.clocks.as_ref().err()),
    ];
    for (needed, what, why) in parts {
        if let (true, Some(why)) = (needed, why) {
            eprintln!("{what} are skipped: {why}");
        }
    }
}

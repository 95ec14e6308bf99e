//! `crash-points`: lets nodes crash at named points of their code, repeatedly, while emails are sent. The run is judged
//! like any other run.
//!
//! It needs a binary with the feature `crash-points`, which no release has. Each process gets one crash point. It dies
//! there, or is stopped after a while and starts again with another point (`driver.rs`). `traffic.rs` is the workload.
//! At the end all nodes start without crash points, and the backlog drains.

mod driver;
mod traffic;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use reveille_check::events::{Coverage, FaultKind, Header, InDoubt, PhaseName};
use reveille_harness::{Cluster, Needs, Report, StartArgs};
use serde_json::json;

use self::driver::{Driver, SNAPSHOT_EVERY};
use self::traffic::Traffic;
use super::ARCHIVE_AFTER;
use super::LEAD;
use super::header::{asks, plain_header};
use super::options::seed;
use super::scenario::{HarnessErrors, Scenario, now};
use super::version::Version;
use super::workload::{self, Workload};

/// Schedules and recipients that are created before the first crash. They fall due within [`FIRST_FOR`].
const FIRST: (u32, u32) = (60, 240);
const FIRST_FOR: Duration = Duration::from_secs(20);
/// Time for draining, reading and judging, and the part of it for reading and judging.
const TO_CLOSE: Duration = Duration::from_secs(420);
const TO_READ: Duration = Duration::from_secs(240);

/// Options of `crash-points`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only these points [default: all that the binary has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    name: Vec<String>,
    /// How often processes have to crash at each
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    hits: u32,
    /// Seconds after which it gives up; draining and judging come on top
    #[arg(long, default_value_t = 1_800, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// Decides everything random; `random` draws one and prints it
    #[arg(long, default_value = "random", value_parser = seed)]
    seed: u64,
    /// Keep the history in this file [default: it is removed]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Append the last line to this file
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
}

/// Runs the command `crash-points`. The appended line is valid if every invariant holds. The command also fails if a
/// point was reached too seldom.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let began = Instant::now();
    let binary = start.binary()?;
    let points = chosen(points(&binary)?, &args.name)?;
    eprintln!("seed {}: {} points, {} times each", args.seed, points.len(), args.hits);
    let needs = Needs { snapshot_every: Some(SNAPSHOT_EVERY), archive_after: Some(ARCHIVE_AFTER), ..Needs::default() };
    let cluster = Cluster::start(start, 3, needs).await?;
    let (admin, folder) = (cluster.admin().clone(), cluster.folder().to_owned());

    let header = header(args, &cluster);
    let (scenario, sink) = Scenario::open(&cluster, &header, args.history.as_deref(), true).await?;
    let items = workload::spread(FIRST.0, FIRST.1, SystemTime::now() + 2 * LEAD, FIRST_FOR);
    let workload = Workload::new(items, InDoubt::Hold, &scenario.recorder);
    workload.create(&admin).await?;
    let mut nemesis = scenario.nemesis(cluster, sink, workload.clone(), args.seed);
    let traffic = Traffic::start(&admin, &workload, &binary, &folder)?;
    scenario.phase(PhaseName::Faults);
    let (mut errors, faults_began) = (HarnessErrors::default(), Instant::now());
    let mut driver = Driver::new(&mut nemesis, points, args.hits, &traffic, args.seed);
    errors.note(driver.drive(faults_began + Duration::from_secs(args.seconds)).await);
    let hits = driver.into_hits();
    let fault_seconds = faults_began.elapsed().as_secs();
    traffic.stop().await;
    let ends = Instant::now() + TO_CLOSE;
    let result = scenario.close(&mut nemesis, errors, ends, TO_READ).await?;

    let missed = hits.iter().filter(|(_, hits)| **hits < args.hits).map(|(point, _)| point.clone());
    let not_reached: Vec<String> = missed.collect();
    let all_reached = not_reached.is_empty();
    let particulars = json!({
        "nemesis": "crash-points",
        "in_doubt_policy": "hold",
        "fault_seconds": fault_seconds,
        "crashes": hits.values().sum::<u32>(),
        // Number of crashes at each point.
        "points": hits,
        "wanted_hits": args.hits,
        // Points with fewer crashes.
        "not_reached": not_reached,
        "seconds": began.elapsed().as_secs(),
        "at": now(),
    });
    let report = result.report(particulars, args.append.as_deref())?;
    Ok(Report { valid: report.valid && all_reached, ..report })
}

fn header(args: &Args, cluster: &Cluster) -> Header {
    let names = if args.name.is_empty() { String::new() } else { format!(" --name {}", args.name.join(",")) };
    let Args { seed, hits, seconds, .. } = args;
    let command = format!("reveille-jepsen crash-points --seed {seed} --hits {hits} --seconds {seconds}{names}");
    Header {
        // I15 has a bound in seconds, which a build without optimization does not keep.
        asks: asks(false, false),
        drain_within_ms: (TO_CLOSE - TO_READ).as_millis() as u64,
        coverage: Coverage {
            // The points prove that emails are sent, because half of them are on the path of an email.
            mails_per_second: 0,
            kills_inside_data: 0,
            faults: BTreeMap::from([(FaultKind::CrashPoint, 1)]),
        },
        ..plain_header(args.seed, command, InDoubt::Hold, cluster)
    }
}

/// Returns the crash points that this binary has.
fn points(binary: &Path) -> Result<Vec<String>> {
    let version = Version::of(binary)?;
    if version.crash_points.is_empty() {
        bail!(
            "{} has no crash points; build one with `cargo build --workspace --bin reveille --features \
             reveille/crash-points` and name it with --reveille PATH",
            binary.display()
        );
    }
    Ok(version.crash_points)
}

fn chosen(points: Vec<String>, names: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = names.iter().find(|name| !points.contains(name)) {
        bail!("there is no crash point {unknown}; there are {}", points.join(", "));
    }
    Ok(if names.is_empty() { points } else { names.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_chosen_by_name() {
        let points = || ["a.b", "c.d"].map(str::to_owned).to_vec();
        assert_eq!(chosen(points(), &[]).unwrap(), points());
        assert_eq!(chosen(points(), &["c.d".to_owned()]).unwrap(), ["c.d"]);
        assert!(chosen(points(), &["e.f".to_owned()]).unwrap_err().to_string().contains("a.b, c.d"));
    }

    #[test]
    fn binary_without_points_is_refused_with_next_step() {
        // `true` prints nothing, which is no version; `echo` prints its arguments.
        assert!(points(Path::new("/bin/true")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("reveille");
        let write = "printf '#!/bin/sh\\necho {}\\n' > \"$1\" && chmod 700 \"$1\"";
        assert!(std::process::Command::new("sh").args(["-c", write, "sh"]).arg(&script).status().unwrap().success());
        let error = points(&script).unwrap_err().to_string();
        assert!(error.contains("--features reveille/crash-points"), "{error}");
    }
}

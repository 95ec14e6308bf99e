//! `crash-points`: nodes that die by themselves at named places of their code, again and again, while mail flows; judged
//! by what arrived, like any other run.
//!
//! It needs a binary that was built with the feature `crash-points`, which no release is. Each life of each node is armed
//! with a few of the points that are still wanted (`arms.rs`) and is started again soon after it died; one that comes by
//! none of them is asked to stop after a while and armed anew. What mail alone does not lead to is driven (`drive.rs`):
//! a node that was away so long that it needs a snapshot, entries of a leader that nobody else has, imports, leaders that
//! hand over. In the end all are started unarmed and the backlog drains.

mod arms;
mod drive;
mod feed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use reveille_check::history::{Coverage, FaultKind, Header, PhaseName};
use serde::{Deserialize, Serialize};

use self::arms::Arms;
pub use self::arms::died_at;
use self::drive::Drive;
use self::feed::Feed;
use super::desk::Desk;
use super::header::{asks, plain_header};
use super::nemesis::{Ends, Nemesis};
use super::operator::Operator;
use super::options::{Policy, Seed, seed};
use super::scene::{Closed, Scene, Trouble};
use super::stage::Stage;
use super::workload::Workload;
use super::{LEAD, PACE, SESSIONS, verdict};
use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::footing::Wanted;
use crate::measure::monotonic_us;

/// Schedules that are due before the first of those that are created on the way.
const FIRST: (u32, u32) = (60, 240);
const FIRST_FOR: Duration = Duration::from_secs(20);
/// A snapshot after so many entries, and so many kept in the log: a node that was away for a moment needs a snapshot.
const SHORT_LOGS: (u64, u64) = (100, 10);
/// So long for draining, reading and judging after the last death.
const TO_CLOSE: Duration = Duration::from_secs(420);
const TO_READ: Duration = Duration::from_secs(240);

/// Options of `crash-points`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only these points [default: all that the binary has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    name: Vec<String>,
    /// How often lives have to end at each
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    hits: u32,
    /// Nodes in the cluster; more of them die in the same time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    nodes: u8,
    /// It is given up after so long; draining and judging come on top
    #[arg(long, default_value_t = 1_800, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// Decides which life is armed with what; `random` draws one, and tells it
    #[arg(long, default_value = "random", value_parser = seed)]
    seed: Seed,
    /// Keep the history in this file [default: it goes with the run]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Append the last line, with commit and instant, to this file
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
}

/// What the last line says beside the judgement.
#[derive(Serialize)]
struct Particulars {
    nemesis: &'static str,
    in_doubt_policy: &'static str,
    nodes: u8,
    fault_seconds: u64,
    /// Lives that were ended by somebody; the others died at a point.
    ends: Ends,
    /// How often lives ended at each point.
    points: BTreeMap<String, u32>,
    deaths: u32,
    wanted_hits: u32,
    /// Points that lives ended at less often than that.
    not_reached: Vec<String>,
    seconds: u64,
    drained: bool,
    ended_by_themselves: Vec<String>,
    trouble: Vec<String>,
    at: String,
}

/// What `reveille version -o json` says of a binary.
#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    crash_points: Vec<String>,
}

/// Runs it; valid when everything holds. It fails all the same when lives did not end at every point often enough: what
/// is missing another run may add.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let began = Instant::now();
    let binary = start.binary()?;
    let points = chosen(points(&binary)?, &args.name)?;
    eprintln!("seed {}: {} points, {} times each", args.seed.0, points.len(), args.hits);
    let wanted = Wanted { short_logs: Some(SHORT_LOGS), ..Wanted::default() };
    let cluster = Cluster::start_on(start, args.nodes, wanted).await?;
    let (admin, folder) = (cluster.admin().clone(), cluster.folder().to_owned());

    let began_us = monotonic_us();
    let header = header(args, &cluster);
    let (scene, sink) =
        Scene::open(&cluster, &header, began_us, args.history.as_deref(), (PACE, SESSIONS), true).await?;
    let recorder = scene.recorder.clone();
    let workload = Workload::new(FIRST.0, FIRST.1, SystemTime::now() + 2 * LEAD, FIRST_FOR, Policy::Hold.wire());
    workload.create(&admin, &recorder).await?;

    let operator = Operator {
        admin: admin.clone(),
        recorder: recorder.clone(),
        workload: workload.clone(),
        desk: Desk::default(),
        number: 0,
    };
    let stage = Stage::new(cluster, sink, recorder.clone(), Arc::clone(&scene.watch));
    let mut nemesis = Nemesis::new(stage, operator, args.seed.0, PACE);
    let feed = Feed::start(&admin, &recorder, &workload, &binary, &folder)?;
    scene.phase(PhaseName::Faults);
    let mut trouble = Trouble::default();
    let mut arms = Arms::new(points, args.hits);
    let broken = Instant::now();
    let until = broken + Duration::from_secs(args.seconds);
    let drive = Drive::new(&mut nemesis, &mut arms, &feed, args.seed.0);
    trouble.note(drive.until(until).await);
    let fault_seconds = broken.elapsed().as_secs();
    feed.stop().await;
    let Closed { judgement, drained, surprises } =
        scene.close(&mut nemesis, &mut trouble, Instant::now() + TO_CLOSE, TO_READ).await?;

    let not_reached: Vec<String> = arms.left().map(str::to_owned).collect();
    let holds = judgement.valid && drained && surprises.is_empty() && trouble.0.is_empty();
    let all_reached = not_reached.is_empty();
    let particulars = Particulars {
        nemesis: "crash-points",
        in_doubt_policy: Policy::Hold.word(),
        nodes: args.nodes,
        fault_seconds,
        ends: nemesis.ends,
        deaths: arms.hits().values().sum(),
        points: arms.hits().clone(),
        wanted_hits: args.hits,
        not_reached,
        seconds: began.elapsed().as_secs(),
        drained,
        ended_by_themselves: surprises,
        trouble: trouble.0,
        at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    };
    let outcome = verdict::outcome(&judgement, &particulars, holds, args.append.as_deref())?;
    Ok(Outcome { valid: holds && all_reached, ..outcome })
}

fn header(args: &Args, cluster: &Cluster) -> Header {
    let names = if args.name.is_empty() { String::new() } else { format!(" --name {}", args.name.join(",")) };
    let Args { seed: Seed(seed), nodes, hits, seconds, .. } = args;
    let command =
        format!("reveille-jepsen crash-points --seed {seed} --nodes {nodes} --hits {hits} --seconds {seconds}{names}");
    Header {
        // Rows are timed to the second, and lives that end all the time, of a build that is not made for speed, are not.
        asks: asks(false, false),
        drain_within_ms: (TO_CLOSE - TO_READ).as_millis() as u64,
        coverage: Coverage {
            // That mail flows is shown by the points themselves: half of them lie on its way.
            mails_per_second: 0,
            kills_inside_data: 0,
            faults: BTreeMap::from([(FaultKind::CrashPoint, 1)]),
        },
        ..plain_header(args.seed.0, command, Policy::Hold, cluster)
    }
}

/// The points that this binary has, by its own word.
fn points(binary: &Path) -> Result<Vec<String>> {
    let asked = std::process::Command::new(binary).args(["version", "-o", "json"]).output();
    let asked = asked.with_context(|| format!("{} cannot be started", binary.display()))?;
    let version: Version = serde_json::from_slice(&asked.stdout).context("what `reveille version` says")?;
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
    use crate::tool;

    #[test]
    fn points_are_chosen_by_name() {
        let points = || ["a.b", "c.d"].map(str::to_owned).to_vec();
        assert_eq!(chosen(points(), &[]).unwrap(), points());
        assert_eq!(chosen(points(), &["c.d".to_owned()]).unwrap(), ["c.d"]);
        assert!(chosen(points(), &["e.f".to_owned()]).unwrap_err().to_string().contains("a.b, c.d"));
    }

    #[test]
    fn a_binary_without_points_is_refused_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("reveille");
        tool::script(&script, "echo '{\"version\":\"1\"}'");
        let error = points(&script).unwrap_err().to_string();
        assert!(error.contains("--features reveille/crash-points"), "{error}");
    }
}

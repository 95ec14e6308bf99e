//! `run`: real nodes, real mail, and a plan of faults that a seed decides.
//!
//! Phases: a cluster is made and given its work; faults come and go while mail flows, a shifting subset of the
//! chosen families in each period and all at once in the last; everything is mended; the backlog must drain; every
//! recipient's story is read. What was seen all the while is a history, and by that alone the run is judged.
//!
//! Reading order: this page, `plan.rs` (what chance decides), `workload.rs` (what is due), `nemesis.rs` with
//! `blows.rs`, `disk.rs` and `operator.rs` (how it is broken), `stage.rs` (lives of processes), `scene.rs` (who watches),
//! `aftermath.rs` with `stories.rs` (what is read at the end), `verdict.rs` (the last line). `crash/` is a command of its
//! own on the same ground.

mod aftermath;
mod blows;
pub mod crash;
mod disk;
mod dots;
mod folders;
mod gates;
mod links;
mod lives;
mod nemesis;
mod operator;
mod outages;
mod plan;
mod recorder;
mod scene;
mod stage;
mod stories;
mod trace;
mod verdict;
mod workload;

pub use verdict::commit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use reveille_check::history::{Clock, Coverage, FORMAT, FaultKind, Header, InDoubt, PhaseName, Policies};
use reveille_proto::admin::v1 as api;
use serde::Serialize;

pub use self::nemesis::Ends;
use self::nemesis::Nemesis;
use self::operator::Operator;
use self::plan::Family;
use self::scene::{Closed, Scene, Trouble};
use self::stage::Stage;
use self::workload::Workload;
use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::footing::Wanted;
use crate::measure::{monotonic_us, unix_us};

/// Sessions to the sink on each node.
const SESSIONS: u32 = 8;
/// Dialogues take as long as those of a relay that is not next door: so kills find hand-offs past the gate.
const PACE: &str = "after-commit:stall=40ms@0.7";
/// Defaults: schedules and recipients a second of the fault phase.
const SCHEDULES_PER_SECOND: u64 = 3;
const RECIPIENTS_PER_SECOND: u64 = 20;
/// From the first create to the first instant, at least; and what each schedule adds.
const LEAD: Duration = Duration::from_secs(4);
const LEAD_A_SCHEDULE: Duration = Duration::from_millis(25);
/// Entries between two snapshots, and entries that are kept.
const SHORT_LOGS: (u64, u64) = (300, 50);
/// The whole run ends within twice the fault phase and this.
const WHOLE: Duration = Duration::from_secs(120);
/// Of that, so much is left for reading and judging when the draining has to be over.
const TO_READ: Duration = Duration::from_secs(35);
/// P9: a lease, and what a leader waits on top of it.
const LEASE_MS: u64 = 4_000;
const MARGIN_MS: u64 = 1_000;
/// P12.
const CLAIM_CAP: u32 = 4_096;
/// P18: so far apart two clocks may be that agree. On a machine whose clocks are left alone there is one clock, which is
/// read in milliseconds and slewed.
const CLOCK_ERROR_MS: u64 = 2_000;
const ONE_CLOCK_ERROR_MS: u64 = 100;
/// `finish_by` of a schedule that says nothing of it (proto, `Policies`).
const FINISH_WITHIN_MS: u64 = 24 * 3_600_000;
/// With a quorum, an instant opens at most so late: longer than the longest fault lasts, and an election.
const LATE_MS: u64 = 20_000;

/// Options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Decides all that is random; `random` draws one, and tells it
    #[arg(long, value_parser = seed)]
    pub seed: Seed,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    pub nodes: u8,
    /// Recipients in all, each of one schedule [default: 20 a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub recipients: Option<u32>,
    /// Schedules, each due once, spread evenly over the fault phase [default: 3 a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub schedules: Option<u32>,
    /// How long the fault phase is; the whole run takes at most twice that and 120 s
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// What is broken: `all`, or some of these
    #[arg(long, default_value = "all", value_delimiter = ',', value_parser = family)]
    pub nemesis: Vec<Nemeses>,
    /// What the schedules do with mails in doubt
    #[arg(long, value_enum, default_value = "hold")]
    pub in_doubt: Policy,
    /// Keep the history in this file [default: it goes with the run]
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Append the last line, with commit and instant, to this file
    #[arg(long, value_name = "FILE")]
    pub append: Option<PathBuf>,
}

/// A seed, given or drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

fn seed(text: &str) -> Result<Seed, String> {
    match text {
        "random" => Ok(Seed(rand::random::<u32>().into())),
        _ => text.parse().map(Seed).map_err(|_| "a number below 2^64, or `random`".to_owned()),
    }
}

/// One family, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nemeses {
    /// All.
    All,
    /// One.
    One(Family),
}

fn family(text: &str) -> Result<Nemeses, String> {
    use clap::ValueEnum;
    let names = || Family::ALL.iter().filter_map(|family| Some(family.to_possible_value()?.get_name().to_owned()));
    match text {
        "all" => Ok(Nemeses::All),
        _ => Family::from_str(text, true)
            .map(Nemeses::One)
            .map_err(|_| format!("`all` or some of {}, with commas between", names().collect::<Vec<_>>().join(", "))),
    }
}

/// What schedules do with mails in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Never sent again without a decision
    Hold,
    /// Sent again: duplicates by choice
    Resend,
}

/// What the last line says beside the judgement.
#[derive(Serialize)]
struct Particulars {
    nemesis: String,
    in_doubt_policy: &'static str,
    nodes: u8,
    fault_seconds: u64,
    seconds: u64,
    drained: bool,
    /// Lives that were ended on purpose.
    ends: Ends,
    /// Nodes that ended by themselves where nothing asked for it, with their last words.
    ended_by_themselves: Vec<String>,
    /// What kept the run itself from going on.
    trouble: Vec<String>,
    at: String,
}

/// Runs it; valid when every invariant holds, everything drained, and nothing ended that was not asked to.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let began = Instant::now();
    let phase = Duration::from_secs(args.seconds);
    let ends = began + 2 * phase + WHOLE;
    let families = families(&args.nemesis);
    let plan = plan::draw(args.seed.0, phase, &families);
    eprintln!("seed {}: {} faults planned for {} s", args.seed.0, plan.len(), args.seconds);
    let cluster = Cluster::start_on(start, args.nodes, wanted(&families)).await?;
    tell_what_lacks(&cluster, &families);

    let began_us = monotonic_us();
    let header = header(args, &families, &cluster);
    let clocks_are_right = !families.contains(&Family::Clock);
    let (scene, sink) =
        Scene::open(&cluster, &header, began_us, args.history.as_deref(), (PACE, SESSIONS), clocks_are_right).await?;
    let (admin, recorder) = (cluster.admin().clone(), scene.recorder.clone());

    let (schedules, recipients) = sizes(args);
    let lead = LEAD + LEAD_A_SCHEDULE * schedules;
    let first = SystemTime::now() + lead;
    let in_doubt = if args.in_doubt == Policy::Hold { api::InDoubt::Hold } else { api::InDoubt::Resend };
    let workload = Workload::new(schedules, recipients, first, phase, in_doubt);
    workload.create(&admin, &recorder).await?;
    tokio::time::sleep(first.duration_since(SystemTime::now()).unwrap_or_default()).await;

    let operator = Operator { admin, recorder: recorder.clone(), workload, number: 0 };
    let stage = Stage::new(cluster, sink, recorder, Arc::clone(&scene.watch));
    let mut nemesis = Nemesis::new(stage, operator, args.seed.0, PACE);
    scene.phase(PhaseName::Faults);
    eprintln!("{} schedules are due from now on; faults begin", schedules);
    // Whatever goes wrong from here on, what was seen is judged.
    let mut trouble = Trouble::default();
    trouble.note(nemesis.strike(&plan, Instant::now(), phase).await);
    eprintln!("everything is mended");
    let Closed { judgement, drained, surprises } = scene.close(&mut nemesis, &mut trouble, ends, TO_READ).await?;
    let valid = judgement.valid && drained && surprises.is_empty() && trouble.0.is_empty();
    let particulars = Particulars {
        nemesis: words(&args.nemesis),
        in_doubt_policy: if args.in_doubt == Policy::Hold { "hold" } else { "resend" },
        nodes: args.nodes,
        fault_seconds: args.seconds,
        seconds: began.elapsed().as_secs(),
        drained,
        ends: nemesis.ends,
        ended_by_themselves: surprises,
        trouble: trouble.0,
        at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    };
    verdict::outcome(&judgement, &particulars, valid, args.append.as_deref())
}

/// Schedules, and recipients of all of them.
fn sizes(args: &Args) -> (u32, u32) {
    let schedules = args.schedules.unwrap_or((args.seconds * SCHEDULES_PER_SECOND) as u32);
    let recipients = args.recipients.unwrap_or((args.seconds * RECIPIENTS_PER_SECOND) as u32);
    (schedules, recipients.max(schedules))
}

fn families(chosen: &[Nemeses]) -> Vec<Family> {
    let each = chosen.iter().flat_map(|chosen| match chosen {
        Nemeses::All => Family::ALL.to_vec(),
        Nemeses::One(family) => vec![*family],
    });
    each.collect::<BTreeSet<Family>>().into_iter().collect()
}

/// As it is typed.
fn words(chosen: &[Nemeses]) -> String {
    use clap::ValueEnum;
    let word = |chosen: &Nemeses| match chosen {
        Nemeses::All => "all".to_owned(),
        Nemeses::One(family) => {
            family.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
        }
    };
    chosen.iter().map(word).collect::<Vec<_>>().join(",")
}

fn wanted(families: &[Family]) -> Wanted {
    let any = |of: &[Family]| families.iter().any(|family| of.contains(family));
    Wanted {
        hosts: any(&[Family::Partition, Family::Link]),
        volumes: any(&[Family::Disk, Family::Power]),
        clocks: any(&[Family::Clock]),
        short_logs: Some(SHORT_LOGS),
    }
}

fn tell_what_lacks(cluster: &Cluster, families: &[Family]) {
    let (wanted, footing) = (wanted(families), cluster.footing());
    let lacks = [
        (wanted.hosts, "cuts and bad links", footing.hosts.as_ref().err()),
        (wanted.volumes, "power cuts and full disks", footing.volumes.as_ref().err()),
        (wanted.clocks, "clocks that are wrong", footing.clocks.as_ref().err()),
    ];
    for (wanted, what, why) in lacks {
        if let (true, Some(why)) = (wanted, why) {
            eprintln!("{what} are skipped: {why}");
        }
    }
}

fn header(args: &Args, families: &[Family], cluster: &Cluster) -> Header {
    let (_, recipients) = sizes(args);
    let kills = families.contains(&Family::Kill) && args.seconds >= 20;
    let command = format!(
        "reveille-jepsen run --seed {} --nodes {} --seconds {} --nemesis {}",
        args.seed.0,
        args.nodes,
        args.seconds,
        words(&args.nemesis)
    );
    Header {
        asks: asks(!families.contains(&Family::Clock)),
        coverage: Coverage {
            // A quarter of what is due: faults may keep the rest for later.
            mails_per_second: recipients / (4 * args.seconds as u32),
            kills_inside_data: u32::from(kills),
            faults: must_be_seen(families, kills),
        },
        drain_within_ms: (args.seconds + 60) * 1_000,
        clock_error_ms: if families.contains(&Family::Clock) { CLOCK_ERROR_MS } else { ONE_CLOCK_ERROR_MS },
        ..plain_header(args.seed.0, command, args.in_doubt, cluster)
    }
}

/// Kinds of faults of which an effect must have been seen. Of old folders only where nothing else is asked for: they are
/// put back only while all else is well.
fn must_be_seen(families: &[Family], kills: bool) -> BTreeMap<FaultKind, u32> {
    let kills = kills.then_some((FaultKind::Kill, 1));
    let folders = (families == [Family::Folder]).then_some((FaultKind::Damage, 1));
    kills.into_iter().chain(folders).collect()
}

/// What holds of every run of ours; whoever uses it says what it asks and what it must have exercised.
fn plain_header(seed: u64, command: String, in_doubt: Policy, cluster: &Cluster) -> Header {
    Header {
        format: FORMAT,
        seed,
        command,
        commit: verdict::commit(),
        clock: Clock::Wall,
        began_unix_ms: unix_us(SystemTime::now()) / 1_000,
        nodes: cluster.nodes().iter().map(|node| node.name.clone()).collect(),
        in_doubt: if in_doubt == Policy::Hold { InDoubt::Hold } else { InDoubt::Resend },
        lease_ms: LEASE_MS,
        margin_ms: MARGIN_MS,
        sessions: SESSIONS,
        claim_cap: CLAIM_CAP,
        clock_error_ms: ONE_CLOCK_ERROR_MS,
        late_ms: LATE_MS,
        drain_within_ms: 0,
        start_bound_ms: None,
        policies: Policies { finish_within_ms: Some(FINISH_WITHIN_MS), may_skip: false },
        asks: Vec::new(),
        coverage: Coverage::default(),
    }
}

/// Rows are timed by the ledger, which says nothing where clocks are wrong.
fn asks(clocks_are_right: bool) -> Vec<u8> {
    let timed = clocks_are_right.then_some(15);
    [3, 5, 6, 7, 8, 10, 11, 13, 14].into_iter().chain(timed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_chosen_by_name_each_once() {
        let chosen = ["kill", "pause", "kill"].map(|name| family(name).unwrap());
        assert_eq!(families(&chosen), [Family::Kill, Family::Pause]);
        assert_eq!(words(&chosen), "kill,pause,kill");
        assert_eq!(families(&[family("all").unwrap()]).len(), Family::ALL.len());
        assert!(family("earthquake").unwrap_err().contains("partition"));
    }

    #[test]
    fn a_seed_is_a_number_or_drawn() {
        assert_eq!(seed("7"), Ok(Seed(7)));
        assert!(seed("random").is_ok() && seed("seven").is_err());
    }
}

//! `run`: real nodes, real mail, and a plan of faults that a seed decides.
//!
//! Phases: a cluster is made and given its work; faults come and go while mail flows, a shifting subset of the
//! chosen families in each period and all at once in the last; everything is mended; the backlog must drain; every
//! recipient's story is read. What was seen all the while is a history, and by that alone the run is judged.
//!
//! Reading order: this page, `plan.rs` (what chance decides), `workload.rs` (what is due), `nemesis.rs` with
//! `blows.rs`, `links.rs` and `wiring.rs`, `disk.rs`, and `operator.rs` with `rulings.rs`, `edits.rs` and `held.rs` (how
//! it is broken), `desk.rs` and `readers.rs` (what is being written, and who looks on through the admin API), `stage.rs` (lives of processes), `scene.rs` (who watches),
//! `aftermath.rs` with `stories.rs` (what is read at the end), `verdict.rs` (the last line). `crash/` is a command of its
//! own on the same ground.

mod aftermath;
mod blows;
pub mod crash;
mod daily;
mod desk;
mod disk;
mod dots;
mod edits;
mod folders;
mod gates;
mod held;
mod lies;
mod links;
mod lives;
mod nemesis;
mod operator;
mod outages;
mod plan;
mod readers;
mod recorder;
mod rulings;
mod scene;
mod stage;
mod stories;
mod trace;
mod verdict;
mod wiring;
mod workload;

pub use verdict::{append, commit};

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use reveille_check::history::{Clock, Coverage, FORMAT, FaultKind, Header, InDoubt, PhaseName, Policies};
use reveille_proto::admin::v1 as api;
use serde::Serialize;
use tokio::task::JoinSet;

use self::daily::Hand;
use self::desk::Desk;
pub use self::nemesis::Ends;
use self::nemesis::Nemesis;
use self::operator::Operator;
use self::plan::{Family, Strike};
use self::scene::{Closed, Scene, Trouble};
use self::stage::Stage;
use self::workload::{CAMPAIGN, Workload};
use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::footing::Wanted;
use crate::measure::{monotonic_us, unix_us};
use crate::wires::{Ground, Wires};

/// Sessions to the sink on each node.
const SESSIONS: u32 = 8;
/// And those of the campaign, which goes beside all else.
const CAMPAIGN_SESSIONS: u32 = 4;
/// Dialogues take as long as those of a relay that is not next door: so kills find hand-offs past the gate.
const PACE: &str = "after-commit:stall=40ms@0.7";
/// Defaults: schedules and recipients a second of the fault phase.
const SCHEDULES_PER_SECOND: u64 = 3;
/// A long run has fewer schedules, with more recipients each: the product compares no states of more than 10,000 rows (I11,
/// `cluster/src/site.rs`), and a schedule that has come to its end keeps three and more.
const SCHEDULES_MAX: u64 = 500;
const RECIPIENTS_PER_SECOND: u64 = 20;
const CAMPAIGN_PER_SECOND: u64 = 8;
/// By its rate it would be over in so small a part of the fault phase. Mostly one node works on it, with a third of the rate
/// or less (P25), and its bucket starts empty after each of its deaths; so it takes most of the phase.
const CAMPAIGN_HASTE: u64 = 8;
/// From the first create to the first instant, at least; and what each schedule adds.
const LEAD: Duration = Duration::from_secs(4);
const LEAD_A_SCHEDULE: Duration = Duration::from_millis(25);
/// Families that all have their turn in a fault phase of so many seconds.
const FEW_FAMILIES: usize = 5;
const TURNS_SECONDS: u64 = 60;
/// And in one of so many, all of them.
const ALL_HAVE_TURNS_SECONDS: u64 = 600;
/// Entries between two snapshots, and entries that are kept.
const SHORT_LOGS: (u64, u64) = (300, 50);
/// The whole run ends within twice the fault phase and this.
const WHOLE: Duration = Duration::from_secs(180);
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
/// And not before it was open for so long, whatever comes next.
const FINISH_AT_LEAST_MS: u64 = 600_000;
/// With a quorum, an instant opens at most so late: longer than the longest fault lasts, and an election.
const LATE_MS: u64 = 20_000;
/// And its first mail goes at most so late, beside a campaign that is more than its rate lets through (I12): it opens, and
/// who was granted it first may be dead.
const START_BOUND_MS: u64 = LATE_MS + LEASE_MS + MARGIN_MS;
/// It is asked where so many start that some do beside the campaign, and where that lasts a while.
const STARTS_MIN: u32 = 10;
const CROWD_MIN: u32 = 40;

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
    /// Schedules, each due once, spread evenly over the fault phase [default: 3 a second,
    /// 500 at most: the states of a cluster with much more are not compared]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub schedules: Option<u32>,
    /// Recipients of a campaign that is sent during most of the fault phase; 0: no campaign [default: 8 a second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub campaign: Option<u32>,
    /// How long the fault phase is; the whole run takes at most twice that and 180 s
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// What is broken: `all`, or some of these
    #[arg(long, default_value = "all", value_delimiter = ',', value_parser = family)]
    pub nemesis: Vec<Nemeses>,
    /// What stands between nodes, for `partition` and `link`
    #[arg(long, value_enum, default_value = "any")]
    pub links: Ground,
    /// What the schedules do with mails in doubt
    #[arg(long, value_enum, default_value = "hold")]
    pub in_doubt: Policy,
    /// What is due
    #[arg(long, value_enum, default_value = "once")]
    pub workload: Due,
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

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Due {
    /// Schedules that fire once, spread over the fault phase, and a campaign
    Once,
    /// Daily schedules in twelve zones, on a clock that is moved by hand; without `clock` and `operator`
    Daily,
}

/// What the last line says beside the judgement.
#[derive(Serialize)]
struct Particulars {
    nemesis: String,
    workload: &'static str,
    in_doubt_policy: &'static str,
    nodes: u8,
    /// What stood between them, where something did.
    links: Option<&'static str>,
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
    let families = fitting(families(&args.nemesis), args)?;
    let plan = plan::draw(args.seed.0, phase, &families);
    eprintln!("seed {}: {} faults planned for {} s", args.seed.0, plan.len(), args.seconds);
    let wanted = wanted(&families, args);
    let cluster = Cluster::start_on(start, args.nodes, wanted).await?;
    tell_what_lacks(&cluster, wanted);

    let began_us = monotonic_us();
    let header = header(args, &families, &plan, &cluster);
    let clocks_are_right = ledger_time_is_ours(&families, args);
    let (mut scene, sink) =
        Scene::open(&cluster, &header, began_us, args.history.as_deref(), (PACE, SESSIONS), clocks_are_right).await?;
    let (admin, recorder) = (cluster.admin().clone(), scene.recorder.clone());

    let (schedules, recipients) = sizes(args);
    let lead = LEAD + LEAD_A_SCHEDULE * schedules;
    let first = SystemTime::now() + lead;
    let in_doubt = if args.in_doubt == Policy::Hold { api::InDoubt::Hold } else { api::InDoubt::Resend };
    let campaign = campaign(args);
    if campaign > 0 {
        let rate = (u64::from(campaign) * CAMPAIGN_HASTE).div_ceil(args.seconds) as u32;
        admin.add_relay_of((CAMPAIGN, CAMPAIGN), sink.address(), (CAMPAIGN_SESSIONS, rate)).await?;
    }
    let workload = match args.workload {
        Due::Once => {
            let workload = Workload::new(schedules, recipients, first, phase, in_doubt);
            workload.and_a_campaign(campaign, args.seed.0, first, phase)
        }
        Due::Daily => {
            let items = daily::schedules(args.seed.0, phase, recipients, jiff::Timestamp::now())?;
            Workload::of(items, in_doubt)
        }
    };
    let has_operators = families.contains(&Family::Operator);
    if has_operators {
        held::items(first, phase).into_iter().for_each(|item| workload.add(item));
    }
    workload.create(&admin, &recorder).await?;
    let desk = Desk::default();
    if has_operators {
        held::hold(&workload, &desk, &admin, &recorder).await?;
        edits::create_spares(&workload, &admin, &recorder).await?;
    }
    let mut days = JoinSet::new();
    match args.workload {
        Due::Once => tokio::time::sleep(first.duration_since(SystemTime::now()).unwrap_or_default()).await,
        Due::Daily => {
            let (instants_ms, offset_ms) = (workload.instants_ms(), 0);
            let (admin, recorder, began_unix_ms) = (admin.clone(), recorder.clone(), header.began_unix_ms);
            let mut hand = Hand { admin, recorder, began_unix_ms, instants_ms, offset_ms };
            hand.begin(LEAD).await?;
            days.spawn(hand.go_on());
        }
    }

    scene.readers = readers::start(&admin, &recorder, &workload, &desk, args.seed.0);
    let operator = Operator { admin, recorder: recorder.clone(), workload, desk, number: 0 };
    let stage = Stage::new(cluster, sink, recorder, Arc::clone(&scene.watch));
    let mut nemesis = Nemesis::new(stage, operator, args.seed.0, PACE);
    scene.phase(PhaseName::Faults);
    eprintln!("{} instants are due from now on; faults begin", nemesis.operator.workload.instants_ms().len());
    // Whatever goes wrong from here on, what was seen is judged.
    let mut trouble = Trouble::default();
    trouble.note(nemesis.strike(&plan, Instant::now(), phase).await);
    eprintln!("everything is mended");
    let Closed { judgement, drained, surprises } = scene.close(&mut nemesis, &mut trouble, ends, TO_READ).await?;
    if let Some(ended) = days.try_join_next() {
        trouble.note(ended?);
    }
    let valid = judgement.valid && drained && surprises.is_empty() && trouble.0.is_empty();
    let particulars = Particulars {
        nemesis: words(&args.nemesis),
        workload: if args.workload == Due::Daily { "daily" } else { "once" },
        in_doubt_policy: if args.in_doubt == Policy::Hold { "hold" } else { "resend" },
        nodes: args.nodes,
        links: nemesis.stage.cluster.footing().wires.as_ref().ok().map(Wires::name),
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
    let schedules = args.schedules.unwrap_or((args.seconds * SCHEDULES_PER_SECOND).min(SCHEDULES_MAX) as u32);
    let recipients = args.recipients.unwrap_or((args.seconds * RECIPIENTS_PER_SECOND) as u32);
    (schedules, recipients.max(schedules))
}

/// Recipients of the campaign.
fn campaign(args: &Args) -> u32 {
    if args.workload == Due::Daily {
        return 0;
    }
    args.campaign.unwrap_or((args.seconds * CAMPAIGN_PER_SECOND) as u32)
}

fn families(chosen: &[Nemeses]) -> Vec<Family> {
    let each = chosen.iter().flat_map(|chosen| match chosen {
        Nemeses::All => Family::ALL.to_vec(),
        Nemeses::One(family) => vec![*family],
    });
    each.collect::<BTreeSet<Family>>().into_iter().collect()
}

/// Those that fit the workload: on a clock that is moved by hand no node's own clock is moved, and operators know no
/// other time than ours.
fn fitting(families: Vec<Family>, args: &Args) -> Result<Vec<Family>> {
    let fits = |family: &Family| args.workload != Due::Daily || !matches!(family, Family::Clock | Family::Operator);
    let named = args.nemesis.iter().find_map(|named| match named {
        Nemeses::One(family) if !fits(family) => Some(words(&[*named])),
        _ => None,
    });
    anyhow::ensure!(named.is_none(), "--workload daily goes without `{}`", named.unwrap_or_default());
    Ok(families.into_iter().filter(fits).collect())
}

/// Do the instants of the ledger say when something was?
fn ledger_time_is_ours(families: &[Family], args: &Args) -> bool {
    args.workload == Due::Once && !families.contains(&Family::Clock)
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

fn wanted(families: &[Family], args: &Args) -> Wanted {
    let any = |of: &[Family]| families.iter().any(|family| of.contains(family));
    Wanted {
        links: any(&[Family::Partition, Family::Link]).then_some(args.links),
        seed: args.seed.0,
        volumes: any(&[Family::Disk, Family::Power, Family::Lie]),
        clocks: any(&[Family::Clock]),
        short_logs: Some(SHORT_LOGS),
        test_clock: args.workload == Due::Daily,
    }
}

fn tell_what_lacks(cluster: &Cluster, wanted: Wanted) {
    let footing = cluster.footing();
    let lacks = [
        (wanted.links.is_some(), "cuts and bad links", footing.wires.as_ref().err()),
        (wanted.volumes, "power cuts and full disks", footing.volumes.as_ref().err()),
        (wanted.clocks, "clocks that are wrong", footing.clocks.as_ref().err()),
    ];
    for (wanted, what, why) in lacks {
        if let (true, Some(why)) = (wanted, why) {
            eprintln!("{what} are skipped: {why}");
        }
    }
}

fn header(args: &Args, families: &[Family], plan: &[Strike], cluster: &Cluster) -> Header {
    let ((schedules, recipients), campaign) = (sizes(args), campaign(args));
    let kills = families.contains(&Family::Kill) && args.seconds >= 20;
    // A relay that is broken on purpose keeps anybody from starting.
    let starts_are_timed = campaign >= CROWD_MIN
        && schedules >= STARTS_MIN
        && ledger_time_is_ours(families, args)
        && !families.contains(&Family::Relay);
    let mut command = format!(
        "reveille-jepsen run --seed {} --nodes {} --seconds {} --nemesis {}",
        args.seed.0,
        args.nodes,
        args.seconds,
        words(&args.nemesis)
    );
    let sizes = [("schedules", args.schedules), ("recipients", args.recipients), ("campaign", args.campaign)];
    for (name, size) in sizes.into_iter().filter_map(|(name, size)| Some((name, size?))) {
        command.push_str(&format!(" --{name} {size}"));
    }
    if let Ok(wires) = &cluster.footing().wires {
        command.push_str(&format!(" --links {}", wires.name()));
    }
    if args.workload == Due::Daily {
        command.push_str(" --workload daily");
    }
    if args.in_doubt == Policy::Resend {
        command.push_str(" --in-doubt resend");
    }
    Header {
        asks: asks(ledger_time_is_ours(families, args), starts_are_timed),
        start_bound_ms: starts_are_timed.then_some(START_BOUND_MS),
        coverage: Coverage {
            // A quarter of what is due, the campaign left out: faults may keep the rest for later. Days stand still while
            // nobody leads, so less of them is due meanwhile.
            mails_per_second: recipients / (if args.workload == Due::Daily { 10 } else { 4 } * args.seconds as u32),
            kills_inside_data: u32::from(kills),
            faults: must_be_seen(families, plan, kills, args.seconds),
        },
        drain_within_ms: (args.seconds + 60) * 1_000,
        sessions: SESSIONS + if campaign > 0 { CAMPAIGN_SESSIONS } else { 0 },
        clock_error_ms: match (families.contains(&Family::Clock), args.workload) {
            (false, Due::Once) => ONE_CLOCK_ERROR_MS,
            _ => CLOCK_ERROR_MS,
        },
        ..plain_header(args.seed.0, command, args.in_doubt, cluster)
    }
}

/// Kinds of faults of which an effect must have been seen: of each family whose effect nobody can miss, where there are
/// few enough for all of them to have their turn. Of old folders and lying disks only where nothing else is asked for:
/// they come only while all else is well. Nothing is asked for that the seed did not draw.
fn must_be_seen(families: &[Family], plan: &[Strike], kills: bool, seconds: u64) -> BTreeMap<FaultKind, u32> {
    let kills = kills.then_some((FaultKind::Kill, 1));
    let folders = (families == [Family::Folder]).then_some((FaultKind::Damage, 1));
    let lies = (families == [Family::Lie]).then_some((FaultKind::PowerCut, 1));
    let have_turns = (families.len() <= FEW_FAMILIES && seconds >= TURNS_SECONDS) || seconds >= ALL_HAVE_TURNS_SECONDS;
    let plain = families.iter().filter(|_| have_turns).filter_map(|family| match family {
        Family::Pause => Some((FaultKind::Pause, 1)),
        Family::Partition => Some((FaultKind::Partition, 1)),
        Family::Link => Some((FaultKind::Link, 1)),
        Family::Power => Some((FaultKind::PowerCut, 1)),
        Family::Relay => Some((FaultKind::Relay, 1)),
        Family::Roll => Some((FaultKind::Restart, 1)),
        Family::Operator => Some((FaultKind::Operator, 1)),
        _ => None,
    });
    let drawn: BTreeSet<FaultKind> = plan.iter().map(|strike| nemesis::kind(&strike.blow)).collect();
    let plain = plain.filter(|(kind, _)| drawn.contains(kind));
    kills.into_iter().chain(folders).chain(lies).chain(plain).collect()
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
        policies: Policies {
            finish_within_ms: Some(FINISH_WITHIN_MS),
            finish_at_least_ms: FINISH_AT_LEAST_MS,
            may_skip: false,
        },
        asks: Vec::new(),
        coverage: Coverage::default(),
    }
}

/// Rows are timed by the ledger, which says nothing where clocks are wrong.
fn asks(clocks_are_right: bool, starts_are_timed: bool) -> Vec<u8> {
    let timed = clocks_are_right.then_some(15);
    let apart = starts_are_timed.then_some(12);
    [3, 5, 6, 7, 8, 10, 11, 13, 14].into_iter().chain(timed).chain(apart).collect()
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

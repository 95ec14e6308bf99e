//! `run`: real nodes, real mail, and a plan of faults that a seed decides.
//!
//! Phases: a cluster is made and given its work; faults come and go while mail flows, a shifting subset of the
//! chosen families in each period and all at once in the last; everything is mended; the backlog must drain; every
//! recipient's story is read. What was seen all the while is a history, and by that alone the run is judged.
//!
//! Reading order: this page, `options.rs` and `header.rs` (what is asked for, and what of the run), `plan` (what chance
//! decides), `workload.rs` (what is due), `nemesis.rs` with `blows.rs`, `kills.rs`, `links.rs` and `wiring.rs`, `disk.rs`,
//! and `operator.rs` with `rulings.rs`, `edits.rs` and `held.rs` (how it is broken), `desk.rs` and `readers.rs` (what is
//! being written, and who looks on through the admin API), `stage.rs` (lives of processes), `scene.rs` (who watches),
//! `aftermath.rs` with `stories.rs` (what is read at the end), `verdict.rs` (the last line). `crash/` is a command of its
//! own on the same ground.

mod accepts;
mod aftermath;
mod blows;
pub mod crash;
mod daily;
mod desk;
mod disk;
mod dots;
mod edits;
mod gates;
mod header;
mod held;
mod kills;
mod limits;
mod links;
mod lives;
mod nemesis;
mod operator;
mod options;
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

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use reveille_check::history::PhaseName;
use serde::Serialize;
use tokio::task::JoinSet;

use self::daily::Hand;
use self::desk::Desk;
use self::limits::Limits;
pub use self::nemesis::Ends;
use self::nemesis::Nemesis;
use self::operator::Operator;
pub use self::options::Args;
use self::options::Due;
use self::plan::Family;
use self::scene::{Closed, Scene, Trouble};
use self::stage::Stage;
use self::workload::Workload;
use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::footing::Wanted;
use crate::measure::{load_averages, monotonic_us};
use crate::wires::Wires;

/// Sessions to the sink on each node.
const SESSIONS: u32 = 8;
/// And those of the campaign, which goes beside all else.
const CAMPAIGN_SESSIONS: u32 = 4;
/// And those of the pool that is warmed up.
const WARMING_SESSIONS: u32 = 2;
/// Dialogues take as long as those of a relay that is not next door: so kills find hand-offs past the gate.
const PACE: &str = "after-commit:stall=40ms@0.7";
/// From the first create to the first instant, at least; and what each schedule adds.
const LEAD: Duration = Duration::from_secs(4);
const LEAD_A_SCHEDULE: Duration = Duration::from_millis(25);
/// Entries between two snapshots, and entries that are kept.
const SHORT_LOGS: (u64, u64) = (300, 50);
/// The whole run ends within twice the fault phase and this.
const WHOLE: Duration = Duration::from_secs(180);
/// Of that, so much is left for reading and judging when the draining has to be over.
const TO_READ: Duration = Duration::from_secs(35);

/// What the last line says beside the judgement.
#[derive(Serialize)]
struct Particulars {
    nemesis: String,
    workload: &'static str,
    in_doubt_policy: &'static str,
    nodes: u8,
    /// How densely nodes were killed; null without the family `kill`.
    kills_per_minute: Option<f64>,
    /// What stood between them, where something did.
    links: Option<&'static str>,
    fault_seconds: u64,
    seconds: u64,
    /// Of the machine when the fault phase was over, over 1, 5 and 15 minutes: a run without processor time proves little.
    load_averages: Option<[f64; 3]>,
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
    let families = args.families()?;
    let plan = plan::draw(args.seed.0, phase, &families);
    let policy = args.policy();
    let (seed, faults, seconds) = (args.seed.0, plan.len(), args.seconds);
    eprintln!("seed {seed}: {faults} faults planned for {seconds} s, in doubt: {}", policy.word());
    let wanted = wanted(&families, args);
    let cluster = Cluster::start_on(start, args.nodes, wanted).await?;
    tell_what_lacks(&cluster, wanted);

    let began_us = monotonic_us();
    let mut limits = Limits::draw(args.seed.0, args.campaign_size(), args.seconds);
    let header = header::header(args, &families, &plan, &limits, &cluster);
    let clocks_are_right = args.ledger_time_is_ours(&families);
    let (mut scene, sink) =
        Scene::open(&cluster, &header, began_us, args.history.as_deref(), (PACE, SESSIONS), clocks_are_right).await?;
    let (admin, recorder) = (cluster.admin().clone(), scene.recorder.clone());

    let (schedules, recipients) = args.sizes();
    let lead = LEAD + LEAD_A_SCHEDULE * schedules;
    let first = SystemTime::now() + lead;
    let in_doubt = policy.wire();
    let campaign = args.campaign_size();
    limits.set(&admin, &recorder, sink.address()).await?;
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
    limits.items(first, phase).into_iter().for_each(|item| workload.add(item));
    workload.create(&admin, &recorder).await?;
    scene.limits = limits;
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
    let load_averages = load_averages();
    eprintln!("everything is mended");
    let Closed { judgement, drained, surprises } = scene.close(&mut nemesis, &mut trouble, ends, TO_READ).await?;
    if let Some(ended) = days.try_join_next() {
        trouble.note(ended?);
    }
    let valid = judgement.valid && drained && surprises.is_empty() && trouble.0.is_empty();
    let particulars = Particulars {
        nemesis: args.nemesis_words(),
        workload: if args.workload == Due::Daily { "daily" } else { "once" },
        in_doubt_policy: policy.word(),
        nodes: args.nodes,
        kills_per_minute: families
            .contains(&Family::Kill)
            .then(|| (plan::kills_per_minute(args.seed.0) * 10.0).round() / 10.0),
        links: nemesis.stage.cluster.footing().wires.as_ref().ok().map(Wires::name),
        fault_seconds: args.seconds,
        seconds: began.elapsed().as_secs(),
        load_averages,
        drained,
        ends: nemesis.ends,
        ended_by_themselves: surprises,
        trouble: trouble.0,
        at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    };
    verdict::outcome(&judgement, &particulars, valid, args.append.as_deref())
}

fn wanted(families: &[Family], args: &Args) -> Wanted {
    let any = |of: &[Family]| families.iter().any(|family| of.contains(family));
    Wanted {
        links: any(&[Family::Partition, Family::Link]).then_some(args.links),
        seed: args.seed.0,
        volumes: any(&[Family::Disk, Family::Power]),
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

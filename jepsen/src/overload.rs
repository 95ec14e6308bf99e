//! `overload`: more is offered than can be done, and the cluster must not hurt itself by it: nobody is elected, memory
//! grows by what has to be kept and by nothing else, and what was late arrives in the end, once.
//!
//! The relay's capacity is known, because the sink takes its time for each answer. Offered is a schedule in each second,
//! with as many recipients as the case says; nothing is killed, so nothing may be in doubt either.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use reveille_sink::{FaultPlan, Sink, SinkOptions};
use serde::Serialize;

use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::load::{self, A_YEAR, Until};
use crate::measure::{resident_mb, rounded};
use crate::quota::Quota;
use crate::tally::{Arrivals, epoch_of};
use crate::watch::Watch;

/// Sessions to the sink on each node, and how long it takes for an answer: 80 mails a second and node.
const SESSIONS: u32 = 8;
const ANSWER_MS: u64 = 100;
/// A relay at a tenth of its capacity.
const SLOW_ANSWER_MS: u64 = 10 * ANSWER_MS;
/// What the nodes get together where rendering is all that they can do: hundredths of a processor.
const QUOTA_PERCENT: u64 = 25;
/// Mails a second that nodes with so little cannot render.
const TOO_MUCH: u64 = 4_000;
/// The minute in which these many schedules are due.
const SCHEDULES: u64 = 100_000;
/// Clients that create, and how many schedules tell how fast that goes: a twentieth of what is to come.
const CLIENTS: u32 = 32;
const TRIAL: std::ops::RangeInclusive<u64> = 3..=200;
/// Creates are over so long before the first instant.
const QUIET_BEFORE: Duration = Duration::from_secs(8);
/// For draining, beside the time that so slow a cluster would need.
const PATIENCE: Duration = Duration::from_secs(120);
const SLOWEST_PER_SECOND: u64 = 100;
const QUIET_AFTER: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Options of `overload`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What is too much [default: each, one after the other]
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<Case>,
    /// How long more is offered than can be done
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(10..=3_600))]
    seconds: u64,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    nodes: u8,
}

/// What is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Case {
    /// Twice what the relay takes
    Twice,
    /// Ten times what the relay takes
    Tenfold,
    /// Half of what the relay takes, and for a third of the time it takes a tenth of that
    SlowRelay,
    /// 100,000 schedules that are due in one minute
    Schedules,
    /// More than nodes with little processor time can render, with a relay that takes it all
    Rendering,
}

#[derive(Serialize)]
struct Report {
    nodes: u8,
    seconds: u64,
    cases: Vec<Told>,
    valid: bool,
}

/// What a case came to.
#[derive(Serialize)]
struct Told {
    case: Case,
    /// Why it could not be tried here.
    skipped: Option<String>,
    offered: u64,
    /// While it was offered.
    offered_per_second: f64,
    accepted_per_second: f64,
    /// Leaderships that began after the first.
    elections: u64,
    /// Due and not accepted: at most, and when no more was offered.
    backlog_max: u64,
    backlog_at_end: u64,
    /// From then on until the last mail.
    drained_seconds: Option<f64>,
    /// Memory of each node in MB: before, at most meanwhile, and after draining.
    memory_mb: BTreeMap<String, [f64; 3]>,
    duplicates: u64,
    lost: u64,
    /// Nothing is killed, so none may be.
    in_doubt: u64,
    /// Of the time, how much the nodes stood still since their share of the processor was used up; where they had a share.
    quota_exhausted_percent: Option<f64>,
    valid: bool,
}

/// What is offered.
struct Offer {
    schedules: u64,
    recipients: u32,
    over: Duration,
}

impl Offer {
    fn mails(&self) -> u64 {
        self.schedules * u64::from(self.recipients)
    }
}

impl Case {
    const ALL: [Case; 5] = [Case::Twice, Case::Tenfold, Case::SlowRelay, Case::Schedules, Case::Rendering];

    fn offer(self, args: &Args) -> Offer {
        let capacity = u64::from(args.nodes) * u64::from(SESSIONS) * 1_000 / ANSWER_MS;
        let a_second = |mails: u64| Offer {
            schedules: args.seconds,
            recipients: mails as u32,
            over: Duration::from_secs(args.seconds),
        };
        match self {
            Case::Twice => a_second(2 * capacity),
            Case::Tenfold => a_second(10 * capacity),
            Case::SlowRelay => a_second(capacity / 2),
            Case::Rendering => a_second(TOO_MUCH),
            Case::Schedules => Offer { schedules: SCHEDULES, recipients: 1, over: Duration::from_secs(60) },
        }
    }

    /// How long the relay takes for an answer, so far into it.
    fn answer_ms(self, into: f64) -> u64 {
        match self {
            Case::Twice | Case::Tenfold => ANSWER_MS,
            Case::SlowRelay if (1.0 / 3.0..2.0 / 3.0).contains(&into) => SLOW_ANSWER_MS,
            Case::SlowRelay => ANSWER_MS,
            Case::Schedules | Case::Rendering => 0,
        }
    }
}

/// Runs it; valid when nobody was elected and everything came once, in every case that could be tried.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let chosen = if args.case.is_empty() { Case::ALL.to_vec() } else { args.case.clone() };
    let mut cases = Vec::new();
    for case in chosen {
        eprintln!("{case:?}");
        cases.push(one(start, args, case).await?);
    }
    let tried = cases.iter().filter(|told| told.skipped.is_none()).count();
    let valid = tried > 0 && cases.iter().all(|told| told.valid || told.skipped.is_some());
    let report = Report { nodes: args.nodes, seconds: args.seconds, cases, valid };
    Outcome::new(&report, valid)
}

async fn one(start: &Start, args: &Args, case: Case) -> Result<Told> {
    let offer = case.offer(args);
    let sink = Sink::start(SinkOptions {
        keep_records: 2 * offer.mails() as usize,
        keep_bodies: 0,
        faults: slowness(case.answer_ms(0.0))?,
        ..SinkOptions::default()
    })?;
    // Declared before the nodes, so that it goes after them.
    let mut quota = None;
    let cluster = Cluster::start(start, args.nodes).await?;
    cluster.admin().add_relay(sink.address(), SESSIONS).await?;
    // From before the creates on: they are load too.
    let leaders = Watch::start(&cluster);
    let due = create(&cluster, &offer).await?;
    if case == Case::Rendering {
        match Quota::new(cluster.token(), QUOTA_PERCENT)? {
            Ok(made) => {
                // Kept at once: it can go only after the nodes that are in it.
                let made = quota.insert(made);
                let mut nodes = cluster.nodes().iter().filter_map(|node| node.process_id());
                nodes.try_for_each(|process| made.add(process))?;
            }
            Err(why) => return Ok(Told::skipped(case, why)),
        }
    }
    let told = offer_it(&cluster, &sink, &leaders, case, &offer, due).await;
    let exhausted = quota.as_ref().map(Quota::exhausted_percent).transpose();
    drop(cluster);
    drop(quota);
    Ok(Told { quota_exhausted_percent: exhausted?, ..told? })
}

/// Creates everything; answers the first instant.
async fn create(cluster: &Cluster, offer: &Offer) -> Result<SystemTime> {
    let Offer { schedules, recipients, over } = *offer;
    let later = SystemTime::now() + A_YEAR;
    let trial = move |number| load::once_to(format!("trial-{number}"), later, recipients);
    let few = (schedules / 20).clamp(*TRIAL.start(), *TRIAL.end());
    let trial = load::create(cluster.admin(), CLIENTS, Until::Count(few), "trials", trial).await?;
    let due = SystemTime::now() + QUIET_BEFORE + Duration::from_secs_f64(2.0 * schedules as f64 / trial.rate());
    let body = move |number: u64| {
        let after = over.mul_f64(number as f64 / schedules as f64);
        load::once_to(name(number), due + after, recipients)
    };
    load::create(cluster.admin(), CLIENTS, Until::Count(schedules), "schedules", body).await?;
    anyhow::ensure!(due > SystemTime::now(), "creating slowed down too much: choose a quieter machine");
    Ok(due)
}

async fn offer_it(
    cluster: &Cluster,
    sink: &Sink,
    leaders: &Watch,
    case: Case,
    offer: &Offer,
    due: SystemTime,
) -> Result<Told> {
    let (offered, over) = (offer.mails(), offer.over);
    tokio::time::sleep(due.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let (began, mut memory) = (Instant::now(), Memory::new(cluster)?);
    let (mut backlog_max, mut answer_ms) = (0, case.answer_ms(0.0));
    while began.elapsed() < over {
        tokio::time::sleep(LOOK_EVERY).await;
        let into = (began.elapsed().as_secs_f64() / over.as_secs_f64()).min(1.0);
        if case.answer_ms(into) != answer_ms {
            answer_ms = case.answer_ms(into);
            sink.set_faults(slowness(answer_ms)?);
        }
        backlog_max = backlog_max.max(((offered as f64 * into) as u64).saturating_sub(sink.accepted_count()));
        memory.look(cluster)?;
    }
    let accepted = sink.accepted_count();
    eprintln!("  {offered} offered, {accepted} accepted; the relay takes all that comes now");
    sink.set_faults(FaultPlan::default());
    let backlog_at_end = offered.saturating_sub(accepted);
    let (ended, patience) = (Instant::now(), PATIENCE + Duration::from_secs(backlog_at_end / SLOWEST_PER_SECOND));
    while sink.wait_for(offered, LOOK_EVERY).await.is_err() && ended.elapsed() < patience {
        memory.look(cluster)?;
    }
    let drained_seconds = (sink.accepted_count() >= offered).then(|| rounded(ended.elapsed().as_secs_f64()));
    tokio::time::sleep(QUIET_AFTER).await;
    memory.look(cluster)?;

    let expected = (0..offer.schedules).map(name);
    let expected = expected.flat_map(|name| (0..offer.recipients).map(move |number| load::address(&name, number)));
    let mails = sink.mails();
    let tally = Arrivals::of(&mails).judge(expected, &cluster.admin().doubts("").await?);
    // A leadership that was over before anybody asked is in the fences of its mails.
    mails.iter().filter_map(|(_, mail)| epoch_of(mail.fence.as_deref()?)).for_each(|epoch| leaders.saw(epoch));
    // The first one is how the cluster began.
    let elections = leaders.epochs().saturating_sub(1);
    let per_second = |mails: u64| rounded(mails as f64 / over.as_secs_f64());
    Ok(Told {
        case,
        skipped: None,
        offered,
        offered_per_second: per_second(offered),
        accepted_per_second: per_second(accepted),
        elections,
        backlog_max,
        backlog_at_end,
        drained_seconds,
        memory_mb: memory.0,
        duplicates: tally.duplicates,
        lost: tally.lost,
        in_doubt: tally.in_doubt,
        quota_exhausted_percent: None,
        valid: elections == 0 && tally.is_clean() && tally.in_doubt == 0,
    })
}

/// Of each node, in MB: before, at most, last.
struct Memory(BTreeMap<String, [f64; 3]>);

impl Memory {
    fn new(cluster: &Cluster) -> Result<Memory> {
        Ok(Memory(cluster.of_each(resident_mb)?.into_iter().map(|(name, mb)| (name, [mb; 3])).collect()))
    }

    fn look(&mut self, cluster: &Cluster) -> Result<()> {
        for (name, mb) in cluster.of_each(resident_mb)? {
            let [_, most, last] = self.0.entry(name).or_insert([mb; 3]);
            (*most, *last) = (most.max(mb), mb);
        }
        Ok(())
    }
}

impl Told {
    fn skipped(case: Case, why: String) -> Told {
        eprintln!("  skipped: {why}");
        Told {
            case,
            skipped: Some(why),
            offered: 0,
            offered_per_second: 0.0,
            accepted_per_second: 0.0,
            elections: 0,
            backlog_max: 0,
            backlog_at_end: 0,
            drained_seconds: None,
            memory_mb: BTreeMap::new(),
            duplicates: 0,
            lost: 0,
            in_doubt: 0,
            quota_exhausted_percent: None,
            valid: false,
        }
    }
}

/// A relay that takes so long for each answer.
fn slowness(answer_ms: u64) -> Result<FaultPlan> {
    let plan = if answer_ms == 0 { String::new() } else { format!("after-commit:stall={answer_ms}ms") };
    plan.parse().context("the pace of the relay")
}

fn name(number: u64) -> String {
    format!("due-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_is_more_than_the_relay_takes() {
        let args = Args { case: vec![], seconds: 60, nodes: 3 };
        let mails = Case::ALL.map(|case| case.offer(&args).mails() / 60);
        assert_eq!(mails, [480, 2_400, 120, 1_666, 4_000], "a second; the relay takes 240");
        assert!(slowness(0).is_ok() && slowness(ANSWER_MS).is_ok());
    }

    #[test]
    fn the_slow_relay_is_slow_in_the_middle() {
        let at = [0.1, 0.5, 0.9].map(|into| Case::SlowRelay.answer_ms(into));
        assert_eq!(at, [ANSWER_MS, SLOW_ANSWER_MS, ANSWER_MS]);
    }
}

//! After everything was mended: waits until nothing is left to send, and reads what the ledger says of each
//! recipient, into the history.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::history::{
    Claim, Event, Explained, Fate, Fence, Found, Noun, Outcome, Part, PassedOver, Run, RunCause, Standing, StateHash,
    Step,
};
use reveille_proto::admin::v1 as api;
use tokio::task::JoinSet;

use super::operator::Operator;
use super::recorder::Recorder;
use super::workload::{BELL, TENANT, Workload, value};
use crate::admin::Admin;

const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Nothing may move for so long before it counts as drained: who is in doubt may yet be resolved by a journal.
const STAYS_FOR: Duration = Duration::from_secs(3);
/// Clients that read.
const READERS: usize = 8;
/// State hashes of all nodes are looked for at one index for so long.
const EQUAL_WITHIN: Duration = Duration::from_secs(10);

/// What was read.
#[derive(Default)]
pub struct Aftermath {
    /// Every run, by its name: the schedule.
    pub runs: BTreeMap<String, String>,
    /// What was read completely.
    pub whole: Vec<Part>,
}

/// Waits until every schedule has its run and nobody is pending or claimed; answers whether it came so far.
pub async fn drain(operator: &Operator, until: Instant, mut look: impl FnMut() -> Result<()>) -> Result<bool> {
    let (mut former, mut since) = (Vec::new(), Instant::now());
    loop {
        look()?;
        let runs = operator.admin.runs().await?;
        for run in runs.iter().filter(|run| run.state() == api::RunState::Paused) {
            eprintln!("  {} is paused ({}): {}", run.run, run.reason, operator.resume(&run.run).await);
        }
        let counts: Vec<api::RunCounts> = runs.iter().filter_map(|run| run.counts).collect();
        let left: u32 = counts.iter().map(|counts| counts.pending + counts.claimed).sum();
        let opened = runs.iter().filter(|run| run.schedule != BELL).count();
        let due = operator.workload.items().len();
        if counts != former {
            (former, since) = (counts, Instant::now());
        }
        if opened >= due && left == 0 && since.elapsed() >= STAYS_FOR {
            operator.recorder.event(&Event::Drained { at_ns: operator.recorder.now_ns() });
            return Ok(true);
        }
        if Instant::now() > until {
            eprintln!("not drained: {opened} of {due} runs opened, {left} recipients pending or claimed");
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Reads everything, until this instant at the latest.
pub async fn read(admin: &Admin, workload: &Workload, recorder: &Recorder, until: Instant) -> Result<Aftermath> {
    let mut aftermath = Aftermath::default();
    for run in admin.runs().await? {
        aftermath.runs.insert(run.run.clone(), run.schedule.clone());
        recorder.event(&Event::Run(of_run(&run).with_context(|| format!("{} has no {{due}}", run.run))?));
    }
    aftermath.whole.push(Part::Runs);
    if stories(admin, workload, recorder, until, &aftermath.runs).await? {
        aftermath.whole.extend([Part::Claims, Part::Outcomes, Part::Standings]);
    }
    if instants(admin, workload, recorder, until).await? {
        aftermath.whole.push(Part::Instants);
    }
    objects(admin, recorder).await?;
    aftermath.whole.push(Part::Objects);
    if hashes(admin, recorder).await? {
        aftermath.whole.push(Part::StateHashes);
    }
    Ok(aftermath)
}

/// The story of each recipient of each run; false where time was over before.
async fn stories(
    admin: &Admin,
    workload: &Workload,
    recorder: &Recorder,
    until: Instant,
    runs: &BTreeMap<String, String>,
) -> Result<bool> {
    let mut wanted: Vec<(String, String)> = Vec::new();
    for (run, schedule) in runs {
        let item = workload.find(schedule);
        // A run of something that nobody asked for has nobody that could be named; its mails will be unexplained.
        wanted.extend(item.iter().flat_map(|item| item.addresses()).map(|address| (run.clone(), address)));
    }
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (admin, recorder) = (admin.another(reader)?, recorder.clone());
        let own: Vec<_> = wanted.iter().skip(reader).step_by(READERS).cloned().collect();
        readers.spawn(async move {
            for (run, recipient) in own {
                if Instant::now() > until {
                    return anyhow::Ok(false);
                }
                let story = admin.explain(&run, &recipient).await?;
                let fate = fate(story.state()).with_context(|| format!("{recipient} of {run} has no state"))?;
                write_down(&recorder, &run, &recipient, &story, fate);
            }
            Ok(true)
        });
    }
    let mut whole = true;
    while let Some(ended) = readers.join_next().await {
        whole &= ended??;
    }
    Ok(whole)
}

fn write_down(recorder: &Recorder, run: &str, recipient: &str, story: &api::ExplainResponse, state: Fate) {
    for event in &story.events {
        let fence: Option<Fence> = event.fence.parse().ok();
        if event.what == "claimed"
            && let Some(fence) = fence
        {
            recorder.event(&Event::Claim(Claim {
                fence,
                node: event.node.clone(),
                incarnation: None,
                run: run.to_owned(),
                recipients: vec![recipient.to_owned()],
                committed_ns: None,
            }));
        }
        if let Some(step) = step(&event.what) {
            recorder.event(&Event::Outcome(Outcome {
                index: event.index,
                fence,
                run: run.to_owned(),
                recipient: recipient.to_owned(),
                step,
                detail: event.detail.clone(),
            }));
        }
    }
    let of_doubt = story.events.iter().rev().find(|event| matches!(event.what.as_str(), "in doubt" | "dead"));
    let cause = match state {
        Fate::InDoubt | Fate::Dead => of_doubt.map(|event| event.detail.clone()).unwrap_or_default(),
        _ => String::new(),
    };
    let (run, recipient, number) = (run.to_owned(), recipient.to_owned(), Some(story.number));
    recorder.event(&Event::Standing(Standing { run, recipient, number, state, cause }));
}

/// The words of `explain` that end a hand-off or decide about a doubt.
fn step(what: &str) -> Option<Step> {
    Some(match what {
        "sent" | "sent twice" | "sent after all" => Step::Sent,
        "refused" => Step::Refused,
        "given back" | "not composed" => Step::Released,
        "in doubt" => Step::InDoubt,
        "to be resent" => Step::Resent,
        "assumed" => Step::Assumed,
        _ => return None,
    })
}

fn fate(state: api::RecipientState) -> Option<Fate> {
    Some(match state {
        api::RecipientState::Unspecified => return None,
        api::RecipientState::Pending => Fate::Pending,
        api::RecipientState::Claimed => Fate::Claimed,
        api::RecipientState::Sent => Fate::Sent,
        api::RecipientState::Assumed => Fate::Assumed,
        api::RecipientState::Dead => Fate::Dead,
        api::RecipientState::Suppressed => Fate::Suppressed,
        api::RecipientState::Expired => Fate::Expired,
        api::RecipientState::Cancelled => Fate::Cancelled,
        api::RecipientState::InDoubt => Fate::InDoubt,
    })
}

fn of_run(run: &api::Run) -> Option<Run> {
    let cause = match run.cause() {
        api::RunCause::Unspecified => return None,
        api::RunCause::Due => RunCause::Due,
        api::RunCause::CatchUp => RunCause::CatchUp,
        api::RunCause::Trigger => RunCause::Trigger,
        api::RunCause::Backfill => RunCause::Backfill,
        api::RunCause::Test => RunCause::Test,
    };
    let counts = run.counts?;
    Some(Run {
        run: run.run.clone(),
        tenant: run.tenant.clone(),
        schedule: run.schedule.clone(),
        due_unix_ms: millis(run.due.as_ref()?),
        cause,
        opened_index: run.opened_index,
        opened_unix_ms: millis(run.opened_at.as_ref()?),
        audience: run.audience,
        unfinished: counts.pending + counts.claimed,
    })
}

fn millis(at: &prost_types::Timestamp) -> i64 {
    at.seconds * 1_000 + i64::from(at.nanos) / 1_000_000
}

/// Instants that opened no run; false where time was over before.
async fn instants(admin: &Admin, workload: &Workload, recorder: &Recorder, until: Instant) -> Result<bool> {
    let items = workload.items().clone();
    for item in items {
        if Instant::now() > until {
            return Ok(false);
        }
        for entry in admin.history(&item.name).await? {
            let Some(outcome) = passed_over(entry.outcome()) else { continue };
            recorder.event(&Event::Explained(Explained {
                tenant: TENANT.to_owned(),
                schedule: item.name.clone(),
                // All have one instant.
                first_unix_ms: item.due_ms as i64,
                last_unix_ms: item.due_ms as i64,
                count: entry.count.into(),
                outcome,
                reason: entry.reason,
            }));
        }
    }
    Ok(true)
}

/// None of an instant that fired.
fn passed_over(outcome: api::HistoryOutcome) -> Option<PassedOver> {
    Some(match outcome {
        api::HistoryOutcome::Unspecified | api::HistoryOutcome::Fired => return None,
        api::HistoryOutcome::Coalesced => PassedOver::Coalesced,
        api::HistoryOutcome::Skipped => PassedOver::Skipped,
        api::HistoryOutcome::Expired => PassedOver::Expired,
        api::HistoryOutcome::Refused => PassedOver::Refused,
        api::HistoryOutcome::Waiting => PassedOver::Waiting,
    })
}

/// Schedules and opt-outs that are there.
async fn objects(admin: &Admin, recorder: &Recorder) -> Result<()> {
    for schedule in admin.schedules().await? {
        let due_ms = match schedule.when.and_then(|when| when.pattern) {
            Some(api::when::Pattern::At(at)) => millis(&at) as u64,
            _ => 0,
        };
        recorder.event(&Event::Found(Found {
            noun: Noun::Schedule,
            tenant: TENANT.to_owned(),
            name: schedule.name,
            value: value(due_ms, schedule.recipients),
        }));
    }
    for opt_out in admin.opt_outs().await? {
        recorder.event(&Event::Found(Found {
            noun: Noun::OptOut,
            tenant: TENANT.to_owned(),
            name: opt_out.recipient,
            value: "opted_out".to_owned(),
        }));
    }
    Ok(())
}

/// State hashes of all nodes at one index; false where they did not come to one in time.
async fn hashes(admin: &Admin, recorder: &Recorder) -> Result<bool> {
    let until = Instant::now() + EQUAL_WITHIN;
    loop {
        let status = admin.status().await?;
        let at_ns = recorder.now_ns();
        let members = status.members.len();
        let told = status.members.into_iter().filter_map(|member| {
            let (applied_index, hash) = (member.applied_index?, member.state_hash?);
            Some(StateHash { at_ns, node: member.member?.name, applied_index, hash })
        });
        let told: Vec<StateHash> = told.collect();
        let equal = told.windows(2).all(|pair| pair[0].applied_index == pair[1].applied_index);
        let all = told.len() == members && equal;
        told.into_iter().for_each(|hash| recorder.event(&Event::StateHash(hash)));
        if all || Instant::now() > until {
            return Ok(all);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

//! After everything was mended: waits until nothing is left to send, and reads what the ledger says of each
//! recipient, into the history.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use reveille_check::history::{Event, Explained, Found, Noun, OPTED_OUT, Part, PassedOver, Run, RunCause, StateHash};
use reveille_proto::admin::v1 as api;

use super::operator::Operator;
use super::readers;
use super::recorder::Recorder;
use super::stories::{self, Clocks, Whom};
use super::workload::{BELL, TENANTS, Workload, value};
use crate::admin::Admin;

const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Nothing may move for so long before it counts as drained: who is in doubt may yet be resolved by a journal.
const STAYS_FOR: Duration = Duration::from_secs(3);
/// Between two looks at the state hashes while faults are in force, and how long a look waits for its answer.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
const SAMPLE_WITHIN: Duration = Duration::from_secs(2);
/// State hashes of all nodes are looked for at one index for so long.
const EQUAL_WITHIN: Duration = Duration::from_secs(10);

/// Waits until every schedule has its run and nobody is pending or claimed; answers whether it came so far. What is held
/// still is let go again when nothing else is left: what stood before it may have come to its end only then.
pub async fn drain(operator: &mut Operator, until: Instant, mut look: impl FnMut() -> Result<()>) -> Result<bool> {
    let (mut former, mut since) = (Vec::new(), Instant::now());
    loop {
        look()?;
        let runs = all_runs(&operator.admin).await?;
        for run in runs.iter().filter(|run| run.state() == api::RunState::Paused) {
            operator.recorder.event(&Event::Paused { run: run.run.clone() });
            eprintln!("  {} is paused ({}): {}", run.run, run.reason, operator.resume(&run.tenant, &run.run).await);
        }
        let counts: Vec<api::RunCounts> = runs.iter().filter_map(|run| run.counts).collect();
        let left: u32 = counts.iter().map(|counts| counts.pending + counts.claimed).sum();
        let opened = runs.iter().filter(|run| run.schedule != BELL).count();
        let due = operator.workload.instants_ms().len();
        if counts != former {
            (former, since) = (counts, Instant::now());
        }
        if opened >= due && left == 0 && since.elapsed() >= STAYS_FOR {
            operator.recorder.event(&Event::Drained { at_ns: operator.recorder.now_ns() });
            return Ok(true);
        }
        if left == 0 && opened < due {
            operator.let_all_go(until).await;
        }
        if Instant::now() > until {
            eprintln!("not drained: {opened} of {due} runs opened, {left} recipients pending or claimed");
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Reads everything, until this instant at the latest; answers which parts were read completely.
pub async fn read(
    admin: &Admin,
    workload: &Workload,
    recorder: &Recorder,
    clocks: &Clocks,
    until: Instant,
) -> Result<Vec<Part>> {
    // Every run, by its name: the schedule.
    let mut runs = BTreeMap::new();
    for run in all_runs(admin).await? {
        runs.insert((run.tenant.clone(), run.run.clone()), run.schedule.clone());
        recorder.event(&Event::Run(of_run(&run).with_context(|| format!("{} has no {{due}}", run.run))?));
    }
    let mut whole = vec![Part::Runs];
    let wanted = wanted(workload, &runs);
    if stories::read(admin, recorder, clocks, wanted, until).await? {
        whole.extend([Part::Claims, Part::Outcomes, Part::Standings]);
        if clocks.are_right() {
            whole.push(Part::OpenRows);
        }
    }
    if instants(admin, workload, recorder, until).await? {
        whole.push(Part::Instants);
    }
    objects(admin, recorder).await?;
    whole.push(Part::Objects);
    if hashes(admin, recorder).await? {
        whole.push(Part::StateHashes);
    }
    Ok(whole)
}

/// Runs of both tenants.
async fn all_runs(admin: &Admin) -> Result<Vec<api::Run>> {
    let mut runs = Vec::new();
    for tenant in TENANTS {
        runs.extend(admin.of_tenant(tenant).runs().await?);
    }
    Ok(runs)
}

/// Everybody who was due. `runs` are schedules by tenant and run.
fn wanted(workload: &Workload, runs: &BTreeMap<(String, String), String>) -> Vec<Whom> {
    let mut wanted = Vec::new();
    for ((tenant, run), schedule) in runs {
        let item = workload.find(schedule);
        // A run of something that nobody asked for has nobody that could be named; its mails will be unexplained.
        let whom = |recipient| Whom { tenant: tenant.clone(), run: run.clone(), recipient };
        wanted.extend(item.iter().flat_map(|item| item.addresses()).map(whom));
    }
    wanted
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

/// Instants that opened no run, as the ledger names them; false where time was over before all were read, or where a name
/// cannot be read.
async fn instants(admin: &Admin, workload: &Workload, recorder: &Recorder, until: Instant) -> Result<bool> {
    let items = workload.items().clone();
    for item in items {
        if Instant::now() > until {
            return Ok(false);
        }
        let zone = TimeZone::get(item.zone())?;
        for entry in admin.of_tenant(item.tenant()).history(&item.name).await? {
            let Some(outcome) = passed_over(entry.outcome()) else { continue };
            let named = [&entry.nominal, &entry.last].map(|name| instant_ms(name, &zone));
            let [Some(first_unix_ms), Some(last_unix_ms)] = named else { return Ok(false) };
            recorder.event(&Event::Explained(Explained {
                tenant: item.tenant().to_owned(),
                schedule: item.name.clone(),
                first_unix_ms,
                last_unix_ms,
                count: u64::from(entry.count),
                outcome,
                reason: entry.reason,
            }));
        }
    }
    Ok(true)
}

/// When an occurrence of this name is due: an instant is written as such, a time of day as civil time in the zone.
fn instant_ms(name: &str, zone: &TimeZone) -> Option<i64> {
    if let Ok(instant) = name.parse::<Timestamp>() {
        return Some(instant.as_millisecond());
    }
    let (civil, is_second) = name.strip_suffix(" (second)").map_or((name, false), |civil| (civil, true));
    let at = zone.to_ambiguous_zoned(civil.parse::<DateTime>().ok()?);
    let at = if is_second { at.later() } else { at.compatible() };
    Some(at.ok()?.timestamp().as_millisecond())
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

/// Schedules, campaigns and opt-outs that are there.
async fn objects(admin: &Admin, recorder: &Recorder) -> Result<()> {
    for tenant in TENANTS {
        objects_of(&admin.of_tenant(tenant), tenant, recorder).await?;
    }
    Ok(())
}

async fn objects_of(admin: &Admin, tenant: &str, recorder: &Recorder) -> Result<()> {
    for schedule in admin.schedules().await? {
        let value = readers::shown(&schedule);
        recorder.event(&Event::Found(Found {
            noun: Noun::Schedule,
            tenant: tenant.to_owned(),
            name: schedule.name,
            value,
        }));
    }
    for campaign in admin.campaigns().await? {
        recorder.event(&Event::Found(Found {
            noun: Noun::Campaign,
            tenant: tenant.to_owned(),
            name: campaign.name,
            value: value(campaign.at.as_ref().map_or(0, millis) as u64, campaign.recipients),
        }));
    }
    for opt_out in admin.opt_outs().await? {
        recorder.event(&Event::Found(Found {
            noun: Noun::OptOut,
            tenant: tenant.to_owned(),
            name: opt_out.recipient,
            value: OPTED_OUT.to_owned(),
        }));
    }
    Ok(())
}

/// Reads the state hashes of all nodes each second, also while they are busy: each hashes its state at common indexes. So a
/// node that differs is seen before a snapshot replaces its state.
pub async fn sample_hashes(admin: Admin, recorder: Recorder) {
    let mut known: BTreeMap<(String, u64), String> = BTreeMap::new();
    loop {
        tokio::time::sleep(SAMPLE_EVERY).await;
        // Without a leader there is no answer, and nothing is applied.
        let Ok(Ok(status)) = tokio::time::timeout(SAMPLE_WITHIN, admin.status()).await else { continue };
        for hash in checkpoints(status, recorder.now_ns()) {
            let index = (hash.node.clone(), hash.applied_index);
            if known.insert(index, hash.hash.clone()).as_ref() != Some(&hash.hash) {
                recorder.event(&Event::StateHash(hash));
            }
        }
    }
}

/// At the indexes that all nodes hash, and at the last one of a node that is quiet.
fn checkpoints(status: api::GetClusterStatusResponse, at_ns: u64) -> Vec<StateHash> {
    let each = status.members.into_iter().filter_map(|member| Some((member.member?.name, member.checkpoints)));
    let hashes = each.flat_map(|(node, checkpoints)| {
        checkpoints.into_iter().map(move |checkpoint| StateHash {
            at_ns,
            node: node.clone(),
            applied_index: checkpoint.index,
            hash: checkpoint.state_hash,
        })
    });
    hashes.collect()
}

/// Of nodes that are quiet.
fn told(status: api::GetClusterStatusResponse, at_ns: u64) -> Vec<StateHash> {
    let told = status.members.into_iter().filter_map(|member| {
        let (applied_index, hash) = (member.applied_index?, member.state_hash?);
        Some(StateHash { at_ns, node: member.member?.name, applied_index, hash })
    });
    told.collect()
}

/// State hashes of all nodes at one index; false where they did not come to one in time.
async fn hashes(admin: &Admin, recorder: &Recorder) -> Result<bool> {
    let until = Instant::now() + EQUAL_WITHIN;
    loop {
        let status = admin.status().await?;
        let members = status.members.len();
        let told = told(status, recorder.now_ns());
        let equal = told.windows(2).all(|pair| pair[0].applied_index == pair[1].applied_index);
        let all = told.len() == members && equal;
        told.into_iter().for_each(|hash| recorder.event(&Event::StateHash(hash)));
        if all || Instant::now() > until {
            return Ok(all);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrence_names_are_read_as_instants_of_their_zone() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap().as_millisecond());
        for (name, instant) in [
            ("2026-03-28T09:00:00.5Z", "2026-03-28T09:00:00.5Z"),
            ("2026-03-28T09:00:00", "2026-03-28T08:00:00Z"),
            ("2026-03-30T09:00:00", "2026-03-30T07:00:00Z"),
            ("2026-10-25T02:30:00", "2026-10-25T00:30:00Z"),
            ("2026-10-25T02:30:00 (second)", "2026-10-25T01:30:00Z"),
        ] {
            assert_eq!(instant_ms(name, &berlin), at(instant), "{name}");
        }
        assert_eq!(instant_ms("trigger 7", &berlin), None);
    }
}

//! Reads the final state from the cluster into the history: runs, recipients, instants that opened no run, objects, and
//! the hashes of the nodes' states.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use reveille_check::events::{Event, Explained, Found, LISTED, OPTED_OUT, ObjectKind, Run, RunCause, StateHash};
use reveille_check::names::Name;
use reveille_harness::AdminClient;
use reveille_harness::admin::PAGE_SIZE;
use reveille_proto::admin::v1 as api;

use super::recipients::LedgerRecorder;
use super::recorder::Recorder;
use super::{millis, same_name};
use crate::run::ARCHIVE_AFTER;
use crate::run::clients::{templates, uploads};
use crate::run::workload::{ItemKind, TENANT, TENANTS, Workload, WorkloadItem, value, value_of};

/// Interval of sampling state hashes during the faults, and timeout of one sample.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
const SAMPLE_WITHIN: Duration = Duration::from_secs(2);
/// Maximum time at the end until all nodes have hashes of one index. Idle nodes hash their last index, and there are
/// entries until the last run is archived.
const EQUAL_WITHIN: Duration = Duration::from_secs(ARCHIVE_AFTER + 20);
const POLL_EVERY: Duration = Duration::from_millis(300);

/// Reads everything, until `until` at the latest. Returns what could not be read.
pub async fn read(
    admin: &AdminClient,
    workload: &Workload,
    ledger: &LedgerRecorder,
    until: Instant,
) -> Result<Vec<String>> {
    let (mut recipients, erased) = (BTreeSet::new(), workload.erased());
    for run in all_runs(admin).await? {
        // The recipients of an unknown schedule are unknown, so their emails are unexplained.
        let item = workload.find(item_of(&run, workload));
        for (number, recipient) in (0..).zip(item.iter().flat_map(|item| item.addresses())) {
            let number = erased.contains(&recipient).then_some(number);
            recipients.insert((run.tenant.clone(), run.run.clone(), recipient, number));
        }
        ledger.event(&Event::Run(of_run(&run).with_context(|| format!("{} has no {{due}}", run.run))?));
    }
    let mut missing = Vec::new();
    if !ledger.recipients(admin, recipients.into_iter().collect(), until).await? {
        missing.push("the time was over before each recipient was read".to_owned());
    }
    if !instants(admin, workload, ledger, until).await? {
        missing.push("instants without a run".to_owned());
    }
    objects(admin, workload, ledger).await?;
    if !hashes(admin, ledger).await? {
        missing.push("state hashes of all nodes at one index".to_owned());
    }
    Ok(missing)
}

/// Returns the runs of all tenants.
pub async fn all_runs(admin: &AdminClient) -> Result<Vec<api::Run>> {
    let mut runs = Vec::new();
    for tenant in TENANTS {
        runs.extend(admin.of_tenant(tenant).runs().await?);
    }
    Ok(runs)
}

/// Returns the name of the item that has the run's recipients: its schedule, the key of its message, or the request id
/// of a trigger with a list.
fn item_of<'a>(run: &'a api::Run, workload: &Workload) -> &'a str {
    let id = request_id_of(run);
    let is_list = || workload.find(id).is_some_and(|item| item.kind == ItemKind::List);
    if run.cause() == api::RunCause::Trigger && is_list() { id } else { schedule_of(run) }
}

/// Returns the request id of the run's trigger, or the key of its message.
fn request_id_of(run: &api::Run) -> &str {
    run.occurrence.strip_prefix("trigger ").unwrap_or(&run.occurrence)
}

/// Returns the name of the run's schedule, or the key of its message.
fn schedule_of(run: &api::Run) -> &str {
    if run.cause() == api::RunCause::Message { &run.occurrence } else { &run.schedule }
}

fn of_run(run: &api::Run) -> Option<Run> {
    let cause: RunCause = same_name(run.cause().as_str_name(), "RUN_CAUSE_")?;
    Some(Run {
        run: Name::from(&run.run),
        tenant: Name::from(&run.tenant),
        schedule: Name::from(schedule_of(run)),
        due_unix_ms: millis(run.due_time.as_ref()?),
        cause,
        request_id: cause.is_asked_for().then(|| request_id_of(run).into()),
        opened_index: run.opened_index,
        opened_unix_ms: millis(run.open_time.as_ref()?),
        waited_for: None,
    })
}

/// Records the instants that opened no run, as the ledger names them. Returns false if the time was over, or a name
/// cannot be parsed.
async fn instants(admin: &AdminClient, workload: &Workload, ledger: &LedgerRecorder, until: Instant) -> Result<bool> {
    let items = workload.items().clone();
    for item in items.into_iter().filter(WorkloadItem::is_schedule) {
        if Instant::now() > until {
            return Ok(false);
        }
        let zone = TimeZone::get(item.zone())?;
        let (history, _) = admin.of_tenant(item.tenant()).history_page(&item.name, PAGE_SIZE, String::new()).await?;
        for entry in history {
            // The history has no reason of an instant that fired.
            let Some(outcome) = same_name(entry.outcome().as_str_name(), "HISTORY_OUTCOME_") else { continue };
            let named = [&entry.occurrence, &entry.last].map(|name| instant_ms(name, &zone));
            let [Some(first_unix_ms), Some(last_unix_ms)] = named else { return Ok(false) };
            ledger.event(&Event::Explained(Explained {
                tenant: item.tenant().into(),
                schedule: Name::from(&item.name),
                first_unix_ms,
                last_unix_ms,
                count: u64::from(entry.count),
                outcome,
            }));
        }
    }
    Ok(true)
}

/// Returns the instant of an occurrence, by its name: an instant, or civil time in the zone.
fn instant_ms(name: &str, zone: &TimeZone) -> Option<i64> {
    if let Ok(instant) = name.parse::<Timestamp>() {
        return Some(instant.as_millisecond());
    }
    let (civil, is_second) = name.strip_suffix(" (second)").map_or((name, false), |civil| (civil, true));
    let at = zone.to_ambiguous_zoned(civil.parse::<DateTime>().ok()?);
    let at = if is_second { at.later() } else { at.compatible() };
    Some(at.ok()?.timestamp().as_millisecond())
}

/// Records the existing schedules, campaigns, templates, audiences and opt-outs, and erased recipients that are found.
async fn objects(admin: &AdminClient, workload: &Workload, ledger: &LedgerRecorder) -> Result<()> {
    for tenant in TENANTS {
        let admin = admin.of_tenant(tenant);
        let found = |kind, name: String, value: String| {
            ledger.event(&Event::Found(Found { kind, tenant: tenant.to_owned(), name, value }));
        };
        for schedule in admin.schedules().await? {
            let value = value_of(&schedule);
            found(ObjectKind::Schedule, schedule.name, value);
        }
        for campaign in admin.campaigns().await? {
            let value = value(campaign.send_time.as_ref().map_or(0, millis), campaign.recipients);
            found(ObjectKind::Campaign, campaign.name, value);
        }
        for opt_out in admin.opt_outs().await? {
            found(ObjectKind::OptOut, opt_out.recipient, OPTED_OUT.to_owned());
        }
        for (name, version, content) in admin.template_versions().await? {
            found(ObjectKind::TemplateVersion, format!("{name}@{version}"), templates::value_of(&content));
        }
        for audience in admin.audiences().await? {
            let value = uploads::value(audience.recipients, audience.parts as usize);
            found(ObjectKind::Audience, audience.name, value);
        }
        // Lists do not show opt-outs of erased recipients.
        for recipient in workload.erased().into_iter().filter(|_| tenant == TENANT) {
            let places = admin.places_of(&recipient).await?;
            if places.iter().any(|place| place.kind() != api::PlaceKind::OptOut) {
                found(ObjectKind::Person, recipient.clone(), LISTED.to_owned());
            }
            if admin.is_opted_out(&recipient).await? {
                found(ObjectKind::OptOut, recipient, OPTED_OUT.to_owned());
            }
        }
    }
    Ok(())
}

/// Reads the state hashes of all nodes each second. Nodes hash their states at common indexes even while they are busy,
/// so a different state is observed before a snapshot replaces it.
pub async fn sample_hashes(admin: AdminClient, recorder: Recorder) {
    let mut known: BTreeMap<(String, u64), String> = BTreeMap::new();
    loop {
        tokio::time::sleep(SAMPLE_EVERY).await;
        // Without a leader there is no answer, and no node applies entries.
        let Ok(Ok(status)) = tokio::time::timeout(SAMPLE_WITHIN, admin.status()).await else { continue };
        for hash in checkpoints(status) {
            let index = (hash.node.clone(), hash.applied_index);
            if known.insert(index, hash.hash.clone()).as_ref() != Some(&hash.hash) {
                recorder.event(&Event::StateHash(hash));
            }
        }
    }
}

/// Returns the hashes at the common indexes.
fn checkpoints(status: api::GetClusterStatusResponse) -> Vec<StateHash> {
    let each = status.members.into_iter().filter_map(|member| Some((member.member?.name, member.checkpoints)));
    let hashes = each.flat_map(|(node, checkpoints)| {
        checkpoints.into_iter().map(move |checkpoint| StateHash {
            node: node.clone(),
            applied_index: checkpoint.index,
            hash: checkpoint.state_hash,
        })
    });
    hashes.collect()
}

/// Returns the hashes of idle nodes at their last index.
fn last_hashes(status: api::GetClusterStatusResponse) -> Vec<StateHash> {
    let hashes = status.members.into_iter().filter_map(|member| {
        let (applied_index, hash) = (member.applied_index?, member.state_hash?);
        Some(StateHash { node: member.member?.name, applied_index, hash })
    });
    hashes.collect()
}

/// Records state hashes of all nodes at one index. Returns false if the nodes did not reach such an index in time.
async fn hashes(admin: &AdminClient, ledger: &LedgerRecorder) -> Result<bool> {
    let until = Instant::now() + EQUAL_WITHIN;
    loop {
        let status = admin.status().await?;
        let members = status.members.len();
        let hashes = last_hashes(status);
        let equal = hashes.windows(2).all(|pair| pair[0].applied_index == pair[1].applied_index);
        let all = hashes.len() == members && equal;
        hashes.into_iter().for_each(|hash| ledger.event(&Event::StateHash(hash)));
        if all || Instant::now() > until {
            return Ok(all);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrence_name_is_parsed_in_its_zone() {
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

//! Checks the nodes: leader, missing and lagging nodes, clocks, and equality of the replicas.

use std::collections::{BTreeMap, BTreeSet};

use reveille_proto::admin::v1::{
    BackupStatus, Checkpoint, DamagedFile, GetClusterStatusResponse, GetUpgradeResponse, LostFiles, MemberRole,
    MemberStatus,
};

use crate::cli::instant;
use crate::cli::view::cluster::{
    backlog_sentence, blocked_sentence, lost_sentence, more_blocked, name, no_quorum, sent_in_backoff, votes,
    wrong_clocks,
};
use crate::cli::view::doctor::Finding;
use crate::cli::view::pool;
use crate::cli::view::scrub::{consequence, damage};
use crate::cli::view::upgrade::forgotten;
use crate::cli::wording::shortage;
use crate::format;

/// Entries that a follower may lag. Some are normal at any moment, and hundreds in a busy second.
const LAG_MAX: u64 = 1_000;

const STATUS: &str = "reveille cluster status";

/// Checks all that a status reports. `own_tzdb` is the time zone release in this binary.
pub fn findings(status: &GetClusterStatusResponse, own_tzdb: &str) -> Vec<Finding> {
    let mut findings = leadership(status);
    if status.restore.as_ref().is_some_and(|restore| restore.accept_time.is_none()) {
        let why = "nothing fires and nothing is sent until you accept it, since the former cluster may still send";
        let what = "restored from a backup, and not accepted".to_owned();
        findings.push(Finding::problem("restore", what, why, "reveille restore status"));
    }
    findings.extend(status.members.iter().filter_map(finding_about_member));
    findings.extend(status.members.iter().filter_map(room));
    findings.extend(status.members.iter().flat_map(damaged_files));
    findings.extend(crash_backoffs(&status.members));
    findings.extend(states(&status.members));
    findings.extend(agreement(status));
    findings.extend(releases(&status.members, own_tzdb));
    findings.extend(status.backups.as_ref().and_then(backups));
    findings.extend(status.lost_files.as_ref().map(lost_files));
    findings.extend(status.blocked.iter().map(|run| {
        let why = "recipients that wait for it get no email, and expire when the run's time is over";
        let next = format!("reveille run show {}; it goes on by itself when a node has it again", run.run);
        Finding::problem("blocked", blocked_sentence(run), why, next)
    }));
    findings.extend(more_blocked(status.blocked_count, status.blocked.len()).map(|more| {
        let next = "start the nodes that have the parts of those above; or import the same lists again";
        Finding::problem("blocked", more, "too many to name each", next)
    }));
    findings.extend(status.backlogs.iter().map(|late| {
        let why = "it was missed and is caught up, or backfilled; what is on time goes before it";
        let next = "wait; or look at the relays (reveille relay list), and raise relay add --late-rate-per-second";
        Finding::warning("backlog", backlog_sentence(late), why, next)
    }));
    findings.extend(status.pools_used_up.iter().map(|pool| {
        let next = format!("wait; or, if its reputation allows more, reveille pool set {} --warm-up N,…", pool.name);
        Finding::warning("warm_up", pool::sentence(pool), "it is warmed up: each of its days has a cap", next)
    }));
    findings
}

/// Reports files that every voter lacks, and what needs them.
fn lost_files(lost: &LostFiles) -> Finding {
    let why = "such runs do not send, a backup lacks them, and a search for a person leaves them out; all else goes on";
    let next = "reveille backup create takes them from the target, if it has them; else import the same list again, \
                send the same attachment again, or cancel the runs; ended runs forget them in the archive";
    Finding::problem("lost_files", lost_sentence(lost), why, next)
}

/// Reports a backup that failed, or that is too old.
fn backups(backups: &BackupStatus) -> Option<Finding> {
    let time = |time: Option<&_>| time.and_then(instant::from_wire).map(|time| time.to_string());
    let last =
        time(backups.last_time.as_ref()).map_or("there is none".to_owned(), |last| format!("the last is of {last}"));
    let what = match time(backups.failed_time.as_ref()) {
        Some(failed) => format!("no backup was made at {failed}; {last}"),
        None if backups.overdue => format!("a backup is overdue; {last}"),
        None => return None,
    };
    let why = "if all nodes lost their disks, everything after the last backup but opt-outs would be lost";
    let next = "the leader's log says why; make the target writable, then: reveille backup create";
    Some(Finding::problem("backup", what, why, next))
}

fn leadership(status: &GetClusterStatusResponse) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(what) = no_quorum(&status.members) {
        let why = "nothing is written, and nothing new is sent, until a majority of the voters runs";
        findings.push(Finding::problem("quorum", what, why, "start them again: reveille start --config FILE"));
    }
    if status.leader.is_empty() {
        let what = format!("{} knows no leader", status.answered_by);
        let why = "nothing fires and nothing can be changed without one; an election takes about a second";
        findings.push(Finding::problem("leader", what, why, format!("{STATUS}; if it stays, look at the nodes' logs")));
    }
    findings
}

fn finding_about_member(member: &MemberStatus) -> Option<Finding> {
    if is_lost(member) {
        let address = member.member.as_ref().map(|member| member.address.as_str()).unwrap_or_default();
        let what = format!("{} ({address}) does not answer", name(member));
        let why = "what it had claimed waits or comes into doubt, and the cluster survives one loss less";
        let next = format!("look at its log, and start it again with its folders: reveille start on {}", name(member));
        let finding = if votes(member) { Finding::problem } else { Finding::warning };
        return Some(finding("node", what, why, next));
    }
    if member.stopping {
        let what = format!("{} is stopping", name(member));
        let why = "it takes no new work, and the cluster survives one loss less until it runs again";
        let next = format!("wait until it has ended, then start it again: reveille start on {}", name(member));
        return Some(Finding::warning("node", what, why, next));
    }
    let lag = member.lag.filter(|lag| *lag > LAG_MAX)?;
    let what = format!("{} lacks {} log entries of what is committed", name(member), format::count(lag));
    let why = "it sends nothing under a claim that it has not applied, and fails over late";
    Some(Finding::warning("lag", what, why, format!("{STATUS}, again: it must shrink; else look at its disk and CPU")))
}

/// Reports a node whose volume has no room for new work or for parts of audiences.
fn room(member: &MemberStatus) -> Option<Finding> {
    let what = format!("{} is short of space: {}", name(member), shortage(member.no_room.as_ref()?));
    let why = "it refuses new work and imports, and its log will be next: a node whose log finds no room stops";
    let next =
        format!("free space on that volume of {}; an import goes on by itself, or by the same command", name(member));
    Some(Finding::problem("no_room", what, why, next))
}

/// Reports files that the scrub found damaged.
fn damaged_files(member: &MemberStatus) -> Vec<Finding> {
    let finding = |file: &DamagedFile| {
        let what = format!("{} of {} is damaged: {}", file.path, name(member), damage(file));
        let next = format!(
            "the same in a minute; if it stays, replace the disk: reveille cluster member remove {}, then add",
            name(member)
        );
        Finding::problem("damaged_file", what, consequence(name(member), file), next)
    };
    member.damaged.iter().map(finding).collect()
}

/// Reports nodes that get no claims, or an eighth of them, because they crashed three times within ten minutes.
fn crash_backoffs(members: &[MemberStatus]) -> Vec<Finding> {
    let sends = |member: &&MemberStatus| !is_lost(member) && member.crash_backoff_end_time.is_none();
    let others_send = members.iter().any(|member| sends(&member));
    let slow = members.iter().find(|member| !is_lost(member) && member.crash_backoff_eighths > 0);
    let found = members.iter().filter_map(|member| {
        let until = instant::from_wire(member.crash_backoff_end_time.as_ref()?)?;
        let sent = sent_in_backoff(member.crash_backoff_eighths);
        let what = format!("{} crashed three times within ten minutes and sends {sent} until {until}", name(member));
        let next = format!("look for the cause in the log of {}; it sends again by itself", name(member));
        Some(match slow {
            _ if others_send => {
                Finding::warning("crash_backoff", what, "the other nodes send what it would have sent", next)
            }
            Some(slow) => {
                let why = format!("all nodes crashed so: only {} sends, and slowly, so emails are late", name(slow));
                Finding::problem("crash_backoff", what, why, next)
            }
            None => Finding::problem("crash_backoff", what, "no other node can send: emails wait until then", next),
        })
    });
    found.collect()
}

/// Reports replicas that differ. States at an equal log index must be equal, so this is a bug or a damaged folder.
fn states(members: &[MemberStatus]) -> Vec<Finding> {
    let mut by_index: BTreeMap<u64, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for member in members {
        for Checkpoint { index, state_hash } in &member.checkpoints {
            by_index.entry(*index).or_default().entry(state_hash).or_default().push(name(member));
        }
    }
    // Only the first difference is reported; later ones follow from it.
    let differing = by_index.into_iter().filter(|(_, hashes)| hashes.len() > 1).take(1);
    let found = differing.map(|(index, hashes)| {
        let sides: Vec<String> = hashes.values().map(|names| names.join(" and ")).collect();
        let what = format!("the states of {} differ at log index {index}", sides.join(", "));
        let why = "one of them would decide differently as leader than the others would";
        let next = "pause what sends (reveille run pause RUN), keep all data folders, and report it";
        Finding::problem("state", what, why, next)
    });
    found.collect()
}

fn agreement(status: &GetClusterStatusResponse) -> Vec<Finding> {
    let mut findings = Vec::new();
    let alone = status.members.iter().filter(|member| votes(member)).count() == 1;
    if status.epoch > 0 && !status.clocks_agree && alone {
        let what = "the clock of the only node was moved by more than an hour while its machine ran".to_owned();
        let next = "set it right; or, if it is right now, start the node once with --accept-clock";
        findings.push(Finding::problem("clocks", what, "nothing fires until it is right, or you say that it is", next));
    } else if status.epoch > 0 && !status.clocks_agree {
        let what = "no two voters' clocks agreed when this leadership began".to_owned();
        let next = format!("set the clocks (chrony, ntpd), then: {STATUS}");
        findings.push(Finding::problem("clocks", what, "nothing fires until two of them agree within 2s", next));
    }
    findings.extend(wrong_clocks(&status.members).into_iter().map(|(what, next)| {
        let why = "an instant would come early or late if a node with a wrong clock led alone";
        Finding::problem("clock", what, why, format!("{next} (chrony, ntpd), then: {STATUS}"))
    }));
    findings
}

fn releases(members: &[MemberStatus], own_tzdb: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let said = |what: fn(&MemberStatus) -> Option<&str>| {
        let mut by_release: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (release, member) in members.iter().filter_map(|member| Some((what(member)?, member))) {
            by_release.entry(release).or_default().push(name(member));
        }
        by_release
    };
    let zones = said(|member| member.tzdb.as_deref());
    if zones.len() > 1 {
        let what = format!("the nodes' time zones differ: {}", listed(&zones));
        let why = "the leader's decide, so a local time may move when another leads";
        findings.push(Finding::warning("time_zones", what, why, "finish the upgrade: the same binary on every node"));
    }
    let older: BTreeSet<&str> = zones.keys().copied().filter(|release| *release < own_tzdb).collect();
    if let Some(oldest) = older.first() {
        let what = format!("this binary has the time zones {own_tzdb}, and nodes still have {oldest}");
        let why = "rules that governments changed since then are not known to them";
        findings.push(Finding::warning("time_zones", what, why, "upgrade the nodes, one after the other"));
    }
    let versions = said(|member| member.version.as_deref());
    if versions.len() > 1 {
        let what = format!("the nodes run different versions: {}", listed(&versions));
        let why = "an upgrade that is not finished is hard to reason about";
        findings.push(Finding::warning("version", what, why, "finish the upgrade, one node after the other"));
    }
    findings
}

/// Reports an upgrade that is not finished for a week.
pub fn forgotten_upgrade(upgrade: &GetUpgradeResponse) -> Option<Finding> {
    let what = forgotten(upgrade)?;
    let why = "until it is finished, the cluster works at the ledger level of the former release";
    Some(Finding::warning("upgrade", what, why, "reveille cluster upgrade status names what is missing"))
}

fn listed(by_release: &BTreeMap<&str, Vec<&str>>) -> String {
    by_release
        .iter()
        .map(|(release, names)| format!("{release} on {}", names.join(", ")))
        .collect::<Vec<_>>()
        .join("; ")
}

fn is_lost(member: &MemberStatus) -> bool {
    member.role() == MemberRole::Unreachable
}

//! Explains why a pending recipient is not claimed. The state of its run, canary and pool comes from the ledger. The
//! state of its relays is that of the node that answers.

use std::collections::{BTreeMap, BTreeSet};

use reveille_cluster::leader::claims::limits::late_rate;
use reveille_cluster::smtp::{CircuitStatus, RelayStatus};
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::command::Relay;
use reveille_ledger::explain::RecipientExplanation;
use reveille_ledger::ids::{Hash, RunId, Time};
use reveille_ledger::pool::Day;
use reveille_ledger::{Ledger, Page, RecipientState, Run, RunFile, RunState};
use reveille_proto::admin::v1::{ExplainedWait, UnavailableRelay, WaitReason};

use crate::server::admin::views::{canary, health, missing_file, pause, timestamp};

/// What the answering node knows in addition to the ledger.
pub struct WaitContext {
    /// Name of the node.
    pub node: String,
    /// Status of its relays, by name.
    pub relays: BTreeMap<String, RelayStatus>,
    /// Files that the node does not have yet (P20).
    pub missing: BTreeSet<Hash>,
}

/// Returns what recipient `number` of a run waits for. Returns `None` if it is not pending.
pub fn describe(
    ledger: &Ledger,
    (id, number): (RunId, u32),
    (page, run, history): (&Page, &Run, &RecipientExplanation),
    around: &WaitContext,
) -> Option<ExplainedWait> {
    if history.state != RecipientState::Pending {
        return None;
    }
    let now = ledger.head().now;
    let place = ledger.slot_of(id, number);
    let pool = place.map_or(&*page.pool, |(chunk, slot)| ledger.pool_of(page, chunk, slot));
    Some(match &run.state {
        RunState::Paused { reason } => ExplainedWait { pause: Some(pause(reason)), ..for_(WaitReason::RunPaused) },
        _ if page.due > now => until(WaitReason::SendTime, page.due),
        _ if run.finish_by <= now => until(WaitReason::Expires, run.finish_by),
        _ if run.waits_for_canary() && !run.is_of_canary(number) => {
            ExplainedWait { canary: run.canary.map(canary), ..for_(WaitReason::Canary) }
        }
        _ => match (history.waits_until.filter(|until| *until > now), history.kept_apart_by) {
            (Some(next), Some(other)) => {
                ExplainedWait { other_run: other.to_string(), ..until(WaitReason::MinGap, next) }
            }
            (Some(next), None) => {
                let obstacle = obstacle(ledger, pool, around).unwrap_or_default();
                ExplainedWait { pool: obstacle.pool, relays: obstacle.relays, ..until(WaitReason::NextAttempt, next) }
            }
            (None, _) => for_a_node(ledger, (id, number), (page, pool), around),
        },
    })
}

fn for_(reason: WaitReason) -> ExplainedWait {
    ExplainedWait { reason: reason.into(), ..ExplainedWait::default() }
}

fn until(reason: WaitReason, time: Time) -> ExplainedWait {
    ExplainedWait { until_time: Some(timestamp(time)), ..for_(reason) }
}

/// Returns why the recipient's pool cannot send now. Returns `None` if at least one of its relays can.
fn obstacle(ledger: &Ledger, pool: &str, around: &WaitContext) -> Option<ExplainedWait> {
    let relays: Vec<&Relay> =
        ledger.relays().iter().map(|(_, relay)| relay).filter(|relay| relay.pool == pool).collect();
    if relays.is_empty() {
        return Some(ExplainedWait { pool: pool.to_owned(), ..for_(WaitReason::NoRelay) });
    }
    let unavailable = |relay: &&Relay| {
        let status = around.relays.get(&relay.name).filter(|status| status.circuit != CircuitStatus::Closed)?;
        let health = health(&around.node, ledger.head().now, status.clone());
        Some(UnavailableRelay { relay: relay.name.clone(), health: Some(health) })
    };
    let unavailable: Vec<UnavailableRelay> = relays.iter().filter_map(unavailable).collect();
    (unavailable.len() == relays.len()).then(|| ExplainedWait { relays: unavailable, ..for_(WaitReason::Relays) })
}

/// Explains why no node has claimed the recipient, although its next attempt is due.
fn for_a_node(
    ledger: &Ledger,
    (id, number): (RunId, u32),
    (page, pool): (&Page, &str),
    around: &WaitContext,
) -> ExplainedWait {
    if let Some(obstacle) = obstacle(ledger, pool, around) {
        return obstacle;
    }
    let run = ledger.run(id);
    let is_waited_for = |file| match file {
        RunFile::Part(part) => part == number / CHUNK,
        RunFile::Attachment => true,
    };
    if let Some(missing) = run.and_then(|run| run.blocked).filter(|missing| is_waited_for(missing.file)) {
        return ExplainedWait { missing: Some(missing_file(missing)), ..for_(WaitReason::MissingFile) };
    }
    let fetched = |reason: WaitReason, file: Hash| ExplainedWait {
        node: around.node.clone(),
        file_hash: file.to_string(),
        ..for_(reason)
    };
    let mut attached = run.into_iter().flat_map(|run| ledger.attached_files(&run.content));
    if let Some(file) = attached.find(|file| around.missing.contains(file)) {
        return fetched(WaitReason::Attachment, file);
    }
    let audience = run.and_then(|run| ledger.seal(&run.audience));
    let part = audience.and_then(|seal| Some((seal.locate(number)?.0, seal.name)));
    if let Some((part, audience)) = part.filter(|(part, _)| around.missing.contains(part)) {
        return ExplainedWait { audience, ..fetched(WaitReason::AudiencePart, part) };
    }
    // Crash backoff never applies to all of several nodes, so it explains a wait only with a single node (P12).
    let mut nodes = ledger.nodes().iter().map(|(_, node)| node);
    if let (Some(node), None) = (nodes.next(), nodes.next())
        && let Some(ends) = node.crashes.backoff_until(ledger.limits()).filter(|ends| *ends > ledger.head().now)
    {
        let count = u32::try_from(ledger.limits().crashes_kept).unwrap_or(u32::MAX);
        return ExplainedWait { node: node.name.clone(), count, ..until(WaitReason::CrashBackoff, ends) };
    }
    let suspect = ledger.slot_of(id, number).is_some_and(|(chunk, slot)| {
        ledger.chunks().get(&chunk).is_some_and(|chunk| chunk.crash_suspects.contains(slot))
    });
    if ledger.remaining_today(pool, ledger.head().now) == Some(0) {
        let ends = Day::of(ledger.head().now).end();
        return ExplainedWait { pool: pool.to_owned(), ..until(WaitReason::PoolCap, ends) };
    }
    let tenant = ledger.tenant(&page.tenant);
    if let Some(count) = tenant.at_once().filter(|most| ledger.claimed_by_tenant(&page.tenant) >= *most) {
        return ExplainedWait { tenant: page.tenant.to_string(), count, ..for_(WaitReason::TenantConcurrency) };
    }
    let paced = |reason: WaitReason| ExplainedWait {
        tenant: tenant.rate().map(|_| page.tenant.to_string()).unwrap_or_default(),
        tenant_rate_per_second: tenant.rate().unwrap_or_default(),
        ..for_(reason)
    };
    match (suspect, late_rate(ledger, pool).filter(|_| page.is_late())) {
        (true, _) => for_(WaitReason::TakenAlone),
        (false, Some(rate)) => {
            ExplainedWait { pool: pool.to_owned(), pool_rate_per_second: rate, ..paced(WaitReason::Late) }
        }
        (false, None) => paced(WaitReason::Node),
    }
}

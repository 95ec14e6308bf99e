//! Explains why a pending recipient is not claimed. The state of its run, canary and pool comes from the ledger. The
//! state of its relays is that of the node that answers.

use std::collections::{BTreeMap, BTreeSet};

use reveille_cluster::leader::claims::limits::late_rate;
use reveille_cluster::smtp::{CircuitStatus, RelayStatus};
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::canary::CanaryState;
use reveille_ledger::command::Relay;
use reveille_ledger::explain::RecipientExplanation;
use reveille_ledger::ids::{Hash, RunId};
use reveille_ledger::pool::Day;
use reveille_ledger::{Ledger, Page, RecipientState, Run, RunFile, RunState};

use crate::server::admin::views::{missing_file, pause};
use crate::wording;

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
) -> Option<String> {
    if history.state != RecipientState::Pending {
        return None;
    }
    let now = ledger.head().now;
    let place = ledger.slot_of(id, number);
    let pool = place.map_or(&*page.pool, |(chunk, slot)| ledger.pool_of(page, chunk, slot));
    Some(match &run.state {
        RunState::Paused { reason } => {
            let reason = wording::pause(&pause(reason));
            let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
            format!("the run is paused{reason}")
        }
        _ if page.due > now => format!("for its send time, {}", page.due),
        _ if run.finish_by <= now => format!("its deadline {} has passed: it expires", run.finish_by),
        _ if run.waits_for_canary() && !run.is_of_canary(number) => for_canary(run),
        _ => match history.waits_until.filter(|until| *until > now) {
            Some(until) if history.kept_apart_by.is_some() => {
                let other = history.kept_apart_by.map(|run| run.to_string()).unwrap_or_default();
                format!("min_gap: it is claimed in {other}, less than the gap away; tried again at {until}")
            }
            Some(until) => {
                let also = obstacle(ledger, pool, around).map(|obstacle| format!("; and {obstacle}"));
                format!("for the next attempt, not before {until}{}", also.unwrap_or_default())
            }
            None => for_a_node(ledger, (id, number), (page, pool), around),
        },
    })
}

/// Describes the progress of the canary (P6).
fn for_canary(run: &Run) -> String {
    let Some(CanaryState { recipients, bad_max, undecided, bad, .. }) = run.canary else { return String::new() };
    format!(
        "for the canary: of {recipients} recipients {undecided} are undecided, {bad} dead or in doubt and {bad_max} may be"
    )
}

/// Returns why the recipient's pool cannot send now. Returns `None` if at least one of its relays can.
fn obstacle(ledger: &Ledger, pool: &str, around: &WaitContext) -> Option<String> {
    let relays: Vec<&Relay> =
        ledger.relays().iter().map(|(_, relay)| relay).filter(|relay| relay.pool == pool).collect();
    if relays.is_empty() {
        return Some(format!("for a relay: pool '{pool}' has none"));
    }
    let unavailable = |relay: &&Relay| why_unavailable(&relay.name, around.relays.get(&relay.name)?);
    let unavailable: Vec<String> = relays.iter().filter_map(unavailable).collect();
    (unavailable.len() == relays.len())
        .then(|| format!("for a relay, as {} sees them: {}", around.node, unavailable.join("; ")))
}

/// Explains why no node has claimed the recipient, although its next attempt is due.
fn for_a_node(
    ledger: &Ledger,
    (id, number): (RunId, u32),
    (page, pool): (&Page, &str),
    around: &WaitContext,
) -> String {
    if let Some(obstacle) = obstacle(ledger, pool, around) {
        return obstacle;
    }
    let run = ledger.run(id);
    let is_waited_for = |file| match file {
        RunFile::Part(part) => part == number / CHUNK,
        RunFile::Attachment => true,
    };
    if let Some(missing) = run.and_then(|run| run.blocked).filter(|missing| is_waited_for(missing.file)) {
        return wording::missing_file(&missing_file(missing));
    }
    let mut attached = run.into_iter().flat_map(|run| ledger.attached_files(&run.content));
    if let Some(file) = attached.find(|file| around.missing.contains(file)) {
        let node = &around.node;
        return format!("for a node that has its attachment: {node} lacks file {file:?} and fetches it");
    }
    let audience = run.and_then(|run| ledger.seal(&run.audience));
    let part = audience.and_then(|seal| Some((seal.locate(number)?.0, seal.name)));
    if let Some((part, name)) = part.filter(|(part, _)| around.missing.contains(part)) {
        let node = &around.node;
        return format!("for a node that has its part of audience '{name}': {node} lacks part {part:?} and fetches it");
    }
    // Crash backoff never applies to all of several nodes, so it explains a wait only with a single node (P12).
    let mut nodes = ledger.nodes().iter().map(|(_, node)| node);
    if let (Some(node), None) = (nodes.next(), nodes.next())
        && let Some(until) = node.crashes.backoff_until(ledger.limits()).filter(|until| *until > ledger.head().now)
    {
        let crashes = ledger.limits().crashes_kept;
        return format!(
            "for {}, which crashed {crashes} times within ten minutes and gets no claims until {until}",
            node.name
        );
    }
    let suspect = ledger.slot_of(id, number).is_some_and(|(chunk, slot)| {
        ledger.chunks().get(&chunk).is_some_and(|chunk| chunk.crash_suspects.contains(slot))
    });
    if ledger.remaining_today(pool, ledger.head().now) == Some(0) {
        let until = Day::of(ledger.head().now).end();
        return format!("for {until}: today's cap of pool '{pool}', which is warmed up, is used up");
    }
    let tenant = ledger.tenant(&page.tenant);
    if let Some(most) = tenant.at_once().filter(|most| ledger.claimed_by_tenant(&page.tenant) >= *most) {
        return format!("for others of tenant '{}', which may have {most} under way at once", page.tenant);
    }
    let paced = tenant.rate().map(|rate| format!("; tenant '{}' has {rate} a second at most", page.tenant));
    let paced = paced.unwrap_or_default();
    match (suspect, late_rate(ledger, pool).filter(|_| page.is_late())) {
        (true, _) => "for a node to take it alone: it was being composed when its node crashed".to_owned(),
        (false, Some(rate)) => {
            format!(
                "for its turn: what is late goes after what is on time, in pool '{pool}' {rate} a second at most{paced}"
            )
        }
        (false, None) => format!("for a node to take it{paced}"),
    }
}

/// Returns why a relay cannot send now. Returns `None` if it can.
fn why_unavailable(name: &str, status: &RelayStatus) -> Option<String> {
    match &status.circuit {
        CircuitStatus::Closed => None,
        CircuitStatus::Open { cause, .. } => Some(format!("relay {name} fails, {cause}")),
        CircuitStatus::Parked { cause, .. } => Some(format!("relay {name} takes no more today, {cause}")),
        CircuitStatus::HalfOpen { cause, .. } => Some(format!("relay {name} is being probed, {cause}")),
    }
}

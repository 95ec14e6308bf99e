//! Checks the relays: pools without a relay, open circuits, and relays that throttle or refuse for long.

use std::collections::BTreeMap;

use reveille_proto::admin::v1::{Relay, RelayCondition, RelayHealth, Schedule, ScheduleState};

use super::named;
use crate::cli::instant;
use crate::cli::next_step::add_relay;
use crate::cli::view::doctor::Finding;
use crate::cli::wording::relay_cause;

/// Checks the relays and the pools that the schedules use.
pub fn findings(relays: &[Relay], schedules: &[Schedule]) -> Vec<Finding> {
    let mut pools: BTreeMap<&str, Vec<&Relay>> = BTreeMap::new();
    for relay in relays {
        pools.entry(pool(&relay.pool)).or_default().push(relay);
    }
    let mut findings = unserved(&pools, schedules);
    for relay in relays {
        let Some(health) = relay.health.as_ref() else { continue };
        match health.condition() {
            RelayCondition::Throttled => findings.push(throttled(relay, health)),
            RelayCondition::Refusing => findings.push(refusing(relay, health)),
            _ => {}
        }
        if !is_open(health) {
            continue;
        }
        let others = pools.get(pool(&relay.pool)).into_iter().flatten();
        let alone = others.filter(|other| !other.health.as_ref().is_some_and(is_open)).count() == 0;
        findings.push(circuit(relay, health, alone));
    }
    findings
}

/// Reports pools without a relay that an active schedule uses. Email never goes through another pool.
fn unserved(pools: &BTreeMap<&str, Vec<&Relay>>, schedules: &[Schedule]) -> Vec<Finding> {
    let mut needed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for schedule in schedules.iter().filter(|schedule| schedule.state() == ScheduleState::Active) {
        needed.entry(pool(&schedule.pool)).or_default().push(&schedule.name);
    }
    let unserved = needed.into_iter().filter(|(pool, _)| !pools.contains_key(pool));
    let found = unserved.map(|(pool, schedules)| {
        let what = format!("no relay is in pool {pool}, by which these send: {}", named(&schedules));
        let why = "their emails wait until they expire; they never go by another pool";
        Finding::problem("relay", what, why, add_relay(pool))
    });
    found.collect()
}

/// Returns why a pool's email waits, if the answering node sends through none of its relays.
pub fn why_pool_waits(relays: &[Relay], of_pool: &str) -> Option<String> {
    let mut of_pool = relays.iter().filter(|relay| pool(&relay.pool) == pool(of_pool)).peekable();
    let first = *of_pool.peek()?;
    let health = first.health.as_ref()?;
    let takes = |relay: &Relay| !relay.health.as_ref().is_some_and(is_open);
    if of_pool.any(takes) {
        return None;
    }
    let cause = cause(health);
    Some(format!(
        "waiting: {} leaves relay {name} alone: {cause}; reveille relay show {name}",
        health.node,
        name = first.name
    ))
}

fn cause(health: &RelayHealth) -> String {
    health.cause.as_ref().map_or_else(|| "no cause was given".to_owned(), relay_cause)
}

/// Reports a relay whose circuit is open on the answering node.
fn circuit(relay: &Relay, health: &RelayHealth, alone: bool) -> Finding {
    let until = instant::text(health.retry_time.as_ref()).map(|until| format!(", until {until}")).unwrap_or_default();
    let what = format!("{} leaves relay {} alone{until}: {}", health.node, relay.name, cause(health));
    let next = format!("reveille relay test {}", relay.name);
    if alone {
        let why = "no other relay is in its pool: those emails wait, and expire at their time";
        return Finding::problem("circuit", what, why, next);
    }
    Finding::warning("circuit", what, "its emails go by the others of its pool, at their rates", next)
}

/// Reports a relay that refused emails because of its own limits, and now gets fewer.
fn throttled(relay: &Relay, health: &RelayHealth) -> Finding {
    let what =
        format!("relay {} refused emails of {} within the last minute: {}", relay.name, health.node, cause(health));
    let why = "its rate was halved and grows back; refused recipients are tried again, and no attempt is counted";
    Finding::warning("throttled", what, why, format!("reveille relay show {}", relay.name))
}

/// Reports a relay that has long refused emails for trouble of its own, or of one sender.
fn refusing(relay: &Relay, health: &RelayHealth) -> Finding {
    let what =
        format!("relay {} refuses emails of {} for ten minutes or more: {}", relay.name, health.node, cause(health));
    let why = "it accepts none of them, or none of one sender: these recipients wait, and expire at their time";
    Finding::problem(
        "refusing",
        what,
        why,
        format!("look into its log, or correct the sender; reveille relay show {}", relay.name),
    )
}

fn is_open(health: &RelayHealth) -> bool {
    matches!(health.condition(), RelayCondition::Failing | RelayCondition::Probing | RelayCondition::Parked)
}

fn pool(name: &str) -> &str {
    if name.is_empty() { "default" } else { name }
}

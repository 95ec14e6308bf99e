//! The relays of this node, which follow the ledger's table of relays.
//!
//! A relay's budget belongs to the cluster. Each node that has a share takes an equal one, so that it is never exceeded
//! across a fail-over (P25). While a node is down its share is unused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, RwLock};
use reveille_ledger::Ledger;
use reveille_ledger::access::is_loopback;
use reveille_ledger::command::Relay;
use reveille_ledger::injected_bugs::{self, Bug};
use tokio::time::{Instant, timeout_at};

use super::{
    CircuitStatus, CredentialStore, Dial, NextPermit, RelayLimits, RelayRules, RelaySessions, RelayStatus, SendPermit,
    Target, Unavailable,
};
use crate::process::peer_messages::RelayFlow;

/// Rate of a relay without a limit: far above what one node can send.
const UNBOUNDED_PER_SECOND: f64 = 1_000_000.0;
/// Burst after a pause, in seconds of the rate: what a late wake-up may catch up with. In any second a relay gets at
/// most its rate plus this part of it (docs/reference/limits.md).
const BURST_SECONDS: f64 = 0.1;

/// The sessions with each relay, by relay name.
pub struct RelayRegistry {
    dialer: Arc<dyn Dial>,
    name: String,
    hello_name: Option<String>,
    credentials: Arc<CredentialStore>,
    reply_rules: RelayRules,
    /// Names of reply rules that matched no relay at the last call of `follow`.
    unmatched_rules: Mutex<BTreeSet<String>>,
    relays: RwLock<BTreeMap<String, Entry>>,
    turn: AtomicU32,
    /// Relays for which an alarm was raised, and that have not recovered since.
    alarmed: Mutex<AlarmedRelays>,
}

/// Reason why there is no permit of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPermit {
    /// The pool has no relay, or no other one.
    NoRelay,
    /// The relay that is available soonest is not available yet.
    Unavailable(Unavailable),
}

/// Names of relays for which an alarm was raised.
#[derive(Default)]
struct AlarmedRelays {
    /// Their daily allowance is used up.
    parked: BTreeSet<String>,
    /// They refuse for long, for trouble of their own or for a sender.
    refusing: BTreeSet<String>,
}

struct Entry {
    relay: Relay,
    sharing_nodes: usize,
    sessions: Arc<RelaySessions>,
}

impl RelayRegistry {
    /// Returns a registry without relays. `name` is the node's name. `hello_name` is the name in EHLO; `None` means the
    /// address literal of each connection. `reply_rules` are the operator's rules by relay name.
    pub fn new(
        dialer: Arc<dyn Dial>,
        name: String,
        hello_name: Option<String>,
        credentials: Arc<CredentialStore>,
        reply_rules: RelayRules,
    ) -> RelayRegistry {
        let (relays, turn) = (RwLock::new(BTreeMap::new()), AtomicU32::new(0));
        let (unmatched_rules, alarmed) = (Mutex::default(), Mutex::default());
        RelayRegistry { dialer, name, hello_name, credentials, reply_rules, unmatched_rules, relays, turn, alarmed }
    }

    /// Returns the credentials that this node has.
    pub fn credentials(&self) -> &CredentialStore {
        &self.credentials
    }

    /// Updates the relays to the ledger's table of relays. Must be called inside a runtime, which then runs the
    /// dialogues. A relay with the same host, port and access keeps its dialogues, its circuit and its learned values:
    /// another rate, limit or pool does not make it a new relay.
    pub fn follow(&self, ledger: &Ledger, sharing_nodes: usize) {
        for name in self.new_unmatched_rules(ledger) {
            tracing::warn!(
                relay = name,
                "the section replies.{name} has no effect, for no relay has that name: correct the section in this \
                 node's configuration (reveille relay list), or add the relay (reveille relay add {name})"
            );
        }
        let mut relays = self.relays.write();
        relays.retain(|name, entry| {
            let known = ledger.relays().get(name);
            if known.is_none() {
                // Without this an alert on a removed relay would never end.
                show(name, 0, 0.0, false, false);
            }
            known.is_some_and(|relay| is_reached_alike(relay, &entry.relay))
        });
        for (name, relay) in ledger.relays().iter() {
            if let Some(entry) = relays.get_mut(name) {
                entry.follow(relay, sharing_nodes);
                continue;
            }
            match self.open_relay(relay, sharing_nodes) {
                Ok(sessions) => {
                    relays.insert(name.clone(), Entry { relay: relay.clone(), sharing_nodes, sessions });
                }
                Err(error) => tracing::error!(relay = name, %error, "a relay cannot be used"),
            }
        }
    }

    /// Returns names of reply rules that match no relay now and were not reported by the previous call.
    fn new_unmatched_rules(&self, ledger: &Ledger) -> Vec<String> {
        let unmatched = self.reply_rules.keys().filter(|name| !ledger.relays().contains(name)).cloned().collect();
        let before = std::mem::replace(&mut *self.unmatched_rules.lock(), unmatched);
        self.unmatched_rules.lock().difference(&before).cloned().collect()
    }

    fn open_relay(&self, relay: &Relay, sharing_nodes: usize) -> Result<Arc<RelaySessions>, crate::smtp::BadTarget> {
        let target = self.target(relay)?;
        let (rate_per_second, burst) = budget(relay, sharing_nodes);
        let limits =
            RelayLimits { max_sessions: relay.max_sessions as usize, rate_per_second, burst, ..RelayLimits::default() };
        let seed = reveille_ledger::ids::Hash::of(format!("{}/{}", self.name, relay.name).as_bytes());
        let seed = seed.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(RelaySessions::new(&relay.name, target, Arc::clone(&self.dialer), limits, seed))
    }

    /// Returns how this node reaches a relay.
    ///
    /// # Errors
    /// Fails if the relay cannot be reached that way. The ledger contains no such relay.
    pub fn target(&self, relay: &Relay) -> Result<Target, crate::smtp::BadTarget> {
        let hello_name = self.hello_name.as_deref();
        if hello_name.is_some_and(is_short) && !is_loopback(&relay.host) {
            tracing::warn!(relay = relay.name, "the name in EHLO has no dot: many relays refuse it; set hello_name");
        }
        let target = Target::new(&relay.host, relay.port, hello_name, &relay.access)?;
        let reply_rules = self.reply_rules.get(&relay.name).cloned().unwrap_or_default();
        Ok(target.with_credentials(Arc::clone(&self.credentials)).with_reply_rules(reply_rules))
    }

    /// Waits for a permit to send one email through a relay of this pool, before `deadline`. Dropping the future
    /// returns everything.
    ///
    /// # Errors
    /// Fails if the pool has no relay, or none that is available before `deadline`.
    pub async fn acquire(&self, pool: &str, deadline: Instant) -> Result<SendPermit, NoPermit> {
        self.acquire_except(&BTreeSet::new(), pool, deadline).await
    }

    /// As [`RelayRegistry::acquire`], but not through a relay in `excluded`.
    ///
    /// # Errors
    /// The same errors as [`RelayRegistry::acquire`].
    pub async fn acquire_except(
        &self,
        excluded: &BTreeSet<String>,
        pool: &str,
        deadline: Instant,
    ) -> Result<SendPermit, NoPermit> {
        let mut relays = self.relays_of(pool);
        relays.retain(|sessions| !excluded.contains(sessions.relay()));
        first_of(&relays, deadline).await
    }

    /// Permits a next email of this pool in the session of a permit. `None` if the relay has left the pool, if it has a
    /// rate (two emails of a delayed session could arrive together), or if it may not be offered one now.
    pub fn try_acquire_next(&self, pool: &str, permit: &mut SendPermit) -> Option<NextPermit> {
        let relays = self.relays.read();
        let Entry { relay, sessions, .. } = relays.get(permit.relay())?;
        let takes_next = relay.pool == pool && relay.rate_milli == 0 && permit.is_of(sessions);
        takes_next.then(|| permit.try_acquire_next()).flatten()
    }

    /// Returns the sessions of a pool's relays in the order in which this email tries them. Each relay is first as often
    /// as its weight says.
    fn relays_of(&self, pool: &str) -> Vec<Arc<RelaySessions>> {
        let relays = self.relays.read();
        let of_pool = || relays.values().filter(|entry| entry.relay.pool == pool);
        let mut sessions: Vec<_> = of_pool().map(|entry| Arc::clone(&entry.sessions)).collect();
        if sessions.len() > 1 {
            let whole: u64 = of_pool().map(|entry| u64::from(entry.relay.weight)).sum();
            let mut position = low_discrepancy(self.turn.fetch_add(1, Ordering::Relaxed), whole);
            let first = of_pool().position(|entry| {
                let weight = u64::from(entry.relay.weight);
                let is_first = position < weight;
                position = position.saturating_sub(weight);
                is_first
            });
            sessions.rotate_left(first.unwrap_or_default());
        }
        sessions
    }

    /// Returns the status of each relay.
    pub fn status(&self) -> BTreeMap<String, RelayStatus> {
        self.relays.read().iter().map(|(name, entry)| (name.clone(), entry.sessions.status())).collect()
    }

    /// Returns the status of one relay. `None`: the ledger that this node has applied does not have it.
    pub fn status_of(&self, name: &str) -> Option<RelayStatus> {
        self.relays.read().get(name).map(|entry| entry.sessions.status())
    }

    /// Returns how fast each relay is. The leader uses it to limit how far ahead this node may claim (P12). A relay
    /// whose circuit is open has a rate of zero, so the claims go to nodes that reach it, until this node may try it
    /// again.
    pub fn flows(&self) -> BTreeMap<String, RelayFlow> {
        let now = Instant::now();
        self.status().into_iter().map(|(name, status)| (name, flow(&status, now))).collect()
    }

    /// Writes the gauges of each relay, and raises an alarm if one is parked or goes on refusing.
    pub fn measure(&self) {
        let status = self.status();
        self.report(&status);
        for (name, status) in status {
            let parked = matches!(status.circuit, CircuitStatus::Parked { .. });
            let open = matches!(status.circuit, CircuitStatus::Open { .. } | CircuitStatus::HalfOpen { .. });
            show(&name, status.sessions_open, status.rate_per_second, parked, open);
        }
    }

    /// Logs each relay that became parked or goes on refusing, or accepts email again, since the last call. A probe
    /// changes nothing.
    fn report(&self, status: &BTreeMap<String, RelayStatus>) {
        let mut alarmed = self.alarmed.lock();
        let AlarmedRelays { parked, refusing } = &mut *alarmed;
        parked.retain(|relay| status.contains_key(relay));
        refusing.retain(|relay| status.contains_key(relay));
        for (relay, status) in status {
            match &status.refusing {
                Some(cause) if refusing.insert(relay.clone()) => {
                    tracing::warn!(
                        relay,
                        %cause,
                        "for ten minutes a relay has refused emails for trouble of its own, or for their sender, and \
                         accepted none: the recipients wait"
                    );
                    metrics::counter!("reveille_alarms_total").increment(1);
                }
                None if refusing.remove(relay) => tracing::info!(relay, "a relay goes on refusing no more"),
                _ => {}
            }
            match &status.circuit {
                CircuitStatus::Parked { cause, .. } if parked.insert(relay.clone()) => {
                    tracing::warn!(relay, %cause, "a relay takes no more today: one email tries it every 15 minutes");
                    metrics::counter!("reveille_alarms_total").increment(1);
                }
                CircuitStatus::Closed if parked.remove(relay) => tracing::info!(relay, "a relay is parked no more"),
                _ => {}
            }
        }
    }

    /// Accepts no more emails and waits for the running ones. Returns true if all of them have their result.
    pub async fn close(&self, limit: Duration) -> bool {
        let relays: Vec<Arc<RelaySessions>> = self.relays.read().values().map(|entry| entry.sessions.clone()).collect();
        let mut closing = tokio::task::JoinSet::new();
        for sessions in relays {
            closing.spawn(async move { sessions.close(limit).await });
        }
        closing.join_all().await.into_iter().all(|closed| closed)
    }
}

impl Entry {
    fn follow(&mut self, relay: &Relay, sharing_nodes: usize) {
        let (rate_per_second, burst) = budget(relay, sharing_nodes);
        if budget(&self.relay, self.sharing_nodes) != (rate_per_second, burst) {
            self.sessions.set_rate(rate_per_second, burst);
        }
        if self.relay.max_sessions != relay.max_sessions {
            self.sessions.set_sessions(relay.max_sessions as usize);
        }
        (self.relay, self.sharing_nodes) = (relay.clone(), sharing_nodes);
    }
}

/// Returns a permit of the first relay with room, in this order. If none has room, waits for all at once and takes the
/// first that becomes free. A relay whose circuit is open is asked again as soon as it may be, while another one is
/// waited for.
///
/// Only one relay's rate is spent: a wait takes a token last, and no other wait is polled after it. The other waits are
/// dropped, and the next callers in their queues move up.
///
/// # Errors
/// The same errors as [`RelayRegistry::acquire`].
async fn first_of(relays: &[Arc<RelaySessions>], deadline: Instant) -> Result<SendPermit, NoPermit> {
    for relay in relays {
        if let Some(permit) = relay.acquire_now() {
            return Ok(permit);
        }
    }
    let mut asked: FuturesUnordered<_> = relays.iter().map(|relay| ask(relay, deadline)).collect();
    let mut unavailable: Vec<(&Arc<RelaySessions>, Unavailable)> = Vec::new();
    loop {
        let again = unavailable.iter().filter_map(|(_, why)| until(why)).filter(|until| *until < deadline).min();
        let answer = match again {
            Some(again) => timeout_at(again, asked.next()).await,
            None => Ok(asked.next().await),
        };
        match answer {
            Ok(Some((_, Ok(permit)))) => return Ok(permit),
            Ok(Some((relay, Err(why)))) => unavailable.push((relay, why)),
            // No relay is left to wait for. The caller waits without holding a turn.
            Ok(None) => {
                let soonest = unavailable.into_iter().map(|(_, why)| why).min_by_key(|why| refusal_rank(why, deadline));
                return Err(soonest.map_or(NoPermit::NoRelay, NoPermit::Unavailable));
            }
            Err(_) => {
                let now = Instant::now();
                let may_be_asked =
                    |(_, why): &(&Arc<RelaySessions>, Unavailable)| until(why).is_some_and(|until| until <= now);
                let (due, later): (Vec<_>, Vec<_>) = unavailable.into_iter().partition(may_be_asked);
                asked.extend(due.into_iter().map(|(relay, _)| ask(relay, deadline)));
                unavailable = later;
            }
        }
    }
}

/// Waits for a permit of one relay, and returns the relay with the result.
async fn ask(relay: &Arc<RelaySessions>, deadline: Instant) -> (&Arc<RelaySessions>, Result<SendPermit, Unavailable>) {
    (relay, relay.acquire(deadline).await)
}

/// Returns the time at which a relay that refuses now may be asked again. `None`: not known.
fn until(why: &Unavailable) -> Option<Instant> {
    match why {
        Unavailable::CircuitOpen { until, .. }
        | Unavailable::Parked { until, .. }
        | Unavailable::RateLimited { until } => Some(*until),
        Unavailable::Busy | Unavailable::Closed => None,
    }
}

/// Returns a number below `whole`. Any few turns in a row spread evenly over all numbers, because they are multiples of
/// the golden ratio (Knuth, TAOCP 3, 6.4, theorem S).
fn low_discrepancy(turn: u32, whole: u64) -> u64 {
    const GOLDEN: u32 = 0x9E37_79B9;
    (u64::from(turn.wrapping_mul(GOLDEN)) * whole) >> 32
}

/// Returns true for a name without a dot that is not an address literal. A relay on another machine may refuse it at
/// each RCPT.
fn is_short(hello_name: &str) -> bool {
    !hello_name.contains('.') && !hello_name.starts_with('[')
}

/// Returns true if the same sessions can serve both.
fn is_reached_alike(one: &Relay, other: &Relay) -> bool {
    (&one.host, one.port, &one.access) == (&other.host, other.port, &other.access)
}

/// Returns one node's share of a relay's rate, and its burst.
fn budget(relay: &Relay, sharing_nodes: usize) -> (f64, f64) {
    let rate_per_second = rate_per_node(relay, sharing_nodes);
    (rate_per_second, (rate_per_second * BURST_SECONDS).max(1.0))
}

/// Sets the gauges of one relay.
fn show(name: &str, sessions: usize, rate_per_second: f64, parked: bool, circuit_open: bool) {
    let relay = || vec![metrics::Label::new("relay", name.to_owned())];
    metrics::gauge!("reveille_relay_sessions", relay()).set(sessions as f64);
    metrics::gauge!("reveille_relay_rate_per_second", relay()).set(rate_per_second);
    metrics::gauge!("reveille_relay_parked", relay()).set(u8::from(parked));
    metrics::gauge!("reveille_relay_circuit_open", relay()).set(u8::from(circuit_open));
}

/// Returns a sort key for the refusal to report: retryable before `deadline` first, then by kind (session, rate,
/// circuit, none), then by time.
fn refusal_rank(unavailable: &Unavailable, deadline: Instant) -> (bool, u8, Option<Instant>) {
    let kind = match unavailable {
        Unavailable::Busy => 0,
        Unavailable::RateLimited { .. } => 1,
        Unavailable::CircuitOpen { .. } | Unavailable::Parked { .. } => 2,
        Unavailable::Closed => 3,
    };
    let until = until(unavailable);
    (until.is_none_or(|until| until >= deadline), kind, until)
}

/// Returns one node's share of a relay's rate, in emails per second.
pub fn rate_per_node(relay: &Relay, sharing_nodes: usize) -> f64 {
    let sharing_nodes = if injected_bugs::is(Bug::WholeBudget) { 1 } else { sharing_nodes };
    match relay.rate_milli {
        0 => UNBOUNDED_PER_SECOND,
        rate_milli => rate_milli as f64 / 1000.0 / sharing_nodes.max(1) as f64,
    }
}

fn flow(status: &RelayStatus, now: Instant) -> RelayFlow {
    RelayFlow {
        // Zero would mean that it is not known.
        dialogue: status.dialogue.map(|dialogue| dialogue.max(Duration::from_millis(1))),
        rate_milli: match status.circuit {
            CircuitStatus::Open { until, .. } | CircuitStatus::Parked { until, .. } if now < until => 0,
            CircuitStatus::HalfOpen { .. } => 0,
            // Zero would mean that no email passes. A share may be below one email in a thousand seconds.
            _ => ((status.rate_per_second * 1_000.0) as u64).max(1),
        },
    }
}

#[cfg(test)]
mod tests;

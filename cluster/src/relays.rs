//! The relay pools of this node, kept in step with the ledger's table of relays.
//!
//! A relay's budget belongs to the cluster; each voter takes an equal share of it, always, so that it is
//! never exceeded across a fail-over (P25). While a node is down its share is unused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use reveille_ledger::Ledger;
use reveille_ledger::command::Relay;
use reveille_raft::peer::RelayFlow;
use tokio::time::Instant;

use crate::parkings::Parkings;
use crate::relay::{CircuitStatus, Dial, Limits, Permit, Pool, Status, Target, Unavailable};

/// The rate of a relay without a bound of its own: far above what one node can send.
const UNBOUNDED_PER_SECOND: f64 = 1_000_000.0;
/// Mails that may go at once after a pause, in seconds of the rate.
const BURST_SECONDS: f64 = 0.5;
/// How long one relay of several is waited for before the next of its pool is tried.
const TRY_FOR: Duration = Duration::from_millis(500);

/// Pools by relay name.
pub struct Relays {
    dialer: Arc<dyn Dial>,
    hello_name: String,
    pools: RwLock<BTreeMap<String, Entry>>,
    turn: AtomicU32,
    parkings: Mutex<Parkings>,
}

/// The right to send one mail, and through which relay.
pub struct Way {
    /// Its name.
    pub relay: String,
    /// The right.
    pub permit: Permit,
}

struct Entry {
    relay: Relay,
    voters: usize,
    pool: Pool,
}

impl Relays {
    /// No pools yet. `hello_name` is what this node calls itself in EHLO.
    pub fn new(dialer: Arc<dyn Dial>, hello_name: String) -> Relays {
        let (pools, turn) = (RwLock::new(BTreeMap::new()), AtomicU32::new(0));
        Relays { dialer, hello_name, pools, turn, parkings: Mutex::default() }
    }

    /// Makes the pools what the ledger says. Must be called inside a runtime; its dialogues run there. A relay
    /// that is reached as before keeps its dialogues, its circuit and what was learnt of it: another rate, bound
    /// or pool does not make it a second relay.
    pub fn follow(&self, ledger: &Ledger, voters: usize) {
        let mut pools = self.pools.write();
        pools.retain(|name, entry| {
            let known = ledger.relays().get(name);
            if known.is_none() {
                // An alert on a relay that is gone would never end.
                show(name, 0, 0.0, false, false);
            }
            known.is_some_and(|relay| is_reached_alike(relay, &entry.relay))
        });
        for (name, relay) in ledger.relays().iter() {
            if let Some(entry) = pools.get_mut(name) {
                entry.follow(relay, voters);
                continue;
            }
            match self.pool(relay, voters) {
                Ok(pool) => {
                    pools.insert(name.clone(), Entry { relay: relay.clone(), voters, pool });
                }
                Err(error) => tracing::error!(relay = name, %error, "a relay cannot be used"),
            }
        }
    }

    fn pool(&self, relay: &Relay, voters: usize) -> Result<Pool, crate::relay::BadTarget> {
        let target = Target::new(&relay.host, relay.port, &self.hello_name, &relay.access)?;
        let (rate_per_second, burst) = budget(relay, voters);
        let limits = Limits { max_sessions: relay.max_sessions as usize, rate_per_second, burst, ..Limits::default() };
        let seed = reveille_ledger::ids::Hash::of(format!("{}/{}", self.hello_name, relay.name).as_bytes());
        let seed = seed.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(Pool::new(target, Arc::clone(&self.dialer), limits, seed))
    }

    /// The right to send one mail through a relay of this pool, before `deadline`.
    ///
    /// # Errors
    /// Why the relay that can be used soonest cannot be used yet; none when the pool has no relay at all.
    pub async fn acquire(&self, pool: &str, deadline: Instant) -> Result<Way, Option<Unavailable>> {
        let members = self.members(pool);
        let alone = members.len() == 1;
        // Whoever has room now comes before anybody who has to be waited for.
        for (relay, member) in members.iter().filter(|_| !alone) {
            if let Some(permit) = member.acquire_now() {
                return Ok(Way { relay: relay.clone(), permit });
            }
        }
        let mut soonest: Option<Unavailable> = None;
        for (relay, member) in members {
            let until = if alone { deadline } else { deadline.min(Instant::now() + TRY_FOR) };
            match member.acquire(until).await {
                Ok(permit) => return Ok(Way { relay, permit }),
                Err(other) => {
                    soonest = Some(match soonest {
                        Some(one) if wait_for(&one) <= wait_for(&other) => one,
                        _ => other,
                    });
                }
            }
        }
        Err(soonest)
    }

    /// The relays of a pool in the order in which this mail asks them: each is the first as often as its weight says.
    fn members(&self, pool: &str) -> Vec<(String, Pool)> {
        let pools = self.pools.read();
        let of_pool = || pools.iter().filter(|(_, entry)| entry.relay.pool == pool);
        let mut members: Vec<_> = of_pool().map(|(name, entry)| (name.clone(), entry.pool.clone())).collect();
        if members.len() > 1 {
            let whole: u64 = of_pool().map(|(_, entry)| u64::from(entry.relay.weight)).sum();
            let mut place = scattered(self.turn.fetch_add(1, Ordering::Relaxed), whole);
            let first = of_pool().position(|(_, entry)| {
                let weight = u64::from(entry.relay.weight);
                let is_first = place < weight;
                place = place.saturating_sub(weight);
                is_first
            });
            members.rotate_left(first.unwrap_or_default());
        }
        members
    }

    /// What each relay is doing.
    pub fn status(&self) -> BTreeMap<String, Status> {
        self.pools.read().iter().map(|(name, entry)| (name.clone(), entry.pool.status())).collect()
    }

    /// What one relay is doing; none while it is not in the ledger that this node has applied.
    pub fn status_of(&self, name: &str) -> Option<Status> {
        self.pools.read().get(name).map(|entry| entry.pool.status())
    }

    /// What is known of how fast each relay is: for the leader, who decides by it how far ahead this node may
    /// claim (P12). A relay that this node leaves alone lets nothing through: work goes where the relay is
    /// reached, until this node may try it again.
    pub fn flows(&self) -> BTreeMap<String, RelayFlow> {
        let now = Instant::now();
        self.status().into_iter().map(|(name, status)| (name, flow(&status, now))).collect()
    }

    /// Writes gauges of each relay, and raises an alarm where one is parked.
    pub fn measure(&self) {
        let status = self.status();
        let circuits = status.iter().map(|(name, status)| (name.clone(), status.circuit.clone())).collect();
        self.parkings.lock().look(&circuits);
        for (name, status) in status {
            let parked = matches!(status.circuit, CircuitStatus::Parked { .. });
            let open = matches!(status.circuit, CircuitStatus::Open { .. } | CircuitStatus::HalfOpen { .. });
            show(&name, status.sessions_open, status.rate_per_second, parked, open);
        }
    }

    /// Takes no more mails; waits for those under way. True when all have their verdict.
    pub async fn close(&self, patience: Duration) -> bool {
        let pools: Vec<Pool> = self.pools.read().values().map(|entry| entry.pool.clone()).collect();
        let mut closing = tokio::task::JoinSet::new();
        for pool in pools {
            closing.spawn(async move { pool.close(patience).await });
        }
        closing.join_all().await.into_iter().all(|closed| closed)
    }
}

impl Entry {
    fn follow(&mut self, relay: &Relay, voters: usize) {
        let (rate_per_second, burst) = budget(relay, voters);
        if budget(&self.relay, self.voters) != (rate_per_second, burst) {
            self.pool.set_rate(rate_per_second, burst);
        }
        if self.relay.max_sessions != relay.max_sessions {
            self.pool.set_sessions(relay.max_sessions as usize);
        }
        (self.relay, self.voters) = (relay.clone(), voters);
    }
}

/// A number below `whole`, such that any few turns in a row spread evenly over all of them: multiples of the golden
/// ratio (Knuth, TAOCP 3, 6.4, theorem S).
fn scattered(turn: u32, whole: u64) -> u64 {
    const GOLDEN: u32 = 0x9E37_79B9;
    (u64::from(turn.wrapping_mul(GOLDEN)) * whole) >> 32
}

/// Do the same dialogues serve both?
fn is_reached_alike(one: &Relay, other: &Relay) -> bool {
    (&one.host, one.port, &one.access) == (&other.host, other.port, &other.access)
}

/// A voter's share of a relay's rate, and how much of it may go at once.
fn budget(relay: &Relay, voters: usize) -> (f64, f64) {
    let rate_per_second = share(relay, voters);
    (rate_per_second, (rate_per_second * BURST_SECONDS).max(1.0))
}

/// The gauges of one relay.
fn show(name: &str, sessions: usize, rate_per_second: f64, parked: bool, circuit_open: bool) {
    let relay = || vec![metrics::Label::new("relay", name.to_owned())];
    metrics::gauge!("reveille_relay_sessions", relay()).set(sessions as f64);
    metrics::gauge!("reveille_relay_rate_per_second", relay()).set(rate_per_second);
    metrics::gauge!("reveille_relay_parked", relay()).set(u8::from(parked));
    metrics::gauge!("reveille_relay_circuit_open", relay()).set(u8::from(circuit_open));
}

/// What is waited for, soonest first: a session, a turn, a circuit, and at last nothing.
fn wait_for(unavailable: &Unavailable) -> (u8, Option<Instant>) {
    match unavailable {
        Unavailable::Busy => (0, None),
        Unavailable::Paced { until } => (1, Some(*until)),
        Unavailable::CircuitOpen { until, .. } | Unavailable::Parked { until, .. } => (2, Some(*until)),
        Unavailable::Closed => (3, None),
    }
}

/// One voter's share of a relay's rate. Mails a second.
pub fn share(relay: &Relay, voters: usize) -> f64 {
    match relay.rate_milli {
        0 => UNBOUNDED_PER_SECOND,
        rate_milli => rate_milli as f64 / 1000.0 / voters.max(1) as f64,
    }
}

fn flow(status: &Status, now: Instant) -> RelayFlow {
    RelayFlow {
        // Zero would say that it is not known.
        dialogue: status.dialogue.map(|dialogue| dialogue.max(Duration::from_millis(1))),
        rate_milli: match status.circuit {
            CircuitStatus::Open { until, .. } | CircuitStatus::Parked { until, .. } if now < until => 0,
            CircuitStatus::HalfOpen { .. } => 0,
            // Zero would say that nothing passes: a share may be slower than a mail in a thousand seconds.
            _ => ((status.rate_per_second * 1_000.0) as u64).max(1),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{Counters, Transport};
    use reveille_ledger::access::Access;
    use reveille_ledger::command::{Command, Entry as LogEntry, EpochStart, Reading};
    use reveille_ledger::ids::{Epoch, Holder, Incarnation, NodeId, Time};

    /// Nobody is there; no test here comes so far.
    struct Nowhere;

    #[async_trait::async_trait]
    impl Dial for Nowhere {
        async fn dial(&self, _: &str, _: u16) -> std::io::Result<Box<dyn Transport>> {
            Err(std::io::ErrorKind::ConnectionRefused.into())
        }
    }

    /// A ledger under its first leader.
    fn led() -> Ledger {
        let mut ledger = Ledger::new();
        let me = Holder { node: NodeId(1), incarnation: Incarnation(1) };
        let start = EpochStart::new(me, 1, vec![Reading { node: me.node, wall: Time(0) }]);
        ledger.apply(1, &LogEntry { epoch: Epoch(0), now: Time(0), command: Command::EpochStart(start) });
        ledger
    }

    /// Of the default pool, without a rate.
    fn relay(name: &str, max_sessions: u32) -> Relay {
        Relay {
            name: name.to_owned(),
            pool: "default".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 25,
            access: Access::default(),
            rate_milli: 0,
            max_sessions,
            late_rate_milli: 0,
            weight: 1,
        }
    }

    fn put_relay(ledger: &mut Ledger, relay: Relay) {
        let (index, command) = (ledger.head().applied + 1, Command::RelayPut(relay.into()));
        ledger.apply(index, &LogEntry { epoch: Epoch(1), now: Time(0), command });
    }

    /// P12: open dialogues of a relay on a node are at most its sessions, whatever is changed meanwhile.
    #[tokio::test]
    async fn a_relay_with_another_rate_or_bound_keeps_its_dialogues() {
        let relays = Relays::new(Arc::new(Nowhere), "n1".to_owned());
        let mut ledger = led();
        let mut put = |rate_milli, max_sessions, voters| {
            put_relay(&mut ledger, Relay { rate_milli, ..relay("main", max_sessions) });
            relays.follow(&ledger, voters);
        };
        let acquire = || relays.acquire("default", Instant::now() + Duration::from_millis(50));
        let is_full = |way: Result<Way, _>| matches!(way, Err(Some(Unavailable::Busy)));
        put(0, 2, 1);
        let (one, two) = (acquire().await.expect("a session"), acquire().await.expect("a session"));
        put(9_000_000, 2, 3);
        assert!(is_full(acquire().await), "another rate makes no more sessions");
        put(9_000_000, 3, 3);
        let three = acquire().await.expect("a third session");
        put(9_000_000, 1, 3);
        // What is too many is asked for by a task of its own.
        tokio::task::yield_now().await;
        drop(three);
        assert!(is_full(acquire().await));
        drop((one, two));
        let alone = Instant::now() + Duration::from_secs(60);
        let only = relays.acquire("default", alone).await.expect("one session");
        assert!(is_full(acquire().await), "and no second");
        drop(only);
    }

    fn two_relays(weights: [u32; 2], sessions: [u32; 2]) -> Relays {
        let relays = Relays::new(Arc::new(Nowhere), "n1".to_owned());
        let mut ledger = led();
        for (place, name) in ["a", "b"].into_iter().enumerate() {
            put_relay(&mut ledger, Relay { weight: weights[place], ..relay(name, sessions[place]) });
        }
        relays.follow(&ledger, 1);
        relays
    }

    #[tokio::test]
    async fn relays_of_a_pool_get_their_weights_evenly_spread() {
        let relays = two_relays([3, 1], [10, 10]);
        let mut of_b = Vec::new();
        for turn in 0..400 {
            let way = relays.acquire("default", Instant::now() + Duration::from_secs(60)).await.expect("room");
            if way.relay == "b" {
                of_b.push(turn);
            }
        }
        assert!((95..=105).contains(&of_b.len()), "{}", of_b.len());
        let widest = of_b.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest <= Some(8), "{of_b:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_busy_relay_while_another_has_room() {
        let (relays, begun) = (two_relays([100, 1], [1, 5]), Instant::now());
        let mut ways = Vec::new();
        for _ in 0..6 {
            ways.push(relays.acquire("default", begun + Duration::from_secs(60)).await.expect("room"));
        }
        // A pace begins empty, so the first mail waits for a moment.
        assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
        assert_eq!(ways.iter().filter(|way| way.relay == "a").count(), 1);
    }

    #[test]
    fn a_relay_that_is_left_alone_lets_nothing_through_until_it_may_be_tried() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let rate_milli_at = |circuit, rate_per_second| {
            let (sessions_open, sessions_idle, waiting_dots, counters) = (0, 0, 0, Counters::default());
            let dialogue = None;
            let status =
                Status { sessions_open, sessions_idle, waiting_dots, circuit, rate_per_second, dialogue, counters };
            flow(&status, now).rate_milli
        };
        let rate_milli = |circuit| rate_milli_at(circuit, 5.0);
        let cause = || "no route to it from here".to_owned();
        assert_eq!(rate_milli(CircuitStatus::Closed), 5_000);
        assert_eq!(rate_milli_at(CircuitStatus::Closed, 0.000_3), 1, "slow is not shut");
        assert_eq!(rate_milli(CircuitStatus::Open { until: now + second, cause: cause() }), 0);
        assert_eq!(rate_milli(CircuitStatus::Parked { until: now + second, cause: cause() }), 0);
        assert_eq!(rate_milli(CircuitStatus::Open { until: now, cause: cause() }), 5_000, "it may be tried again");
        assert_eq!(rate_milli(CircuitStatus::HalfOpen { cause: cause() }), 0, "somebody is trying it");
    }
}

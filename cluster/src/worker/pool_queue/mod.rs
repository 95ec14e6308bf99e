//! Claimed recipients that wait for a session of a pool (I12). Tenants take turns by their shares, however many claims
//! each has on this node.
//!
//! Without turns a tenant with twenty claims would get twenty of twenty-one sessions. `feeder.rs` takes the next
//! recipient when a relay of the pool has a session for it. Claims of one tenant take turns too, so a claim of one
//! recipient does not wait for a claim of hundreds.
//!
//! Turns follow start-time fair queueing (Goyal, Vin and Cheng, 1996): each turn adds to the tenant's start tag, less
//! for a larger share, and the lowest start tag is next. A tenant that was idle gets up to [`SAVED_TURNS`] turns of
//! credit. So its few emails go before a backlog, as new flows do in FQ-CoDel (RFC 8290, 4.2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of pools, and of tenants of a pool, that are kept although nothing waits there.
const KNOWN_MAX: usize = 256;
/// Amount that one turn adds to the start tag of a tenant with a share of 1. A larger share divides it, exact to a
/// thousandth. At a hundred thousand turns per second no start tag of a process overflows for ninety years.
const STEP: u64 = 1 << 16;
/// Maximum turns that an idle tenant saves. This is enough for a slice of a few hundred emails that is spread over the
/// nodes.
const SAVED_TURNS: u64 = 64;

/// The queues of one process, by pool. `C` is a handle of a claim.
pub(crate) struct PoolQueues<C>(Mutex<BTreeMap<String, Arc<PoolQueue<C>>>>);

/// The queue of one pool.
pub(crate) struct PoolQueue<C>(Mutex<Queue<C>>);

/// Recipients of one claim that wait for a session.
pub(crate) struct WaitingClaim<C> {
    pub claim: C,
    pub tenant: Arc<str>,
    /// Share of the tenant, at least 1. It applies from the tenant's next turn.
    pub share: u32,
    /// Numbers of the recipients in the claim, in the order in which they are sent.
    pub recipients: VecDeque<usize>,
    /// Time at which recipients without a session are taken out of the queue.
    pub deadline: Instant,
}

struct Queue<C> {
    /// True while a feeder takes recipients out.
    has_feeder: bool,
    /// Number of the last claim that was added.
    added: u64,
    claims: BTreeMap<u64, WaitingClaim<C>>,
    deadlines: BTreeSet<(Instant, u64)>,
    tenants: BTreeMap<Arc<str>, QueuedTenant>,
    /// Tenants with waiting claims, in the order of their start tags.
    next: BTreeSet<(u64, Arc<str>)>,
    /// The highest start tag of any turn so far.
    last: u64,
}

/// One tenant in a queue.
#[derive(Default)]
struct QueuedTenant {
    share: u32,
    /// Start tag of its next turn.
    start_tag: u64,
    /// Its waiting claims; the first has the next turn.
    claims: VecDeque<u64>,
}

impl<C> Default for PoolQueues<C> {
    fn default() -> PoolQueues<C> {
        PoolQueues(Mutex::default())
    }
}

impl<C> Default for PoolQueue<C> {
    fn default() -> PoolQueue<C> {
        PoolQueue(Mutex::new(Queue {
            has_feeder: false,
            added: 0,
            claims: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            tenants: BTreeMap::new(),
            next: BTreeSet::new(),
            last: 0,
        }))
    }
}

impl<C: Clone> PoolQueues<C> {
    /// Adds a claim to the queue of a pool. Returns that queue if it has no feeder: the caller starts one.
    #[must_use = "a queue without a feeder is never emptied"]
    pub fn push(&self, pool: &str, claim: WaitingClaim<C>) -> Option<Arc<PoolQueue<C>>> {
        let mut queues = self.0.lock();
        if queues.len() >= KNOWN_MAX {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        let queue = match queues.get(pool) {
            Some(queue) => Arc::clone(queue),
            None => Arc::clone(queues.entry(pool.to_owned()).or_default()),
        };
        // Both locks are held here. Otherwise the queue could be forgotten before its feeder starts, and a second one
        // would be created beside it.
        let had_feeder = {
            let mut queue = queue.0.lock();
            queue.push(claim);
            std::mem::replace(&mut queue.has_feeder, true)
        };
        (!had_feeder).then_some(queue)
    }
}

impl<C: Clone> PoolQueue<C> {
    /// Returns the earliest deadline of the waiting claims. Without one the feeder must end, and the next claim starts
    /// another feeder.
    pub fn earliest(&self) -> Option<Instant> {
        let mut queue = self.0.lock();
        let earliest = queue.deadlines.first().map(|(deadline, _)| *deadline);
        queue.has_feeder = earliest.is_some();
        earliest
    }

    /// Takes out the next recipient, unless it is not `wanted`: its claim, its number in the claim, and its deadline.
    pub fn next_if(&self, wanted: impl FnOnce(&C, usize) -> bool) -> Option<(C, usize, Instant)> {
        self.0.lock().next_if(wanted)
    }

    /// Takes out the claims with a deadline up to `latest`. Each has the recipients that still wait.
    pub fn take_up_to(&self, latest: Instant) -> Vec<WaitingClaim<C>> {
        self.0.lock().take_while(|deadline| deadline <= latest)
    }

    /// Takes out all claims. Each has the recipients that still wait.
    pub fn take_all(&self) -> Vec<WaitingClaim<C>> {
        self.0.lock().take_while(|_| true)
    }
}

impl<C: Clone> Queue<C> {
    fn push(&mut self, claim: WaitingClaim<C>) {
        if claim.recipients.is_empty() {
            return;
        }
        self.added += 1;
        let (number, name) = (self.added, Arc::clone(&claim.tenant));
        let tenant = self.tenant(&name, claim.share);
        tenant.claims.push_back(number);
        let start_tag = tenant.start_tag;
        self.next.insert((start_tag, name));
        self.deadlines.insert((claim.deadline, number));
        self.claims.insert(number, claim);
    }

    /// Returns the entry of a tenant and limits its saved turns.
    fn tenant(&mut self, name: &Arc<str>, share: u32) -> &mut QueuedTenant {
        let last = self.last;
        if self.tenants.len() >= KNOWN_MAX && !self.tenants.contains_key(name) {
            // An idle tenant with the maximum of saved turns can be forgotten: as a new tenant it gets the same turns.
            self.tenants.retain(|_, tenant| !tenant.claims.is_empty() || tenant.start_tag > tenant.least(last));
        }
        let tenant = self.tenants.entry(Arc::clone(name)).or_default();
        tenant.share = share;
        if tenant.claims.is_empty() {
            tenant.start_tag = tenant.start_tag.max(tenant.least(last));
        }
        tenant
    }

    fn next_if(&mut self, wanted: impl FnOnce(&C, usize) -> bool) -> Option<(C, usize, Instant)> {
        let (_, name) = self.next.first()?;
        let tenant = self.tenants.get_mut(name)?;
        let waiting = self.claims.get_mut(tenant.claims.front()?)?;
        if !wanted(&waiting.claim, *waiting.recipients.front()?) {
            return None;
        }
        let (start_tag, name) = self.next.pop_first()?;
        let number = tenant.claims.pop_front()?;
        let recipient = waiting.recipients.pop_front()?;
        let (claim, deadline) = (waiting.claim.clone(), waiting.deadline);
        if waiting.recipients.is_empty() {
            self.claims.remove(&number);
            self.deadlines.remove(&(deadline, number));
        } else {
            tenant.claims.push_back(number);
        }
        self.last = self.last.max(start_tag);
        tenant.start_tag = start_tag.saturating_add(tenant.step());
        if !tenant.claims.is_empty() {
            self.next.insert((tenant.start_tag, name));
        }
        Some((claim, recipient, deadline))
    }

    fn take_while(&mut self, is_due: impl Fn(Instant) -> bool) -> Vec<WaitingClaim<C>> {
        let due = self.deadlines.iter().take_while(|(deadline, _)| is_due(*deadline));
        let due: Vec<u64> = due.map(|(_, number)| *number).collect();
        due.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    fn remove(&mut self, number: u64) -> Option<WaitingClaim<C>> {
        let waiting = self.claims.remove(&number)?;
        self.deadlines.remove(&(waiting.deadline, number));
        if let Some(tenant) = self.tenants.get_mut(&waiting.tenant) {
            tenant.claims.retain(|other| *other != number);
            if tenant.claims.is_empty() {
                self.next.remove(&(tenant.start_tag, Arc::clone(&waiting.tenant)));
            }
        }
        Some(waiting)
    }
}

impl QueuedTenant {
    fn step(&self) -> u64 {
        STEP / u64::from(self.share.max(1))
    }

    /// Returns the lowest start tag that the tenant may have after it was idle.
    fn least(&self, last: u64) -> u64 {
        last.saturating_sub(SAVED_TURNS * self.step())
    }
}

#[cfg(test)]
mod tests;

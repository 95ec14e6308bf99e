//! Which claim asks for a session of a pool next (I12): tenants take turns by their shares, however many claims each has
//! on this node.
//!
//! A relay's sessions go to the first that asks. If each claim asked for itself, a tenant with twenty claims would get
//! twenty sessions of twenty-one. So in each pool one claim at a time asks the relays; when it has its session, or gives
//! up, a claim of the tenant with the lowest mark is next. Claims of one tenant keep their order.
//!
//! Marks are those of start-time fair queueing (Goyal, Vin and Cheng, 1996): a turn moves its tenant's mark on, the less
//! far the larger its share. A tenant that was idle gets up to [`SAVED_TURNS`] turns of credit, so its few emails go ahead
//! of a backlog, as new flows do in FQ-CoDel (RFC 8290, 4.2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Pools, and tenants of a pool, with waiting claims; beyond this, those without are forgotten.
const KNOWN_MAX: usize = 256;
/// How far a turn moves the mark of a tenant with a share of 1. A share's part of it is exact to a thousandth, and at
/// a hundred thousand turns a second the marks of one life last for ninety years.
const STEP: u64 = 1 << 16;

/// Turns that a tenant has at once when it comes back: a slice of a few hundred emails that were spread over the nodes.
const SAVED_TURNS: u64 = 64;

/// The queues of one process, by pool.
#[derive(Default)]
pub(crate) struct TenantQueues(Mutex<BTreeMap<String, Arc<PoolQueue>>>);

/// The turn in a queue; over when it is dropped.
pub(crate) struct QueueTurn(Arc<PoolQueue>);

/// A claim of a tenant in the queue of a pool.
pub(crate) struct QueuedClaim {
    queue: Arc<PoolQueue>,
    tenant: Arc<str>,
    share: u32,
    /// The turn for which it stands in the queue, or which has come already.
    asked: Option<oneshot::Receiver<QueueTurn>>,
}

/// The queue of one pool: one claim at a time has the turn.
#[derive(Default)]
struct PoolQueue(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// Is the turn taken?
    is_taken: bool,
    /// The highest mark of a turn that was.
    last: u64,
    tenants: BTreeMap<Arc<str>, QueuedTenant>,
    /// Tenants with a waiting claim, by their marks.
    next: BTreeSet<(u64, Arc<str>)>,
}

/// One tenant in a queue.
#[derive(Default)]
struct QueuedTenant {
    share: u32,
    /// Where its next turn begins.
    mark: u64,
    /// Its claims that wait, the first one first. A claim that gave up is passed over.
    claims: VecDeque<oneshot::Sender<QueueTurn>>,
}

impl TenantQueues {
    /// Where a claim of this tenant waits for this pool. The share counts from its next turn on.
    pub fn join(&self, tenant: &str, pool: &str, share: u32) -> QueuedClaim {
        let mut queues = self.0.lock();
        if queues.len() >= KNOWN_MAX {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        let queue = match queues.get(pool) {
            Some(queue) => Arc::clone(queue),
            None => Arc::clone(queues.entry(pool.to_owned()).or_default()),
        };
        QueuedClaim { queue, tenant: tenant.into(), share, asked: None }
    }
}

impl QueuedClaim {
    /// The turn; none when it has not come by `deadline`. Dropping the future gives the place in the queue back.
    pub async fn turn(&mut self, deadline: Instant) -> Option<QueueTurn> {
        let asked = match self.asked.take() {
            Some(asked) => asked,
            None => {
                let mut queue = self.queue.0.lock();
                if !queue.is_taken {
                    queue.is_taken = true;
                    queue.begin(&self.tenant, self.share);
                    return Some(QueueTurn(Arc::clone(&self.queue)));
                }
                queue.stand(&self.tenant, self.share)
            }
        };
        timeout_at(deadline, asked).await.ok()?.ok()
    }

    /// Ends a turn and asks for the next one. Asks before it releases: otherwise a tenant with a single claim could win at
    /// most every second turn.
    pub fn requeue(&mut self, turn: QueueTurn) {
        let mut queue = self.queue.0.lock();
        if !queue.next.is_empty() {
            self.asked = Some(queue.stand(&self.tenant, self.share));
        }
        drop(queue);
        drop(turn);
    }

    /// Leaves the queue.
    pub fn leave(&mut self) {
        self.asked = None;
    }
}

impl Drop for QueueTurn {
    fn drop(&mut self) {
        let mut queue = self.0.0.lock();
        let next = queue.next();
        queue.is_taken = next.is_some();
        drop(queue);
        if let Some(waiting) = next {
            // A claim that has given up in this moment drops the turn, and it goes on to the next one.
            drop(waiting.send(QueueTurn(Arc::clone(&self.0))));
        }
    }
}

impl Queue {
    /// A tenant as it is known here, with no more turns saved than it may.
    fn known(&mut self, name: &Arc<str>, share: u32) -> &mut QueuedTenant {
        let last = self.last;
        if self.tenants.len() >= KNOWN_MAX && !self.tenants.contains_key(name) {
            // A tenant with all the turns that can be saved has them when it comes back, known or not.
            self.tenants.retain(|_, tenant| !tenant.claims.is_empty() || tenant.mark > tenant.least(last));
        }
        let tenant = self.tenants.entry(Arc::clone(name)).or_default();
        tenant.share = share;
        if tenant.claims.is_empty() {
            tenant.mark = tenant.mark.max(tenant.least(last));
        }
        tenant
    }

    /// The turn of a tenant begins that need not wait.
    fn begin(&mut self, name: &Arc<str>, share: u32) {
        let begun = self.known(name, share).begin();
        self.last = self.last.max(begun);
    }

    /// A claim waits.
    fn stand(&mut self, name: &Arc<str>, share: u32) -> oneshot::Receiver<QueueTurn> {
        let (waiting, asked) = oneshot::channel();
        let tenant = self.known(name, share);
        tenant.claims.push_back(waiting);
        let mark = tenant.mark;
        self.next.insert((mark, Arc::clone(name)));
        asked
    }

    /// The claim whose turn it is, if one waits; the turn of its tenant begins.
    fn next(&mut self) -> Option<oneshot::Sender<QueueTurn>> {
        while let Some((_, name)) = self.next.pop_first() {
            let Some(tenant) = self.tenants.get_mut(&name) else { continue };
            let first = std::iter::from_fn(|| tenant.claims.pop_front()).find(|claim| !claim.is_closed());
            if first.is_some() {
                self.last = self.last.max(tenant.begin());
            }
            if !tenant.claims.is_empty() {
                self.next.insert((tenant.mark, name));
            }
            if first.is_some() {
                return first;
            }
        }
        None
    }
}

impl QueuedTenant {
    /// Its turn begins; answers where.
    fn begin(&mut self) -> u64 {
        let mark = self.mark;
        self.mark = self.mark.saturating_add(self.step());
        mark
    }

    fn step(&self) -> u64 {
        STEP / u64::from(self.share.max(1))
    }

    /// Where it is put at least when it comes back.
    fn least(&self, last: u64) -> u64 {
        last.saturating_sub(SAVED_TURNS * self.step())
    }
}

#[cfg(test)]
mod tests;

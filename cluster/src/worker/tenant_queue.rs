//! Whose row asks for a session of a pool next (I12): tenants by their shares, whatever number of rows each has on
//! this node.
//!
//! A relay's sessions go to whoever asked first. If each row asked for itself, a tenant with twenty rows would get
//! twenty of twenty-one, and another one's few mails would wait behind them, though the dispatcher had shared out
//! claims fairly. So each pool has a door here, at which one row at a time asks the relays; when it has its session,
//! or gives up, a row of the tenant that is furthest behind comes next. The rows of one tenant come in the order in
//! which they asked.
//!
//! Who is furthest behind is told by marks (start-time fair queueing: Goyal, Vin and Cheng, 1996). A turn moves its
//! tenant's mark on, the less far the larger its share is, and the lowest mark of those that wait is next. Who comes
//! back is put a few turns before the last one, if it is not ahead of that: so the few mails of a tenant that has sent
//! nothing for a while go before a backlog and not each behind one of it, as new flows do in FQ-CoDel (RFC 8290, 4.2).
//! Nobody saves up more than [`SAVED_TURNS`] by staying away, and whoever uses them had them by its share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Pools, and tenants of a pool, of which anybody waits here; those of which nobody does are forgotten beyond this.
const KNOWN_MAX: usize = 256;
/// How far a turn moves the mark of a tenant with a share of 1. A share's part of it is exact to a thousandth, and at
/// a hundred thousand turns a second the marks of one life last for ninety years.
const STEP: u64 = 1 << 16;

/// Turns that a tenant has at once when it comes back: a slice of a few hundred mails that were spread over the nodes.
const SAVED_TURNS: u64 = 64;

/// The turns of one life of a node: a door for each pool.
#[derive(Default)]
pub(crate) struct Turns(Mutex<BTreeMap<String, Arc<Door>>>);

/// The turn at a door; over when it is dropped.
pub(crate) struct Turn(Arc<Door>);

/// A row of a tenant at the door of a pool.
pub(crate) struct Waiting {
    door: Arc<Door>,
    tenant: Arc<str>,
    share: u32,
    /// The turn for which it stands in the queue, or which has come already.
    asked: Option<oneshot::Receiver<Turn>>,
}

/// One row at a time passes it.
#[derive(Default)]
struct Door(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// Does anybody have the turn?
    is_taken: bool,
    /// The highest mark of a turn that was.
    last: u64,
    tenants: BTreeMap<Arc<str>, Tenant>,
    /// Those of whom a row waits, by their marks.
    next: BTreeSet<(u64, Arc<str>)>,
}

/// One tenant at a door.
#[derive(Default)]
struct Tenant {
    share: u32,
    /// Where its next turn begins.
    mark: u64,
    /// Its rows that wait, the first one first. A row that gave up is passed over.
    rows: VecDeque<oneshot::Sender<Turn>>,
}

impl Turns {
    /// Where a row of this tenant waits for this pool. The share counts from its next turn on.
    pub fn of(&self, tenant: &str, pool: &str, share: u32) -> Waiting {
        let mut doors = self.0.lock();
        if doors.len() >= KNOWN_MAX {
            doors.retain(|_, door| Arc::strong_count(door) > 1);
        }
        let door = match doors.get(pool) {
            Some(door) => Arc::clone(door),
            None => Arc::clone(doors.entry(pool.to_owned()).or_default()),
        };
        Waiting { door, tenant: tenant.into(), share, asked: None }
    }
}

impl Waiting {
    /// The turn; none when it has not come by `deadline`. Dropping the future gives the place in the queue back.
    pub async fn turn(&mut self, deadline: Instant) -> Option<Turn> {
        let asked = match self.asked.take() {
            Some(asked) => asked,
            None => {
                let mut queue = self.door.0.lock();
                if !queue.is_taken {
                    queue.is_taken = true;
                    queue.begin(&self.tenant, self.share);
                    return Some(Turn(Arc::clone(&self.door)));
                }
                queue.stand(&self.tenant, self.share)
            }
        };
        timeout_at(deadline, asked).await.ok()?.ok()
    }

    /// Ends a turn and asks for the next one, before it is said whose that is: a tenant that has one row here would
    /// else never be among those that wait when its own turn ends, and have every second one at most.
    pub fn again(&mut self, turn: Turn) {
        let mut queue = self.door.0.lock();
        if !queue.next.is_empty() {
            self.asked = Some(queue.stand(&self.tenant, self.share));
        }
        drop(queue);
        drop(turn);
    }

    /// Waits no more, and holds up nobody.
    pub fn leave(&mut self) {
        self.asked = None;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.0.0.lock();
        let next = queue.next();
        queue.is_taken = next.is_some();
        drop(queue);
        if let Some(row) = next {
            // Whoever has given up in this moment drops it, and so it goes on to the next one.
            drop(row.send(Turn(Arc::clone(&self.0))));
        }
    }
}

impl Queue {
    /// A tenant as it is known here, with no more turns saved than it may.
    fn known(&mut self, name: &Arc<str>, share: u32) -> &mut Tenant {
        let last = self.last;
        if self.tenants.len() >= KNOWN_MAX && !self.tenants.contains_key(name) {
            // Whoever has all the turns that can be saved has them when it comes back, known or not.
            self.tenants.retain(|_, tenant| !tenant.rows.is_empty() || tenant.mark > tenant.least(last));
        }
        let tenant = self.tenants.entry(Arc::clone(name)).or_default();
        tenant.share = share;
        if tenant.rows.is_empty() {
            tenant.mark = tenant.mark.max(tenant.least(last));
        }
        tenant
    }

    /// The turn of a tenant begins that need not wait.
    fn begin(&mut self, name: &Arc<str>, share: u32) {
        let begun = self.known(name, share).begin();
        self.last = self.last.max(begun);
    }

    /// A row waits.
    fn stand(&mut self, name: &Arc<str>, share: u32) -> oneshot::Receiver<Turn> {
        let (row, asked) = oneshot::channel();
        let tenant = self.known(name, share);
        tenant.rows.push_back(row);
        let mark = tenant.mark;
        self.next.insert((mark, Arc::clone(name)));
        asked
    }

    /// The row whose turn it is, if anybody waits; the turn of its tenant begins.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some((_, name)) = self.next.pop_first() {
            let Some(tenant) = self.tenants.get_mut(&name) else { continue };
            let row = std::iter::from_fn(|| tenant.rows.pop_front()).find(|row| !row.is_closed());
            if row.is_some() {
                self.last = self.last.max(tenant.begin());
            }
            if !tenant.rows.is_empty() {
                self.next.insert((tenant.mark, name));
            }
            if row.is_some() {
                return row;
            }
        }
        None
    }
}

impl Tenant {
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

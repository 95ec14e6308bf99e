//! The admin API of a node: `reveille.admin.v1`, as its `.proto` files specify it.
//!
//! Called by the command line, by the demo and by programs, on any node: a write goes to the leader by
//! itself, and a read waits until every write that was answered before it can be seen here. What it
//! promises:
//!
//! - **Validated into types.** Nothing that a user sent reaches the log as it came ([`validate`]).
//! - **Told apart.** An error says whether nothing happened or whether it may have ([`error`]).
//! - **Bounded.** Every call ends by a deadline, every list has pages, every message a size.
//!
//! What it is not: it decides nothing that the ledger decides. A check here that `apply` makes again only
//! gives a better message.
//!
//! Reading order: this page, [`listen`], [`error`] with [`refusal`], [`reads`] and [`writes`], then one
//! file a service; [`validate`] (requests become types) and [`views`] (state becomes messages);
//! [`lookup`] (which run and which recipient a caller means), [`label_selector`] (which schedules), [`blobs`], [`explain`], [`dry_run`], [`probe`].

mod blobs;
mod deadline;
mod error;
mod explain;
mod field_mask;
mod label_selector;
mod listen;
mod lookup;
mod no_leader;
mod paging;
mod reads;
mod recipient_list;
mod refusal;
mod services;
#[cfg(test)]
pub(crate) mod tests;
mod validate;
mod views;
mod writes;

use std::sync::Arc;
use std::time::Instant;

use reveille_cluster::leader::barrier;
use reveille_cluster::node::context::NodeContext;
use reveille_cluster::node::peer_messages::BarrierSubject;
use reveille_cluster::smtp::{Dial, TcpDialer};
use reveille_proto::admin::v1;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use error::ApiError;
pub use error::LEADERLESS;
pub use listen::serve;
pub use services::schedule::create::unfit;
pub use services::upload::PART_BYTES_MAX;

/// Runs that are watched at once on one node: each costs a look at the state four times a second.
const WATCHERS_MAX: usize = 256;
/// Parts of audiences that are received at once on one node, each whole in memory; further ones wait.
const UPLOADS_MAX: usize = 4;
/// What all services of the API share.
pub struct Admin {
    context: Arc<NodeContext>,
    /// Peer addresses of the other founders, as this node's configuration names them.
    join: Vec<String>,
    dialer: Arc<dyn Dial>,
    watchers: Arc<Semaphore>,
    /// Parts that are received now.
    uploads: Arc<Semaphore>,
    /// Audiences that are checked before they are sealed: one at a time.
    checks: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Admin {
    /// The API of this node. `join`: the founders that `InitCluster` takes where it names none.
    pub fn new(context: Arc<NodeContext>, join: Vec<String>) -> Admin {
        Admin {
            context,
            join,
            dialer: Arc::new(TcpDialer::default()),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            uploads: Arc::new(Semaphore::new(UPLOADS_MAX)),
            checks: Arc::new(Semaphore::new(1)),
            stop: CancellationToken::new(),
        }
    }

    /// The same API, for what goes on after its call has been answered.
    fn share(&self) -> Admin {
        Admin {
            context: Arc::clone(&self.context),
            join: self.join.clone(),
            dialer: Arc::clone(&self.dialer),
            watchers: Arc::clone(&self.watchers),
            uploads: Arc::clone(&self.uploads),
            checks: Arc::clone(&self.checks),
            stop: self.stop.clone(),
        }
    }

    /// Reaches relays that are tested in another way.
    #[cfg(test)]
    fn dial_by(mut self, dialer: Arc<dyn Dial>) -> Admin {
        self.dialer = dialer;
        self
    }

    /// P15: after this no hand-off that the entry at `index` forbids passes a gate on any node.
    async fn barrier(&self, index: u64, about: BarrierSubject, deadline: Instant) -> Result<v1::Barrier, ApiError> {
        let held = barrier::through_leader(&self.context, index, about, deadline).await;
        let report = held.map_err(|error| refusal::not_held(index, error))?;
        Ok(self.context.replica.read(|ledger| views::barrier(ledger, index, &report)))
    }
}

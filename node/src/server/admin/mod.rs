//! The admin API of a node: `reveille.admin.v1`, as its `.proto` files specify it.
//!
//! The command line, the demo and programs call it, on any node. A write is forwarded to the leader. A read waits until
//! this node has applied every write that was answered before it. The API guarantees:
//!
//! - **Validated.** Requests become checked types before anything reaches the log ([`validate`]).
//! - **Clear errors.** An error says whether nothing happened or the outcome is unknown ([`error`]).
//! - **Permitted.** A call needs a token whose rights and tenants fit ([`access`]).
//! - **Bounded.** Every call has a deadline, every list has pages, and every message has a maximum size.
//!
//! The ledger decides, not this API. A check here that `apply` repeats only gives a better message.
//!
//! Reading order: this page, [`listen`], [`error`] with [`error_texts`], [`reads`], [`writes`], [`access`], then one
//! file per service. [`http_json`] is the same API in JSON over HTTP. [`validate`] turns requests into types, and
//! [`views`] turns state into messages. [`lookup`] finds runs and recipients, and [`label_selector`] selects schedules.
//! [`archive`] reads finished runs that left the replicated state. [`attachments`] stores files of attachments,
//! [`blobs`] reads contents and recipients, and [`explain`] returns the history of a recipient.

mod access;
mod archive;
mod attachments;
mod blobs;
mod deadline;
mod enums;
mod error;
mod error_texts;
mod explain;
mod field_mask;
mod http_json;
mod label_selector;
mod limits;
mod listen;
mod local;
mod lookup;
mod no_leader;
mod paging;
mod places;
mod reads;
mod recipient_list;
mod sealed_token;
mod services;
#[cfg(test)]
pub(crate) mod tests;
mod validate;
mod views;
mod writes;

use std::sync::Arc;

use reveille_cluster::leader::barrier;
use reveille_cluster::process::context::NodeContext;
use reveille_cluster::process::peer_messages::BarrierSubject;
use reveille_cluster::smtp::{Dial, TcpDialer};
use reveille_ledger::ids::RunId;
use reveille_proto::admin::v1;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use access::ListenerKind;
pub use access::{Call, all_rights, authenticate_page};
use error::{ApiError, ApiResult};
pub use error::{LEADERLESS, REQUEST_ID};
pub use listen::serve;
pub use local::{serve_local, socket_path};
use places::Places;
pub use services::audit::shown as shown_audit_record;
use services::message::MessageBatches;
pub use services::schedule::create::validation_error;
pub use services::upload::PART_BYTES_MAX;

/// Maximum number of streams of one node: watched runs, each of which reads the state four times a second, and exports.
const STREAMS_MAX: usize = 256;
/// Maximum number of audience parts that one node receives at once. Each is whole in memory; further ones wait.
const UPLOADS_MAX: usize = 4;

/// State that all services of the API share. Work that continues after its call was answered has a clone.
#[derive(Clone)]
pub struct Admin {
    context: Arc<NodeContext>,
    dialer: Arc<dyn Dial>,
    streams: Arc<Places>,
    /// For the parts that are received at once.
    uploads: Arc<Places>,
    /// One permit: one audience at a time is checked before it is sealed.
    checks: Arc<Semaphore>,
    messages: Arc<MessageBatches>,
    stop: CancellationToken,
    /// What its listener asks for.
    listener: ListenerKind,
    /// The steps of all calls, for the test that two calls do the same work.
    #[cfg(test)]
    steps: Arc<parking_lot::Mutex<Vec<&'static str>>>,
}

impl Admin {
    /// Creates the API of this node. Every call needs a token.
    pub fn new(context: Arc<NodeContext>) -> Admin {
        Admin {
            context,
            dialer: Arc::new(TcpDialer::default()),
            streams: Arc::new(Places::new(STREAMS_MAX)),
            uploads: Arc::new(Places::new(UPLOADS_MAX)),
            checks: Arc::new(Semaphore::new(1)),
            messages: Arc::default(),
            stop: CancellationToken::new(),
            listener: ListenerKind::Tokens,
            #[cfg(test)]
            steps: Arc::default(),
        }
    }

    /// Records a step that takes time, in tests.
    fn record_step(&self, _step: &'static str) {
        #[cfg(test)]
        self.steps.lock().push(_step);
    }

    /// Permits everything to calls without a token.
    pub fn with_insecure_callers(self) -> Admin {
        Admin { listener: ListenerKind::Insecure, ..self }
    }

    /// Replaces the dialer for tests of relays.
    #[cfg(test)]
    fn dial_by(mut self, dialer: Arc<dyn Dial>) -> Admin {
        self.dialer = dialer;
        self
    }

    /// Waits until no gate on any node lets a handoff pass that the entry at `index` forbids (P15).
    async fn barrier(&self, index: u64, about: BarrierSubject, call: &Call) -> ApiResult<v1::Barrier> {
        let held = barrier::through_leader(&self.context, index, about, call.deadline).await;
        let report = held.map_err(|error| error_texts::not_held(index, error))?;
        Ok(self.context.replica.read(|ledger| views::barrier(ledger, index, &report)))
    }

    /// Like [`Admin::barrier`], for a run that the entry at the index paused or cancelled. `None` if there is no such
    /// run.
    async fn barrier_of_run(&self, held: Option<(u64, RunId)>, call: &Call) -> ApiResult<Option<v1::Barrier>> {
        let Some((index, run)) = held else { return Ok(None) };
        Ok(Some(self.barrier(index, BarrierSubject::Run(run), call).await?))
    }
}

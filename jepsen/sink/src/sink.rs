//! The sink: listens, starts a dialogue for each connection, and returns its record to its owner.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accepted::Accepted;
use crate::connections::OpenDialogue;
use crate::dialogue;
use crate::fault_chooser::FaultChooser;
use crate::faults::FaultPlan;
use crate::hold::{Hold, HoldBoard, HoldRequest};
use crate::kept_accepts::{Emails, Keep, KeptAccepts, StillWaiting};
use crate::options::SinkOptions;
use crate::shared::SinkState;

/// Maximum number of connections that the kernel queues while the sink is busy. A campaign opens connections in bursts.
const BACKLOG: u32 = 1_024;
/// Maximum bytes of the texts that are kept. The oldest texts are dropped first.
const KEPT_TEXT_BYTES: usize = 64 << 20;
/// Pause after a failed accept, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time that `stop` waits for dialogues, which only finish their current writes.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running sink. Dropping it stops listening and ends all dialogues without waiting for them, while [`Sink::stop`]
/// waits. A sink dereferences to its [`Handle`], which may outlive it.
#[derive(Debug)]
pub struct Sink {
    handle: Handle,
    tasks: TaskTracker,
}

/// A handle to read and control a sink. A clone is cheap. Accepts stay readable after the sink has stopped.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<SinkState>,
}

impl Sink {
    /// Listens, and serves on the caller's tokio runtime.
    ///
    /// # Errors
    /// Fails if the address cannot be listened on, or without a tokio runtime.
    pub fn start(options: SinkOptions) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let _inside = runtime.enter();
        let listener = listen(options.listen)?;
        let keep = Keep { records: options.keep_records, texts: options.keep_bodies, text_bytes: KEPT_TEXT_BYTES };
        let inner = Arc::new(SinkState {
            address: listener.local_addr()?,
            kept: KeptAccepts::new(keep),
            fault_chooser: FaultChooser::new(options.faults.clone()),
            holds: HoldBoard::default(),
            connections: Arc::default(),
            stop: CancellationToken::new(),
            options,
        });
        let tasks = TaskTracker::new();
        tasks.spawn(take_connections(listener, Arc::clone(&inner), tasks.clone()));
        Ok(Self { handle: Handle { inner }, tasks })
    }

    /// Returns another handle to this sink.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops listening, ends all dialogues, and returns when each dialogue has reported its last email, after at most
    /// 10 s. An email whose dot was read is either recorded or stays unanswered.
    pub async fn stop(&self) {
        self.handle.inner.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP_LIMIT, self.tasks.wait()).await.is_err() {
            tracing::warn!(left = self.tasks.len(), "dialogues of the sink did not end in time");
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.handle.inner.stop.cancel();
    }
}

impl Deref for Sink {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sink").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Handle {
    /// Returns the address on which the sink listens, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// Returns the number of accepts since the sink started, duplicates included. Each recipient of an email is one
    /// accept.
    pub fn accepted_count(&self) -> u64 {
        self.inner.kept.count()
    }

    /// Returns the accepts that are in memory now, up to [`SinkOptions::keep_records`].
    pub fn emails(&self) -> Emails {
        self.inner.kept.emails()
    }

    /// Returns the accepts in memory for which `wanted` is true, oldest first.
    pub fn find(&self, mut wanted: impl FnMut(&Accepted) -> bool) -> Vec<Arc<Accepted>> {
        let emails = self.emails();
        emails.iter().map(|(_, accept)| accept).filter(|accept| wanted(accept)).cloned().collect()
    }

    /// Returns the whole text of an accept by its number, counted from 1 as in [`Emails::iter`]: headers and body with
    /// CR LF line ends, without dot-stuffing. `None` if it is not kept ([`SinkOptions::keep_bodies`]).
    pub fn text(&self, number: u64) -> Option<Arc<[u8]>> {
        self.inner.kept.text(number)
    }

    /// Waits until at least this many accepts were counted.
    ///
    /// # Errors
    /// [`StillWaiting`], with the count, if `limit` passes first.
    pub async fn wait_for(&self, accepts: u64, limit: Duration) -> Result<(), StillWaiting> {
        self.inner.kept.wait_for(accepts, limit).await
    }

    /// Returns the open dialogues. From the final dot to the answer a dialogue names its email, because the sender
    /// cannot know if that email was accepted.
    pub fn connections(&self) -> Vec<OpenDialogue> {
        self.inner.connections.open()
    }

    /// Holds the answers of the next emails that fit the request. [`Hold::next`] returns these emails. The request is
    /// active when this call returns.
    #[must_use = "dropping the hold withdraws it"]
    pub fn hold_next_answer(&self, request: HoldRequest) -> Hold {
        self.inner.holds.post(request)
    }

    /// Replaces the fault plan of all dialogues and starts its random generators anew.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.inner.fault_chooser.set(plan);
    }

    /// Returns the number of times that each rule of the current plan was applied, in the order of the plan. A judge
    /// records it as the observed effect.
    pub fn fault_tally(&self) -> Vec<u64> {
        self.inner.fault_chooser.injected()
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn take_connections(listener: TcpListener, inner: Arc<SinkState>, tasks: TaskTracker) {
    let stop = inner.stop.clone();
    loop {
        let taken = tokio::select! {
            () = stop.cancelled() => return,
            taken = listener.accept() => taken,
        };
        match taken {
            Ok((stream, peer)) => {
                tasks.spawn(dialogue::serve(Arc::clone(&inner), stream, peer));
            }
            Err(error) => {
                tracing::warn!(%error, "the sink could not take a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

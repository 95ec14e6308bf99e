//! The sink itself: starts listening, hands connections to dialogues, and answers its owner's questions.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accepted::Accepted;
use crate::archive::{Archive, Emails, Keep, StillWaiting};
use crate::connections::OpenDialogue;
use crate::dialogue;
use crate::dice::{Dice, FaultTally};
use crate::faults::FaultPlan;
use crate::hold::{Hold, HoldBoard, HoldRequest};
use crate::options::SinkOptions;
use crate::recorder::AcceptRecorder;
use crate::shared::SinkState;

/// Connections that the kernel may hold for us while we are busy; a campaign opens them in bursts.
const BACKLOG: u32 = 1_024;
/// The pause after a failed accept (out of descriptors, usually).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long `stop` waits for dialogues, which only finish the write they are in.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running sink. Dropping it stops listening and ends all dialogues without waiting for them;
/// [`Sink::stop`] waits. It is also a [`Handle`], which may outlive it.
#[derive(Debug)]
pub struct Sink {
    handle: Handle,
    tasks: TaskTracker,
}

/// Asks and tells a sink; cheap to clone. What was accepted stays readable after the sink has stopped.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<SinkState>,
}

impl Sink {
    /// Listens, opens the record, and serves on the tokio runtime of the caller.
    ///
    /// # Errors
    /// The address cannot be listened on; the record cannot be opened, or is damaged before its last line
    /// (`InvalidData`); there is no tokio runtime.
    pub fn start(options: SinkOptions) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let _inside = runtime.enter();
        let listener = listen(options.listen)?;
        let keep =
            Keep { records: options.keep_records, texts: options.keep_bodies, text_bytes: options.keep_body_bytes };
        let archive = Arc::new(Archive::new(keep));
        let inner = Arc::new(SinkState {
            address: listener.local_addr()?,
            recorder: AcceptRecorder::start(options.record.as_deref(), options.sync, Arc::clone(&archive))?,
            archive,
            dice: Dice::new(options.faults.clone()),
            holds: HoldBoard::default(),
            connections: Arc::default(),
            stop: CancellationToken::new(),
            options,
        });
        let tasks = TaskTracker::new();
        tasks.spawn(take_connections(listener, Arc::clone(&inner), tasks.clone()));
        Ok(Self { handle: Handle { inner }, tasks })
    }

    /// A handle for others.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops listening, ends all dialogues (an email whose dot was read is recorded or left unanswered, as it
    /// happens), writes what waits, and closes the record. Takes at most 10 s and the time of one write.
    pub async fn stop(self) {
        self.handle.inner.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP_LIMIT, self.tasks.wait()).await.is_err() {
            tracing::warn!(left = self.tasks.len(), "dialogues of the sink did not end in time");
        }
        let inner = Arc::clone(&self.handle.inner);
        if tokio::task::spawn_blocking(move || inner.recorder.close()).await.is_err() {
            tracing::error!("closing the record panicked");
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
    /// Where the sink listens, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// Accepts since the sink started: one for each recipient of each email, duplicates included.
    pub fn accepted_count(&self) -> u64 {
        self.inner.archive.count()
    }

    /// The accepts in memory ([`SinkOptions::keep_records`] of them), as they are now.
    pub fn emails(&self) -> Emails {
        self.inner.archive.emails()
    }

    /// The accepts in memory that fit, oldest first.
    pub fn find(&self, mut wanted: impl FnMut(&Accepted) -> bool) -> Vec<Arc<Accepted>> {
        let emails = self.emails();
        emails.iter().map(|(_, accept)| accept).filter(|accept| wanted(accept)).cloned().collect()
    }

    /// The whole text of an accept by its number (counted from 1, as [`Emails::iter`] gives it), while it is
    /// kept ([`SinkOptions::keep_bodies`]): headers and body, CR LF line ends, dot-stuffing undone.
    pub fn text(&self, number: u64) -> Option<Arc<[u8]>> {
        self.inner.archive.text(number)
    }

    /// Waits until at least so many accepts were counted.
    ///
    /// # Errors
    /// [`StillWaiting`], with the count, when `limit` is over first.
    pub async fn wait_for(&self, accepts: u64, limit: Duration) -> Result<(), StillWaiting> {
        self.inner.archive.wait_for(accepts, limit).await
    }

    /// The open dialogues; those in [`DialogueState::AfterDot`](crate::DialogueState::AfterDot) name the email
    /// whose sender cannot know whether it was accepted.
    pub fn connections(&self) -> Vec<OpenDialogue> {
        self.inner.connections.open()
    }

    /// Holds the answer of the next emails that fit the request; [`Hold::next`] tells which. In force when this
    /// returns.
    #[must_use = "dropping the hold withdraws it"]
    pub fn hold_next_answer(&self, request: HoldRequest) -> Hold {
        self.inner.holds.post(request)
    }

    /// Puts another fault plan in force for all dialogues, its dice at their start; answers how the former
    /// one did.
    pub fn set_faults(&self, plan: FaultPlan) -> Vec<FaultTally> {
        self.inner.dice.set(plan)
    }

    /// How often each rule of the plan in force has struck, in the order of the plan.
    pub fn fault_tally(&self) -> Vec<FaultTally> {
        self.inner.dice.tally()
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

//! Holds an email between its dot and its answer, on request: the caller learns which email is held, does what
//! it came for (kill the sender, the leader, the network), and lets go. Dialogues ask the board after each dot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::accepted::Accepted;

/// One request may hold at most so many emails.
const MAX_HELD_BY_ONE_REQUEST: usize = 1_024;

/// Which emails to hold, where and for how long.
#[derive(Debug, Clone)]
pub struct HoldRequest {
    /// Only emails from a client that called itself exactly so in EHLO.
    pub ehlo: Option<String>,
    /// Where in the dialogue.
    pub point: HoldPoint,
    /// How many emails, 1 to 1,024; other values are moved to the nearest of these.
    pub count: usize,
    /// A held mail lets go by itself after this long.
    pub limit: Duration,
}

impl Default for HoldRequest {
    fn default() -> Self {
        Self { ehlo: None, point: HoldPoint::AfterCommit, count: 1, limit: Duration::from_secs(30) }
    }
}

/// Where an email is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldPoint {
    /// The dot was read, nothing is recorded. Whatever happens to the client meanwhile, the email is recorded
    /// once it is let go: this point moves the accept, it does not prevent it.
    BeforeCommit,
    /// The accept is recorded, the `250` is not written.
    AfterCommit,
}

/// A request in force. Dropping it withdraws it; emails that are held stay held.
#[derive(Debug)]
pub struct Hold {
    held: mpsc::Receiver<Held>,
}

impl Hold {
    /// The next email that is held; `None` when there was none within `limit`, or when all were handed out.
    pub async fn next(&mut self, limit: Duration) -> Option<Held> {
        tokio::time::timeout(limit, self.held.recv()).await.ok().flatten()
    }
}

/// An email whose answer is held back until this is released, dropped, or its limit is over.
#[derive(Debug)]
pub struct Held {
    /// What was (or will be) recorded, for the first recipient of the email.
    pub accepted: Arc<Accepted>,
    release: oneshot::Sender<()>,
}

impl Held {
    /// Lets the dialogue go on. False when no dialogue waits any more: the client left, the limit was over, or the
    /// sink stopped.
    pub fn release(self) -> bool {
        self.release.send(()).is_ok()
    }
}

/// The requests in force, oldest first.
#[derive(Default)]
pub(crate) struct HoldBoard {
    requests: Mutex<VecDeque<Posted>>,
}

struct Posted {
    request: HoldRequest,
    left: usize,
    tell: mpsc::Sender<Held>,
}

/// A dialogue's side of a held mail.
pub(crate) struct Caught {
    pub(crate) released: oneshot::Receiver<()>,
    pub(crate) limit: Duration,
}

impl HoldBoard {
    pub(crate) fn post(&self, request: HoldRequest) -> Hold {
        let left = request.count.clamp(1, MAX_HELD_BY_ONE_REQUEST);
        let (tell, held) = mpsc::channel(left);
        self.requests.lock().push_back(Posted { request, left, tell });
        Hold { held }
    }

    /// Whether one of these emails is to be held at this point; if so, its requester knows already.
    pub(crate) fn catch(&self, point: HoldPoint, accepts: &[Arc<Accepted>]) -> Option<Caught> {
        let mut requests = self.requests.lock();
        requests.retain(|posted| posted.left > 0 && !posted.tell.is_closed());
        requests.iter_mut().find_map(|posted| posted.catch(point, accepts))
    }
}

impl Posted {
    fn catch(&mut self, point: HoldPoint, accepts: &[Arc<Accepted>]) -> Option<Caught> {
        if self.request.point != point {
            return None;
        }
        let wanted = self.request.ehlo.as_ref();
        let accepted = Arc::clone(accepts.iter().find(|accept| wanted.is_none_or(|ehlo| accept.ehlo == *ehlo))?);
        let (release, released) = oneshot::channel();
        // The channel has room for every email of the request, so only a withdrawn request refuses.
        self.tell.try_send(Held { accepted, release }).ok()?;
        self.left -= 1;
        Some(Caught { released, limit: self.request.limit })
    }
}

//! Holds an email between its final dot and its answer, on request. The caller learns which email is held, injects its
//! fault (kills the sender, the leader or the network), and releases it. Dialogues check for requests after each dot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::accepted::Accepted;

/// Maximum number of emails that one request may hold.
const MAX_HELD_BY_ONE_REQUEST: usize = 1_024;

/// Selects the emails to hold, the point and the time.
#[derive(Debug, Clone)]
pub struct HoldRequest {
    /// Holds only emails of a client that gave exactly this name in EHLO. `None`: emails of all clients.
    pub ehlo: Option<String>,
    /// Point in the dialogue.
    pub point: HoldPoint,
    /// Number of emails: 1 to 1,024. Other values are clamped.
    pub count: usize,
    /// Time after which a held email is released by itself.
    pub limit: Duration,
}

impl Default for HoldRequest {
    fn default() -> Self {
        Self { ehlo: None, point: HoldPoint::AfterCommit, count: 1, limit: Duration::from_secs(30) }
    }
}

/// Point at which an email is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldPoint {
    /// The final dot was read, and nothing is recorded. The release records the email, even if the client has left: a
    /// hold delays the accept and does not prevent it.
    BeforeCommit,
    /// The accept is recorded, and the `250` is not written.
    AfterCommit,
}

/// An active request. Dropping it withdraws the request. Held emails stay held.
#[derive(Debug)]
pub struct Hold {
    held: mpsc::Receiver<Held>,
}

impl Hold {
    /// Waits for the next held email. `None`: there was no email within `limit`, or all emails were returned.
    pub async fn next(&mut self, limit: Duration) -> Option<Held> {
        tokio::time::timeout(limit, self.held.recv()).await.ok().flatten()
    }
}

/// A held email. Its answer waits until this value is released or dropped, or until the limit of the hold is over.
#[derive(Debug)]
pub struct Held {
    /// The accept of the email's first recipient. It is recorded, or will be recorded.
    pub accepted: Arc<Accepted>,
    release: oneshot::Sender<()>,
}

impl Held {
    /// Lets the dialogue continue. Returns false if no dialogue waits: the client left, the limit was over, or the sink
    /// stopped.
    pub fn release(self) -> bool {
        self.release.send(()).is_ok()
    }
}

/// The active requests, oldest first.
#[derive(Default)]
pub(crate) struct HoldBoard {
    requests: Mutex<VecDeque<Posted>>,
}

struct Posted {
    request: HoldRequest,
    left: usize,
    sender: mpsc::Sender<Held>,
}

/// The dialogue's part of a held email.
pub(crate) struct Caught {
    pub(crate) released: oneshot::Receiver<()>,
    pub(crate) limit: Duration,
}

impl HoldBoard {
    pub(crate) fn post(&self, request: HoldRequest) -> Hold {
        let left = request.count.clamp(1, MAX_HELD_BY_ONE_REQUEST);
        let (sender, held) = mpsc::channel(left);
        self.requests.lock().push_back(Posted { request, left, sender });
        Hold { held }
    }

    /// Returns a handle if the email of these accepts must be held at this point, and notifies the requester.
    pub(crate) fn catch(&self, point: HoldPoint, accepts: &[Arc<Accepted>]) -> Option<Caught> {
        let mut requests = self.requests.lock();
        requests.retain(|posted| posted.left > 0 && !posted.sender.is_closed());
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
        // The channel has room for every email of the request, so sending fails only if the request was withdrawn.
        self.sender.try_send(Held { accepted, release }).ok()?;
        self.left -= 1;
        Some(Caught { released, limit: self.request.limit })
    }
}

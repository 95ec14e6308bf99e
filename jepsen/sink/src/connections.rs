//! The open dialogues of a sink and how far each has come, for callers who want to strike at the right
//! moment: a demo that kills a node between the dot and the `250`, a test that waits for a stalled dialogue.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::accepted::Accepted;
use crate::clock::SinkInstant;

/// How far a dialogue has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialogueState {
    /// Between emails, the time before the first one included.
    Idle,
    /// MAIL was accepted.
    Envelope,
    /// The message is coming.
    Receiving,
    /// The final dot was read and the answer is not written: what a sender cannot know about.
    AfterDot,
}

/// An open dialogue, as it was at one moment.
#[derive(Debug, Clone)]
pub struct OpenDialogue {
    /// The sink's number of the connection.
    pub connection: u64,
    /// The other end.
    pub peer: SocketAddr,
    /// The name given in EHLO or HELO; empty before.
    pub ehlo: String,
    /// When the connection was taken: CLOCK_BOOTTIME, microseconds.
    pub since_monotonic_us: u64,
    /// Emails accepted on it before the current one.
    pub emails: u32,
    /// How far it has come.
    pub state: DialogueState,
    /// In [`DialogueState::AfterDot`]: the email that waits for its answer, one accept for each recipient
    /// (recorded or just about to be).
    pub unanswered: Vec<Arc<Accepted>>,
}

/// All open dialogues.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<BTreeMap<u64, Arc<Mutex<OpenDialogue>>>>,
    /// Connections ever taken.
    taken: AtomicU64,
}

impl Connections {
    /// Enters a new connection, unless `max` are open already.
    pub(crate) fn enter(connections: &Arc<Self>, peer: SocketAddr, max: usize) -> Option<ConnectionEntry> {
        let mut open = connections.open.lock();
        if open.len() >= max {
            return None;
        }
        let connection = connections.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let dialogue = Arc::new(Mutex::new(OpenDialogue {
            connection,
            peer,
            ehlo: String::new(),
            since_monotonic_us: SinkInstant::now().monotonic_us,
            emails: 0,
            state: DialogueState::Idle,
            unanswered: Vec::new(),
        }));
        open.insert(connection, Arc::clone(&dialogue));
        Some(ConnectionEntry { connections: Arc::clone(connections), connection, dialogue })
    }

    pub(crate) fn open(&self) -> Vec<OpenDialogue> {
        self.open.lock().values().map(|dialogue| dialogue.lock().clone()).collect()
    }
}

/// A dialogue's own entry; dropping it takes the dialogue off the list.
pub(crate) struct ConnectionEntry {
    connections: Arc<Connections>,
    pub(crate) connection: u64,
    dialogue: Arc<Mutex<OpenDialogue>>,
}

impl ConnectionEntry {
    pub(crate) fn greeted(&self, ehlo: &str) {
        ehlo.clone_into(&mut self.dialogue.lock().ehlo);
    }

    pub(crate) fn state(&self, state: DialogueState) {
        self.dialogue.lock().state = state;
    }

    pub(crate) fn after_dot(&self, accepts: &[Arc<Accepted>]) {
        let mut dialogue = self.dialogue.lock();
        dialogue.state = DialogueState::AfterDot;
        dialogue.unanswered.extend_from_slice(accepts);
    }

    /// The answer is decided; `emails` were accepted on this connection.
    pub(crate) fn answered(&self, emails: u32) {
        let mut dialogue = self.dialogue.lock();
        dialogue.state = DialogueState::Idle;
        dialogue.emails = emails;
        dialogue.unanswered.clear();
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.connection);
    }
}

//! The open dialogues of a sink, for callers that inject a fault at a certain moment. Examples: a demo kills a node
//! between the final dot and the `250`, and a test waits for a stalled dialogue.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::accepted::Accepted;

/// The state of an open dialogue at the time of the call.
#[derive(Debug, Clone)]
pub struct OpenDialogue {
    /// Number of the connection, counted from 1 since the sink started.
    pub connection: u64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Name that the client gave in EHLO. Empty: there was no EHLO yet.
    pub ehlo: String,
    /// Number of emails accepted on this connection before the current one.
    pub emails: u32,
    /// From the final dot to the answer: the email that waits for the answer, with one accept for each recipient. The
    /// accepts are recorded, or about to be recorded. The client cannot know if the email is accepted.
    pub unanswered: Vec<Arc<Accepted>>,
}

/// All open dialogues.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<BTreeMap<u64, Arc<Mutex<OpenDialogue>>>>,
    /// Number of connections since the sink started.
    taken: AtomicU64,
}

impl Connections {
    /// Adds a new connection. `None`: `max` connections are open already.
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
            emails: 0,
            unanswered: Vec::new(),
        }));
        open.insert(connection, Arc::clone(&dialogue));
        Some(ConnectionEntry { connections: Arc::clone(connections), connection, dialogue })
    }

    pub(crate) fn open(&self) -> Vec<OpenDialogue> {
        self.open.lock().values().map(|dialogue| dialogue.lock().clone()).collect()
    }
}

/// The entry of one dialogue. Dropping it removes the dialogue from the list.
pub(crate) struct ConnectionEntry {
    connections: Arc<Connections>,
    pub(crate) connection: u64,
    dialogue: Arc<Mutex<OpenDialogue>>,
}

impl ConnectionEntry {
    pub(crate) fn greeted(&self, ehlo: &str) {
        ehlo.clone_into(&mut self.dialogue.lock().ehlo);
    }

    pub(crate) fn after_dot(&self, accepts: &[Arc<Accepted>]) {
        self.dialogue.lock().unanswered.extend_from_slice(accepts);
    }

    /// Records that the answer is decided. `emails` is the number of emails accepted on this connection.
    pub(crate) fn answered(&self, emails: u32) {
        let mut dialogue = self.dialogue.lock();
        dialogue.emails = emails;
        dialogue.unanswered.clear();
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.connection);
    }
}

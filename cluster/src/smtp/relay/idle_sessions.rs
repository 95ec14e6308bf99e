//! The open sessions with one relay that no email uses now.

use tokio::time::Instant;

use super::status::Counted;
use crate::smtp::session::dialogue::Session;

/// Idle sessions, oldest first. The youngest is used first, so that sessions that are not needed become old.
#[derive(Default)]
pub(super) struct IdleSessions(Vec<IdleSession>);

struct IdleSession {
    open: OpenSession,
    since: Instant,
}

impl IdleSessions {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn push(&mut self, open: OpenSession, since: Instant) {
        self.0.push(IdleSession { open, since });
    }

    /// Removes the youngest session.
    pub fn pop(&mut self) -> Option<OpenSession> {
        self.0.pop().map(|idle| idle.open)
    }

    /// Removes the sessions that are idle since `before` or longer.
    pub fn remove_idle_since(&mut self, before: Instant) -> Vec<OpenSession> {
        let old = self.0.iter().take_while(|idle| idle.since <= before).count();
        self.0.drain(..old).map(|idle| idle.open).collect()
    }

    pub fn into_open(self) -> impl Iterator<Item = OpenSession> {
        self.0.into_iter().map(|idle| idle.open)
    }
}

/// An open session. It counts in the number of open sessions while it exists.
pub(crate) struct OpenSession {
    pub session: Session,
    _open: Counted,
}

impl OpenSession {
    pub fn new(session: Session, open: Counted) -> OpenSession {
        OpenSession { session, _open: open }
    }

    /// Sends QUIT. The session counts as open until the answer has arrived or timed out.
    pub async fn quit(self) {
        let OpenSession { session, _open } = self;
        session.quit().await;
    }
}

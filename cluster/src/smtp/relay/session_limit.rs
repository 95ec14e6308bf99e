//! Maximum number of emails in one session with a relay.
//!
//! Relays end a session after some number of messages with 421 at MAIL (RFC 5321 3.8). The email that gets the 421 goes
//! back, so a known limit saves one release per session. A number is learned if two sessions in a row ended at it: a
//! relay that restarts ends its sessions too, but at different numbers. The learned limit grows slowly. `sessions.rs`
//! owns the value; this file reads no clock.

use std::time::Duration;

/// The learned limit grows at most this often, by an eighth. So a relay with a limit answers 421 once in this time, and
/// a limit of one that was learned by mistake is at eight after eight minutes.
const RAISE_EVERY: Duration = Duration::from_secs(60);

/// The limit of one relay.
#[derive(Debug)]
pub(crate) struct SessionLimit {
    most: u32,
    /// Emails carried by the last session that the relay itself ended. `None`: it ended none.
    seen: Option<u32>,
    /// The learned limit, and the time of its last change. `None`: nothing was learned.
    learned: Option<(u32, Duration)>,
}

impl SessionLimit {
    pub fn new(most: u32) -> SessionLimit {
        SessionLimit { most, seen: None, learned: None }
    }

    /// Returns the number of emails that a session may carry.
    pub fn get(&self) -> u32 {
        self.learned.map_or(self.most, |(learned, _)| learned.min(self.most))
    }

    /// Records that the relay ended a session after `emails` emails.
    pub fn ended_after(&mut self, emails: u32, now: Duration) {
        let emails = emails.max(1);
        if self.seen.replace(emails) == Some(emails) {
            self.learned = Some((emails.min(self.get()), now));
        }
    }

    /// Records that a session was retired at its limit without being ended by the relay. The learned limit may then
    /// grow.
    pub fn reached(&mut self, now: Duration) {
        if let Some((learned, since)) = &mut self.learned
            && now.saturating_sub(*since) >= RAISE_EVERY
        {
            (*learned, *since) = (learned.saturating_add((*learned / 8).max(1)), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(number: u64) -> Duration {
        RAISE_EVERY * u32::try_from(number).expect("a small number")
    }

    #[test]
    fn limit_is_learned_from_two_sessions_and_grows_slowly() {
        let mut limit = SessionLimit::new(1_000);
        limit.reached(minute(1));
        assert_eq!(limit.get(), 1_000, "nothing was learned");
        [100, 120, 90].into_iter().for_each(|emails| limit.ended_after(emails, minute(1)));
        assert_eq!(limit.get(), 1_000, "a restart ends each session elsewhere");
        limit.ended_after(90, minute(1));
        assert_eq!(limit.get(), 90);
        limit.reached(minute(1));
        assert_eq!(limit.get(), 90, "not before its time");
        limit.reached(minute(2));
        limit.reached(minute(2));
        assert_eq!(limit.get(), 101);
        [0, 0].into_iter().for_each(|emails| limit.ended_after(emails, minute(3)));
        assert_eq!(limit.get(), 1);
        (4..80).for_each(|at| limit.reached(minute(at)));
        assert_eq!(limit.get(), 1_000, "a mistake is undone");
    }
}

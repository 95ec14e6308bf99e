//! How many emails one session with a relay may carry.
//!
//! Relays end a session after so many messages with 421 at MAIL (RFC 5321 3.8). The email that meets it goes back, so a
//! known limit saves one release per session. The pool learns a number that two sessions in a row ended at: a relay that
//! restarts ends its sessions too, each at another number. It raises the number slowly. `state.rs` owns the value; it
//! reads no clock.

use std::time::Duration;

/// The learned limit grows at most this often, by an eighth: a relay with a limit says 421 once in this time, and a
/// limit of one that was learned by mistake is at eight after eight minutes.
const RAISE_EVERY: Duration = Duration::from_secs(60);

/// The limit of one relay.
#[derive(Debug)]
pub(crate) struct SessionLimit {
    most: u32,
    /// Where the last session was ended that was ended before its limit.
    seen: Option<u32>,
    /// What was learned, and when it last changed.
    learned: Option<(u32, Duration)>,
}

impl SessionLimit {
    pub fn new(most: u32) -> SessionLimit {
        SessionLimit { most, seen: None, learned: None }
    }

    /// Emails that a session may carry.
    pub fn get(&self) -> u32 {
        self.learned.map_or(self.most, |(learned, _)| learned.min(self.most))
    }

    /// The relay ended a session that had carried so many.
    pub fn ended_after(&mut self, emails: u32, now: Duration) {
        let emails = emails.max(1);
        if self.seen.replace(emails) == Some(emails) {
            self.learned = Some((emails.min(self.get()), now));
        }
    }

    /// A session is retired because it has carried as many as it may, and the relay had not ended it.
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

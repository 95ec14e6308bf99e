//! How long a dialogue waits: the relay's time-outs and the caller's own limits.
//!
//! [`Timeouts`] bound what a relay may take for each answer; they come from the configuration.
//! [`Deadlines`] is the caller's for one email and ends only what is still before the gate: a dialogue
//! past it waits for its answer, whatever the caller would like.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::cause::Cause;

/// Stands for a limit that no instant can hold.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a relay may take, by stage. The defaults are those of RFC 5321 4.5.3.2 where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving and connecting, over all addresses. Default 30 s; TCP alone would take minutes.
    pub connect: Duration,
    /// The answer to STARTTLS, and then the handshake. Default 30 s.
    pub tls: Duration,
    /// The greeting (4.5.3.2.1). Default 5 min.
    pub banner: Duration,
    /// The answer to EHLO. Default 5 min, as for MAIL.
    pub ehlo: Duration,
    /// Each answer to AUTH. Default 5 min, as for MAIL.
    pub auth: Duration,
    /// The answer to MAIL (4.5.3.2.2). Default 5 min.
    pub mail: Duration,
    /// The answer to RCPT (4.5.3.2.3). Default 5 min.
    pub rcpt: Duration,
    /// The answer to DATA (4.5.3.2.4). Default 2 min.
    pub data: Duration,
    /// Each 64 KiB of the text (4.5.3.2.5). Default 3 min.
    pub block: Duration,
    /// The answer to the final dot (4.5.3.2.6). Default 10 min: giving up earlier is how duplicates
    /// are made.
    pub dot: Duration,
    /// The farewell: QUIT, and the lone dot that lands nowhere. Default 5 s.
    pub quit: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Timeouts {
            connect: Duration::from_secs(30),
            tls: Duration::from_secs(30),
            banner: minutes(5),
            ehlo: minutes(5),
            auth: minutes(5),
            mail: minutes(5),
            rcpt: minutes(5),
            data: minutes(2),
            block: minutes(3),
            dot: minutes(10),
            quit: Duration::from_secs(5),
        }
    }
}

/// What the caller will wait for before the gate. The default waits for ever.
#[derive(Debug, Clone, Default)]
pub struct Deadlines {
    /// A session is to be open before this, or the email goes back (P12): a relay may take minutes to greet, and
    /// an email has other relays to go to.
    pub open_by: Option<Instant>,
    /// The gate is to be met before this, or the email goes back.
    pub begin_by: Option<Instant>,
    /// Cancel to end the dialogue politely while it is before the gate.
    pub stop: CancellationToken,
}

impl Deadlines {
    /// How long the email waits for a session.
    pub(crate) fn to_open(&self) -> Deadlines {
        let begin_by = [self.open_by, self.begin_by].into_iter().flatten().min();
        Deadlines { begin_by, ..self.clone() }
    }

    /// Runs `step` for at most `limit`.
    ///
    /// # Errors
    /// `TimedOut` when the relay's time is over, `NotBegunInTime` and `Stopped` when the caller's is.
    pub(crate) async fn bound<T>(&self, limit: Duration, step: impl Future<Output = T>) -> Result<T, Cause> {
        let now = Instant::now();
        let end = now.checked_add(limit).unwrap_or(now + FAR);
        let (end, cause) = match (self.begin_by, end) {
            (Some(begin_by), end) if begin_by < end => (begin_by, Cause::NotBegunInTime),
            (_, end) => (end, Cause::TimedOut),
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Cause::Stopped),
            done = step => Ok(done),
            () = sleep_until(end) => Err(cause),
        }
    }
}

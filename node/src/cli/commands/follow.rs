//! `--watch` and `run watch`: shows an object or a list again whenever it changes.
//!
//! A source yields frames: it reads a list or an object every second, or follows a stream of the cluster. If the first
//! read fails, the command fails as it would without `--watch`. A failure later on is reported once, and reading
//! continues every second. `--timeout` and Ctrl-C end the watching. [`screen`](super::screen) decides how a frame is
//! printed on each kind of output.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::screen::{Frame, Screen};
use super::{CommandContext, Exit, Failure, Stop, WITHIN};

/// Interval between two reads.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// One frame of a source.
pub enum Next {
    /// A frame that others may follow.
    Frame(Frame),
    /// The last frame of the source.
    Last(Frame),
}

/// Why the watching ended without an error.
pub enum End {
    /// The source yielded its last frame.
    Over,
    /// `--timeout` ended, and the watched object continues. Holds the failure of the last read, if it failed.
    TimeUp(Option<Failure>),
}

/// Shows a source's frames until it ends, or until `--timeout` ends.
pub async fn follow(
    context: &CommandContext<'_>,
    mut next: impl AsyncFnMut() -> Result<Next, Failure>,
) -> Result<End, Stop> {
    let mut screen = Screen::new(context.terminal);
    let mut asked_at = None;
    let mut problem: Option<Failure> = None;
    loop {
        // Each read has its own timeout. The loop itself checks the end of `--timeout`.
        context.client.set_timeout(WITHIN);
        let answer = match context.end {
            Some(end) => timeout_at(end, next()).await,
            None => Ok(next().await),
        };
        match answer {
            Ok(Ok(Next::Frame(frame))) => {
                screen.show(frame)?;
                context.watching.set(true);
            }
            Ok(Ok(Next::Last(frame))) => {
                screen.show(frame)?;
                return Ok(End::Over);
            }
            Ok(Err(failure)) if screen.is_blank() || !passes(&failure) => return Err(failure.into()),
            Ok(Err(failure)) => {
                if problem.is_none() {
                    screen.say(&format!("{}; asking again every second", failure.message));
                }
                problem = Some(failure);
                sleep(POLL_EVERY).await;
                continue;
            }
            Err(_) if screen.is_blank() => {
                let next = "a longer --timeout, or reveille cluster status";
                return Err(Failure::timed_out("no answer in time", next).into());
            }
            Err(_) => return Ok(End::TimeUp(problem)),
        }
        let answered = context.client.answered_by();
        match (&asked_at, &answered) {
            (Some(former), Some(now)) if former != now => screen.say(&format!("{former} is lost; going on with {now}")),
            (_, Some(now)) if problem.is_some() => screen.say(&format!("{now} answers again")),
            _ => {}
        }
        (asked_at, problem) = (answered, None);
    }
}

/// True if the next read may succeed although this one failed.
pub fn passes(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::NoQuorum | Exit::TimedOut)
}

/// Reads and shows a frame every second, until the user or `--timeout` ends it.
pub async fn poll(
    context: &CommandContext<'_>,
    mut fetch: impl AsyncFnMut() -> Result<Frame, Failure>,
) -> Result<(), Stop> {
    let mut polled_at: Option<Instant> = None;
    let next = async || {
        if let Some(at) = polled_at {
            tokio::time::sleep_until(at + POLL_EVERY).await;
        }
        polled_at = Some(Instant::now());
        fetch().await.map(Next::Frame)
    };
    match follow(context, next).await? {
        End::Over | End::TimeUp(None) => Ok(()),
        End::TimeUp(Some(failure)) => Err(failure.into()),
    }
}

//! `--watch`, and `run watch`: what a command shows, shown again whenever it changed.
//!
//! What is followed is a source of scenes: a list or an object that is read again every second, or a stream
//! of the cluster's. What happens around them is here and the same for all: the first look fails as a command
//! without `--watch` would; later a node that is lost is said, and another one goes on; `--timeout` ends the
//! watching, and so does Ctrl-C. What a scene looks like on which kind of output is [`screen`](super::screen)'s.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::screen::{Scene, Screen};
use super::{Desk, WITHIN};
use crate::cli::failure::{Exit, Failure, Stop};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a source gives.
pub enum Next {
    /// Something to show; more may come.
    Scene(Scene),
    /// The last that there is.
    Last(Scene),
}

/// How the following ended by itself.
pub enum End {
    /// The source said so.
    Over,
    /// `--timeout` ended; the watched object goes on. Holds the failure of the last read, if it failed.
    TimeUp(Option<Failure>),
}

/// Follows a source until it ends, or for as long as `--timeout` says.
pub async fn follow(desk: &Desk<'_>, mut next: impl AsyncFnMut() -> Result<Next, Failure>) -> Result<End, Stop> {
    let end = desk.global.timeout.map(|within| Instant::now() + within);
    let mut screen = Screen::new(desk.terminal);
    let mut asked_at = None;
    let mut problem: Option<Failure> = None;
    loop {
        // Each look has its own time; the end is kept below.
        desk.client.give(WITHIN);
        let looked = match end {
            Some(end) => timeout_at(end, next()).await,
            None => Ok(next().await),
        };
        match looked {
            Ok(Ok(Next::Scene(scene))) => {
                screen.show(scene)?;
                desk.watching.set(true);
            }
            Ok(Ok(Next::Last(scene))) => {
                screen.show(scene)?;
                return Ok(End::Over);
            }
            Ok(Err(failure)) if screen.is_blank() || !passes(&failure) => return Err(failure.into()),
            Ok(Err(failure)) => {
                if problem.is_none() {
                    screen.say(&format!("{}; asking again every second", failure.message));
                }
                problem = Some(failure);
                sleep(LOOK_EVERY).await;
                continue;
            }
            Err(_) if screen.is_blank() => return Err(nothing_seen().into()),
            Err(_) => return Ok(End::TimeUp(problem)),
        }
        let answered = desk.client.answered_by();
        match (&asked_at, &answered) {
            (Some(former), Some(now)) if former != now => screen.say(&format!("{former} is lost; going on with {now}")),
            (_, Some(now)) if problem.is_some() => screen.say(&format!("{now} answers again")),
            _ => {}
        }
        (asked_at, problem) = (answered, None);
    }
}

/// There was no answer at all.
fn nothing_seen() -> Failure {
    Failure {
        exit: Exit::TimedOut,
        reason: "TIMED_OUT".into(),
        message: "no answer in time".to_owned(),
        next: Some("a longer --timeout, or reveille cluster status".to_owned()),
        ..Failure::default()
    }
}

/// May the next look succeed where this one did not?
fn passes(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::NoQuorum | Exit::TimedOut)
}

/// A source that looks again and again, and never ends.
pub async fn look_again(desk: &Desk<'_>, mut look: impl AsyncFnMut() -> Result<Scene, Failure>) -> Result<(), Stop> {
    let mut looked_at: Option<Instant> = None;
    let next = async || {
        if let Some(at) = looked_at {
            tokio::time::sleep_until(at + LOOK_EVERY).await;
        }
        looked_at = Some(Instant::now());
        look().await.map(Next::Scene)
    };
    match follow(desk, next).await? {
        End::Over | End::TimeUp(None) => Ok(()),
        End::TimeUp(Some(failure)) => Err(failure.into()),
    }
}

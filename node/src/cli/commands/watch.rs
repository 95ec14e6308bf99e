//! `reveille run watch`: shows a run until nothing in it is pending, across lost connections and fail-overs.

use std::time::Duration;

use reveille_proto::admin::v1::run_service_client::RunServiceClient as Service;
use reveille_proto::admin::v1::{Run, RunState, WatchRunRequest, WatchRunResponse};
use tokio::time::{Instant, sleep};
use tonic::Streaming;

use super::follow::{End, Next, follow};
use super::screen::Frame;
use super::speed::{Speed, Throughput};
use super::{CommandContext, Failure, RetrySafety, Stop, View, WITHIN, format};
use crate::cli::client::is_passing;
use crate::cli::view::run::{is_finished, left_in_doubt, progress, sentence};
use crate::cli::wording::why;

/// Width of the progress bar in characters.
const BAR_WIDTH: u64 = 40;
/// Delay before a stream that ended early is requested again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Watches the run until it is finished, or until `--timeout` ends.
pub async fn run(context: &CommandContext<'_>, tenant: String, run: String) -> Result<(), Stop> {
    let request = WatchRunRequest { tenant, run, stale: context.stale };
    let mut stream: Option<Streaming<WatchRunResponse>> = None;
    let began = Instant::now();
    let mut speed = Speed::default();
    let mut last = None;
    let mut show = |answer: WatchRunResponse| {
        let run = answer.run.unwrap_or_default();
        let is_paused = run.state() == RunState::Paused;
        let goes = if is_paused { speed.pause() } else { speed.sample(progress(&run), began.elapsed()) };
        let finished = is_finished(&run);
        let frame = frame(context, &run, (goes, began.elapsed()), finished);
        last = Some(run);
        if finished { Next::Last(frame) } else { Next::Frame(frame) }
    };
    let next = async || loop {
        let Some(open) = &mut stream else {
            // The client's deadline is that of the last request, and may have passed while its stream was open.
            context.client.set_timeout(WITHIN);
            let call = |channel, request| async move { Service::new(channel).watch_run(request).await };
            stream = Some(context.client.call(RetrySafety::Read, request.clone(), call).await?);
            continue;
        };
        let why = match open.message().await {
            Ok(Some(answer)) => return Ok(show(answer)),
            Ok(None) => "it ended before the run did".to_owned(),
            Err(status) if is_passing(&status) => status.message().to_owned(),
            Err(status) => return Err(Failure::of_status(&status)),
        };
        // Another node, or the same one a moment later, may continue. If none does, the next request fails.
        context.terminal.detail(&format!("the stream broke ({why}); asking again"));
        stream = None;
        sleep(AGAIN_AFTER).await;
    };
    let end = Box::pin(follow(context, next)).await?;
    match end {
        End::Over => {
            if let Some(left) = last.as_ref().and_then(left_in_doubt) {
                context.terminal.say(&left);
            }
            Ok(())
        }
        End::TimeUp(_) => Err(Failure::timed_out("the run is not finished yet", "a longer --timeout, or none").into()),
    }
}

/// On a live terminal, returns a progress bar, and at the end the whole run; elsewhere a sentence.
fn frame(context: &CommandContext<'_>, run: &Run, (goes, elapsed): (Throughput, Duration), finished: bool) -> Frame {
    // The reason for a pause is shown in place of the speed.
    let words = match (run.state(), why(run).as_str()) {
        (RunState::Paused, "") => "paused".to_owned(),
        (RunState::Paused, reason) => format!("paused: {reason}"),
        _ => goes.words(),
    };
    let text = match (context.terminal.is_live(), finished) {
        (false, _) if words.is_empty() => sentence(run),
        (false, _) => format!("{}; {words}", sentence(run)),
        (true, true) => run.text(context.terminal.paints()),
        (true, false) => format!("{}\n{}", bar(progress(run), &words, elapsed), sentence(run)),
    };
    Frame::worded(run, text).beside(goes.fields())
}

fn bar((done, all): (u64, u64), goes: &str, elapsed: Duration) -> String {
    let part = |of: u64| of.saturating_mul(done).checked_div(all).unwrap_or(of);
    let full = usize::try_from(part(BAR_WIDTH)).unwrap_or_default();
    let rest = usize::try_from(BAR_WIDTH).unwrap_or_default().saturating_sub(full);
    let elapsed = format::duration(i64::try_from(elapsed.as_secs()).unwrap_or_default().saturating_mul(1_000));
    let goes = if goes.is_empty() { String::new() } else { format!("  {goes}") };
    format!("{}{} {:>3} %{goes}  {elapsed}", "█".repeat(full), "░".repeat(rest), part(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_says_how_far_how_fast_and_since_when() {
        let shown = bar((50, 200), "2/s, over in 1m 15s", Duration::from_secs(20));
        assert_eq!(shown, format!("{}{}  25 %  2/s, over in 1m 15s  20s", "█".repeat(10), "░".repeat(30)));
        assert!(bar((0, 0), "", Duration::ZERO).contains("100 %"), "of nothing all is done");
    }
}

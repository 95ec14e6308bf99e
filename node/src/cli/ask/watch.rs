//! `reveille run watch`: follows a run until nothing of it is pending, over lost connections and fail-overs.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reveille_proto::admin::v1::WatchRunRequest;
use reveille_proto::admin::v1::run_service_client::RunServiceClient as Service;
use tokio::time::{sleep, timeout};

use super::Desk;
use crate::cli::args::Format;
use crate::cli::client::{Nature, is_passing};
use crate::cli::failure::{Exit, Failure, Stop};
use crate::cli::view::run::RunView;

/// A stream that ended early is asked for again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Follows it; with `--timeout` not longer than that.
pub async fn run(desk: &Desk<'_>, tenant: String, run: String) -> Result<(), Stop> {
    let question = WatchRunRequest { tenant, run };
    let Some(within) = desk.global.timeout else { return follow(desk, question).await };
    let Ok(result) = timeout(within, follow(desk, question)).await else {
        return Err(Failure {
            exit: Exit::TimedOut,
            reason: "TIMED_OUT".into(),
            message: "the run is not finished yet".to_owned(),
            next: Some("a longer --timeout, or none".to_owned()),
            ..Failure::default()
        }
        .into());
    };
    result
}

async fn follow(desk: &Desk<'_>, question: WatchRunRequest) -> Result<(), Stop> {
    let client = desk.patient_client();
    let call = |channel, question| async move { Service::new(channel).watch_run(question).await };
    let mut screen = Screen::new(desk);
    loop {
        let mut stream = client.ask(Nature::Read, question.clone(), call).await?;
        loop {
            match stream.message().await {
                Ok(Some(answer)) => {
                    let view = RunView::from(answer.run.unwrap_or_default());
                    screen.show(&view)?;
                    if view.is_finished() {
                        return screen.finish(&view);
                    }
                }
                Ok(None) => break,
                Err(status) if is_passing(&status) => {
                    desk.terminal.detail(&format!("the connection broke ({}); asking again", status.code()));
                    break;
                }
                Err(status) => return Err(Failure::of_status(&status).into()),
            }
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// A bar on a terminal, otherwise a line a change.
struct Screen<'a> {
    desk: &'a Desk<'a>,
    bar: Option<ProgressBar>,
    last: Option<RunView>,
}

impl<'a> Screen<'a> {
    fn new(desk: &'a Desk<'a>) -> Screen<'a> {
        let has_bar = desk.terminal.format() == Format::Table && desk.terminal.is_watched();
        let bar = has_bar.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // The template is a constant: a test reads it.
            bar.with_style(style().unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Screen { desk, bar, last: None }
    }

    fn show(&mut self, view: &RunView) -> Result<(), Stop> {
        if self.last.as_ref() == Some(view) {
            return Ok(());
        }
        self.last = Some(view.clone());
        match &self.bar {
            None => self.desk.terminal.line(view, &view.sentence()),
            Some(bar) => {
                let (done, all) = view.progress();
                bar.set_length(all);
                bar.set_position(done);
                bar.set_message(view.sentence());
                Ok(())
            }
        }
    }

    fn finish(self, view: &RunView) -> Result<(), Stop> {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
            self.desk.terminal.show(view)?;
        }
        if let Some(left) = view.left_in_doubt() {
            self.desk.terminal.say(&left);
        }
        Ok(())
    }
}

fn style() -> Result<ProgressStyle, indicatif::style::TemplateError> {
    ProgressStyle::with_template("{wide_bar} {percent:>3}% {per_sec} {elapsed}\n{msg}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_bar_can_be_drawn() {
        assert!(super::style().is_ok());
    }
}

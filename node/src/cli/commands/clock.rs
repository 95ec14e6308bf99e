//! `reveille clock …`: the test clock of a cluster that was created with one.

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use reveille_proto::admin::v1::advance_clock_request::Target;
use reveille_proto::admin::v1::clock_service_client::ClockServiceClient as Service;
use reveille_proto::admin::v1::{AdvanceClockRequest, AdvanceClockResponse, GetClockRequest, GetClockResponse};
use tokio::time::{Instant, timeout};

use super::{
    Answer, CommandContext, Exit, Failure, RetrySafety, Stop, View, Watch, duration_ms, duration_to_wire, format,
    to_wire,
};
use crate::cli::client::is_passing;
use crate::cli::instant::{parse_duration, parse_instant, text};
use crate::cli::view::layout::{Cell, card};

#[derive(Debug, Subcommand)]
pub enum ClockCommand {
    /// What time it is, and when the next schedule is due
    #[command(
        after_long_help = "Example:\n  reveille clock show\n\nA clock to move by hand: reveille dev --test-clock"
    )]
    Show(Watch),
    /// Move it forward, from one due instant to the next, and wait until the emails of each are sent
    ///
    /// It cannot be moved back. Without --timeout the command runs until the target is reached; Ctrl-C stops the clock at
    /// the last instant.
    #[command(after_long_help = "\
Examples:
  reveille clock advance 20h
  reveille clock advance --target-time 2027-03-14T00:00:00Z
  reveille clock advance 4d --jump      # as if nothing had run for four days")]
    Advance(AdvanceArgs),
}

/// How far.
#[derive(Debug, Args)]
pub struct AdvanceArgs {
    /// How far from now, such as 90m, 20h or 365d
    #[arg(value_name = "DURATION", value_parser = parse_duration, required_unless_present = "target_time", conflicts_with = "target_time")]
    pub by: Option<SignedDuration>,
    /// To which instant
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub target_time: Option<Timestamp>,
    /// Leap at once, as an outage would: what falls due in between is missed, and caught up by its policy
    #[arg(long)]
    pub jump: bool,
}

/// Next step after an advance that was interrupted.
const GO_ON: &str = "reveille clock show, then reveille clock advance --target-time INSTANT";
/// Interval of progress lines.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Runs the subcommand.
pub async fn run(context: &CommandContext<'_>, command: ClockCommand) -> Result<(), Stop> {
    match command {
        ClockCommand::Show(watch) => {
            let request = GetClockRequest { stale: context.stale };
            context.show(watch, request, |mut answer| (answer.freshness.take(), Some(answer))).await
        }
        ClockCommand::Advance(args) => advance(context, args).await,
    }
}

async fn advance(context: &CommandContext<'_>, args: AdvanceArgs) -> Result<(), Stop> {
    let Some(within) = context.global.timeout else { return advance_to_end(context, args).await };
    let late = |_| Err(Failure::timed_out("the clock is on its way and stays where it is", GO_ON).into());
    timeout(within, advance_to_end(context, args)).await.unwrap_or_else(late)
}

/// Asks one node to advance the clock, also across fail-overs. A lost connection ends the call. The user then reads the
/// clock with `show`, and continues with `--target-time`.
async fn advance_to_end(context: &CommandContext<'_>, args: AdvanceArgs) -> Result<(), Stop> {
    let call = |channel, request| async move { Service::new(channel).advance_clock(request).await };
    let by = args.by.map(|by| Target::By(duration_to_wire(by)));
    let target = args.target_time.map(|to| Target::TargetTime(to_wire(to))).or(by);
    let request = AdvanceClockRequest { target, jump: args.jump };
    let begun = Instant::now();
    context.remove_default_limit();
    let mut stream = context.client.call(RetrySafety::Once, request, call).await?;
    let mut said = begun;
    loop {
        match stream.message().await {
            Ok(Some(word)) if word.done => {
                let words = advanced(&word, begun.elapsed().as_secs_f64());
                return context.terminal.show(&Answer::new(&word, instant(word.current_time.as_ref()), words));
            }
            Ok(Some(word)) if said.elapsed() >= SAY_EVERY => {
                said = Instant::now();
                context.terminal.remark(&progress_text(&word));
            }
            Ok(Some(_)) => {}
            Ok(None) => return Err(cut_short("the node ended before its last word").into()),
            Err(status) if is_passing(&status) => return Err(cut_short(status.message()).into()),
            Err(status) => return Err(Failure::of_status(&status).into()),
        }
    }
}

fn cut_short(cause: &str) -> Failure {
    let message = format!("the connection broke on the way ({cause}); the clock stays where it is");
    Failure::new(Exit::TimedOut, "ANSWER_LOST", message, GO_ON)
}

/// Returns the progress of an advance in one line.
fn progress_text(answer: &AdvanceClockResponse) -> String {
    let left = [
        (answer.due, "due schedule"),
        (answer.pending, "pending recipient"),
        (answer.claimed, "claimed recipient"),
        (answer.late, "overdue run"),
    ];
    let left = left.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format::counted(*count, what));
    let waits = match left.collect::<Vec<_>>().join(", ") {
        nothing if nothing.is_empty() => nothing,
        left => format!(", waits for {left}"),
    };
    let (steps, fired) = (format::counted(answer.steps, "step"), format::count(answer.fired));
    format!("{}: {steps}, {fired} fired{waits}", instant(answer.current_time.as_ref()))
}

/// Returns the result of an advance that took this time.
fn advanced(answer: &AdvanceClockResponse, seconds: f64) -> String {
    let (from, to) = (instant(answer.former_time.as_ref()), instant(answer.current_time.as_ref()));
    let (steps, fired) = (format::counted(answer.steps, "step"), format::count(answer.fired));
    format!("{from} to {to}: {steps}, {fired} fired, in {seconds:.1} s")
}

/// Returns an instant, or a question mark.
fn instant(instant: Option<&prost_types::Timestamp>) -> String {
    text(instant).unwrap_or_else(|| "?".to_owned())
}

impl View for GetClockResponse {
    fn name(&self) -> String {
        text(self.current_time.as_ref()).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("now", Cell::at(self.current_time.as_ref())),
            ("ahead", format::duration(self.offset.as_ref().map_or(0, duration_ms)).into()),
            ("next due", Cell::at(self.next_due_time.as_ref())),
        ];
        card(pairs, paint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_shows_its_position_and_what_it_waits_for() {
        let answer = AdvanceClockResponse {
            current_time: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            steps: 1,
            fired: 1_200,
            claimed: 2,
            ..AdvanceClockResponse::default()
        };
        assert_eq!(progress_text(&answer), "1970-01-01T00:00:00Z: 1 step, 1,200 fired, waits for 2 claimed recipients");
        let quiet = AdvanceClockResponse { claimed: 0, ..answer };
        assert_eq!(progress_text(&quiet), "1970-01-01T00:00:00Z: 1 step, 1,200 fired");
    }
}

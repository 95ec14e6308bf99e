//! `reveille clock …`: the test clock of a cluster that was created with one.

use std::time::Duration;

use reveille_proto::admin::v1::advance_clock_request::Target;
use reveille_proto::admin::v1::clock_service_client::ClockServiceClient as Service;
use reveille_proto::admin::v1::{AdvanceClockRequest, GetClockRequest};
use tokio::time::{Instant, timeout};

use super::{
    AdvanceArgs, Answer, ClockCommand, CommandContext, Exit, Failure, RetrySafety, Stop, duration_to_wire, to_wire,
};
use crate::cli::client::is_passing;
use crate::cli::view::clock;

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
    let client = context.retrying_client();
    let mut stream = client.call(RetrySafety::Once, request, call).await?;
    let mut said = begun;
    loop {
        match stream.message().await {
            Ok(Some(word)) if word.done => {
                let words = clock::advanced(&word, begun.elapsed().as_secs_f64());
                return context.terminal.show(&Answer::new(&word, clock::instant(word.current_time.as_ref()), words));
            }
            Ok(Some(word)) if said.elapsed() >= SAY_EVERY => {
                said = Instant::now();
                context.terminal.remark(&clock::progress_text(&word));
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

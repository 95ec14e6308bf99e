//! Implements `reveille events`.

use std::time::Duration;

use reveille_proto::admin::v1::{EventType, ListEventsRequest, ListEventsResponse};
use tokio::time::{Instant, sleep};

use super::{
    Client, CommandContext, EventArgs, Exit, Failure, Format, Json, PAGE_SIZE, RetrySafety, Stop, TYPE_PREFIX, WITHIN,
    escape,
};
use crate::cli::view::event::line;
use crate::cli::word::name;

/// Time that a request of `--follow` waits for an event.
const WAIT: Duration = Duration::from_secs(20);
/// Pause after no node has answered.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Runs the command.
pub async fn run(context: &CommandContext<'_>, args: EventArgs) -> Result<(), Stop> {
    let types = args.types.iter().filter_map(|word| EventType::from_str_name(&name(TYPE_PREFIX, word)));
    let request = ListEventsRequest {
        tenant: args.tenant,
        after: args.after,
        types: types.map(i32::from).collect(),
        single: args.single,
        stale: context.stale,
        ..ListEventsRequest::default()
    };
    if args.follow { follow(context, request).await } else { list(context, request, args.limit).await }
}

/// Prints the events that there are. At the end it says how to continue.
async fn list(context: &CommandContext<'_>, mut request: ListEventsRequest, limit: u32) -> Result<(), Stop> {
    let (client, mut left) = (context.retrying_client(), limit);
    while left > 0 {
        request.page_size = i32::try_from(left.min(PAGE_SIZE)).unwrap_or_default();
        let answer = ask(&client, &request).await?;
        left = left.saturating_sub(u32::try_from(answer.events.len()).unwrap_or(u32::MAX));
        request.after.clone_from(&answer.cursor);
        let is_over = !answer.more;
        print(context, answer)?;
        if is_over {
            break;
        }
    }
    context.terminal.say(&format!("to continue: --after {}", request.after));
    Ok(())
}

/// Prints events as they come, until `--timeout` or Ctrl-C. A lost node is one line on stderr.
async fn follow(context: &CommandContext<'_>, mut request: ListEventsRequest) -> Result<(), Stop> {
    let end = context.global.timeout.map(|within| Instant::now() + within);
    let mut is_lost = false;
    loop {
        let left = end.map_or(WAIT, |end| end.saturating_duration_since(Instant::now()).min(WAIT));
        request.wait =
            Some(prost_types::Duration { seconds: left.as_secs() as i64, nanos: left.subsec_nanos() as i32 });
        context.client.set_timeout(left + WITHIN);
        match ask(&context.client, &request).await {
            Ok(answer) => {
                context.watching.set(true);
                is_lost = false;
                request.after.clone_from(&answer.cursor);
                print(context, answer)?;
            }
            Err(failure) if !context.watching.get() || !matches!(failure.exit, Exit::NoQuorum | Exit::TimedOut) => {
                return Err(failure.into());
            }
            Err(failure) => {
                if !std::mem::replace(&mut is_lost, true) {
                    context.terminal.say(&format!("{}; asking again every second", failure.message));
                }
                sleep(AGAIN_AFTER).await;
            }
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
    }
}

async fn ask(client: &Client, request: &ListEventsRequest) -> Result<ListEventsResponse, Failure> {
    client.ask(RetrySafety::Read, request.clone()).await
}

fn print(context: &CommandContext<'_>, answer: ListEventsResponse) -> Result<(), Stop> {
    for event in answer.events {
        let words = match context.terminal.format() {
            Format::Name => event.cursor.clone(),
            _ => escape::escaped(&line(&event), &[]),
        };
        context.terminal.object(&words, &event.json())?;
    }
    Ok(())
}

//! Implements `reveille events`.

use std::time::Duration;

use clap::Args;
use reveille_proto::admin::v1::{Event, EventType, ListEventsRequest, ListEventsResponse};
use tokio::time::{Instant, sleep};

use super::follow::passes;
use super::{Client, CommandContext, Failure, Format, Json, PAGE_SIZE, RetrySafety, Stop, WITHIN, escape, format};
use crate::api_json::word;
use crate::cli::instant::text;
use crate::cli::view::some;
use crate::cli::word::name;
use crate::cli::wording;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  reveille events --limit 20
  reveille events --after 1042.3 --type run_finished,recipients_dead -o json
  reveille events --after latest --follow -o json")]
pub struct EventArgs {
    /// Tenant
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Only what came after this: the cursor of an event, or `latest` for what comes from now on [default: the oldest
    /// event that is kept]
    #[arg(long, value_name = "CURSOR", default_value = "", hide_default_value = true)]
    pub after: String,
    /// Go on with new events, until Ctrl-C or --timeout, across lost nodes
    #[arg(long)]
    pub follow: bool,
    /// Only events of these types
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = TYPES)]
    pub types: Vec<String>,
    /// One event for each recipient, with its address
    #[arg(long)]
    pub single: bool,
    /// Print at most so many
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "follow")]
    pub limit: u32,
}

/// Prefix of the generated names of types.
const TYPE_PREFIX: &str = "EVENT_TYPE_";
/// The types, as users name them.
#[rustfmt::skip]
const TYPES: [&str; 16] = [
    "run_opened", "run_finished", "run_paused", "run_resumed", "run_cancelled", "run_expired", "recipients_sent",
    "recipients_dead", "recipients_in_doubt", "recipients_suppressed", "recipients_assumed", "recipients_expired",
    "recipients_cancelled", "recipients_pending", "opted_out", "schedule_blocked",
];

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
    let mut left = limit;
    while left > 0 {
        request.page_size = i32::try_from(left.min(PAGE_SIZE)).unwrap_or_default();
        context.restart_default_limit();
        let answer = ask(&context.client, &request).await?;
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
    let end = context.end;
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
            Err(failure) if !context.watching.get() || !passes(&failure) => {
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

/// Returns the event in one line.
fn line(event: &Event) -> String {
    let about = some(&event.run).or(some(&event.schedule)).unwrap_or("-");
    let time = text(event.time.as_ref()).unwrap_or_else(|| "-".to_owned());
    let mut line = format!("{:<12} {time} {:<21} {about}", event.cursor, word(event.r#type().as_str_name()));
    let recipients = (event.count > 0).then(|| format::counted(u64::from(event.count), "recipient"));
    let numbers = some(&event.numbers).map(|numbers| format!("#{numbers}"));
    let pause = event.pause.as_ref().map(wording::pause);
    let made_way = some(&event.cancelled_by).map(wording::made_way);
    let block = event.block.as_ref().map(wording::block);
    let more = [recipients, numbers, Some(event.addresses.join(" ")), pause, made_way, block];
    for words in more.into_iter().flatten().filter(|words| !words.is_empty()) {
        line.push_str("  ");
        line.push_str(&words);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_json::word;
    use reveille_proto::admin::v1::EventType;

    #[test]
    fn each_type_of_the_api_can_be_named() {
        let known = (1..).map_while(|number| EventType::try_from(number).ok());
        let known: Vec<String> = known.map(|known| word(known.as_str_name())).collect();
        assert_eq!(known, TYPES);
    }
}

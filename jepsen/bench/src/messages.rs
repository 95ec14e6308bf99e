//! `bench messages`: measures how many messages with a key a second the cluster takes by JSON over HTTP, and how long
//! an answer takes. A call is answered when the message is on the disks of a majority.
//!
//! The result is valid if each message arrived exactly once, although some of the calls are repeated with their keys.

use anyhow::Result;
use reveille_harness::load::{self, CreateLoad};
use reveille_harness::measure::rounded;
use reveille_harness::{AdminClient, Cluster, Needs, Report, StartArgs};
use serde_json::json;

use crate::accepts::Accepts;
use crate::schedules::percentiles;
use crate::{Counter, NODES, QUIET_AFTER, SESSIONS, longest_wait};

/// Each message with such a number is sent a second time with its key, after the first answer.
const REPEATED: u64 = 10;

/// Options of `bench messages`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Messages, each with one recipient and a text of its own
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub messages: u64,
    /// Connections, spread over the nodes; each sends its next message after the answer to the last one
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub connections: u32,
}

/// Runs the benchmark of messages.
pub async fn run(start: &StartArgs, args: &Args) -> Result<Report> {
    let (counter, sink) = Counter::start(Accepts::of((0..args.messages).map(address)), Accepts::record)?;
    let cluster = Cluster::start(start, NODES, Needs::default()).await?;
    cluster.admin().add_relay(sink.address(), SESSIONS).await?;
    let before = cluster.cpu_seconds()?;
    let calls = CreateLoad { clients: args.connections, count: args.messages, batch: 1 };
    let sent = load::call(cluster.admin(), calls, "messages", |admin, numbers| send(admin, numbers.start)).await?;
    eprintln!("{} messages, {:.0} a second", sent.count, sent.rate());
    let wait = longest_wait(args.messages);
    // The counts below show missing emails.
    let _ = sink.wait_for(args.messages, wait).await;
    let cpu_seconds = cluster.cpu_seconds_since(&before)?;
    let again = CreateLoad { count: args.messages / REPEATED, ..calls };
    let repeated =
        load::call(cluster.admin(), again, "repeated messages", |admin, numbers| send(admin, numbers.start * REPEATED));
    let repeated = repeated.await?;
    tokio::time::sleep(QUIET_AFTER).await;
    let accepts = counter.read();
    let valid = accepts.is_exact();
    let figures = json!({
        "messages": args.messages,
        "connections": args.connections,
        "messages_per_second": rounded(sent.rate()),
        "answer_ms": percentiles(&sent.latencies_us),
        // Calls whose key is known, which send nothing.
        "repeated_per_second": rounded(repeated.rate()),
        "repeated_answer_ms": percentiles(&repeated.latencies_us),
        "emails": accepts.figures(),
        // Processor time from the first call to the last email.
        "cpu_seconds": cpu_seconds,
        "valid": valid,
    });
    Report::new(&figures, valid)
}

async fn send(admin: AdminClient, number: u64) -> Result<()> {
    let (key, to) = (format!("order-{number}"), address(number));
    let content = json!({
        "sender": "Shop <shop@example.com>",
        "subject": format!("Your order {number}"),
        "text": format!("Thank you for your order {number}. It is on its way.\n"),
    });
    let body = json!({"to": [to], "content": content}).to_string();
    admin.post_json("/v1/messages", &key, body).await.map(|_| ())
}

fn address(number: u64) -> String {
    format!("customer-{number}@example.net")
}

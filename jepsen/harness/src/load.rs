//! The load on the cluster: schedules that fire once, created by many clients at the same time, and other calls.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use reveille_proto::admin::v1::{Audience, Content, Recipient, ScheduleBody, When, when};
use tokio::task::JoinSet;

use crate::admin::AdminClient;

const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Time until a schedule is due that must not fire: a year.
pub const A_YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns a schedule that sends one email to each of these addresses at one instant.
pub fn once(name: String, at: SystemTime, recipients: Vec<String>) -> ScheduleBody {
    let content = Content { subject: format!("From {name}"), ..content("This email comes once.\n") };
    let recipient = |address| Recipient { address, values: Vec::new() };
    ScheduleBody {
        name,
        timing: Some(When { pattern: Some(when::Pattern::At(prost_types::Timestamp::from(at))) }),
        zone: "UTC".to_owned(),
        content: Some(content),
        audience: Some(Audience { recipients: recipients.into_iter().map(recipient).collect(), ..Audience::default() }),
        ..ScheduleBody::default()
    }
}

fn content(text: &str) -> Content {
    let sender = "Jepsen <jepsen@example.org>".to_owned();
    Content { sender, text: Some(text.to_owned()), ..Content::default() }
}

/// Returns the address of a recipient of a schedule. No other schedule has this address.
pub fn address(schedule: &str, recipient: u32) -> String {
    format!("{schedule}-{recipient}@example.net")
}

/// Returns a schedule with `recipients` addresses that no other schedule has.
pub fn once_to(name: String, at: SystemTime, recipients: u32) -> ScheduleBody {
    let addresses = (0..recipients).map(|number| address(&name, number)).collect();
    once(name, at, addresses)
}

/// Returns a schedule with one recipient that fires once. The content of all such schedules is the same.
pub fn once_alike(name: String, at: SystemTime) -> ScheduleBody {
    let content = Content { subject: "Your day".to_owned(), ..content("This email comes once.\n") };
    ScheduleBody { content: Some(content), ..once_to(name, at, 1) }
}

/// Returns a schedule with one recipient that fires each day at the time of day of this instant. The content of all
/// such schedules is the same, as in an application that sends one email to each of its users.
pub fn daily(name: String, due_ms: i64) -> ScheduleBody {
    let content = Content { subject: "Your day".to_owned(), ..content("This email comes each day.\n") };
    let when = When { pattern: Some(when::Pattern::Cron(cron(due_ms))) };
    ScheduleBody { timing: Some(when), content: Some(content), ..once_to(name, SystemTime::UNIX_EPOCH, 1) }
}

/// Returns the time of day of an instant in UTC as a cron expression.
fn cron(due_ms: i64) -> String {
    let minute = due_ms.div_euclid(60_000).rem_euclid(24 * 60);
    format!("{} {} * * *", minute % 60, minute / 60)
}

/// Returns the schedule `body` with a sealed audience instead of its recipients.
pub fn to_sealed(body: ScheduleBody, audience: &str) -> ScheduleBody {
    ScheduleBody { audience: Some(Audience { sealed: audience.to_owned(), ..Audience::default() }), ..body }
}

/// Returns the address of a recipient of the audience that is generated from this seed (`audience generate --seed`).
pub fn generated_address(seed: u64, recipient: u32) -> String {
    format!("r{recipient:08}.s{seed}@audience.invalid")
}

/// Measurements of the calls of a load.
#[derive(Debug)]
pub struct LoadMeasurements {
    /// Number of created objects.
    pub count: u64,
    /// Duration of each call in microseconds, retries included, sorted.
    pub latencies_us: Vec<i64>,
    /// Time from the first call to the last answer.
    pub took: Duration,
}

impl LoadMeasurements {
    /// Returns the number of created objects per second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64().max(1e-6)
    }
}

/// How schedules or other objects are created.
#[derive(Clone, Copy, Debug)]
pub struct CreateLoad {
    /// Number of clients. Each has its own connections, and sends its next call after the answer to the last one.
    pub clients: u32,
    /// Number of objects.
    pub count: u64,
    /// Number of objects in each call: 1 to 1,000 schedules.
    pub batch: u64,
}

/// Creates the schedules `body(0)`, `body(1)` ….
pub async fn create(
    admin: &AdminClient,
    load: CreateLoad,
    what: &str,
    body: impl Fn(u64) -> ScheduleBody + Send + Sync + 'static,
) -> Result<LoadMeasurements> {
    let body = Arc::new(body);
    let create = move |admin: AdminClient, numbers: Range<u64>| {
        let body = Arc::clone(&body);
        async move {
            match load.batch {
                1 => admin.create(body(numbers.start)).await,
                _ => admin.batch_create(numbers.map(&*body).collect()).await,
            }
        }
    };
    call(admin, load, what, create).await
}

/// Makes the calls `call(client, 0..batch)`, `call(client, batch..2 * batch)` …. Each client makes its next call
/// after the answer to the last one.
///
/// # Errors
/// Fails as soon as one of the calls fails.
pub async fn call<C: Future<Output = Result<()>> + Send + 'static>(
    admin: &AdminClient,
    load: CreateLoad,
    what: &str,
    call: impl Fn(AdminClient, Range<u64>) -> C + Send + Sync + 'static,
) -> Result<LoadMeasurements> {
    let (call, next) = (Arc::new(call), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    // Dropping the set aborts its tasks.
    let mut running = JoinSet::new();
    for number in 0..u64::from(load.clients).min(load.count.div_ceil(load.batch)) {
        let admin = admin.another(number as usize)?;
        running.spawn(call_in_turn(admin, load, Arc::clone(&next), Arc::clone(&call)));
    }
    let mut latencies_us = Vec::new();
    let mut report = tokio::time::interval_at(tokio::time::Instant::now() + REPORT_EVERY, REPORT_EVERY);
    loop {
        tokio::select! {
            ended = running.join_next() => match ended {
                None => break,
                Some(latencies) => latencies_us.extend(latencies.context("a client")??),
            },
            _ = report.tick() => eprintln!("  {} {what} requested", next.load(Ordering::Relaxed)),
        }
    }
    latencies_us.sort_unstable();
    Ok(LoadMeasurements { count: load.count, latencies_us, took: start.elapsed() })
}

async fn call_in_turn<C: Future<Output = Result<()>>>(
    admin: AdminClient,
    CreateLoad { count, batch, .. }: CreateLoad,
    next: Arc<AtomicU64>,
    call: Arc<impl Fn(AdminClient, Range<u64>) -> C>,
) -> Result<Vec<i64>> {
    let mut latencies = Vec::new();
    loop {
        let first = next.fetch_add(batch, Ordering::Relaxed);
        if first >= count {
            return Ok(latencies);
        }
        let start = Instant::now();
        call(admin.clone(), first..count.min(first + batch)).await?;
        latencies.push(start.elapsed().as_micros() as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recipient_has_its_own_address() {
        let schedule = once_to("due-7".to_owned(), SystemTime::UNIX_EPOCH, 2);
        let audience = schedule.audience.unwrap();
        let addresses: Vec<&str> = audience.recipients.iter().map(|recipient| recipient.address.as_str()).collect();
        assert_eq!(addresses, ["due-7-0@example.net", "due-7-1@example.net"]);
    }

    #[test]
    fn cron_has_time_of_day_of_instant() {
        assert_eq!(cron(3 * 86_400_000 + (14 * 60 + 5) * 60_000), "5 14 * * *");
        assert_eq!(cron(20_000 * 86_400_000), "0 0 * * *");
    }

    #[test]
    fn generated_address_is_documented_one() {
        assert_eq!(generated_address(42, 17), "r00000017.s42@audience.invalid");
    }

    #[test]
    fn rate_counts_schedules() {
        let created = LoadMeasurements { count: 30, latencies_us: vec![1; 3], took: Duration::from_secs(2) };
        assert_eq!(created.rate(), 15.0);
    }
}

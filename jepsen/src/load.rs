//! What the cluster is given to do: schedules that fire once, created by many clients at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use reveille_proto::admin::v1::{Audience, Content, Recipient, ScheduleBody, When, when};
use tokio::task::JoinSet;

use crate::admin::Admin;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// When a schedule is due that only takes up room.
pub const A_YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A schedule that sends one mail to each of these at one instant.
pub fn once(name: String, at: SystemTime, recipients: Vec<String>) -> ScheduleBody {
    let content = Content {
        sender: "Jepsen <jepsen@example.org>".to_owned(),
        subject: format!("From {name}"),
        text: Some("This mail comes once.\n".to_owned()),
        ..Content::default()
    };
    let recipient = |address| Recipient { address, values: Vec::new() };
    ScheduleBody {
        name,
        when: Some(When { pattern: Some(when::Pattern::At(prost_types::Timestamp::from(at))) }),
        zone: "UTC".to_owned(),
        content: Some(content),
        audience: Some(Audience { recipients: recipients.into_iter().map(recipient).collect(), ..Audience::default() }),
        ..ScheduleBody::default()
    }
}

/// Address of a recipient of a schedule; nobody else has it.
pub fn address(schedule: &str, recipient: u32) -> String {
    format!("{schedule}-{recipient}@example.net")
}

/// A schedule of that name with so many recipients of its own.
pub fn once_to(name: String, at: SystemTime, recipients: u32) -> ScheduleBody {
    let addresses = (0..recipients).map(|number| address(&name, number)).collect();
    once(name, at, addresses)
}

/// When clients stop to create.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So many are created.
    Count(u64),
    /// It is this late; what is under way then is waited for.
    Time(Instant),
}

/// What creating came to.
#[derive(Debug)]
pub struct Created {
    /// How long each create took, retries included, sorted. Microseconds.
    pub latencies_us: Vec<i64>,
    /// From the first question to the last answer.
    pub took: Duration,
    /// Questions that had to be asked again.
    pub retries: u64,
}

impl Created {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.latencies_us.len() as u64
    }

    /// Creates a second.
    pub fn rate(&self) -> f64 {
        self.latencies_us.len() as f64 / self.took.as_secs_f64().max(1e-6)
    }
}

/// Creates schedules, `body(0)`, `body(1)` …, by so many clients, each with connections of its own and its
/// next question when the former is answered. Tells its progress as `what`.
pub async fn create(
    admin: &Admin,
    clients: u32,
    until: Until,
    what: &str,
    body: impl Fn(u64) -> ScheduleBody + Send + Sync + 'static,
) -> Result<Created> {
    let (body, next) = (Arc::new(body), Arc::new(AtomicU64::new(0)));
    let clients = match until {
        Until::Count(count) => u64::from(clients).min(count),
        Until::Time(_) => clients.into(),
    };
    let start = Instant::now();
    // Dropped with its tasks when this is dropped.
    let mut running = JoinSet::new();
    for number in 0..clients {
        let admin = admin.another(number as usize)?;
        running.spawn(client(admin, until, Arc::clone(&next), Arc::clone(&body)));
    }
    let (mut latencies_us, mut retries) = (Vec::new(), 0);
    let mut tell = tokio::time::interval_at(tokio::time::Instant::now() + TELL_EVERY, TELL_EVERY);
    loop {
        tokio::select! {
            ended = running.join_next() => match ended {
                None => break,
                Some(ended) => {
                    let (latencies, again) = ended.context("a client")??;
                    latencies_us.extend(latencies);
                    retries += again;
                }
            },
            _ = tell.tick() => eprintln!("  {} {what} asked for", next.load(Ordering::Relaxed)),
        }
    }
    latencies_us.sort_unstable();
    Ok(Created { latencies_us, took: start.elapsed(), retries })
}

async fn client(
    admin: Admin,
    until: Until,
    next: Arc<AtomicU64>,
    body: Arc<impl Fn(u64) -> ScheduleBody>,
) -> Result<(Vec<i64>, u64)> {
    let (mut latencies, mut retries) = (Vec::new(), 0);
    loop {
        if matches!(until, Until::Time(end) if Instant::now() >= end) {
            break;
        }
        let number = next.fetch_add(1, Ordering::Relaxed);
        if matches!(until, Until::Count(count) if number >= count) {
            break;
        }
        let start = Instant::now();
        retries += admin.create(body(number)).await?.retries;
        latencies.push(start.elapsed().as_micros() as i64);
    }
    Ok((latencies, retries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipient_has_an_address_of_its_own() {
        let schedule = once_to("due-7".to_owned(), SystemTime::UNIX_EPOCH, 2);
        let audience = schedule.audience.unwrap();
        let addresses: Vec<&str> = audience.recipients.iter().map(|recipient| recipient.address.as_str()).collect();
        assert_eq!(addresses, ["due-7-0@example.net", "due-7-1@example.net"]);
    }

    #[test]
    fn a_rate_counts_what_was_answered() {
        let created = Created { latencies_us: vec![1; 30], took: Duration::from_secs(2), retries: 0 };
        assert_eq!((created.count(), created.rate()), (30, 15.0));
    }
}

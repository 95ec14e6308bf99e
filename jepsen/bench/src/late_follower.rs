//! A follower that starts with nothing beside many schedules and archived runs, while the other nodes send.
//!
//! It is stopped before these schedules are created, so it needs the whole snapshot, as a new member does.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use reveille_harness::Cluster;
use reveille_harness::load::{self, CreateLoad};
use reveille_harness::measure::{folder_size, in_ms, rounded, unix_us};
use reveille_sink::Sink;
use serde_json::{Value, json};

use crate::locks::LockWatch;
use crate::{ARCHIVED_QUIET, accepts, archived_pages, longest_wait, next_whole, restart};

const CREATES: CreateLoad = CreateLoad { clients: 64, count: 0, batch: 1_000 };
/// Rate of creates for which the schedules are due after the last create, and a time that is added.
const CREATES_PER_SECOND: u64 = 20_000;
const AHEAD: Duration = Duration::from_secs(15);
/// Maximum number of daily schedules. They stay, while their runs are archived.
const DAILY_MAX: u64 = 1_000_000;
/// A follower with a smaller lag, in log entries, has caught up.
const CAUGHT_UP_LAG: u64 = 1_000;

/// False for the addresses of the schedules that are only there to be archived.
pub fn is_judged(recipient: &str) -> bool {
    !recipient.starts_with("past-")
}

/// The stopped follower, and when it was started again.
pub struct LateFollower {
    name: String,
    started: Option<SystemTime>,
    caught_up: Option<SystemTime>,
    locks: LockWatch,
    /// The leader's epoch before the schedules were created, and when the follower had caught up.
    epochs: (u64, u64),
}

impl LateFollower {
    /// Stops a follower. Then creates this many schedules of one recipient, and waits until they are sent and archived.
    /// The first [`DAILY_MAX`] are daily.
    pub async fn prepare(cluster: &mut Cluster, sink: &Sink, schedules: u64) -> Result<LateFollower> {
        let name = cluster.follower().await?;
        cluster.node_mut(&name)?.kill()?;
        let locks = LockWatch::start(cluster);
        let epoch = cluster.admin().status().await?.epoch;
        let ahead = AHEAD + Duration::from_secs(schedules / CREATES_PER_SECOND);
        // Daily schedules are due at whole minutes.
        let due = next_whole(60, SystemTime::now() + ahead);
        let body = move |number| {
            let name = format!("past-{number}");
            if number < DAILY_MAX { load::daily(name, unix_us(due) / 1_000) } else { load::once_alike(name, due) }
        };
        let created =
            load::create(cluster.admin(), CreateLoad { count: schedules, ..CREATES }, "schedules", body).await?;
        eprintln!("{name} is stopped; {schedules} schedules, created at {:.0} a second", created.rate());
        let wait = longest_wait(schedules);
        sink.wait_for(schedules, wait).await?;
        let pages = archived_pages(cluster, ARCHIVED_QUIET).await?;
        eprintln!("all are sent and archived, in {pages} pages");
        Ok(LateFollower { name, started: None, caught_up: None, locks, epochs: (epoch, epoch) })
    }

    /// True if it was started.
    pub fn is_started(&self) -> bool {
        self.started.is_some()
    }

    /// True if it has applied what the leader has, but for a few entries.
    pub fn is_caught_up(&self) -> bool {
        self.caught_up.is_some()
    }

    /// Starts the follower.
    pub fn start(&mut self, cluster: &mut Cluster) -> Result<()> {
        cluster.node_mut(&self.name)?.start()?;
        self.started = Some(SystemTime::now());
        eprintln!("{} is started", self.name);
        Ok(())
    }

    /// Notes if the follower has caught up.
    pub async fn poll(&mut self, cluster: &Cluster) -> Result<()> {
        if restart::lag(cluster, &self.name).await?.is_some_and(|lag| lag <= CAUGHT_UP_LAG) {
            self.caught_up = Some(SystemTime::now());
            self.epochs.1 = cluster.admin().status().await?.epoch;
            eprintln!("{} has caught up", self.name);
        }
        Ok(())
    }

    /// Returns the duration, and the rates of accepts before and meanwhile.
    pub fn figures(&self, cluster: &Cluster, sorted_us: &[i64]) -> Result<Value> {
        let (started, caught_up) = self.started.zip(self.caught_up).context("the follower has not caught up")?;
        let (started_us, caught_up_us) = (unix_us(started), unix_us(caught_up));
        let snapshots = folder_size(&cluster.node(&self.name)?.folder().join("snapshots"))?;
        Ok(json!({
            "caught_up_seconds": rounded(in_ms(caught_up_us - started_us) / 1e3),
            "snapshot_mb": rounded(snapshots.bytes as f64 / 1e6),
            // The longest time for which such work held the ledger's lock on any node.
            "lock_ms": self.locks.longest_ms(),
            // Leaders after the first one, until the follower had caught up.
            "leader_changes": self.epochs.1 - self.epochs.0,
            "rate": accepts::rates_around(sorted_us, started_us, caught_up_us).context("no email")?,
        }))
    }
}

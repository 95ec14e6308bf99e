//! How many commands a second three nodes on this machine make durable, and with how few disk writes.
//!
//! `cargo run --release -p reveille-raft --example creates -- [clients] [seconds]`
//!
//! Three whole replicas in one process, over TCP on loopback, each with its log on this machine's disk.
//! Prints the rate, the latency and the number of `fdatasync` calls: group commit shows as far fewer of
//! them than commands.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reveille_ledger::access::Access;
use reveille_ledger::command::{Command, EpochStart, Relay, VoterClock};
use reveille_ledger::ids::{ClaimOwner, Epoch, Incarnation, NodeId, Time};
use reveille_ledger::reply::{CommandOutcome, CommandReply};
use reveille_raft::peer::Rejection;
use reveille_raft::{Application, ClusterId, EntryStamp, GrpcTransport, Member, Replica, ReplicaOptions, Role};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// No node asks another one here.
struct Silent;

#[async_trait]
impl Application for Silent {
    async fn answer(&self, _from: NodeId, _payload: Vec<u8>, _limit: Duration) -> Result<Vec<u8>, Rejection> {
        Err(Rejection::Unavailable("not here".to_owned()))
    }
}

struct Term {
    epoch: Epoch,
    now: AtomicI64,
}

impl EntryStamp for Term {
    fn stamp(&self) -> Option<(Epoch, Time)> {
        Some((self.epoch, Time(self.now.fetch_add(1, Ordering::Relaxed))))
    }
}

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let clients: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;

    let folder = tempfile::tempdir()?;
    let mut replicas = Vec::new();
    let mut members = BTreeMap::new();
    for number in 1..=3_u64 {
        let transport = GrpcTransport::bind("127.0.0.1:0".parse()?)?;
        let address = transport.address().to_string();
        members.insert(NodeId(number), Member { name: format!("n{number}"), address, votes: true, key: None });
        let data_dir = folder.path().join(number.to_string());
        let me = ClaimOwner { node: NodeId(number), incarnation: Incarnation(1) };
        let options = ReplicaOptions::new(data_dir, me, Arc::new(transport));
        replicas.push(Replica::start(options, Arc::new(Silent)).await?);
    }
    let first = replicas.first().ok_or("three replicas")?.clone();
    first.initialize(ClusterId(1), &members).await?;
    let leader = lead(&replicas).await?;

    let syncs = |replicas: &[Replica]| replicas.iter().map(|replica| replica.log().counters().syncs).sum::<u64>();
    let before = syncs(&replicas);
    let start = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = tokio::task::JoinSet::new();
    for client in 0..clients {
        running.spawn(propose_until(leader.clone(), client, Arc::clone(&stop)));
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    while let Some(client) = running.join_next().await {
        latencies.extend(client??);
    }
    let took = start.elapsed();
    report(&mut latencies, took, syncs(&replicas) - before);

    for replica in replicas {
        replica.shutdown(in_seconds(10)).await;
    }
    Ok(())
}

/// Waits for a leader and begins its term.
async fn lead(replicas: &[Replica]) -> Result<Replica, Failure> {
    let end = in_seconds(30);
    while Instant::now() < end {
        for replica in replicas {
            let role = *replica.role().borrow();
            let Role::Leader { term } = role else { continue };
            let leader = ClaimOwner { node: replica.node(), incarnation: Incarnation(1) };
            let readings = vec![VoterClock { node: leader.node, wall: Time(1_788_000_000_000) }];
            let command = Command::EpochStart(EpochStart::new(leader, 1, readings));
            let reply = replica.propose_as_leader(term, command, in_seconds(5)).await;
            if let Ok(CommandReply { outcome: CommandOutcome::EpochStarted { epoch, base, .. }, .. }) = reply {
                replica.set_stamp(Arc::new(Term { epoch, now: AtomicI64::new(base.0) }));
                return Ok(replica.clone());
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err("no node leads".into())
}

/// One client: the next command when the former is answered. Gives the latencies.
async fn propose_until(leader: Replica, client: usize, stop: Arc<AtomicBool>) -> Result<Vec<Duration>, Failure> {
    let mut latencies = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let relay = Relay {
            name: format!("relay-{client}"),
            pool: "default".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 25,
            access: Access::default(),
            rate_milli: latencies.len() as u64,
            max_sessions: 1,
            late_rate_milli: 0,
            weight: 1,
        };
        leader.propose(&Command::RelayPut(relay.into()), in_seconds(30)).await?;
        latencies.push(start.elapsed());
    }
    Ok(latencies)
}

fn report(latencies: &mut [Duration], took: Duration, syncs: u64) {
    latencies.sort_unstable();
    let at = |share: usize| latencies.get(latencies.len() * share / 100).copied().unwrap_or_default();
    let commands = latencies.len() as u64;
    println!("commands      {commands} in {:.1} s", took.as_secs_f64());
    println!("rate          {:.0} a second", commands as f64 / took.as_secs_f64());
    println!("latency       p50 {:.1?}, p99 {:.1?}", at(50), at(99));
    println!("fdatasync     {syncs} on three nodes, {:.1} commands each", commands as f64 * 3.0 / syncs.max(1) as f64);
}

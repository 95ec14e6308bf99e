//! `sink`: the SMTP server alone, until it is told to stop. Its record is what a run is judged by; with faults it is
//! a relay as bad as one likes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use reveille_sink::{Accepted, FaultPlan, Sink, SinkOptions, Watcher};
use serde::Serialize;

use crate::Outcome;

/// Options of `sink`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where to listen; port 0 takes a free one, which is told on stderr
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2526")]
    pub listen: SocketAddr,
    /// The file of accepts, a JSON line each, synced before the 250; one that is there is continued
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// What goes wrong on purpose: `seed=7,STAGE:KIND@RATE,STAGE:KIND#COUNT`. Stages: connect banner ehlo mail rcpt
    /// data body before-commit after-commit answer between. Kinds: a code, close, reset, stall=5s, huge=BYTES, bare,
    /// close-after=MAILS
    #[arg(long, value_name = "SPEC", default_value = "")]
    pub fault: FaultPlan,
    /// Take LF alone for an end of a line, as some relays do: smuggled mails show
    #[arg(long)]
    pub lenient: bool,
}

#[derive(Serialize)]
struct Report {
    accepted: u64,
    faults: Vec<Struck>,
    valid: bool,
}

#[derive(Serialize)]
struct Struck {
    rule: String,
    times: u64,
}

/// Serves until it is told to stop.
pub async fn run(args: &Args, told_to_stop: impl Future<Output = Result<()>>) -> Result<Outcome> {
    let options = SinkOptions {
        listen: args.listen,
        record: args.record.clone(),
        faults: args.fault.clone(),
        lenient_line_ends: args.lenient,
        keep_bodies: 0,
        keep_records: 0,
        ..SinkOptions::default()
    };
    let sink = Sink::start(options).with_context(|| format!("a sink on {}", args.listen))?;
    eprintln!("listening on {}", sink.address());
    told_to_stop.await?;
    let (accepted, tallies) = (sink.accepted_count(), sink.fault_tally());
    sink.stop().await;
    let rule = |tally: reveille_sink::FaultTally| {
        let plan = FaultPlan { seed: 0, rules: vec![tally.rule] };
        Struck { rule: plan.to_string(), times: tally.struck }
    };
    Outcome::new(&Report { accepted, faults: tallies.into_iter().map(rule).collect(), valid: true }, true)
}

/// A sink of our own that tells `note` of each accept, and keeps no mail. What was noted is whole unless the lock is
/// poisoned: whoever reads it says so.
pub fn counting<R: Send + 'static>(
    record: &Arc<Mutex<R>>,
    note: impl Fn(&mut R, &Accepted) + Send + Sync + 'static,
) -> Result<Sink> {
    let record = Arc::clone(record);
    let watcher = Watcher::new(move |accept| {
        // Poisoned only where `note` panicked.
        if let Ok(mut record) = record.lock() {
            note(&mut record, accept);
        }
    });
    Ok(Sink::start(SinkOptions { watcher: Some(watcher), keep_records: 0, keep_bodies: 0, ..SinkOptions::default() })?)
}

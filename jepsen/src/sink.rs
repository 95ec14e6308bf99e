//! `sink`: the SMTP server alone, until it is stopped. With a fault plan it is a relay that misbehaves.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use reveille_harness::Report;
use reveille_sink::{FaultPlan, FaultTally, Sink, SinkOptions};
use serde_json::{Value, json};

/// Options of `sink`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where to listen; port 0 takes a free one, which is printed on stderr
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2526")]
    pub listen: SocketAddr,
    /// The file of accepts, a JSON line each, synced before the 250; an existing file is continued
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// What goes wrong on purpose: `seed=7,STAGE:KIND@RATE,STAGE:KIND#COUNT`. Stages: connect banner ehlo mail rcpt
    /// data body before-commit after-commit answer between. Kinds: a code, close, reset, stall=5s, huge=BYTES, bare,
    /// close-after=EMAILS
    #[arg(long, value_name = "SPEC", default_value = "")]
    pub fault: FaultPlan,
}

/// Serves until `stopped` returns.
pub async fn run(args: &Args, stopped: impl Future<Output = Result<()>>) -> Result<Report> {
    let options = SinkOptions {
        listen: args.listen,
        record: args.record.clone(),
        faults: args.fault.clone(),
        keep_bodies: 0,
        keep_records: 0,
        ..SinkOptions::default()
    };
    let sink = Sink::start(options).with_context(|| format!("a sink on {}", args.listen))?;
    eprintln!("listening on {}", sink.address());
    stopped.await?;
    let (accepted, tallies) = (sink.accepted_count(), sink.fault_tally());
    sink.stop().await;
    let fault = |tally: FaultTally| json!({"rule": format!("{:?}", tally.rule), "times": tally.struck});
    let faults: Vec<Value> = tallies.into_iter().map(fault).collect();
    Report::new(&json!({"accepted": accepted, "faults": faults, "valid": true}), true)
}

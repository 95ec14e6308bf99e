//! The yardstick: what `smtp-source` puts straight into `smtp-sink` on this machine. Both come with Postfix.
//!
//! They write and read mails of one size over sessions that stay open, and do nothing else: no schedule, no ledger,
//! no record, no disk.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Mails of one measurement: some ten seconds.
const MAILS: u32 = 300_000;
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// `smtp-sink` gives up being root, and wants to know whose place it takes.
const NOBODY: &str = "nobody";

/// Mails a second of this many bytes, over so many sessions.
pub fn measure(sessions: u32, bytes: u32) -> Result<f64> {
    // Let go again before it is given away; nobody else takes ports here while a command measures.
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut sink = Command::new("smtp-sink");
    if rustix::process::geteuid().is_root() {
        sink.args(["-u", NOBODY]);
    }
    sink.arg(address.to_string()).arg("1000");
    let _sink = Running(quiet(&mut sink).spawn().context("smtp-sink, of Postfix, cannot be started")?);
    wait_until_it_listens(address)?;
    let mut source = Command::new("smtp-source");
    source.args(["-d", "-s", &sessions.to_string(), "-m", &MAILS.to_string(), "-l", &bytes.to_string()]);
    source.args(["-f", "jepsen@example.org", "-t", "r@audience.invalid"]).arg(address.to_string());
    let begun = Instant::now();
    let ended = quiet(&mut source).status().context("smtp-source, of Postfix, cannot be started")?;
    if !ended.success() {
        bail!("smtp-source ended with {ended}");
    }
    Ok(f64::from(MAILS) / begun.elapsed().as_secs_f64())
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn wait_until_it_listens(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + LISTENS_WITHIN;
    while TcpStream::connect(address).is_err() {
        if Instant::now() > until {
            bail!("smtp-sink does not listen on {address}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A process that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It is gone already, or goes now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! Measures the rate of Postfix' `smtp-source` into its `smtp-sink` on this machine, to compare with. These programs
//! send emails of one size over sessions that stay open, without a schedule, a ledger, a record or a disk.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reveille_harness::tool;

/// Number of emails of one measurement, which takes some ten seconds.
const EMAILS: u32 = 300_000;
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// User to which `smtp-sink` changes when it drops root.
const UNPRIVILEGED_USER: &str = "daemon";

/// Returns the emails of `bytes` per second over this number of sessions.
pub fn measure(sessions: u32, bytes: u32) -> Result<f64> {
    // The port is free again before `smtp-sink` binds it.
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut sink = Command::new("smtp-sink");
    if tool::is_root() {
        sink.args(["-u", UNPRIVILEGED_USER]);
    }
    sink.arg(address.to_string()).arg("1000");
    let _sink = Running(quiet(&mut sink).spawn().context("smtp-sink, of Postfix, cannot be started")?);
    wait_until_it_listens(address)?;
    let mut source = Command::new("smtp-source");
    source.args(["-d", "-s", &sessions.to_string(), "-m", &EMAILS.to_string(), "-l", &bytes.to_string()]);
    source.args(["-f", "jepsen@example.org", "-t", "r@audience.invalid"]).arg(address.to_string());
    let begun = Instant::now();
    let ended = quiet(&mut source).status().context("smtp-source, of Postfix, cannot be started")?;
    if !ended.success() {
        bail!("smtp-source ended with {ended}");
    }
    Ok(f64::from(EMAILS) / begun.elapsed().as_secs_f64())
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

/// A child process. Dropping it kills the process.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

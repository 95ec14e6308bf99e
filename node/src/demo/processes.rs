//! The node processes: started, killed, started again, stopped. None survives the demo.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

/// A node must answer its health page within this.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// A node that did not stop on SIGTERM is killed after this.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// One node, whether its process runs or not.
pub struct DemoNode {
    /// `n1`, `n2` …: also what it says in EHLO.
    pub name: String,
    folder: PathBuf,
    journals: PathBuf,
    admin_port: u16,
    peer_port: u16,
    http_port: u16,
    process: Option<Child>,
}

/// All nodes of the demo.
pub struct Nodes(Vec<DemoNode>);

impl Nodes {
    /// Starts `count` nodes with their data below `folder` and their journals in `journals`, and waits until each
    /// one answers.
    pub async fn start(folder: &Path, journals: &Path, count: usize) -> Result<Nodes> {
        let mut ports = free_ports(3 * count)?.into_iter();
        let mut port = || ports.next().context("no free port");
        let mut nodes = Vec::new();
        for number in 1..=count {
            let name = format!("n{number}");
            let mut node = DemoNode {
                folder: folder.join(&name),
                journals: journals.to_owned(),
                name,
                admin_port: port()?,
                peer_port: port()?,
                http_port: port()?,
                process: None,
            };
            node.start()?;
            nodes.push(node);
        }
        for node in &mut nodes {
            node.wait_until_it_answers().await?;
        }
        Ok(Nodes(nodes))
    }

    /// Admin addresses of all nodes.
    pub fn endpoints(&self) -> Vec<String> {
        self.0.iter().map(|node| format!("127.0.0.1:{}", node.admin_port)).collect()
    }

    /// Peer addresses of all nodes but the first.
    pub fn peers(&self) -> Vec<String> {
        self.0.iter().skip(1).map(|node| format!("127.0.0.1:{}", node.peer_port)).collect()
    }

    /// The node of that name.
    pub fn named(&mut self, name: &str) -> Option<&mut DemoNode> {
        self.0.iter_mut().find(|node| node.name == name)
    }

    /// Names of the nodes whose process runs.
    pub fn running(&self) -> Vec<String> {
        self.0.iter().filter(|node| node.process.is_some()).map(|node| node.name.clone()).collect()
    }

    /// Tells every process to stop; kills those that do not.
    pub async fn stop(&mut self) {
        for node in &self.0 {
            node.tell_to_stop();
        }
        for node in &mut self.0 {
            let Some(mut process) = node.process.take() else { continue };
            if tokio::time::timeout(STOP_PATIENCE, process.wait()).await.is_err() {
                // Whatever kill says, the process is gone or was never there.
                let _ = process.kill().await;
            }
        }
    }
}

impl DemoNode {
    /// Starts the process; its output goes to `node.log` in its folder.
    pub fn start(&mut self) -> Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.join("node.log"))?;
        let local = |port: u16| format!("127.0.0.1:{port}");
        let process = Command::new(std::env::current_exe().context("where this program is")?)
            .arg("start")
            .args(["--name", &self.name])
            .args(["--hello-name", &self.name])
            .arg("--data-dir")
            .arg(&self.folder)
            .arg("--journal-dir")
            .arg(&self.journals)
            .args(["--listen", &local(self.admin_port)])
            .args(["--peer-listen", &local(self.peer_port)])
            .args(["--http", &local(self.http_port)])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("a node could not be started")?;
        self.process = Some(process);
        Ok(())
    }

    /// `kill -9`.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().await.context("kill -9")?;
        }
        Ok(())
    }

    async fn wait_until_it_answers(&mut self) -> Result<()> {
        let until = Instant::now() + START_PATIENCE;
        loop {
            if let Some(process) = &mut self.process
                && let Some(status) = process.try_wait()?
            {
                let log = std::fs::read_to_string(self.folder.join("node.log")).unwrap_or_default();
                bail!("{} ended at its start ({status}):\n{}", self.name, last_lines(&log, 12));
            }
            if tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.admin_port)).await.is_ok() {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("{} does not answer; its log is {}", self.name, self.folder.join("node.log").display());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn tell_to_stop(&self) {
        let id = self.process.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        if let Some(process) = id.and_then(rustix::process::Pid::from_raw) {
            // A process that is gone already needs no signal.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The first port of the system's range for outgoing connections, where the system does not name it.
const EPHEMERAL_FROM: u16 = 32_768;
/// Ports below this are known services'.
const DRAWN_FROM: u16 = 10_000;

/// Ports that were free a moment ago, all different: held together while they are drawn. They lie below the range
/// of outgoing connections: such a connection could take a port before its node starts, or while the node
/// is killed, and the node would not start.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(EPHEMERAL_FROM);
    let drawn: Vec<u16> = (DRAWN_FROM..end).collect();
    // Two demos at once begin at different places.
    let begin = std::process::id() as usize * 3 * count % drawn.len().max(1);
    let in_turn = drawn.iter().cycle().skip(begin).take(drawn.len()).copied();
    // Where the system gives ports from everywhere, one of those is all there is.
    let in_turn = in_turn.chain(std::iter::repeat_n(0, count));
    let held: Vec<TcpListener> =
        in_turn.filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()).take(count).collect();
    let ports = held.iter().map(|listener| listener.local_addr().map(|address| address.port()));
    Ok(ports.collect::<std::io::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_no_client_is_given_one() {
        let mut ports = free_ports(9).expect("ports");
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("a range");
        let first: u16 = range.split_whitespace().next().and_then(|first| first.parse().ok()).expect("a port");
        assert!(first <= DRAWN_FROM || ports.iter().all(|port| *port < first), "{ports:?}, clients from {first}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 9);
    }
}

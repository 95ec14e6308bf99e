//! One node process: started, killed, started again. Used by `cluster.rs` alone.
//!
//! Promises that the process does not outlive its `Node`: a drop kills it and waits until it is gone, so that
//! its folders can be removed afterwards.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use crate::footing::{Clocks, Footing};
use crate::proxies::Seat;

/// Below the range from which Linux gives ports to outgoing connections (32768 and above): nobody takes the
/// port of a node while it is down.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
/// Draws until a port is free.
const DRAWS: u32 = 1_000;
/// Where a process is to die is told by this variable; only a binary with crash points reads it.
const CRASH_POINTS: &str = "FAILPOINTS";
/// Lines of a log that an error shows.
const LAST_LINES: usize = 12;

/// Where a node listens: its admin API, its peers, HTTP.
pub type Ports = [SocketAddr; 3];

/// One node, whether its process runs or not.
pub struct Node {
    /// `n1`, `n2` …: also what it says in EHLO.
    pub name: String,
    /// Its admin API.
    pub admin: SocketAddr,
    /// Where its peers reach it.
    pub peers: SocketAddr,
    /// Where it listens for them.
    peer_listen: SocketAddr,
    /// Health and metrics.
    pub http: SocketAddr,
    binary: PathBuf,
    folder: PathBuf,
    journals: PathBuf,
    log: PathBuf,
    /// What comes before its command line.
    prefix: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
    /// Where the next life dies, in the words of FAILPOINTS.
    armed: Option<String>,
    /// Where the log of the last life begins; bytes.
    log_from: u64,
    process: Option<Child>,
    /// Whoever has to know which process it is.
    seat: Option<Seat>,
}

impl Node {
    /// A node that does not run yet, its files below these folders.
    pub fn new(name: String, ports: Ports, binary: &Path, data: &Path, journals: &Path) -> Node {
        let ([admin, peers, http], binary) = (ports, binary.to_owned());
        let (folder, journals, log) = (data.join(&name), journals.join(&name), data.join(format!("{name}.log")));
        let (prefix, environment) = (Vec::new(), Vec::new());
        Node {
            name,
            admin,
            peers,
            peer_listen: peers,
            http,
            binary,
            folder,
            journals,
            log,
            prefix,
            environment,
            armed: None,
            log_from: 0,
            process: None,
            seat: None,
        }
    }

    /// The same node on a host and with a clock of its own, where there are any, and behind what stands between nodes.
    pub fn standing_on(mut self, footing: &Footing) -> Node {
        if let Some((known, seat)) = footing.behind(&self.name) {
            (self.peers, self.seat) = (known, Some(seat));
        }
        self.prefix = footing.prefix(&self.name);
        self.environment = footing.environment(&self.name);
        self
    }

    /// From its next start on it dies at the first of these crash points; none: at no one.
    pub fn arm(&mut self, points: Option<&str>) {
        self.armed = points.map(str::to_owned);
    }

    /// Starts the process; its output goes to a log beside its folder.
    pub fn start(&mut self) -> Result<()> {
        std::fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        self.log_from = log.metadata()?.len();
        let mut line: Vec<OsString> = self.prefix.iter().map(OsString::from).collect();
        line.push(self.binary.clone().into_os_string());
        let (program, rest) = line.split_first().context("a command without a program")?;
        let mut command = Command::new(program);
        // What is configured in the surroundings is not what is measured.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REVEILLE__")) {
            command.env_remove(name);
        }
        command
            .env_remove("RUST_LOG")
            .env_remove(CRASH_POINTS)
            .envs(self.armed.as_ref().map(|points| (CRASH_POINTS, points)))
            .envs(self.environment.iter().map(|(name, value)| (*name, value.as_os_str())))
            .args(rest)
            .arg("start")
            .args(["--name", &self.name])
            .args(["--hello-name", &self.name])
            .arg("--data-dir")
            .arg(&self.folder)
            .arg("--journal-dir")
            .arg(&self.journals)
            .args(["--listen", &self.admin.to_string()])
            .args(["--peer-listen", &self.peer_listen.to_string()])
            .args(["--advertise", &self.peers.to_string()])
            .args(["--http", &self.http.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for us: a node that stops in good order meanwhile would only be in the way.
            .process_group(0);
        if !self.admin.ip().is_loopback() {
            // Nobody but this machine has a cable to that network.
            command.arg("--insecure");
        }
        let process = command.spawn().with_context(|| format!("{} cannot be started", self.binary.display()))?;
        if let Some(seat) = &self.seat {
            seat.is_taken_by(process.id());
        }
        self.process = Some(process);
        Ok(())
    }

    /// `kill -9`; returns when the process is gone.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().with_context(|| format!("kill -9 {}", self.name))?;
            process.wait().with_context(|| format!("the end of {}", self.name))?;
            Clocks::forget(process.id());
        }
        Ok(())
    }

    /// Sends a signal to the process, if there is one.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.process_id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        match id {
            Some(id) => kill_process(id, signal).with_context(|| format!("a signal to {}", self.name)),
            None => anyhow::bail!("{} does not run", self.name),
        }
    }

    /// Which life of the node this is, as it counts them itself; none until it has said so.
    pub fn incarnation(&self) -> Option<u64> {
        incarnation(&self.told())
    }

    /// What this life, or the last one, has said so far.
    fn told(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let own = usize::try_from(self.log_from).ok().and_then(|from| log.get(from..)).unwrap_or_default();
        String::from_utf8_lossy(own).into_owned()
    }

    /// Where its data lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Deletes the journals of all its lives; the node must be down. One that ended right after its start has made none.
    pub fn delete_journals(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.journals) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("the journal of {} in {}", self.name, self.journals.display()))
            }
            _ => Ok(()),
        }
    }

    /// The process id; none while it is down.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// How the process ended, when it did so by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().and_then(|process| process.try_wait().ok().flatten())
    }

    /// Has this life, or the last one, said so?
    pub fn says(&self, words: &str) -> bool {
        self.told().contains(words)
    }

    /// The end of what its last life said, for an error.
    pub fn last_words(&self) -> String {
        let log = self.told();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n")
    }
}

/// The last life that a log tells of: `… listening node=bb42d2eb0a004e39/3 …`.
fn incarnation(log: &str) -> Option<u64> {
    let line = log.lines().rev().find(|line| line.contains(" listening node="))?;
    let (_, rest) = line.split_once(" listening node=")?;
    let (_, incarnation) = rest.split(' ').next()?.split_once('/')?;
    incarnation.parse().ok()
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("{error:#}");
        }
    }
}

/// Ports for so many nodes that were free a moment ago: all held together while they are drawn, so that no two
/// nodes have one in common.
pub fn free_ports(nodes: u8) -> Result<Vec<Ports>> {
    let mut held = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..DRAWS {
        if addresses.len() == 3 * usize::from(nodes) {
            let (ports, _) = addresses.as_chunks::<3>();
            return Ok(ports.to_vec());
        }
        let port = rand::rng().random_range(PORTS);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            addresses.push(listener.local_addr()?);
            held.push(listener);
        }
    }
    anyhow::bail!("no free ports between {} and {} on this machine", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tool;

    #[test]
    fn every_node_has_three_ports_of_its_own() {
        let ports = free_ports(7).unwrap();
        let all: BTreeSet<SocketAddr> = ports.into_iter().flatten().collect();
        assert_eq!(all.len(), 21);
        assert!(all.iter().all(|address| PORTS.contains(&address.port())));
    }

    #[test]
    fn a_log_tells_which_life_it_is() {
        let log = "2026-11-22T15:01:36Z  INFO listening node=bb42d2eb0a004e39/1 admin=127.0.0.1:1\n\
                   2026-11-22T15:01:37Z  INFO listening node=bb42d2eb0a004e39/2 admin=127.0.0.1:1\nmore\n";
        assert_eq!((incarnation(log), incarnation("started\n")), (Some(2), None));
    }

    #[test]
    fn the_last_words_are_those_of_the_last_life() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("speaks");
        tool::script(&script, "echo \"${FAILPOINTS:-nowhere} is where it dies\"");
        let mut node = Node::new("n1".to_owned(), free_ports(1).unwrap()[0], &script, folder.path(), folder.path());
        for points in [Some("here"), None] {
            node.arm(points);
            node.start().unwrap();
            while node.ended().is_none() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(node.last_words(), format!("{} is where it dies", points.unwrap_or("nowhere")));
            node.kill().unwrap();
        }
    }

    #[test]
    fn journals_are_deleted_also_where_the_node_made_none() {
        let folder = tempfile::tempdir().unwrap();
        let (data, journals) = (folder.path().join("data"), folder.path().join("journals"));
        let ports = free_ports(1).unwrap()[0];
        let node = Node::new("n1".to_owned(), ports, Path::new("/bin/false"), &data, &journals);
        node.delete_journals().unwrap();
        std::fs::create_dir_all(journals.join("n1/7")).unwrap();
        node.delete_journals().unwrap();
        assert!(journals.exists() && !journals.join("n1").exists());
        std::fs::write(journals.join("n1"), "a file").unwrap();
        let error = node.delete_journals().unwrap_err().to_string();
        assert!(error.contains("the journal of n1"), "{error}");
    }

    #[test]
    fn a_process_does_not_outlive_its_node() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("sleeps");
        tool::script(&script, "exec sleep 600");
        let ports = free_ports(1).unwrap()[0];
        let mut node = Node::new("n1".to_owned(), ports, &script, folder.path(), folder.path());
        node.start().unwrap();
        assert_eq!(node.ended(), None);
        let process = format!("/proc/{}", node.process_id().unwrap());
        assert!(Path::new(&process).exists());
        drop(node);
        assert!(!Path::new(&process).exists());
    }
}

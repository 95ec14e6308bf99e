//! One node process that can be started and killed repeatedly. Dropping it kills the process and waits for its end, so
//! that its folders can be removed afterwards.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::access::ClientAccess;
use crate::http::HttpAddress;
use anyhow::{Context, Result, bail};
use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};

/// Environment variable with the crash points of a process. Only a binary with crash points reads it.
const CRASH_POINTS: &str = "FAILPOINTS";
/// Environment variable with the bug of a process. Only a binary with injected bugs reads it.
const INJECTED_BUG: &str = "REVEILLE_INJECTED_BUG";
/// Environment variable with the ledger level that a process applies. Only a binary with the feature `next-level` reads
/// it.
pub const LEVEL_VARIABLE: &str = "REVEILLE_LEVEL";
/// Environment variable with the size of the reserve on the volume of the data folder. The former release has none.
const RESERVE_VARIABLE: &str = "REVEILLE__DISK_RESERVE_MIB";
/// The level of the former release.
pub const FORMER_LEVEL: u32 = 1;
/// The level of the next release.
pub const NEXT_LEVEL: u32 = 2;
/// Ports that are tried. Linux gives ports from 32768 on to outgoing connections, so no connection takes the port of a
/// node that is down.
const FREE_PORTS: std::ops::Range<u16> = 12_000..32_000;
/// Maximum number of ports that are tried.
const PORT_TRIES: u32 = 1_000;
/// Number of log lines that an error shows.
const LAST_LINES: usize = 12;

/// Addresses of a node: its admin API, its peer listener, HTTP.
pub type Ports = [SocketAddr; 3];

/// How a node's process is started.
#[derive(Clone, Debug, Default)]
pub struct LaunchOptions {
    /// Words before the command line of the node.
    pub prefix: Vec<String>,
    /// Additional environment variables.
    pub variables: Vec<(&'static str, OsString)>,
    /// True if the process is to get no signals of this process's terminal, such as Ctrl-C.
    pub own_process_group: bool,
    /// True if the node has a volume of its own, and keeps a reserve there. Nodes that share a volume keep none.
    pub own_volume: bool,
    /// How clients reach the nodes.
    pub access: ClientAccess,
}

/// One node. Its process may be running or not.
pub struct NodeProcess {
    /// `n1`, `n2` …; also its name in EHLO.
    pub name: String,
    /// Address of the admin API.
    pub admin: SocketAddr,
    /// Address of the peer listener.
    pub peers: SocketAddr,
    /// Address of the HTTP pages: health and metrics.
    pub http: HttpAddress,
    /// Crash points of the next process, in the syntax of FAILPOINTS. The process crashes at the first of them that it
    /// reaches.
    pub crash_points: Option<String>,
    /// The injected bug of the next process.
    pub injected_bug: Option<&'static str>,
    /// The level of the release on this node, from its next start on.
    pub level: u32,
    /// The binary of the former release. `None`: the same binary acts as both.
    pub former_release: Option<PathBuf>,
    /// The token with which a new node joins the cluster. Its later starts ignore it.
    pub join_token: Option<String>,
    binary: PathBuf,
    folder: PathBuf,
    journals: PathBuf,
    log: PathBuf,
    launch: LaunchOptions,
    /// Offset in bytes at which the log of the current or last process begins.
    log_from: u64,
    process: Option<Child>,
}

impl NodeProcess {
    /// Creates a node that does not run yet; its files are below these folders.
    pub fn new(
        name: String,
        [admin, peers, http]: Ports,
        (binary, data, journals): (&Path, &Path, &Path),
        launch: LaunchOptions,
    ) -> NodeProcess {
        let binary = binary.to_owned();
        let http = HttpAddress::new(http, &launch.access);
        let (folder, journals, log) = (data.join(&name), journals.join(&name), data.join(format!("{name}.log")));
        NodeProcess {
            name,
            admin,
            peers,
            http,
            binary,
            folder,
            journals,
            log,
            launch,
            crash_points: None,
            injected_bug: None,
            join_token: None,
            level: FORMER_LEVEL,
            former_release: None,
            log_from: 0,
            process: None,
        }
    }

    /// Returns the binary of the former release, if the next start is one of it.
    fn former_binary(&self) -> Option<&Path> {
        self.former_release.as_deref().filter(|_| self.level == FORMER_LEVEL)
    }

    /// Returns the binary of the next start.
    fn binary(&self) -> &Path {
        self.former_binary().unwrap_or(&self.binary)
    }

    /// Makes a new cluster whose first node this one is. It must not have run yet.
    pub fn init(&self, test_clock: bool) -> Result<()> {
        let flag = test_clock.then(|| "--test-clock".into());
        self.begin(["cluster".into(), "init".into()].into_iter().chain(flag))
    }

    /// Makes another cluster of the newest backup in this folder, whose first node this one is. Its own folder must be
    /// empty.
    pub fn restore(&self, from: &Path) -> Result<()> {
        self.begin(["restore".into(), "run".into(), "--from".into(), from.into()])
    }

    /// Runs a command that makes the first folder of a cluster.
    fn begin(&self, words: impl IntoIterator<Item = OsString>) -> Result<()> {
        let mut command = Command::new(self.binary());
        command
            .args(words)
            .args(["--config", "/dev/null", "--name", &self.name, "--data-dir"])
            .arg(&self.folder)
            .args(["--listen", &self.admin.to_string()])
            .args(["--peer-listen", &self.peers.to_string()])
            .args(self.insecure())
            .envs(self.launch.access.folder().map(|folder| ("XDG_CONFIG_HOME", folder)))
            // A backup of the next level is read by the next release only.
            .env(LEVEL_VARIABLE, self.level.to_string())
            .stdin(Stdio::null());
        let done = command.output().with_context(|| format!("{} cannot be started", self.binary().display()))?;
        if !done.status.success() {
            bail!("no cluster was made: {}", String::from_utf8_lossy(&done.stderr));
        }
        Ok(())
    }

    /// Returns the flag for nodes whose clients use plaintext.
    fn insecure(&self) -> Option<&'static str> {
        self.launch.access.folder().is_none().then_some("--insecure")
    }

    /// Starts the process. Its output goes to a log beside its folder.
    pub fn start(&mut self) -> Result<()> {
        std::fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        self.log_from = log.metadata()?.len();
        let mut line: Vec<OsString> = self.launch.prefix.iter().map(OsString::from).collect();
        line.push(self.binary().into());
        let (program, rest) = line.split_first().context("a command without a program")?;
        let mut command = Command::new(program);
        // The node must read neither this machine's file nor the configuration in this process's own environment.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REVEILLE__")) {
            command.env_remove(name);
        }
        command
            .env_remove(CRASH_POINTS)
            .envs(self.injected_bug.map(|bug| (INJECTED_BUG, bug)))
            .env(LEVEL_VARIABLE, self.level.to_string())
            .envs((!self.launch.own_volume && self.former_binary().is_none()).then_some((RESERVE_VARIABLE, "0")))
            .envs(self.crash_points.as_ref().map(|points| (CRASH_POINTS, points)))
            .envs(self.join_token.as_ref().map(|token| ("REVEILLE__JOIN", token)))
            .envs(self.launch.variables.iter().map(|(name, value)| (*name, value.as_os_str())))
            .args(rest)
            .args(["start", "--config", "/dev/null"])
            .args(["--name", &self.name])
            .args(["--hello-name", &self.name])
            .arg("--data-dir")
            .arg(&self.folder)
            .arg("--journal-dir")
            .arg(&self.journals)
            .args(["--listen", &self.admin.to_string()])
            .args(["--peer-listen", &self.peers.to_string()])
            .args(["--advertise", &self.peers.to_string()])
            .args(["--http", &self.http.to_string()])
            .args(self.insecure())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if self.launch.own_process_group {
            command.process_group(0);
        }
        let process = command.spawn().with_context(|| format!("{} cannot be started", self.binary().display()))?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills the process (`kill -9`). Returns when it has ended.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().with_context(|| format!("kill -9 {}", self.name))?;
            process.wait().with_context(|| format!("the end of {}", self.name))?;
            remove_clock_files(process.id());
        }
        Ok(())
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.process_id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        match id {
            Some(id) => kill_process(id, signal).with_context(|| format!("a signal to {}", self.name)),
            None => anyhow::bail!("{} does not run", self.name),
        }
    }

    /// Returns the incarnation of the process, from its log. `None`: it is not logged yet.
    pub fn incarnation(&self) -> Option<u64> {
        incarnation(&self.log())
    }

    /// Returns the log of the current or last process.
    fn log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let own = usize::try_from(self.log_from).ok().and_then(|from| log.get(from..)).unwrap_or_default();
        String::from_utf8_lossy(own).into_owned()
    }

    /// Returns the data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Deletes the data folder and the journals of this node, which must be down: its machine is lost.
    pub fn delete_files(&self) -> Result<()> {
        empty(&self.folder).with_context(|| format!("cannot empty {}", self.folder.display()))?;
        self.delete_journals()
    }

    /// Deletes the journals of all processes of this node, which must be down. A process that ended at once has no
    /// journal.
    pub fn delete_journals(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.journals) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("the journal of {} in {}", self.name, self.journals.display()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the process id. `None`: the node is down.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Returns the exit status of a process that ended by itself. `None`: it runs, or it was killed.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().and_then(|process| process.try_wait().ok().flatten())
    }

    /// Returns true if the log of the current or last process contains this text.
    pub fn has_logged(&self, words: &str) -> bool {
        self.log().contains(words)
    }

    /// Returns the end of the log of the current or last process, for an error message.
    pub fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n")
    }
}

/// Empties a folder, which may be the root of a volume. It need not exist.
fn empty(folder: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Removes the shared memory of libfaketime, which a killed process leaves.
pub fn remove_clock_files(process: u32) {
    for file in [format!("faketime_shm_{process}"), format!("sem.faketime_sem_{process}")] {
        // The files do not exist if the process had no such clock.
        let _ = std::fs::remove_file(Path::new("/dev/shm").join(file));
    }
}

/// Returns ports that are free now. All listeners stay open until the last port is drawn, so no two nodes share a port.
///
/// # Errors
/// Fails if too few ports are free.
pub fn free_ports(nodes: usize) -> Result<Vec<Ports>> {
    let (mut held, mut addresses) = (Vec::new(), BTreeSet::new());
    for _ in 0..PORT_TRIES {
        if addresses.len() == 3 * nodes {
            let addresses: Vec<SocketAddr> = addresses.into_iter().collect();
            return Ok(addresses.as_chunks::<3>().0.to_vec());
        }
        let port = rand::rng().random_range(FREE_PORTS);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            addresses.insert(listener.local_addr().context("a free port")?);
            held.push(listener);
        }
    }
    bail!("no free ports between {} and {} on this machine", FREE_PORTS.start, FREE_PORTS.end)
}

/// Returns the last incarnation in a log: `… listening node=bb42d2eb0a004e39/3 …`.
fn incarnation(log: &str) -> Option<u64> {
    let line = log.lines().rev().find(|line| line.contains(" listening node="))?;
    let (_, rest) = line.split_once(" listening node=")?;
    let (_, incarnation) = rest.split(' ').next()?.split_once('/')?;
    incarnation.parse().ok()
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_emptied_and_stays() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("data");
        assert!(empty(&folder).is_ok(), "it does not exist");
        std::fs::create_dir_all(folder.join("wal")).unwrap();
        std::fs::write(folder.join("wal/1.wal"), "1").unwrap();
        std::fs::write(folder.join("identity"), "1").unwrap();
        empty(&folder).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    /// Lets another process write the script. A file that is open for writing cannot be executed, and a child of
    /// another test has a copy of every open file until its exec.
    fn write_script(path: &Path, lines: &str) {
        let line = "printf '#!/bin/sh\n%s\n' \"$2\" > \"$1\" && chmod 700 \"$1\"";
        assert!(Command::new("sh").args(["-c", line, "sh"]).arg(path).arg(lines).status().unwrap().success());
    }

    fn node(binary: &Path, data: &Path, journals: &Path) -> NodeProcess {
        let ports = free_ports(1).unwrap()[0];
        NodeProcess::new("n1".to_owned(), ports, (binary, data, journals), LaunchOptions::default())
    }

    #[test]
    fn incarnation_is_read_from_log() {
        let log = "2026-11-22T15:01:36Z  INFO listening node=bb42d2eb0a004e39/1 admin=127.0.0.1:1\n\
                   2026-11-22T15:01:37Z  INFO listening node=bb42d2eb0a004e39/2 admin=127.0.0.1:1\nmore\n";
        assert_eq!((incarnation(log), incarnation("started\n")), (Some(2), None));
    }

    #[test]
    fn log_end_is_of_last_process() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("speaks");
        write_script(&script, "echo \"${FAILPOINTS:-nowhere} is where it crashes\"");
        let mut node = node(&script, folder.path(), folder.path());
        for points in [Some("here"), None] {
            node.crash_points = points.map(str::to_owned);
            node.start().unwrap();
            while node.ended().is_none() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(node.log_end(), format!("{} is where it crashes", points.unwrap_or("nowhere")));
            node.kill().unwrap();
        }
    }

    #[test]
    fn delete_journals_succeeds_where_node_created_none() {
        let folder = tempfile::tempdir().unwrap();
        let (data, journals) = (folder.path().join("data"), folder.path().join("journals"));
        let node = node(Path::new("/bin/false"), &data, &journals);
        node.delete_journals().unwrap();
        std::fs::create_dir_all(journals.join("n1/7")).unwrap();
        node.delete_journals().unwrap();
        assert!(journals.exists() && !journals.join("n1").exists());
        std::fs::write(journals.join("n1"), "a file").unwrap();
        let error = node.delete_journals().unwrap_err().to_string();
        assert!(error.contains("the journal of n1"), "{error}");
    }

    #[test]
    fn process_ends_when_its_node_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("sleeps");
        write_script(&script, "exec sleep 600");
        let mut node = node(&script, folder.path(), folder.path());
        node.start().unwrap();
        assert_eq!(node.ended(), None);
        let process = format!("/proc/{}", node.process_id().unwrap());
        assert!(Path::new(&process).exists());
        drop(node);
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn free_ports_are_distinct() {
        let ports = free_ports(7).unwrap();
        let all: BTreeSet<SocketAddr> = ports.into_iter().flatten().collect();
        assert_eq!(all.len(), 21);
        assert!(all.iter().all(|address| FREE_PORTS.contains(&address.port())));
    }
}

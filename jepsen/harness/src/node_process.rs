//! One node process: started, killed, started again. A drop kills the process and waits for its end, so that its folders can
//! be removed afterwards.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::clocks::Clocks;
use crate::environment::{Environment, Ports};

/// The variable with the crash point of a process; only a binary with crash points reads it.
const CRASH_POINTS: &str = "FAILPOINTS";
/// The variable with the level of the ledger that a process applies; only a binary with the feature `next-level` reads it.
pub const LEVEL_VARIABLE: &str = "REVEILLE_LEVEL";
/// The level of the former release.
pub const FORMER_LEVEL: u32 = 1;
/// The level of the next release.
pub const NEXT_LEVEL: u32 = 2;
/// Lines of the log that an error shows.
const LAST_LINES: usize = 12;

/// One node, whether its process runs or not.
pub struct NodeProcess {
    /// `n1`, `n2` …; also its name in EHLO.
    pub name: String,
    /// Its admin API.
    pub admin: SocketAddr,
    /// Its peer listener.
    pub peers: SocketAddr,
    /// Health and metrics.
    pub http: SocketAddr,
    binary: PathBuf,
    folder: PathBuf,
    journals: PathBuf,
    log: PathBuf,
    /// What precedes its command line.
    prefix: Vec<String>,
    variables: Vec<(&'static str, OsString)>,
    /// The crash points of the next process, in the syntax of FAILPOINTS.
    crash_points: Option<String>,
    /// The level of the release on this node.
    level: u32,
    /// Offset at which the log of the current or last process begins; bytes.
    log_from: u64,
    process: Option<Child>,
}

impl NodeProcess {
    /// A node in this environment that does not run yet; its files are below these folders.
    pub fn new(
        name: String,
        [admin, peers, http]: Ports,
        (binary, data, journals): (&Path, &Path, &Path),
        environment: &Environment,
    ) -> NodeProcess {
        let binary = binary.to_owned();
        let (folder, journals, log) = (data.join(&name), journals.join(&name), data.join(format!("{name}.log")));
        let (prefix, variables) = (environment.command_prefix(&name), environment.variables(&name));
        NodeProcess {
            name,
            admin,
            peers,
            http,
            binary,
            folder,
            journals,
            log,
            prefix,
            variables,
            crash_points: None,
            level: FORMER_LEVEL,
            log_from: 0,
            process: None,
        }
    }

    /// From its next start on the process dies at the first of these crash points that it reaches.
    pub fn set_crash_points(&mut self, points: Option<&str>) {
        self.crash_points = points.map(str::to_owned);
    }

    /// The level of the release on this node.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// From its next start on the process is a release of this level.
    pub fn set_level(&mut self, level: u32) {
        self.level = level;
    }

    /// Starts the process. Its output goes to a log beside its folder.
    pub fn start(&mut self) -> Result<()> {
        std::fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        self.log_from = log.metadata()?.len();
        let mut line: Vec<OsString> = self.prefix.iter().map(OsString::from).collect();
        line.push(self.binary.clone().into_os_string());
        let (program, rest) = line.split_first().context("a command without a program")?;
        let mut command = Command::new(program);
        // The configuration of the harness's own environment must not apply.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REVEILLE__")) {
            command.env_remove(name);
        }
        command
            .env_remove("RUST_LOG")
            .env_remove(CRASH_POINTS)
            .env(LEVEL_VARIABLE, self.level.to_string())
            .envs(self.crash_points.as_ref().map(|points| (CRASH_POINTS, points)))
            .envs(self.variables.iter().map(|(name, value)| (*name, value.as_os_str())))
            .args(rest)
            .arg("start")
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
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for the harness, which kills its nodes.
            .process_group(0);
        if !self.admin.ip().is_loopback() {
            // Only this machine is connected to that network.
            command.arg("--insecure");
        }
        let process = command.spawn().with_context(|| format!("{} cannot be started", self.binary.display()))?;
        self.process = Some(process);
        Ok(())
    }

    /// `kill -9`; returns when the process has ended.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().with_context(|| format!("kill -9 {}", self.name))?;
            process.wait().with_context(|| format!("the end of {}", self.name))?;
            Clocks::forget(process.id());
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

    /// The incarnation of the process, as its log shows it; `None` until it is logged.
    pub fn incarnation(&self) -> Option<u64> {
        incarnation(&self.log())
    }

    /// The log of the current or last process.
    fn log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let own = usize::try_from(self.log_from).ok().and_then(|from| log.get(from..)).unwrap_or_default();
        String::from_utf8_lossy(own).into_owned()
    }

    /// Its data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Deletes the journals of all its processes; the node must be down. A process that ended at once created none.
    pub fn delete_journals(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.journals) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("the journal of {} in {}", self.name, self.journals.display()))
            }
            _ => Ok(()),
        }
    }

    /// The process id; `None` while it is down.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// The exit status of a process that ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().and_then(|process| process.try_wait().ok().flatten())
    }

    /// Whether the log of the current or last process contains these words.
    pub fn has_logged(&self, words: &str) -> bool {
        self.log().contains(words)
    }

    /// The end of the log of the current or last process, for an error.
    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n")
    }
}

/// The last incarnation in a log: `… listening node=bb42d2eb0a004e39/3 …`.
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
    use crate::environment::{Needs, free_ports};
    use crate::tool;
    use crate::workspace::Workspace;

    fn node(binary: &Path, data: &Path, journals: &Path) -> NodeProcess {
        let workspace = Workspace::new().unwrap();
        let environment = Environment::new(Needs::default(), &workspace, data, &[]).unwrap();
        NodeProcess::new("n1".to_owned(), free_ports(1).unwrap()[0], (binary, data, journals), &environment)
    }

    #[test]
    fn incarnation_is_read_from_log() {
        let log = "2026-11-22T15:01:36Z  INFO listening node=bb42d2eb0a004e39/1 admin=127.0.0.1:1\n\
                   2026-11-22T15:01:37Z  INFO listening node=bb42d2eb0a004e39/2 admin=127.0.0.1:1\nmore\n";
        assert_eq!((incarnation(log), incarnation("started\n")), (Some(2), None));
    }

    #[test]
    fn last_words_are_of_last_process() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("speaks");
        tool::script(&script, "echo \"${FAILPOINTS:-nowhere} is where it dies\"");
        let mut node = node(&script, folder.path(), folder.path());
        for points in [Some("here"), None] {
            node.set_crash_points(points);
            node.start().unwrap();
            while node.ended().is_none() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(node.last_words(), format!("{} is where it dies", points.unwrap_or("nowhere")));
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
        tool::script(&script, "exec sleep 600");
        let mut node = node(&script, folder.path(), folder.path());
        node.start().unwrap();
        assert_eq!(node.ended(), None);
        let process = format!("/proc/{}", node.process_id().unwrap());
        assert!(Path::new(&process).exists());
        drop(node);
        assert!(!Path::new(&process).exists());
    }
}

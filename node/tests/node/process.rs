//! A node as a separate process, on ports that the system chose. Its log is kept.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reveille_node_client::ClientAccess;
use reveille_node_client::node_process::remove_clock_files;
use tempfile::NamedTempFile;

/// Timeout far beyond what any step takes, so that no test fails on a loaded machine.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// Folder of a user's configuration.
const CLIENT: &str = "client";

/// A running node. It is killed when it is dropped.
pub struct Process {
    pub admin: String,
    pub peers: String,
    pub http: String,
    /// Empty if unsubscribe is not configured.
    pub unsubscribe: String,
    /// Folder of the cluster, and of its user's configuration.
    folder: PathBuf,
    /// Outside of the node's folders, because their disk may be full.
    log: NamedTempFile,
    child: Child,
}

/// Returns the command `reveille start` with these flags. The data folder is `folder/name`.
pub fn start(folder: &Path, name: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reveille"));
    command.args(["start", "--name", name, "--data-dir"]).arg(folder.join(name));
    command.arg("--journal-dir").arg(folder.join("journal")).args(flags).stdin(Stdio::null());
    // Settings in the environment of the test must not reach the node.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REVEILLE__")) {
        command.env_remove(name);
    }
    // Many nodes of tests share a volume, or a memory file system.
    command.env("REVEILLE__DISK_RESERVE_MIB", "0");
    command
}

/// Returns a command of the user who has the contexts in `folder`.
pub fn user(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reveille"));
    command.env("XDG_CONFIG_HOME", folder.join(CLIENT)).stdin(Stdio::null());
    for name in ["REVEILLE_URL", "REVEILLE_CONTEXT", "REVEILLE_TOKEN"] {
        command.env_remove(name);
    }
    command
}

/// Returns a command of this user against the node at `endpoint`.
pub fn client(folder: &Path, endpoint: &str) -> Command {
    let mut command = user(folder);
    command.args(["--endpoint", endpoint]);
    command
}

/// Returns three listen addresses with ports that were free a moment ago.
pub fn ports() -> [String; 3] {
    let taken = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    taken.map(|listener| listener.local_addr().expect("an address").to_string())
}

impl Process {
    /// Makes a cluster in a new folder, whose first node has this name.
    pub fn init(folder: &Path, name: &str, flags: &str) -> Ended {
        let data = folder.join(name);
        let line = format!("cluster init --name {name} --data-dir {} {flags}", data.display());
        // Another cluster in the same folder has another user.
        let other = folder.join(format!("of-{name}"));
        let user = if folder.join(CLIENT).exists() && !data.exists() { &other } else { folder };
        Process::reveille_at(user, "127.0.0.1:1", &line)
    }

    /// Starts nodes that form a cluster, and waits until all vote.
    pub fn cluster<const N: usize>(folder: &Path, names: [&str; N], environment: &[(&str, &str)]) -> [Process; N] {
        let mut nodes: Vec<Process> = Vec::new();
        for name in names {
            let token = nodes.first().map(Process::join_token);
            let join = token.as_ref().map(|token| ("REVEILLE__JOIN", token.as_str()));
            let environment: Vec<_> = environment.iter().copied().chain(join).collect();
            nodes.push(Process::listening_by(folder, name, ["127.0.0.1:0"; 3], &environment));
        }
        until("all vote", || nodes[0].voters() == N);
        until("all answer", || nodes.iter().all(|node| node.reveille("schedule list").code == Some(0)));
        nodes.try_into().unwrap_or_else(|_| panic!("{N} nodes"))
    }

    /// Returns the place of the leader among these nodes. Waits until one of them names it.
    pub fn leader<const N: usize>(nodes: &[Process; N], names: [&str; N]) -> usize {
        let endpoints = nodes.each_ref().map(|node| node.admin.as_str()).join(",");
        let mut leads = None;
        until("a leader", || {
            let status = Process::reveille_at(&nodes[0].folder, &endpoints, "cluster status -o json");
            let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap_or_default();
            leads = names.iter().position(|name| status["leader"] == *name);
            leads.is_some()
        });
        leads.expect("a leader")
    }

    /// Kills the leader of these nodes, and starts it again after two seconds.
    pub fn replace_leader<const N: usize>(nodes: &mut [Process; N], names: [&str; N]) {
        let place = Process::leader(nodes, names);
        nodes[place].kill();
        std::thread::sleep(Duration::from_secs(2));
        nodes[place] = nodes[place].again(&nodes[place].folder, names[place]);
    }

    /// Returns a token that admits one node. Waits until there is a leader.
    pub fn join_token(&self) -> String {
        until("a leader", || self.reveille("schedule list").code == Some(0));
        let created = self.reveille("cluster member add -o json");
        let answer: serde_json::Value = serde_json::from_str(&created.stdout).unwrap_or_else(|_| panic!("{created:?}"));
        answer["token"].as_str().expect("a token").to_owned()
    }

    /// Returns the number of members that vote.
    pub fn voters(&self) -> usize {
        let list = self.reveille("cluster member list -o json");
        let members: serde_json::Value = serde_json::from_str(&list.stdout).unwrap_or_default();
        members.as_array().map_or(0, |all| all.iter().filter(|member| member["votes"] == true).count())
    }

    /// Starts a node, and waits until it listens. A new node makes a cluster of its own.
    pub fn listening(folder: &Path, name: &str) -> Process {
        Process::listening_at(folder, name, ["127.0.0.1:0"; 3])
    }

    /// Starts the node again on the same addresses.
    pub fn again(&self, folder: &Path, name: &str) -> Process {
        self.again_by(folder, name, &[])
    }

    /// Starts the node again on the same addresses, with variables in its environment.
    pub fn again_by(&self, folder: &Path, name: &str, environment: &[(&str, &str)]) -> Process {
        Process::listening_by(folder, name, [&self.admin, &self.peers, &self.http], environment)
    }

    fn listening_at(folder: &Path, name: &str, addresses: [&str; 3]) -> Process {
        Process::listening_by(folder, name, addresses, &[])
    }

    /// Starts a node with variables in its environment, and waits until it listens. A new node without a join token
    /// makes a cluster of its own.
    pub fn listening_by(folder: &Path, name: &str, addresses: [&str; 3], environment: &[(&str, &str)]) -> Process {
        let joins = environment.iter().any(|(variable, _)| *variable == "REVEILLE__JOIN");
        if !joins && !folder.join(name).join("node").exists() {
            let created = Process::init(folder, name, "");
            assert_eq!(created.code, Some(0), "{created:?}");
        }
        let log = NamedTempFile::new().expect("a log");
        let flags = ["--listen", "--peer-listen", "--http"];
        let ports = [0, 1, 2].map(|place: usize| [flags[place], addresses[place]]);
        let said = log.reopen().expect("a log");
        let child = start(folder, name, ports.as_flattened())
            .envs(environment.iter().copied())
            .stderr(said)
            .spawn()
            .expect("it starts");
        let nowhere = String::new;
        let (admin, peers, http, unsubscribe) = (nowhere(), nowhere(), nowhere(), nowhere());
        let mut process = Process { admin, peers, http, unsubscribe, folder: folder.to_owned(), log, child };
        until("it listens", || process.said().contains(" listening "));
        (process.admin, process.peers) = (process.named("admin="), process.named("peers="));
        process.http = process.named("http=");
        if process.said().contains("unsubscribe=") {
            process.unsubscribe = process.named("unsubscribe=");
        }
        process
    }

    /// Returns everything that the node has logged.
    pub fn said(&self) -> String {
        fs::read_to_string(self.log.path()).expect("a log")
    }

    fn named(&self, key: &str) -> String {
        let said = self.said();
        let value = said.split(key).nth(1).and_then(|rest| rest.split_whitespace().next());
        value.unwrap_or_else(|| panic!("{key} in {said}")).to_owned()
    }

    /// Waits until the process ends, and returns its exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        until("it ends", || {
            code = self.child.try_wait().expect("its state");
            code.is_some()
        });
        code.and_then(|status| status.code())
    }

    /// Kills the process without warning, like a power cut.
    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        remove_clock_files(self.child.id());
    }

    /// Returns the response of its HTTP listener, head and body. Empty if it does not answer.
    pub fn get(&self, path: &str) -> String {
        Process::said_by(&self.http, &format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"))
    }

    /// Returns everything that the server at `address` sends before it closes. Empty if no server listens.
    pub fn said_by(address: &str, request: &str) -> String {
        let mut answer = String::new();
        let requested = TcpStream::connect(address).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut answer)
        });
        requested.map(|_| answer).unwrap_or_default()
    }

    /// Returns how other clients than the command line reach this node.
    pub fn access(&self) -> ClientAccess {
        ClientAccess::by_context(self.folder.join(CLIENT))
    }

    /// Runs a command against this node.
    pub fn reveille(&self, line: &str) -> Ended {
        Process::reveille_at(&self.folder, &self.admin, line)
    }

    /// Runs a command against the node at `endpoint`, as the user whose cluster is in `folder`.
    pub fn reveille_at(folder: &Path, endpoint: &str, line: &str) -> Ended {
        client(folder, endpoint).args(line.split_whitespace()).output().expect("it runs").into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove_clock_files(self.child.id());
    }
}

/// The result of a command.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Waits until the condition is true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + STEP_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < end, "not within {STEP_TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

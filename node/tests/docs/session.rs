//! Simulates a reader at a terminal: a folder, a shell, and processes that listen on the ports of the page.
//!
//! `reveille dev` and `reveille start` run in the background until the page ends. `reveille dev` also stops the
//! processes before it. They listen on free ports, and the ports of the page are mapped to those. The test has its own
//! commands. `a-relay 2525 after-commit:close#1` starts a relay with this fault, and its port is mapped too. `a-leader`
//! waits for a leader and until all members vote. `a-cluster` starts the nodes n1, n2 and n3. `a-kill NAME…` kills
//! nodes with `kill -9`. `a-upgrade NAME…` restarts nodes one after the other as the next release: the same binary with
//! the next level of the ledger, which needs the feature `next-level`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use reveille_sink::{Sink, SinkOptions};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Timeout far beyond what any step takes, so that no test fails on a loaded machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);
const BINARY: &str = env!("CARGO_BIN_EXE_reveille");

/// A terminal session.
pub struct Session {
    folder: TempDir,
    /// State of the shell between commands, kept outside of the reader's folder.
    beside: TempDir,
    ports: Vec<Port>,
    nodes: Vec<Node>,
    relays: Vec<Sink>,
    runtime: Runtime,
}

/// A port on the page, and the real port that it is mapped to.
struct Port {
    written: String,
    real: String,
}

/// A process. It is killed when it is dropped.
struct Node {
    name: String,
    /// The command of the page that started it.
    command: String,
    child: Child,
}

/// The result of a command.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: Option<i32>,
    /// Output of stdout and stderr, in the order in which it was written.
    pub printed: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    fn silent() -> Ended {
        Ended { code: Some(0), printed: String::new() }
    }
}

impl Session {
    pub fn open() -> Session {
        let folder = || tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Session {
            folder: folder(),
            beside: folder(),
            ports: Vec::new(),
            nodes: Vec::new(),
            relays: Vec::new(),
            runtime: runtime.expect("a runtime"),
        }
    }

    /// Writes a file of the page.
    pub fn write(&self, name: &str, lines: &[String]) {
        let text = self.real(&(lines.join("\n") + "\n"));
        fs::write(self.folder.path().join(name), text).expect("written");
    }

    /// Runs a command. Waits until it ends, or until the process that it started listens.
    pub fn type_in(&mut self, command: &str) -> Ended {
        let words: Vec<&str> = command.split_whitespace().filter(|word| *word != "\\").collect();
        match words.as_slice() {
            ["reveille", "dev", ..] => self.dev(command),
            ["reveille", "start", ..] => self.start(command),
            ["a-relay", port, faults] => self.relay(port, faults),
            ["a-leader"] => self.leader(),
            ["a-cluster"] => self.cluster(),
            ["a-kill", names @ ..] => {
                self.nodes.retain(|node| !names.contains(&node.name.as_str()));
                Ended::silent()
            }
            ["a-upgrade", names @ ..] => self.upgrade(names),
            _ => self.shell(&self.real(command)),
        }
    }

    fn shell(&self, command: &str) -> Ended {
        let exports = self.beside.path().join("exports");
        let file = exports.display();
        let script = format!("if [ -e {file} ]; then . {file}; fi\n{command}\ncode=$?; export -p > {file}; exit $code");
        let log = self.beside.path().join("printed");
        let mut child = self.command("sh", &log).arg("-c").arg(script).process_group(0).spawn().expect("a shell");
        let end = Instant::now() + STEP_TIMEOUT;
        let status: ExitStatus = loop {
            if let Some(status) = child.try_wait().expect("its state") {
                break status;
            }
            if Instant::now() > end {
                let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
                kill_process_group(group, Signal::KILL).expect("killed");
                let _ = child.wait();
                panic!("not within {STEP_TIMEOUT:?}: {command}\n{}", read(&log));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Ended { code: status.code(), printed: self.written(&read(&log)) }
    }

    /// Starts three nodes that form a cluster. The first one leads.
    fn cluster(&mut self) -> Ended {
        let created = self.shell("reveille cluster init --name n1 --data-dir n1");
        assert_eq!(created.code, Some(0), "{created:?}");
        for [name, admin, peers, http] in
            [["n1", "7600", "7601", "7680"], ["n2", "7610", "7611", "7690"], ["n3", "7620", "7621", "7700"]]
        {
            self.start(&format!(
                "reveille start --name {name} --data-dir {name} --listen 127.0.0.1:{admin} --peer-listen \
                 127.0.0.1:{peers} --http 127.0.0.1:{http}"
            ));
            self.leader();
            self.shell("export REVEILLE__JOIN=$(reveille cluster member add -o name)");
        }
        self.shell("unset REVEILLE__JOIN; reveille cluster transfer-leader n1");
        self.leader()
    }

    fn leader(&self) -> Ended {
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let requested =
                self.shell("reveille schedule list && reveille cluster member list > members && ! grep learns members");
            if requested.code == Some(0) {
                return Ended::silent();
            }
            assert!(Instant::now() < end, "no leader within {STEP_TIMEOUT:?}: {requested:?}");
        }
    }

    /// Restarts nodes on their ports as the next release. Waits until the asked node knows the level and the version of
    /// each.
    fn upgrade(&mut self, names: &[&str]) -> Ended {
        for name in names {
            let place = self.nodes.iter().position(|node| node.name == *name).expect("a node that runs");
            let mut node = self.nodes.remove(place);
            let process = i32::try_from(node.child.id()).ok().and_then(Pid::from_raw).expect("a process");
            kill_process(process, Signal::TERM).expect("a signal");
            node.child.wait().expect("it ends");
            self.start(&format!("env REVEILLE_LEVEL=2 {}", node.command));
            self.leader();
        }
        let known = |printed: &str| -> Option<bool> {
            let status: Value = serde_json::from_str(printed).ok()?;
            let mut nodes = status["nodes"].as_array()?.iter();
            Some(nodes.all(|node| {
                node["version"].is_string() && (node["level"] == 2 || !names.iter().any(|name| node["name"] == *name))
            }))
        };
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let status = self.shell("reveille cluster upgrade status -o json 2> /dev/null");
            if known(&status.printed) == Some(true) {
                return Ended::silent();
            }
            assert!(Instant::now() < end, "not the next release within {STEP_TIMEOUT:?}: {status:?}");
        }
    }

    /// Starts one node with its mailbox, and stops all others.
    fn dev(&mut self, command: &str) -> Ended {
        self.nodes.clear();
        // The shell may have exported the address of the previous node.
        let _ = fs::remove_file(self.beside.path().join("exports"));
        let command = command.split('#').next().unwrap_or_default();
        let said = self.background(&format!("{command} --free-ports"), "Ctrl-C ends it", "dev");
        let after = |word: &str| said.split(word).nth(1).and_then(|rest| rest.split(['/', ')']).next());
        for (written, before) in [("7600", "admin     "), ("7680", "http://"), ("7625", "smtp://")] {
            let address = after(before).and_then(|address| address.split_whitespace().next());
            self.behind(written, address.unwrap_or_else(|| panic!("{before} in {said}")));
        }
        Ended::silent()
    }

    fn start(&mut self, command: &str) -> Ended {
        let flags = ["--listen", "--peer-listen", "--http"];
        let mut words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let mut written = Vec::new();
        for flag in flags {
            let place = words.iter().position(|word| word == flag).expect("a page that starts a node names its ports");
            // On the ports of an earlier node it gets the same real ones: the shell may have exported its address.
            let real = self.real(&words[place + 1]);
            let address = if real == words[place + 1] { "127.0.0.1:0".to_owned() } else { real };
            written.push(std::mem::replace(&mut words[place + 1], address));
        }
        let name = words.iter().skip_while(|word| *word != "--name").nth(1).expect("a name").to_string();
        let said = self.background(&words.join(" "), " listening ", &name);
        for (key, written) in ["admin=", "peers=", "http="].into_iter().zip(written) {
            let address = said.split(key).nth(1).and_then(|rest| rest.split_whitespace().next());
            let port = written.rsplit(':').next().unwrap_or_default();
            self.behind(port, address.unwrap_or_else(|| panic!("{key} in {said}")));
        }
        if let Some(node) = self.nodes.last_mut() {
            command.clone_into(&mut node.command);
        }
        Ended::silent()
    }

    /// Starts a command in the background. Waits until it prints `word`, and returns all that it printed.
    fn background(&mut self, command: &str, word: &str, name: &str) -> String {
        let log = self.beside.path().join(format!("node-{name}"));
        let journal = self.beside.path().join("journal");
        fs::create_dir_all(&journal).expect("a folder");
        let exports = self.beside.path().join("exports");
        let file = exports.display();
        let command =
            format!("if [ -e {file} ]; then . {file}; fi; exec {command} --journal-dir {}", journal.display());
        let child = self.command("sh", &log).arg("-c").arg(&command).spawn().expect("a shell");
        self.nodes.push(Node { name: name.to_owned(), command: String::new(), child });
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let said = read(&log);
            if said.contains(word) {
                return said;
            }
            let ended = self.nodes.last_mut().and_then(|node| node.child.try_wait().expect("its state"));
            assert!(ended.is_none() && Instant::now() < end, "{command}: {ended:?}\n{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn relay(&mut self, port: &str, faults: &str) -> Ended {
        let options = SinkOptions { faults: faults.parse().expect("a plan of faults"), ..SinkOptions::default() };
        let inside = self.runtime.enter();
        let sink = Sink::start(options).expect("a relay");
        drop(inside);
        self.behind(port, &sink.address().to_string());
        self.relays.push(sink);
        Ended::silent()
    }

    fn command(&self, program: &str, log: &Path) -> Command {
        let said = File::create(log).expect("a log");
        let binaries = Path::new(BINARY).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        // Both streams share one file and one offset, which keeps the order of their lines.
        command.stderr(said.try_clone().expect("the log")).stdout(said);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REVEILLE_")) {
            command.env_remove(name);
        }
        for name in ["NO_COLOR", "COLUMNS"] {
            command.env_remove(name);
        }
        command.env("XDG_CONFIG_HOME", self.beside.path().join("config"));
        command.env("PATH", format!("{binaries}:{path}")).env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
        if let Some(admin) = self.ports.iter().find(|port| port.written == "7600") {
            command.env("REVEILLE_URL", format!("127.0.0.1:{}", admin.real));
        }
        command
    }

    fn behind(&mut self, written: &str, address: &str) {
        let real = address.rsplit(':').next().unwrap_or_default().to_owned();
        self.ports.retain(|port| port.written != written);
        self.ports.push(Port { written: written.to_owned(), real });
    }

    /// Replaces the ports of the page by the real ports.
    fn real(&self, text: &str) -> String {
        let ports = self.ports.iter().map(|port| (port.written.as_str(), port.real.as_str()));
        with_ports(text, &ports.collect::<Vec<_>>())
    }

    /// Replaces the real ports by the ports of the page.
    fn written(&self, text: &str) -> String {
        let ports = self.ports.iter().map(|port| (port.real.as_str(), port.written.as_str()));
        with_ports(text, &ports.collect::<Vec<_>>())
    }
}

fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).expect("a log")).into_owned()
}

/// Replaces each number that is a port by the port that belongs to it.
fn with_ports(text: &str, twins: &[(&str, &str)]) -> String {
    let mut replaced = String::new();
    for word in text.split_inclusive(|one: char| !one.is_ascii_alphanumeric()) {
        let number = word.trim_end_matches(|one: char| !one.is_ascii_alphanumeric());
        let twin = twins.iter().find(|(one, _)| *one == number).map_or(number, |(_, other)| other);
        replaced.push_str(twin);
        replaced.push_str(&word[number.len()..]);
    }
    replaced
}

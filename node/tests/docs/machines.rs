//! Runs the blocks of a page that belong to several machines: `a`, `b` and `c`.
//!
//! Each machine is a view of this one (`packaging/view`) in a network namespace of its own, with the Debian package of
//! this build in the folder in which commands run. A Postfix with TLS and passwords is the relay. Its own programs are
//! real, except for `systemctl`: a view has no service manager.
//!
//! What a reader copies from one machine to another, a join token, is copied here too: each token that a command prints
//! is the input of the next block that asks for one.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use reveille_harness::host_network::HostNetwork;
use tempfile::TempDir;

use crate::blocks::{Block, root};
use crate::postfix::{PASSWORD, Postfix, USER};

/// Timeout far beyond what any block takes, so that no test fails on a loaded machine.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(180);
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The network of the page. The machines get another one, which is free here.
const NETWORK: &str = "10.77.0.";
/// The relay of the page.
const RELAY: &str = "relay.example.org";
const SUBMISSION: u16 = 587;
const SUBMISSIONS: u16 = 465;

/// Prepares a machine, then runs `/tmp/N.sh` for each line `N`, and answers with its exit code.
const SHELL: &str = r#"
set -e
ip link set lo up
rm -rf /root/.config/reveille /var/lib/reveille /etc/reveille
cat /tmp/ca.pem >> /etc/ssl/certs/ca-certificates.crt
cat /tmp/hosts >> /etc/hosts
cd /tmp
while read -r order; do
    code=0
    env -i PATH=/tmp/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive sh -e "/tmp/$order.sh" < "/tmp/$order.in" > "/tmp/$order.out" 2>&1 || code=$?
    echo "$code"
done
"#;

/// Stands for the service manager: it does what the unit of the package says.
const SYSTEMCTL: &str = r#"#!/bin/sh
set -e
case "$*" in
'enable --now reveille')
    reveille config check
    install -d -m 700 -o reveille -g reveille /run/reveille
    runuser -u reveille -- reveille start > /tmp/node.log 2>&1 &
    timeout 60 sh -c 'until grep -q " listening " /tmp/node.log; do sleep 0.1; done'
    ;;
'reload reveille')
    reveille config check
    kill -HUP "$(pidof reveille)"
    ;;
*)
    echo "systemctl $* is not known here" >&2
    exit 1
    ;;
esac
"#;

/// Three machines and their relay.
pub struct Machines {
    machines: BTreeMap<&'static str, Machine>,
    relay: Postfix,
    /// Begin of the addresses of the machines.
    network: String,
    /// Tokens that were printed and not used yet.
    tokens: VecDeque<String>,
    typed: usize,
    took: Duration,
    /// The network ends after its machines.
    _hosts: HostNetwork,
}

/// A view with its own network, and a shell in it.
struct Machine {
    shell: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    folder: TempDir,
    count: usize,
}

impl Drop for Machine {
    fn drop(&mut self) {
        // All processes of the view end with it.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

impl Machines {
    /// Starts the machines. Returns `None` if this machine cannot, and prints why.
    pub fn start() -> Option<Machines> {
        let lacks = HostNetwork::missing().or_else(without_overlay).or_else(missing);
        if let Some(why) = lacks {
            reveille_strict::skip(&why);
            return None;
        }
        // One page of a process has machines.
        let token = format!("{:08x}", std::process::id());
        let hosts = HostNetwork::new(&token, &NAMES.map(str::to_owned)).expect("a network");
        let address = hosts.harness_address();
        let relay = Postfix::start(RELAY, IpAddr::V4(address), [SUBMISSION, SUBMISSIONS])?;
        let [first, second, third, _] = address.octets();
        let built = tempfile::tempdir().expect("a folder");
        let package = build_package(built.path());
        let machine =
            |name: &'static str| (name, Machine::start(&hosts.namespace(name), &package, &relay, address.into()));
        Some(Machines {
            machines: NAMES.into_iter().map(machine).collect(),
            relay,
            network: format!("{first}.{second}.{third}."),
            tokens: VecDeque::new(),
            typed: 0,
            took: Duration::ZERO,
            _hosts: hosts,
        })
    }

    /// Runs a block on a machine.
    ///
    /// # Panics
    /// If a command fails.
    pub fn type_in(&mut self, name: &str, block: &Block) {
        let text = block.lines.join("\n");
        let input = if text.contains("USER:PASSWORD") {
            format!("{USER}:{PASSWORD}\n")
        } else if text.contains("/dev/stdin") {
            self.tokens.pop_front().expect("a token was printed before") + "\n"
        } else {
            String::new()
        };
        let machine = self.machines.get_mut(name).unwrap_or_else(|| panic!("line {}: no machine {name}", block.line));
        let began = Instant::now();
        let (code, printed) = machine.run(&text.replace(NETWORK, &self.network), &input);
        self.took += began.elapsed();
        self.typed += block.steps().len();
        let log = fs::read_to_string(machine.folder.path().join("node.log")).unwrap_or_default();
        assert_eq!(code, "0", "line {} on {name}:\n{text}\nprinted:\n{printed}\nits node:\n{log}", block.line);
        let tokens = printed.split_whitespace().filter(|word| word.starts_with("rvj1_"));
        self.tokens.extend(tokens.map(str::to_owned));
    }

    /// Waits for the email of the page. Returns how much was typed, and how long it took.
    ///
    /// # Panics
    /// If no email arrives, or more than one.
    pub fn end(self) -> String {
        let end = Instant::now() + BLOCK_TIMEOUT;
        while self.relay.arrived() == 0 {
            assert!(Instant::now() < end, "no email arrived\n{}", self.relay.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(self.relay.arrived(), 1, "{}", self.relay.log());
        format!("{} commands on {} machines took {:.1?} without the time to type", self.typed, NAMES.len(), self.took)
    }
}

impl Machine {
    fn start(namespace: &str, package: &Path, relay: &Postfix, relay_address: IpAddr) -> Machine {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::copy(package, path(package.file_name().and_then(|name| name.to_str()).expect("a name")))
            .expect("a package");
        fs::copy(relay.path("ca.pem"), path("ca.pem")).expect("an authority");
        fs::write(path("hosts"), format!("{relay_address} {RELAY}\n")).expect("written");
        fs::create_dir(path("bin")).expect("a folder");
        fs::write(path("bin/systemctl"), SYSTEMCTL).expect("written");
        fs::set_permissions(path("bin/systemctl"), fs::Permissions::from_mode(0o755)).expect("a mode");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}")).arg(root().join("packaging/view")).arg(folder.path());
        command.args(["bash", "-c", SHELL]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("it starts");
        let (orders, printed) = (shell.stdin.take().expect("a pipe"), shell.stdout.take().expect("a pipe"));
        let (said, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(printed).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Machine { shell, orders, answers, folder, count: 0 }
    }

    /// Runs a script. Returns its exit code, and all that it printed.
    fn run(&mut self, script: &str, input: &str) -> (String, String) {
        self.count += 1;
        let path = |ending: &str| self.folder.path().join(format!("{}.{ending}", self.count));
        fs::write(path("sh"), format!("{script}\n")).expect("written");
        fs::write(path("in"), input).expect("written");
        writeln!(self.orders, "{}", self.count).expect("the machine runs");
        let code = self.answers.recv_timeout(BLOCK_TIMEOUT);
        let printed = fs::read(path("out")).map(|printed| String::from_utf8_lossy(&printed).into_owned());
        let printed = printed.unwrap_or_default();
        (code.unwrap_or_else(|error| panic!("{script}\nhas no end: {error}\n{printed}")), printed)
    }
}

/// Says that this machine has no overlay file system, which a view needs.
pub fn without_overlay() -> Option<String> {
    let systems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_it = systems.contains("\toverlay\n")
        || Command::new("modprobe").arg("overlay").status().is_ok_and(|it| it.success());
    (!has_it).then(|| "there is no overlay file system".to_owned())
}

/// Says what this machine lacks for a package, beside what network and view need.
fn missing() -> Option<String> {
    let programs = ["unshare", "apt", "dpkg-deb", "dpkg-shlibdeps", "strip", "python3"];
    let missing = programs.iter().find(|program| Command::new(program).arg("--version").output().is_err());
    missing.map(|program| format!("{program} is not installed"))
}

/// Builds the package of this build, without compression.
fn build_package(folder: &Path) -> std::path::PathBuf {
    let mut command = Command::new(root().join("packaging/build-deb"));
    command.arg(folder).arg(env!("CARGO_BIN_EXE_reveille")).arg("-Znone");
    let built = command.output().expect("it runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let packages = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    packages.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "deb")).expect("a package")
}

//! Notifications to a service manager, over a socket as systemd has it.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};

use crate::process::{Process, STEP_TIMEOUT, start};

/// The manager's socket, and all lines that it received.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    /// Waits until `times` more lines that begin with `line` are received.
    fn hears(&mut self, line: &str, times: usize) {
        let mut left = times;
        while left > 0 {
            let mut datagram = [0; 4096];
            let length = self.socket.recv(&mut datagram).unwrap_or_else(|error| panic!("{line}: {error}"));
            let text = std::str::from_utf8(&datagram[..length]).expect("text");
            left -= text.lines().filter(|heard| heard.starts_with(line)).count().min(left);
            self.heard.extend(text.lines().map(str::to_owned));
        }
    }
}

/// A node that is killed when it is dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn service_manager_is_notified_of_readiness_watchdog_and_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(STEP_TIMEOUT)).expect("a limit");
    let mut manager = Manager { socket, heard: Vec::new() };
    let flags = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    assert_eq!(Process::init(folder.path(), "a", "").code, Some(0));
    let mut command = start(folder.path(), "a", &flags);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let mut node = Node(command.spawn().expect("it starts"));

    manager.hears("READY=1", 1);
    manager.hears("STATUS=", 1);
    manager.hears("WATCHDOG=1", 3);
    let reported = Command::new("kill").arg(node.0.id().to_string()).status().expect("kill");
    assert!(reported.success());
    manager.hears("STOPPING=1", 1);
    assert!(node.0.wait().expect("it ends").success());
    let ready = manager.heard.iter().filter(|line| *line == "READY=1").count();
    assert_eq!(ready, 1, "{:?}", manager.heard);
}

//! SIGHUP: the configuration is read again, and the log is JSON.

use std::fs;
use std::process::{Child, Command};

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::process::{Process, start, until};

/// A node that logs JSON. It is killed when it is dropped.
struct Node {
    child: Child,
    log: NamedTempFile,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    /// Returns all lines of the log. Each must be an object with a level and a message.
    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.log.path()).expect("a log");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let lines: Vec<Value> = whole.lines().map(line).collect();
        assert!(lines.iter().all(|line| line["level"].is_string() && line["message"].is_string()), "{text}");
        lines
    }

    /// Waits for a line with this message after the first `skip` lines, and returns it.
    fn says(&self, skip: usize, message: &str) -> Value {
        let mut found = None;
        until(message, || {
            let lines = self.lines();
            found = lines.into_iter().skip(skip).find(|line| line["message"].as_str().unwrap_or_default() == message);
            found.is_some()
        });
        found.expect("it was found")
    }

    fn hang_up(&self) -> usize {
        let before = self.lines().len();
        let reported = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status().expect("kill");
        assert!(reported.success());
        before
    }
}

/// The value of the gauge that alerts on a failed reload.
fn failed(http: &str) -> String {
    let page = Process::said_by(http, "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    let gauge = page.lines().find_map(|line| line.strip_prefix("reveille_config_reload_failed "));
    gauge.unwrap_or_default().to_owned()
}

#[test]
fn reload_applies_what_it_can_and_names_what_needs_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(Process::init(folder.path(), "a", "").code, Some(0));
    let file = folder.path().join("reveille.toml");
    fs::write(&file, "[log]\nformat = \"json\"\n").expect("written");
    let ports = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let mut command = start(folder.path(), "a", &ports);
    let log = NamedTempFile::new().expect("a log");
    let child = command.arg("--config").arg(&file).stderr(log.reopen().expect("a log")).spawn().expect("it starts");
    let node = Node { child, log };

    let listening = node.says(0, "listening");
    let address = |key: &str| listening[key].as_str().expect("an address").to_owned();
    let (admin, http) = (address("admin"), address("http"));
    assert_eq!(node.says(0, "configuration")["file"], file.to_str().expect("text"));
    until("it leads", || Process::reveille_at(folder.path(), &admin, "schedule list").code == Some(0));
    let add = "relay add main --host 127.0.0.1 --port 2525 --tls none --credentials main";
    let refused = Process::reveille_at(folder.path(), &admin, add);
    assert!(refused.stderr.contains("defines no credentials 'main'"), "{refused:?}");

    let login = "[credentials.main]\nhost = \"127.0.0.1\"\nport = 2525\nsecret = \"env:NONE\"\n";
    let log = "[log]\nformat = \"json\"\nfilter = \"info,openraft=debug\"\n";
    fs::write(&file, format!("shutdown_seconds = 60\n{log}{login}")).expect("written");
    let before = node.hang_up();
    let changed = node.says(before, "the configuration was read again")["changed"].to_string();
    assert!(changed.contains("log.filter") && changed.contains("credentials.main.secret"), "{changed}");
    assert_eq!(node.says(before, "changed in the configuration, and needs a restart")["keys"], "shutdown_seconds");
    let added = Process::reveille_at(folder.path(), &admin, add);
    assert_eq!(added.code, Some(0), "{added:?}");
    // A caller of the API cannot make the node send the password to another host.
    for elsewhere in ["--host localhost --port 2525", "--host 127.0.0.1 --port 2526"] {
        let stolen = format!("relay add main --replace {elsewhere} --tls none --credentials main");
        let stolen = Process::reveille_at(folder.path(), &admin, &stolen);
        assert!(stolen.code != Some(0) && stolen.stderr.contains("are for 127.0.0.1 port 2525 alone"), "{stolen:?}");
    }
    until("debug lines", || node.lines().iter().skip(before).any(|line| line["level"] == "DEBUG"));

    fs::write(&file, "[log]\nfilter = \"loud\"\n").expect("written");
    let before = node.hang_up();
    let error = node.says(before, "the configuration cannot be used, and nothing was changed");
    assert!(error["error"].as_str().is_some_and(|why| why.contains("'loud' is not a level")), "{error}");
    until("the metric says so", || failed(&http) == "1");
    let kept = Process::reveille_at(
        folder.path(),
        &admin,
        "relay add other --host 127.0.0.1 --port 2525 --credentials main --tls none",
    );
    assert_eq!(kept.code, Some(0), "{kept:?}");

    fs::write(&file, "[log]\nformat = \"json\"\n").expect("written");
    let before = node.hang_up();
    node.says(before, "the configuration was read again");
    until("the metric says so", || failed(&http) == "0");
}

//! Backups by real nodes.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::{Ended, Process, until};

const RECIPIENT: &str = "ann@example.net";

fn output(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

/// Runs a command that asks no node.
fn offline(folder: &Path, line: &str) -> Ended {
    Process::reveille_at(folder, "127.0.0.1:1", line)
}

/// A node with a target for backups, and a run whose only email waits for a relay that cannot be reached.
struct Former {
    folder: TempDir,
    target: PathBuf,
    node: Process,
}

impl Former {
    fn start() -> Former {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("backups");
        std::fs::create_dir(&target).expect("a target");
        let place = target.to_str().expect("a path").to_owned();
        let environment = [("REVEILLE__BACKUP__TARGET", place.as_str())];
        let node = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &environment);
        until("it leads", || node.reveille("schedule list").code == Some(0));
        // Nothing listens there.
        output(&node, "relay add main --host 127.0.0.1 --port 1 --tls none");
        let what = format!("--daily 09:00 --tz UTC --to {RECIPIENT} --sender b@example.net --subject s");
        output(&node, &format!("schedule create daily {what} --inline-text t"));
        output(&node, "schedule trigger daily");
        Former { folder, target, node }
    }

    fn backup(&self) -> String {
        let made = output(&self.node, "backup create -o name");
        made.trim().to_owned()
    }

    fn line(&self, command: &str) -> Ended {
        offline(self.folder.path(), &format!("{command} --target {}", self.target.display()))
    }

    /// Returns the files of the target in this folder.
    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.target.join(folder)).into_iter().flatten();
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

#[test]
fn backup_is_made_by_a_node_and_verified_without_one() {
    let former = Former::start();
    output(&former.node, "optout add early@example.net");
    let name = former.backup();
    let listed = former.line("backup list -o name").stdout;
    assert!(listed.lines().any(|line| line == name), "{name} in {listed}");
    let verified = former.line(&format!("backup verify {name}"));
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let pruned = former.line("backup prune --keep 1");
    assert_eq!(pruned.code, Some(0), "{pruned:?}");
    output(&former.node, "optout add late@example.net");
    let streamed = || {
        let is_there =
            |file: PathBuf| std::fs::read_to_string(file).is_ok_and(|text| text.contains("late@example.net"));
        former.files("optouts").into_iter().any(is_there)
    };
    until("the opt-out is at the target", streamed);

    let block = former.files("blocks").remove(0);
    let whole = std::fs::read(&block).expect("a block");
    std::fs::write(&block, &whole[..whole.len() / 2]).expect("it is cut");
    let refused = former.line(&format!("backup verify {name}"));
    let block = block.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(refused.code == Some(1) && refused.stderr.contains(block), "{refused:?}");
}

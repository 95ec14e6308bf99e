//! The binary against the real product: one round of `doubt`, with real processes and a real `kill -9`.
//!
//! Needs the `reveille` binary beside this one, as `cargo test --workspace` builds it; skipped where it is not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where journals lie, and how their folders begin.
const JOURNALS: &str = "/dev/shm";
const PREFIX: &str = "reveille-jepsen-";
/// Another run on the same machine may need so long to remove its own.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// Folders of journals that are there now, whoever made them.
fn journals() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(JOURNALS).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)).map(|entry| entry.path()).collect()
}

/// Does the command line of a process name this folder?
fn is_named(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(folder))
}

#[test]
fn a_kill_leaves_in_doubt_what_was_past_the_gate_and_nothing_of_it_stays_behind() {
    let jepsen = Path::new(env!("CARGO_BIN_EXE_reveille-jepsen"));
    if !jepsen.with_file_name("reveille").is_file() {
        eprintln!("skipped: no `reveille` beside {}; `cargo build -p reveille` makes it", jepsen.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let before = journals();
    let ended = Command::new(jepsen)
        .args(["doubt", "--rounds", "1", "--sessions", "2"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let (data, talk) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{data}\n{talk}");
    let report: serde_json::Value = serde_json::from_str(data.lines().last().unwrap()).unwrap();
    assert_eq!(report["valid"], true, "{report}");
    for none in ["lost", "duplicates", "unexplained"] {
        assert_eq!(report[none], 0, "{none}: {report}");
    }
    assert_eq!(report["bound_per_kill"], report["past_gate_per_kill"], "its journal is whole");
    let past_gate = report["past_gate_per_kill"][0].as_u64().unwrap();
    assert!((1..=2).contains(&past_gate), "{report}");
    assert!(report["in_doubt_per_kill"][0].as_u64().unwrap() <= past_gate, "{report}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its folders are gone");
    assert!(!is_named(folder.path()), "no node of it runs");
    // New ones that a process names are of another run.
    let until = Instant::now() + GONE_WITHIN;
    let mut left: Vec<PathBuf> = journals().difference(&before).cloned().collect();
    while left.iter().any(|folder| folder.exists() && !is_named(folder)) {
        assert!(Instant::now() < until, "its journals are gone: {left:?}");
        std::thread::sleep(Duration::from_millis(200));
        left.retain(|folder| folder.exists());
    }
}

#[test]
fn two_days_with_an_outage_and_a_kill_account_for_every_instant() {
    let jepsen = Path::new(env!("CARGO_BIN_EXE_reveille-jepsen"));
    if !jepsen.with_file_name("reveille").is_file() {
        eprintln!("skipped: no `reveille` beside {}; `cargo build -p reveille` makes it", jepsen.display());
        return;
    }
    let line = "calendar --schedules 48 --days 2 --outages 1 --kills 1";
    let ended = Command::new(jepsen).args(line.split(' ')).output().unwrap();
    let (data, talk) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{data}\n{talk}");
    let report: serde_json::Value = serde_json::from_str(data.lines().last().unwrap()).unwrap();
    let number = |field: &str| report[field].as_u64().unwrap();
    assert_eq!(number("fired") + number("explained"), number("expected"), "{report}");
    assert!(number("expected") >= 48 && number("duplicates") == 0 && number("lost") == 0, "{report}");
}

//! The binary against the real product, with real processes and a real `kill -9`.
//!
//! It needs the `reveille` binary beside this one, as `cargo test --workspace` builds it; else the tests are skipped.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Folder of the journals, and the beginning of their names.
const JOURNALS: &str = "/dev/shm";
const PREFIX: &str = "reveille-jepsen-";
/// Maximum time until another run on this machine has removed its journals.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// Returns the folders of journals of all runs.
fn journals() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(JOURNALS).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)).map(|entry| entry.path()).collect()
}

/// Returns true if the command line of a process names this folder.
fn is_named(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(folder))
}

/// The binary under test; `None` if the product's binary is not beside it.
fn jepsen() -> Option<&'static Path> {
    let jepsen = Path::new(env!("CARGO_BIN_EXE_reveille-jepsen"));
    let exists = jepsen.with_file_name("reveille").is_file();
    if !exists {
        let next = "`cargo build -p reveille` builds it";
        reveille_strict::skip(&format!("no `reveille` beside {}; {next}", jepsen.display()));
    }
    exists.then_some(jepsen)
}

#[test]
fn failover_is_measured_and_leaves_nothing_behind() {
    let Some(jepsen) = jepsen() else { return };
    let folder = tempfile::tempdir().unwrap();
    let before = journals();
    let line = "run --seed 1 --nemesis failover --seconds 8";
    let ended = Command::new(jepsen).args(line.split(' ')).env("TMPDIR", folder.path()).output().unwrap();
    let (data, messages) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{data}\n{messages}");
    let report: serde_json::Value = serde_json::from_str(data.lines().last().unwrap()).unwrap();
    assert_eq!(report["valid"], true, "{report}");
    for none in ["lost", "duplicates"] {
        assert_eq!(report[none], 0, "{none}: {report}");
    }
    assert_eq!(report["failovers"]["email_ms"]["count"], 1, "{report}");
    assert!(report["elections"].as_u64().unwrap() >= 1, "{report}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its folders are removed");
    assert!(!is_named(folder.path()), "none of its nodes runs");
    // New folders that a process names belong to another run.
    let until = Instant::now() + GONE_WITHIN;
    let mut left: Vec<PathBuf> = journals().difference(&before).cloned().collect();
    while left.iter().any(|folder| folder.exists() && !is_named(folder)) {
        assert!(Instant::now() < until, "its journals are left: {left:?}");
        std::thread::sleep(Duration::from_millis(200));
        left.retain(|folder| folder.exists());
    }
}

/// Starts a run, and interrupts it as soon as its nodes run. Returns its messages.
fn interrupt_run(jepsen: &Path, folder: &Path) -> String {
    let mut run = Command::new(jepsen)
        .args("run --seed 1 --seconds 60 --nemesis pause".split(' '))
        .env("TMPDIR", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(run.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("form a cluster") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "its nodes did not start: {said}");
    }
    assert!(is_named(folder), "its nodes run");
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let ended = run.wait().unwrap();
    assert!(!ended.success(), "{said}");
    said
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let Some(jepsen) = jepsen() else { return };
    let folder = tempfile::tempdir().unwrap();
    let said = interrupt_run(jepsen, folder.path());
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its folders are gone: {said}");
    assert!(!is_named(folder.path()), "no node of it runs: {said}");
}

#[test]
fn run_is_judged_by_history_and_removes_its_files() {
    let Some(jepsen) = jepsen() else { return };
    let folder = tempfile::tempdir().unwrap();
    let kept = tempfile::tempdir().unwrap();
    let (history, lines) = (kept.path().join("history.jsonl"), kept.path().join("runs.jsonl"));
    let ended = Command::new(jepsen)
        // None of these families needs root.
        .args("run --seed 2 --seconds 15 --schedules 30 --recipients 150 --nemesis kill,operator".split(' '))
        .args(["--in-doubt", "hold"])
        .arg("--history")
        .arg(&history)
        .arg("--append")
        .arg(&lines)
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let (data, messages) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{data}\n{messages}");
    let last = data.lines().last().unwrap();
    let report: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(report["valid"], true, "{report}");
    for none in ["lost", "duplicates"] {
        assert_eq!(report[none], 0, "{none}: {report}");
    }
    assert!(report["recipients"].as_u64().unwrap() >= 150, "{report}");
    assert!(report["faults"]["kill"]["installed"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(fs::read_to_string(lines).unwrap().trim_end(), last, "the appended line is the printed one");
    assert!(fs::read_to_string(history).unwrap().lines().last().unwrap().contains("ended"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its folders are removed: {messages}");
    assert!(!is_named(folder.path()), "no node of it runs: {messages}");
}

//! The binary against the real product: one round of `doubt`, with real processes and a real `kill -9`.
//!
//! Needs the `reveille` binary beside this one, as `cargo test --workspace` builds it; skipped where it is not.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
        reveille_strict::skip(&format!(
            "no `reveille` beside {}; `cargo build -p reveille` makes it",
            jepsen.display()
        ));
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
        reveille_strict::skip(&format!(
            "no `reveille` beside {}; `cargo build -p reveille` makes it",
            jepsen.display()
        ));
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

/// Starts a run, and ends it by this signal as soon as nodes of it run. Answers what it said.
fn break_a_run_off(jepsen: &Path, folder: &Path, signal: &str) -> String {
    let mut run = Command::new(jepsen)
        .args("run --seed 1 --seconds 60 --nemesis pause".split(' '))
        .env("TMPDIR", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut talk = BufReader::new(run.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("are one cluster") {
        assert!(talk.read_line(&mut said).unwrap() > 0, "its nodes never ran: {said}");
    }
    assert!(is_named(folder), "its nodes run");
    assert!(Command::new("kill").args([signal, &run.id().to_string()]).status().unwrap().success());
    let ended = run.wait().unwrap();
    assert!(!ended.success(), "{said}");
    said
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let jepsen = Path::new(env!("CARGO_BIN_EXE_reveille-jepsen"));
    if !jepsen.with_file_name("reveille").is_file() {
        reveille_strict::skip(&format!(
            "no `reveille` beside {}; `cargo build -p reveille` makes it",
            jepsen.display()
        ));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = break_a_run_off(jepsen, folder.path(), "-INT");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its folders are gone: {said}");
    assert!(!is_named(folder.path()), "no node of it runs: {said}");
}

#[test]
fn a_run_is_judged_by_its_history_and_sweeps_away_what_a_killed_one_left() {
    let jepsen = Path::new(env!("CARGO_BIN_EXE_reveille-jepsen"));
    if !jepsen.with_file_name("reveille").is_file() {
        reveille_strict::skip(&format!(
            "no `reveille` beside {}; `cargo build -p reveille` makes it",
            jepsen.display()
        ));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    break_a_run_off(jepsen, folder.path(), "-KILL");
    let kept = tempfile::tempdir().unwrap();
    let (history, lines) = (kept.path().join("history.jsonl"), kept.path().join("runs.jsonl"));
    let ended = Command::new(jepsen)
        // Nothing of this needs root, and nothing is better with it.
        .args("run --seed 2 --seconds 15 --schedules 30 --recipients 150 --nemesis kill,operator".split(' '))
        .args(["--in-doubt", "hold"])
        .arg("--history")
        .arg(&history)
        .arg("--append")
        .arg(&lines)
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let (data, talk) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{data}\n{talk}");
    let last = data.lines().last().unwrap();
    let report: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(report["valid"], true, "{report}");
    for none in ["lost", "duplicates", "unexplained"] {
        assert_eq!(report[none], 0, "{none}: {report}");
    }
    assert!(report["recipients"].as_u64().unwrap() >= 150, "{report}");
    assert!(report["faults"]["kill"]["installed"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(fs::read_to_string(lines).unwrap().trim_end(), last, "the line is appended as it was told");
    assert!(fs::read_to_string(history).unwrap().lines().last().unwrap().contains("ended"));
    // By this run, or by another one that began between the two: whoever begins sweeps.
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the folders of both are gone: {talk}");
    assert!(!is_named(folder.path()), "no node of either runs: {talk}");
}

#[test]
fn a_sink_alone_tells_what_it_accepted_when_it_is_told_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("accepts.jsonl");
    let mut sink = Command::new(env!("CARGO_BIN_EXE_reveille-jepsen"))
        .args(["sink", "--listen", "127.0.0.1:0", "--fault", "rcpt:450#1", "--record"])
        .arg(&record)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut talk = BufReader::new(sink.stderr.take().unwrap()).lines();
    let address = talk.next().unwrap().unwrap();
    let address = address.strip_prefix("listening on ").unwrap();
    let mut client = BufReader::new(std::net::TcpStream::connect(address).unwrap());
    let mail = ["HELO n", "MAIL FROM:<a@x.test>", "RCPT TO:<b@x.test>", "RCPT TO:<c@x.test>", "DATA", "\r\n.", "QUIT"];
    let mut codes = Vec::new();
    for words in [""].into_iter().chain(mail) {
        if !words.is_empty() {
            std::io::Write::write_all(client.get_mut(), format!("{words}\r\n").as_bytes()).unwrap();
        }
        let mut reply = String::new();
        client.read_line(&mut reply).unwrap();
        codes.push(reply.get(..3).unwrap_or_default().to_owned());
    }
    assert_eq!(codes, ["220", "250", "250", "450", "250", "354", "250", "221"]);
    let id = sink.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let ended = sink.wait_with_output().unwrap();
    assert!(ended.status.success());
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&report["accepted"], &report["faults"][0]["times"]), (&1.into(), &1.into()), "{report}");
    assert!(fs::read_to_string(record).unwrap().contains("c@x.test"));
}

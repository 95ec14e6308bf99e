//! The binary against the real product: one round of `doubt`, with real processes and a real `kill -9`.
//!
//! Needs the `reveille` binary beside this one, as `cargo test --workspace` builds it; skipped where it is not.

use std::path::Path;
use std::process::Command;

#[test]
fn a_kill_leaves_in_doubt_what_was_past_the_gate_and_nothing_of_it_stays_behind() {
    let jepsen = Path::new(env!("CARGO_BIN_EXE_reveille-jepsen"));
    if !jepsen.with_file_name("reveille").is_file() {
        eprintln!("skipped: no `reveille` beside {}; `cargo build -p reveille` makes it", jepsen.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ended = Command::new(jepsen)
        .args(["doubt", "--rounds", "1", "--sessions", "2"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let (data, talk) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{data}\n{talk}");
    let report: serde_json::Value = serde_json::from_str(data.lines().last().unwrap()).unwrap();
    assert_eq!((&report["valid"], &report["lost"], &report["duplicates"]), (&true.into(), &0.into(), &0.into()));
    let past_gate = report["past_gate_per_kill"][0].as_u64().unwrap();
    assert!((1..=2).contains(&past_gate), "{report}");
    assert!(report["in_doubt_per_kill"][0].as_u64().unwrap() <= past_gate, "{report}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "its folders are gone");
}

//! The simulation as a command: a seed is the same in two processes, and a handful of seeds hold.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    let simulate = Command::new(env!("CARGO_BIN_EXE_reveille-jepsen")).arg("simulate").args(arguments).output();
    simulate.expect("the binary runs")
}

fn summary(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(last).expect("one JSON object")
}

#[test]
fn seed_does_same_in_two_processes_and_another_one_does_not() {
    let hash = |seed: &str| {
        let output = simulate(&["--seeds", seed, "--minutes", "5"]);
        let summary = summary(&output);
        (summary["hash"].as_str().expect("a hash").to_owned(), summary["figures"].clone())
    };
    assert_eq!(hash("3"), hash("3"));
    assert_ne!(hash("3").0, hash("4").0);
}

#[test]
fn kept_history_is_judged_again_with_same_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let (history, trace) = (folder.path().join("seed.jsonl"), folder.path().join("seed.trace"));
    let path = |path: &std::path::Path| path.to_str().expect("a path").to_owned();
    let output = simulate(&["--seeds", "5", "--minutes", "5", "--history", &path(&history), "--trace", &path(&trace)]);
    let judged = Command::new(env!("CARGO_BIN_EXE_reveille-jepsen")).arg("check").arg(&history).output();
    let judged = judged.expect("the binary runs");
    assert_eq!(output.status.success(), judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    assert_eq!(summary(&output)["figures"]["accepted"], summary(&judged)["accepted"]);
    let trace = std::fs::read_to_string(trace).expect("a trace");
    let last = trace.lines().last().expect("a line");
    assert!(trace.ends_with('\n') && last.contains("crashes"), "the end is written: {last}");
}

#[test]
fn handful_of_seeds_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("simulations.jsonl");
    let file = file.to_str().expect("a path");
    let output = simulate(&["--seeds", "0..4", "--minutes", "8", "--append", file]);
    let summary = summary(&output);
    assert_eq!(
        summary,
        serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(file).expect("a file")).expect("one line")
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && summary["valid"] == true, "{summary}\n{said}");
    assert!(summary["figures"]["accepted"].as_u64() > Some(0), "mail flowed: {summary}");
    assert!(summary["faults"].as_object().is_some_and(|faults| faults.len() > 3), "much was broken: {summary}");
}

//! The configuration file without a node: written, checked, and shown with the origin of each value.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::terminal::{Ended, command, reveille, run};

fn written(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("reveille.toml");
    std::fs::write(&file, text).expect("written");
    file
}

async fn checked(text: &str) -> (Ended, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), text).display().to_string();
    (reveille(&format!("config check {file} -o json")).await, file)
}

#[tokio::test]
async fn sample_is_written_once_and_can_be_started_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("reveille.toml");
    let init = format!("config init {} -o json", file.display());
    let ended = reveille(&init).await;
    assert_eq!((ended.code, &ended.json()["file"]), (Some(0), &json!(file)), "{ended:?}");
    let sample = std::fs::read_to_string(&file).expect("written");
    assert_eq!(reveille("config init -").await.stdout, sample, "- prints the same");
    let checked = reveille(&format!("config check {} -o json", file.display())).await;
    assert_eq!(checked.json(), json!({"file": file, "valid": true, "node": "a"}));

    std::fs::write(&file, "mine").expect("written");
    let refused = reveille(&init).await;
    assert_eq!((refused.code, refused.error()["reason"].as_str()), (Some(2), Some("NOT_CONFIRMED")));
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "mine", "nothing was lost");
    assert_eq!(reveille(&format!("{init} --yes")).await.code, Some(0));
    assert_eq!(std::fs::read_to_string(&file).expect("read"), sample);
    let refused = reveille("config init /dev/null/reveille.toml -o json").await;
    assert_eq!((refused.code, refused.error()["field"].as_str()), (Some(2), Some("/dev/null/reveille.toml")));
}

#[tokio::test]
async fn check_names_the_place_the_nearest_key_and_the_next_step() {
    let (ended, file) = checked("name = \"a\"\n[raft]\n  heartbeat_mss = 5\n").await;
    let error = ended.error();
    assert_eq!((ended.code, error["field"].as_str()), (Some(2), Some(format!("{file}:3:3").as_str())));
    let message = error["message"].as_str().expect("words");
    assert!(message.starts_with("unknown key `heartbeat_mss`; did you mean `heartbeat_ms`?"), "{message}");
    assert!(error["next"].as_str().is_some_and(|next| next.contains("reveille config init")), "{error}");

    let (ended, file) = checked("name = \"a\"\ndata_dir = \"/d\"\n\nshutdown_seconds = 9999\n").await;
    let error = ended.error();
    assert_eq!((ended.code, error["field"].as_str()), (Some(2), Some(format!("{file}:4").as_str())));
    assert_eq!(error["message"], "shutdown_seconds: 9999 is out of range");
    assert_eq!(error["next"], "give a number from 10 to 3600");

    let (ended, _) = checked("name = \"a\"\n").await;
    assert_eq!((ended.code, ended.error()["field"].as_str()), (Some(2), Some("data_dir")));
    let ended = reveille("config check /nowhere/reveille.toml -o json").await;
    assert_eq!((ended.code, ended.error()["field"].as_str()), (Some(2), Some("/nowhere/reveille.toml")));
}

#[tokio::test]
async fn check_warns_of_a_data_folder_that_cannot_hold_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let plain = written(folder.path(), "");
    for (data_dir, why) in [
        ("/proc/x".to_owned(), "warning: nothing can be written in data_dir /proc: ".to_owned()),
        (format!("{}/x", plain.display()), format!("{} is not a folder", plain.display())),
        (format!("{}/data", folder.path().display()), String::new()),
    ] {
        let file = folder.path().join("checked.toml");
        std::fs::write(&file, format!("name = \"a\"\ndata_dir = {data_dir:?}\n")).expect("written");
        let ended = reveille(&format!("config check {}", file.display())).await;
        assert_eq!((ended.code, ended.stderr.contains("data_dir")), (Some(0), !why.is_empty()), "{ended:?}");
        assert!(ended.stderr.contains(&why), "{ended:?}");
    }
}

#[tokio::test]
async fn rules_that_cannot_be_used_are_refused_by_check_and_by_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (rules, data) = (folder.path().join("rules.toml"), folder.path().join("data"));
    let text = format!("name = \"a\"\ndata_dir = {data:?}\n\n[replies.ses]\nfile = {rules:?}\n");
    let file = written(folder.path(), &text).display().to_string();
    let check = format!("config check {file} -o json");
    let ended = reveille(&check).await;
    assert_eq!(
        (ended.code, ended.error()["field"].as_str()),
        (Some(2), Some(format!("{file}:5").as_str())),
        "{ended:?}"
    );

    std::fs::write(&rules, "[[rule]]\nclass = \"busy\"\n").expect("written");
    let why = format!("replies.ses.file: {}:2:9: unknown variant `busy`", rules.display());
    let error = reveille(&check).await.error();
    assert!(error["message"].as_str().is_some_and(|message| message.starts_with(&why)), "{error}");
    assert!(error["next"].as_str().is_some_and(|next| next.starts_with("correct that rule")), "{error}");
    let ended = reveille(&format!("start --config {file}")).await;
    assert!(ended.code != Some(0) && ended.stderr.contains(&why), "{ended:?}");

    std::fs::write(&rules, "[[rule]]\nclass = \"throttle\"\n").expect("written");
    assert_eq!(reveille(&check).await.code, Some(0));
}

#[tokio::test]
async fn effective_setting_is_shown_with_its_origin() {
    let folder = tempfile::tempdir().expect("a folder");
    let file =
        written(folder.path(), "name = \"a\"\ndata_dir = \"/d\"\n[raft]\nsnapshot_every = 700\n").display().to_string();
    let show = |more: &str| {
        let line = format!("config show --config {file} --http 127.0.0.1:9 {more}");
        let mut command = command(&line.split_whitespace().collect::<Vec<_>>());
        command.env("REVEILLE__NAME", "b");
        async move { run(&mut command).await }
    };
    let ended = show("-o json").await.json();
    let entries = ended.as_array().expect("a list");
    let origin = |key: &str| {
        let entry = entries.iter().find(|entry| entry["key"] == key).expect("a key");
        (entry["value"].clone(), entry["origin"].as_str().expect("a place").replace(&file, "FILE"))
    };
    assert_eq!(origin("name"), (json!("b"), "REVEILLE__NAME".into()));
    assert_eq!(origin("data_dir"), (json!("/d"), "FILE:2".into()));
    assert_eq!(origin("raft.snapshot_every"), (json!(700), "FILE:4".into()));
    assert_eq!(origin("http"), (json!("127.0.0.1:9"), "--http".into()));
    assert_eq!(origin("raft.election_min_ms"), (json!(250), "default".into()));

    let text = show("--origin").await.stdout;
    let line = text.lines().find(|line| line.starts_with("http = ")).expect("a line");
    assert!(line.starts_with("http = \"127.0.0.1:9\"") && line.ends_with("  # --http"), "{line}");
    let again = written(folder.path(), &show("").await.stdout);
    let ended = reveille(&format!("config show --config {}", again.display())).await;
    assert_eq!(ended.stdout, show("").await.stdout, "what is shown is a file that says the same");
    assert_eq!(reveille("config show -o json").await.error()["field"], "name");
}

#[tokio::test]
async fn wrong_variable_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), "name = \"a\"\ndata_dir = \"/d\"\n").display().to_string();
    let unknown = "environment variable REVEILLE__RAFT__SNAPSHOT_EVRY: unknown key `snapshot_evry`; did you mean \
        `snapshot_every`?";
    let not_utf8 = "environment variable REVEILLE__DATA_DIR: its value is not UTF-8";
    for (name, value, expected) in [
        ("REVEILLE__RAFT__SNAPSHOT_EVRY", b"700".as_slice(), unknown),
        ("REVEILLE__SHUTDOWN_SECONDS", b"5000".as_slice(), "shutdown_seconds: 5000 is out of range"),
        ("REVEILLE__DATA_DIR", b"/srv/caf\xe9".as_slice(), not_utf8),
    ] {
        let mut command = command(&["config", "check", &file, "-o", "json"]);
        let ended = run(command.env(name, OsStr::from_bytes(value))).await;
        let error = ended.error();
        assert_eq!(
            (ended.code, error["field"].as_str(), error["message"].as_str()),
            (Some(2), Some(name), Some(expected))
        );
    }
}

#[tokio::test]
async fn journal_on_a_disk_is_reported_before_the_start() {
    // The sources are normally on a disk. If they are in memory, the test expects no warning.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("not-there");
    let text = format!("name = \"a\"\ndata_dir = \"/d\"\njournal_dir = {:?}\n", folder.display().to_string());
    let (ended, _) = checked(&text).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let on_disk =
        !reveille_cluster::worker::journal::in_memory(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("a folder");
    assert_eq!(ended.stderr.contains("is on a disk, not in memory"), on_disk, "{}", ended.stderr);
    let (ended, _) = checked("name = \"a\"\ndata_dir = \"/d\"\n").await;
    assert_eq!(ended.stderr, "", "/dev/shm is memory");
}

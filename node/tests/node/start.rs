//! Errors that prevent a start name the flag or the file that fixes them.

use std::fs;
use std::net::TcpListener;

use crate::process::{Ended, Process, ports, start};

#[test]
fn port_that_is_taken_is_named_with_its_flag() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    for (place, flag) in ["--listen", "--peer-listen", "--http"].into_iter().enumerate() {
        let mut ports = ports();
        ports[place] = taken.clone();
        let flags = ["--listen", &ports[0], "--peer-listen", &ports[1], "--http", &ports[2]];
        let ended = Ended::from(start(folder.path(), "a", &flags).output().expect("it runs"));
        assert_eq!(ended.code, Some(1), "{flag}: {ended:?}");
        assert!(
            ended.stderr.contains(&taken) && ended.stderr.contains(&format!("choose another {flag}:")),
            "{ended:?}"
        );
    }
}

#[test]
fn folder_belongs_to_one_process_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let _first = Process::listening(folder.path(), "a");
    let flags = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let ended = Ended::from(start(folder.path(), "a", &flags).output().expect("it runs"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("is in use by another process: stop that one first"), "{ended:?}");
}

#[test]
fn system_error_is_printed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a"), "a file, no folder").expect("written");
    let flags = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let ended = Ended::from(start(folder.path(), "a", &flags).output().expect("it runs"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.stderr.matches("os error").count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("--data-dir"), "{ended:?}");
}

#[test]
fn mistyped_key_is_named_with_its_place_and_the_nearest() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("reveille.toml");
    fs::write(&file, "name = \"a\"\n[raft]\n  heartbeat_mss = 5\n").expect("written");
    let file = file.to_str().expect("text");
    let ended = Ended::from(start(folder.path(), "a", &["--config", file]).output().expect("it runs"));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let place = format!("{file}:3:3: unknown key `heartbeat_mss`; did you mean `heartbeat_ms`?");
    assert!(ended.stderr.contains(&place), "{ended:?}");
}

#[test]
fn unusable_folder_is_distinguished_from_fixable_one() {
    let flags = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("a");
    fs::create_dir(&data).expect("a folder");
    fs::write(data.join("node"), "what?").expect("written");
    let ended = Ended::from(start(folder.path(), "a", &flags).output().expect("it runs"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains(&data.join("node").display().to_string()), "{ended:?}");
    assert!(ended.stderr.contains("keep the folder for inspection, leave this node stopped"), "{ended:?}");
    assert!(!ended.stderr.contains("start it again") && !ended.stderr.contains("join as"), "{ended:?}");

    fs::remove_file(data.join("node")).expect("removed");
    fs::write(data.join("identity"), "reveille 1\nnode 5f3a09c1\n").expect("written");
    let ended = Ended::from(start(folder.path(), "a", &flags).output().expect("it runs"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let missing = format!("{} is missing", data.join("node").display());
    assert!(ended.stderr.contains(&missing), "{ended:?}");
    assert!(ended.stderr.contains("put back the data folder that this node ran with last"), "{ended:?}");
    assert!(!ended.stderr.contains("fix what it names"), "{ended:?}");

    fs::write(data.join("node"), "5f3a09c1\n").expect("written");
    fs::write(data.join("incarnation"), "1\n").expect("written");
    fs::write(data.join("identity"), "what?").expect("written");
    let ended = Ended::from(start(folder.path(), "a", &flags).output().expect("it runs"));
    assert!(ended.stderr.contains("identity is damaged"), "{ended:?}");
    assert!(ended.stderr.contains("put back the data folder that this node ran with last"), "{ended:?}");
}

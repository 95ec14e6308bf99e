//! Streams over HTTP whose node dies: the client must not take what came for the whole.

use std::fs;
use std::fs::File;
use std::path::PathBuf;
use std::process::Child;

use serde_json::{Value, json};

use crate::http_json::{Api, schedule};
use crate::process::until;

/// Number of recipients: far more than the buffers between node and client hold.
const RECIPIENTS: usize = 65_536;
/// Exit code of `curl` after its own timeout.
const TIMED_OUT: i32 = 28;

#[test]
fn stream_whose_node_dies_ends_in_an_error_at_its_client() {
    let mut api = Api::start();
    let rows: String = (0..RECIPIENTS).map(|number| format!("u{number}@example.com\n")).collect();
    let part = api.folder.path().join("part.csv");
    fs::write(&part, format!("email\n{rows}")).expect("written");
    let data = format!("@{}", part.display());
    let part = api.curl("POST", "/v1/audience-parts", &["-H", "Content-Type: text/csv", "--data-binary", &data]);
    let seal = json!({ "recipients": RECIPIENTS, "columns": [], "parts": [part.json()["part"]] }).to_string();
    let sealed = api.curl("POST", "/v1/audiences/all/seal", &["-d", &seal]);
    assert_eq!(sealed.status, 200, "{sealed:?}");
    let mut body: Value = serde_json::from_str(&schedule("news")).expect("JSON");
    body["audience"] = json!({ "sealed": "all" });
    let created = api.curl("POST", "/v1/schedules", &["-d", &body.to_string()]);
    assert_eq!(created.status, 200, "{created:?}");
    let opened = api.curl("POST", "/v1/schedules/news/trigger", &["-H", "Idempotency-Key: one"]);
    let run = opened.json()["run"]["run"].as_str().expect("a run").to_owned();

    let export = format!("/v1/runs/{run}/recipients/export");
    let streams = [
        (export.clone(), "application/jsonl"),
        (export, "text/csv"),
        (format!("/v1/runs/{run}/watch"), "application/jsonl"),
        ("/v1/events/watch".to_owned(), "application/jsonl"),
    ];
    let mut reading: Vec<(String, Child, PathBuf)> = Vec::new();
    for version in ["--http1.1", "--http2"] {
        for (place, (path, kind)) in streams.iter().enumerate() {
            let file = api.folder.path().join(format!("{place}{version}"));
            let accept = format!("Accept: {kind}");
            let slowly = [version, "--no-buffer", "--limit-rate", "100k", "-H", &accept];
            let mut command = api.client.command(&api.node.admin, "GET", path, &slowly);
            let child = command.stdout(File::create(&file).expect("a file")).spawn().expect("curl runs");
            reading.push((format!("{version} {path} {kind}"), child, file));
        }
    }
    let read = |file: &PathBuf| fs::read_to_string(file).expect("the file");
    let has_begun = |file: &PathBuf| read(file).split_once("\r\n\r\n").is_some_and(|(_, body)| !body.is_empty());
    until("all have begun", || reading.iter().all(|(_, _, file)| has_begun(file)));
    api.node.kill();
    for (what, mut child, file) in reading {
        let code = child.wait().expect("it ends").code();
        let text = read(&file);
        assert!(text.starts_with("HTTP/") && text.contains(" 200"), "{what}: {text:.200}");
        assert!(code.is_some_and(|code| code != 0 && code != TIMED_OUT), "{what}: curl ended with {code:?}");
        assert!(text.lines().count() < RECIPIENTS, "{what}: it was cut");
    }
}

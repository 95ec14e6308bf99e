//! Archived runs after a restart of the node.

use reveille_sink::{Sink, SinkOptions};

use crate::process::{Process, until};

fn output(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

/// Returns all objects of a list.
fn objects(node: &Process, line: &str) -> Vec<serde_json::Value> {
    let text = output(node, line);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error} in {text}"))
}

// The test thread blocks while it waits for the node, so the sink needs another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_runs_are_answered_as_before_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    assert_eq!(Process::init(folder.path(), "a", "--test-clock").code, Some(0));
    let mut node = Process::listening(folder.path(), "a");
    until("it leads", || node.reveille("schedule list").code == Some(0));
    let port = sink.handle().address().port();
    output(&node, &format!("relay add main --host 127.0.0.1 --port {port} --tls none"));
    let what = "--daily 09:00 --zone UTC --to ann@example.net --sender b@example.net --subject s";
    output(&node, &format!("schedule create daily {what} --inline-text t"));
    output(&node, "clock advance 48h");
    let runs = output(&node, "run list -o name");
    let runs: Vec<&str> = runs.lines().collect();
    assert_eq!(runs.len(), 2, "one run a day");
    let answers = |node: &Process| -> Vec<String> {
        let of_run = |run: &&str| {
            let explanation = output(node, &format!("explain {run} ann@example.net -o json"));
            [output(node, &format!("run show {run} -o json")), explanation]
        };
        runs.iter().flat_map(of_run).collect()
    };
    let before = answers(&node);
    let listed = objects(&node, "run list -o json");
    let history = objects(&node, "schedule history daily -o json");

    output(&node, "clock advance 96h");
    let is_archived = |run: &str| node.reveille(&format!("run pause {run}")).stderr.contains("in the archive");
    until("they are archived", || runs.iter().all(|run| is_archived(run)));
    assert_eq!(answers(&node), before);
    node.kill();

    let node = Process::listening(folder.path(), "a");
    until("it leads", || node.reveille("schedule list").code == Some(0));
    assert_eq!(answers(&node), before);
    let all = objects(&node, "run list -o json");
    assert_eq!(all.len(), 6);
    assert_eq!(all[4..], listed);
    let all = objects(&node, "schedule history daily -o json");
    assert_eq!(all.len(), 6);
    assert_eq!(all[4..], history);
    sink.stop().await;
}

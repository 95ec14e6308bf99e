//! A reader that follows the events of a cluster whose leader is killed again and again, and that is killed itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use reveille_sink::{Sink, SinkOptions};
use serde_json::Value;

use crate::process::{Process, STEP_TIMEOUT, client, until};

/// Recipients of the large run, and emails a second on all nodes together.
const RECIPIENTS: usize = 3_000;
const RATE: usize = 60;
const KILLS: usize = 3;
/// It opens, its recipient is sent to, and it is finished. A relay that refuses or breaks off makes other ones, as
/// many.
const EVENTS_OF_SMALL_RUN: usize = 3;

/// `reveille events --follow`, started again after its last cursor when it was killed.
struct Reader {
    folder: PathBuf,
    endpoints: String,
    child: Child,
    lines: Receiver<String>,
    events: Vec<Value>,
}

impl Reader {
    fn new(folder: PathBuf, endpoints: String) -> Reader {
        let (child, lines) = Reader::start(&folder, &endpoints, "");
        Reader { folder, endpoints, child, lines, events: Vec::new() }
    }

    fn start(folder: &std::path::Path, endpoints: &str, after: &str) -> (Child, Receiver<String>) {
        let mut command = client(folder, endpoints);
        command.args(["events", "--follow", "--quiet", "-o", "json"]);
        if !after.is_empty() {
            command.args(["--after", after]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        (child, lines)
    }

    /// Takes what it has printed by now.
    fn take(&mut self) {
        loop {
            match self.lines.recv_timeout(Duration::from_millis(10)) {
                // The last line of a killed process may be torn.
                Ok(line) => self.events.extend(serde_json::from_str::<Value>(&line)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Kills the reader, and starts another one after the last event that was read.
    fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        while let Ok(line) = self.lines.recv() {
            self.events.extend(serde_json::from_str::<Value>(&line));
        }
        let last = self.events.last().map(|event| text(event, "cursor").to_owned()).unwrap_or_default();
        (self.child, self.lines) = Reader::start(&self.folder, &self.endpoints, &last);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text<'e>(event: &'e Value, field: &str) -> &'e str {
    event[field].as_str().unwrap_or_default()
}

/// Returns the numbers in `0-511,600`.
fn numbers(ranges: &str) -> impl Iterator<Item = u32> + '_ {
    let number = |text: &str| text.parse::<u32>().expect("a number");
    ranges.split(',').filter(|range| !range.is_empty()).flat_map(move |range| match range.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(range)..=number(range),
    })
}

/// Returns the place of a cursor in the order of events.
fn place(event: &Value) -> (u64, u32) {
    let (index, place) = text(event, "cursor").split_once('.').unwrap_or_else(|| panic!("{event}"));
    (index.parse().expect("an index"), place.parse().expect("a place"))
}

/// Returns where the events differ from the runs: each run opened once, and its recipients have the states of their
/// last events.
fn difference(events: &[Value], runs: &[Value]) -> Option<String> {
    let mut states: BTreeMap<(&str, u32), &str> = BTreeMap::new();
    let mut opened = BTreeSet::new();
    for event in events {
        let run = text(event, "run");
        if text(event, "type") == "EVENT_TYPE_RUN_OPENED" {
            assert!(opened.insert(run), "{event}");
        }
        let Some(state) = text(event, "type").strip_prefix("EVENT_TYPE_RECIPIENTS_") else { continue };
        let read: Vec<u32> = numbers(text(event, "numbers")).collect();
        assert_eq!(event["count"], read.len(), "{event}");
        for number in read {
            assert_ne!(states.insert((run, number), state), Some(state), "{event}: twice");
        }
    }
    let known: BTreeSet<&str> = runs.iter().map(|run| text(run, "run")).collect();
    if opened != known || runs.len() != 1 + 2 * KILLS {
        return Some(format!("{opened:?} opened, and there are {known:?}"));
    }
    runs.iter().find_map(|run| {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, state) in states.iter().filter(|((of, _), _)| *of == text(run, "run")) {
            *counts.entry(state).or_default() += 1;
        }
        let differs = |(state, count): (&String, &Value)| {
            let name = if state == "inDoubt" { "IN_DOUBT".to_owned() } else { state.to_uppercase() };
            let reported = counts.get(name.as_str()).copied().unwrap_or_default();
            (*count != reported && state != "claimed").then(|| format!("{reported} {state} of {run}"))
        };
        run["counts"].as_object().expect("counts").iter().find_map(differs)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_misses_nothing_and_reads_nothing_twice_across_three_killed_leaders() {
    const NAMES: [&str; 3] = ["one", "two", "three"];
    let folder = tempfile::tempdir().expect("a folder");
    let faults = "rcpt:550=5.1.1 no such user@0.02,after-commit:close@0.01".parse().expect("a fault plan");
    let sink = Sink::start(SinkOptions { faults, ..SinkOptions::default() }).expect("a sink");
    let mut nodes = Process::cluster(folder.path(), NAMES, &[]);
    let endpoints = nodes.iter().map(|node| node.admin.as_str()).collect::<Vec<_>>().join(",");
    let ask = |line: &str| {
        let mut answer = None;
        until(line, || {
            let ended = Process::reveille_at(folder.path(), &endpoints, line);
            let is_done = ended.code == Some(0);
            answer = Some(ended);
            is_done
        });
        answer.expect("an answer").stdout
    };
    let port = sink.handle().address().port();
    ask(&format!("relay add main --host 127.0.0.1 --port {port} --tls none --rate-per-second {RATE}"));
    let people = folder.path().join("people.csv");
    let rows: String = (0..RECIPIENTS).map(|number| format!("u{number}@example.net\n")).collect();
    fs::write(&people, format!("email\n{rows}")).expect("written");
    let create =
        "--at 2040-01-01T00:00:00Z --zone UTC --overlap allow --in-doubt hold --sender a@example.net --subject s";
    ask(&format!("schedule create large {create} --inline-text t --recipients {}", people.display()));
    ask(&format!("schedule create small {create} --inline-text t --to ann@example.net"));
    let mut reader = Reader::new(folder.path().to_owned(), endpoints.clone());
    ask("schedule trigger large --request-id once");

    for kill in 0..KILLS {
        ask(&format!("schedule trigger small --request-id before-{kill}"));
        let before = reader.events.len();
        until("more events", || {
            reader.take();
            reader.events.len() >= before + EVENTS_OF_SMALL_RUN
        });
        let leader = Process::leader(&nodes, NAMES);
        nodes[leader].kill();
        if kill == 1 {
            reader.kill();
        }
        ask(&format!("schedule trigger small --request-id after-{kill}"));
        nodes[leader] = nodes[leader].again(folder.path(), NAMES[leader]);
        until("it is ready", || nodes[leader].get("/readyz").starts_with("HTTP/1.1 200 "));
    }
    // A doubt may still be resolved by a journal, so the state and the events are read until they agree.
    let end = Instant::now() + STEP_TIMEOUT;
    loop {
        reader.take();
        let runs: Vec<Value> = serde_json::from_str(&ask("run list -o json")).expect("runs");
        let is_over = runs.iter().all(|run| run["state"] == "RUN_STATE_FINISHED");
        match difference(&reader.events, &runs) {
            None if is_over => break,
            difference => assert!(Instant::now() < end, "finished: {is_over}; {difference:?}"),
        }
    }
    // It read what a reader from the beginning reads now, each event once, in order.
    let whole: Vec<Value> = ask("events --limit 1000000 -o json")
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    let through = place(reader.events.last().expect("an event"));
    let whole: Vec<Value> = whole.into_iter().filter(|event| place(event) <= through).collect();
    assert!(reader.events.windows(2).all(|two| place(&two[0]) < place(&two[1])), "in order, and none twice");
    assert!(reader.events == whole, "{} events, and {} in the whole", reader.events.len(), whole.len());

    sink.stop().await;
}

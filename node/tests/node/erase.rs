//! A person is erased: afterwards no file of any node has the address (P15).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use reveille_sink::{Sink, SinkOptions};
use serde_json::Value;

use crate::process::{Process, until};

const CANARY: &str = "Canary.Person@erase.example";
/// Pieces of the address and of a value, in lower case. No file may have one of them.
const PIECES: [&[u8]; 2] = [b"canary.person", b"canaria"];
const NODES: [&str; 3] = ["one", "two", "three"];

fn output(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

fn objects(node: &Process, line: &str) -> Vec<Value> {
    let text = output(node, line);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error} in {text}"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.flat_map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { vec![entry.path()] }).collect()
}

fn has_piece(bytes: &[u8]) -> bool {
    let lower = bytes.to_ascii_lowercase();
    PIECES.iter().any(|piece| lower.windows(piece.len()).any(|found| found == *piece))
}

/// Returns the files in a folder that have a piece of the person. Blocks are also read as their content.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let has = |path: &PathBuf| {
        // It may have been removed since it was listed.
        let bytes = fs::read(path).unwrap_or_default();
        let content = zstd::stream::decode_all(bytes.as_slice()).unwrap_or_default();
        has_piece(&bytes) || has_piece(&content)
    };
    files(folder).into_iter().filter(has).collect()
}

/// Lets the parts of audiences be older than the time for which an unneeded one is kept.
fn age_parts(folder: &Path) {
    for part in NODES.iter().flat_map(|name| files(&folder.join(name).join("parts"))) {
        let long_ago = SystemTime::now() - Duration::from_secs(9 * 3_600);
        File::options().append(true).open(&part).and_then(|file| file.set_modified(long_ago)).expect("its time is set");
    }
}

fn to_canary(sink: &Sink) -> usize {
    sink.handle().find(|email| email.recipient.eq_ignore_ascii_case(CANARY)).len()
}

// The test thread blocks while it waits for the nodes, so the sink needs another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_address_is_in_no_file_of_any_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let sink = Sink::start(SinkOptions::default()).expect("a sink");
    assert_eq!(Process::init(folder, "one", "--test-clock").code, Some(0));
    let [node, two, mut three] = Process::cluster(folder, NODES, &[("REVEILLE__RAFT__SNAPSHOT_EVERY", "100")]);
    let port = sink.handle().address().port();
    output(&node, &format!("relay add main --host 127.0.0.1 --port {port} --tls none"));

    // The person is in a schedule, in one whose list goes to the archive, in runs, and in a sealed audience.
    let lists = tempfile::tempdir().expect("a folder");
    let list = |name: &str, other: &str| {
        let path = lists.path().join(name);
        fs::write(&path, format!("email,name\n{CANARY},Canaria\n{other}@erase.example,Other\n")).expect("a list");
        path.display().to_string()
    };
    let (kept, gone) = (list("kept.csv", "bob"), list("gone.csv", "carol"));
    let what = "--daily 09:00 --zone UTC --sender b@example.net --subject s --inline-text t";
    output(&node, &format!("schedule create kept {what} --recipients {kept}"));
    output(&node, &format!("schedule create gone {what} --recipients {gone}"));
    // Contents to the person alone, which have the name: of messages and of schedules.
    let own = |subject: &str| {
        let texts = "--variable name=Canaria --inline-text Canaria,{{name}} --inline-html <p>Canaria</p>";
        format!("--to {CANARY} --sender b@example.net --reply-to canary.person@example.net --subject {subject} {texts}")
    };
    let daily = "--daily 09:00 --zone UTC --min-gap 1ms";
    output(&node, &format!("message send early {}", own("Canaria-1")));
    output(&node, &format!("schedule create own {daily} {}", own("Canaria-2")));
    output(&node, &format!("schedule create own-gone {daily} {}", own("Canaria-3")));
    output(&node, "clock advance 24h");
    // The two runs leave with one content, which is then in the state for the archive only.
    output(&node, "schedule trigger own-gone");
    until("all are sent", || sink.handle().accepted_count() == 8);
    output(&node, "schedule delete gone --yes");
    output(&node, "schedule delete own-gone --yes");
    output(&node, &format!("audience import readers {kept}"));
    let campaign = "--audience readers --at 2090-03-01T09:00:00Z --zone UTC --sender b@example.net --subject s";
    output(&node, &format!("campaign create spring {campaign} --inline-text t"));
    output(&node, "campaign launch spring --yes");
    output(&node, "clock advance 96h");
    until("four more days are sent", || sink.handle().accepted_count() == 20);
    let find = format!("recipient find {CANARY} -o json");
    let are_archived = |places: &[Value]| {
        let of = |name: &str| {
            let is_of = |one: &&Value| one["schedule"].as_str().unwrap_or_default() == name && one["archived"] == true;
            places.iter().filter(is_of).count()
        };
        ["gone", "own-gone", ""].map(of) == [1, 2, 1]
    };
    until("runs are archived", || are_archived(&objects(&two, &find)));
    output(&node, &format!("message send late {}", own("Canaria-4")));
    until("it is sent", || sink.handle().accepted_count() == 21);
    let of_kind = |kind: &str| {
        let kind = format!("PLACE_KIND_{kind}");
        objects(&two, &find).iter().filter(|place| place["kind"] == *kind).count()
    };
    assert_eq!(["SCHEDULE", "AUDIENCE", "OPT_OUT"].map(of_kind), [3, 1, 0]);
    let exported = output(&two, &format!("recipient export {CANARY}"));
    let sent =
        exported.lines().filter(|line| line.contains("\"RECIPIENT_STATE_SENT\"") && line.contains("\"Canaria\""));
    assert_eq!(sent.count(), of_kind("RUN"), "each run has its history: {exported}");
    let mut others = 0;
    let all_have = |of: &str| NODES.iter().all(|name| !traces(&folder.join(name).join(of)).is_empty());
    until("each node has the address in snapshots and parts", || {
        others += 1;
        output(&node, &format!("optout add other{others}@erase.example"));
        all_have("snapshots") && all_have("parts")
    });
    output(&node, &format!("schedule create late {what} --recipients {kept}"));
    let due = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(120 + 20);
    output(&node, &format!("message send waits --at {due} {}", own("Canaria-5")));
    until("each node has the address in its log", || all_have("wal"));

    age_parts(folder);
    let before = to_canary(&sink);
    let erased = output(&two, &format!("recipient erase {CANARY} --yes -o json"));
    let erased: Value = serde_json::from_str(&erased).expect("json");
    assert!(erased["lists"].as_u64() >= Some(2) && erased["blocks"].as_u64() >= Some(1), "{erased}");
    let left = objects(&node, &find);
    assert!(left.len() == 1 && left[0]["kind"] == "PLACE_KIND_OPT_OUT", "{left:?}");
    assert!(output(&node, &format!("optout check {CANARY}")).contains("yes"));
    assert!(!output(&node, "optout list --limit 1000 -o name").contains('#'), "no address is left to show");
    until("no file has it", || {
        age_parts(folder);
        NODES.iter().chain(&["journal"]).all(|name| traces(&folder.join(name)).is_empty())
    });
    three.kill();
    let three = three.again(folder, "three");
    until("it is back", || three.reveille("schedule list").code == Some(0));
    assert_eq!(traces(&folder.join("three")), Vec::<PathBuf>::new());

    // The others of the lists get their emails, and the person gets none, also by the same list again.
    let accepted = sink.handle().accepted_count();
    output(&node, "clock advance 24h");
    until("the other is sent", || sink.handle().accepted_count() > accepted);
    output(&node, &format!("schedule create again {what} --recipients {kept}"));
    let run = output(&node, "schedule trigger again -o name");
    let shown = || output(&node, &format!("run show {} -o json", run.lines().next().unwrap_or_default()));
    until("it is over", || shown().contains("\"sent\": 1") && shown().contains("\"suppressed\": 1"));
    let message = |key: &str| output(&node, &format!("message show {key} -o json"));
    until("what waited is over", || message("waits").contains("\"suppressed\": 1"));
    assert!(message("late").contains("\"sent\": 1"), "{}", message("late"));
    let repeat = node.reveille(&format!("message send late {}", own("Canaria-4")));
    assert!(repeat.code == Some(0) && repeat.stderr.contains("nothing more is sent"), "{repeat:?}");
    assert_eq!(to_canary(&sink), before);
    assert_eq!(node.reveille("campaign status spring").code, Some(0));
    sink.stop().await;
}

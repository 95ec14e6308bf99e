//! What exists, printed as a document, is what was asked for; and it makes the same again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::process::{Ended, Process, until};

/// Every key of a schedule's document with values that are no default; a new flag of `schedule create` wants a line
/// here. Schedules take the values in turn.
const KEYS: &[(&str, &[&str])] = &[
    ("start", &["2030-01-01T00:00:00Z"]),
    ("end", &["2031-06-30T12:00:00Z"]),
    ("max_runs", &["7"]),
    ("pool", &["bulk"]),
    ("priority", &["9", "200"]),
    ("paused", &["true"]),
    ("bulk", &["true"]),
    ("reason", &["\"later: it is not ready\""]),
    ("dst_gap", &["shift", "skip"]),
    ("dst_overlap", &["second", "both"]),
    ("catch_up", &["all", "none"]),
    ("start_within", &["1h 30m", "3d"]),
    ("finish_by", &["1d 12h", "4d"]),
    ("overlap", &["skip", "allow", "cancel_other"]),
    // The third one is daily, and has a gap if nothing is said.
    ("min_gap", &["18h", "3d", "none"]),
    ("jitter", &["10m", "1h 30m"]),
    ("in_doubt", &["resend", "assume_sent"]),
    ("max_attempts", &["9", "1"]),
    ("retention", &["40d", "200d"]),
    ("sender", &["News <news@example.com>"]),
    ("reply_to", &["answers@example.com"]),
    ("subject", &["\"Good morning: {{ name }}\""]),
];
/// When, and in which zone.
const WHEN: &[&[(&str, &str)]] = &[
    &[("cron", "0 2 * * mon-fri"), ("tz", "America/New_York")],
    &[("cron", "H H(0-7) * * *"), ("tz", "Europe/Berlin")],
    &[("daily", "\"02:30\""), ("days", "sat,sun"), ("tz", "Australia/Lord_Howe")],
    &[("every", "1h 30m"), ("anchor", "2029-12-31T23:45:00Z"), ("tz", "UTC")],
    &[("at", "2030-02-03T04:05:06Z"), ("tz", "Asia/Kathmandu")],
];
/// What takes more than a line.
const CONTENT: &str = "\
inline_text: |
  Good morning {{ name }},
    it is: {{ weather }}
inline_html: <p>Good morning, {{ name }}</p>
var:
  weather: \"rain # and wind\"
  team: \"7\"
header:
  List-Id: <morning.example.com>
labels:
  team: news
  tier: \"\"
recipients:
  - email: ann@example.com
    name: Ann
  - email: bob@example.com
    name: \"Bob: the other one\"
";
/// Keys that `schedule create` has as flags, and that are above, or stand for what is above, or make no schedule.
const OTHERWISE: &[&str] = &[
    "text",
    "html",
    "to",
    "recipients",
    "skip_bad_rows",
    "dry_run",
    "tenant",
    "help",
    "label",
    // By a test of its own: there has to be one.
    "audience",
];
const RELAY: &str = "\
kind: relay
name: main
host: mx.example.org
port: 587
tls: starttls
ca: /etc/reveille/ca.pem
tls_name: other.example.org
auth: file:/etc/reveille/main
pool: bulk
rate: 12.5
late_rate: 2
sessions: 3
weight: 4
";

/// The lines of a document, but for what takes more than one.
fn lines(number: usize) -> Vec<String> {
    let keys = KEYS.iter().map(|(key, values)| (*key, values[number % values.len()]));
    let when = WHEN[number % WHEN.len()].iter().copied();
    keys.chain(when).map(|(key, value)| format!("{key}: {value}")).collect()
}

fn outcomes(ended: &Ended) -> BTreeMap<String, String> {
    let all: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let all = all.as_array().unwrap_or_else(|| panic!("{ended:?}"));
    all.iter().map(|one| (text(&one["name"]), text(&one["outcome"]))).collect()
}

/// Applies a file, and expects one outcome of all its documents.
fn applied(node: &Process, file: &Path, outcome: &str) {
    let ended = node.reveille(&format!("apply -f {} -o json", file.display()));
    let outcomes = outcomes(&ended);
    assert!(outcomes.values().all(|one| one == outcome), "{outcome}: {ended:?}");
    assert!(ended.code == Some(0) && !outcomes.is_empty(), "{ended:?}");
}

fn shown(node: &Process, line: &str) -> String {
    let ended = node.reveille(line);
    assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    ended.stdout
}

#[test]
fn what_is_printed_as_a_document_makes_the_same_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Process::listening(folder.path(), "one");
    until("a cluster", || node.reveille("cluster init").code == Some(0));
    until("a leader", || node.reveille("schedule list").code == Some(0));
    let write = |name: &str, documents: &[String]| {
        let file = folder.path().join(name);
        fs::write(&file, documents.join("---\n")).expect("written");
        file
    };

    let most = KEYS.iter().map(|(_, values)| values.len()).max().unwrap_or_default();
    let names: Vec<String> = (0..most.max(WHEN.len())).map(|number| format!("news-{number}")).collect();
    let asked = names.iter().enumerate().map(|(number, name)| {
        format!("kind: schedule\nname: {name}\ntenant: acme\n{}\n{CONTENT}", lines(number).join("\n"))
    });
    let asked: Vec<String> = asked.chain([RELAY.to_owned()]).collect();
    applied(&node, &write("asked.yaml", &asked), "created");

    let printed = || -> Vec<String> {
        let schedules = names.iter().map(|name| format!("schedule show {name} --tenant acme --manifest"));
        schedules.chain(["relay show main --manifest".to_owned()]).map(|line| shown(&node, &line)).collect()
    };
    let first = printed();
    // What needs quotes is the printer's to know.
    let bare = |text: &str| text.replace('"', "");
    for (asked, first) in asked.iter().zip(&first) {
        for line in bare(asked).lines() {
            assert!(
                bare(first).lines().any(|one| one == line),
                "`{line}` was asked for, and this is printed:\n{first}"
            );
        }
    }
    let file = write("printed.yaml", &first);
    applied(&node, &file, "unchanged");

    for name in &names {
        shown(&node, &format!("schedule delete {name} --tenant acme --yes"));
    }
    shown(&node, "relay remove main --yes");
    applied(&node, &file, "created");
    assert_eq!(printed(), first);
}

#[test]
fn a_sealed_audience_goes_there_and_back_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Process::listening(folder.path(), "one");
    until("a cluster", || node.reveille("cluster init").code == Some(0));
    until("a leader", || node.reveille("schedule list").code == Some(0));
    shown(&node, "audience generate everybody --recipients 3 --column name");
    let content = CONTENT.split("recipients:").next().unwrap_or_default();
    let asked = format!(
        "kind: schedule\nname: news\nat: 2030-01-01T00:00:00Z\ntz: UTC\nsender: news@example.com\nsubject: News\n\
         audience: everybody\n{content}"
    );
    let file = folder.path().join("asked.yaml");
    fs::write(&file, asked).expect("written");
    applied(&node, &file, "created");
    let printed = shown(&node, "schedule show news --manifest");
    assert!(printed.lines().any(|line| line == "audience: everybody"), "{printed}");
    fs::write(&file, &printed).expect("written");
    applied(&node, &file, "unchanged");
}

#[test]
fn every_flag_of_a_schedule_goes_there_and_back() {
    let help = Process::reveille_at("127.0.0.1:1", "schedule create --help").stdout;
    let own = help.split("Global options:").next().unwrap_or_default();
    let words = own.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next());
    let flags: BTreeSet<String> = words.map(|flag| flag.replace('-', "_")).collect();
    let mut tried: BTreeSet<String> = KEYS.iter().map(|(key, _)| (*key).to_owned()).collect();
    tried.extend(WHEN.concat().iter().map(|(key, _)| (*key).to_owned()));
    let content = CONTENT.lines().filter(|line| !line.starts_with(' '));
    tried.extend(content.filter_map(|line| line.split(':').next()).map(str::to_owned));
    tried.extend(OTHERWISE.iter().map(|key| (*key).to_owned()));
    assert_eq!(flags.difference(&tried).collect::<Vec<_>>(), Vec::<&String>::new(), "not tried; add it to KEYS");
}

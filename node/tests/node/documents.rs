//! Objects printed as documents contain what was requested, and applying them again changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::process::{Ended, Process, until};

/// Every key of a schedule's document, with values that differ from the defaults. A new flag of `schedule create` needs
/// a line here. Schedules use the values in turn.
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
    // The third schedule is daily, so it has a gap by default.
    ("min_gap", &["18h", "3d", "none"]),
    ("jitter", &["10m", "1h 30m"]),
    ("in_doubt", &["resend", "assume_sent"]),
    ("max_attempts", &["9", "1"]),
    ("retention", &["40d", "200d"]),
    ("sender", &["News <news@example.com>"]),
    ("reply_to", &["answers@example.com"]),
    ("subject", &["\"Good morning: {{ name }}\""]),
];
/// Patterns and zones.
const WHEN: &[&[(&str, &str)]] = &[
    &[("cron", "0 2 * * mon-fri"), ("tz", "America/New_York")],
    &[("cron", "H H(0-7) * * *"), ("tz", "Europe/Berlin")],
    &[("daily", "\"02:30\""), ("days", "sat,sun"), ("tz", "Australia/Lord_Howe")],
    &[("every", "1h 30m"), ("anchor", "2029-12-31T23:45:00Z"), ("tz", "UTC")],
    &[("at", "2030-02-03T04:05:06Z"), ("tz", "Asia/Kathmandu")],
];
/// Keys with more than one line.
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
/// Flags of `schedule create` that are not tested as keys: they stand for keys above, or create no schedule.
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
    // Tested separately, because the audience or the template must exist.
    "audience",
    "template",
];
const RELAY: &str = "\
kind: relay
name: main
host: mx.example.org
port: 587
tls: starttls
ca: /etc/reveille/ca.pem
tls_name: other.example.org
credentials: main
pool: bulk
rate: 12.5
late_rate: 2
sessions: 3
weight: 4
";

/// Keys of a campaign other than its content.
const CAMPAIGN: &str = "\
audience: subscribers
at: 2030-02-03T04:05:06Z
tz: Asia/Kathmandu
pool: bulk
priority: 9
canary: 2.5
canary_hold: 7
start_within: 1h 30m
finish_by: 1d 12h
in_doubt: resend
max_attempts: 9
retention: 40d
sender: News <news@example.com>
reply_to: answers@example.com
subject: \"Good morning: {{ name }}\"
bulk: true
";

/// Returns the lines of a document, except for keys with more than one line.
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

/// Applies a file, and checks that all its documents have this outcome.
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

fn started() -> (TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    // The credentials that the relay in the documents refers to.
    let credentials = [
        ("REVEILLE__CREDENTIALS__MAIN__HOST", "mx.example.org"),
        ("REVEILLE__CREDENTIALS__MAIN__PORT", "587"),
        ("REVEILLE__CREDENTIALS__MAIN__SECRET", "env:LOGIN"),
    ];
    let node = Process::listening_by(folder.path(), "one", ["127.0.0.1:0"; 3], &credentials);
    until("a leader", || node.reveille("schedule list").code == Some(0));
    (folder, node)
}

/// Checks that each requested line is printed. Quotes are ignored, because the printer decides which values need them.
fn all_of_it_is_printed(asked: &str, printed: &str) {
    let bare = |text: &str| text.replace('"', "");
    for line in bare(asked).lines() {
        assert!(
            bare(printed).lines().any(|one| one == line),
            "`{line}` was asked for, and this is printed:\n{printed}"
        );
    }
}

#[test]
fn printed_document_makes_an_equal_object() {
    let (folder, node) = started();
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
    asked.iter().zip(&first).for_each(|(asked, first)| all_of_it_is_printed(asked, first));
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
fn sealed_audience_goes_there_and_back_by_its_name() {
    let (folder, node) = started();
    shown(&node, "audience generate subscribers --recipients 3 --column name");
    let content = CONTENT.split("recipients:").next().unwrap_or_default();
    let asked = format!(
        "kind: schedule\nname: news\nat: 2030-01-01T00:00:00Z\ntz: UTC\nsender: news@example.com\nsubject: News\n\
         audience: subscribers\n{content}"
    );
    let file = folder.path().join("asked.yaml");
    fs::write(&file, asked).expect("written");
    applied(&node, &file, "created");
    let printed = shown(&node, "schedule show news --manifest");
    assert!(printed.lines().any(|line| line == "audience: subscribers"), "{printed}");
    fs::write(&file, &printed).expect("written");
    applied(&node, &file, "unchanged");
}

#[test]
fn campaign_goes_there_and_back() {
    let (folder, node) = started();
    shown(&node, "audience generate subscribers --recipients 3 --column name");
    let content = CONTENT.split("recipients:").next().unwrap_or_default();
    let all = format!("kind: campaign\nname: all\ntenant: default\n{CAMPAIGN}{content}");
    // Without policies in the document, the deadline stays open: it is forecast at the launch.
    let least = "kind: campaign\nname: least\naudience: subscribers\nat: 2030-02-03T04:05:06Z\nsender: a@example.com\n\
                 subject: s\ninline_text: t\n";
    let file = folder.path().join("campaigns.yaml");
    fs::write(&file, [&all, least].join("---\n")).expect("written");
    applied(&node, &file, "created");

    let printed = || ["all", "least"].map(|name| shown(&node, &format!("campaign status {name} --manifest")));
    let first = printed();
    all_of_it_is_printed(&all, &first[0]);
    assert!(!first[1].contains("finish_by"), "{}", first[1]);
    fs::write(&file, first.join("---\n")).expect("written");
    applied(&node, &file, "unchanged");
    for name in ["all", "least"] {
        shown(&node, &format!("campaign delete {name} --yes"));
    }
    applied(&node, &file, "created");
    assert_eq!(printed(), first);
}

/// Returns the flags of a command as keys.
fn flags(command: &str) -> BTreeSet<String> {
    let help = Process::reveille_at(Path::new("/nonexistent"), "127.0.0.1:1", &format!("{command} --help")).stdout;
    let own = help.split("Global options:").next().unwrap_or_default();
    let words = own.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next());
    words.map(|flag| flag.replace('-', "_")).collect()
}

/// Returns the keys of a document.
fn keys(document: &str) -> impl Iterator<Item = String> {
    let lines = document.lines().filter(|line| !line.starts_with(' '));
    lines.filter_map(|line| line.split(':').next()).map(str::to_owned)
}

#[test]
fn every_flag_of_a_schedule_goes_there_and_back() {
    let mut tried: BTreeSet<String> = KEYS.iter().map(|(key, _)| (*key).to_owned()).collect();
    tried.extend(WHEN.concat().iter().map(|(key, _)| (*key).to_owned()));
    tried.extend(keys(CONTENT));
    tried.extend(OTHERWISE.iter().map(|key| (*key).to_owned()));
    let flags = flags("schedule create");
    assert_eq!(flags.difference(&tried).collect::<Vec<_>>(), Vec::<&String>::new(), "not tried; add it to KEYS");
}

#[test]
fn every_flag_of_a_campaign_goes_there_and_back() {
    let tried = keys(CAMPAIGN).chain(keys(CONTENT)).chain(OTHERWISE.iter().map(|key| (*key).to_owned()));
    let (tried, flags): (BTreeSet<String>, _) = (tried.collect(), flags("campaign create"));
    assert_eq!(flags.difference(&tried).collect::<Vec<_>>(), Vec::<&String>::new(), "not tried; add it to CAMPAIGN");
}

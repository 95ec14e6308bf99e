//! Objects printed as documents contain what was requested, and applying them again changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};
use tempfile::TempDir;

use crate::process::{Ended, Process, until};

/// Keys of a schedule with values that differ from the defaults. Schedules use the values in turn.
const KEYS: &[(&str, &[&str])] = &[
    ("  startTime", &["2030-01-01T00:00:00Z"]),
    ("  endTime", &["2031-06-30T12:00:00Z"]),
    ("  maxRuns", &["7"]),
    ("  pool", &["bulk"]),
    ("  priority", &["9", "200"]),
    ("  paused", &["\"later: it is not ready\""]),
];
const POLICIES: &[(&str, &[&str])] = &[
    ("    dstGap", &["DST_GAP_SHIFT", "DST_GAP_SKIP"]),
    ("    dstOverlap", &["DST_OVERLAP_SECOND", "DST_OVERLAP_BOTH"]),
    ("    catchUp", &["CATCH_UP_ALL", "CATCH_UP_NONE"]),
    ("    startWithin", &["5400s", "259200s"]),
    ("    finishBy", &["129600s", "345600s"]),
    ("    inDoubt", &["IN_DOUBT_RESEND", "IN_DOUBT_ASSUME_SENT"]),
    ("    maxAttempts", &["9", "1"]),
    ("    retention", &["3456000s", "17280000s"]),
    ("    overlap", &["OVERLAP_SKIP", "OVERLAP_ALLOW", "OVERLAP_CANCEL_OTHER"]),
    // The third schedule is daily, so it has a gap by default.
    ("    minGap", &["64800s", "259200s", "0s"]),
    ("    jitter", &["600s", "5400s"]),
];
/// Zones and patterns.
const WHEN: &[&str] = &[
    "  zone: America/New_York\n  timing:\n    cron: 0 2 * * mon-fri\n",
    "  zone: Europe/Berlin\n  timing:\n    cron: H H(0-7) * * *\n",
    "  zone: Australia/Lord_Howe\n  timing:\n    daily:\n      hour: 2\n      minute: 30\n      days: sat,sun\n",
    "  zone: UTC\n  timing:\n    every:\n      period: 5400s\n      anchorTime: 2029-12-31T23:45:00Z\n",
    "  zone: Asia/Kathmandu\n  timing:\n    at: 2030-02-03T04:05:06Z\n",
];
const CONTENT: &str = "  content:
    sender: News <news@example.com>
    replyTo: answers@example.com
    cc:
      - Team <team@example.com>
      - boss@example.com
    subject: \"Good morning: {{ name }}\"
    text: |
      Good morning {{ name }},
        it is: {{ weather }}
    html: <p>Good morning, {{ name }}</p>
    headers:
      - name: List-Id
        value: <morning.example.com>
    variables:
      - name: weather
        value: \"rain # and wind\"
      - name: team
        value: \"7\"
    bulk: true
";
const RECIPIENTS: &str = "  audience:
    columns:
      - name
    recipients:
      - address: ann@example.com
        values:
          - Ann
      - address: bob@example.com
        values:
          - \"Bob: the other one\"
  labels:
    team: news
    tier: \"\"
";
/// The other kinds, with all keys.
const OTHERS: &str = "\
kind: relay
spec:
  name: main
  host: mx.example.org
  port: 587
  tls: RELAY_TLS_STARTTLS
  ca: /etc/reveille/ca.pem
  tlsName: other.example.org
  credentials: main
  pool: bulk
  ratePerSecond: 12.5
  lateRatePerSecond: 2.0
  maxSessions: 3
  weight: 4
---
kind: tenant
spec:
  name: acme
  ratePerSecond: 50.0
  concurrency: 7
  share: 3
  pools:
    - bulk
    - default
---
kind: pool
spec:
  name: bulk
  warmUp:
    - 50
    - 100
  firstDay: \"2020-01-01\"
  reveilleHeaders: false
";
const CAMPAIGN: &str = "\
kind: campaign
spec:
  schedule:
    tenant: default
    name: all
    audience:
      sealed: subscribers
    timing:
      at: 2030-02-03T04:05:06Z
    zone: Asia/Kathmandu
    pool: bulk
    priority: 9
    policies:
      startWithin: 5400s
      finishBy: 129600s
      inDoubt: IN_DOUBT_RESEND
      maxAttempts: 9
      retention: 3456000s
  canary:
    percent: 2.5
    holdPercent: 7.0
";
/// Keys that are not tried: they are of the call or only in answers, or other tests try them.
const NOT_TRIED: [&str; 13] = [
    "allPools",
    "requestId",
    "validateOnly",
    "etag",
    "health",
    "sealed",
    "template",
    "attachments",
    "contentType",
    "contentId",
    "data",
    "size",
    "fileHash",
];

fn lines(keys: &[(&str, &[&str])], number: usize) -> String {
    keys.iter().map(|(key, values)| format!("{key}: {}\n", values[number % values.len()])).collect()
}

fn schedule(number: usize) -> String {
    let (keys, policies, when) = (lines(KEYS, number), lines(POLICIES, number), WHEN[number % WHEN.len()]);
    let head = format!("kind: schedule\nspec:\n  tenant: acme\n  name: news-{number}\n");
    format!("{head}{when}{keys}  policies:\n{policies}{CONTENT}{RECIPIENTS}")
}

fn template() -> String {
    format!("kind: template\nspec:\n  tenant: acme\n  name: welcome\n{CONTENT}")
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
fn all_of_it_is_printed(requested: &str, printed: &str) {
    let bare = |text: &str| text.replace('"', "");
    for line in bare(requested).lines() {
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

    // A warm-up begins today at the earliest.
    let today = jiff::Timestamp::now().strftime("%F").to_string();
    let others = OTHERS.replace("2020-01-01", &today);
    let others = others.split("---\n").map(str::to_owned);
    let requested: Vec<String> = (0..WHEN.len()).map(schedule).chain([template()]).chain(others).collect();
    applied(&node, &write("asked.yaml", &requested), "created");

    let names: Vec<String> = (0..WHEN.len()).map(|number| format!("news-{number}")).collect();
    let printed = || -> Vec<String> {
        let schedules = names.iter().map(|name| format!("schedule show {name} --tenant acme"));
        let others = ["template show welcome --tenant acme", "relay show main", "tenant show acme", "pool show bulk"];
        let lines = schedules.chain(others.map(str::to_owned));
        lines.map(|line| shown(&node, &format!("{line} --manifest"))).collect()
    };
    let first = printed();
    requested.iter().zip(&first).for_each(|(requested, first)| all_of_it_is_printed(requested, first));
    let file = write("printed.yaml", &first);
    applied(&node, &file, "unchanged");

    for name in &names {
        shown(&node, &format!("schedule delete {name} --tenant acme --yes"));
    }
    for line in ["template delete welcome --tenant acme", "relay remove main", "tenant remove acme", "pool remove bulk"]
    {
        shown(&node, &format!("{line} --yes"));
    }
    applied(&node, &file, "created");
    assert_eq!(printed(), first);
}

#[test]
fn sealed_audience_goes_there_and_back_by_its_name() {
    let (folder, node) = started();
    shown(&node, "audience generate subscribers --recipients 3 --column name");
    let when = "  timing: {at: 2030-01-01T00:00:00Z}\n  zone: UTC\n  audience:\n    sealed: subscribers\n";
    let requested = format!("kind: schedule\nspec:\n  name: news\n{when}{CONTENT}");
    let file = folder.path().join("asked.yaml");
    fs::write(&file, requested).expect("written");
    applied(&node, &file, "created");
    let printed = shown(&node, "schedule show news --manifest");
    assert!(printed.lines().any(|line| line == "    sealed: subscribers"), "{printed}");
    fs::write(&file, &printed).expect("written");
    applied(&node, &file, "unchanged");
}

#[test]
fn attachment_is_a_file_beside_the_document_and_is_printed_by_its_hash() {
    let (folder, node) = started();
    let content = "content: {sender: a@example.com, subject: s, text: t, attachments: [{file: terms.txt}]}";
    let (file, attached) = (folder.path().join("asked.yaml"), folder.path().join("terms.txt"));
    let schedule = "kind: schedule\nspec:\n  name: news\n  timing: {at: 2030-01-01T00:00:00Z}\n  zone: UTC\n  \
                    audience: {recipients: [{address: a@example.com}]}\n";
    let documents = format!("{schedule}  {content}\n---\nkind: template\nspec:\n  name: welcome\n  {content}\n");
    fs::write(&file, documents).expect("written");
    fs::write(&attached, "these are the terms").expect("written");
    applied(&node, &file, "created");
    applied(&node, &file, "unchanged");

    let printed =
        ["schedule show news", "template show welcome"].map(|line| shown(&node, &format!("{line} --manifest")));
    for text in &printed {
        for line in ["      - name: terms.txt", "        contentType: text/plain", "        fileHash: "] {
            assert!(text.lines().any(|one| one.starts_with(line)), "{line} in\n{text}");
        }
    }
    let other = folder.path().join("printed.yaml");
    fs::write(&other, printed.join("---\n")).expect("written");
    applied(&node, &other, "unchanged");

    fs::write(&attached, "these are other terms").expect("written");
    applied(&node, &file, "updated");
}

#[test]
fn campaign_goes_there_and_back() {
    let (folder, node) = started();
    shown(&node, "audience generate subscribers --recipients 3 --column name");
    let content: String = CONTENT.lines().map(|line| format!("  {line}\n")).collect();
    let all = CAMPAIGN.replace("  canary:", &format!("{content}  canary:"));
    // Without policies in the document, the deadline stays open: it is forecast at the launch.
    let least = "kind: campaign\nspec:\n  schedule:\n    name: least\n    audience: {sealed: subscribers}\n    \
                 timing: {at: 2030-02-03T04:05:06Z}\n    zone: UTC\n    \
                 content: {sender: a@example.com, subject: s, text: t}\n";
    let file = folder.path().join("campaigns.yaml");
    fs::write(&file, [&all, least].join("---\n")).expect("written");
    applied(&node, &file, "created");

    let printed = || ["all", "least"].map(|name| shown(&node, &format!("campaign status {name} --manifest")));
    let first = printed();
    all_of_it_is_printed(&all, &first[0]);
    assert!(!first[1].contains("finishBy"), "{}", first[1]);
    fs::write(&file, first.join("---\n")).expect("written");
    applied(&node, &file, "unchanged");
    for name in ["all", "least"] {
        shown(&node, &format!("campaign delete {name} --yes"));
    }
    applied(&node, &file, "created");
    assert_eq!(printed(), first);
}

/// Adds the JSON names of all fields of a message.
fn fields(message: &MessageDescriptor, names: &mut BTreeSet<String>) {
    for field in message.fields() {
        names.insert(field.json_name().to_owned());
        // The health of a relay is only in answers.
        if let Kind::Message(inner) = field.kind()
            && inner.package_name() != "google.protobuf"
            && !field.is_map()
            && field.name() != "health"
        {
            fields(&inner, names);
        }
    }
}

#[test]
fn every_field_goes_there_and_back() {
    let pool = DescriptorPool::decode(reveille_proto::DESCRIPTORS).expect("descriptors");
    let mut names: BTreeSet<String> = NOT_TRIED.map(str::to_owned).into();
    let requested =
        [schedule(0), schedule(2), schedule(3), schedule(4), template(), OTHERS.to_owned(), CAMPAIGN.to_owned()];
    let keys = requested.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(':'));
    names.extend(keys.map(|(key, _)| key.trim_start_matches([' ', '-']).to_owned()));
    for message in ["CreateCampaignRequest", "Relay", "SetTenantRequest", "SetPoolRequest", "PutTemplateRequest"] {
        let message = pool.get_message_by_name(&format!("reveille.admin.v1.{message}")).expect("a message");
        let mut wanted = BTreeSet::new();
        fields(&message, &mut wanted);
        let missing: Vec<&String> = wanted.difference(&names).collect();
        assert_eq!(missing, Vec::<&String>::new(), "not tried of {}; add it to a document", message.name());
    }
}

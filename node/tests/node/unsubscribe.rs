//! One-click unsubscribe with a node process: from the link in the email to the opt-out in the state.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tokio::runtime::Runtime;

use reveille_sink::{Sink, SinkOptions};

use crate::process::{Process, until};

/// The key that signs links in these tests.
pub const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Returns the environment of a node with an unsubscribe page. Writes the key to the folder.
pub fn environment(folder: &Path) -> [(&'static str, String); 4] {
    let key = folder.join("unsubscribe.key");
    fs::write(&key, KEY).expect("written");
    [
        ("REVEILLE__UNSUBSCRIBE__URL", "https://news.example.com/leave".to_owned()),
        ("REVEILLE__UNSUBSCRIBE__LISTEN", "127.0.0.1:0".to_owned()),
        ("REVEILLE__UNSUBSCRIBE__MAILTO", "leave@news.example.com".to_owned()),
        ("REVEILLE__UNSUBSCRIBE__KEYS", format!("file:{}", key.display())),
    ]
}

/// Starts a node with an unsubscribe page.
pub fn listening(folder: &Path, name: &str) -> Process {
    let environment = environment(folder);
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Process::listening_by(folder, name, ["127.0.0.1:0"; 3], &environment)
}

/// Starts nodes with unsubscribe pages that form a cluster.
pub fn cluster<const N: usize>(folder: &Path, names: [&str; N]) -> [Process; N] {
    let environment = environment(folder);
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Process::cluster(folder, names, &environment)
}

/// Sends the request of a mail program (RFC 8058), and returns the response.
pub fn one_click(process: &Process, path: &str) -> String {
    let body = "List-Unsubscribe=One-Click";
    let head = format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n", body.len());
    Process::said_by(
        &process.unsubscribe,
        &format!("POST {path} HTTP/1.1\r\nHost: news.example.com\r\n{head}\r\n{body}"),
    )
}

/// Returns the unfolded value of a header field.
fn field(mail: &str, name: &str) -> Option<String> {
    let head = mail.split("\r\n\r\n").next()?.replace("\r\n ", " ");
    head.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned()))
}

#[test]
fn one_click_in_an_email_stops_the_next_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = listening(folder.path(), "one");
    until("a leader", || node.reveille("schedule list").code == Some(0));
    let json = |line: &str| -> Value {
        let ended = node.reveille(&format!("{line} -o json"));
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        serde_json::from_str(&ended.stdout).expect("JSON")
    };
    let runtime = Runtime::new().expect("a runtime");
    let sink = SinkOptions { keep_bodies: 10, ..SinkOptions::default() };
    let sink = runtime.block_on(async { Sink::start(sink) }).expect("a mailbox");
    json(&format!("relay add mailbox --host 127.0.0.1 --port {} --tls none", sink.address().port()));
    let plain = "--cron @yearly --zone UTC --sender news@example.com --subject News --inline-text News";
    let news = "--to Ann@example.com --to bob@example.com";
    json(&format!("schedule create news {plain} {news} --bulk"));
    json(&format!("schedule create alarm {plain} --to carl@example.com"));
    let document = node.reveille("schedule show news --manifest").stdout;
    assert!(document.contains("\n    bulk: true\n"), "{document}");
    let trigger = |name: &str, id: &str, emails: u64| {
        json(&format!("schedule trigger {name} --request-id {id}"));
        until("they arrive", || sink.accepted_count() == emails);
        until("the run is over", || json("run list")[0]["state"] == "RUN_STATE_FINISHED");
    };
    trigger("news", "first", 2);
    trigger("alarm", "alarm", 3);

    let text_of = |address: &str| {
        let emails = sink.emails();
        let (number, _) = emails.iter().find(|(_, accept)| accept.recipient == address).expect("an email");
        String::from_utf8(sink.text(number).expect("its text").to_vec()).expect("text")
    };
    let mail = text_of("Ann@example.com");
    assert_eq!(field(&mail, "List-Unsubscribe-Post").as_deref(), Some("List-Unsubscribe=One-Click"));
    let ways = field(&mail, "List-Unsubscribe").expect("a way out");
    let (link, mailto) = ways.split_once(", ").expect("two of them");
    assert_eq!(mailto, "<mailto:leave@news.example.com?subject=unsubscribe>");
    let path = link.strip_prefix("<https://news.example.com").and_then(|rest| rest.strip_suffix('>')).expect("a link");
    assert_ne!(field(&text_of("bob@example.com"), "List-Unsubscribe"), Some(ways.clone()), "each has its own");
    assert_eq!(field(&text_of("carl@example.com"), "List-Unsubscribe"), None, "that is no bulk email");

    let get = format!("GET {path} HTTP/1.1\r\nHost: news.example.com\r\n\r\n");
    assert!(Process::said_by(&node.unsubscribe, &get).starts_with("HTTP/1.1 200 "));
    assert_eq!(json("optout list"), Value::Array(Vec::new()), "who looks changes nothing");
    let done = one_click(&node, path);
    assert!(done.starts_with("HTTP/1.1 200 "), "{done}");
    assert_eq!(json("optout list")[0]["recipient"], "ann@example.com");
    trigger("news", "second", 4);
    let counts = &json("run list")[0]["counts"];
    assert_eq!((&counts["sent"], &counts["suppressed"]), (&1.into(), &1.into()), "{counts}");

    let said = node.said();
    let token = path.rsplit('/').next().expect("a token");
    assert!(!said.contains(KEY) && !said.contains(token) && !said.contains("ann@"), "{said}");
    let metrics = node.get("/metrics");
    for line in ["outcome=\"shown\"} 1", "outcome=\"opted_out\"} 1"] {
        assert!(metrics.contains(&format!("reveille_unsubscribe_requests_total{{{line}")), "{metrics}");
    }
}

#[test]
fn suppression_list_is_imported_listed_and_written_out_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Process::listening(folder.path(), "one");
    until("a leader", || node.reveille("schedule list").code == Some(0));
    let list = folder.path().join("list.csv");
    let rows: String = (0..2_345).map(|number| format!("bounce,R{number}@example.com\r\n")).collect();
    fs::write(&list, format!("reason,Email Address\r\n{rows}x,postmaster\r\nbounce,r7@EXAMPLE.com\r\n"))
        .expect("written");
    let import = |more: &str, added: u64, known: u64| {
        let ended = node.reveille(&format!("optout import {} -o json{more}", list.display()));
        assert_eq!(ended.code, Some(7), "a row cannot be used: {ended:?}");
        let reported: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(
            (&reported["rows"], &reported["added"], &reported["known"]),
            (&2_346.into(), &added.into(), &known.into())
        );
        assert_eq!((&reported["badRows"], &reported["bad"][0]["line"]), (&1.into(), &2_347.into()), "{reported}");
        assert!(ended.stderr.contains("line 2347: ") && ended.stderr.contains("PARTLY_DONE"), "{ended:?}");
        assert_eq!(reported["barrier"].is_null(), more.contains("dry-run"), "{reported}");
    };
    import(" --dry-run", 2_346, 0);
    assert_eq!(node.reveille("optout list -o json").stdout, "[]\n");
    import("", 2_345, 1);
    import("", 0, 2_346);
    let page = node.reveille("optout list --limit 700 -o json");
    let page: Value = serde_json::from_str(&page.stdout).expect("JSON");
    assert_eq!(page.as_array().map(Vec::len), Some(700));
    assert_eq!(page[0]["recipient"], "r0@example.com");

    let exported = folder.path().join("export.csv");
    assert_eq!(node.reveille(&format!("optout export {}", exported.display())).code, Some(0));
    let ended = node.reveille(&format!("optout import {} --tenant acme", exported.display()));
    assert!(ended.stdout.starts_with("2,345 rows: 2,345 opted out, 0 had already"), "{ended:?}");
    let spreadsheet = folder.path().join("list.xlsx");
    fs::write(&spreadsheet, b"PK\x03\x04").expect("written");
    let refused = node.reveille(&format!("optout import {}", spreadsheet.display()));
    assert!(refused.code == Some(2) && refused.stderr.contains("save it as CSV"), "{refused:?}");
}

#[test]
fn node_without_unsubscribe_address_sends_no_bulk_email() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Process::listening(folder.path(), "one");
    until("a leader", || node.reveille("schedule list").code == Some(0));
    let runtime = Runtime::new().expect("a runtime");
    let sink = runtime.block_on(async { Sink::start(SinkOptions::default()) }).expect("a mailbox");
    let relay = format!("relay add mailbox --host 127.0.0.1 --port {} --tls none", sink.address().port());
    assert_eq!(node.reveille(&relay).code, Some(0));
    let plain = "--cron @yearly --zone UTC --sender news@example.com --subject News --inline-text News";
    let created = node.reveille(&format!("schedule create news {plain} --to ann@example.com --bulk"));
    assert!(created.code == Some(0) && created.stderr.contains("unsubscribe.url"), "{created:?}");
    let mail = "--sender news@example.com --subject News --inline-text News --at 2090-01-01T09:00:00Z --zone UTC";
    for (flag, warns) in [(" --bulk", true), ("", false)] {
        let created = node.reveille(&format!("campaign create spring{warns} --audience all {mail}{flag}"));
        assert!(created.code == Some(0) && created.stderr.contains("unsubscribe.url") == warns, "{created:?}");
    }
    assert_eq!(node.reveille("schedule trigger news --request-id once").code, Some(0));
    let run: Value = serde_json::from_str(&node.reveille("run list -o json").stdout).expect("JSON");
    let run = run[0]["run"].as_str().expect("a run").to_owned();
    let why = "cannot write List-Unsubscribe";
    until("the reason is shown", || node.reveille(&format!("explain {run} ann@example.com")).stdout.contains(why));
    assert_eq!(sink.accepted_count(), 0);
}

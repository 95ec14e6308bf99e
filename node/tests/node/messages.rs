//! Messages over HTTP, as an application sends them: each email once, whatever the application repeats.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reveille_sink::{Sink, SinkOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::http_json::{Answer, Api, Curl};
use crate::process::{Process, until};

fn message(to: &str) -> Value {
    json!({
        "to": [to],
        "content": { "sender": "Shop <shop@example.com>", "subject": "Thanks", "text": "It is on its way." },
    })
}

/// Starts a mailbox as the relay of this node's cluster.
pub fn mailbox(runtime: &Runtime, node: &Process, options: SinkOptions) -> Sink {
    let sink = runtime.block_on(async { Sink::start(options) }).expect("a mailbox");
    let port = sink.address().port();
    let added = node.reveille(&format!("relay add mailbox --host 127.0.0.1 --port {port} --tls none"));
    assert_eq!(added.code, Some(0), "{added:?}");
    sink
}

/// Returns status, `replayed` and the run of an answer.
fn sent(answer: &Answer) -> (u16, bool, String) {
    let body = answer.json();
    let run = body["message"]["run"]["run"].as_str().unwrap_or_default().to_owned();
    (answer.status, body["replayed"].as_bool().unwrap_or_default(), run)
}

#[test]
fn message_is_sent_once_shown_and_cancelled_by_curl() {
    let (api, runtime) = (Api::start(), Runtime::new().expect("a runtime"));
    let sink = mailbox(&runtime, &api.node, SinkOptions::default());
    let ann = message("ann@example.com").to_string();
    let send = |key: &str, body: &str| {
        let key = format!("Idempotency-Key: {key}");
        api.curl("POST", "/v1/messages", &["-H", &key, "-d", body])
    };
    let first = send("order-1", &ann);
    let (status, replayed, run) = sent(&first);
    assert!((status, replayed) == (200, false) && run.starts_with('r'), "{first:?}");
    let message = &first.json()["message"];
    assert_eq!((&message["key"], &message["run"]["cause"]), (&json!("order-1"), &json!("RUN_CAUSE_MESSAGE")));
    assert_eq!(message["run"]["schedule"], "", "{first:?}");
    until("it arrives", || sink.accepted_count() == 1);
    assert_eq!(sent(&send("order-1", &ann)), (200, true, run.clone()));
    let bob = self::message("bob@example.com");
    let other = send("order-1", &bob.to_string());
    assert_eq!((other.status, &other.json()["reason"]), (409, &json!("REQUEST_ID_REUSED")), "{other:?}");
    let mut first_wins = bob.clone();
    (first_wins["keyRule"], first_wins["key"]) = (json!("KEY_RULE_FIRST_WINS"), json!("order-1"));
    let answer = api.curl("POST", "/v1/messages", &["-d", &first_wins.to_string()]);
    assert_eq!(sent(&answer), (200, true, run.clone()), "{answer:?}");

    let shown = api.curl("GET", "/v1/messages/order-1", &[]).json()["message"].clone();
    let expected = json!([{ "number": 0, "address": "ann@example.com", "state": "RECIPIENT_STATE_SENT" }]);
    assert_eq!((&shown["run"]["run"], &shown["recipients"]), (&json!(run), &expected), "{shown}");
    let missing = api.curl("GET", "/v1/messages/order-2", &[]);
    assert_eq!((missing.status, &missing.json()["reason"]), (404, &json!("MESSAGE_NOT_FOUND")), "{missing:?}");

    let mut later = bob;
    later["sendTime"] = json!("2090-01-01T00:00:00Z");
    let far = send("later", &later.to_string());
    assert_eq!((far.status, &far.json()["fields"][0]["field"]), (400, &json!("sendTime")), "{far:?}");
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24);
    later["sendTime"] = json!(at.to_string());
    assert_eq!(sent(&send("later", &later.to_string())).0, 200);
    let cancelled = api.curl("POST", "/v1/messages/later/cancel", &["-d", "{}"]);
    assert_eq!(cancelled.json()["message"]["run"]["state"], "RUN_STATE_CANCELLED", "{cancelled:?}");
    assert!(sent(&send("later", &later.to_string())).1, "the key sends nothing more");
    assert_eq!(sink.accepted_count(), 1);
    let listed = api.node.reveille("schedule list -o json");
    assert_eq!(listed.stdout, "[]\n", "{listed:?}");
}

#[test]
fn what_is_wrong_with_a_message_is_named_and_nothing_is_sent() {
    let api = Api::start();
    let problem = |body: &Value, key: &str| {
        let key = format!("Idempotency-Key: {key}");
        let answer = api.curl("POST", "/v1/messages", &["-H", &key, "-d", &body.to_string()]);
        (answer.status, answer.json()["fields"][0]["field"].as_str().unwrap_or_default().to_owned())
    };
    let with = |field: &str, value: Value| {
        let mut body = message("ann@example.com");
        body[field] = value;
        body
    };
    let cases = [
        (with("to", json!([])), "to"),
        (with("to", json!(["postmaster"])), "to[0]"),
        (with("to", json!(vec!["a@example.com"; 1_001])), "to"),
        (with("audience", json!({ "recipients": [{ "address": "a@example.com" }] })), "audience"),
        (with("content", json!({ "subject": "x", "text": "x" })), "content.sender"),
        (with("policies", json!({ "overlap": "OVERLAP_ALLOW" })), "policies.overlap"),
        (with("policies", json!({ "maxAttempts": 1000 })), "policies.maxAttempts"),
        (with("priority", json!(256)), "priority"),
        (with("keyRule", json!(7)), "keyRule"),
    ];
    for (body, field) in cases {
        assert_eq!(problem(&body, "one"), (400, field.to_owned()), "{body}");
    }
    let ann = message("ann@example.com");
    assert_eq!(problem(&ann, ""), (400, "key".to_owned()));
    assert_eq!(problem(&ann, "two words"), (400, "key".to_owned()));
    let two =
        api.curl("POST", "/v1/messages", &["-H", "Idempotency-Key: one", "-d", &with("key", json!("two")).to_string()]);
    assert_eq!(two.status, 400, "two keys: {two:?}");
    let large = api.folder.path().join("large");
    fs::write(&large, with("to", json!(["a".repeat(17 * 1024 * 1024)])).to_string()).expect("written");
    let data = format!("@{}", large.display());
    assert_eq!(api.curl("POST", "/v1/messages", &["--data-binary", &data]).status, 413);
    assert_eq!(api.curl("GET", "/v1/runs", &[]).json()["runs"], json!([]), "no run was opened");
}

#[test]
fn token_of_one_tenant_reaches_only_its_own_messages() {
    let mut api = Api::start();
    let of = |tenant: &str| {
        let mut body = message("ann@example.com");
        (body["tenant"], body["key"]) = (json!(tenant), json!("order-1"));
        body.to_string()
    };
    for tenant in ["red", "blue"] {
        assert_eq!(api.curl("POST", "/v1/messages", &["-d", &of(tenant)]).status, 200);
    }
    let stranger = api.curl_as(&["-H", "Authorization: Bearer rvt_nothing", "-d", &of("red")], "/v1/messages");
    assert_eq!(stranger.status, 401, "{stranger:?}");
    let admin = api.client.clone();
    api.client = admin.with_token(&api.node, "red --role sender --role viewer --tenant red");
    assert!(sent(&api.curl("POST", "/v1/messages", &["-d", &of("red")])).1);
    assert_eq!(api.curl("POST", "/v1/messages", &["-d", &of("blue")]).status, 403);
    assert_eq!(api.curl("GET", "/v1/messages/order-1?tenant=blue", &[]).status, 403);
    let shown = api.curl("GET", "/v1/messages/order-1?tenant=red", &[]);
    assert_eq!((shown.status, &shown.json()["message"]["recipients"][0]["address"]), (200, &json!("")), "{shown:?}");
    api.client = admin.with_token(&api.node, "reader --role viewer --tenant red");
    assert_eq!(api.curl("POST", "/v1/messages", &["-d", &of("red")]).status, 403, "it may not send");
}

/// Messages that each client sends, one after the other.
const MESSAGES: usize = 25;
const CLIENTS: usize = 3;

/// Sends one message, asks node after node until one of them has taken it, and then once more.
fn insist(client: &Curl, addresses: &[String], number: usize) {
    let (key, to) = (format!("Idempotency-Key: order-{number}"), format!("u{number}@example.com"));
    let body = message(&to).to_string();
    let mut run = String::new();
    for call in 0.. {
        let address = &addresses[(number + call) % addresses.len()];
        let more = ["--max-time", "5", "-H", &key, "-d", &body];
        match client.call(address, "POST", "/v1/messages", &more) {
            Ok(answer) if answer.status == 200 && run.is_empty() => run = sent(&answer).2,
            Ok(answer) if answer.status == 200 => return assert_eq!(sent(&answer), (200, true, run)),
            Ok(answer) => assert!([429, 503, 504].contains(&answer.status), "{answer:?}"),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
        assert!(call < 2_000, "{to} is never taken");
    }
}

#[test]
fn each_message_comes_once_while_leaders_are_killed() {
    const NAMES: [&str; 3] = ["one", "two", "three"];
    let (folder, runtime) = (tempfile::tempdir().expect("a folder"), Runtime::new().expect("a runtime"));
    let mut nodes = Process::cluster(folder.path(), NAMES, &[]);
    let sink = mailbox(&runtime, &nodes[0], SinkOptions::default());
    let client = Curl::of(folder.path(), &nodes[0]);
    let addresses: Vec<String> = nodes.iter().map(|node| node.admin.clone()).collect();
    let done = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|place| {
            let (client, addresses, done) = (client.clone(), addresses.clone(), Arc::clone(&done));
            std::thread::spawn(move || {
                for number in 0..MESSAGES {
                    insist(&client, &addresses, place * MESSAGES + number);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for kill in 1..=2 {
        until("some are taken", || done.load(Ordering::Relaxed) >= kill * CLIENTS * MESSAGES / 4);
        Process::replace_leader(&mut nodes, NAMES);
    }
    for client in clients {
        client.join().expect("every message is taken");
    }
    let all = CLIENTS * MESSAGES;
    let states = || -> BTreeMap<String, u64> {
        let mut states = BTreeMap::new();
        for number in 0..all {
            let path = format!("/v1/messages/order-{number}");
            let shown = client.call(&addresses[0], "GET", &path, &[]);
            let shown = shown.map_or(Value::Null, |answer| answer.json()["message"]["recipients"][0].clone());
            let state = shown["state"].as_str().unwrap_or("no answer").to_owned();
            *states.entry(state).or_default() += 1;
        }
        states
    };
    let mut known = BTreeMap::new();
    until("each has its outcome", || {
        known = states();
        known.keys().all(|state| ["RECIPIENT_STATE_SENT", "RECIPIENT_STATE_IN_DOUBT"].contains(&state.as_str()))
    });
    let mut arrived: BTreeMap<String, u32> = BTreeMap::new();
    for (_, email) in sink.emails().iter() {
        *arrived.entry(email.recipient.clone()).or_default() += 1;
    }
    assert!(arrived.values().all(|count| *count == 1), "{arrived:?}");
    // An email that a kill put in doubt may have arrived, and is never repeated.
    let (sent, in_doubt) = (known["RECIPIENT_STATE_SENT"], known.get("RECIPIENT_STATE_IN_DOUBT").copied().unwrap_or(0));
    assert!((sent..=sent + in_doubt).contains(&(arrived.len() as u64)), "{known:?}, {} arrived", arrived.len());
    println!("{known:?}; {} arrived, each once", arrived.len());
}

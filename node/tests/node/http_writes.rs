//! Writes without a key over HTTP, repeated while leaders are killed: each ends in the state that it asks for.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reveille_sink::{Sink, SinkOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::http_json::{Curl, schedule};
use crate::http_routes::{Operation, RETRIED, operations};
use crate::process::Process;

const NAMES: [&str; 3] = ["one", "two", "three"];
/// Number of threads that share the writes.
const WORKERS: usize = 5;
/// Least number of calls of each write. They go on until both leaders were replaced.
const ROUNDS: usize = 2;
/// Pool with a relay that refuses each recipient.
const REFUSING: &str = "refusing";

/// The writes without a key that end in one state.
const WRITES: [&str; 23] = [
    "BatchCreateSchedules",
    "CancelCampaign",
    "CancelMessage",
    "CancelRun",
    "DeleteCampaign",
    "DeleteSchedule",
    "DeleteTemplate",
    "EraseRecipient",
    "ImportOptOuts",
    "LaunchCampaign",
    "PauseCampaign",
    "PauseRun",
    "PauseSchedule",
    "PutSchedule",
    "PutTemplate",
    "RemovePool",
    "RemoveRelay",
    "RemoveTenant",
    "ResumeCampaign",
    "ResumeRun",
    "ResumeSchedule",
    "RevokeToken",
    "TakeBackOptOut",
];
/// The other writes without a key, and what tests them, or why they are not repeated here.
const ELSEWHERE: [(&str, &str); 14] = [
    ("AcceptArchiveLoss", "tests/archive.rs of the services"),
    ("AcceptRestore", "backup.rs"),
    ("AddMember", "membership.rs"),
    ("AdvanceClock", "a test's clock only"),
    ("CreateBackup", "backup.rs"),
    ("CreateToken", "each call makes a token; one whose answer is lost is revoked"),
    ("DrainMember", "membership.rs"),
    ("PrepareAudience", "it changes nothing"),
    ("PreviewTemplate", "it changes nothing"),
    ("RemoveMember", "membership.rs"),
    ("Scrub", "it changes nothing"),
    ("TestRelay", "it changes nothing"),
    ("TransferLeader", "membership.rs"),
    ("UploadRecipients", "a part is no audience until it is sealed"),
];

/// A call: verb, path and body.
type Request = (&'static str, String, Value);

/// What is true of status and body of an answer.
type Check = Box<dyn Fn(u16, &Value) -> bool>;

/// A write about an object of its own.
struct Write {
    /// Makes the object. A repeat of each does no harm.
    before: Vec<Request>,
    /// Name in the path. A pointer is a place in the last answer of `before`.
    name: String,
    body: Value,
    /// Path, with `{}` for the name, and what its answer has after the write.
    then: (String, Check),
}

/// Returns a check that the body has this value at a pointer.
fn has(pointer: &'static str, value: impl Into<Value>) -> Check {
    let value = value.into();
    Box::new(move |status, body| status == 200 && body.pointer(pointer) == Some(&value))
}

fn gone() -> Check {
    Box::new(|status, _| status == 404)
}

fn write(id: &str, number: usize, base: &Value) -> Write {
    let name = format!("{}-{number}", id.to_lowercase());
    let address = format!("{name}@example.com");
    let with = |more: &[(&str, Value)]| {
        let mut body = base.clone();
        body["name"] = json!(name);
        for (field, value) in more {
            body[*field] = value.clone();
        }
        body
    };
    let at = |kind: &str| format!("/v1/{kind}/{name}");
    let body = with(&[]);
    let made = |kind: &str, body: Value, then: Check| Write {
        before: vec![("PUT", at(kind), body)],
        name: name.clone(),
        body: json!({}),
        then: (at(kind), then),
    };
    let mut content = base["content"].clone();
    content["subject"] = json!(name);
    let campaign = |steps: &[&str], then: Check| {
        let all = json!({ "sealed": "all" });
        let at_2090 = json!({ "at": "2090-01-01T00:00:00Z" });
        let more = [("audience", all), ("timing", at_2090), ("content", content.clone()), ("pool", json!(REFUSING))];
        let create = ("POST", "/v1/campaigns".to_owned(), json!({ "schedule": with(&more) }));
        let steps = steps.iter().map(|step| ("POST", format!("{}/{step}", at("campaigns")), json!({})));
        Write { before: [create].into_iter().chain(steps).collect(), ..made("campaigns", Value::Null, then) }
    };
    let message = json!({ "key": name, "to": [address], "content": base["content"] });
    let sent = || ("POST", "/v1/messages".to_owned(), message.clone());
    let of_run = |then: Check| Write {
        before: vec![sent()],
        name: "/message/run/run".to_owned(),
        body: json!({}),
        then: ("/v1/runs/{}".to_owned(), then),
    };
    let state = |kind: &'static str, state: &str| has(kind, state);
    match id {
        "BatchCreateSchedules" => Write {
            before: Vec::new(),
            body: json!({ "schedules": [body] }),
            ..made("schedules", Value::Null, has("/schedule/name", name.as_str()))
        },
        "PutSchedule" => Write {
            before: Vec::new(),
            body: body.clone(),
            ..made("schedules", Value::Null, has("/schedule/name", name.as_str()))
        },
        "PauseSchedule" => made("schedules", body, state("/schedule/state", "SCHEDULE_STATE_PAUSED")),
        "ResumeSchedule" => {
            let paused = with(&[("paused", json!("a test"))]);
            made("schedules", paused, state("/schedule/state", "SCHEDULE_STATE_ACTIVE"))
        }
        "DeleteSchedule" => made("schedules", body, gone()),
        "PutTemplate" => {
            Write { before: Vec::new(), body: content, ..made("templates", Value::Null, has("/version", 1)) }
        }
        "DeleteTemplate" => made("templates", content, gone()),
        "LaunchCampaign" => campaign(&[], state("/campaign/state", "CAMPAIGN_STATE_LAUNCHED")),
        "PauseCampaign" => campaign(&["launch"], state("/campaign/state", "CAMPAIGN_STATE_PAUSED")),
        "ResumeCampaign" => campaign(&["launch", "pause"], state("/campaign/state", "CAMPAIGN_STATE_LAUNCHED")),
        "CancelCampaign" => campaign(&["launch"], state("/campaign/state", "CAMPAIGN_STATE_CANCELLED")),
        "DeleteCampaign" => campaign(&[], gone()),
        "CancelMessage" => Write {
            name: name.clone(),
            then: (at("messages"), state("/message/run/state", "RUN_STATE_CANCELLED")),
            ..of_run(gone())
        },
        "PauseRun" => of_run(state("/run/state", "RUN_STATE_PAUSED")),
        "ResumeRun" => {
            let pause = ("POST", "/v1/runs/{}/pause".to_owned(), json!({}));
            let opened = of_run(state("/run/state", "RUN_STATE_OPEN"));
            Write { before: vec![sent(), pause], name: "/run/run".to_owned(), ..opened }
        }
        "CancelRun" => of_run(state("/run/state", "RUN_STATE_CANCELLED")),
        "EraseRecipient" => Write {
            before: vec![sent()],
            name: address.clone(),
            body: json!({}),
            then: (
                format!("/v1/recipients/{address}"),
                Box::new(|status, body| {
                    let places = body["places"].as_array().map(Vec::as_slice).unwrap_or_default();
                    status == 200 && places.len() == 1 && places[0]["kind"] == "PLACE_KIND_OPT_OUT"
                }),
            ),
        },
        "ImportOptOuts" => Write {
            before: Vec::new(),
            body: json!({ "recipients": [address] }),
            then: (format!("/v1/opt-outs/{address}"), has("/optedOut", true)),
            ..of_run(gone())
        },
        "TakeBackOptOut" => Write {
            before: vec![("POST", "/v1/opt-outs".to_owned(), json!({ "recipient": address }))],
            name: address.clone(),
            body: json!({ "reason": "a test" }),
            then: (format!("/v1/opt-outs/{address}"), has("/optedOut", false)),
        },
        "RemovePool" => made("pools", json!({ "warmUp": [5] }), gone()),
        "RemoveTenant" => made("tenants", json!({ "share": 5 }), gone()),
        "RemoveRelay" => {
            let relay =
                json!({ "name": name, "host": "127.0.0.1", "port": 2525, "tls": "RELAY_TLS_NONE", "pool": name });
            Write { before: vec![("POST", "/v1/relays".to_owned(), relay)], ..made("relays", Value::Null, gone()) }
        }
        "RevokeToken" => {
            let token = json!({ "name": name, "allTenants": true, "roles": ["ROLE_VIEWER"] });
            let is_revoked = move |status, body: &Value| {
                let tokens = body["tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
                let mut own = tokens.iter().filter(|token| token["name"] == name.as_str());
                status == 200 && own.any(|token| token["valid"] == false)
            };
            Write {
                before: vec![("POST", "/v1/tokens".to_owned(), token)],
                name: "/token/id".to_owned(),
                body: json!({}),
                then: ("/v1/tokens?pageSize=1000".to_owned(), Box::new(is_revoked)),
            }
        }
        other => panic!("{other} is no write of this test"),
    }
}

/// Calls node after node.
struct Caller<'c> {
    client: &'c Curl,
    addresses: &'c [String],
}

impl Caller<'_> {
    /// Calls node after node until one answers with a status that ends the call. Returns it, and true if an earlier
    /// attempt may have taken effect.
    fn settled(&self, (verb, path, body): &Request) -> (u16, Value, bool) {
        let (body, mut may_have_happened) = (body.to_string(), false);
        let body: &[&str] = if body == "null" { &[] } else { &["-d", &body] };
        let arguments = [&["--max-time", "20"], body].concat();
        for call in 0..2_000 {
            let address = &self.addresses[call % self.addresses.len()];
            match self.client.call(address, verb, path, &arguments) {
                Ok(answer) if !RETRIED.contains(&answer.status.into()) => {
                    let body = answer.json();
                    // An erasure that goes on may be repeated from its start.
                    if *verb == "GET" || body["nextPageToken"].as_str().is_none_or(str::is_empty) {
                        return (answer.status, body, may_have_happened);
                    }
                }
                Ok(answer) => may_have_happened |= answer.status == 504,
                Err(_) => {
                    may_have_happened = true;
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        panic!("{path} is never done")
    }

    /// Makes a write, repeats it as if its answer were lost, and checks the state in which it ends.
    fn make(&self, operation: &Operation, write: Write) {
        let mut last = Value::Null;
        for (verb, path, body) in write.before {
            let run = last.pointer("/message/run/run").and_then(Value::as_str).unwrap_or_default();
            let path = path.replace("{}", run);
            let (status, answer, _) = self.settled(&(verb, path.clone(), body));
            assert_eq!(status, 200, "{}: {verb} {path}: {answer}", operation.id);
            last = answer;
        }
        let name = last.pointer(&write.name).and_then(Value::as_str).unwrap_or(&write.name).to_owned();
        let body = if operation.verb == "DELETE" { Value::Null } else { write.body };
        let verb = ["POST", "PUT", "DELETE"].into_iter().find(|verb| *verb == operation.verb).expect("a write");
        let request = (verb, operation.at(&name), body);
        let (path, check) = write.then;
        let read = ("GET", path.replace("{}", &name), Value::Null);
        for is_repeat in [false, true] {
            let (status, answer, may_have_happened) = self.settled(&request);
            // A repeat finds that it is gone, or that its state is the one asked for.
            let is_done = (is_repeat || may_have_happened) && [404, 409].contains(&status);
            assert!(status == 200 || is_done, "{} {name}: {status} {answer}", operation.id);
            let (status, state, _) = self.settled(&read);
            assert!(check(status, &state), "{} {name}: {status} {state}", operation.id);
        }
    }
}

/// Starts a mailbox that refuses each recipient, as the relay of [`REFUSING`].
fn refusing_mailbox(runtime: &Runtime, node: &Process) -> Sink {
    let options = SinkOptions { faults: "rcpt:550".parse().expect("faults"), ..SinkOptions::default() };
    let sink = runtime.block_on(async { Sink::start(options) }).expect("a mailbox");
    let port = sink.address().port();
    let line = format!("relay add mailbox --host 127.0.0.1 --port {port} --tls none --pool {REFUSING}");
    let added = node.reveille(&line);
    assert_eq!(added.code, Some(0), "{added:?}");
    sink
}

#[test]
fn write_without_a_key_ends_in_its_state_while_leaders_are_killed() {
    let (folder, runtime) = (tempfile::tempdir().expect("a folder"), Runtime::new().expect("a runtime"));
    let mut nodes = Process::cluster(folder.path(), NAMES, &[]);
    let client = Curl::of(folder.path(), &nodes[0]);
    let _sink = refusing_mailbox(&runtime, &nodes[0]);
    let addresses: Vec<String> = nodes.iter().map(|node| node.admin.clone()).collect();
    let call = |verb: &str, path: &str, more: &[&str]| {
        let answer = client.call(&addresses[1], verb, path, more).expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    };
    let operations = operations(&call("GET", "/v1/openapi.json", &[]));
    let unkeyed = operations.iter().filter(|one| one.verb != "GET" && !one.has_key).map(|one| one.id.as_str());
    let listed = WRITES.into_iter().chain(ELSEWHERE.map(|(id, _)| id));
    assert_eq!(unkeyed.collect::<BTreeSet<_>>(), listed.collect::<BTreeSet<_>>(), "each write without a key is listed");

    let base: Value = serde_json::from_str(&schedule("base")).expect("JSON");
    let part = ["-H", "Content-Type: text/csv", "--data-binary", "email\nann@example.com\n"];
    let part = call("POST", "/v1/audience-parts", &part)["part"].clone();
    let seal = json!({ "recipients": 1, "columns": [], "parts": [part] }).to_string();
    call("POST", "/v1/audiences/all/seal", &["-d", &seal]);

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (operations, base, is_over) = (&operations, &base, &is_over);
            let caller = Caller { client: &client, addresses: &addresses };
            let own = WRITES.iter().skip(worker).step_by(WORKERS);
            scope.spawn(move || {
                let rounds = (0..).take_while(|round| *round < ROUNDS || !is_over.load(Ordering::Relaxed));
                for (round, id) in rounds.flat_map(|round| own.clone().map(move |id| (round, *id))) {
                    let operation = operations.iter().find(|one| one.id == id).expect("a request");
                    caller.make(operation, write(id, round, base));
                }
            });
        }
        for _ in 0..2 {
            Process::replace_leader(&mut nodes, NAMES);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

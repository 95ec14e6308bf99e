//! What every HTTP request of the API has in common. The requests come from the node's own description, so that a new
//! one is tried too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::http_json::{Answer, Api, Curl, schedule};
use crate::process::Process;

/// A request of the description.
pub struct Operation {
    pub id: String,
    pub verb: String,
    path: String,
    /// Its message, by names of JSON.
    fields: BTreeSet<String>,
    body: Vec<String>,
    pub has_key: bool,
}

impl Operation {
    /// Returns the path with this name in place of each of its fields.
    pub fn at(&self, name: &str) -> String {
        let part = |part: &str| if part.starts_with('{') { name.to_owned() } else { part.to_owned() };
        self.path.split('/').map(part).collect::<Vec<_>>().join("/")
    }

    /// Returns path and arguments of a call for a tenant, about the resource of this name. `None`: no tenant is named.
    fn of_tenant(&self, tenant: &str, name: &str) -> Option<(String, Vec<String>)> {
        let path = self.at(name);
        let has = |field: &str| self.fields.contains(field);
        match self.id.as_str() {
            "GetTenant" => Some((self.at(tenant), Vec::new())),
            "BatchCreateSchedules" => {
                let body = json!({ "schedules": [{ "tenant": tenant, "name": name }] });
                Some((path, vec!["-d".to_owned(), body.to_string()]))
            }
            _ if has("tenant") => Some((format!("{path}?tenant={tenant}"), Vec::new())),
            _ if has("schedule") && has("validateOnly") => {
                Some((format!("{path}?schedule.tenant={tenant}"), Vec::new()))
            }
            _ => None,
        }
    }
}

/// Returns all requests of a node's description.
pub fn operations(document: &Value) -> Vec<Operation> {
    let properties = |schema: &Value| -> Vec<String> {
        let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()).unwrap_or_default();
        let schema = &document["components"]["schemas"][name]["properties"];
        schema.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
    };
    let mut all = Vec::new();
    for (path, verbs) in document["paths"].as_object().expect("paths") {
        for (verb, operation) in verbs.as_object().expect("verbs") {
            let given = operation["parameters"].as_array().expect("parameters");
            let mut fields: BTreeSet<String> =
                given.iter().filter(|one| one["in"] == "query").map(|one| text(&one["name"])).collect();
            let body = operation["requestBody"]["content"].as_object();
            let is_whole = given.iter().all(|one| one["in"] != "query");
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            match is_whole {
                true => fields.extend(properties(schema)),
                false if text(&schema["$ref"]).ends_with("/ScheduleBody") => drop(fields.insert("schedule".to_owned())),
                false => {}
            }
            all.push(Operation {
                id: text(&operation["operationId"]),
                verb: verb.to_uppercase(),
                path: path.clone(),
                fields,
                body: body.map(|kinds| kinds.keys().cloned().collect()).unwrap_or_default(),
                has_key: given.iter().any(|one| one["name"] == "Idempotency-Key"),
            });
        }
    }
    all
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn refs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Requests that a token of one tenant may make, although they name none.
const OF_NO_TENANT: [&str; 2] = ["GetOwnToken", "UploadRecipients"];

#[test]
fn every_request_refuses_other_tokens_and_large_bodies() {
    let api = Api::start();
    let operations = operations(&api.curl_as(&[], "/v1/openapi.json").json());
    assert!(operations.len() > 90, "{} requests", operations.len());
    // What exists answers as what does not.
    let mut news: Value = serde_json::from_str(&schedule("news")).expect("JSON");
    news["tenant"] = json!("blue");
    assert_eq!(api.curl("POST", "/v1/schedules", &["-d", &news.to_string()]).status, 200);
    let content = news["content"].to_string();
    assert_eq!(api.curl("PUT", "/v1/templates/news?tenant=blue", &["-d", &content]).status, 200);
    let message = json!({ "tenant": "blue", "to": ["a@example.com"], "content": news["content"] }).to_string();
    let sent = api.curl("POST", "/v1/messages", &["-H", "Idempotency-Key: news", "-d", &message]);
    assert_eq!(sent.status, 200, "{sent:?}");
    let run = text(&sent.json()["message"]["run"]["run"]);

    // More than most requests may have, and more than one with attachments.
    let larger = [6, 17].map(|mib| {
        let file = api.folder.path().join(format!("{mib}"));
        fs::write(&file, vec![b' '; mib * 1024 * 1024]).expect("written");
        file
    });
    let whole_part = api.folder.path().join("part");
    // Blank lines, but few: this build reads a line slowly.
    let mut lines = vec![b' '; 65 * 1024 * 1024];
    lines.iter_mut().step_by(4096).for_each(|byte| *byte = b'\n');
    fs::write(&whole_part, lines).expect("written");
    let token = "Authorization: Bearer rvt_nothing";
    let admin = api.client.clone();
    let mut tenants = 0;
    let roles = "--role viewer --role pii --role editor --role sender";
    let red = admin.with_token(&api.node, &format!("red {roles} --tenant red"));
    let all_of_red = |api: &Api, verb: &str, path: &str, arguments: &[String]| {
        red.call(&api.node.admin, verb, path, &refs(arguments)).unwrap_or_else(|said| panic!("{path}: {said}"))
    };
    for operation in &operations {
        let (id, verb) = (&operation.id, operation.verb.as_str());
        let stranger = api.curl_as(&["-X", verb, "-H", token], &operation.at("news"));
        let refused = (stranger.status, &stranger.json()["reason"]) == (401, &json!("TOKEN_NOT_VALID"));
        assert!(refused, "{id}: {stranger:?}");

        match operation.of_tenant("blue", "news") {
            Some((path, arguments)) => {
                tenants += 1;
                let known = all_of_red(&api, verb, &path, &arguments);
                assert_eq!((known.status, &known.json()["reason"]), (403, &json!("NOT_PERMITTED")), "{id}: {known:?}");
                for name in ["none", run.as_str()] {
                    let (path, arguments) = operation.of_tenant("blue", name).expect("a path");
                    let other = all_of_red(&api, verb, &path, &arguments);
                    assert_eq!((other.status, other.json()), (403, known.json()), "{id}: {other:?}");
                }
            }
            None if OF_NO_TENANT.contains(&id.as_str()) => {}
            None => {
                let refused = all_of_red(&api, verb, &operation.at("news"), &[]);
                assert_eq!(refused.status, 403, "{id} is about the cluster: {refused:?}");
            }
        }

        if let Some(kind) = operation.body.first() {
            let files = if id == "UploadRecipients" { std::slice::from_ref(&whole_part) } else { &larger };
            let kind = format!("Content-Type: {kind}");
            let is_refused = files.iter().any(|file| {
                let data = format!("@{}", file.display());
                let answer =
                    api.curl(verb, &operation.at("news"), &["-H", &kind, "-H", "Expect:", "--data-binary", &data]);
                answer.status == 413 && answer.json()["reason"] == "TOO_LARGE"
            });
            assert!(is_refused, "{id}");
        }
    }
    assert!(tenants > 50, "{tenants} requests name a tenant");
}

/// Returns true if the recorded table of requests says that this one refuses a key.
fn refuses_key(id: &str) -> bool {
    let method = format!(".{id},");
    let table = include_str!("../../../proto/tests/http.txt");
    table.lines().any(|line| line.contains(&method) && line.ends_with("key refused"))
}

/// Requests with a key that need a state or an outcome which this test does not make, and what tests them.
const REPEATED_ELSEWHERE: [(&str, &str); 9] = [
    ("AbortRotation", "rotation.rs"),
    ("DeleteAudience", "tests/audiences.rs of the services"),
    ("DiscardDeadLetters", "tests/dead_letters.rs of the services"),
    ("FinishUpgrade", "upgrade.rs"),
    ("RequeueDeadLetters", "tests/dead_letters.rs of the services"),
    ("ResolveDoubts", "tests/decisions.rs of the services"),
    ("RotateAuthority", "rotation.rs"),
    ("SealAudience", "audience.rs"),
    ("BackfillSchedule", "tests/schedules.rs of the services"),
];

#[test]
fn repeated_key_gives_the_same_answer() {
    let api = Api::start();
    let (news, mut other): (Value, Value) = (
        serde_json::from_str(&schedule("news")).expect("JSON"),
        serde_json::from_str(&schedule("other")).expect("JSON"),
    );
    other["audience"] = json!({ "recipients": [{ "address": "bob@example.com" }] });
    let message = |to: &str| json!({ "to": [to], "content": news["content"] });
    let test = |subject: &str| {
        let mut schedule = json!({ "content": news["content"], "audience": news["audience"] });
        schedule["content"]["subject"] = json!(subject);
        json!({ "schedule": schedule })
    };
    let relay = |port: u16| json!({ "name": "r", "host": "127.0.0.1", "port": port, "tls": "RELAY_TLS_NONE" });
    let campaign = |subject: &str| {
        let mut schedule = news.clone();
        schedule["name"] = json!("all");
        schedule["timing"] = json!({ "at": "2090-01-01T00:00:00Z" });
        schedule["audience"] = json!({ "sealed": "later" });
        schedule["content"]["subject"] = json!(subject);
        json!({ "schedule": schedule })
    };
    // What the answer is known by, the query, a body, and another one that the same key must not have. An opt-out is
    // the same with any key.
    let cases: BTreeMap<&str, (&str, &str, Value, Value)> = [
        ("CreateSchedule", ("/schedule/number", "", news.clone(), other)),
        (
            "UpdateSchedule",
            ("/schedule/etag", "?updateMask=priority", json!({ "priority": 7 }), json!({ "priority": 8 })),
        ),
        (
            "TriggerSchedule",
            ("/run/run", "", json!({}), json!({ "audience": { "recipients": [{ "address": "c@d.e" }] } })),
        ),
        ("SendTest", ("/run/run", "", test("one"), test("two"))),
        ("SendMessage", ("/message/run/run", "", message("a@example.com"), message("b@example.com"))),
        ("CreateCampaign", ("/campaign/index", "", campaign("one"), campaign("two"))),
        ("AddOptOut", ("/barrier/index", "", json!({ "recipient": "a@b.c" }), Value::Null)),
        ("AddRelay", ("/index", "", relay(2525), relay(2526))),
        ("SetPool", ("/pool/index", "", json!({ "warmUp": [5] }), json!({ "warmUp": [6] }))),
        ("SetTenant", ("/tenant/index", "", json!({ "share": 5 }), json!({ "share": 6 }))),
    ]
    .into();
    let operations = operations(&api.curl_as(&[], "/v1/openapi.json").json());
    let keyed: BTreeSet<&str> = operations.iter().filter(|one| one.has_key).map(|one| one.id.as_str()).collect();
    let tried = cases.keys().copied().chain(REPEATED_ELSEWHERE.map(|(id, _)| id));
    assert_eq!(keyed, tried.collect::<BTreeSet<_>>(), "each request with a key is repeated");

    for operation in operations.iter().filter(|one| one.verb != "GET" && !one.has_key) {
        let arguments = ["-H", "Idempotency-Key: k", "-H", "Idempotency-Key: k"];
        let twice = api.curl(&operation.verb, &operation.at("none"), &arguments);
        let field = &twice.json()["fields"][0];
        assert_eq!((twice.status, &field["field"]), (400, &json!("idempotency-key")), "{}: {twice:?}", operation.id);
        if refuses_key(&operation.id) {
            let refused = api.curl(&operation.verb, &operation.at("none"), &arguments[..2]);
            let field = &refused.json()["fields"][0];
            assert!(text(&field["detail"]).contains("keeps no key"), "{}: {refused:?}", operation.id);
        }
    }
    let call = |id: &str, body: &Value| -> Answer {
        let operation = operations.iter().find(|one| one.id == id).expect("a request");
        let (path, key) = (operation.at("news") + cases[id].1, format!("Idempotency-Key: key-{id}"));
        api.curl(&operation.verb, &path, &["-H", &key, "-d", &body.to_string()])
    };
    let first = ["CreateSchedule"].into_iter().chain(cases.keys().copied().filter(|id| *id != "CreateSchedule"));
    for id in first {
        let (known_by, _, body, other) = &cases[id];
        let created = call(id, body);
        let known = |answer: &Answer| (answer.status, answer.json().pointer(known_by).cloned());
        assert!(created.status == 200 && known(&created).1.is_some(), "{id}: {created:?}");
        let again = call(id, body);
        assert_eq!(known(&again), known(&created), "{id}: {again:?}");
        if !other.is_null() {
            let reused = call(id, other);
            assert_eq!(
                (reused.status, &reused.json()["reason"]),
                (409, &json!("REQUEST_ID_REUSED")),
                "{id}: {reused:?}"
            );
        }
    }
}

/// Calls node after node with the same key until one of them has answered with 200, and then once more. Returns what
/// the answers are known by.
fn insist(
    client: &Curl,
    addresses: &[String],
    (verb, path): (&str, &str),
    key: &str,
    body: &str,
    known_by: &str,
) -> Value {
    let (key, mut first) = (format!("Idempotency-Key: {key}"), None);
    for call in 0..2_000 {
        let address = &addresses[call % addresses.len()];
        match client.call(address, verb, path, &["--max-time", "5", "-H", &key, "-d", body]) {
            Ok(answer) if answer.status == 200 => {
                let Some(last) = answer.last_line() else { continue };
                if let Some(error) = last.get("error") {
                    assert!(RETRIED.contains(&error["status"].as_u64().unwrap_or_default()), "{path}: {last}");
                    continue;
                }
                let known = last.pointer(known_by).cloned().unwrap_or_else(|| panic!("{answer:?}"));
                match first.replace(known.clone()) {
                    None => {}
                    Some(first) => {
                        assert_eq!(known, first, "{path}");
                        return known;
                    }
                }
            }
            Ok(answer) => assert!(RETRIED.contains(&answer.status.into()), "{path}: {answer:?}"),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
    panic!("{path} is never done")
}

/// Statuses after which a call is repeated.
pub const RETRIED: [u64; 3] = [429, 503, 504];
/// Least number of calls of each kind. They go on until both leaders were replaced.
const ROUNDS: usize = 6;

/// The writes with a key, and what the answer of each is known by.
const KEYED_WRITES: [(&str, &str); 12] = [
    ("AddOptOut", "/barrier/index"),
    ("AddRelay", "/index"),
    ("BackfillSchedule", "/firstRun"),
    ("CreateCampaign", "/campaign/index"),
    ("CreateSchedule", "/schedule/number"),
    ("SealAudience", "/audience/index"),
    ("SendMessage", "/message/run/run"),
    ("SendTest", "/run/run"),
    ("SetPool", "/pool/index"),
    ("SetTenant", "/tenant/index"),
    ("TriggerSchedule", "/run/run"),
    ("UpdateSchedule", "/schedule/etag"),
];
/// Writes with a key that are made once in the life of a state, and what tests them.
const ONCE: [(&str, &str); 7] = [
    ("AbortRotation", "rotation.rs"),
    ("DeleteAudience", "tests/audiences.rs of the services"),
    ("DiscardDeadLetters", "tests/dead_letters.rs of the services"),
    ("FinishUpgrade", "upgrade.rs"),
    ("RequeueDeadLetters", "tests/dead_letters.rs of the services"),
    ("ResolveDoubts", "tests/decisions.rs of the services"),
    ("RotateAuthority", "rotation.rs"),
];

/// Returns the name in the path of a write, and its body. Each number is a change of its own. `part` is the hash of a
/// part of an audience.
fn keyed_write(id: &str, number: usize, base: &Value, part: &Value) -> (String, Value) {
    let (name, to) = (format!("n{number}"), format!("u{number}@example.com"));
    let mut schedule = base.clone();
    schedule["name"] = json!(name);
    let body = match id {
        "AddOptOut" => json!({ "recipient": to }),
        // In a pool of its own, so that nothing is sent.
        "AddRelay" => {
            json!({ "name": name, "host": "127.0.0.1", "port": 2525, "tls": "RELAY_TLS_NONE", "pool": "other" })
        }
        "BackfillSchedule" => {
            let month = format!("{}-{:02}", 1950 + number / 12, 1 + number % 12);
            let (from, to) = (format!("{month}-01T00:00:00Z"), format!("{month}-01T23:00:00Z"));
            return ("old".to_owned(), json!({ "startTime": from, "endTime": to }));
        }
        "CreateCampaign" => {
            schedule["name"] = json!(format!("campaign-{number}"));
            schedule["timing"] = json!({ "at": "2090-01-01T00:00:00Z" });
            schedule["audience"] = json!({ "sealed": "later" });
            json!({ "schedule": schedule })
        }
        "CreateSchedule" => schedule,
        "SealAudience" => json!({ "recipients": 1, "columns": [], "parts": [part] }),
        "SendMessage" => json!({ "to": [to], "content": base["content"] }),
        "SendTest" => {
            let mut content = base["content"].clone();
            content["subject"] = json!(name);
            let schedule = json!({ "content": content, "audience": base["audience"] });
            json!({ "schedule": schedule, "finishWithin": "3600s" })
        }
        "SetPool" => json!({ "warmUp": [5] }),
        "SetTenant" => json!({ "share": 5 }),
        "TriggerSchedule" => return ("base".to_owned(), json!({})),
        "UpdateSchedule" => return ("changed".to_owned(), json!({ "labels": { "number": name } })),
        other => panic!("{other} has no body"),
    };
    (name, body)
}

#[test]
fn write_has_one_effect_while_leaders_are_killed() {
    const NAMES: [&str; 3] = ["one", "two", "three"];
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = Process::cluster(folder.path(), NAMES, &[]);
    let client = Curl::of(folder.path(), &nodes[0]);
    let addresses: Vec<String> = nodes.iter().map(|node| node.admin.clone()).collect();
    let call = |verb: &str, path: &str, more: &[&str]| {
        let answer = client.call(&addresses[1], verb, path, more).expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    };
    let operations = operations(&call("GET", "/v1/openapi.json", &[]));
    let keyed: BTreeSet<&str> = operations.iter().filter(|one| one.has_key).map(|one| one.id.as_str()).collect();
    let tried = KEYED_WRITES.iter().chain(&ONCE).map(|(id, _)| *id);
    assert_eq!(keyed, tried.collect::<BTreeSet<_>>(), "each write with a key is repeated");

    let base: Value = serde_json::from_str(&schedule("base")).expect("JSON");
    let mut often = base.clone();
    often["policies"] = json!({ "overlap": "OVERLAP_ALLOW" });
    for name in ["base", "old", "changed"] {
        often["name"] = json!(name);
        call("POST", "/v1/schedules", &["-d", &often.to_string()]);
    }
    let part = ["-H", "Content-Type: text/csv", "--data-binary", "email\nann@example.com\n"];
    let part = call("POST", "/v1/audience-parts", &part)["part"].clone();
    let version = || -> u64 {
        let changed = call("GET", "/v1/schedules/changed", &[]);
        let etag = text(&changed["schedule"]["etag"]);
        etag.rsplit('.').next().and_then(|version| version.parse().ok()).expect("a version")
    };
    let (first_version, is_over) = (version(), AtomicBool::new(false));
    let answers = std::thread::scope(|scope| {
        let calls = KEYED_WRITES.map(|(id, known_by)| {
            let (client, addresses, base, part, is_over) = (&client, &addresses, &base, &part, &is_over);
            let operation = operations.iter().find(|one| one.id == id).expect("a request");
            scope.spawn(move || -> Vec<Value> {
                let one = |number: usize| {
                    let (name, body) = keyed_write(id, number, base, part);
                    let mask = if id == "UpdateSchedule" { "?updateMask=labels" } else { "" };
                    let path = operation.at(&name) + mask;
                    let request = (operation.verb.as_str(), path.as_str());
                    insist(client, addresses, request, &format!("{id}-{number}"), &body.to_string(), known_by)
                };
                (0..).take_while(|number| *number < ROUNDS || !is_over.load(Ordering::Relaxed)).map(one).collect()
            })
        });
        for _ in 0..2 {
            Process::replace_leader(&mut nodes, NAMES);
        }
        is_over.store(true, Ordering::Relaxed);
        calls.map(|call| call.join().expect("each is done"))
    });
    let answers: BTreeMap<&str, &Vec<Value>> = KEYED_WRITES.iter().map(|(id, _)| *id).zip(&answers).collect();
    for (id, known) in &answers {
        let distinct: BTreeSet<String> = known.iter().map(Value::to_string).collect();
        assert_eq!(distinct.len(), known.len(), "each {id} is its own: {known:?}");
    }
    let count = |id: &str| answers[id].len();
    let rows = |path: &str, rows: &str| {
        let answer = call("GET", &format!("{path}?pageSize=1000"), &[]);
        answer[rows].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    };
    let opened: BTreeSet<String> = rows("/v1/runs", "runs").iter().map(|run| text(&run["run"])).collect();
    let of_runs = ["BackfillSchedule", "SendMessage", "SendTest", "TriggerSchedule"];
    let answered: BTreeSet<String> = of_runs.iter().flat_map(|id| answers[id]).map(text).collect();
    assert_eq!(opened, answered, "one run for each call");
    for (path, list, expected) in [
        ("/v1/opt-outs", "optOuts", count("AddOptOut")),
        ("/v1/relays", "relays", count("AddRelay")),
        ("/v1/campaigns", "campaigns", count("CreateCampaign")),
        ("/v1/schedules", "schedules", count("CreateSchedule") + 3),
        ("/v1/audiences", "audiences", count("SealAudience")),
        // The relays are in another one.
        ("/v1/pools", "pools", count("SetPool") + 1),
        // `default` has all else.
        ("/v1/tenants", "tenants", count("SetTenant") + 1),
    ] {
        assert_eq!(rows(path, list).len(), expected, "{path}");
    }
    assert_eq!(version(), first_version + count("UpdateSchedule") as u64, "one change for each call");
}

//! The API in JSON over HTTP, called by `curl` as an application would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::process::{Process, until};

/// A node with its CA and a token in files.
pub struct Api {
    pub node: Process,
    pub folder: tempfile::TempDir,
    pub client: Curl,
}

/// A client of the API: `curl` with a CA in a file and a token.
#[derive(Clone)]
pub struct Curl {
    ca: PathBuf,
    pub token: String,
}

/// A response: status, headers in lower case, and the body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    body: String,
}

impl Answer {
    /// Reads what `curl --include` printed. `None`: there was no answer.
    pub fn of(printed: &[u8]) -> Option<Answer> {
        let (headers, body) = std::str::from_utf8(printed).expect("text").split_once("\r\n\r\n")?;
        let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        Some(Answer { status, headers: headers.to_lowercase(), body: body.to_owned() })
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns the last line of a stream, or the whole of another answer. `None`: it broke off.
    pub fn last_line(&self) -> Option<Value> {
        serde_json::from_str(self.body.lines().last()?).ok()
    }
}

impl Curl {
    /// Makes a token of this cluster.
    pub fn of(folder: &Path, node: &Process) -> Curl {
        let ca = node.reveille("context show -o json");
        let ca: Value = serde_json::from_str(&ca.stdout).unwrap_or_else(|_| panic!("{ca:?}"));
        let file = folder.join("ca.pem");
        fs::write(&file, ca["ca"].as_str().unwrap_or_default()).expect("written");
        let client = Curl { ca: file, token: String::new() };
        client.with_token(node, "app --role admin --all-tenants")
    }

    /// Returns the same client with a new token.
    pub fn with_token(&self, node: &Process, flags: &str) -> Curl {
        let created = node.reveille(&format!("token create {flags} -o json"));
        let created: Value = serde_json::from_str(&created.stdout).unwrap_or_else(|_| panic!("{created:?}"));
        Curl { ca: self.ca.clone(), token: created["secret"].as_str().expect("a token").to_owned() }
    }

    /// Calls the API of the node at `address` with the token. An error is what `curl` says if there is no answer.
    pub fn call(&self, address: &str, verb: &str, path: &str, more: &[&str]) -> Result<Answer, String> {
        Curl::answer(self.command(address, verb, path, more))
    }

    /// Returns the command that calls the API of the node at `address` with the token.
    pub fn command(&self, address: &str, verb: &str, path: &str, more: &[&str]) -> Command {
        let token = format!("Authorization: Bearer {}", self.token);
        self.command_as(address, &[&["-X", verb, "-H", &token], more].concat(), path)
    }

    fn command_as(&self, address: &str, arguments: &[&str], path: &str) -> Command {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--include", "--max-time", "60", "--cacert"])
            .arg(&self.ca)
            .args(arguments)
            .arg(format!("https://{address}{path}"));
        command
    }

    fn answer(mut command: Command) -> Result<Answer, String> {
        let out = command.output().expect("curl runs");
        Answer::of(&out.stdout).ok_or_else(|| String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
    }
}

impl Api {
    pub fn start() -> Api {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Process::listening(folder.path(), "one");
        until("a leader", || node.reveille("schedule list").code == Some(0));
        let client = Curl::of(folder.path(), &node);
        Api { node, folder, client }
    }

    /// Calls the API by `curl` with these further arguments.
    pub fn curl(&self, verb: &str, path: &str, more: &[&str]) -> Answer {
        self.client
            .call(&self.node.admin, verb, path, more)
            .unwrap_or_else(|said| panic!("{verb} {path} {more:?}: {said}"))
    }

    pub fn curl_as(&self, arguments: &[&str], path: &str) -> Answer {
        Curl::answer(self.client.command_as(&self.node.admin, arguments, path)).unwrap_or_else(|said| panic!("{said}"))
    }
}

pub fn schedule(name: &str) -> String {
    json!({
        "name": name,
        "timing": { "daily": { "hour": 8 } },
        "zone": "Europe/Berlin",
        "content": { "sender": "news@example.com", "subject": "Good morning", "text": "Hello." },
        "audience": { "recipients": [{ "address": "ann@example.com" }] },
    })
    .to_string()
}

#[test]
fn schedule_is_created_read_changed_and_triggered_by_curl() {
    let api = Api::start();
    let key = ["-H", "Idempotency-Key: one", "-d"];
    let created = api.curl("POST", "/v1/schedules", &[&key[..], &[&schedule("morning")]].concat());
    assert_eq!(created.status, 200, "{created:?}");
    assert_eq!(created.json()["schedule"]["name"], "morning");
    let again = api.curl("POST", "/v1/schedules", &[&key[..], &[&schedule("morning")]].concat());
    let number = |answer: &Answer| answer.json()["schedule"]["number"].clone();
    assert_eq!((again.status, number(&again)), (200, number(&created)), "the same key and body: {again:?}");
    let other = api.curl("POST", "/v1/schedules", &[&key[..], &[&schedule("evening")]].concat());
    assert_eq!((other.status, &other.json()["reason"]), (409, &json!("REQUEST_ID_REUSED")), "{other:?}");

    let read = api.curl("GET", "/v1/schedules/morning?withBody=true", &["--http1.1"]);
    assert_eq!((read.status, &read.json()["body"]["content"]["subject"]), (200, &json!("Good morning")), "{read:?}");
    let etag = format!("\"{}\"", read.json()["schedule"]["etag"].as_str().expect("an etag"));
    assert!(read.headers.contains(&format!("etag: {etag}")), "{read:?}");
    let zone = json!({ "zone": "Asia/Tokyo" }).to_string();
    let change = |etag: &str| {
        let condition = format!("If-Match: {etag}");
        api.curl("PATCH", "/v1/schedules/morning?updateMask=zone", &["-H", &condition, "-d", &zone])
    };
    let changed = change(&etag);
    assert_eq!((changed.status, &changed.json()["schedule"]["zone"]), (200, &json!("Asia/Tokyo")), "{changed:?}");
    let late = change(&etag);
    assert_eq!((late.status, &late.json()["reason"]), (412, &json!("ETAG_MISMATCH")), "{late:?}");
    assert_eq!(change("*").status, 200);
    let label = |mask: &str, labels: Value| {
        let path = format!("/v1/schedules/morning?updateMask={mask}");
        let changed = api.curl("PATCH", &path, &["-d", &json!({ "labels": labels }).to_string()]);
        assert_eq!(changed.status, 200, "{changed:?}");
        changed.json()["schedule"]["labels"].clone()
    };
    label("labels", json!({ "costCenter": "1", "cost_center": "keep" }));
    let labels = label("labels.costCenter", json!({ "costCenter": "NEW" }));
    assert_eq!(labels, json!({ "costCenter": "NEW", "cost_center": "keep" }), "another label stays");

    let run = api.curl("POST", "/v1/schedules/morning/trigger", &["-H", "Idempotency-Key: 2026-W47"]);
    assert_eq!(run.status, 200, "{run:?}");
    let again = api.curl("POST", "/v1/schedules/morning/trigger", &["-H", "Idempotency-Key: 2026-W47"]);
    assert_eq!(again.json()["run"]["run"], run.json()["run"]["run"]);
    let run = run.json()["run"]["run"].as_str().expect("a run").to_owned();
    assert_eq!(api.curl("GET", &format!("/v1/runs/{run}"), &[]).status, 200);
    assert_eq!(api.curl("POST", &format!("/v1/runs/{run}/cancel"), &["-d", "{}"]).status, 200);
    // The command line prints the same JSON.
    let of_http = api.curl("GET", &format!("/v1/runs/{run}"), &[]).json()["run"].clone();
    let of_command = |line: &str| -> Value {
        let ended = api.node.reveille(line);
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
    };
    assert_eq!(of_command(&format!("run show {run} -o json")), of_http);
    assert_eq!(of_command("run list -o json"), json!([of_http]));
    let recipients = format!("/v1/runs/{run}/recipients");
    let cancelled = api.curl("GET", &format!("{recipients}?states=RECIPIENT_STATE_CANCELLED&pageSize=1"), &[]);
    assert_eq!(cancelled.json()["recipients"][0]["address"], "ann@example.com", "{cancelled:?}");
    let dead = api.curl("GET", &format!("{recipients}?states=RECIPIENT_STATE_DEAD"), &[]);
    assert_eq!((dead.status, &dead.json()["recipients"]), (200, &json!([])), "{dead:?}");
    let exported = api.curl("GET", &format!("{recipients}/export"), &[]);
    assert!(exported.headers.contains("application/jsonl"), "{exported:?}");
    assert_eq!(exported.json()["state"], "RECIPIENT_STATE_CANCELLED", "one recipient is one line: {exported:?}");
    let exported = api.curl("GET", &format!("{recipients}/export"), &["-H", "Accept: text/csv;q=1, */*"]);
    assert!(exported.headers.contains("text/csv"), "{exported:?}");
    let rows: Vec<&str> = exported.body.lines().collect();
    assert!(rows.len() == 2 && rows[0].starts_with("number,address,state,"), "{exported:?}");
    assert!(rows[1].starts_with("0,") && rows[1].contains(",RECIPIENT_STATE_CANCELLED,"), "{exported:?}");
    let none = format!("{recipients}/export?states=RECIPIENT_STATE_SENT");
    let none = api.curl("GET", &none, &["-H", "Accept: text/csv"]);
    assert_eq!((none.status, none.body.lines().collect::<Vec<_>>()), (200, vec![rows[0]]), "only the headings");
    let refused = api.curl("GET", "/v1/runs/r1.99/recipients/export", &["-H", "Accept: text/csv"]);
    assert_eq!((refused.status, &refused.json()["reason"]), (404, &json!("RUN_NOT_FOUND")));
    let watched = api.curl("GET", &format!("/v1/runs/{run}/watch"), &[]);
    assert!(watched.headers.contains("application/jsonl"), "{watched:?}");
    assert!(watched.body.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{watched:?}");
    let condition = format!("If-Match: {etag}");
    let late = api.curl("DELETE", "/v1/schedules/morning", &["-H", &condition]);
    assert_eq!((late.status, &late.json()["reason"]), (412, &json!("ETAG_MISMATCH")), "{late:?}");
    assert_eq!(api.curl("DELETE", "/v1/schedules/morning", &["-H", "If-Match: *"]).status, 200);
}

#[test]
fn etag_of_each_kind_is_a_condition_of_its_changes() {
    let api = Api::start();
    let relay = |weight: u32| json!({ "host": "127.0.0.1", "port": 2525, "tls": "RELAY_TLS_NONE", "weight": weight, "name": "r" });
    let mut campaign: Value = serde_json::from_str(&schedule("spring")).expect("JSON");
    campaign["timing"] = json!({ "at": "2090-01-01T00:00:00Z" });
    campaign["audience"] = json!({ "sealed": "later" });
    let campaign = json!({ "schedule": campaign }).to_string();
    assert_eq!(api.curl("POST", "/v1/relays", &["-d", &relay(1).to_string()]).status, 200);
    assert_eq!(api.curl("POST", "/v1/campaigns", &["-d", &campaign]).status, 200);
    assert_eq!(api.curl("PUT", "/v1/tenants/acme", &["-H", "If-None-Match: *", "-d", "{\"share\": 2}"]).status, 200);
    assert_eq!(api.curl("PUT", "/v1/pools/bulk", &["-H", "If-None-Match: *", "-d", "{\"warmUp\": [2]}"]).status, 200);
    for (path, change, body) in [
        // First, since it needs the relay.
        ("/v1/campaigns/spring", ("POST", "/v1/campaigns/spring/launch"), json!({})),
        ("/v1/relays/r", ("POST", "/v1/relays?replace=true"), relay(2)),
        ("/v1/tenants/acme", ("PUT", "/v1/tenants/acme"), json!({ "share": 3 })),
        ("/v1/pools/bulk", ("PUT", "/v1/pools/bulk"), json!({ "warmUp": [3] })),
    ] {
        let etag_of = |answer: &Answer| {
            let header = answer.headers.lines().find_map(|line| line.strip_prefix("etag: "));
            header.unwrap_or_else(|| panic!("{answer:?}")).to_owned()
        };
        let condition = |etag: &str| format!("If-Match: {etag}");
        let read = condition(&etag_of(&api.curl("GET", path, &[])));
        let stale = |answer: Answer| {
            assert_eq!((answer.status, &answer.json()["reason"]), (412, &json!("ETAG_MISMATCH")), "{path}: {answer:?}");
        };
        let (verb, to) = change;
        stale(api.curl(verb, to, &["-H", "If-Match: \"9.9.9\"", "-d", &body.to_string()]));
        let changed = api.curl(verb, to, &["-H", &read, "-d", &body.to_string()]);
        assert_eq!(changed.status, 200, "{path}: {changed:?}");
        stale(api.curl("DELETE", path, &["-H", &read]));
        if verb == "PUT" {
            let other = body.to_string().replace('3', "4");
            stale(api.curl(verb, to, &["-H", "If-None-Match: *", "-d", &other]));
        }
        if path == "/v1/campaigns/spring" {
            assert_eq!(api.curl("POST", "/v1/campaigns/spring/cancel", &["-d", "{}"]).status, 200);
        }
        let present = condition(&etag_of(&api.curl("GET", path, &[])));
        let removed = api.curl("DELETE", path, &["-H", &present]);
        assert_eq!(removed.status, 200, "{path}: {removed:?}");
    }
}

#[test]
fn template_is_put_used_and_shown_by_curl() {
    let api = Api::start();
    let content =
        |subject: &str| json!({ "sender": "news@example.com", "subject": subject, "text": "Hi." }).to_string();
    let created = api.curl("PUT", "/v1/templates/welcome", &["-d", &content("Hello {{ name }}")]);
    assert_eq!((created.status, &created.json()["version"]), (200, &json!(1)), "{created:?}");
    let etag = format!("If-Match: \"{}\"", created.json()["template"]["etag"].as_str().expect("an etag"));
    let changed = api.curl("PUT", "/v1/templates/welcome", &["-H", &etag, "-d", &content("Hello")]);
    assert_eq!((changed.status, &changed.json()["version"]), (200, &json!(2)), "{changed:?}");
    let new = ["-H", "If-None-Match: *", "-d", &content("Bye")];
    let known = api.curl("PUT", "/v1/templates/welcome", &new);
    assert_eq!((known.status, &known.json()["reason"]), (412, &json!("ETAG_MISMATCH")), "{known:?}");
    let late = api.curl("PUT", "/v1/templates/welcome", &["-H", &etag, "-d", &content("Bye")]);
    assert_eq!((late.status, &late.json()["reason"]), (412, &json!("ETAG_MISMATCH")), "{late:?}");
    let wrong = api.curl("PUT", "/v1/templates/wrong", &["-d", &content("{{ unclosed")]);
    assert_eq!((wrong.status, &wrong.json()["fields"][0]["field"]), (400, &json!("subject")), "{wrong:?}");
    let values = json!({ "version": 1, "values": { "name": "Ann" } }).to_string();
    let preview = api.curl("POST", "/v1/templates/welcome/preview", &["-d", &values]);
    assert_eq!(preview.json()["subject"], "Hello Ann", "{preview:?}");
    let mut body: Value = serde_json::from_str(&schedule("morning")).expect("JSON");
    body.as_object_mut().expect("an object").remove("content");
    body["template"] = json!("welcome");
    let created = api.curl("POST", "/v1/schedules", &["-d", &body.to_string()]);
    assert_eq!(created.json()["schedule"]["template"], "welcome@2", "{created:?}");
    let used = api.curl("DELETE", "/v1/templates/welcome", &[]);
    assert_eq!((used.status, &used.json()["reason"]), (409, &json!("IN_USE")), "{used:?}");
    assert_eq!(used.json()["schedule"], "morning");
    let late = api.curl("DELETE", "/v1/templates/welcome", &["-H", &etag]);
    assert_eq!((late.status, &late.json()["reason"]), (412, &json!("ETAG_MISMATCH")), "{late:?}");
    let shown = api.curl("GET", "/v1/templates/welcome?version=1", &[]);
    assert_eq!(shown.json()["content"]["subject"], "Hello {{ name }}", "{shown:?}");
}

#[test]
fn error_is_a_problem_that_names_the_field() {
    let api = Api::start();
    let problem = |answer: Answer| {
        assert!(answer.headers.contains("application/problem+json"), "{answer:?}");
        assert_eq!(answer.json()["status"], answer.status, "{answer:?}");
        (answer.status, answer.json())
    };
    let bad_zone = schedule("morning").replace("Europe/Berlin", "Europe/Berlni");
    let (status, wrong) = problem(api.curl("POST", "/v1/schedules", &["-d", &bad_zone]));
    assert_eq!((status, &wrong["reason"]), (400, &json!("UNKNOWN_ZONE")));
    assert_eq!(wrong["fields"][0]["field"], "zone", "{wrong}");
    for (body, field, says) in [
        ("{", "body", "is not JSON"),
        ("[]", "body", "expected"),
        (r#"{"nmae":"x"}"#, "nmae", "is not a field"),
        (r#"{"name":7}"#, "name", "7"),
        (r#"{"policies":{"overlap":"X"}}"#, "policies.overlap", "X"),
    ] {
        let (status, wrong) = problem(api.curl("POST", "/v1/schedules", &["-d", body]));
        assert_eq!((status, &wrong["fields"][0]["field"]), (400, &json!(field)), "{wrong}");
        assert!(wrong["detail"].as_str().is_some_and(|detail| detail.contains(says)), "{says}: {wrong}");
    }
    let (status, missing) = problem(api.curl("GET", "/v1/schedules/none", &[]));
    assert_eq!((status, &missing["reason"]), (404, &json!("SCHEDULE_NOT_FOUND")));
    let (status, no_path) = problem(api.curl("GET", "/v1/schedule", &[]));
    assert_eq!((status, &no_path["reason"]), (404, &json!("NO_SUCH_CALL")));
    let wrong_verb = api.curl("PUT", "/v1/runs", &["-d", "{}"]);
    assert!(wrong_verb.headers.contains("allow: get"), "{wrong_verb:?}");
    assert_eq!(problem(wrong_verb).0, 405);
    let head = api.curl("HEAD", "/v1/runs", &["--head"]);
    assert_eq!((head.status, head.body.as_str()), (200, ""), "{head:?}");
    let (status, wrong) = problem(api.curl("GET", "/v1/runs?pageSize=many", &[]));
    assert_eq!((status, &wrong["fields"][0]["field"]), (400, &json!("pageSize")), "{wrong}");
    assert_eq!(problem(api.curl("GET", "/v1/runs?nothing=1", &[])).0, 400);
    assert_eq!(problem(api.curl("GET", "/v1/runs", &["-H", "If-Match: \"7\""])).0, 400, "a condition is never ignored");

    let stranger = api.curl_as(&["-H", "Authorization: Bearer rvt_nothing"], "/v1/schedules");
    assert!(stranger.headers.contains("www-authenticate: bearer"), "{stranger:?}");
    assert_eq!(problem(stranger).0, 401);
    assert_eq!(problem(api.curl_as(&[], "/v1/cluster")).0, 401);
    let page = ["-H", "Origin: https://page.example.com"];
    for (verb, more) in [("GET", &[][..]), ("OPTIONS", &["-H", "Access-Control-Request-Method: POST"])] {
        let of_page = api.curl(verb, "/v1/schedules", &[&page[..], more].concat());
        assert!(!of_page.headers.contains("access-control"), "{of_page:?}");
        assert_eq!(problem(of_page).0, 403, "a page in a browser");
    }
    // A page whose name means this machine needs no leave of its browser, whatever the type of its content is.
    let grpc = "/reveille.admin.v1.RelayService/AddRelay";
    let grpc = |more: &[&str]| {
        let frame = ["--http1.1", "-H", "Content-Type: application/grpc", "--data-binary", "\u{1}"];
        problem(api.curl("POST", grpc, &[&frame[..], more].concat())).0
    };
    assert_eq!((grpc(&page), grpc(&[])), (403, 404), "gRPC needs HTTP/2");
}

#[test]
fn audience_is_uploaded_in_parts_by_curl() {
    let api = Api::start();
    let put = |kind: &str, text: &str| {
        let kind = format!("Content-Type: {kind}");
        api.curl("POST", "/v1/audience-parts", &["-H", &kind, "--data-binary", text])
    };
    let csv = put("text/csv; charset=utf-8", "email,name\nann@example.com,Ann\nbob@example.com,Bob\n");
    assert_eq!((csv.status, &csv.json()["recipients"]), (200, &json!(2)), "{csv:?}");
    assert_eq!(csv.json()["columns"], json!(["name"]));
    let line = |name: &str| json!({ "address": format!("{name}@example.com").to_lowercase(), "values": [name] });
    let lines = put("application/jsonl", &format!("{}\n{}\n", line("Ann"), line("Bob")));
    assert_eq!(lines.json()["part"], csv.json()["part"], "equal recipients are one part: {lines:?}");

    let seal = |parts: &[&Value], recipients: u32| {
        let body = json!({ "recipients": recipients, "columns": ["name"], "parts": parts }).to_string();
        let sealed = api.curl("POST", "/v1/audiences/subscribers/seal", &["-H", "Idempotency-Key: s", "-d", &body]);
        let last = sealed.body.lines().last().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        (sealed.status, last.unwrap_or_default())
    };
    let part = csv.json()["part"].clone();
    let (status, refused) = seal(&[&part], 3);
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("has 2 recipients, not 3")), "{refused}");
    assert_eq!((status, &refused["fields"][0]["field"]), (400, &json!("parts")), "{refused}");
    let (status, sealed) = seal(&[&part], 2);
    assert_eq!((status, &sealed["audience"]["recipients"]), (200, &json!(2)), "{sealed}");
    assert_eq!(seal(&[&part], 2).1["audience"], sealed["audience"], "a repeat");

    let wrong = put("text/csv", "email\nann@example.com\nbob\nann@example.com\n");
    let lines: Vec<Value> =
        wrong.json()["fields"].as_array().expect("fields").iter().map(|one| one["field"].clone()).collect();
    assert_eq!((wrong.status, lines), (400, vec![json!("line 3"), json!("line 4")]), "{wrong:?}");
    let kind = put("application/x-www-form-urlencoded", "email\nann@example.com\n");
    assert_eq!((kind.status, &kind.json()["fields"][0]["field"]), (400, &json!("content-type")), "{kind:?}");
    let gzip = ["-H", "Content-Type: text/csv", "-H", "Content-Encoding: gzip", "--data-binary", "email"];
    let gzip = api.curl("POST", "/v1/audience-parts", &gzip);
    assert_eq!((gzip.status, &gzip.json()["reason"]), (415, &json!("UNSUPPORTED_ENCODING")), "{gzip:?}");
    let query = api.curl("POST", "/v1/audience-parts?number=1", &["-H", "Content-Type: text/csv", "-d", "email"]);
    assert_eq!(query.status, 400, "{query:?}");
}

#[test]
fn token_of_one_tenant_reads_no_other_over_http() {
    let mut api = Api::start();
    let of = |tenant: &str| schedule("news").replace(r#""name":"#, &format!(r#""tenant":"{tenant}","name":"#));
    for tenant in ["red", "blue"] {
        assert_eq!(api.curl("POST", "/v1/schedules", &["-d", &of(tenant)]).status, 200);
    }
    api.client = api.client.with_token(&api.node, "red --role editor --tenant red");
    assert_eq!(api.curl("GET", "/v1/schedules/news?tenant=red", &[]).status, 200);
    assert_eq!(api.curl("GET", "/v1/schedules/news?tenant=blue", &[]).status, 403);
    assert_eq!(api.curl("POST", "/v1/schedules", &["-d", &of("blue")]).status, 403);
    assert_eq!(api.curl("GET", "/v1/cluster", &[]).status, 403);
}

/// Returns the events of a response.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["events"].as_array().expect("events").clone()
}

#[test]
fn events_are_read_after_a_cursor_and_of_own_tenant_only() {
    let mut api = Api::start();
    for tenant in ["red", "blue"] {
        let body = schedule("news").replace(r#""name":"#, &format!(r#""tenant":"{tenant}","name":"#));
        assert_eq!(api.curl("POST", "/v1/schedules", &["-d", &body]).status, 200);
        let trigger = format!("/v1/schedules/news/trigger?tenant={tenant}");
        assert_eq!(api.curl("POST", &trigger, &["-H", "Idempotency-Key: one"]).status, 200);
    }
    let all = |role: &str, tenant: &str| {
        let created = api.node.reveille(&format!("token create {role} --role {role} --tenant {tenant} -o json"));
        let created: Value = serde_json::from_str(&created.stdout).unwrap_or_else(|_| panic!("{created:?}"));
        created["secret"].as_str().expect("a token").to_owned()
    };
    let (viewer, pii) = (all("viewer", "red"), all("pii", "red"));
    api.client.token = viewer;
    let begin = api.curl("GET", "/v1/events?tenant=red", &[]);
    let opened = events(&begin);
    assert_eq!((opened.len(), &opened[0]["type"]), (1, &json!("EVENT_TYPE_RUN_OPENED")), "{begin:?}");
    assert_eq!((&opened[0]["tenant"], &opened[0]["schedule"]), (&json!("red"), &json!("news")));
    for path in ["/v1/events", "/v1/events?tenant=blue", "/v1/events/watch?tenant=blue"] {
        let foreign = api.curl("GET", path, &[]);
        assert_eq!((foreign.status, &foreign.json()["reason"]), (403, &json!("NOT_PERMITTED")), "{path}: {foreign:?}");
    }
    for header in ["Authorization: Bearer rvt_nothing", "X-None: 1"] {
        assert_eq!(api.curl_as(&["-H", header], "/v1/events?tenant=red").status, 401, "{header}");
    }
    for wrong in ["after=x", "after=99999999", "wait=61s", "types=NONE", "pageSize=-1"] {
        assert_eq!(api.curl("GET", &format!("/v1/events?tenant=red&{wrong}"), &[]).status, 400, "{wrong}");
    }

    // It waits for the next event, which is the end of the run after its cancellation.
    let cursor = begin.json()["cursor"].as_str().expect("a cursor").to_owned();
    let next =
        format!("/v1/events?tenant=red&after={cursor}&wait=60s&types=EVENT_TYPE_RECIPIENTS_CANCELLED&single=true");
    let run = opened[0]["run"].as_str().expect("a run").to_owned();
    let waited = std::thread::scope(|scope| {
        let waited = scope.spawn(|| api.curl("GET", &next, &[]));
        std::thread::sleep(std::time::Duration::from_millis(500));
        let cancelled = api.node.reveille(&format!("run cancel {run} --tenant red --yes"));
        assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
        waited.join().expect("an answer")
    });
    let cancelled = events(&waited);
    assert_eq!((cancelled.len(), &cancelled[0]["numbers"]), (1, &json!("0")), "{waited:?}");
    assert_eq!(cancelled[0]["addresses"], json!([]), "a viewer reads no addresses");
    api.client.token = pii;
    let with_address = events(&api.curl("GET", &next, &[]));
    assert_eq!(with_address[0]["addresses"], json!(["ann@example.com"]));

    let lines = api.curl("GET", "/v1/events/watch?tenant=red", &["--max-time", "3"]);
    assert!(lines.headers.contains("application/jsonl"), "{lines:?}");
    let lines = lines.body.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let watched: Vec<Value> = lines.map(|line| line["event"].clone()).filter(Value::is_object).collect();
    assert_eq!(watched, events(&api.curl("GET", "/v1/events?tenant=red", &[])));
}

#[test]
fn description_names_every_path_and_each_reference_exists() {
    let api = Api::start();
    let document = api.curl_as(&[], "/v1/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/schedules/{name}"]["get"].is_object(), "{document}");
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap_or_default();
        assert!(schemas.get(name).is_some_and(Value::is_object), "{name}");
    }
}

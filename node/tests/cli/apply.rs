//! `apply` and `diff`: the documents that are read, the requests that are sent, and the output.

use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tonic::Code;

use crate::fake::{Fake, one, refusal, refusal_of, unknown};
use crate::terminal::{Ended, STEP_TIMEOUT, command, run};

const NEWS: &str = "\
kind: schedule
name: morning
daily: 09:00
days: mon-fri
tz: Europe/Berlin
recipients: people.csv
sender: News <news@example.com>
subject: Good morning, {{ name }}
text: body.txt
var: {city: Rome, team: \"7\"}
catch_up: none
min_gap: none
jitter: 10m
---
# The relay that takes it.
kind: relay
name: main
host: 127.0.0.1
port: 2525
rate: 50
";

/// Creates a folder with a document and the files that it names.
fn folder(document: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("news.yaml", document);
    write("people.csv", "email,name\nann@example.com,Ann\n");
    write("body.txt", "Good morning {{ name }},\nhello\n");
    folder
}

async fn reveille(fake: Option<&Fake>, verb: &str, file: &Path, more: &[&str]) -> Ended {
    // No process listens on port 1, so a command that must not send requests fails if it does.
    let address = fake.map_or("127.0.0.1:1".to_owned(), |fake| fake.address().to_string());
    let file = file.display().to_string();
    let verb: Vec<&str> = verb.split(' ').collect();
    let all = [&["--endpoint", &address], verb.as_slice(), &["-f", &file], more].concat();
    run(&mut command(&all)).await
}

/// Starts a fake cluster that stores what it gets, like a real one. It refuses a schedule named `bad`. It refuses one
/// named `late` only when it is created, not in a dry run.
async fn remembering() -> Fake {
    let schedules = Mutex::new(Vec::<v1::ScheduleBody>::new());
    let relays = Mutex::new(Vec::<v1::Relay>::new());
    let of = |body: &v1::ScheduleBody| v1::Schedule {
        name: body.name.clone(),
        etag: format!("e{}", body.priority),
        state: if body.paused.is_some() { v1::ScheduleState::Paused } else { v1::ScheduleState::Active }.into(),
        ..v1::Schedule::default()
    };
    Fake::start(move |method, bytes| {
        let (mut schedules, mut relays) = (schedules.lock().expect("unpoisoned"), relays.lock().expect("unpoisoned"));
        match method {
            "UpdateSchedule" => {
                let request = v1::UpdateScheduleRequest::decode(bytes).expect("a request");
                let body = request.schedule.expect("a body");
                let missing = || refusal(Code::NotFound, "SCHEDULE_NOT_FOUND", "no schedule of that name");
                let known = schedules.iter_mut().find(|known| known.name == body.name).ok_or_else(missing)?;
                let (former, body) = (known.clone(), v1::ScheduleBody { paused: known.paused.clone(), ..body });
                if !request.validate_only {
                    assert_eq!(request.etag, of(&former).etag, "made on what was seen");
                    *known = body.clone();
                }
                one(v1::UpdateScheduleResponse {
                    schedule: Some(of(&body)),
                    former: Some(of(&former)),
                    body: Some(body),
                    former_body: Some(former),
                    ..Default::default()
                })
            }
            "CreateSchedule" => {
                let request = v1::CreateScheduleRequest::decode(bytes).expect("a request");
                let body = request.schedule.expect("a body");
                if body.name == "bad" {
                    return Err(refusal_of("UNKNOWN_ZONE", "schedule.zone", "no zone 'Europe/Berlim'"));
                }
                if body.name == "late" && !request.validate_only {
                    return Err(refusal(Code::FailedPrecondition, "NOT_POSSIBLE", "it came in between"));
                }
                let schedule = Some(of(&body));
                if !request.validate_only {
                    schedules.push(body);
                }
                one(v1::CreateScheduleResponse { schedule, created: !request.validate_only, ..Default::default() })
            }
            "GetRelay" => {
                let request = v1::GetRelayRequest::decode(bytes).expect("a request");
                let missing = || refusal(Code::NotFound, "RELAY_NOT_FOUND", "no relay of that name");
                let known = relays.iter().find(|known| known.name == request.name).ok_or_else(missing)?;
                one(v1::GetRelayResponse { relay: Some(known.clone()), freshness: None })
            }
            "AddRelay" => {
                let request = v1::AddRelayRequest::decode(bytes).expect("a request");
                let relay = v1::Relay { max_sessions: 8, ..request.relay.expect("a relay") };
                if !request.validate_only {
                    relays.retain(|known| known.name != relay.name);
                    relays.push(relay.clone());
                }
                one(v1::AddRelayResponse { relay: Some(relay), index: 1 })
            }
            _ => Err(unknown(method)),
        }
    })
    .await
}

fn outcomes(ended: &Ended) -> Vec<String> {
    let rows = ended.json();
    let word = |row: &Value| format!("{}/{} {}", row["kind"], row["name"], row["outcome"]).replace('"', "");
    rows.as_array().expect("an array").iter().map(word).collect()
}

#[tokio::test]
async fn twice_changes_nothing_and_an_edit_changes_what_it_names() {
    let folder = folder(NEWS);
    let file = folder.path().join("news.yaml");
    let fake = remembering().await;
    let first = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(outcomes(&first), ["schedule/morning created", "relay/main created"]);
    let created: Vec<v1::CreateScheduleRequest> = fake.requests("CreateSchedule");
    let body = created.last().and_then(|request| request.schedule.clone()).expect("a body");
    let content = body.content.clone().expect("content");
    assert_eq!(content.text.as_deref(), Some("Good morning {{ name }},\nhello\n"), "beside the document");
    assert_eq!(content.variables.len(), 2);
    assert_eq!(body.policies.map(|policies| policies.catch_up()), Some(v1::CatchUp::None));
    assert_eq!(body.audience.map(|audience| audience.columns), Some(vec!["name".to_owned()]));
    // A request that creates has an id, so that it can be repeated. A dry run has none.
    let ids: Vec<bool> = created.iter().map(|request| request.request_id.is_empty()).collect();
    assert_eq!(ids, [true, true, false]);

    let second = reveille(Some(&fake), "schedule apply", &file, &["-o", "json"]).await;
    assert_eq!(outcomes(&second), ["schedule/morning unchanged", "relay/main unchanged"], "{second:?}");

    let edited = NEWS.replace("days: mon-fri", "priority: 3").replace("rate: 50", "rate: 60");
    std::fs::write(&file, edited).expect("written");
    let third = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!(outcomes(&third), ["schedule/morning updated", "relay/main updated"], "{third:?}");
    let changes = json!([
        { "field": "priority", "from": 0, "to": 3 },
        { "field": "days", "from": "mon,tue,wed,thu,fri", "to": null },
    ]);
    assert_eq!(third.json()[0]["changes"], changes);
    let updates: Vec<v1::UpdateScheduleRequest> = fake.requests("UpdateSchedule");
    assert!(updates.iter().all(|update| update.update_mask.as_ref().is_some_and(|mask| mask.paths.len() >= 10)));
}

#[tokio::test]
async fn dry_run_and_diff_change_nothing_and_diff_has_its_exit_code() {
    let folder = folder(NEWS);
    let file = folder.path().join("news.yaml");
    let fake = remembering().await;
    let dry = reveille(Some(&fake), "apply", &file, &["--dry-run", "-o", "json"]).await;
    assert_eq!(outcomes(&dry), ["schedule/morning would_create", "relay/main would_create"], "{dry:?}");
    let new = reveille(Some(&fake), "diff", &file, &[]).await;
    assert_eq!(new.code, Some(1), "{new:?}");
    assert!(new.stdout.contains("schedule/morning") && new.stdout.contains("  + daily: \"09:00\""), "{}", new.stdout);
    let made: Vec<v1::CreateScheduleRequest> = fake.requests("CreateSchedule");
    assert!(made.iter().all(|request| request.validate_only));

    assert_eq!(reveille(Some(&fake), "apply", &file, &[]).await.code, Some(0));
    let same = reveille(Some(&fake), "diff", &file, &[]).await;
    assert_eq!((same.code, same.stdout.as_str()), (Some(0), ""), "{same:?}");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("body.txt", "Good day {{ name }},\nhello\n");
    write("people.csv", "email,name\nann@example.com,Ann\nbob@example.com,Bob\n");
    let other = reveille(Some(&fake), "diff", &file, &[]).await;
    assert_eq!((other.code, other.stderr.as_str()), (Some(1), ""), "{other:?}");
    let lines: Vec<&str> = other.stdout.lines().skip(1).collect();
    let expected = [
        "  text:",
        "    - Good morning {{ name }},",
        "    + Good day {{ name }},",
        "      hello",
        "  recipients:",
        "      email=ann@example.com, name=Ann",
        "    + email=bob@example.com, name=Bob",
    ];
    assert_eq!(lines, expected);
    assert!(other.stdout.starts_with("schedule/morning"), "{}", other.stdout);
}

#[tokio::test]
async fn problems_are_reported_with_their_lines_before_any_request() {
    const GOOD: &str = "kind: schedule\nname: a\ncron: '0 9 * * *'\ntz: UTC\nto: a@example.com\n\
                        sender: b@example.com\nsubject: s\ninline_text: t\n";
    let with = |more: &str| format!("{GOOD}{more}\n");
    let instead = |of: &str, other: &str| GOOD.replace(of, other);
    let to = "to: a@example.com\n";
    for (document, line, words) in [
        (with("subjet: x"), 9, "unknown key `subjet`; did you mean `subject`?"),
        (with("start-within: 3h"), 9, "did you mean `start_within`?"),
        (with("start_within: soon"), 9, "`start_within`: \"soon\": a duration is a number and a unit"),
        (with("catch_up: some"), 9, "`catch_up` cannot be \"some\"; write one of one, all, none"),
        (with("daily: 09:00"), 3, "both there: write one of them"),
        (with("dry_run: true"), 9, "unknown key `dry_run`"),
        (with("priority: [1]"), 9, "`priority` is one text, not a list"),
        (with("var: a=b"), 9, "`var` is keys and values, not a text"),
        (with("paused: yes"), 9, "`paused` is true or false, not \"yes\""),
        (with("name: b"), 9, "the key `name` is there twice: see line 2"),
        (with("text: nowhere.txt"), 8, "are both there"),
        (instead("tz: UTC\n", ""), 1, "`tz` is missing"),
        (instead("to: a@example.com", "to: postmaster"), 5, "'postmaster' has no '@'"),
        (instead("inline_text: t", "text: nowhere.txt"), 1, "nowhere.txt: cannot be read"),
        (instead(to, "recipients:\n  - email: a@example.com\n  - name: x\n"), 7, "`email` is missing"),
        (instead(to, "recipients:\n  - a@example.com\n"), 6, "addresses alone stand in `to`"),
        (format!("{GOOD}---\n{GOOD}"), 10, "schedule a is there twice"),
        ("kind: tenant\nname: acme\n".to_owned(), 1, "`rate` is missing"),
        ("kind: pool\nname: bulk\nwarm_up: [0]\n".to_owned(), 3, "`warm_up`"),
        ("kind: campaign\nname: a\ncron: x\n".to_owned(), 3, "unknown key `cron`"),
        ("kind: shedule\n".to_owned(), 1, "unknown kind `shedule`; did you mean `schedule`?"),
        ("name: a\n".to_owned(), 1, "`kind` is missing"),
        ("kind: relay\nname: a\nhost: h\nport: 0\n".to_owned(), 4, "`port`: \"0\""),
        ("kind: relay\nname: a\nport: 25\n".to_owned(), 1, "`host` is missing"),
        ("kind: relay\nname: a\nhost: mx.example.com\nport: 587\n".to_owned(), 3, "`tls` is missing"),
        ("- just a text\n".to_owned(), 1, "a document is keys and values"),
        ("a: [1\n".to_owned(), 2, "this is not YAML"),
    ] {
        let folder = folder(&document);
        let file = folder.path().join("news.yaml");
        let ended = reveille(None, "apply", &file, &["-o", "json"]).await;
        assert_eq!(ended.code, Some(2), "{document}\n{ended:?}");
        let error = ended.error();
        assert!(error["message"].as_str().is_some_and(|text| text.contains(words)), "{document}\n{error}");
        assert_eq!(error["field"], format!("{}:{line}", file.display()), "{document}\n{error}");
    }
}

#[tokio::test]
async fn all_problems_are_reported_at_once() {
    let folder = folder("kind: relay\nname: a\nhostt: h\nprot: 1\n---\nkind: tennant\n");
    let ended = reveille(None, "apply", &folder.path().join("news.yaml"), &[]).await;
    assert!(ended.stderr.contains("3 problems, so nothing was changed"), "{}", ended.stderr);
    for words in ["news.yaml:3: unknown key `hostt`; did you mean `host`?", "news.yaml:4: ", "news.yaml:6: "] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    let empty = tempfile::tempdir().expect("a folder");
    let ended = reveille(None, "apply", empty.path(), &[]).await;
    assert!(ended.stderr.contains("there is no file *.yaml"), "{}", ended.stderr);
    std::fs::write(empty.path().join("a.yml"), "# nothing\n").expect("written");
    let ended = reveille(None, "apply", empty.path(), &[]).await;
    assert!(ended.stderr.contains("there is no document"), "{}", ended.stderr);
}

#[tokio::test]
async fn refused_document_is_named_by_line_and_nothing_changes() {
    let bad = "kind: schedule\nname: bad\ndaily: 9:00\ntz: Europe/Berlim\nto: a@example.com\n\
               sender: b@example.com\nsubject: s\ninline_text: t\n";
    let folder = folder(&format!("{NEWS}---\n{bad}"));
    let file = folder.path().join("news.yaml");
    let fake = remembering().await;
    let ended = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(outcomes(&ended), ["schedule/morning would_create", "relay/main would_create", "schedule/bad failed"]);
    let error = ended.error();
    let place = format!("{}:{}", file.display(), NEWS.lines().count() + 5);
    assert_eq!((&error["reason"], &error["field"]), (&json!("UNKNOWN_ZONE"), &json!(place)));
    assert!(error["message"].as_str().is_some_and(|text| text.contains("nothing was changed")), "{error}");
    let made: Vec<v1::CreateScheduleRequest> = fake.requests("CreateSchedule");
    let added: Vec<v1::AddRelayRequest> = fake.requests("AddRelay");
    assert!(made.iter().all(|one| one.validate_only) && added.iter().all(|one| one.validate_only));
    std::fs::write(&file, bad).expect("written");
    let alone = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!((alone.code, alone.error()["reason"].clone()), (Some(2), json!("UNKNOWN_ZONE")));
}

#[tokio::test]
async fn document_refused_while_it_is_made_spoils_no_other() {
    let late = "kind: schedule\nname: late\ndaily: 9:00\ntz: UTC\nto: a@example.com\n\
                sender: b@example.com\nsubject: s\ninline_text: t\n";
    let folder = folder(&format!("{late}---\n{NEWS}"));
    let file = folder.path().join("news.yaml");
    let fake = remembering().await;
    let ended = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert_eq!(outcomes(&ended), ["schedule/late failed", "schedule/morning created", "relay/main created"]);
    assert_eq!(ended.error()["reason"], json!("PARTLY_DONE"));
}

#[tokio::test]
async fn apply_without_cluster_fails_at_first_document() {
    let folder = folder(NEWS);
    let ended = reveille(None, "apply", &folder.path().join("news.yaml"), &["-o", "json"]).await;
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(outcomes(&ended), ["schedule/morning failed", "relay/main not_asked"]);
}

#[tokio::test]
async fn schedule_is_shown_as_the_document_that_would_make_it() {
    let folder = folder(NEWS);
    let file = folder.path().join("news.yaml");
    let remembers = remembering().await;
    assert_eq!(reveille(Some(&remembers), "apply", &file, &[]).await.code, Some(0));
    let created: Vec<v1::CreateScheduleRequest> = remembers.requests("CreateSchedule");
    let body = created.last().and_then(|request| request.schedule.clone()).expect("a body");
    let paused = v1::ScheduleBody { paused: Some("wait: for it".to_owned()), ..body };
    let answer = v1::GetScheduleResponse { body: Some(paused), ..Default::default() };
    let fake = Fake::answering("GetSchedule", answer).await;
    let shown = fake.reveille("schedule show morning --manifest").await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let lines =
        ["kind: schedule", "paused: true", "reason: \"wait: for it\"", "inline_text: |", "  - email: ann@example.com"];
    for line in lines.into_iter().chain(["min_gap: none", "jitter: \"10m\""]) {
        assert!(shown.stdout.lines().any(|shown| shown == line), "{line} in\n{}", shown.stdout);
    }
    // Both formats are read back from stdin and change nothing.
    let json = fake.reveille("schedule show morning --manifest -o json").await.stdout;
    for document in [shown.stdout, json] {
        let address = remembers.address().to_string();
        let mut apply = command(&["--endpoint", &address, "apply", "-f", "-", "-o", "json"]);
        let mut child = apply.stdin(Stdio::piped()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(document.as_bytes()).await.expect("written");
        drop(stdin);
        let output = timeout(STEP_TIMEOUT, child.wait_with_output()).await.expect("it ends");
        let ended = Ended::from(output.expect("it ran"));
        assert_eq!(outcomes(&ended), ["schedule/morning unchanged"], "{document}\n{ended:?}");
        let note = "it is active and stays so: reveille schedule pause morning";
        assert_eq!(ended.json()[0]["notes"], json!([note]));
    }
}

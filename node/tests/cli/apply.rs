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
spec:
  name: morning
  timing:
    daily: {hour: 9, minute: 0, days: mon-fri}
  zone: Europe/Berlin
  policies:
    catchUp: CATCH_UP_NONE
    min_gap: 0s
    jitter: 600s
  content:
    sender: News <news@example.com>
    subject: Good morning, {{ name }}
    textFile: body.txt
    variables:
      - {name: city, value: Rome}
      - {name: team, value: \"7\"}
  audience:
    recipientsFile: people.csv
---
# The relay that takes it.
kind: relay
spec:
  name: main
  host: 127.0.0.1
  port: 2525
  tls: RELAY_TLS_NONE
  ratePerSecond: 50
";

/// Creates a folder with a document and the files that it names.
fn folder(document: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("news.yaml", document);
    write("people.csv", "email,name\nann@example.com,Ann\n");
    write("body.txt", "Good morning {{ name }},\nhello\n");
    write("bad.csv", "email\nann@example.com\npostmaster\n");
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
                if body.zone == "Europe/Berlim" {
                    return Err(refusal_of("UNKNOWN_ZONE", "schedule.zone", "no zone 'Europe/Berlim'"));
                }
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
            "GetSchedule" => {
                let request = v1::GetScheduleRequest::decode(bytes).expect("a request");
                let body = schedules.iter().find(|known| known.name == request.name).cloned();
                one(v1::GetScheduleResponse { body, ..Default::default() })
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

    let second = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!(outcomes(&second), ["schedule/morning unchanged", "relay/main unchanged"], "{second:?}");

    let edited = NEWS.replace(", days: mon-fri", "").replace("zone:", "priority: 3\n  zone:").replace(": 50", ": 60");
    std::fs::write(&file, edited).expect("written");
    let third = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!(outcomes(&third), ["schedule/morning updated", "relay/main updated"], "{third:?}");
    let changes = json!([
        { "field": "timing.daily.days", "from": "mon-fri", "to": null },
        { "field": "priority", "from": null, "to": 3 },
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
    assert!(new.stdout.contains("schedule/morning") && new.stdout.contains("  +       hour: 9"), "{}", new.stdout);
    let creation: Vec<v1::CreateScheduleRequest> = fake.requests("CreateSchedule");
    assert!(creation.iter().all(|request| request.validate_only));

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
        "  content.text:",
        "    - Good morning {{ name }},",
        "    + Good day {{ name }},",
        "      hello",
        "  audience.recipients:",
        "      address=ann@example.com, values=[Ann]",
        "    + address=bob@example.com, values=[Bob]",
    ];
    assert_eq!(lines, expected);
    assert!(other.stdout.starts_with("schedule/morning"), "{}", other.stdout);
}

#[tokio::test]
async fn problems_are_reported_with_their_lines_before_any_request() {
    const GOOD: &str = "\
kind: schedule
spec:
  name: a
  timing: {cron: '0 9 * * *'}
  zone: UTC
  audience: {recipients: [{address: a@example.com}]}
  content:
    sender: b@example.com
    text: t
";
    let with = |more: &str| format!("{GOOD}{more}\n");
    let instead = |of: &str, other: &str| GOOD.replace(of, other);
    for (document, line, words) in [
        (with("    subjet: x"), 10, "unknown key `subjet` in spec.content; did you mean `subject`?"),
        (with("  policys: {}"), 10, "unknown key `policys` in spec; did you mean `policies`?"),
        (with("  policies: {startWithin: 3h}"), 10, "`startWithin` is a length in seconds, such as 5400s, not \"3h\""),
        (
            with("  policies: {catchUp: some}"),
            10,
            "`catchUp` is one of CATCH_UP_ONE, CATCH_UP_ALL, CATCH_UP_NONE, not \"some\"",
        ),
        (with("  startTime: soon"), 10, "`startTime` is an instant, such as 2030-01-01T09:00:00Z, not \"soon\""),
        (instead("'0 9 * * *'", "x, every: {period: 60s}"), 4, "`cron` and `every` are both there: write one of them"),
        (with("    textFile: body.txt"), 10, "`text` and `textFile` are both there"),
        (with("  starts: x"), 10, "unknown key `starts` in spec"),
        (with("  priority: [1]"), 10, "`priority` is one value, not a list"),
        (with("  priority: -1"), 10, "`priority` is a whole number in its range, not \"-1\""),
        (with("    variables: {a: b}"), 10, "`variables` is a list, not keys and values"),
        (with("  labels: [a]"), 10, "`labels` is keys and values, not a list"),
        (with("    bulk: yes"), 10, "`bulk` is true or false, not \"yes\""),
        (with("  name: b"), 10, "the key `name` is there twice: see line 3"),
        (with("name: b"), 10, "unknown key `name`; a document has `kind` and `spec`"),
        (instead("    text: t", "    textFile: nowhere.txt"), 9, "nowhere.txt: cannot be read"),
        (
            instead("recipients: [{address: a@example.com}]", "recipientsFile: bad.csv"),
            6,
            "bad.csv:3: 1 row cannot be used",
        ),
        (instead("[{address: a@example.com}]", "[a@example.com]"), 6, "`recipients` is keys and values, not a text"),
        (instead("  name: a\n", ""), 1, "`spec.name` is missing"),
        (format!("{GOOD}---\n{GOOD}"), 11, "schedule a is there twice"),
        ("kind: tenant\nspec: {name: acme, validateOnly: true}\n".to_owned(), 2, "unknown key `validateOnly`"),
        ("kind: pool\nspec: {name: bulk, warmUp: [-1]}\n".to_owned(), 2, "`warmUp` is a whole number"),
        ("kind: campaign\nspec: {name: a}\n".to_owned(), 2, "unknown key `name` in spec; known are schedule, canary"),
        ("kind: relay\nspec: {name: a, health: {}}\n".to_owned(), 2, "unknown key `health`"),
        ("kind: shedule\nspec: {}\n".to_owned(), 1, "unknown kind `shedule`; did you mean `schedule`?"),
        ("spec: {name: a}\n".to_owned(), 1, "`kind` is missing"),
        ("kind: relay\n".to_owned(), 1, "`spec` is missing"),
        ("kind: relay\nspec: x\n".to_owned(), 2, "`spec` is keys and values, not a text"),
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
    let folder = folder("kind: relay\nspec:\n  hostt: h\n  prot: 1\n---\nkind: tennant\nspec: {}\n");
    let ended = reveille(None, "apply", &folder.path().join("news.yaml"), &[]).await;
    assert!(ended.stderr.contains("3 problems, so nothing was changed"), "{}", ended.stderr);
    for words in ["news.yaml:3: unknown key `hostt` in spec; did you mean `host`?", "news.yaml:4: ", "news.yaml:6: "] {
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
    let bad = "kind: schedule\nspec:\n  name: bad\n  timing: {cron: '@daily'}\n  zone: Europe/Berlim\n";
    let folder = folder(&format!("{NEWS}---\n{bad}"));
    let file = folder.path().join("news.yaml");
    let fake = remembering().await;
    let ended = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(outcomes(&ended), ["schedule/morning would_create", "relay/main would_create", "schedule/bad failed"]);
    let error = ended.error();
    let place = format!("{}:{}", file.display(), NEWS.lines().count() + 6);
    assert_eq!((&error["reason"], &error["field"]), (&json!("UNKNOWN_ZONE"), &json!(place)));
    assert!(error["message"].as_str().is_some_and(|text| text.contains("nothing was changed")), "{error}");
    let creation: Vec<v1::CreateScheduleRequest> = fake.requests("CreateSchedule");
    let added: Vec<v1::AddRelayRequest> = fake.requests("AddRelay");
    assert!(creation.iter().all(|one| one.validate_only) && added.iter().all(|one| one.validate_only));
    std::fs::write(&file, bad).expect("written");
    let alone = reveille(Some(&fake), "apply", &file, &["-o", "json"]).await;
    assert_eq!((alone.code, alone.error()["reason"].clone()), (Some(2), json!("UNKNOWN_ZONE")));
}

#[tokio::test]
async fn document_refused_while_it_is_made_spoils_no_other() {
    let late = "kind: schedule\nspec:\n  name: late\n  timing: {cron: '@daily'}\n  zone: UTC\n";
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
    let lines = ["kind: schedule", "  paused: \"wait: for it\"", "    text: |", "      - address: ann@example.com"];
    for line in lines.into_iter().chain(["    minGap: \"0s\"", "    jitter: \"600s\""]) {
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

#[tokio::test]
async fn edit_applies_what_the_editor_changed_and_keeps_a_refused_edit() {
    let folder = folder(NEWS);
    let file = folder.path().join("news.yaml");
    let fake = remembering().await;
    assert_eq!(reveille(Some(&fake), "apply", &file, &[]).await.code, Some(0));
    let address = fake.address().to_string();
    let edits = folder.path().join("edits");
    std::fs::create_dir(&edits).expect("a folder");
    let edit = async |editor: &str| {
        let mut edit = command(&["--endpoint", &address, "edit", "schedule", "morning"]);
        run(edit.env("VISUAL", editor).env("TMPDIR", &edits)).await
    };
    let updates = || fake.requests::<v1::UpdateScheduleRequest>("UpdateSchedule").len();
    let kept = || std::fs::read_dir(&edits).expect("read").map(|file| file.expect("a file").path()).next();

    let before = updates();
    let same = edit("true").await;
    assert_eq!((same.code, same.stderr.trim(), updates()), (Some(0), "nothing was changed", before), "{same:?}");
    let changed = edit("sed -i s/hello/goodbye/").await;
    assert_eq!(changed.code, Some(0), "{changed:?}");
    assert!(changed.stdout.contains("updated") && changed.stdout.contains("    + goodbye"), "{}", changed.stdout);
    assert_eq!(kept(), None);

    let refused = edit("sed -i s/Berlin/Berlim/").await;
    let file = kept().expect("the edit is kept");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains(&format!("{}:", file.display())), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("reveille apply -f {}", file.display())), "{}", refused.stderr);
    assert!(std::fs::read_to_string(&file).expect("read").contains("Europe/Berlim"));
    std::fs::remove_file(&file).expect("removed");

    let news = folder.path().join("news.yaml");
    let other = format!("{} --endpoint {address} apply -f {}", env!("CARGO_BIN_EXE_reveille"), news.display());
    let conflict = edit(&format!("{other} >/dev/null 2>&1 && sed -i s/goodbye/ciao/")).await;
    assert_eq!(conflict.code, Some(4), "{conflict:?}");
    assert!(conflict.stderr.contains("was changed or deleted since it was opened"), "{}", conflict.stderr);
    assert!(kept().is_some());
}

#[tokio::test]
async fn flags_that_cannot_be_kept_are_refused_before_a_request() {
    let (folder, fake) = (folder(NEWS), remembering().await);
    let file = folder.path().join("news.yaml");
    for (verb, more, says) in [
        ("apply", ["--columns", "object,SIZE"].as_slice(), "OBJECT,OUTCOME,CHANGES"),
        ("apply", &["--columns", "object", "-o", "json"], "--columns"),
        ("diff", &["--columns", "object", "-o", "name"], "--columns"),
    ] {
        let ended = reveille(Some(&fake), verb, &file, more).await;
        assert!(ended.code == Some(2) && ended.stderr.contains(says), "{ended:?}");
    }
    let address = fake.address().to_string();
    let mut edit = command(&["--endpoint", &address, "edit", "template", "welcome@3"]);
    let ended = run(edit.env("VISUAL", "false")).await;
    assert!(ended.code == Some(2) && ended.stderr.contains("welcome@3 is a version"), "{ended:?}");
    assert_eq!(fake.methods(), [""; 0]);
}

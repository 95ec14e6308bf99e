//! `import crontab`: the schedule for each line, its request, and the reasons why other lines are not imported.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tonic::Code;

use crate::fake::{Fake, one, refusal, unknown};
use crate::terminal::{Ended, STEP_TIMEOUT, command, keys, run};

const TAB: &str = "\
MAILTO=ops@example.com
CRON_TZ=America/New_York
# Nightly report
30 2 * * 1-5 /usr/local/bin/report.sh --all > /dev/null 2>&1
0 9 * * 7 mail -r books@example.com -s 'Week {{ over }}' cfo@example.com,ops@example.com%Dear all,%it is Sunday.
@reboot /usr/local/bin/warm-up
0~30 9 * * * /usr/local/bin/anything
MAILTO=\"\"
@daily /usr/local/bin/silent
";

struct File(tempfile::NamedTempFile);

impl File {
    fn holding(text: &str) -> File {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        File(file)
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }
}

async fn import(fake: Option<&Fake>, arguments: &[&str]) -> Ended {
    // No process listens on port 1, so a command that must not send requests fails if it does.
    let address = fake.map_or("127.0.0.1:1".to_owned(), |fake| fake.address().to_string());
    let mut all = vec!["--endpoint", &address, "import", "crontab"];
    all.extend_from_slice(arguments);
    run(&mut command(&all)).await
}

fn lines(json: &Value, field: &str) -> Vec<Value> {
    json.as_array().expect("an array").iter().map(|line| line[field].clone()).collect()
}

type Known = Arc<Mutex<Vec<v1::ScheduleBody>>>;

/// Starts a fake cluster that stores created schedules: the same body again returns the same schedule, another body is
/// a conflict. Also returns the stored state, for tests that change it.
async fn remembering() -> (Fake, Known) {
    let known = Known::default();
    let held = Arc::clone(&known);
    let fake = Fake::start(move |method, bytes| {
        let mut known = held.lock().expect("unpoisoned");
        match method {
            "CreateSchedule" => {
                let request = v1::CreateScheduleRequest::decode(bytes).expect("a request");
                let body = request.schedule.expect("a body");
                let created = match known.iter().find(|one| one.name == body.name) {
                    Some(one) if *one == body => false,
                    Some(_) => return Err(refusal(Code::AlreadyExists, "NAME_TAKEN", "the name is taken")),
                    None => {
                        known.push(body);
                        true
                    }
                };
                one(v1::CreateScheduleResponse { created, ..Default::default() })
            }
            "UpdateSchedule" => {
                let request = v1::UpdateScheduleRequest::decode(bytes).expect("a request");
                assert!(request.validate_only && request.with_bodies, "{request:?}");
                let asked = request.schedule.expect("a body");
                let former = known.iter().find(|one| one.name == asked.name).cloned().expect("a schedule");
                let body = v1::ScheduleBody { paused: former.paused.clone(), ..asked };
                one(v1::UpdateScheduleResponse { former_body: Some(former), body: Some(body), ..Default::default() })
            }
            "ListRelays" => {
                let relay = v1::Relay { name: "main".into(), pool: "default".into(), ..Default::default() };
                one(v1::ListRelaysResponse { relays: vec![relay], ..Default::default() })
            }
            _ => Err(unknown(method)),
        }
    })
    .await;
    (fake, known)
}

fn sent(fake: &Fake) -> Vec<v1::CreateScheduleRequest> {
    fake.requests("CreateSchedule")
}

#[tokio::test]
async fn dry_run_of_import_needs_no_cluster_and_shows_each_line() {
    let file = File::holding(TAB);
    let ended = import(None, &[&file.path(), "--sender", "cron@example.com", "--dry-run", "-o", "json"]).await;
    assert_eq!(ended.code, Some(7), "{ended:?}");
    let json = ended.json();
    let fields = "cron line next outcome reason recipients schedule sender source subject user warnings zone zoneFrom";
    assert_eq!(keys(&json[0]), fields);
    assert_eq!(lines(&json, "line"), [4, 5, 6, 7, 9]);
    assert_eq!(lines(&json, "outcome"), ["planned", "planned", "refused", "refused", "left_out"]);
    assert_eq!(
        lines(&json, "schedule"),
        [json!("report-all"), json!("week-over"), json!(null), json!(null), json!("silent")]
    );
    assert_eq!((&json[0]["cron"], &json[0]["zone"]), (&json!("30 2 * * 1-5"), &json!("America/New_York")));
    assert_eq!((&json[0]["subject"], &json[0]["zoneFrom"]), (&json!("Nightly report"), &json!("cron_tz")));
    assert_eq!(json[0]["recipients"], json!(["ops@example.com"]));
    assert_eq!(json[0]["next"].as_array().map(Vec::len), Some(3));
    assert_eq!(keys(&json[0]["next"][0]), "local remark time");
    assert_eq!(json[1]["recipients"], json!(["cfo@example.com", "ops@example.com"]));
    assert_eq!((&json[1]["sender"], &json[1]["subject"]), (&json!("books@example.com"), &json!("Week {{ over }}")));
    assert!(json[2]["reason"].as_str().is_some_and(|why| why.starts_with("@reboot is no time")), "{json}");
    assert!(json[3]["reason"].as_str().is_some_and(|why| why.contains("choose a value yourself")), "{json}");
    assert!(json[4]["reason"].as_str().is_some_and(|why| why.contains("cron sends no email")), "{json}");
    assert!(ended.stderr.contains("5 jobs: 2 planned, 2 refused, 1 left out"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("{}:6", file.path())), "{}", ended.stderr);
}

#[tokio::test]
async fn imported_schedule_is_paused_with_its_line_in_the_reason() {
    let file = File::holding(TAB);
    let (fake, _) = remembering().await;
    let arguments = [&file.path(), "--sender", "cron@example.com", "--pool", "bulk", "--tenant", "acme", "--yes"];
    let ended = import(Some(&fake), &arguments).await;
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert!(ended.stderr.contains("reveille schedule resume NAME"), "{}", ended.stderr);
    assert!(ended.stderr.contains("warning: no relay is in pool bulk"), "{}", ended.stderr);
    let bodies: Vec<v1::ScheduleBody> = sent(&fake).into_iter().filter_map(|asked| asked.schedule).collect();
    let [report, week] = bodies.as_slice() else { panic!("{bodies:?}") };
    assert_eq!(
        (report.tenant.as_str(), report.pool.as_str(), report.zone.as_str()),
        ("acme", "bulk", "America/New_York")
    );
    let reason = format!("imported from {}:4; write its content, then resume", file.path());
    assert_eq!(report.paused.as_deref(), Some(reason.as_str()));
    let content = report.content.clone().expect("content");
    assert_eq!((content.sender.as_str(), content.subject.as_str()), ("cron@example.com", "Nightly report"));
    let text = content.text.expect("a text");
    assert!(text.contains("/usr/local/bin/report.sh --all") && !text.contains(&file.path()), "{text}");
    let content = week.content.clone().expect("content");
    assert_eq!(content.text.as_deref(), Some("Dear all,\nit is Sunday."));
    assert_eq!(content.subject, "Week {{ brace }}{ over }}", "braces of a command are no code");
    assert_eq!(content.variables, [v1::Field { name: "brace".into(), value: "{".into() }]);
    assert!(week.paused.as_deref().is_some_and(|reason| reason.ends_with("check its content, then resume")));
}

#[tokio::test]
async fn same_file_again_changes_nothing() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n0 10 * * * two\n");
    let (fake, _) = remembering().await;
    let path = file.path();
    let arguments =
        [path.as_str(), "--sender", "c@example.com", "--tz", "UTC", "--yes", "-o", "json", "--request-id", "mine"];
    let outcomes = async || {
        let ended = import(Some(&fake), &arguments).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.json().as_array().expect("an array").iter().map(|line| line["outcome"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(outcomes().await, ["created", "created"]);
    assert_eq!(outcomes().await, ["unchanged", "unchanged"]);
    let ids: Vec<String> = sent(&fake).into_iter().map(|asked| asked.request_id).collect();
    let [one, two, one_again, two_again] = ids.as_slice() else { panic!("{ids:?}") };
    assert_eq!((one, two), (one_again, two_again), "an id is of the command's and of the content");
    assert_ne!(one, two);
}

/// Imports a file in UTC, and returns the exit code with the outcomes and reasons.
async fn imported(fake: &Fake, path: &str) -> (Option<i32>, Vec<(Value, Value)>) {
    let flags = ["--sender", "c@example.com", "--tz", "UTC", "--yes", "-o", "json"];
    let ended = import(Some(fake), &[[path].as_slice(), flags.as_slice()].concat()).await;
    let json = ended.json();
    (ended.code, lines(&json, "outcome").into_iter().zip(lines(&json, "reason")).collect())
}

#[tokio::test]
async fn edited_schedule_is_kept_and_reported() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n0 10 * * * two\n");
    let (fake, known) = remembering().await;
    assert_eq!(imported(&fake, &file.path()).await.0, Some(0));
    for body in known.lock().expect("unpoisoned").iter_mut() {
        body.paused = None;
        if body.name == "one" {
            body.content.as_mut().expect("content").text = Some("The real text".to_owned());
            body.pool = "bulk".to_owned();
        }
    }
    let (code, told) = imported(&fake, &file.path()).await;
    assert_eq!(code, Some(0), "{told:?}");
    let [(one, why), (two, nothing)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((one, two, nothing), (&json!("kept"), &json!("unchanged"), &json!(null)), "a resume is no edit");
    let why = why.as_str().expect("words");
    assert!(why.starts_with("edited since it was imported (") && why.contains("pool") && why.contains("text"), "{why}");
}

#[tokio::test]
async fn line_that_has_moved_or_a_file_of_another_name_is_the_same() {
    let (fake, _) = remembering().await;
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n");
    assert_eq!(imported(&fake, &file.path()).await.0, Some(0));
    let moved = File::holding("# a line above\n\nMAILTO=a@example.com\n0 9 * * * one\n");
    let (code, told) = imported(&fake, &moved.path()).await;
    assert_eq!((code, told), (Some(0), vec![(json!("unchanged"), json!(null))]));
}

#[tokio::test]
async fn line_that_was_edited_spoils_no_other() {
    let (fake, known) = remembering().await;
    let import = async |text: &str| {
        let file = File::holding(text);
        imported(&fake, &file.path()).await
    };
    assert_eq!(import("MAILTO=a@example.com\n0 9 * * * one\n").await.0, Some(0));
    let (code, told) = import("MAILTO=a@example.com\n0 8 * * * one\n0 9 * * * two\n").await;
    assert_eq!((code, &told[0].0, &told[1].0), (Some(7), &json!("failed"), &json!("created")));
    let why = told[0].1.as_str().expect("words");
    assert!(why.contains("the line or a flag says otherwise now (cron)"), "{why}");
    assert!(why.contains("reveille schedule update one"), "{why}");
    assert_eq!(import("MAILTO=a@example.com\n0 7 * * * one\n").await.0, Some(4));

    known.lock().expect("unpoisoned").iter_mut().for_each(|body| body.labels.clear());
    let (_, told) = import("MAILTO=a@example.com\n0 7 * * * one\n").await;
    assert!(told[0].1.as_str().is_some_and(|why| why.contains("not imported") && why.contains("--prefix")), "{told:?}");
}

#[tokio::test]
async fn invalid_flag_of_import_is_refused_without_cluster() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n");
    let (fake, _) = remembering().await;
    for (flag, value) in [("--jitter", "2d"), ("--retention", "1h"), ("--tenant", "bad tenant!"), ("--pool", "no pool")]
    {
        let path = file.path();
        let arguments = [path.as_str(), "--sender", "c@example.com", "--tz", "UTC", "-o", "json", flag, value];
        let looked = import(None, &[arguments.as_slice(), &["--dry-run"]].concat()).await;
        let done = import(Some(&fake), &[arguments.as_slice(), &["--yes"]].concat()).await;
        assert_eq!((looked.code, done.code), (Some(2), Some(2)), "{flag}: {looked:?} {done:?}");
        for ended in [looked, done] {
            let json = ended.json();
            assert_eq!(json[0]["outcome"], "refused");
            assert!(json[0]["reason"].as_str().is_some_and(|why| why.starts_with(flag)), "{json}");
        }
    }
    assert_eq!(fake.methods(), [""; 0]);
}

#[tokio::test]
async fn pool_without_relay_is_warned_before_creation() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n");
    let (fake, _) = remembering().await;
    for (pool, warned) in [("default", false), ("nopool", true)] {
        let path = file.path();
        let arguments = [path.as_str(), "--sender", "c@example.com", "--tz", "UTC", "--pool", pool, "--dry-run"];
        let ended = import(Some(&fake), &arguments).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.stderr.contains("warning: no relay is in pool nopool"), warned, "{}", ended.stderr);
    }
}

#[tokio::test]
async fn import_without_cluster_fails_at_first_line() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n0 10 * * * two\n");
    let ended = import(None, &[&file.path(), "--sender", "c@example.com", "--tz", "UTC", "--yes"]).await;
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(ended.stderr.contains("2 jobs: 1 failed, 1 not asked"), "{}", ended.stderr);
}

#[tokio::test]
async fn nothing_is_created_before_it_is_confirmed() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\nhello\n");
    let (fake, _) = remembering().await;
    let ended = import(Some(&fake), &[&file.path(), "--sender", "c@example.com", "--tz", "UTC"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("Create 1 schedule, paused; 1 line left out"), "{}", ended.stderr);
    assert_eq!(fake.methods(), ["ListRelays"], "who serves the pool is all that was asked");
}

#[tokio::test]
async fn system_form_comes_through_stdin_too() {
    let arguments = ["import", "crontab", "-", "--system", "--to", "ops@example.com", "--sender", "c@example.com"];
    let mut command = command(&arguments);
    command.args(["--tz", "Europe/Berlin", "--prefix", "web1-", "--dry-run", "-o", "json"]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"17 * * * * root cd / && run-parts /etc/cron.hourly").await.expect("written");
    drop(stdin);
    let output = timeout(STEP_TIMEOUT, child.wait_with_output()).await.expect("it ends");
    let ended = Ended::from(output.expect("it ran"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let json = ended.json();
    assert_eq!((&json[0]["user"], &json[0]["schedule"]), (&json!("root"), &json!("web1-run-parts-etc-cron-hourly")));
    assert_eq!((&json[0]["zone"], &json[0]["recipients"]), (&json!("Europe/Berlin"), &json!(["ops@example.com"])));
    assert!(ended.stderr.contains("the last line has no line end"), "{}", ended.stderr);
}

#[tokio::test]
async fn zone_that_does_not_exist_is_the_lines_own_fault() {
    let file = File::holding("MAILTO=a@example.com\nCRON_TZ=Europe/Berlni\n0 9 * * * one\n");
    let ended = import(None, &[&file.path(), "--sender", "c@example.com", "--dry-run", "-o", "json"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let json = ended.json();
    assert!(json[0]["reason"].as_str().is_some_and(|why| why.contains("did you mean Europe/Berlin")), "{json}");
    let file = File::holding("RANDOM_DELAY=5\nTZ=UTC\nMAILTO=a@example.com\nCRON_TZ=UTC+3\nTZ=UTC\n0 9 * * * one\n");
    let ended = import(None, &[&file.path(), "--sender", "c@example.com", "--dry-run", "-o", "json"]).await;
    let json = ended.json();
    let why = json[0]["reason"].as_str().expect("words");
    assert!(why.contains("CRON_TZ in line 4: write an IANA name there"), "{why}");
    assert_eq!(json[0]["warnings"], json!([]), "how it would be is beside the point");
    assert!(ended.stderr.contains("1 of 1 job would be left out"), "{ended:?}");
}

#[tokio::test]
async fn direction_characters_of_crontab_reach_no_terminal() {
    let file = File::holding("MAILTO=a@example.com\n# \u{202e}evil\u{7}\n0 9 * * * echo '\u{202e}bell'\n");
    let ended = import(None, &[&file.path(), "--sender", "c@example.com", "--tz", "UTC", "--dry-run"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("\\u{202e}bell"), "{}", ended.stdout);
    assert!(!(ended.stdout + &ended.stderr).contains(['\u{202e}', '\u{7}']), "it is spelled out");
}

#[tokio::test]
async fn people_get_a_table_and_scripts_get_names() {
    let file = File::holding(TAB);
    let path = file.path();
    let table = import(None, &[&path, "--sender", "cron@example.com", "--dry-run"]).await.stdout;
    let heading: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(heading, ["LINE", "SOURCE", "SCHEDULE", "NEXT", "OUTCOME", "NOTES"]);
    assert!(table.contains("@reboot is no time"), "{table}");
    let names = import(None, &[&path, "--sender", "cron@example.com", "--dry-run", "-o", "name"]).await.stdout;
    assert_eq!(names, "report-all\nweek-over\n");
}

#[tokio::test]
async fn missing_crontab_is_usage_error_and_empty_one_does_nothing() {
    let missing = import(None, &["/nowhere/tab", "--dry-run", "-o", "json"]).await;
    assert_eq!((missing.code, missing.error()["field"].clone()), (Some(2), json!("/nowhere/tab")));
    let empty = File::holding("# nothing\n");
    let ended = import(None, &[&empty.path(), "--yes", "-o", "json"]).await;
    assert_eq!((ended.code, ended.json()), (Some(0), json!([])));
}

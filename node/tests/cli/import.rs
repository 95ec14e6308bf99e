//! `import crontab`: what each line becomes, what is sent for it, and what is said of the others.

use std::process::Stdio;

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tonic::Code;

use crate::fake::{Fake, one, refusal, unknown};
use crate::terminal::{Ended, PATIENCE, command, keys, run};

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
    // Nobody listens on port 1: a command that asks where it must not, fails.
    let address = fake.map_or("127.0.0.1:1".to_owned(), |fake| fake.address().to_string());
    let mut all = vec!["--endpoint", &address, "import", "crontab"];
    all.extend_from_slice(arguments);
    run(&mut command(&all)).await
}

fn lines(json: &Value, field: &str) -> Vec<Value> {
    json.as_array().expect("an array").iter().map(|line| line[field].clone()).collect()
}

/// A cluster that holds what was created: the same body again is the same schedule, another one is a conflict.
async fn remembering() -> Fake {
    let known = std::sync::Mutex::new(Vec::<v1::ScheduleBody>::new());
    Fake::start(move |method, bytes| {
        if method != "CreateSchedule" {
            return Err(unknown(method));
        }
        let request = v1::CreateScheduleRequest::decode(bytes).expect("a request");
        let body = request.schedule.expect("a body");
        let mut known = known.lock().expect("unpoisoned");
        let created = match known.iter().find(|one| one.name == body.name) {
            Some(one) if *one == body => false,
            Some(_) => return Err(refusal(Code::AlreadyExists, "NAME_TAKEN", "the name is taken")),
            None => {
                known.push(body);
                true
            }
        };
        one(v1::CreateScheduleResponse { schedule: None, created, duplicates: vec![], warnings: vec![] })
    })
    .await
}

fn sent(fake: &Fake) -> Vec<v1::CreateScheduleRequest> {
    fake.requests("CreateSchedule")
}

#[tokio::test]
async fn a_dry_run_needs_no_cluster_and_says_what_each_line_would_become() {
    let file = File::holding(TAB);
    let ended = import(None, &[&file.path(), "--sender", "cron@example.com", "--dry-run", "-o", "json"]).await;
    assert_eq!(ended.code, Some(7), "{ended:?}");
    let json = ended.json();
    let fields = "cron line next outcome reason recipients schedule sender source subject user warnings zone zone_from";
    assert_eq!(keys(&json[0]), fields);
    assert_eq!(lines(&json, "line"), [4, 5, 6, 7, 9]);
    assert_eq!(lines(&json, "outcome"), ["planned", "planned", "refused", "refused", "left_out"]);
    assert_eq!(
        lines(&json, "schedule"),
        [json!("report-all"), json!("week-over"), json!(null), json!(null), json!("silent")]
    );
    assert_eq!((&json[0]["cron"], &json[0]["zone"]), (&json!("30 2 * * 1-5"), &json!("America/New_York")));
    assert_eq!((&json[0]["subject"], &json[0]["zone_from"]), (&json!("Nightly report"), &json!("cron_tz")));
    assert_eq!(json[0]["recipients"], json!(["ops@example.com"]));
    assert_eq!(json[0]["next"].as_array().map(Vec::len), Some(3));
    assert_eq!(keys(&json[0]["next"][0]), "instant local remark");
    assert_eq!(json[1]["recipients"], json!(["cfo@example.com", "ops@example.com"]));
    assert_eq!((&json[1]["sender"], &json[1]["subject"]), (&json!("books@example.com"), &json!("Week {{ over }}")));
    assert!(json[2]["reason"].as_str().is_some_and(|why| why.starts_with("@reboot is no time")), "{json}");
    assert!(json[3]["reason"].as_str().is_some_and(|why| why.contains("choose a value yourself")), "{json}");
    assert!(json[4]["reason"].as_str().is_some_and(|why| why.contains("cron mails nobody")), "{json}");
    assert!(ended.stderr.contains("5 jobs: 2 planned, 2 refused, 1 left out"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("{}:6", file.path())), "{}", ended.stderr);
}

#[tokio::test]
async fn what_can_be_created_is_created_paused_with_its_place_in_the_reason() {
    let file = File::holding(TAB);
    let fake = remembering().await;
    let arguments = [&file.path(), "--sender", "cron@example.com", "--pool", "bulk", "--tenant", "acme", "--yes"];
    let ended = import(Some(&fake), &arguments).await;
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert!(ended.stderr.contains("reveille schedule resume NAME"), "{}", ended.stderr);
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
    assert!(text.contains("/usr/local/bin/report.sh --all") && text.contains(&format!("{}:4", file.path())), "{text}");
    let content = week.content.clone().expect("content");
    assert_eq!(content.text.as_deref(), Some("Dear all,\nit is Sunday."));
    assert_eq!(content.subject, "Week {{ brace }}{ over }}", "braces of a command are no code");
    assert_eq!(content.variables, [v1::Field { name: "brace".into(), value: "{".into() }]);
    assert!(week.paused.as_deref().is_some_and(|reason| reason.ends_with("check its content, then resume")));
}

#[tokio::test]
async fn the_same_file_again_changes_nothing() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n0 10 * * * two\n");
    let fake = remembering().await;
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

#[tokio::test]
async fn a_line_that_the_cluster_refuses_spoils_no_other() {
    let fake = remembering().await;
    let import = async |text: &str| {
        let file = File::holding(text);
        import(Some(&fake), &[&file.path(), "--sender", "c@example.com", "--tz", "UTC", "--yes", "-o", "json"]).await
    };
    assert_eq!(import("MAILTO=a@example.com\n0 9 * * * one\n").await.code, Some(0));
    let edited = import("MAILTO=a@example.com\n0 8 * * * one\n0 9 * * * two\n").await;
    assert_eq!(edited.code, Some(7), "{edited:?}");
    let json = edited.json();
    assert_eq!(lines(&json, "outcome"), ["failed", "created"]);
    assert!(json[0]["reason"].as_str().is_some_and(|why| why.contains("left as it is")), "{json}");
    assert_eq!(import("MAILTO=a@example.com\n0 7 * * * one\n").await.code, Some(4));
}

#[tokio::test]
async fn without_a_cluster_the_first_line_tells_and_no_other_is_asked_for() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n0 10 * * * two\n");
    let ended = import(None, &[&file.path(), "--sender", "c@example.com", "--tz", "UTC", "--yes"]).await;
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(ended.stderr.contains("2 jobs: 1 failed, 1 not asked"), "{}", ended.stderr);
}

#[tokio::test]
async fn nothing_is_created_before_it_is_confirmed() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\nhello\n");
    let fake = remembering().await;
    let ended = import(Some(&fake), &[&file.path(), "--sender", "c@example.com", "--tz", "UTC"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("Create 1 schedule, paused; 1 line left out"), "{}", ended.stderr);
    assert_eq!(fake.methods(), [""; 0]);
}

#[tokio::test]
async fn the_system_form_comes_through_stdin_too() {
    let arguments = ["import", "crontab", "-", "--system", "--to", "ops@example.com", "--sender", "c@example.com"];
    let mut command = command(&arguments);
    command.args(["--tz", "Europe/Berlin", "--prefix", "web1-", "--dry-run", "-o", "json"]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"17 * * * * root cd / && run-parts /etc/cron.hourly").await.expect("written");
    drop(stdin);
    let output = timeout(PATIENCE, child.wait_with_output()).await.expect("it ends");
    let ended = Ended::from(output.expect("it ran"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let json = ended.json();
    assert_eq!((&json[0]["user"], &json[0]["schedule"]), (&json!("root"), &json!("web1-run-parts-etc-cron-hourly")));
    assert_eq!((&json[0]["zone"], &json[0]["recipients"]), (&json!("Europe/Berlin"), &json!(["ops@example.com"])));
    assert!(ended.stderr.contains("the last line has no line end"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_zone_that_does_not_exist_is_the_lines_own_fault() {
    let file = File::holding("MAILTO=a@example.com\nCRON_TZ=Europe/Berlni\n0 9 * * * one\n");
    let ended = import(None, &[&file.path(), "--sender", "c@example.com", "--dry-run", "-o", "json"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let json = ended.json();
    assert!(json[0]["reason"].as_str().is_some_and(|why| why.contains("did you mean Europe/Berlin")), "{json}");
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
async fn a_file_that_is_not_there_is_usage_and_an_empty_one_is_nothing_to_do() {
    let missing = import(None, &["/nowhere/tab", "--dry-run", "-o", "json"]).await;
    assert_eq!((missing.code, missing.error()["field"].clone()), (Some(2), json!("/nowhere/tab")));
    let empty = File::holding("# nothing\n");
    let ended = import(None, &[&empty.path(), "--yes", "-o", "json"]).await;
    assert_eq!((ended.code, ended.json()), (Some(0), json!([])));
}

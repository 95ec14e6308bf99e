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

async fn import(arguments: &[&str]) -> Ended {
    // No process listens on port 1, so a command that sends a request fails.
    let mut all = vec!["--endpoint", "127.0.0.1:1", "import", "crontab"];
    all.extend_from_slice(arguments);
    run(&mut command(&all)).await
}

fn lines(json: &Value, field: &str) -> Vec<Value> {
    json.as_array().expect("an array").iter().map(|line| line[field].clone()).collect()
}

#[tokio::test]
async fn import_needs_no_cluster_and_shows_each_line() {
    let file = File::holding(TAB);
    let ended = import(&[&file.path(), "--sender", "cron@example.com", "-o", "json"]).await;
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
    assert_eq!(keys(&json[0]["next"][0]), "local remarks time");
    assert_eq!(json[1]["recipients"], json!(["cfo@example.com", "ops@example.com"]));
    assert_eq!((&json[1]["sender"], &json[1]["subject"]), (&json!("books@example.com"), &json!("Week {{ over }}")));
    assert!(json[2]["reason"].as_str().is_some_and(|why| why.starts_with("@reboot is no time")), "{json}");
    assert!(json[3]["reason"].as_str().is_some_and(|why| why.contains("choose a value yourself")), "{json}");
    assert!(json[4]["reason"].as_str().is_some_and(|why| why.contains("cron sends no email")), "{json}");
    assert!(ended.stderr.contains("5 jobs: 2 planned, 2 refused, 1 left out"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("{}:6", file.path())), "{}", ended.stderr);
}

#[tokio::test]
async fn file_that_is_not_written_is_named() {
    let file = File::holding("MAILTO=ann@example.com\n");
    let folder = tempfile::tempdir().expect("a folder");
    let written = folder.path().join("jobs.yaml");
    let path = written.display().to_string();
    let ended = import(&[&file.path(), "--write", &path]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains(&format!("{path} is not written: there is no schedule")), "{ended:?}");
    assert!(!written.exists());
}

#[tokio::test]
async fn documents_are_paused_schedules_that_apply_reads() {
    let file = File::holding(TAB);
    let folder = tempfile::tempdir().expect("a folder");
    let written = folder.path().join("jobs.yaml").display().to_string();
    let (path, more) = (file.path(), ["--pool", "bulk", "--tenant", "acme", "--write", &written]);
    let arguments = [[path.as_str(), "--sender", "cron@example.com"].as_slice(), &more].concat();
    let ended = import(&arguments).await;
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert!(ended.stderr.contains(&format!("reveille apply -f {written}")), "{}", ended.stderr);
    let again = import(&arguments).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(2), ""), "an edited file is not overwritten: {again:?}");

    let text = std::fs::read_to_string(&written).expect("read");
    for line in
        [format!("# {path}:4: 30 2 * * 1-5 /usr/local/bin/report.sh --all > /dev/null 2>&1"), "kind: schedule".into()]
    {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
    assert!(text.contains("\n# refused: @reboot is no time"), "{text}");
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let created = Arc::clone(&bodies);
    let fake = Fake::start(move |method, bytes| match method {
        "UpdateSchedule" => Err(refusal(Code::NotFound, "SCHEDULE_NOT_FOUND", "no schedule of that name")),
        "CreateSchedule" => {
            let request = v1::CreateScheduleRequest::decode(bytes).expect("a request");
            if !request.validate_only {
                created.lock().expect("unpoisoned").push(request.schedule.expect("a body"));
            }
            one(v1::CreateScheduleResponse { created: true, ..Default::default() })
        }
        _ => Err(unknown(method)),
    });
    let fake = fake.await;
    assert_eq!(fake.reveille(&format!("apply -f {written}")).await.code, Some(0));
    let bodies = bodies.lock().expect("unpoisoned").clone();
    let [report, week] = bodies.as_slice() else { panic!("{bodies:?}") };
    assert_eq!(
        (report.tenant.as_str(), report.pool.as_str(), report.zone.as_str()),
        ("acme", "bulk", "America/New_York")
    );
    let reason = format!("imported from {path}:4; write its content, then resume");
    assert_eq!(report.paused.as_deref(), Some(reason.as_str()));
    assert_eq!(report.labels.get("crontab").map(String::as_str), Some(""));
    let content = report.content.clone().expect("content");
    assert_eq!((content.sender.as_str(), content.subject.as_str()), ("cron@example.com", "Nightly report"));
    let text = content.text.expect("a text");
    assert!(text.contains("/usr/local/bin/report.sh --all") && !text.contains(&path), "{text}");
    let content = week.content.clone().expect("content");
    assert_eq!(content.text.as_deref(), Some("Dear all,\nit is Sunday."));
    assert_eq!(content.subject, "Week {{ brace }}{ over }}", "braces of a command are no code");
    assert_eq!(content.variables, [v1::Field { name: "brace".into(), value: "{".into() }]);
    assert!(week.paused.as_deref().is_some_and(|reason| reason.ends_with("check its content, then resume")));
}

#[tokio::test]
async fn invalid_flag_of_import_is_refused_without_cluster() {
    let file = File::holding("MAILTO=a@example.com\n0 9 * * * one\n");
    for (flag, value) in [("--jitter", "2d"), ("--retention", "1h"), ("--tenant", "bad tenant!"), ("--pool", "no pool")]
    {
        let path = file.path();
        let ended = import(&[&path, "--sender", "c@example.com", "--zone", "UTC", "-o", "json", flag, value]).await;
        assert_eq!(ended.code, Some(2), "{flag}: {ended:?}");
        let json = ended.json();
        assert_eq!(json[0]["outcome"], "refused");
        assert!(json[0]["reason"].as_str().is_some_and(|why| why.starts_with(flag)), "{json}");
    }
}

#[tokio::test]
async fn system_form_comes_through_stdin_too() {
    let arguments = ["import", "crontab", "-", "--system", "--to", "ops@example.com", "--sender", "c@example.com"];
    let mut command = command(&arguments);
    command.args(["--zone", "Europe/Berlin", "--prefix", "web1-", "-o", "json"]).stdin(Stdio::piped());
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
    let ended = import(&[&file.path(), "--sender", "c@example.com", "-o", "json"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let json = ended.json();
    assert!(json[0]["reason"].as_str().is_some_and(|why| why.contains("did you mean Europe/Berlin")), "{json}");
    let file = File::holding("RANDOM_DELAY=5\nTZ=UTC\nMAILTO=a@example.com\nCRON_TZ=UTC+3\nTZ=UTC\n0 9 * * * one\n");
    let ended = import(&[&file.path(), "--sender", "c@example.com", "-o", "json"]).await;
    let json = ended.json();
    let why = json[0]["reason"].as_str().expect("words");
    assert!(why.contains("CRON_TZ in line 4: write an IANA name there"), "{why}");
    assert_eq!(json[0]["warnings"], json!([]), "how it would be is beside the point");
    assert!(ended.stderr.contains("1 of 1 job left out"), "{ended:?}");
}

#[tokio::test]
async fn direction_characters_of_crontab_reach_no_terminal() {
    let file = File::holding("MAILTO=a@example.com\n# \u{202e}evil\u{7}\n0 9 * * * echo '\u{202e}bell'\n");
    let ended = import(&[&file.path(), "--sender", "c@example.com", "--zone", "UTC"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("\\u{202e}bell"), "{}", ended.stdout);
    assert!(!(ended.stdout + &ended.stderr).contains(['\u{202e}', '\u{7}']), "it is spelled out");
}

#[tokio::test]
async fn people_get_a_table_and_scripts_get_names() {
    let file = File::holding(TAB);
    let path = file.path();
    let table = import(&[&path, "--sender", "cron@example.com"]).await.stdout;
    let heading: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(heading, ["LINE", "SOURCE", "SCHEDULE", "NEXT", "OUTCOME", "NOTES"]);
    assert!(table.contains("@reboot is no time"), "{table}");
    let names = import(&[&path, "--sender", "cron@example.com", "-o", "name"]).await.stdout;
    assert_eq!(names, "report-all\nweek-over\n");
}

#[tokio::test]
async fn missing_crontab_is_usage_error_and_empty_one_does_nothing() {
    let missing = import(&["/nowhere/tab", "-o", "json"]).await;
    assert_eq!((missing.code, missing.error()["field"].clone()), (Some(2), json!("/nowhere/tab")));
    let empty = File::holding("# nothing\n");
    let ended = import(&[&empty.path(), "-o", "json"]).await;
    assert_eq!((ended.code, ended.json()), (Some(0), json!([])));
}

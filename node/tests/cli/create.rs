//! `schedule create`: what it reads from flags and files, and the request that it sends.

use std::path::Path;

use reveille_proto::admin::v1;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::fake::Fake;
use crate::terminal::{Ended, command, run};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    }
}

async fn create(fake: &Fake, arguments: &[&str]) -> Ended {
    let address = fake.address().to_string();
    let mut all = vec!["--endpoint", &address, "-o", "json", "schedule", "create", "morning"];
    all.extend_from_slice(arguments);
    run(&mut command(&all)).await
}

async fn willing() -> Fake {
    let duplicate = v1::Duplicate { recipient: 1, values_differ: false, same_as: 0 };
    Fake::answering(
        "CreateSchedule",
        v1::CreateScheduleResponse {
            schedule: None,
            created: true,
            duplicates: vec![duplicate],
            warnings: vec![v1::Warning {
                reason: v1::WarningReason::NoRelay.into(),
                pool: "bulk".into(),
                ..Default::default()
            }],
        },
    )
    .await
}

fn sent(fake: &Fake) -> v1::ScheduleBody {
    let mut requested: Vec<v1::CreateScheduleRequest> = fake.requests("CreateSchedule");
    assert_eq!(requested.len(), 1);
    requested.remove(0).schedule.expect("a body")
}

const WHAT: [&str; 4] = ["--sender", "News <news@example.com>", "--subject", "Hi {{ name }}"];

#[tokio::test]
async fn everything_that_was_said_is_sent() {
    let folder = Folder::new();
    let (text, html) = (folder.file("t.txt", "\u{feff}Hi {{ name }}\n"), folder.file("t.html", "<p>Hi</p>"));
    let fake = willing().await;
    let mut arguments = vec![
        "--daily",
        "9:05",
        "--days",
        "mon-fri",
        "--zone",
        "Europe/Berlin",
        "--to",
        "ann@example.com",
        "--to",
        "ANN@example.com",
    ];
    arguments.extend(WHAT);
    arguments.extend([
        "--text",
        &text,
        "--html",
        &html,
        "--reply-to",
        "r@example.com",
        "--cc",
        "c@example.com",
        "--cc",
        "d@example.com",
        "--variable",
        "a=b=c",
        "--header",
        "X-A=1",
    ]);
    arguments.extend(["--dst-gap", "skip", "--dst-overlap", "both", "--catch-up", "all", "--in-doubt", "assume_sent"]);
    arguments.extend([
        "--start-within",
        "90m",
        "--max-attempts",
        "3",
        "--pool",
        "bulk",
        "--priority",
        "7",
        "--max-runs",
        "2",
    ]);
    arguments.extend(["--start-time", "2026-01-01T00:00:00Z", "--paused", "--reason", "not yet"]);
    arguments.extend(["--min-gap", "none", "--jitter", "10m"]);
    let ended = create(&fake, &arguments).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let body = sent(&fake);
    let daily = v1::Daily { hour: 9, minute: 5, days: "mon,tue,wed,thu,fri".into() };
    assert_eq!(body.timing.clone().and_then(|when| when.pattern), Some(v1::when::Pattern::Daily(daily)));
    assert_eq!((body.tenant.as_str(), body.zone.as_str(), body.pool.as_str()), ("default", "Europe/Berlin", "bulk"));
    assert_eq!((body.priority, body.max_runs, body.paused.as_deref()), (7, Some(2), Some("not yet")));
    assert_eq!(body.start_time.map(|start| start.seconds), Some(1_767_225_600));
    let policies = body.policies.expect("policies");
    assert_eq!((policies.dst_gap(), policies.dst_overlap()), (v1::DstGap::Skip, v1::DstOverlap::Both));
    assert_eq!((policies.catch_up(), policies.in_doubt()), (v1::CatchUp::All, v1::InDoubt::AssumeSent));
    assert_eq!(policies.start_within.map(|within| within.seconds), Some(5_400));
    assert_eq!((policies.finish_by, policies.max_attempts), (None, 3));
    let seconds = |length: Option<prost_types::Duration>| length.map(|length| length.seconds);
    assert_eq!((seconds(policies.min_gap), seconds(policies.jitter)), (Some(0), Some(600)), "none is not the default");
    let content = body.content.expect("content");
    assert_eq!((content.text.as_deref(), content.html.as_deref()), (Some("Hi {{ name }}\n"), Some("<p>Hi</p>")));
    assert_eq!((content.sender.as_str(), content.reply_to.as_str()), ("News <news@example.com>", "r@example.com"));
    assert_eq!(content.cc, ["c@example.com", "d@example.com"]);
    let field = |name: &str, value: &str| v1::Field { name: name.into(), value: value.into() };
    assert_eq!((content.variables, content.headers), (vec![field("a", "b=c")], vec![field("X-A", "1")]));
    assert_eq!(body.audience.map(|audience| audience.recipients.len()), Some(2));
    assert_eq!(ended.json()["duplicates"], serde_json::json!([{"recipient": 1, "sameAs": 0, "valuesDiffer": false}]));
    assert_eq!(
        ended.stderr,
        "1 duplicate left out, as each address gets one email a run: line 2 repeats line 1\nwarning: no relay is in pool bulk: its emails wait until they expire, and never go by another; reveille relay add NAME --pool bulk --host HOST --port PORT --tls starttls\ncreated\n"
    );
}

async fn create_from(fake: &Fake, recipients: &str, text: &str, more: &[&str]) -> Ended {
    let mut arguments = vec!["--cron", "0 9 * * *", "--zone", "UTC", "--recipients", recipients, "--text", text];
    arguments.extend(WHAT);
    arguments.extend_from_slice(more);
    create(fake, &arguments).await
}

#[tokio::test]
async fn file_of_recipients_is_sent_and_duplicates_are_named_by_line() {
    let folder = Folder::new();
    let text = folder.file("t.txt", "Hi");
    let people = folder.file("people.csv", "\u{feff}email,name\r\nann@example.com,Ann\r\n\r\nAnn@example.com,Anne\r\n");
    let fake = willing().await;
    let ended = create_from(&fake, &people, &text, &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let audience = sent(&fake).audience.expect("an audience");
    assert_eq!(audience.columns, ["name"]);
    let values: Vec<String> = audience.recipients.iter().flat_map(|one| one.values.clone()).collect();
    assert_eq!(values, ["Ann", "Anne"]);
    assert!(ended.stderr.contains(": line 4 repeats line 2\n"), "{ended:?}");
}

#[tokio::test]
async fn bad_row_creates_nothing_unless_it_may_be_left_out() {
    let folder = Folder::new();
    let text = folder.file("t.txt", "Hi");
    let people = folder.file("people.csv", "email,name\nann@example.com,Ann\npostmaster,No\n");
    let fake = willing().await;
    let ended = create_from(&fake, &people, &text, &[]).await;
    assert_eq!(ended.code, Some(2));
    let error = ended.error();
    assert_eq!(
        (error["reason"].as_str(), error["field"].as_str()),
        (Some("FILE"), Some(format!("{people}:3").as_str()))
    );
    let bad = &error["badRows"];
    assert_eq!((bad["count"].as_u64(), bad["shown"][0]["line"].as_u64()), (Some(1), Some(3)), "{error}");
    assert!(
        bad["shown"][0]["problem"].as_str().is_some_and(|text| text.starts_with("'postmaster' has no '@'")),
        "{error}"
    );
    assert!(error["next"].as_str().is_some_and(|next| next.contains("--skip-bad-rows")), "{error}");
    assert_eq!(fake.methods(), [""; 0], "no request was made");

    let ended = create_from(&fake, &people, &text, &["--skip-bad-rows"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.starts_with("left out: line 3: "), "{ended:?}");
    assert_eq!(sent(&fake).audience.map(|audience| audience.recipients.len()), Some(1));
}

#[tokio::test]
async fn recipient_that_the_cluster_refuses_is_named_by_its_line() {
    let folder = Folder::new();
    let text = folder.file("t.txt", "Hi");
    let people = folder.file("people.csv", "email\n\nann@example.com\nbob@example.com\n");
    let fake = Fake::start(|_, _| {
        let mut details = ErrorDetails::new();
        details.set_error_info("INVALID_FIELD", "reveille", std::collections::HashMap::new());
        details.add_bad_request_violation("schedule.audience.recipients[1].address", "not liked");
        Err(Status::with_error_details(Code::InvalidArgument, "refused", details))
    })
    .await;
    let ended = create_from(&fake, &people, &text, &[]).await;
    assert_eq!((ended.code, ended.error()["field"].as_str()), (Some(2), Some(format!("{people}:4").as_str())));
}

#[tokio::test]
async fn file_that_cannot_be_used_is_named() {
    let folder = Folder::new();
    let (text, people) = (folder.file("t.txt", "Hi"), folder.file("people.csv", "email\nann@example.com\n"));
    let fake = willing().await;
    let field = async |people: &str, text: &str| {
        let ended = create_from(&fake, people, text, &[]).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.error()["field"].as_str().unwrap_or_default().to_owned()
    };
    let missing = Path::new(&people).with_file_name("missing").display().to_string();
    assert_eq!(field(&missing, &text).await, missing);
    assert_eq!(field(&people, &missing).await, missing);
    let latin = folder.file("latin.txt", b"Hi\nJos\xE9\n");
    assert_eq!(field(&people, &latin).await, format!("{latin}:2"));
    let headless = folder.file("headless.csv", "ann@example.com\n");
    assert_eq!(field(&headless, &text).await, format!("{headless}:1"));
    let empty = folder.file("empty.csv", "email,name\n");
    assert_eq!(field(&empty, &text).await, empty);
    assert_eq!(fake.methods(), [""; 0], "no request was made");
}

#[tokio::test]
async fn flags_that_contradict_each_other_are_usage() {
    let folder = Folder::new();
    let text = folder.file("t.txt", "Hi");
    let fake = willing().await;
    let base = ["--sender", "a@example.com", "--subject", "s", "--zone", "UTC"];
    let refused = async |more: &[&str]| {
        let mut arguments = base.to_vec();
        arguments.extend_from_slice(more);
        let ended = create(&fake, &arguments).await;
        assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(2), Some("USAGE")), "{more:?}: {ended:?}");
    };
    refused(&["--text", &text, "--to", "a@example.com"]).await;
    refused(&["--text", &text, "--cron", "@daily"]).await;
    refused(&["--cron", "@daily", "--to", "a@example.com"]).await;
    refused(&["--text", &text, "--cron", "@daily", "--to", "postmaster"]).await;
    refused(&["--text", &text, "--cron", "@daily", "--every", "1h", "--to", "a@example.com"]).await;
    refused(&["--text", &text, "--cron", "@daily", "--to", "a@example.com", "--recipients", "x.csv"]).await;
    refused(&["--text", &text, "--cron", "@daily", "--to", "a@example.com", "--reason", "why"]).await;
    refused(&["--text", &text, "--cron", "@daily", "--to", "a@example.com", "--catch-up", "some"]).await;
    assert_eq!(fake.methods(), [""; 0], "no request was made");
}

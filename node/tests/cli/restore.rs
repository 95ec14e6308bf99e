//! `restore …`, and `in-doubt settle`: requests and output.

use std::io::Write as _;

use prost::Message as _;
use reveille_proto::admin::v1;
use serde_json::json;
use tonic::Code;

use crate::fake::{Fake, one, refusal, unknown};
use crate::terminal::reveille;

fn at(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

fn restore(accepted: bool) -> v1::Restore {
    let accept_time = accepted.then(|| at(172_800)).flatten();
    v1::Restore { backup_time: at(0), restore_time: at(86_400), accept_time }
}

/// Starts a fake of a cluster that was restored and not accepted.
async fn fake() -> Fake {
    let upcoming = v1::UpcomingInstant { tenant: "default".into(), schedule: "daily".into(), due_time: at(259_200) };
    let status = v1::GetRestoreResponse {
        restore: Some(restore(false)),
        in_doubt: 3,
        active_schedules: 1,
        upcoming: vec![upcoming],
        freshness: None,
    };
    Fake::start(move |method, _| match method {
        "GetRestore" => one(status.clone()),
        "AcceptRestore" => one(v1::AcceptRestoreResponse { restore: Some(restore(true)), index: 9 }),
        other => Err(unknown(other)),
    })
    .await
}

#[tokio::test]
async fn missing_target_is_named_by_the_flag_that_was_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let (gone, data) = (folder.path().join("gone"), folder.path().join("data"));
    let restore = format!("restore run --from {} --name a --data-dir {}", gone.display(), data.display());
    for (line, flag) in [(restore, "--from"), (format!("backup list --target {}", gone.display()), "--target")] {
        let ended = reveille(&format!("{line} -o json")).await;
        assert_eq!((ended.code, ended.error()["field"].as_str()), (Some(2), Some(flag)), "{ended:?}");
    }
}

#[tokio::test]
async fn status_shows_doubts_and_what_fires_next() {
    let fake = fake().await;
    let json = fake.reveille("restore status -o json").await.json();
    let times = json!({"backupTime": "1970-01-01T00:00:00Z", "restoreTime": "1970-01-02T00:00:00Z"});
    let next = json!([{"tenant": "default", "schedule": "daily", "dueTime": "1970-01-04T00:00:00Z"}]);
    assert_eq!(json, json!({"restore": times, "inDoubt": "3", "activeSchedules": "1", "upcoming": next}));
    let ended = fake.reveille("restore status").await;
    assert!(ended.stdout.contains("3 emails") && ended.stdout.contains("daily"), "{ended:?}");
    assert!(ended.stderr.contains("reveille restore accept --former-cluster-is-dead"), "{ended:?}");
}

#[tokio::test]
async fn accept_needs_the_statement_and_a_confirmation() {
    let fake = fake().await;
    let unstated = fake.reveille("restore accept --yes").await;
    assert_eq!(unstated.code, Some(2), "{unstated:?}");
    let unconfirmed = fake.reveille("restore accept --former-cluster-is-dead").await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:?}");
    assert!(unconfirmed.stderr.contains("3 emails in doubt"), "{unconfirmed:?}");
    assert!(fake.requests::<v1::AcceptRestoreRequest>("AcceptRestore").is_empty());
    let json = fake.reveille("restore accept --former-cluster-is-dead --yes -o json").await.json();
    assert_eq!(json["restore"]["acceptTime"], json!("1970-01-03T00:00:00Z"));
    let requested: Vec<v1::AcceptRestoreRequest> = fake.requests("AcceptRestore");
    assert_eq!(requested, [v1::AcceptRestoreRequest { former_cluster_is_dead: true }]);
}

/// Returns the Message-ID of an email, made of a digit.
fn message_id(digit: &str) -> String {
    format!("{}@example.com", digit.repeat(40))
}

/// Returns a doubt about a handoff of claim 14 with this place.
fn doubt(run: &str, number: u32, place: u32, message_id: String) -> v1::Doubt {
    let fence = format!("1.8.14.{place}");
    v1::Doubt { run: run.into(), number, fence, message_id, ..v1::Doubt::default() }
}

/// Writes the log of a relay that accepted the emails of these digits.
fn relay_log(accepted: &[&str]) -> tempfile::NamedTempFile {
    let mut log = tempfile::NamedTempFile::new().expect("a file");
    for (number, digit) in accepted.iter().enumerate() {
        let id = message_id(digit);
        writeln!(log, "mx postfix/cleanup[1]: A{number}: message-id=<{id}>").expect("written");
        writeln!(log, "mx postfix/qmgr[2]: A{number}: from=<n@example.com>, size=1, nrcpt=1 (queue active)")
            .expect("written");
    }
    log
}

#[tokio::test]
async fn settle_names_only_emails_that_the_log_shows_as_accepted() {
    let doubts = vec![
        doubt("r13.0", 0, 0, message_id("a")),
        doubt("r13.0", 1, 0, message_id("b")),
        doubt("r13.0", 2, 3, message_id("c")),
        doubt("r15.0", 0, 1, message_id("d")),
        doubt("r15.0", 1, 1, String::new()),
    ];
    let fake = Fake::start(move |method, _| match method {
        "ListDoubts" => one(v1::ListDoubtsResponse { doubts: doubts.clone(), ..Default::default() }),
        "ResolveDoubts" => one(v1::ResolveDoubtsResponse { resolved: 1, index: 20, ..Default::default() }),
        other => Err(unknown(other)),
    })
    .await;
    let mut log = relay_log(&["a", "c", "d"]);
    writeln!(log, "mx postfix/cleanup[1]: B1: message-id=<{}>", message_id("b")).expect("written");
    let path = log.path().display();
    let counted = fake.reveille(&format!("in-doubt settle {path} --dry-run -o json")).await.json();
    assert_eq!(counted["moved"], json!(3));
    assert!(fake.requests::<v1::ResolveDoubtsRequest>("ResolveDoubts").is_empty());
    let ended = fake.reveille(&format!("in-doubt settle {path} --yes")).await;
    assert!(ended.stderr.contains("nothing of 2 emails"), "{ended:?}");
    let requested: Vec<v1::ResolveDoubtsRequest> = fake.requests("ResolveDoubts");
    let requested: Vec<_> = requested
        .iter()
        .map(|one| (one.run.as_str(), one.recipients.clone(), one.fence.as_str(), one.resolution()))
        .collect();
    let accepted = v1::Resolution::Accepted;
    assert_eq!(
        requested,
        [
            ("r13.0", vec!["#0".to_owned(), "#2".to_owned()], "1.8.14.3", accepted),
            ("r15.0", vec!["#0".to_owned()], "1.8.14.1", accepted),
        ]
    );
}

#[tokio::test]
async fn settle_sends_each_run_as_a_request_with_its_own_id() {
    let doubts = vec![doubt("r13.0", 0, 0, message_id("a")), doubt("r15.0", 0, 1, message_id("d"))];
    let fake = Fake::start(move |method, bytes| match method {
        "ListDoubts" => one(v1::ListDoubtsResponse { doubts: doubts.clone(), ..Default::default() }),
        "ResolveDoubts" => match v1::ResolveDoubtsRequest::decode(bytes).expect("a request").run.as_str() {
            "r13.0" => one(v1::ResolveDoubtsResponse { resolved: 2, index: 20, ..Default::default() }),
            _ => Err(refusal(Code::PermissionDenied, "DENIED", "not any more")),
        },
        other => Err(unknown(other)),
    })
    .await;
    let log = relay_log(&["a", "d"]);
    let path = log.path().display();
    let ended = fake.reveille(&format!("in-doubt settle {path} --yes --request-id mine -o json")).await;
    assert_eq!(ended.error()["message"], "after 2 emails settled as sent: not any more");
    let ids = fake.requests("ResolveDoubts").into_iter().map(|one: v1::ResolveDoubtsRequest| one.request_id);
    assert_eq!(ids.collect::<std::collections::BTreeSet<_>>().len(), 2, "an id for each request");
}

//! `audience import`: the requests that it sends, and its errors about the file.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::json;
use tempfile::TempDir;
use tonic::Code;

use crate::fake::{Answer, Fake, one, refusal, unknown};
use crate::terminal::keys;

fn file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("list.csv");
    std::fs::write(&path, text).expect("a file");
    (folder, path)
}

fn sealed(bytes: &[u8]) -> Answer {
    let requested = v1::SealAudienceRequest::decode(bytes).expect("a request");
    let audience = v1::SealedAudience {
        tenant: requested.tenant,
        name: requested.name,
        recipients: requested.recipients,
        columns: requested.columns,
        parts: requested.parts.len() as u32,
        seal: "5ea1".into(),
        index: 7,
        seal_time: Some(prost_types::Timestamp { seconds: 1_795_176_000, nanos: 0 }),
        missing: 0,
        etag: "7".into(),
    };
    let words = [None, Some(audience)].map(|audience| v1::SealAudienceResponse { checked: 1, parts: 1, audience });
    Ok(words.iter().map(Message::encode_to_vec).collect())
}

/// Starts a fake cluster without any parts.
async fn empty() -> Fake {
    Fake::start(|method, bytes| match method {
        "PrepareAudience" => {
            let requested = v1::PrepareAudienceRequest::decode(bytes).expect("a request");
            one(v1::PrepareAudienceResponse { missing: requested.parts })
        }
        "PutPart" => one(v1::PutPartResponse {}),
        "SealAudience" => sealed(bytes),
        _ => Err(unknown(method)),
    })
    .await
}

async fn import(fake: &Fake, path: &Path, flags: &str) -> crate::terminal::Ended {
    fake.reveille(&format!("audience import members {} {flags}", path.display())).await
}

#[tokio::test]
async fn list_is_sent_by_its_parts_and_sealed() {
    let (_folder, path) = file("email,name\nAnn@example.com,Ann\nbob@example.com,Bob\nann@example.com,Again\n");
    let fake = empty().await;
    let ended = import(&fake, &path, "-o json --request-id r1").await;
    let json = ended.json();
    assert_eq!(keys(&json), "audience duplicates partsSent partsThere refused rows");
    let counts = ["rows", "refused", "duplicates", "partsSent", "partsThere"];
    assert_eq!(counts.map(|key| json[key].clone()), [3, 0, 1, 1, 0].map(|count| json!(count)));
    assert_eq!((&json["audience"]["recipients"], &json["audience"]["parts"]), (&json!(2), &json!(1)));
    assert_eq!(ended.stderr, "1 duplicate left out: the first row of an address stays\n");
    assert_eq!(fake.methods(), ["PrepareAudience", "PrepareAudience", "PutPart", "SealAudience"]);
    let put: v1::PutPartRequest = fake.requests("PutPart").remove(0);
    let seal: v1::SealAudienceRequest = fake.requests("SealAudience").remove(0);
    assert_eq!(seal.parts, std::slice::from_ref(&put.part));
    assert_eq!((seal.recipients, seal.columns, seal.request_id.as_str()), (2, vec!["name".to_owned()], "r1"));
    let piece = String::from_utf8_lossy(&put.piece);
    assert!(piece.contains("Ann@example.com") && !piece.contains("Again"), "{piece}");
}

#[tokio::test]
async fn generated_audience_is_imported() {
    let fake = empty().await;
    let line = "audience generate million --recipients 70000 --seed 3 --column name --column city -o json";
    let json = fake.reveille(line).await.json();
    assert_eq!(
        ["/rows", "/audience/recipients", "/audience/parts"].map(|key| json.pointer(key).cloned()),
        [70_000, 70_000, 2].map(|count| Some(json!(count)))
    );
    let seal: v1::SealAudienceRequest = fake.requests("SealAudience").remove(0);
    assert_eq!((seal.name.as_str(), seal.columns), ("million", vec!["name".to_owned(), "city".to_owned()]));
    let puts: Vec<v1::PutPartRequest> = fake.requests("PutPart");
    let has_17 =
        |put: &v1::PutPartRequest| String::from_utf8_lossy(&put.piece).contains("r00000017.s3@audience.invalid");
    assert!(puts.iter().any(has_17));
}

#[tokio::test]
async fn people_are_shown_what_became_of_the_file() {
    let (_folder, path) = file("email\nann@example.com\n");
    let ended = import(&empty().await, &path, "").await;
    let expected = "\
audience      members
tenant        default
recipients    1
columns       -
parts         1
missing here  0
seal          5ea1
sealed        2026-11-20T12:00:00Z, log index 7
rows read     1
refused       0
duplicates    0
parts sent    1, and 0 were there
";
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), (expected, ""));
}

#[tokio::test]
async fn present_part_is_not_sent_again() {
    let (_folder, path) = file("email\nann@example.com\n");
    let fake = Fake::start(|method, bytes| match method {
        "PrepareAudience" => one(v1::PrepareAudienceResponse::default()),
        "SealAudience" => sealed(bytes),
        _ => Err(unknown(method)),
    });
    let json = import(&fake.await, &path, "-o json").await.json();
    assert_eq!((json["partsSent"].clone(), json["partsThere"].clone()), (json!(0), json!(1)));
}

#[tokio::test]
async fn cluster_that_is_away_for_a_moment_is_asked_again() {
    let (_folder, path) = file("email\nann@example.com\n");
    let times = Mutex::new(0);
    let fake = Fake::start(move |method, bytes| match method {
        "PrepareAudience" => {
            let requested = v1::PrepareAudienceRequest::decode(bytes).expect("a request");
            one(v1::PrepareAudienceResponse { missing: requested.parts })
        }
        "PutPart" => {
            let mut times = times.lock().expect("unpoisoned");
            *times += 1;
            let away = *times < 4;
            if away { Err(refusal(Code::Unavailable, "NO_QUORUM", "not now")) } else { one(v1::PutPartResponse {}) }
        }
        "SealAudience" => sealed(bytes),
        _ => Err(unknown(method)),
    });
    let ended = import(&fake.await, &path, "-o json").await;
    assert_eq!(ended.json()["partsSent"], 1);
}

/// Starts a fake cluster whose only node has no space for a part.
async fn full() -> Fake {
    Fake::start(|method, bytes| match method {
        "PrepareAudience" => {
            let requested = v1::PrepareAudienceRequest::decode(bytes).expect("a request");
            one(v1::PrepareAudienceResponse { missing: requested.parts })
        }
        _ => Err(refusal(Code::Unavailable, "NO_QUORUM", FULL)),
    })
    .await
}

const FULL: &str = "a cannot write part 0: 3 MiB are free in /d/parts for a part of 4, and 1 are kept free for the log";

#[tokio::test]
async fn upload_reports_what_it_waits_for() {
    let (_folder, path) = file("email\nann@example.com\n");
    let fake = full().await;
    // The timeout is below the ten seconds after which a line is repeated, but long enough for a busy machine.
    let ended = import(&fake, &path, "--timeout 9s").await;
    let reported = format!("0 of 1 part on a majority; waits: {FULL}\n");
    let lines = ended.stderr.matches(&reported).count();
    assert_eq!(lines, 1, "once, for nothing changes: {}", ended.stderr);
    let error = ended.stderr.split("error: ").nth(1).expect("an error");
    let message = format!("the time is over, while it waits: {FULL}; on a majority of nodes: no parts\n");
    assert!(error.starts_with(&message), "{error}");
    let next = "reveille cluster status; then the same command again: what is there is not sent again";
    assert!(error.contains(next), "{error}");

    let ended = import(&fake, &path, "--timeout 9s -o json").await;
    let error = ended.error();
    assert_eq!((ended.code, &error["reason"]), (Some(8), &json!("TIMED_OUT")), "{ended:?}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(FULL)), "{error}");
}

#[tokio::test]
async fn rows_that_cannot_be_used_stop_it_before_anything_is_asked() {
    let (folder, path) = file("email\nann@example.com\npostmaster\n\nx y@example.com\n");
    let fake = empty().await;
    let ended = import(&fake, &path, "-o json").await;
    let error = ended.error();
    let message = format!("2 rows of {} cannot be used, so nothing was sealed", path.display());
    assert_eq!((ended.code, error["message"].as_str()), (Some(2), Some(message.as_str())));
    let no_at_sign = "'postmaster' has no '@': an address is LOCAL@DOMAIN";
    let blank = "a blank (U+0020) at character 2 is not allowed in the local part";
    let rows = json!([{ "line": 3, "problem": no_at_sign }, { "line": 5, "problem": blank }]);
    assert_eq!(error["badRows"], json!({ "count": 2, "shown": rows }));
    assert_eq!(error["next"], "correct them, or leave them out with --skip-bad-rows");
    assert!(fake.methods().is_empty(), "{:?}", fake.methods());

    let ended = import(&fake, &path, "").await;
    let reported = format!("error: {message}\n  line 3: {no_at_sign}\n  line 5: {blank}\n");
    assert!(ended.stderr.starts_with(&reported), "{ended:?}");

    let report = folder.path().join("report.csv");
    let ended = import(&fake, &path, &format!("-o json --skip-bad-rows --report {}", report.display())).await;
    let json = ended.json();
    assert_eq!((json["rows"].clone(), json["refused"].clone()), (json!(3), json!(2)));
    assert!(ended.stderr.starts_with("left out: line 3: 'postmaster' has no '@'"), "{ended:?}");
    let report = std::fs::read_to_string(report).expect("a report");
    assert_eq!(report.lines().count(), 3, "{report}");
}

#[tokio::test]
async fn file_that_cannot_be_used_says_where() {
    let fake = empty().await;
    let refused = async |text: &str| {
        let (_folder, path) = file(text);
        let ended = import(&fake, &path, "-o json").await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let error = ended.error();
        let field = error["field"].as_str().unwrap_or_default().replace(&path.display().to_string(), "F");
        (field, error["message"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(refused("email\n").await.1, "no row holds a recipient");
    assert_eq!(refused("name\nx\n").await.0, "F:1");
    let (field, message) = refused("email,name\na@b.c,A\nb@b.c,\"B\nc@b.c,C\n").await;
    assert!(field == "F:3" && message.starts_with("a quote opens in this row"), "{field} {message}");
    let gone = fake.reveille("audience import members /nowhere/list.csv -o json").await;
    assert_eq!(gone.error()["field"], "/nowhere/list.csv");
    assert!(fake.methods().is_empty());
}

#[tokio::test]
async fn refused_name_is_reported_before_any_part_is_sent() {
    let (_folder, path) = file("email\nann@example.com\n");
    let fake = Fake::refusing(Code::AlreadyExists, "NAME_TAKEN", "audience 'members' exists").await;
    let ended = import(&fake, &path, "-o json").await;
    assert_eq!((ended.code, fake.methods()), (Some(4), vec!["PrepareAudience".to_owned()]), "{ended:?}");
}

//! `template send-test`: its request, how it waits, and its output for each outcome.

use std::sync::atomic::{AtomicUsize, Ordering};

use prost::Message;
use reveille_proto::admin::v1::{self, ExplainedEventKind as Kind, RecipientState};
use serde_json::json;
use tonic::Code;

use crate::fake::{Fake, one, refusal, refusal_of, unknown};
use crate::terminal::{Ended, command, run};

/// Starts a fake cluster in which the email reaches this state after one or two requests.
async fn ending(state: RecipientState, event: v1::ExplainedEvent) -> Fake {
    let looks = AtomicUsize::new(0);
    Fake::start(move |method, bytes| match method {
        "SendTest" => {
            let requested = v1::SendTestRequest::decode(bytes).expect("a request");
            let run = (!requested.validate_only).then(|| v1::Run { run: "r7.0".into(), ..v1::Run::default() });
            let opted_out = requested.validate_only && state == RecipientState::Suppressed;
            one(v1::SendTestResponse { run, opted_out, ..Default::default() })
        }
        "Explain" => {
            let settled = looks.fetch_add(1, Ordering::SeqCst) > 1;
            let claimed =
                v1::ExplainedEvent { kind: Kind::Claimed.into(), incarnation: 1, ..v1::ExplainedEvent::default() };
            let requested =
                v1::ExplainedEvent { kind: Kind::Asked.into(), relay: "main".into(), ..v1::ExplainedEvent::default() };
            let is_shown = matches!(state, RecipientState::Dead | RecipientState::InDoubt).then_some(requested);
            let ending = is_shown.into_iter().chain([event.clone()]);
            let events = if settled { [claimed].into_iter().chain(ending).collect() } else { vec![claimed] };
            let state = if settled { state } else { RecipientState::Claimed };
            one(v1::ExplainResponse {
                run: "r7.0".into(),
                recipient: "you@example.com".into(),
                state: state.into(),
                events,
                ..Default::default()
            })
        }
        _ => Err(unknown(method)),
    })
    .await
}

fn event(kind: Kind, code: u32, text: &str) -> v1::ExplainedEvent {
    v1::ExplainedEvent {
        kind: kind.into(),
        code,
        text: text.into(),
        node: "n2".into(),
        ..v1::ExplainedEvent::default()
    }
}

async fn send(fake: &Fake, more: &[&str]) -> Ended {
    let address = fake.address().to_string();
    let all =
        ["--endpoint", &address, "template", "send-test", "--to", "you@example.com", "--sender", "me@example.com"];
    run(&mut command(&[&all, more].concat())).await
}

const WHAT: [&str; 4] = ["--subject", "s", "--inline-text", "t"];

#[tokio::test]
async fn accepted_email_shows_the_relays_reply() {
    let taken = v1::ExplainedEvent {
        relay: "main".into(),
        enhanced: "2.0.0".into(),
        ..event(Kind::Sent, 250, "queued as 4F2")
    };
    let fake = ending(RecipientState::Sent, taken).await;
    let ended = send(&fake, &[&WHAT[..], &["-o", "json"]].concat()).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let json = ended.json();
    assert_eq!((&json["run"], &json["state"]), (&json!("r7.0"), &json!("RECIPIENT_STATE_SENT")));
    let last = json["events"].as_array().and_then(|events| events.last()).expect("an event");
    assert_eq!((&last["relay"], &last["code"], &last["node"]), (&json!("main"), &json!(250), &json!("n2")));
    assert!(fake.methods().len() >= 4, "it waited");
    let requested: Vec<v1::SendTestRequest> = fake.requests("SendTest");
    let requested = requested.first().expect("asked");
    assert_eq!(requested.finish_within.map(|within| within.seconds), Some(60));
    let table = send(&fake, &WHAT).await.stdout;
    assert!(table.contains("main answered 250 2.0.0 queued as 4F2"), "{table}");
}

#[tokio::test]
async fn each_outcome_has_its_exit_code() {
    use RecipientState::{Claimed, Dead, Expired, InDoubt, Suppressed};
    let refused = v1::ExplainedEvent { enhanced: "5.1.1".into(), ..event(Kind::Refused, 550, "no such user") };
    let no_relay = v1::ReleaseReason::Unavailable.into();
    let waits = |kind: Kind| v1::ExplainedEvent { release_reason: no_relay, ..event(kind, 0, "none in the pool") };
    // Only the last one ends by its timeout, which is long enough for a busy machine to have sent requests.
    for (state, event, limit, code, reason, words) in [
        (Dead, refused, "10m", 1, "REFUSED", "550 5.1.1 no such user"),
        (
            Expired,
            waits(Kind::GivenBack),
            "10m",
            1,
            "NOT_SENT",
            "will not be (it could not be handed off: none in the pool)",
        ),
        (Suppressed, waits(Kind::Suppressed), "10m", 4, "OPTED_OUT", "has opted out"),
        (InDoubt, waits(Kind::InDoubt), "10m", 8, "IN_DOUBT", "it may have arrived"),
        (Claimed, waits(Kind::Claimed), "15s", 8, "TIMED_OUT", "it may still arrive"),
    ] {
        let fake = ending(state, event).await;
        let ended = send(&fake, &[&WHAT[..], &["-o", "json", "--timeout", limit]].concat()).await;
        assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(code), Some(reason)), "{ended:?}");
        assert!(ended.error()["message"].as_str().is_some_and(|message| message.contains(words)), "{ended:?}");
        assert_eq!(ended.json()["run"], "r7.0", "the answer names the run whatever its outcome");
    }
}

#[tokio::test]
async fn read_that_fails_is_repeated_unless_it_always_fails() {
    for (code, exit, outcome) in
        [(Code::DeadlineExceeded, 0, Some("RECIPIENT_STATE_SENT")), (Code::Unauthenticated, 6, None)]
    {
        let looks = AtomicUsize::new(0);
        let fake = Fake::start(move |method, _| match method {
            "SendTest" => {
                let run = Some(v1::Run { run: "r7.0".into(), ..v1::Run::default() });
                one(v1::SendTestResponse { run, ..Default::default() })
            }
            "Explain" if looks.fetch_add(1, Ordering::SeqCst) == 0 => Err(refusal(code, "SOME_REASON", "not now")),
            "Explain" => {
                let (run, state) = ("r7.0".into(), RecipientState::Sent.into());
                one(v1::ExplainResponse { run, state, ..Default::default() })
            }
            _ => Err(unknown(method)),
        })
        .await;
        let ended = send(&fake, &[&WHAT[..], &["-o", "json"]].concat()).await;
        assert_eq!(ended.code, Some(exit), "{ended:?}");
        match outcome {
            Some(outcome) => assert_eq!(ended.json()["state"], outcome),
            None => assert_eq!(ended.error()["message"], "not now"),
        }
    }
}

#[tokio::test]
async fn row_gives_the_variables_and_the_flag_the_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let people = folder.path().join("people.csv");
    std::fs::write(&people, "email,name\nann@example.com,Ann\nbob@example.com,Bob\n").expect("written");
    let people = people.display().to_string();
    let fake = ending(RecipientState::Sent, event(Kind::Sent, 250, "ok")).await;
    let row = ["--recipients", &people, "--row", "2", "--pool", "bulk", "--dry-run"];
    let ended = send(&fake, &[&WHAT[..], &row].concat()).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "checked; nothing was changed\n"), "{ended:?}");
    let requested: Vec<v1::SendTestRequest> = fake.requests("SendTest");
    let body = requested.first().and_then(|requested| requested.schedule.clone()).expect("a body");
    let audience = body.audience.expect("an audience");
    assert_eq!((body.pool.as_str(), audience.columns), ("bulk", vec!["name".to_owned()]));
    let recipient = v1::Recipient { address: "you@example.com".into(), values: vec!["Bob".into()] };
    assert_eq!(audience.recipients, [recipient]);
    let beyond = send(&fake, &[&WHAT[..], &["--recipients", &people, "--row", "3"]].concat()).await;
    assert!(beyond.code == Some(2) && beyond.stderr.contains("there is no row 3: 2 recipients"), "{beyond:?}");
}

#[tokio::test]
async fn stored_template_gets_the_values_of_row_file_and_flags() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let people = write("people.csv", "email,name,city,plan\nann@example.com,Ann,Rome,free\n");
    let values =
        [write("values.yaml", "city: Oslo\nplan: 007\n"), write("values.json", r#"{"city":"Oslo","plan":"007"}"#)];
    let fake = ending(RecipientState::Sent, event(Kind::Sent, 250, "ok")).await;
    for values in &values {
        let line = format!(
            "template send-test welcome@2 --to you@example.com --recipients {people} --values {values} --value city=Bern \
             --finish-within 5m"
        );
        let ended = fake.reveille(&line).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let requested: Vec<v1::SendTestRequest> = fake.requests("SendTest");
        let requested = requested.last().cloned().expect("asked");
        assert_eq!(requested.finish_within.map(|within| within.seconds), Some(300));
        let body = requested.schedule.expect("a body");
        assert_eq!((body.template.as_str(), body.content), ("welcome@2", None));
        let audience = body.audience.expect("an audience");
        let values = audience.recipients[0].values.iter();
        let pairs: Vec<String> =
            audience.columns.iter().zip(values).map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(pairs, ["name=Ann", "plan=007", "city=Bern"]);
    }
    let to = "template send-test welcome --to you@example.com";
    for (line, says) in [
        (format!("{to} --subject Hi"), "--subject"),
        (format!("{to} --values {}", write("list.yaml", "name: [Ann]\n")), "list.yaml:1"),
        (format!("{to} --values {}", write("text.yaml", "Ann\n")), "one line `NAME: VALUE`"),
    ] {
        let ended = fake.reveille(&line).await;
        assert!(ended.code == Some(2) && ended.stderr.contains(says), "{line}: {ended:?}");
    }
}

#[tokio::test]
async fn dry_run_ends_as_the_deed_would_and_prints_the_answer() {
    let what = [&WHAT[..], &["--dry-run", "-o", "json"]].concat();
    for (state, code) in [(RecipientState::Sent, 0), (RecipientState::Suppressed, 4)] {
        let fake = ending(state, event(Kind::Sent, 250, "ok")).await;
        let ended = send(&fake, &what).await;
        assert_eq!((ended.code, &ended.json()["optedOut"]), (Some(code), &json!(code == 4)), "{ended:?}");
        assert_eq!(ended.json()["run"], json!(null));
        assert_eq!(fake.methods(), ["SendTest"], "nothing was opened");
        if code == 4 {
            assert_eq!(ended.error()["reason"], "OPTED_OUT");
        }
    }
}

#[tokio::test]
async fn relay_that_refused_or_did_not_answer_is_named() {
    let refused = v1::ExplainedEvent { enhanced: "5.1.1".into(), ..event(Kind::Refused, 550, "no such user") };
    for (state, event, words) in [
        (RecipientState::Dead, refused, "refused by main: 550 5.1.1 no such user"),
        (RecipientState::InDoubt, event(Kind::InDoubt, 0, ""), "it may have arrived at main"),
    ] {
        let fake = ending(state, event).await;
        let ended = send(&fake, &[&WHAT[..], &["-o", "json", "--timeout", "10m"]].concat()).await;
        assert!(ended.error()["message"].as_str().is_some_and(|said| said.contains(words)), "{ended:?}");
    }
}

#[tokio::test]
async fn invalid_field_of_test_email_is_reported_as_flag() {
    let fake = Fake::start(|_, _| Err(refusal_of("INVALID_FIELD", "schedule.content.sender", "is missing"))).await;
    let ended = send(&fake, &[&WHAT[..], &["-o", "json"]].concat()).await;
    assert_eq!((ended.code, ended.error()["field"].as_str()), (Some(2), Some("--sender")), "{ended:?}");
}

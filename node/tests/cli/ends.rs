//! How commands end: exit codes, and error messages for people and programs.

use std::os::fd::OwnedFd;
use std::process::Stdio;

use prost::Message as _;
use reveille_proto::admin::v1;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::Code;

use crate::fake::{Fake, one};
use crate::terminal::{Ended, STEP_TIMEOUT, command, interrupt, reveille, run, until};

#[tokio::test]
async fn exit_code_says_what_happened() {
    for (code, reason, exit) in [
        (Code::InvalidArgument, "INVALID_FIELD", 2),
        (Code::NotFound, "SCHEDULE_NOT_FOUND", 3),
        (Code::AlreadyExists, "NAME_TAKEN", 4),
        (Code::Aborted, "ETAG_MISMATCH", 4),
        (Code::FailedPrecondition, "NOT_POSSIBLE", 4),
        (Code::PermissionDenied, "DENIED", 6),
        (Code::DeadlineExceeded, "OUTCOME_UNKNOWN", 8),
        (Code::ResourceExhausted, "FULL", 1),
    ] {
        let fake = Fake::refusing(code, reason, "said the node").await;
        let ended = fake.reveille("schedule show morning -o json").await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(exit), ""), "{reason}");
        assert_eq!(ended.error()["reason"], reason);
        assert_eq!(fake.methods().len(), 1, "{reason}: asked once");
    }
}

#[tokio::test]
async fn usage_in_an_error_leaves_out_flags_of_every_command() {
    let mut add = command(&["relay", "add", "zz", "-o", "table"]);
    let ended = run(add.env("REVEILLE_URL", "127.0.0.1:1")).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let usage = ended.stderr.lines().find(|line| line.starts_with("Usage: reveille relay add ")).expect("a usage");
    assert!(usage.contains(" --host <HOST>") && usage.contains(" --port <PORT>"), "{usage}");
    assert!(!usage.contains("--endpoint") && !usage.contains("--output"), "{usage}");
}

#[tokio::test]
async fn negative_duration_and_endpoint_with_a_scheme_are_explained() {
    let create = "schedule create x --every -5m --zone UTC --to a@example.com --sender b@example.com --subject s --inline-text t";
    for (line, why) in
        [(create, "a duration is "), ("--endpoint ftp://127.0.0.1:7600 cluster status", "an endpoint is HOST:PORT")]
    {
        let ended = reveille(line).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn error_says_what_and_the_next_command() {
    let fake = Fake::refusing(Code::NotFound, "SCHEDULE_NOT_FOUND", "no schedule 'morning' in tenant default").await;
    let ended = fake.reveille("schedule show morning").await;
    assert_eq!(ended.stderr, "error: no schedule 'morning' in tenant default\n  next       reveille schedule list\n");
    let painted = fake.reveille("schedule show morning --color always").await;
    assert!(painted.stderr.starts_with("\u{1b}[1;31merror:\u{1b}[0m "), "{}", painted.stderr);
}

#[tokio::test]
async fn without_a_quorum_it_is_tried_for_a_while_and_then_code_5() {
    let fake = Fake::refusing(Code::Unavailable, "NO_QUORUM", "the leader reaches no quorum").await;
    let ended = fake.reveille("run list -o json").await;
    assert_eq!(ended.code, Some(5));
    assert_eq!(ended.error()["reason"], "NO_QUORUM");
    assert!(fake.methods().len() > 1, "a fail-over takes a second");
}

#[tokio::test]
async fn node_that_says_nothing_is_code_8_with_the_request_id() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let line = format!("--endpoint {address} --timeout 15s --request-id mine -o json schedule trigger morning");
    let ended = reveille(&line).await;
    assert_eq!(ended.code, Some(8), "{ended:?}");
    let error = ended.error();
    assert_eq!((error["reason"].as_str(), error["requestId"].as_str()), (Some("TIMED_OUT"), Some("mine")));
    assert!(error["next"].as_str().is_some_and(|next| next.contains("--request-id mine")), "{error}");
}

/// Starts a server that reads a request and closes without a response. Returns its address.
async fn takes_and_goes() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    address.to_string()
}

#[tokio::test]
async fn call_that_could_act_twice_is_not_repeated() {
    let address = takes_and_goes().await;
    let fake = Fake::answering("ResumeRun", v1::ResumeRunResponse::default()).await;
    let both = format!("--endpoint {address},{} --yes -o json", fake.address());
    let ended = reveille(&format!("{both} run resume r1.0")).await;
    assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(8), Some("ANSWER_LOST")), "{ended:?}");
    assert_eq!(fake.methods(), [""; 0], "no other node was asked");

    let fake = Fake::answering("GetRun", v1::GetRunResponse::default()).await;
    let ended = reveille(&format!("--endpoint {address},{} run show r1.0", fake.address())).await;
    assert_eq!(ended.code, Some(0), "a read is asked again elsewhere: {ended:?}");
    let answer = v1::RequeueDeadLettersResponse { requeued: 1, index: 7, ..Default::default() };
    let fake = Fake::answering("RequeueDeadLetters", answer).await;
    let ended = reveille(&format!("--endpoint {address},{} dead-letter requeue r1.0 #3", fake.address())).await;
    assert_eq!(ended.code, Some(0), "so is a write with a request id: {ended:?}");
}

#[tokio::test]
async fn fewer_than_were_named_is_partly_done() {
    let fake = Fake::start(|_, bytes| {
        let requested = v1::ResolveDoubtsRequest::decode(bytes).expect("a request");
        let index = if requested.validate_only { 0 } else { 9 };
        one(v1::ResolveDoubtsResponse { resolved: 1, index, ..Default::default() })
    })
    .await;
    let ended = fake.reveille("in-doubt resolve r1.0 a@b.example #3 --sent --yes -o json").await;
    assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(7), Some("PARTLY_DONE")));
    assert_eq!(
        ended.json(),
        serde_json::json!({"run": "r1.0", "moved": 1, "insideGap": 0, "index": 9, "dryRun": false})
    );
    let dry = fake.reveille("in-doubt resolve r1.0 a@b.example #3 --sent --dry-run -o json").await;
    assert_eq!((dry.code, dry.error()["reason"].as_str()), (Some(7), Some("PARTLY_DONE")), "as the deed: {dry:?}");
    let sent: Vec<v1::ResolveDoubtsRequest> = fake.requests("ResolveDoubts");
    let sent: Vec<_> = sent.iter().map(|one| (one.resolution(), one.all, one.validate_only)).collect();
    let once = |validate_only| (v1::Resolution::Sent, false, validate_only);
    assert_eq!(sent, [once(true), once(false), once(true)], "counted, then done");
}

#[tokio::test]
async fn repeated_decision_ends_as_the_first() {
    let first = v1::ResolveDoubtsResponse { resolved: 1, index: 9, ..Default::default() };
    let fake = Fake::answering("ResolveDoubts", first).await;
    let ended = fake.reveille("--request-id r-1 in-doubt resolve r1.0 a@b.example --sent").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "1 recipient resolved, log index 9\n"), "{ended:?}");
    let sent: Vec<v1::ResolveDoubtsRequest> = fake.requests("ResolveDoubts");
    let sent: Vec<_> = sent.iter().map(|one| (one.request_id.as_str(), one.validate_only)).collect();
    assert_eq!(sent, [("r-1", true)], "nothing was left to confirm");
}

#[tokio::test]
async fn without_recipients_the_error_explains_all_flag() {
    let fake = Fake::refusing(Code::Internal, "INTERNAL", "no request is expected").await;
    for line in ["in-doubt resolve r1.0 --sent --yes", "dead-letter requeue r1.0", "dead-letter discard r1.0 --yes"] {
        let ended = fake.reveille(&format!("{line} -o json")).await;
        assert_eq!((ended.code, ended.error()["field"].as_str()), (Some(2), Some("RECIPIENT")), "{ended:?}");
        assert_eq!(ended.error()["next"], "name recipients, or take all of the run with --all");
    }
    assert_eq!(fake.methods(), [""; 0]);
}

async fn interrupted(arguments: &[&str]) -> Ended {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut all = vec!["--endpoint", &address, "-o", "json"];
    all.extend_from_slice(arguments);
    let child = command(&all).spawn().expect("it starts");
    // After its first bytes the command waits for the response, and for Ctrl-C.
    let (mut stream, _) = timeout(STEP_TIMEOUT, listener.accept()).await.expect("in time").expect("it connects");
    timeout(STEP_TIMEOUT, stream.read(&mut [0; 1])).await.expect("in time").expect("it asks");
    interrupt(&child);
    timeout(STEP_TIMEOUT, child.wait_with_output()).await.expect("it ends").expect("output").into()
}

#[tokio::test]
async fn interrupted_is_130_and_says_what_may_have_happened() {
    let read = interrupted(&["run", "watch", "r1.0"]).await;
    assert_eq!((read.code, read.error()["message"].as_str()), (Some(130), Some("interrupted")));
    let change = interrupted(&["schedule", "trigger", "morning", "--request-id", "mine"]).await;
    let error = change.error();
    assert_eq!((change.code, error["requestId"].as_str()), (Some(130), Some("mine")));
    assert_eq!(error["message"], "interrupted: it may have happened");
}

/// Returns a terminal: the side of the user, and the side of the command.
fn terminal() -> (OwnedFd, Stdio) {
    let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&user).expect("granted");
    unlockpt(&user).expect("unlocked");
    let path = ptsname(&user, Vec::new()).expect("its path");
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let own = rustix::fs::open(path.as_c_str(), flags, rustix::fs::Mode::empty()).expect("opened");
    (user, Stdio::from(own))
}

#[tokio::test]
async fn ctrl_c_at_a_question_ends_the_command() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("a text");
    let (_user, stdin) = terminal();
    let ended = until(command(&["config", "init", path]).stdin(stdin), |_, err| err.contains("[y/N]")).await;
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(std::fs::read(path).expect("read"), b"", "it was not written");
}

#[tokio::test]
async fn ctrl_c_at_the_question_for_a_token_shows_input_again() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let ca = rcgen::CertificateParams::default().self_signed(&key).expect("a certificate").pem();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, ca.as_bytes()).expect("written");
    let path = file.path().to_str().expect("a text");
    let (user, stdin) = terminal();
    let shows = || tcgetattr(&user).expect("its modes").local_modes.contains(LocalModes::ECHO);
    let mut login = command(&["login", "https://127.0.0.1:1", "--ca", path]);
    let ended = until(login.stdin(stdin), |_, err| err.contains("Token (") && !shows()).await;
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(shows(), "{ended:?}");
}

/// Stdin may stay silent forever, before the first row or after a thousand.
#[tokio::test]
async fn import_of_opt_outs_ends_while_stdin_is_silent() {
    let fake = Fake::answering("ImportOptOuts", v1::ImportOptOutsResponse::default()).await;
    let address = fake.address().to_string();
    let rows: String = (0..1_001).map(|number| format!("r{number}@example.com\n")).collect();
    let cases = [("", Some("1s"), 8, 0), (rows.as_str(), Some("15s"), 8, 1), (rows.as_str(), None, 130, 2)];
    for (given, within, code, requested) in cases {
        let mut line = vec!["--endpoint", &address, "-o", "json", "optout", "import", "-"];
        line.extend(within.iter().flat_map(|within| ["--timeout", within]));
        let mut child = command(&line).stdin(Stdio::piped()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(given.as_bytes()).await.expect("written");
        if within.is_none() {
            timeout(STEP_TIMEOUT, async {
                while fake.methods().len() < requested {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            })
            .await
            .expect("the first thousand are sent");
            interrupt(&child);
        }
        let ended = timeout(STEP_TIMEOUT, child.wait_with_output()).await.expect("it ends").expect("output");
        let ended = Ended::from(ended);
        drop(stdin);
        assert_eq!((ended.code, fake.methods().len()), (Some(code), requested), "{ended:?}");
    }
}

#[tokio::test]
async fn unknown_outcome_stays_unknown_after_answers_of_other_nodes() {
    let follower = Fake::refusing(Code::Unavailable, "NO_LEADER", "no leader is known").await;
    let endpoints = format!("{},{}", takes_and_goes().await, follower.address());
    let line = format!("--endpoint {endpoints} --request-id mine -o json schedule trigger morning");
    let ended = reveille(&line).await;
    assert_eq!((ended.code, ended.error()["requestId"].as_str()), (Some(8), Some("mine")), "{ended:?}");
}

#[tokio::test]
async fn closed_pipe_is_no_error() {
    let mut command = command(&["schedule", "preview", "--cron", "* * * * *", "--zone", "UTC", "--count", "20000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = timeout(STEP_TIMEOUT, child.wait_with_output()).await.expect("it ends").expect("output");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[tokio::test]
async fn mistyped_command_is_usage_in_the_format_that_was_asked_for() {
    let ended = reveille("schedule shw morning").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("'show'"), "the nearest is offered: {}", ended.stderr);
    let error = reveille("schedule show -o json").await.error();
    assert_eq!(error["reason"], "USAGE");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("<NAME>")), "{error}");
    assert_eq!(reveille("--help").await.code, Some(0));
    assert_eq!(reveille("--endpoint nowhere run list").await.code, Some(2));
}

#[tokio::test]
async fn without_a_terminal_nothing_is_destroyed_unless_it_was_said() {
    let fake = Fake::start(|method, _| match method {
        "DeleteSchedule" => one(v1::DeleteScheduleResponse { index: 5, open_runs: vec!["r4.0".into()] }),
        other => Err(crate::fake::unknown(other)),
    })
    .await;
    let ended = fake.reveille("schedule delete morning -o json").await;
    assert_eq!((ended.code, ended.error()["reason"].as_str()), (Some(2), Some("NOT_CONFIRMED")));
    assert_eq!(fake.methods(), [""; 0], "no request was made");
    let name = ["--endpoint", &fake.address().to_string(), "schedule", "delete", "a\nb"];
    let strange = run(&mut command(&name)).await;
    assert!(strange.stderr.contains("Delete schedule a\\nb?"), "a line end does not pass as ours: {strange:?}");
    let dry = fake.reveille("schedule delete morning --dry-run -o json").await;
    assert_eq!(dry.json(), serde_json::json!({"index": "5", "openRuns": ["r4.0"]}));
    let ended = fake.reveille("schedule delete morning --yes -o json").await;
    assert_eq!(ended.json(), serde_json::json!({"index": "5", "openRuns": ["r4.0"]}));
}

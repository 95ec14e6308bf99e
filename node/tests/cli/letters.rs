//! Hundreds of dead letters and doubts: counted, confirmed, processed page by page, and exported.

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, unknown};
use crate::terminal::{command, run};

fn letter(number: u32, text: &str) -> v1::DeadLetter {
    let recipient = format!("u{number}@x.example");
    v1::DeadLetter { run: "r5.0".into(), recipient, number, code: 550, text: text.into(), ..Default::default() }
}

fn second(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

fn group((code, enhanced): (u32, &str), count: u64, seconds: i64) -> v1::DeadLetterGroup {
    let (oldest, newest) = (second(seconds), second(seconds + 60));
    v1::DeadLetterGroup {
        reason: Some(v1::DeadLetterReason { code, enhanced: enhanced.into(), ..Default::default() }),
        count,
        oldest_time: oldest,
        newest_time: newest,
        example: Some(letter(seconds as u32, "no")),
    }
}

/// Starts a fake cluster with two pages of each list. Of 1,006 dead letters, 2 are of a cancelled run and 1 is within
/// `min_gap`.
async fn hospital() -> Fake {
    Fake::start(|method, bytes| match method {
        "ListDeadLetters" => {
            let requested = v1::ListDeadLettersRequest::decode(bytes).expect("a request");
            let (dead_letters, next) = match requested.page_token.as_str() {
                // A page may be empty if the filter matches little.
                "" => (vec![], "a"),
                "a" => (vec![letter(1, "no, \"never\"")], "b"),
                _ => (vec![letter(2, "no")], ""),
            };
            one(v1::ListDeadLettersResponse { dead_letters, next_page_token: next.into(), freshness: None })
        }
        "ListRunRecipients" => {
            let requested = v1::ListRunRecipientsRequest::decode(bytes).expect("a request");
            let row = |number: u32, state: v1::RecipientState| v1::RunRecipient {
                number,
                address: format!("u{number}@x.example"),
                state: state.into(),
                ..Default::default()
            };
            let dead = v1::RunRecipient {
                code: 550,
                enhanced: "5.1.1".into(),
                text: "no, \"never\"".into(),
                attempts: 1,
                death_reason: v1::DeathReason::Answer.into(),
                update_time: second(100),
                ..row(1, v1::RecipientState::Dead)
            };
            let (recipients, next) = match requested.page_token.as_str() {
                "" => (vec![dead], "a"),
                _ => {
                    let doubt_cause = v1::DoubtCause::NoAnswer.into();
                    (vec![v1::RunRecipient { doubt_cause, ..row(2, v1::RecipientState::InDoubt) }], "")
                }
            };
            one(v1::ListRunRecipientsResponse { recipients, next_page_token: next.into(), freshness: None })
        }
        "CountDeadLetters" => {
            let requested = v1::CountDeadLettersRequest::decode(bytes).expect("a request");
            let (groups, next) = match requested.page_token.as_str() {
                "" => (vec![group((550, "5.1.1"), 3, 100), group((421, ""), 2, 200)], "x"),
                _ => (vec![group((421, ""), 9, 50)], ""),
            };
            one(v1::CountDeadLettersResponse { groups, next_page_token: next.into(), freshness: None })
        }
        "RequeueDeadLetters" => {
            let requested = v1::RequeueDeadLettersRequest::decode(bytes).expect("a request");
            let (requeued, cancelled, next) =
                if requested.page_token.is_empty() { (1_000, 0, "p") } else { (3, 2, "") };
            let index = if requested.validate_only { 0 } else { 70 + requeued };
            let (next_page_token, inside_gap) = (next.into(), cancelled / 2);
            one(v1::RequeueDeadLettersResponse { requeued, index, next_page_token, cancelled, inside_gap })
        }
        "ResolveDoubts" => {
            let requested = v1::ResolveDoubtsRequest::decode(bytes).expect("a request");
            let group = v1::DoubtGroup { cause: v1::DoubtCause::OwnerLost.into(), count: 7, node: "n2".into() };
            let (index, groups) = if requested.validate_only { (0, vec![group]) } else { (9, vec![]) };
            let inside_gap = if requested.resolution() == v1::Resolution::Resend { 2 } else { 0 };
            let fence = if requested.validate_only { "1.2.3.4".to_owned() } else { String::new() };
            one(v1::ResolveDoubtsResponse { resolved: 7, index, groups, inside_gap, fence })
        }
        _ => Err(unknown(method)),
    })
    .await
}

#[tokio::test]
async fn reasons_of_all_pages_add_up_most_first() {
    let fake = hospital().await;
    let groups = fake.reveille("dead-letter list --group-by reason --schedule morning -o json").await.json();
    assert_eq!(
        groups[0],
        json!({
            "reason": { "deathReason": "DEATH_REASON_UNSPECIFIED", "code": 421, "enhanced": "" }, "count": "11", "oldestTime": "1970-01-01T00:00:50Z", "newestTime": "1970-01-01T00:04:20Z",
            "example": {
                "run": "r5.0", "recipient": "u200@x.example", "number": 200, "code": 550, "enhanced": "",
                "text": "no", "attempts": 0, "deathReason": "DEATH_REASON_UNSPECIFIED",
            },
        })
    );
    assert_eq!((groups[1]["reason"]["enhanced"].as_str(), groups[1]["count"].as_str()), (Some("5.1.1"), Some("3")));
    let requested: Vec<v1::CountDeadLettersRequest> = fake.requests("CountDeadLetters");
    let filters = requested.iter().map(|requested| requested.filter.clone().unwrap_or_default().schedule);
    assert_eq!(filters.collect::<Vec<_>>(), ["morning", "morning"]);
    let ended = fake.reveille("dead-letter list -o name").await;
    assert_eq!(ended.stdout, "r5.0 u1@x.example\nr5.0 u2@x.example\n", "an empty page is not the end");
}

#[tokio::test]
async fn requeue_by_reason_is_counted_confirmed_and_done_by_pages() {
    let fake = hospital().await;
    let address = fake.address().to_string();
    let words = ["--endpoint", &address, "dead-letter", "requeue", "--reason", "550 5.7.1", "--pool", "backup"];
    let dry = run(command(&words).args(["--dry-run", "-o", "json"])).await;
    assert_eq!(dry.json(), json!({"run": null, "moved": 1003, "insideGap": 1, "index": null, "dryRun": true}));
    assert_eq!((dry.code, dry.error()["reason"].as_str()), (Some(7), Some("PARTLY_DONE")));

    let unasked = run(&mut command(&words)).await;
    assert_eq!(unasked.code, Some(2));
    let question = "Send again by pool backup: 1,003 dead letters with the reason '550 5.7.1'?";
    assert!(unasked.stderr.contains(question), "{unasked:?}");
    let requested: Vec<v1::RequeueDeadLettersRequest> = fake.requests("RequeueDeadLetters");
    assert!(requested.iter().all(|requested| requested.validate_only), "nothing was done");

    let done = run(command(&words).args(["--yes", "-o", "json"])).await;
    assert_eq!(done.json(), json!({"run": null, "moved": 1003, "insideGap": 1, "index": 1070, "dryRun": false}));
    let near = "1 dead letter left: they got an email of another run less than the min gap away";
    let left = format!("2 dead letters left: recipients of a cancelled run are not sent again; {near}");
    assert_eq!(done.error()["message"].as_str(), Some(left.as_str()));
    let requested: Vec<v1::RequeueDeadLettersRequest> = fake.requests("RequeueDeadLetters");
    let done: Vec<&v1::RequeueDeadLettersRequest> =
        requested.iter().filter(|requested| !requested.validate_only).collect();
    assert_eq!(done.iter().map(|requested| requested.page_token.as_str()).collect::<Vec<_>>(), ["", "p"]);
    assert!(done.iter().all(|requested| requested.all && requested.pool == "backup" && requested.run.is_empty()));
    let ids: Vec<&str> = done.iter().map(|requested| requested.request_id.as_str()).collect();
    assert!(!ids[0].is_empty() && ids[1].starts_with("page-"), "each page is a request of its own: {ids:?}");
    let all = fake.reveille("dead-letter discard").await;
    assert!(all.code == Some(2) && all.stderr.contains("which dead letters? nothing says it"), "{all:?}");
    let nowhere = run(command(&words[..4]).args(["--all", "--yes", "--pool", ""])).await;
    assert_eq!(nowhere.code, Some(2), "an empty name is no pool: {nowhere:?}");
}

#[tokio::test]
async fn export_is_csv_or_lines_and_a_file_appears_when_it_is_whole() {
    let fake = hospital().await;
    let csv = fake.reveille("dead-letter export").await;
    let headings = "run,recipient,number,code,enhanced,text,attempts,settleTime,deathReason\n";
    let reason = "DEATH_REASON_UNSPECIFIED";
    let first = format!("r5.0,u1@x.example,1,550,,\"no, \"\"never\"\"\",0,,{reason}\n");
    assert_eq!(csv.stdout, format!("{headings}{first}r5.0,u2@x.example,2,550,,no,0,,{reason}\n"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("letters.jsonl");
    let ended = fake.reveille(&format!("dead-letter export {}", file.display())).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    let lines = std::fs::read_to_string(&file).expect("a file");
    let numbers: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(numbers.iter().map(|line| line["number"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing partial is left");
    let broken = Fake::answering("Nothing", v1::GetRunResponse::default()).await;
    let ended = broken.reveille(&format!("dead-letter export {}", folder.path().join("x.csv").display())).await;
    assert!(ended.code != Some(0) && !folder.path().join("x.csv").exists(), "{ended:?}");
    let ended = fake.reveille("dead-letter export /nonexist/x.csv -o json").await;
    assert_eq!((ended.code, &ended.error()["field"]), (Some(2), &json!("/nonexist/x.csv")), "{ended:?}");
}

#[tokio::test]
async fn whole_run_in_doubt_is_counted_with_what_is_known_of_it() {
    let fake = hospital().await;
    let dry = fake.reveille("in-doubt resolve r1.0 --all --resend --dry-run").await;
    assert_eq!((dry.code, dry.stdout.as_str()), (Some(7), "7 recipients would be resolved\n"));
    assert!(dry.stderr.starts_with("7 emails in doubt, all of run r1.0 (7 on n2: owner lost)\n"), "{dry:?}");
    let near = "2 emails left in doubt: they got an email of another run less than the min gap away";
    assert!(dry.stderr.contains(near), "{dry:?}");
    let json = fake.reveille("in-doubt resolve r1.0 --all --resend --dry-run -o json").await.json();
    assert_eq!(json["groups"], json!([{"cause": "DOUBT_CAUSE_OWNER_LOST", "node": "n2", "count": "7"}]));
    let unasked = fake.reveille("in-doubt resolve r1.0 --all --sent").await;
    assert!(unasked.code == Some(2) && unasked.stderr.contains("may never have arrived: 7 emails"), "{unasked:?}");
    let requested: Vec<v1::ResolveDoubtsRequest> = fake.requests("ResolveDoubts");
    assert!(requested.iter().all(|requested| requested.validate_only));
    let done = fake.reveille("in-doubt resolve r1.0 --all --sent --yes -o json").await;
    assert_eq!(done.json(), json!({"run": "r1.0", "moved": 7, "insideGap": 0, "index": 9, "dryRun": false}));
    let requested: Vec<v1::ResolveDoubtsRequest> = fake.requests("ResolveDoubts");
    let last = requested.last().expect("it was asked");
    assert_eq!(last.fence, "1.2.3.4", "only what was counted is decided");
    assert!(!last.request_id.is_empty(), "so it may be asked again");
}

#[tokio::test]
async fn dry_run_of_fewer_than_are_named_ends_as_the_deed_would() {
    let answer = v1::RequeueDeadLettersResponse { requeued: 1, ..Default::default() };
    let fake = Fake::answering("RequeueDeadLetters", answer).await;
    let ended = fake.reveille("dead-letter requeue r1.0 #1 #2 --dry-run").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "1 recipient would be requeued\n"), "{ended:?}");
    assert!(ended.stderr.contains("1 of 2 would be requeued"), "{ended:?}");
}

#[tokio::test]
async fn unknown_reason_of_dead_letters_is_reported() {
    let fake = Fake::start(|method, _| match method {
        "ListDeadLetters" => one(v1::ListDeadLettersResponse::default()),
        "RequeueDeadLetters" => one(v1::RequeueDeadLettersResponse::default()),
        _ => Err(unknown(method)),
    })
    .await;
    for line in ["dead-letter list --reason 999", "dead-letter requeue --reason 999 --yes"] {
        let ended = fake.reveille(line).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(
            ended.stderr.contains("has the reason '999'; reveille dead-letter list --group-by reason"),
            "{ended:?}"
        );
    }
    assert!(!fake.reveille("dead-letter list").await.stderr.contains("has the reason"));
}

#[tokio::test]
async fn words_of_relay_do_not_reach_terminal_as_control_characters() {
    let text = "no \u{1b}[2J\u{9b}2J\u{202e}such\r\nuser";
    let answer = v1::ListDeadLettersResponse { dead_letters: vec![letter(1, text)], ..Default::default() };
    let fake = Fake::answering("ListDeadLetters", answer).await;
    for line in ["list", "list -o json", "export", "export --format jsonl"] {
        let ended = fake.reveille(&format!("dead-letter {line}")).await;
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        let harmful = |one: char| one.is_control() && one != '\n' || one == '\u{202e}';
        assert!(ended.stdout.contains("such") && !ended.stdout.chars().any(harmful), "{line}: {ended:?}");
    }
}

#[tokio::test]
async fn recipients_of_a_run_are_printed_in_each_format() {
    let fake = hospital().await;
    let printed = async |format: &str| {
        let line = format!("run recipients r5.0 --state dead,in_doubt -o {format}");
        fake.reveille(&line).await.stdout
    };
    assert_eq!(
        printed("csv").await,
        "number,address,state,code,enhanced,text,attempts,updateTime,doubtCause,suppression,deathReason\n\
         1,u1@x.example,RECIPIENT_STATE_DEAD,550,5.1.1,\"no, \"\"never\"\"\",1,1970-01-01T00:01:40Z,\
         DOUBT_CAUSE_UNSPECIFIED,SUPPRESSION_UNSPECIFIED,DEATH_REASON_ANSWER\n\
         2,u2@x.example,RECIPIENT_STATE_IN_DOUBT,0,,,0,,DOUBT_CAUSE_NO_ANSWER,SUPPRESSION_UNSPECIFIED,\
         DEATH_REASON_UNSPECIFIED\n"
    );
    let json: serde_json::Value = serde_json::from_str(&printed("json").await).expect("JSON");
    let lines = printed("jsonl").await;
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(json, json!(lines));
    assert_eq!(
        lines[1],
        json!({
            "number": 2, "address": "u2@x.example", "state": "RECIPIENT_STATE_IN_DOUBT", "code": 0, "enhanced": "",
            "text": "", "attempts": 0, "doubtCause": "DOUBT_CAUSE_NO_ANSWER", "suppression": "SUPPRESSION_UNSPECIFIED",
            "deathReason": "DEATH_REASON_UNSPECIFIED",
        })
    );
    assert_eq!(printed("name").await, "#1\n#2\n");
    let table = printed("table").await;
    assert!(table.contains("550 5.1.1 no, \"never\"") && table.contains("no answer after the final dot"), "{table}");
    let states: [i32; 2] = [v1::RecipientState::Dead.into(), v1::RecipientState::InDoubt.into()];
    let requested: Vec<v1::ListRunRecipientsRequest> = fake.requests("ListRunRecipients");
    assert!(requested.iter().all(|requested| requested.run == "r5.0" && requested.states == states), "{requested:?}");
    let page = fake.reveille("dead-letter list -o csv").await.stdout;
    assert!(
        page.starts_with(
            "run,recipient,number,code,enhanced,text,attempts,settleTime,deathReason\nr5.0,u1@x.example,1,550,"
        ),
        "{page}"
    );
    let wrong = fake.reveille("run recipients r5.0 --state lost").await;
    assert_eq!(wrong.code, Some(2));
}

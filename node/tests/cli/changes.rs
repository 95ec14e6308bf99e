//! Commands that change state: request ids, confirmation after a preview, and the results of barriers.

use prost::Message;
use reveille_proto::admin::v1;
use serde_json::json;

use crate::fake::{Fake, one, refusal, unknown};

#[tokio::test]
async fn dry_run_only_reads_and_says_what_would_be() {
    let fake = Fake::start(|method, _| match method {
        "CancelRun" => {
            let counts = v1::RunCounts { pending: 3, claimed: 1, in_doubt: 1, ..v1::RunCounts::default() };
            let run = v1::Run { run: "r1.0".into(), counts: Some(counts), ..v1::Run::default() };
            one(v1::CancelRunResponse { run: Some(run), barrier: None })
        }
        "GetRelay" => {
            let relay = v1::Relay { name: "main".into(), pool: "bulk".into(), ..v1::Relay::default() };
            one(v1::GetRelayResponse { relay: Some(relay), freshness: None })
        }
        "ListRelays" => {
            let relay =
                |name: &str, pool: &str| v1::Relay { name: name.into(), pool: pool.into(), ..v1::Relay::default() };
            let relays = vec![relay("main", "bulk"), relay("other", "default"), relay("second", "bulk")];
            one(v1::ListRelaysResponse { relays, ..Default::default() })
        }
        "DeleteSchedule" => one(v1::DeleteScheduleResponse { index: 0, open_runs: vec!["r1.0".into()] }),
        _ => Err(unknown(method)),
    })
    .await;
    for (line, words) in [
        (
            "run cancel r1.0 --dry-run",
            "3 recipients would be cancelled; 2 under way only if they turn out not to be sent",
        ),
        ("relay remove main --dry-run", "pool bulk would have second left"),
        ("schedule delete morning --dry-run", ""),
    ] {
        let ended = fake.reveille(line).await;
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        assert!(ended.stderr.contains(words) && ended.stderr.ends_with("checked; nothing was changed\n"), "{ended:?}");
    }
    let deleted: Vec<v1::DeleteScheduleRequest> = fake.requests("DeleteSchedule");
    assert!(deleted.iter().all(|requested| requested.validate_only));
    let cancelled: Vec<v1::CancelRunRequest> = fake.requests("CancelRun");
    assert!(cancelled.iter().all(|requested| requested.validate_only));
    assert!(!fake.methods().iter().any(|method| method == "RemoveRelay"), "{:?}", fake.methods());
}

#[tokio::test]
async fn request_id_is_printed_only_for_a_change_that_sends_it() {
    let fake = Fake::start(|method, _| match method {
        "TriggerSchedule" => one(v1::TriggerScheduleResponse::default()),
        "DrainMember" => one(v1::DrainMemberResponse::default()),
        _ => Err(unknown(method)),
    })
    .await;
    let sent = fake.reveille("schedule trigger morning -v --request-id mine").await;
    assert!(sent.code == Some(0) && sent.stderr.contains("request id mine"), "{sent:?}");
    let without = fake.reveille("cluster member drain n2 --undo -v --request-id mine").await;
    assert!(without.code == Some(0) && !without.stderr.contains("request id"), "{without:?}");
}

#[tokio::test]
async fn member_that_drains_after_a_refused_removal_is_named_with_the_way_back() {
    let undo = "reveille cluster member drain n2 --undo";
    for drains in [true, false] {
        let fake = Fake::start(move |method, _| match method {
            "RemoveMember" | "DrainMember" => {
                let message = "'n2' was not removed yet: 3 recipients are claimed for it";
                Err(refusal(tonic::Code::FailedPrecondition, "MEMBER_WAITS", message))
            }
            "ListMembers" => {
                let member = v1::Member { name: "n2".into(), drains, ..v1::Member::default() };
                one(v1::ListMembersResponse { members: vec![member], ..Default::default() })
            }
            _ => Err(unknown(method)),
        })
        .await;
        for line in ["cluster member remove n2 --yes", "cluster member drain n2"] {
            let refused = fake.reveille(line).await;
            assert_eq!(refused.code, Some(4), "{refused:?}");
            assert!(refused.stderr.contains("the same command again in a few seconds"), "{refused:?}");
            assert_eq!(refused.stderr.contains(undo), drains, "{refused:?}");
        }
        let undone = fake.reveille("cluster member drain n2 --undo").await;
        assert!(undone.code == Some(4) && !undone.stderr.contains(undo), "{undone:?}");
    }
}

#[tokio::test]
async fn trigger_has_given_or_drawn_request_id() {
    let fake = Fake::answering("TriggerSchedule", v1::TriggerScheduleResponse::default()).await;
    fake.reveille("schedule trigger morning --request-id mine --tenant acme").await;
    fake.reveille("schedule trigger morning").await;
    fake.reveille("schedule trigger morning").await;
    let requested: Vec<v1::TriggerScheduleRequest> = fake.requests("TriggerSchedule");
    let ids: Vec<&str> = requested.iter().map(|requested| requested.request_id.as_str()).collect();
    assert_eq!(
        requested.first().map(|requested| (requested.tenant.as_str(), requested.name.as_str())),
        Some(("acme", "morning"))
    );
    assert_eq!(ids.first(), Some(&"mine"));
    let drawn: std::collections::BTreeSet<&&str> = ids.iter().skip(1).collect();
    assert_eq!(drawn.len(), 2, "each is drawn anew: {ids:?}");
    assert!(drawn.iter().all(|id| id.len() == 36), "{ids:?}");
}

#[tokio::test]
async fn trigger_that_is_only_looked_at_shows_no_run_that_is_there() {
    let run = v1::Run {
        tenant: "default".into(),
        schedule: "morning".into(),
        occurrence: "trigger:mine".into(),
        cause: v1::RunCause::Trigger.into(),
        state: v1::RunState::Open.into(),
        audience: 1_200,
        ..v1::Run::default()
    };
    let cancelled = vec![v1::CancelledRun { run: "r7.0".into(), cancelled: 1_000, claimed: 14 }];
    let answer = v1::TriggerScheduleResponse {
        run: Some(run),
        cancelled,
        cancelled_more: 2,
        ..v1::TriggerScheduleResponse::default()
    };
    let fake = Fake::answering("TriggerSchedule", answer).await;
    let ended = fake.reveille("schedule trigger morning --dry-run").await;
    let card = "schedule   morning (default)\nrun        would open now\nfinish by  -\naudience   1,200\n\
                would cancel run r7.0: 1,000 recipients cancelled, 14 claimed and sent unless released\n\
                would cancel 2 runs more\n";
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), card), "{ended:?}");
    let json = fake.reveille("schedule trigger morning --dry-run -o json").await.json();
    assert_eq!((&json["run"]["run"], &json["run"]["audience"]), (&"".into(), &1_200.into()));
    assert_eq!(json["cancelled"], json!([{"run": "r7.0", "cancelled": 1_000, "claimed": 14}]));
    assert_eq!(json["cancelledMore"], 2);
}

#[tokio::test]
async fn repeated_trigger_says_that_it_opened_nothing() {
    let answer = v1::TriggerScheduleResponse { replayed: true, ..v1::TriggerScheduleResponse::default() };
    let fake = Fake::answering("TriggerSchedule", answer).await;
    let ended = fake.reveille("schedule trigger morning --request-id mine -o json").await;
    assert_eq!(ended.json()["replayed"], true);
    assert!(ended.stderr.contains("an earlier call with this request id opened it"), "{ended:?}");
}

#[tokio::test]
async fn name_with_bidi_control_is_escaped_where_it_is_repeated() {
    let fake = Fake::start(|method, _| Err(unknown(method))).await;
    let requested = fake.reveille("schedule delete a\u{202e}b\u{9b}2J").await;
    assert_eq!(requested.code, Some(2), "{requested:?}");
    assert!(requested.stderr.contains("Delete schedule a\\u{202e}b\\u{9b}2J?"), "{}", requested.stderr);
    let requested = fake.reveille("schedule delete a\u{202e}b -o json").await;
    assert!(requested.stderr.is_ascii() && requested.stderr.contains("a\\u202eb"), "{}", requested.stderr);
    let schedule = v1::Schedule { name: "a\u{202e}b".into(), ..v1::Schedule::default() };
    let answer = v1::GetScheduleResponse { schedule: Some(schedule), ..v1::GetScheduleResponse::default() };
    let shown = Fake::answering("GetSchedule", answer).await.reveille("schedule show x -o json").await;
    assert!(shown.stdout.contains("\"a\\u202eb\""), "{}", shown.stdout);
    assert_eq!(shown.json()["name"], "a\u{202e}b", "the value is what it was");
}

#[tokio::test]
async fn opt_out_is_taken_back_for_a_reason_and_after_a_yes() {
    let fake = Fake::start(|method, bytes| {
        if method != "TakeBackOptOut" {
            return Err(unknown(method));
        }
        let request = v1::TakeBackOptOutRequest::decode(bytes).expect("a request");
        let back = v1::TakenBack { index: 12, take_back_time: None, reason: request.reason.clone() };
        let taken_back = (!request.validate_only).then_some(back);
        // Another opt-out that comes after the question is not taken back.
        let etag = if request.validate_only { "7" } else { "" };
        assert!(request.validate_only || request.etag == "7", "{request:?}");
        one(v1::TakeBackOptOutResponse { recipient: "ann@example.com".into(), taken_back, etag: etag.into() })
    })
    .await;
    let line = "optout remove Ann@example.com --reason letter";
    assert_eq!(fake.reveille("optout remove ann@example.com --yes").await.code, Some(2), "not without a reason");
    let looked = fake.reveille(&format!("{line} --dry-run")).await;
    assert_eq!(
        (looked.code, looked.stdout.as_str()),
        (Some(0), "ann@example.com has opted out, and would get emails again\n")
    );
    let requested = fake.reveille(line).await;
    let question = "Send emails of tenant default to ann@example.com again? It has opted out.";
    assert!(requested.code == Some(2) && requested.stderr.contains(question), "{requested:?}");
    let requested: Vec<v1::TakeBackOptOutRequest> = fake.requests("TakeBackOptOut");
    assert!(requested.iter().all(|requested| requested.validate_only), "nothing was changed yet");
    let ended = fake.reveille(&format!("{line} --yes -o json")).await;
    let back = serde_json::json!({ "index": "12", "reason": "letter" });
    assert_eq!(ended.json(), serde_json::json!({ "recipient": "ann@example.com", "takenBack": back, "etag": "" }));
}

async fn paused_schedule(missed: u32) -> Fake {
    Fake::start(move |method, bytes| {
        if method != "ResumeSchedule" {
            return Err(unknown(method));
        }
        let request = v1::ResumeScheduleRequest::decode(bytes).expect("a request");
        assert!(request.validate_only || request.etag == "v7", "{request:?}");
        let schedule = v1::Schedule { name: request.name, etag: "v7".into(), ..v1::Schedule::default() };
        one(v1::ResumeScheduleResponse {
            schedule: Some(schedule),
            opens_count: missed,
            explained_count: 2,
            ..Default::default()
        })
    })
    .await
}

#[tokio::test]
async fn resume_that_is_only_looked_at_counts_in_words() {
    for (missed, words) in
        [(0, "no runs open at once for"), (1, "1 run opens at once for"), (2, "2 runs open at once for")]
    {
        let ended = paused_schedule(missed).await.reveille("schedule resume morning --dry-run").await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.starts_with(words), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn resume_shows_what_would_open_before_it_is_confirmed() {
    let fake = paused_schedule(1).await;
    let ended = fake.reveille("schedule resume morning").await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains(
            "1 run opens at once for what morning missed while it was paused; 2 missed instants will not open"
        ),
        "{}",
        ended.stderr
    );
    assert_eq!(fake.methods().len(), 1, "it only looked");

    let ended = fake.reveille("schedule resume morning --yes -o json").await;
    assert_eq!((ended.code, ended.json()["opensCount"].clone()), (Some(0), 1.into()));
    let requested: Vec<v1::ResumeScheduleRequest> = fake.requests("ResumeSchedule");
    let requested: Vec<(bool, &str)> =
        requested.iter().map(|requested| (requested.validate_only, requested.etag.as_str())).collect();
    assert_eq!(requested, [(true, ""), (true, ""), (false, "v7")]);
}

#[tokio::test]
async fn resume_of_which_nothing_opens_needs_no_confirmation() {
    let fake = paused_schedule(0).await;
    assert_eq!(fake.reveille("schedule resume morning").await.code, Some(0));
    assert_eq!(fake.reveille("schedule resume morning --dry-run").await.code, Some(0));
    let requested: Vec<v1::ResumeScheduleRequest> = fake.requests("ResumeSchedule");
    let looked: Vec<bool> = requested.iter().map(|requested| requested.validate_only).collect();
    assert_eq!(looked, [true, false, true]);
}

#[tokio::test]
async fn resume_of_import_with_placeholder_is_not_silent() {
    let fake = Fake::start(|method, bytes| {
        let labels = [("crontab".to_owned(), "0".to_owned())].into();
        let schedule = v1::Schedule { name: "morning".into(), etag: "v7".into(), labels, ..Default::default() };
        match method {
            "ResumeSchedule" => {
                let request = v1::ResumeScheduleRequest::decode(bytes).expect("a request");
                let opens_count = if request.name == "morning" { 1 } else { 0 };
                one(v1::ResumeScheduleResponse { schedule: Some(schedule), opens_count, ..Default::default() })
            }
            "GetSchedule" => {
                let text = Some("This placeholder stands in for a text that is not written yet.\n\nA".to_owned());
                let content = Some(v1::Content { text, ..Default::default() });
                let body = Some(v1::ScheduleBody { content, ..Default::default() });
                one(v1::GetScheduleResponse { schedule: Some(schedule), body, ..Default::default() })
            }
            other => Err(unknown(other)),
        }
    })
    .await;
    for name in ["morning", "later"] {
        let refused = fake.reveille(&format!("schedule resume {name}")).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(
            refused.stderr.contains("schedule morning was imported and still has its placeholder text"),
            "{}",
            refused.stderr
        );
        assert!(refused.stderr.contains("reveille schedule update morning --text FILE"), "{}", refused.stderr);
        assert_eq!(refused.stderr.contains("--catch-up none"), name == "morning", "{}", refused.stderr);
    }
    let requested: Vec<v1::ResumeScheduleRequest> = fake.requests("ResumeSchedule");
    assert!(requested.iter().all(|requested| requested.validate_only), "{requested:?}");
    assert_eq!(fake.reveille("schedule resume morning --yes").await.code, Some(0));
}

#[tokio::test]
async fn pause_of_a_run_says_what_may_still_arrive() {
    let crossed = v1::Crossing { run: "r5.0".into(), number: 3, fence: "1.2.7.0".into() };
    let barrier = v1::Barrier { index: 11, crossed: vec![crossed], unconfirmed: vec!["c".into()] };
    let run = v1::Run { run: "r5.0".into(), ..v1::Run::default() };
    let fake = Fake::answering("PauseRun", v1::PauseRunResponse { run: Some(run), barrier: Some(barrier) }).await;
    let ended = fake.reveille("run pause r5.0 --reason hm -o json").await;
    assert_eq!(
        ended.stderr,
        "paused: holds on every node since log index 11; silent, waited out: c; past the gate before, 1 email may still \
         arrive:\n  r5.0 #3 (1.2.7.0)\n"
    );
    assert_eq!(ended.json()["barrier"]["index"], "11");
    let requested: Vec<v1::PauseRunRequest> = fake.requests("PauseRun");
    assert_eq!(requested.first().map(|requested| requested.reason.as_str()), Some("hm"));
}

#[tokio::test]
async fn relay_that_cannot_be_reached_is_a_failure_of_its_test() {
    let answer = v1::TestRelayResponse { node: "a".into(), problem: "connect: refused".into(), ..Default::default() };
    let fake = Fake::answering("TestRelay", answer).await;
    let ended = fake.reveille("relay test main -o json").await;
    assert_eq!((ended.code, ended.json()["reachable"].clone()), (Some(1), false.into()));
    assert_eq!(ended.error()["reason"], "RELAY_UNREACHABLE");
}

#[tokio::test]
async fn relay_that_refuses_login_is_reachable_and_fails_its_test() {
    let answer = v1::TestRelayResponse {
        reachable: true,
        problem: "refused at the login: 535 no".into(),
        fix: v1::RelayFix::Reference.into(),
        relay: Some(v1::Relay { name: "main".into(), ..Default::default() }),
        ..Default::default()
    };
    let ended = Fake::answering("TestRelay", answer).await.reveille("relay test main -o json").await;
    assert_eq!((ended.code, ended.json()["reachable"].clone()), (Some(1), true.into()));
    assert_eq!(ended.json()["fix"], "RELAY_FIX_REFERENCE");
    let next = "correct [credentials] in this node's configuration, then: reveille relay test main --authenticate";
    assert_eq!(ended.error()["next"], next);
    assert_eq!(ended.error()["reason"], "RELAY_UNUSABLE");
}

#[tokio::test]
async fn relay_that_answers_with_open_circuit_is_reported() {
    let cause = v1::RelayCause { code: 452, text: "4.3.1 quota".into(), ..Default::default() };
    let cause = Some(v1::RelayCause { trouble: v1::RelayTrouble::Answer.into(), ..cause });
    let mut health = v1::RelayHealth { node: "a".into(), cause, ..Default::default() };
    health.set_condition(v1::RelayCondition::Parked);
    let answer = v1::TestRelayResponse {
        reachable: true,
        relay: Some(v1::Relay { health: Some(health), ..Default::default() }),
        ..Default::default()
    };
    let ended = Fake::answering("TestRelay", answer).await.reveille("relay test main").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("no email goes out by it now: it is parked on a: 452 4.3.1 quota"), "{ended:?}");
    assert!(ended.stdout.contains("parked on a"), "{ended:?}");
}

/// Starts a fake cluster whose backfill opens four occurrences, or fewer if `max` is smaller.
async fn gaps() -> Fake {
    Fake::start(|method, bytes| {
        if method != "BackfillSchedule" {
            return Err(unknown(method));
        }
        let request = v1::BackfillScheduleRequest::decode(bytes).expect("a request");
        let rest = prost_types::Timestamp { seconds: 1_772_409_600, nanos: 0 };
        let run = |run: &str| if request.validate_only { String::new() } else { run.to_owned() };
        one(v1::BackfillScheduleResponse {
            opened: request.max.min(4),
            opened_before: 2,
            first_run: run("r9.0"),
            last_run: run("r9.3"),
            rest_time: (request.max < 4).then_some(rest),
            inside_gap: 1,
            ..v1::BackfillScheduleResponse::default()
        })
    })
    .await
}

#[tokio::test]
async fn backfill_counts_before_it_opens_and_says_what_is_left() {
    let fake = gaps().await;
    let line = "schedule backfill morning --start-time 2026-03-01T00:00:00Z --end-time 2026-03-05T00:00:00Z";
    let looked = fake.reveille(&format!("{line} --dry-run -o json")).await;
    assert_eq!(
        (looked.code, looked.json()["opened"].clone(), looked.json()["firstRun"].clone()),
        (Some(0), 4.into(), "".into())
    );
    let unconfirmed = fake.reveille(line).await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:?}");
    assert!(
        unconfirmed
            .stderr
            .contains("5 occurrences of morning between 2026-03-01T00:00:00Z and 2026-03-05T00:00:00Z never opened"),
        "{}",
        unconfirmed.stderr
    );
    assert!(
        unconfirmed.stderr.contains("(2 opened before; 1 inside the min gap stay closed)"),
        "{}",
        unconfirmed.stderr
    );
    let requested: Vec<v1::BackfillScheduleRequest> = fake.requests("BackfillSchedule");
    assert!(requested.iter().all(|requested| requested.validate_only), "{requested:?}");

    assert_eq!(fake.reveille(&format!("{line} --yes")).await.code, Some(0));
    let bounded = fake.reveille(&format!("{line} --max 3 --yes")).await;
    assert_eq!(bounded.code, Some(0), "as many as were asked for: {bounded:?}");
    assert!(
        bounded.stderr.contains("--start-time 2026-03-02T00:00:00Z --end-time 2026-03-05T00:00:00Z"),
        "{}",
        bounded.stderr
    );
    let looked = fake.reveille(&format!("{line} --max 3 --dry-run")).await;
    assert!(looked.stdout.contains("what comes from 2026-03-02T00:00:00Z on"), "{}", looked.stdout);
}

#[tokio::test]
async fn backfill_of_more_than_a_thousand_is_partly_done() {
    let rest = prost_types::Timestamp { seconds: 1_772_409_600, nanos: 0 };
    let answer = v1::BackfillScheduleResponse { opened: 1_000, rest_time: Some(rest), ..Default::default() };
    let fake = Fake::answering("BackfillSchedule", answer).await;
    let line = "schedule backfill morning --start-time 2026-03-01T00:00:00Z --end-time 2026-03-05T00:00:00Z";
    for end in ["--dry-run", "--yes"] {
        let partly = fake.reveille(&format!("{line} {end}")).await;
        assert_eq!(partly.code, Some(7), "{end}: {partly:?}");
        assert!(
            partly.stderr.contains("--start-time 2026-03-02T00:00:00Z --end-time 2026-03-05T00:00:00Z"),
            "{}",
            partly.stderr
        );
    }
}

#[tokio::test]
async fn removal_of_last_relay_warns_of_empty_pool() {
    let no_relay = v1::Warning { reason: v1::WarningReason::NoRelay.into(), pool: "bulk".into(), ..Default::default() };
    let warnings = vec![no_relay];
    let fake = Fake::answering("RemoveRelay", v1::RemoveRelayResponse { index: 7, warnings }).await;
    let ended = fake.reveille("relay remove main --yes").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.starts_with("warning: no relay is in pool bulk: "), "{ended:?}");
}

#[tokio::test]
async fn resume_says_whether_it_goes_on_without_its_canary() {
    let fake = Fake::answering("ResumeRun", v1::ResumeRunResponse { run: Some(v1::Run::default()), index: 7 }).await;
    for line in ["run resume r1.0", "run resume r1.0 --without-canary"] {
        assert_eq!(fake.reveille(line).await.code, Some(0));
    }
    let requested: Vec<v1::ResumeRunRequest> = fake.requests("ResumeRun");
    assert_eq!(requested.iter().map(|one| one.without_canary).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn etag_is_a_flag_of_each_command_whose_request_has_one() {
    // The field as it was sent: each message has another number for it, and no other field has this text.
    let has_etag = |bytes: &[u8]| bytes.windows(6).any(|part| part == b"etag-7");
    let fake = Fake::start(move |method, bytes| match method {
        _ if !has_etag(bytes) => Err(unknown(method)),
        "AddRelay" => one(v1::AddRelayResponse::default()),
        "RemoveRelay" => one(v1::RemoveRelayResponse::default()),
        "SetPool" => one(v1::SetPoolResponse::default()),
        "RemovePool" => one(v1::RemovePoolResponse::default()),
        "SetTenant" => one(v1::SetTenantResponse::default()),
        "RemoveTenant" => one(v1::RemoveTenantResponse::default()),
        "LaunchCampaign" => one(v1::LaunchCampaignResponse::default()),
        "ResumeCampaign" => one(v1::ResumeCampaignResponse::default()),
        "CancelCampaign" => one(v1::CancelCampaignResponse::default()),
        "DeleteCampaign" => one(v1::DeleteCampaignResponse::default()),
        "PutTemplate" => one(v1::PutTemplateResponse::default()),
        "DeleteTemplate" => one(v1::DeleteTemplateResponse::default()),
        "ResumeSchedule" => one(v1::ResumeScheduleResponse::default()),
        "DeleteSchedule" => one(v1::DeleteScheduleResponse::default()),
        _ => Err(unknown(method)),
    })
    .await;
    for (line, method) in [
        ("relay add r --host 127.0.0.1 --port 25 --replace", "AddRelay"),
        ("relay remove r --yes", "RemoveRelay"),
        ("pool set bulk --warm-up 5", "SetPool"),
        ("pool remove bulk --yes", "RemovePool"),
        ("tenant set acme --share 2", "SetTenant"),
        ("tenant remove acme --yes", "RemoveTenant"),
        ("campaign launch spring", "LaunchCampaign"),
        ("campaign resume spring", "ResumeCampaign"),
        ("campaign cancel spring --yes", "CancelCampaign"),
        ("campaign delete spring --yes", "DeleteCampaign"),
        ("template put welcome --sender a@example.com --subject Hi --inline-text Hi", "PutTemplate"),
        ("template delete welcome --yes", "DeleteTemplate"),
        ("schedule resume morning --dry-run", "ResumeSchedule"),
        ("schedule delete morning --yes", "DeleteSchedule"),
    ] {
        let ended = fake.reveille(&format!("{line} --etag etag-7")).await;
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        assert_eq!(fake.methods().last().map(String::as_str), Some(method), "{line}");
    }
    for line in ["schedule resume -l team=ops --etag etag-7", "relay remove r --dry-run --etag etag-7"] {
        assert_eq!(fake.reveille(line).await.code, Some(2), "{line}: the condition would be ignored");
    }
}

//! `campaign …`: requests and output.

use prost::Message;
use reveille_proto::admin::v1::{self, CampaignState};
use serde_json::json;
use tonic::Code;

use crate::fake::{Fake, one, refusal, refusal_of, unknown};

fn instant(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

fn spring(state: CampaignState) -> v1::Campaign {
    v1::Campaign {
        tenant: "default".into(),
        name: "spring".into(),
        state: state.into(),
        audience: "subscribers".into(),
        recipients: 50_000_000,
        send_time: instant(1_772_960_400),
        zone: "Europe/Berlin".into(),
        pool: "bulk".into(),
        content_hash: "c0de".into(),
        policies: Some(v1::Policies {
            start_within: Some(prost_types::Duration { seconds: 3_600, nanos: 0 }),
            ..v1::Policies::default()
        }),
        finish_by_time: instant(1_772_964_000),
        forecast: Some(v1::Forecast {
            needed_per_second: 13_888.9,
            budget_per_second: Some(4_000.0),
            end_time: instant(1_772_972_900),
            fits: false,
            bound: v1::ForecastBound::Relays.into(),
            first_day_room: None,
        }),
        index: 12,
        canary: Some(v1::Canary { percent: 1.0, hold_percent: Some(5.0) }),
        ..v1::Campaign::default()
    }
}

fn too_late() -> v1::Warning {
    v1::Warning {
        reason: v1::WarningReason::EndsTooLate.into(),
        pool: "bulk".into(),
        expire_time: instant(1_772_964_000),
        ..Default::default()
    }
}

const TOO_LATE: &str = "needs 13,889 emails/s, and the relays of pool bulk give 4,000: would end at \
                        2026-03-08T12:28:20Z, and what is not sent at 2026-03-08T10:00:00Z expires";

#[tokio::test]
async fn create_asks_for_an_instant_an_audience_and_its_content() {
    let fake = Fake::start(|method, _| match method {
        "CreateCampaign" => one(v1::CreateCampaignResponse {
            campaign: Some(spring(CampaignState::Draft)),
            created: true,
            warnings: vec![too_late()],
        }),
        _ => Err(unknown(method)),
    })
    .await;
    let line = "campaign create spring --audience subscribers --at 2026-03-08T09:00:00Z --zone Europe/Berlin --pool bulk \
                --sender news@example.com --subject s --inline-text t --canary-percent 0.5% --dry-run";
    let ended = fake.reveille(line).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, format!("warning: {TOO_LATE}\nchecked; nothing was changed\n"));
    let reported = "needs 13,889 emails/s; the relays' rates give 4,000: ends at 2026-03-08T12:28:20Z, after finish by";
    assert!(ended.stdout.contains(reported), "{}", ended.stdout);
    let requested: Vec<v1::CreateCampaignRequest> = fake.requests("CreateCampaign");
    let requested = requested.first().expect("asked");
    let body = requested.schedule.clone().expect("a body");
    assert_eq!((body.name.as_str(), body.audience.expect("an audience").sealed.as_str()), ("spring", "subscribers"));
    assert_eq!(body.timing.and_then(|when| when.pattern), instant(1_772_960_400).map(v1::when::Pattern::At));
    assert_eq!(requested.canary, Some(v1::Canary { percent: 0.5, hold_percent: None }));
    // Policies of recurring schedules are not sent. Policies that the user leaves out get the defaults of campaigns.
    let policies = v1::Policies { in_doubt: v1::InDoubt::Hold.into(), ..v1::Policies::default() };
    assert!(requested.validate_only && body.policies == Some(policies), "{:?}", body.policies);
}

#[tokio::test]
async fn create_offers_what_campaigns_have_with_their_defaults() {
    let fake = Fake::start(|method, _| Err(unknown(method))).await;
    // The help is wrapped at the width of the terminal, so line breaks are removed.
    let help = fake.reveille("campaign create --help").await.stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["--start-within", "[default: 1h]", "[default: 4h, or twice the forecast where that is longer]"] {
        assert!(help.contains(words), "{words}: {help}");
    }
    for flag in ["--overlap", "--min-gap", "--jitter", "--catch-up", "--dst-gap"] {
        assert!(!help.contains(flag), "{flag}: {help}");
    }
}

#[tokio::test]
async fn problem_is_named_by_its_flag() {
    let fake = Fake::start(|_, _| Err(refusal_of("INVALID_FIELD", "send_time", "send_time: is not an instant"))).await;
    let ended = fake.reveille("campaign launch spring --at 2026-03-08T09:00:00Z").await;
    assert!(ended.stderr.contains("--at: is not an instant"), "{ended:?}");
}

#[tokio::test]
async fn dry_run_asks_what_a_launch_would_say_and_launches_nothing() {
    let warnings = vec![too_late()];
    let answer = v1::LaunchCampaignResponse { campaign: Some(spring(CampaignState::Draft)), warnings };
    let fake = Fake::answering("LaunchCampaign", answer).await;
    let ended = fake.reveille("campaign launch spring --dry-run --at 2026-03-08T09:00:00Z").await;
    let said = format!("warning: {TOO_LATE}\nchecked; nothing was changed\n");
    assert_eq!((ended.code, &ended.stderr), (Some(0), &said), "{ended:?}");
    let requested: Vec<v1::LaunchCampaignRequest> = fake.requests("LaunchCampaign");
    assert!(requested.iter().all(|one| one.validate_only && one.name == "spring"), "{requested:?}");
    assert_eq!(requested.first().map(|one| one.send_time), Some(instant(1_772_960_400)));
}

#[tokio::test]
async fn content_without_a_body_names_all_four_flags() {
    let fake = Fake::start(|method, _| Err(unknown(method))).await;
    let given = "campaign create spring --audience all --at 2030-01-01T09:00:00Z --sender a@b.c --subject s -o json";
    let ended = fake.reveille(given).await;
    let error = ended.error();
    for flag in ["--text <FILE>", "--inline-text <TEXT>", "--html <FILE>", "--inline-html <HTML>"] {
        assert!(error["message"].as_str().is_some_and(|message| message.contains(flag)), "{error}");
    }
    assert_eq!(ended.code, Some(2));
}

/// Returns a run with 200 recipients, of which `settled` are sent.
fn under_way(settled: u32) -> v1::Run {
    let counts = v1::RunCounts { sent: settled, pending: 200 - settled, ..v1::RunCounts::default() };
    let mut run = v1::Run { run: "r7.0".into(), audience: 200, counts: Some(counts), ..v1::Run::default() };
    run.set_state(if settled == 200 { v1::RunState::Finished } else { v1::RunState::Open });
    run
}

#[tokio::test]
async fn status_of_an_open_one_says_when_it_ends() {
    let fake = Fake::start(|method, _| match method {
        "GetCampaign" => {
            let progress = Some(v1::Progress { per_second: 2.04, end_time: instant(1_772_960_500) });
            let campaign =
                v1::Campaign { run: Some(under_way(100)), forecast: None, progress, ..spring(CampaignState::Open) };
            one(v1::GetCampaignResponse { campaign: Some(campaign), ..Default::default() })
        }
        _ => Err(unknown(method)),
    })
    .await;
    let reported = "2 emails/s on average while it was open: ends at 2026-03-08T09:01:40Z";
    let shown = fake.reveille("campaign status spring").await.stdout;
    assert!(shown.contains(reported), "{shown}");
    let progress = fake.reveille("campaign status spring -o json").await.json()["progress"].clone();
    assert_eq!(progress, json!({ "perSecond": 2.04, "endTime": "2026-03-08T09:01:40Z" }));
}

#[tokio::test]
async fn canary_line_says_that_it_is_of_its_verdict() {
    let shown = async |verdict: v1::CanaryVerdict| {
        let canary = v1::RunCanary { recipients: 100, undecided: 40, bad: 6, bad_max: 5, verdict: verdict.into() };
        let run = v1::Run { canary: Some(canary), ..under_way(100) };
        let campaign = v1::Campaign { run: Some(run), ..spring(CampaignState::Open) };
        let answer = v1::GetCampaignResponse { campaign: Some(campaign), ..Default::default() };
        Fake::answering("GetCampaign", answer).await.reveille("campaign status spring").await.stdout
    };
    let now = shown(v1::CanaryVerdict::Undecided).await;
    assert!(now.contains("undecided, 40 of 100 to come, 6 dead or in doubt of at most 5"), "{now}");
    for (verdict, word) in [(v1::CanaryVerdict::Held, "held"), (v1::CanaryVerdict::Overruled, "overruled")] {
        let then = shown(verdict).await;
        let words = format!("{word}; at its verdict 40 of 100 were to come, 6 dead or in doubt of at most 5");
        assert!(then.contains(&words), "{then}");
    }
}

#[tokio::test]
async fn watch_shows_rate_and_end_also_in_a_pipe() {
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let fake = Fake::start(move |method, _| match method {
        "GetCampaign" => {
            looks.store(0, std::sync::atomic::Ordering::SeqCst);
            let campaign = v1::Campaign { run: Some(under_way(0)), ..spring(CampaignState::Open) };
            one(v1::GetCampaignResponse { campaign: Some(campaign), ..Default::default() })
        }
        // The client reconnects half a second after a stream ends.
        "WatchRun" => {
            let reported = |settled| v1::WatchRunResponse { run: Some(under_way(settled)) }.encode_to_vec();
            match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => Ok(vec![reported(0)]),
                _ => Ok(vec![reported(50), reported(200)]),
            }
        }
        _ => Err(unknown(method)),
    })
    .await;
    let ended = fake.reveille("campaign watch spring").await;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!((ended.code, lines.len()), (Some(0), 3), "{ended:?}");
    assert!(!lines[0].contains("/s"), "not known yet: {ended:?}");
    assert!(lines[1].contains("50 of 200") && lines[1].contains("/s, over in "), "{ended:?}");
    assert_eq!(lines[2], "r7.0 finished: 200 of 200, sent 200", "nothing is left: {ended:?}");

    let ended = fake.reveille("campaign watch spring -o json").await;
    let reported = |line: &str| -> serde_json::Value { serde_json::from_str(line).expect("an object a line") };
    let lines: Vec<_> = ended.stdout.lines().map(reported).collect();
    assert_eq!((lines[0]["perSecond"].is_null(), lines[0]["eta"].is_null()), (true, true), "{ended:?}");
    assert!(lines[1]["perSecond"].as_f64().is_some_and(|rate| rate > 0.0), "{ended:?}");
    assert!(lines[1]["eta"].as_str().is_some_and(|eta| eta.ends_with('s')), "{ended:?}");
    assert!(lines[2]["eta"].is_null(), "nothing is left: {ended:?}");
}

#[tokio::test]
async fn status_and_list_print_the_same_fields() {
    let fake = Fake::start(|method, _| match method {
        "GetCampaign" => {
            one(v1::GetCampaignResponse { campaign: Some(spring(CampaignState::Launched)), ..Default::default() })
        }
        "ListCampaigns" => {
            one(v1::ListCampaignsResponse { campaigns: vec![spring(CampaignState::Launched)], ..Default::default() })
        }
        _ => Err(unknown(method)),
    })
    .await;
    let shown = json!({
        "tenant": "default", "name": "spring", "state": "CAMPAIGN_STATE_LAUNCHED", "audience": "subscribers",
        "recipients": 50_000_000, "sendTime": "2026-03-08T09:00:00Z", "zone": "Europe/Berlin", "pool": "bulk",
        "priority": 0, "labels": {}, "contentHash": "c0de", "template": "", "etag": "",
        "finishByTime": "2026-03-08T10:00:00Z", "index": "12",
        "canary": { "percent": 1.0, "holdPercent": 5.0 },
        "forecast": {
            "neededPerSecond": 13_888.9, "budgetPerSecond": 4_000.0, "endTime": "2026-03-08T12:28:20Z", "fits": false,
            "bound": "FORECAST_BOUND_RELAYS",
        },
    });
    let mut status = fake.reveille("campaign status spring -o json").await.json();
    let listed = fake.reveille("campaign list --state launched --since-time 2026-03-01T00:00:00Z -o json").await.json();
    let requested: Vec<v1::ListCampaignsRequest> = fake.requests("ListCampaigns");
    assert_eq!(requested[0].states, [i32::from(CampaignState::Launched)]);
    assert!(requested[0].since_time.is_some() && requested[0].until_time.is_none(), "{requested:?}");
    assert_eq!(listed, json!([status]));
    let policies = status.as_object_mut().and_then(|fields| fields.remove("policies")).unwrap_or_default();
    assert_eq!((status, &policies["startWithin"]), (shown, &json!("3600s")));
}

#[tokio::test]
async fn watch_waits_for_the_run_across_a_failover_and_then_follows_it() {
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let counts = v1::RunCounts { sent: 2, ..v1::RunCounts::default() };
    let run = v1::Run { run: "r7.0".into(), audience: 2, counts: Some(counts), ..v1::Run::default() };
    let mut run = run;
    run.set_state(v1::RunState::Finished);
    let fake = Fake::start(move |method, _| match method {
        "GetCampaign" => {
            let look = looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if look == 1 {
                return Err(refusal(Code::DeadlineExceeded, "OUTCOME_UNKNOWN", "the leader is lost"));
            }
            let opened = look > 1;
            let state = if opened { CampaignState::Open } else { CampaignState::Launched };
            let campaign = v1::Campaign { run: opened.then(|| run.clone()), ..spring(state) };
            one(v1::GetCampaignResponse { campaign: Some(campaign), ..Default::default() })
        }
        "WatchRun" => one(v1::WatchRunResponse { run: Some(run.clone()) }),
        _ => Err(unknown(method)),
    })
    .await;
    let ended = fake.reveille("campaign watch spring").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.starts_with("spring is launched for 2026-03-08T09:00:00Z"), "{ended:?}");
    assert!(ended.stderr.contains("no answer in time; asking again every second"), "{ended:?}");
    assert!(ended.stdout.contains("finished"), "{ended:?}");
}

#[tokio::test]
async fn watch_that_timeout_ends_reports_no_lost_answer() {
    let fake = Fake::start(|method, _| match method {
        "GetCampaign" => {
            let campaign = Some(spring(CampaignState::Launched));
            one(v1::GetCampaignResponse { campaign, ..Default::default() })
        }
        _ => Err(unknown(method)),
    })
    .await;
    let ended = fake.reveille("campaign watch spring --timeout 2s").await;
    assert_eq!(ended.code, Some(8), "{ended:?}");
    assert!(ended.stderr.contains("spring has not opened in this time"), "{ended:?}");
    assert!(!ended.stderr.contains("asking again"), "{ended:?}");
}

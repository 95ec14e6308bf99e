//! Campaigns and outages (P16): sent late once at the rate for late emails, not sent at all, or expired in the middle.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reveille_proto::admin::v1::{
    AddRelayRequest, CampaignState, HistoryEntry, HistoryOutcome, LaunchCampaignRequest, ListRunsRequest,
    ListScheduleHistoryRequest, Policies, Relay, RunCause, UnopenedReason,
};

use super::campaigns::{RECIPIENTS, body, launched, seal, status};
use super::clock::{HOUR, MINUTE, advance_clock, at, coming_day, jump};
use super::harness::{Node, STEP_TIMEOUT, node_with_test_clock};
use crate::cli::wording::missed as missed_because;

const NINE: i64 = 9 * HOUR;

fn instant(seconds: i64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds, nanos: 0 }
}

fn lasting(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Launches a campaign for 09:00 at 08:55, and returns the first second of that day.
async fn launched_for_nine(node: &Node, policies: Policies) -> i64 {
    let day = coming_day(node).await;
    advance_clock(node, at(day + 8 * HOUR)).await;
    seal(node, "all").await;
    let mut request = body("spring", "all", instant(day + NINE));
    request.schedule.as_mut().expect("a body").policies = Some(policies);
    node.campaigns().create_campaign(request).await.expect("a draft");
    launched(node, "spring", None).await.expect("launched");
    advance_clock(node, at(day + NINE - 5 * MINUTE)).await;
    day
}

async fn relay_with(node: &Node, relay: Relay) {
    let request = AddRelayRequest { relay: Some(relay), replace: true, ..AddRelayRequest::default() };
    node.relays().add_relay(request).await.expect("replaced");
}

/// Returns the campaign's only instant from its history.
async fn history(node: &Node) -> HistoryEntry {
    let request = ListScheduleHistoryRequest { name: "spring".into(), ..ListScheduleHistoryRequest::default() };
    let history = node.schedules().list_schedule_history(request).await.expect("a history").into_inner().entries;
    assert_eq!(history.len(), 1, "{history:?}");
    history[0].clone()
}

/// Checks that each recipient got exactly one email.
fn all_arrived_once(node: &Node) {
    let emails = node.sink.emails();
    let recipients: BTreeSet<&str> = emails.iter().map(|(_, mail)| mail.recipient.as_str()).collect();
    assert_eq!((emails.iter().count(), recipients.len()), (RECIPIENTS as usize, RECIPIENTS as usize));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn campaign_after_short_outage_is_sent_late_at_its_rate_once() {
    const LATE_RATE: u32 = 60;
    let node = node_with_test_clock("").await;
    relay_with(&node, Relay { late_rate_per_second: f64::from(LATE_RATE), ..node.relay() }).await;
    let day = launched_for_nine(&node, Policies { start_within: lasting(2 * HOUR), ..Policies::default() }).await;
    jump(&node, at(day + NINE + 20 * MINUTE)).await;

    let done = status(&node, "spring").await;
    let run = done.run.clone().expect("a run");
    assert_eq!((done.state(), run.cause()), (CampaignState::Finished, RunCause::CatchUp), "{done:?}");
    assert_eq!(run.counts.map(|counts| counts.sent), Some(RECIPIENTS), "{run:?}");
    let entry = history(&node).await;
    assert_eq!((entry.outcome(), entry.cause()), (HistoryOutcome::Fired, RunCause::CatchUp));
    assert!(entry.late.is_some_and(|late| late.seconds >= 20 * MINUTE), "{entry:?}");
    all_arrived_once(&node);
    // The token bucket may hold two seconds. A busy machine is only slower.
    let mut arrived: Vec<u64> = node.sink.emails().iter().map(|(_, mail)| mail.accept_monotonic_us).collect();
    arrived.sort_unstable();
    let took = Duration::from_micros(arrived[arrived.len() - 1] - arrived[0]);
    assert!(took >= Duration::from_secs(u64::from(RECIPIENTS / LATE_RATE - 2) - 1), "paced: {took:?}");

    // Hours later no more emails are sent, and a second launch has no warnings about the past.
    advance_clock(&node, at(day + NINE + 3 * HOUR)).await;
    let request = LaunchCampaignRequest { name: "spring".into(), ..LaunchCampaignRequest::default() };
    let again = node.campaigns().launch_campaign(request).await.expect("the same launch").into_inner();
    assert_eq!(again.warnings, []);
    all_arrived_once(&node);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn campaign_after_long_outage_expires_with_a_reason_for_each() {
    let node = node_with_test_clock("").await;
    let day = launched_for_nine(&node, Policies { start_within: lasting(2 * HOUR), ..Policies::default() }).await;
    jump(&node, at(day + NINE + 4 * HOUR)).await;

    let missed = status(&node, "spring").await;
    assert_eq!((missed.state(), missed.recipients, &missed.run), (CampaignState::Missed, RECIPIENTS, &None));
    for words in ["could not open before", "T13:00:0", "T09:00:00Z by more than start_within", "nothing was sent"] {
        let why = missed.miss.as_ref().map(|miss| missed_because(&missed, miss)).unwrap_or_default();
        assert!(why.contains(words), "{why}");
    }
    let entry = history(&node).await;
    assert_eq!((entry.outcome(), entry.count), (HistoryOutcome::Expired, 1), "{entry:?}");
    assert_eq!(entry.reason(), UnopenedReason::TooLate);
    let runs = node.runs().list_runs(ListRunsRequest::default()).await.expect("a list").into_inner().runs;
    assert_eq!((runs.len(), node.sink.accepted_count()), (0, 0));

    // The campaign can be launched for a future instant, and is sent then.
    launched(&node, "spring", Some(instant(day + NINE + 5 * HOUR))).await.expect("launched anew");
    advance_clock(&node, at(day + NINE + 6 * HOUR)).await;
    assert_eq!(status(&node, "spring").await.state(), CampaignState::Finished);
    all_arrived_once(&node);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_in_the_middle_expires_the_rest_and_counts_it() {
    let node = node_with_test_clock("").await;
    // Sending to all recipients would take more than a minute.
    relay_with(&node, Relay { rate_per_second: 4.0, ..node.relay() }).await;
    let day = launched_for_nine(&node, Policies { finish_by: lasting(HOUR), ..Policies::default() }).await;
    let under_way = async {
        let end = Instant::now() + STEP_TIMEOUT;
        while node.sink.accepted_count() < 5 {
            assert!(Instant::now() < end, "nothing is sent within {STEP_TIMEOUT:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        advanced = advance_clock(&node, at(day + NINE + MINUTE)) => panic!("it waits for all of it: {advanced:?}"),
        () = under_way => {}
    }
    jump(&node, at(day + NINE + HOUR + MINUTE)).await;

    let expired = status(&node, "spring").await;
    let counts = expired.run.as_ref().and_then(|run| run.counts).expect("counts");
    assert_eq!(expired.state(), CampaignState::Expired, "{expired:?}");
    assert_eq!(expired.run.as_ref().and_then(|run| run.pause.as_ref()), None);
    assert_eq!((u64::from(counts.sent), counts.sent + counts.expired), (node.sink.accepted_count(), RECIPIENTS));
    assert!(counts.sent >= 5 && counts.expired > 0, "{counts:?}");
    node.stop().await;
}

//! Forecasts of campaigns: which limit decides the end. A launch is refused if its pool has no relay.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use reveille_proto::admin::v1::{
    AddRelayRequest, CampaignState, ForecastBound, LaunchCampaignRequest, Policies, Relay, RemoveRelayRequest,
    SetPoolRequest, SetTenantRequest, Warning, WarningReason,
};
use tonic::Code;
use tonic_types::StatusExt;

use super::campaigns::{RECIPIENTS, at, body, launched, seal, status};
use super::harness::{Node, STEP_TIMEOUT, node, reason};

async fn relay_with(node: &Node, rate_per_second: f64) {
    let relay = Some(Relay { rate_per_second, ..node.relay() });
    let request = AddRelayRequest { relay, replace: true, ..AddRelayRequest::default() };
    node.relays().add_relay(request).await.expect("replaced");
}

/// Returns the limit, whether the campaign fits, and the only warning, from the dry run of a launch.
async fn forecast(node: &Node, due: Option<prost_types::Timestamp>) -> (ForecastBound, bool, Option<WarningReason>) {
    let request = LaunchCampaignRequest {
        name: "spring".into(),
        send_time: due,
        validate_only: true,
        ..LaunchCampaignRequest::default()
    };
    let answer = node.campaigns().launch_campaign(request).await.expect("checked").into_inner();
    assert!(answer.warnings.len() <= 1, "{answer:?}");
    let forecast = answer.campaign.and_then(|campaign| campaign.forecast).expect("a forecast");
    (forecast.bound(), forecast.fits, answer.warnings.first().map(Warning::reason))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn least_of_rates_and_caps_decides_and_is_named() {
    let node = node("").await;
    seal(&node, "all").await;
    let mut request = body("spring", "all", at(SignedDuration::from_hours(1)));
    let finish_by = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    request.schedule.as_mut().expect("a body").policies = Some(Policies { finish_by, ..Policies::default() });
    node.campaigns().create_campaign(request).await.expect("a draft");
    assert_eq!(forecast(&node, None).await, (ForecastBound::Nothing, true, None));

    relay_with(&node, 10.0).await;
    assert_eq!(forecast(&node, None).await, (ForecastBound::Relays, true, None));
    let set = SetTenantRequest { name: "default".into(), rate_per_second: Some(4.0), ..SetTenantRequest::default() };
    node.tenants().set_tenant(set).await.expect("set");
    let too_late = Some(WarningReason::EndsTooLate);
    assert_eq!(forecast(&node, None).await, (ForecastBound::Tenant, false, too_late));
    relay_with(&node, 2.0).await;
    assert_eq!(forecast(&node, None).await, (ForecastBound::Relays, false, too_late));

    let warm_up = SetPoolRequest { name: "default".into(), warm_up: vec![50, 100, 100], ..SetPoolRequest::default() };
    node.pools().set_pool(warm_up).await.expect("set");
    assert_eq!(forecast(&node, None).await, (ForecastBound::WarmUp, false, too_late));
    let shown = status(&node, "spring").await.forecast.expect("a forecast");
    assert_eq!(shown.bound(), ForecastBound::WarmUp);
    assert!(shown.first_day_room.is_some_and(|room| room == 50 || room == 100), "today's, or tomorrow's: {shown:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_relay_it_is_drafted_and_not_launched() {
    let node = node("").await;
    seal(&node, "all").await;
    let mut request = body("spring", "all", at(SignedDuration::from_hours(1)));
    request.schedule.as_mut().expect("a body").pool = "bulk".into();
    let created = node.campaigns().create_campaign(request).await.expect("a draft").into_inner();
    assert!(created.warnings.iter().any(|warning| warning.reason() == WarningReason::NoRelay), "{created:?}");
    let forecast = created.campaign.and_then(|campaign| campaign.forecast).expect("a forecast");
    assert_eq!((forecast.bound(), forecast.fits, forecast.end_time), (ForecastBound::NoRelay, false, None));

    for validate_only in [true, false] {
        let request =
            LaunchCampaignRequest { name: "spring".into(), validate_only, ..LaunchCampaignRequest::default() };
        let refused = node.campaigns().launch_campaign(request).await.expect_err("no relay would send it");
        assert_eq!(reason(&refused), (Code::FailedPrecondition, "NO_RELAY".to_owned()));
        assert!(refused.message().contains("no relay is in pool bulk"), "{refused}");
        let pool = refused.get_details_error_info().and_then(|info| info.metadata.get("pool").cloned());
        assert_eq!(pool.as_deref(), Some("bulk"));
    }
    assert_eq!(status(&node, "spring").await.state(), CampaignState::Draft);

    let relay = Some(Relay { name: "bulk".into(), pool: "bulk".into(), ..node.relay() });
    node.relays().add_relay(AddRelayRequest { relay, ..AddRelayRequest::default() }).await.expect("added");
    let first = launched(&node, "spring", None).await.expect("launched");
    assert_eq!(first.state(), CampaignState::Launched);
    // A repeated launch gets the same answer, even after the relay is removed.
    node.relays()
        .remove_relay(RemoveRelayRequest { name: "bulk".into(), ..Default::default() })
        .await
        .expect("removed");
    let again = launched(&node, "spring", None).await.expect("the same launch");
    assert_eq!(again.launch_time, first.launch_time);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launch_at_an_instant_that_is_over_says_what_happens() {
    let node = node("").await;
    seal(&node, "all").await;
    relay_with(&node, 10.0).await;
    let mut request = body("spring", "all", at(SignedDuration::from_hours(1)));
    let finish_by = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    request.schedule.as_mut().expect("a body").policies = Some(Policies { finish_by, ..Policies::default() });
    node.campaigns().create_campaign(request).await.expect("a draft");

    let ago = |minutes: i64| Some(at(SignedDuration::from_mins(-minutes)));
    let late = (ForecastBound::LateRates, true, Some(WarningReason::OpensLate));
    assert_eq!(forecast(&node, ago(20)).await, late, "a minute from its opening, since finish_by is over too");
    let refused = launched(&node, "spring", ago(61)).await.expect_err("over by more than start_within");
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "INSTANT_PASSED".to_owned()));
    let request =
        LaunchCampaignRequest { name: "spring".into(), send_time: ago(61), validate_only: true, ..Default::default() };
    let checked = node.campaigns().launch_campaign(request).await.expect_err("a dry run says so, too");
    assert_eq!(checked.message(), refused.message());
    assert_eq!(status(&node, "spring").await.recipients, RECIPIENTS);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_an_open_one_keeps_to_the_warm_up_of_its_pool() {
    let node = node("").await;
    seal(&node, "all").await;
    let warm_up = SetPoolRequest { name: "default".into(), warm_up: vec![50, 100, 100], ..SetPoolRequest::default() };
    node.pools().set_pool(warm_up).await.expect("set");
    let request = body("spring", "all", at(SignedDuration::from_hours(1)));
    node.campaigns().create_campaign(request).await.expect("a draft");
    launched(&node, "spring", Some(at(SignedDuration::ZERO))).await.expect("launched");
    let until = Instant::now() + STEP_TIMEOUT;
    let open = loop {
        let campaign = status(&node, "spring").await;
        let sent = campaign.run.as_ref().and_then(|run| run.counts).map_or(0, |counts| counts.sent);
        if sent >= 50 {
            break campaign;
        }
        assert!(Instant::now() < until, "nothing goes: {campaign:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // Of 300 recipients, the last 50 must wait until the day after tomorrow at least, at whatever speed the first 50
    // were sent.
    let ends = open.progress.and_then(|progress| progress.end_time).expect("an end");
    assert!(ends.seconds > at(SignedDuration::from_hours(24)).seconds, "{open:?}");
    node.stop().await;
}

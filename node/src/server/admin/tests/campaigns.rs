//! Campaigns over the API: created, launched once, paused, missed, deleted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reveille_cluster::file_store::GeneratedAudience;
use reveille_proto::admin::v1::{
    Audience, Campaign, CampaignState, CancelCampaignRequest, Content, CreateCampaignRequest, DeleteCampaignRequest,
    GetCampaignRequest, LaunchCampaignRequest, ListCampaignsRequest, MissedCause, PauseCampaignRequest, PauseCause,
    ResumeCampaignRequest, ScheduleBody, TriggerScheduleRequest, WarningReason, When, when,
};
use tonic::{Code, Status};

use super::audiences::imported;
use super::harness::{Node, STEP_TIMEOUT, creation, node, reason, yearly};

pub const RECIPIENTS: u32 = 300;

/// Generates an audience, and waits until it is sealed.
pub async fn seal(node: &Node, name: &str) {
    let generated = GeneratedAudience { seed: 7, recipients: RECIPIENTS, columns: vec!["name".to_owned()] };
    imported(node, name, &generated).await.expect("sealed");
}

pub fn at(ahead: SignedDuration) -> prost_types::Timestamp {
    let at = Timestamp::now() + ahead;
    prost_types::Timestamp { seconds: at.as_second(), nanos: 0 }
}

pub fn body(name: &str, audience: &str, due: prost_types::Timestamp) -> CreateCampaignRequest {
    let content = Content {
        sender: "News <news@example.com>".into(),
        subject: format!("{name} for {{{{ name }}}}"),
        text: Some("Hello".into()),
        ..Content::default()
    };
    CreateCampaignRequest {
        schedule: Some(ScheduleBody {
            name: name.to_owned(),
            timing: Some(When { pattern: Some(when::Pattern::At(due)) }),
            zone: "Europe/Berlin".into(),
            content: Some(content),
            audience: Some(Audience { sealed: audience.to_owned(), ..Audience::default() }),
            ..ScheduleBody::default()
        }),
        ..CreateCampaignRequest::default()
    }
}

/// Launches a campaign for this instant. `None` means the instant of its draft.
pub async fn launched(node: &Node, name: &str, due: Option<prost_types::Timestamp>) -> Result<Campaign, Status> {
    let request = LaunchCampaignRequest { name: name.to_owned(), send_time: due, ..LaunchCampaignRequest::default() };
    Ok(node.campaigns().launch_campaign(request).await?.into_inner().campaign.expect("a campaign"))
}

pub async fn status(node: &Node, name: &str) -> Campaign {
    let request = GetCampaignRequest { name: name.to_owned(), ..GetCampaignRequest::default() };
    node.campaigns().get_campaign(request).await.expect("known").into_inner().campaign.expect("a campaign")
}

/// Waits until the campaign is in this state.
pub async fn becomes(node: &Node, name: &str, state: CampaignState) -> Campaign {
    let end = std::time::Instant::now() + STEP_TIMEOUT;
    loop {
        let known = status(node, name).await;
        if known.state() == state {
            return known;
        }
        assert!(std::time::Instant::now() < end, "not {state:?} in {STEP_TIMEOUT:?}: {known:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_launch_sends_once() {
    let node = node("").await;
    seal(&node, "all").await;
    let request = body("spring", "all", at(SignedDuration::from_hours(1)));
    let draft = node.campaigns().create_campaign(request.clone()).await.expect("a draft").into_inner();
    assert!(draft.created && draft.warnings.is_empty(), "{draft:?}");
    assert_eq!(draft.campaign.expect("a campaign").state(), CampaignState::Draft);
    assert!(!node.campaigns().create_campaign(request).await.expect("the same").into_inner().created);

    let now = at(SignedDuration::ZERO);
    let first = launched(&node, "spring", Some(now)).await.expect("launched");
    let done = becomes(&node, "spring", CampaignState::Finished).await;
    let run = done.run.clone().expect("a run");
    assert_eq!((run.audience, run.counts.map(|counts| counts.sent)), (RECIPIENTS, Some(RECIPIENTS)), "{run:?}");

    for due in [Some(now), None] {
        let again = launched(&node, "spring", due).await.expect("the same launch");
        assert_eq!((again.launch_time, again.run), (first.launch_time, done.run.clone()));
    }
    let later = Some(at(SignedDuration::from_hours(1)));
    let refused = launched(&node, "spring", later).await.expect_err("it opened for another instant");
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "CAMPAIGN_STATE".to_owned()));
    let trigger = TriggerScheduleRequest { name: "spring".into(), request_id: "more".into(), ..Default::default() };
    let refused = node.schedules().trigger_schedule(trigger).await.expect_err("P7: it opens once");
    assert_eq!(refused.code(), Code::FailedPrecondition);

    // The same content to the same audience is refused unless `again` is set (P20).
    let mut copy = body("copy", "all", at(SignedDuration::from_hours(1)));
    let same = |schedule: &mut ScheduleBody| {
        schedule.content = body("spring", "all", at(SignedDuration::ZERO)).schedule.expect("a body").content;
    };
    copy.schedule.as_mut().map(same);
    node.campaigns().create_campaign(copy).await.expect("a draft");
    let refused = launched(&node, "copy", None).await.expect_err("sent already");
    assert!(refused.message().contains("'spring'"), "{refused}");
    let request = LaunchCampaignRequest { name: "copy".into(), again: true, ..Default::default() };
    node.campaigns().launch_campaign(request).await.expect("on purpose");

    let taken = creation(yearly("copy", &["ann@example.com"]));
    let refused = node.schedules().create_schedule(taken).await.expect_err("a campaign has that name");
    assert_eq!(reason(&refused).1, "NAME_TAKEN");
    let request = CancelCampaignRequest { name: "copy".into(), ..Default::default() };
    let cancelled = node.campaigns().cancel_campaign(request).await.expect("cancelled").into_inner();
    assert_eq!(cancelled.campaign.expect("it").state(), CampaignState::Cancelled);
    for name in ["copy", "spring"] {
        let request = DeleteCampaignRequest { name: name.into(), ..Default::default() };
        node.campaigns().delete_campaign(request).await.expect("forgotten");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audience_is_sealed_at_its_instant_or_it_does_not_fire() {
    let node = node("").await;
    for (name, audience, ahead) in [("never", "missing", 20), ("late", "tomorrow", 3_600)] {
        let request = body(name, audience, at(SignedDuration::from_secs(ahead)));
        let draft = node.campaigns().create_campaign(request).await.expect("a draft").into_inner();
        assert!(draft.warnings.iter().any(|one| one.reason() == WarningReason::AudienceNotSealed), "{draft:?}");
        assert_eq!(launched(&node, name, None).await.expect("launched").state(), CampaignState::Waiting);
    }
    let missed = becomes(&node, "never", CampaignState::Missed).await;
    let miss = missed.miss.as_ref().map(|miss| (miss.cause(), missed.audience.as_str()));
    assert_eq!(miss, Some((MissedCause::NotSealed, "missing")), "{missed:?}");
    assert!(missed.run.is_none() && missed.launch_time.is_some());

    seal(&node, "tomorrow").await;
    let armed = becomes(&node, "late", CampaignState::Launched).await;
    assert_eq!(armed.recipients, RECIPIENTS);

    // A campaign can be paused before its instant and resumed.
    let pause = PauseCampaignRequest { name: "late".into(), reason: "look".into(), ..Default::default() };
    let paused = node.campaigns().pause_campaign(pause).await.expect("paused").into_inner().campaign.expect("it");
    let pause = paused.pause.as_ref().map(|pause| (pause.cause(), pause.text.as_str()));
    assert_eq!((paused.state(), pause), (CampaignState::Paused, Some((PauseCause::Operator, "look"))));
    let resume = ResumeCampaignRequest { name: "late".into(), ..Default::default() };
    let resumed = node.campaigns().resume_campaign(resume).await.expect("resumed").into_inner().campaign.expect("it");
    assert_eq!(resumed.state(), CampaignState::Launched);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_campaign_is_refused_with_its_field() {
    let node = node("").await;
    seal(&node, "all").await;
    let hour = at(SignedDuration::from_hours(1));
    let mut daily = body("daily", "all", hour);
    daily.schedule.as_mut().expect("a body").timing =
        Some(When { pattern: Some(when::Pattern::Cron("@daily".into())) });
    let mut no_audience = body("no-audience", "", hour);
    no_audience.schedule.as_mut().expect("a body").audience = None;
    let mut misfit = body("misfit", "all", hour);
    let subject = |content: &mut Content| content.subject = "Hello {{ nam }}".into();
    misfit.schedule.as_mut().and_then(|schedule| schedule.content.as_mut()).map(subject);
    for (request, words) in [
        (daily, "is not an instant"),
        (no_audience, "a campaign goes to an audience"),
        (misfit, "unknown variable 'nam'"),
        (body("never", "no such!", hour), "is not a name"),
        (body("past", "all", at(SignedDuration::from_hours(-1))), "is in the past"),
    ] {
        let refused = node.campaigns().create_campaign(request).await.expect_err("no campaign");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(format!("{refused:?}").contains(words), "{refused:?}");
    }
    assert_eq!(reason(&launched(&node, "missing", None).await.expect_err("unknown")).1, "CAMPAIGN_NOT_FOUND");

    // The columns of an audience that is not sealed yet are not checked.
    let mut later = body("later", "tomorrow", hour);
    later.schedule.as_mut().and_then(|schedule| schedule.content.as_mut()).map(subject);
    node.campaigns().create_campaign(later).await.expect("a draft");
    seal(&node, "tomorrow").await;
    let longest = "a".repeat(128);
    seal(&node, &longest).await;
    node.campaigns().create_campaign(body("longest", &longest, hour)).await.expect("an audience's name may be as long");
    let refused = launched(&node, "later", None).await.expect_err("it does not fit");
    for words in ["audience 'tomorrow'", "subject", "unknown variable 'nam'"] {
        assert!(refused.message().contains(words), "{refused}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shown_campaign_can_be_created_again_for_another_instant() {
    let node = node("").await;
    seal(&node, "all").await;
    let [first, second, third] = [1, 2, 3].map(|hours| at(SignedDuration::from_hours(hours)));
    let drafted = body("spring", "all", first);
    node.campaigns().create_campaign(drafted.clone()).await.expect("a draft");
    launched(&node, "spring", Some(second)).await.expect("launched");
    let request = GetCampaignRequest { name: "spring".into(), with_body: true, ..GetCampaignRequest::default() };
    let shown = node.campaigns().get_campaign(request).await.expect("known").into_inner().body.expect("a body");
    assert_eq!(shown.timing, Some(When { pattern: Some(when::Pattern::At(second)) }));
    let shown = CreateCampaignRequest { schedule: Some(shown), ..CreateCampaignRequest::default() };
    for validate_only in [true, false] {
        for request in [&shown, &drafted] {
            let request = CreateCampaignRequest { validate_only, ..request.clone() };
            let same = node.campaigns().create_campaign(request).await.expect("the same campaign").into_inner();
            assert_eq!((same.created, same.campaign.and_then(|known| known.send_time)), (false, Some(second)));
        }
        let other = CreateCampaignRequest { validate_only, ..body("spring", "all", third) };
        let refused = node.campaigns().create_campaign(other).await.expect_err("another instant");
        assert_eq!(reason(&refused).1, "NAME_TAKEN");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_selects_by_state_labels_and_instant() {
    let node = node("").await;
    seal(&node, "all").await;
    let hours = |hours| Some(at(SignedDuration::from_hours(hours)));
    for (name, team, ahead) in [("autumn", "news", 3), ("spring", "news", 1), ("summer", "shop", 2)] {
        let mut request = body(name, "all", hours(ahead).expect("an instant"));
        request.schedule.as_mut().expect("a body").labels = [("team".to_owned(), team.to_owned())].into();
        node.campaigns().create_campaign(request).await.expect("a draft");
    }
    launched(&node, "spring", None).await.expect("launched");
    let list = async |request: ListCampaignsRequest| {
        let (mut names, mut page_token) = (Vec::new(), String::new());
        loop {
            let page = ListCampaignsRequest { page_size: 1, page_token, ..request.clone() };
            let page = node.campaigns().list_campaigns(page).await.expect("a page").into_inner();
            names.extend(page.campaigns.into_iter().map(|one| one.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return names;
            }
        }
    };
    let all = ListCampaignsRequest::default;
    let draft = vec![CampaignState::Draft.into()];
    assert_eq!(list(all()).await, ["autumn", "spring", "summer"]);
    assert_eq!(list(ListCampaignsRequest { states: draft.clone(), ..all() }).await, ["autumn", "summer"]);
    assert_eq!(list(ListCampaignsRequest { selector: "team=news".into(), ..all() }).await, ["autumn", "spring"]);
    assert_eq!(list(ListCampaignsRequest { states: draft, selector: "team=news".into(), ..all() }).await, ["autumn"]);
    // The instants are about now: half an hour is far from each.
    let half = |hours| Some(at(SignedDuration::from_hours(hours) + SignedDuration::from_mins(30)));
    assert_eq!(list(ListCampaignsRequest { since_time: half(1), ..all() }).await, ["autumn", "summer"]);
    let between = ListCampaignsRequest { since_time: half(1), until_time: half(2), ..all() };
    assert_eq!(list(between).await, ["summer"]);
    for state in [99, CampaignState::Unspecified.into()] {
        let wrong = ListCampaignsRequest { states: vec![state], ..all() };
        let refused = node.campaigns().list_campaigns(wrong).await.expect_err("no such state");
        assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    }
    node.stop().await;
}

//! Refusals of campaign commands: the errors name the campaign and the reason.

use std::time::Instant;

use jiff::SignedDuration;
use reveille_ledger::command::{Command, Quarantine, Quarantined};
use reveille_ledger::reply::CommandOutcome;
use reveille_proto::admin::v1::{
    BackfillScheduleRequest, BlockCause, CampaignState, CancelCampaignRequest, CancelRunRequest, CreateScheduleRequest,
    DeleteAudienceRequest, DeleteCampaignRequest, DeleteScheduleRequest, GetAudienceRequest, GetPoolRequest,
    GetRelayRequest, GetScheduleRequest, GetTenantRequest, LaunchCampaignRequest, ListScheduleHistoryRequest,
    ListSchedulesRequest, PauseCampaignRequest, PauseScheduleRequest, RemoveRelayRequest, ResumeCampaignRequest,
    ResumeScheduleRequest, TriggerScheduleRequest, UpdateScheduleRequest, Warning, WarningReason,
};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::campaigns::{at, body, launched, seal, status};
use super::harness::{STEP_TIMEOUT, creation, node, yearly};

/// Returns code and reason of an error, and the object that it names.
fn found(status: &Status) -> (Code, String, String) {
    let info = status.get_details_error_info().expect("a reason");
    let object =
        ["campaign", "schedule"].into_iter().find_map(|kind| Some(format!("{kind} {}", info.metadata.get(kind)?)));
    (status.code(), info.reason, object.unwrap_or_default())
}

/// Returns what a refusal of this campaign says for a reason.
fn spring(reason: &str) -> (Code, String, String) {
    (Code::FailedPrecondition, reason.to_owned(), "campaign spring".to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_or_audience_of_campaign_leads_to_the_campaign() {
    let node = node("").await;
    seal(&node, "all").await;
    let hour = at(SignedDuration::from_hours(1));
    node.campaigns().create_campaign(body("spring", "all", hour)).await.expect("a draft");
    let taken = |object: &str| (Code::AlreadyExists, "NAME_TAKEN".to_owned(), object.to_owned());
    for validate_only in [true, false] {
        let mut other = body("spring", "all", at(SignedDuration::from_hours(2)));
        other.validate_only = validate_only;
        let refused = node.campaigns().create_campaign(other).await.expect_err("another body");
        assert_eq!(found(&refused), taken("campaign spring"), "{refused}");
        let schedule = CreateScheduleRequest { validate_only, ..creation(yearly("spring", &["ann@example.com"])) };
        let refused = node.schedules().create_schedule(schedule).await.expect_err("a campaign has that name");
        assert_eq!(found(&refused), taken("campaign spring"), "{refused}");
    }
    node.schedules().create_schedule(creation(yearly("daily", &["ann@example.com"]))).await.expect("created");
    for validate_only in [true, false] {
        let mut campaign = body("daily", "all", hour);
        campaign.validate_only = validate_only;
        let refused = node.campaigns().create_campaign(campaign).await.expect_err("a schedule has that name");
        assert_eq!(found(&refused), taken("schedule daily"));
    }

    launched(&node, "spring", None).await.expect("launched");
    let delete = DeleteAudienceRequest { name: "all".into(), ..DeleteAudienceRequest::default() };
    let refused = node.audiences().delete_audience(delete).await.expect_err("it is used");
    assert_eq!(found(&refused), spring("IN_USE"));
    assert!(refused.message().contains("campaign 'spring'"), "{refused}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_of_active_and_backfill_of_campaign_are_refused() {
    let node = node("").await;
    seal(&node, "all").await;
    node.campaigns().create_campaign(body("spring", "all", at(SignedDuration::from_hours(1)))).await.expect("a draft");
    let resume = || ResumeCampaignRequest { name: "spring".into(), ..ResumeCampaignRequest::default() };
    let pause = || PauseCampaignRequest { name: "spring".into(), ..PauseCampaignRequest::default() };

    let refused = node.campaigns().resume_campaign(resume()).await.expect_err("a draft");
    assert_eq!(found(&refused), spring("NOT_LAUNCHED"));
    assert_eq!(refused.message(), "campaign spring is a draft: there is nothing to resume");
    let refused = node.campaigns().pause_campaign(pause()).await.expect_err("a draft");
    assert_eq!(refused.message(), "campaign spring is a draft: there is nothing to pause");

    launched(&node, "spring", None).await.expect("launched");
    let refused = node.campaigns().resume_campaign(resume()).await.expect_err("it is not paused");
    assert_eq!(found(&refused), spring("NOTHING_TO_DO"));
    assert_eq!(refused.message(), "campaign spring is launched, not paused: there is nothing to resume");

    // A backfill of the campaign's schedule is refused, and so is its dry run.
    let past = |hours| Some(at(SignedDuration::from_hours(hours)));
    for validate_only in [true, false] {
        let (name, request_id) = ("spring".to_owned(), "once".to_owned());
        let backfill = BackfillScheduleRequest {
            name: name.clone(),
            start_time: past(-2),
            end_time: past(-1),
            validate_only,
            ..Default::default()
        };
        let refused = node.schedules().backfill_schedule(backfill).await.expect_err("a campaign");
        assert_eq!(found(&refused), spring("OF_CAMPAIGN"), "{refused}");
        let trigger = TriggerScheduleRequest { name, request_id, validate_only, ..Default::default() };
        let refused = node.schedules().trigger_schedule(trigger).await.expect_err("a campaign");
        assert_eq!(found(&refused), spring("OF_CAMPAIGN"), "{refused}");
        let update = UpdateScheduleRequest {
            schedule: Some(yearly("spring", &[])),
            update_mask: Some(prost_types::FieldMask { paths: vec!["priority".to_owned()] }),
            validate_only,
            ..UpdateScheduleRequest::default()
        };
        let refused = node.schedules().update_schedule(update).await.expect_err("a campaign");
        assert_eq!(found(&refused), spring("OF_CAMPAIGN"), "{refused}");
    }

    let delete = || DeleteCampaignRequest { name: "spring".into(), ..DeleteCampaignRequest::default() };
    let refused = node.campaigns().delete_campaign(delete()).await.expect_err("it is not over");
    assert_eq!(found(&refused), spring("CAMPAIGN_STATE"), "{refused}");
    let known = status(&node, "spring").await;
    let cancel = CancelCampaignRequest { name: "spring".into(), ..CancelCampaignRequest::default() };
    let cancelled = node.campaigns().cancel_campaign(cancel).await.expect("cancelled").into_inner().campaign;
    let cancelled = cancelled.expect("a campaign");
    assert_eq!((cancelled.state(), cancelled.launch_time), (CampaignState::Cancelled, known.launch_time));
    assert!(cancelled.launch_time.is_some() && cancelled.forecast.is_none(), "{cancelled:?}");
    let refused = launched(&node, "spring", None).await.expect_err("it is cancelled");
    assert_eq!(found(&refused), spring("CAMPAIGN_STATE"));
    node.campaigns().delete_campaign(delete()).await.expect("forgotten");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_campaign_says_so_and_continues_after_resume() {
    let node = node("").await;
    seal(&node, "all").await;
    node.campaigns().create_campaign(body("spring", "all", at(SignedDuration::from_hours(1)))).await.expect("a draft");
    launched(&node, "spring", None).await.expect("launched");
    let id = node.context().replica.read(|ledger| ledger.schedule_named("default", "spring").map(|(id, _)| id));
    let (item, cause) = (Quarantined::Schedule(id.expect("armed")), "its fire was refused twice".to_owned());
    let block = Command::Quarantine(Quarantine { item, cause });
    let reply = node.context().replica.propose(&block, Instant::now() + STEP_TIMEOUT).await.expect("an answer");
    assert_eq!(reply.outcome, CommandOutcome::Done);

    let blocked = status(&node, "spring").await;
    let block = blocked.block.clone().unwrap_or_default();
    assert_eq!((blocked.state(), block.cause()), (CampaignState::Blocked, BlockCause::Quarantined));
    assert_eq!((block.text.as_str(), &block.refusal), ("its fire was refused twice", &None));
    let later = Some(at(SignedDuration::from_hours(2)));
    let refused = launched(&node, "spring", later).await.expect_err("no launch unblocks it");
    assert_eq!(found(&refused), spring("CAMPAIGN_BLOCKED"), "{refused}");
    assert_eq!(refused.message(), "campaign spring is blocked: its fire was refused twice");
    let again = LaunchCampaignRequest { name: "spring".into(), ..LaunchCampaignRequest::default() };
    let again = node.campaigns().launch_campaign(again).await.expect("the same launch").into_inner();
    let blocked = |warning: &Warning| warning.reason() == WarningReason::CampaignBlocked;
    let warned = again.warnings.iter().find(|warning| blocked(warning)).and_then(|warning| warning.block.clone());
    assert_eq!(warned, Some(block), "{again:?}");

    let resume = ResumeCampaignRequest { name: "spring".into(), ..ResumeCampaignRequest::default() };
    let resumed = node.campaigns().resume_campaign(resume).await.expect("resumed").into_inner().campaign;
    assert_eq!(resumed.expect("a campaign").state(), CampaignState::Launched);
    node.stop().await;
}

/// Returns what a failed call found, with the message.
fn end<T>(answer: Result<T, Status>) -> Option<((Code, String, String), String)> {
    answer.err().map(|status| (found(&status), status.message().to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_ends_as_the_command_does() {
    let node = node("").await;
    seal(&node, "all").await;
    node.campaigns().create_campaign(body("spring", "all", at(SignedDuration::from_hours(1)))).await.expect("a draft");
    launched(&node, "spring", None).await.expect("launched");
    let run = node.triggered("daily", &["ada@example.net"], "").await.run;
    node.until(&run, |run| run.finished_index.is_some()).await;

    let named = || "spring".to_owned();
    let mut ends = Vec::new();
    for validate_only in [true, false] {
        let delete = DeleteScheduleRequest { name: named(), validate_only, ..Default::default() };
        let cancel = CancelRunRequest { run: run.clone(), validate_only, ..Default::default() };
        let forget = DeleteCampaignRequest { name: named(), validate_only, ..Default::default() };
        let audience = DeleteAudienceRequest { name: "all".into(), validate_only, ..Default::default() };
        let none = CancelCampaignRequest { name: "none".into(), validate_only, ..Default::default() };
        ends.push([
            end(node.schedules().delete_schedule(delete).await),
            end(node.runs().cancel_run(cancel).await),
            end(node.campaigns().delete_campaign(forget).await),
            end(node.audiences().delete_audience(audience).await),
            end(node.campaigns().cancel_campaign(none).await),
        ]);
    }
    let [dry, real] = ends.try_into().expect("two rounds");
    assert!(real.iter().all(Option::is_some), "each is refused: {real:?}");
    assert_eq!(dry, real);

    // A dry run changes nothing.
    let dry = CancelCampaignRequest { name: named(), validate_only: true, ..Default::default() };
    node.campaigns().cancel_campaign(dry).await.expect("it can be cancelled");
    assert_eq!(status(&node, "spring").await.state(), CampaignState::Launched);
    let cancel = CancelCampaignRequest { name: named(), ..Default::default() };
    node.campaigns().cancel_campaign(cancel).await.expect("cancelled");
    let dry = DeleteCampaignRequest { name: named(), validate_only: true, ..Default::default() };
    assert_eq!(node.campaigns().delete_campaign(dry).await.expect("it can be deleted").into_inner().index, 0);
    status(&node, "spring").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn campaign_is_no_schedule_for_list_pause_and_resume() {
    let node = node("").await;
    seal(&node, "all").await;
    node.campaigns().create_campaign(body("spring", "all", at(SignedDuration::from_hours(1)))).await.expect("a draft");
    launched(&node, "spring", None).await.expect("launched");
    node.schedules().create_schedule(creation(yearly("daily", &["ann@example.com"]))).await.expect("created");
    for (with_campaigns, expected) in [(false, vec!["daily"]), (true, vec!["spring", "daily"])] {
        let request = ListSchedulesRequest { with_campaigns, ..Default::default() };
        let listed = node.schedules().list_schedules(request).await.expect("a list").into_inner().schedules;
        let names: Vec<&str> = listed.iter().map(|schedule| schedule.name.as_str()).collect();
        assert_eq!(names, expected);
        assert!(listed.iter().all(|schedule| schedule.of_campaign == (schedule.name == "spring")), "{listed:?}");
    }
    for validate_only in [true, false] {
        let pause = PauseScheduleRequest { name: "spring".into(), validate_only, ..Default::default() };
        let refused = node.schedules().pause_schedule(pause).await.expect_err("a campaign");
        assert_eq!(found(&refused), spring("OF_CAMPAIGN"), "{refused}");
        let resume = ResumeScheduleRequest { name: "spring".into(), validate_only, ..Default::default() };
        let refused = node.schedules().resume_schedule(resume).await.expect_err("a campaign");
        assert_eq!(found(&refused), spring("OF_CAMPAIGN"), "{refused}");
    }
    assert_eq!(status(&node, "spring").await.state(), CampaignState::Launched);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_that_is_nearly_right_is_offered_for_every_noun() {
    let node = node("").await;
    seal(&node, "readers").await;
    let hour = at(SignedDuration::from_hours(1));
    node.campaigns().create_campaign(body("spring", "readers", hour)).await.expect("a draft");
    let draft = GetScheduleRequest { name: "spring".into(), ..Default::default() };
    let refused = node.schedules().get_schedule(draft).await.expect_err("a draft is not a schedule");
    let expected = (Code::NotFound, "SCHEDULE_NOT_FOUND".to_owned(), "campaign spring".to_owned());
    assert_eq!(found(&refused), expected, "{refused}");
    node.schedules().create_schedule(creation(yearly("daily", &["ann@example.com"]))).await.expect("created");
    let update = UpdateScheduleRequest {
        schedule: Some(yearly("dail", &[])),
        update_mask: Some(prost_types::FieldMask { paths: vec!["priority".to_owned()] }),
        ..UpdateScheduleRequest::default()
    };
    let history = ListScheduleHistoryRequest { name: "dail".into(), ..Default::default() };
    let cancel = CancelCampaignRequest { name: "sprin".into(), ..Default::default() };
    let forget = DeleteCampaignRequest { name: "sprin".into(), ..Default::default() };
    let audience = GetAudienceRequest { name: "reader".into(), ..Default::default() };
    let delete = DeleteAudienceRequest { name: "reader".into(), ..Default::default() };
    let relay = GetRelayRequest { name: "mailbo".into(), ..Default::default() };
    let remove = RemoveRelayRequest { name: "mailbo".into(), ..Default::default() };
    let pool = GetPoolRequest { name: "defaul".into(), ..Default::default() };
    let tenant = GetTenantRequest { name: "defaul".into(), ..Default::default() };
    for (refused, near) in [
        (node.schedules().update_schedule(update).await.err(), "daily"),
        (node.schedules().list_schedule_history(history).await.err(), "daily"),
        (node.campaigns().cancel_campaign(cancel).await.err(), "spring"),
        (node.campaigns().delete_campaign(forget).await.err(), "spring"),
        (node.audiences().get_audience(audience).await.err(), "readers"),
        (node.audiences().delete_audience(delete).await.err(), "readers"),
        (node.relays().get_relay(relay).await.err(), "mailbox"),
        (node.relays().remove_relay(remove).await.err(), "mailbox"),
        (node.pools().get_pool(pool).await.err(), "default"),
        (node.tenants().get_tenant(tenant).await.err(), "default"),
    ] {
        let refused = refused.expect("no such name");
        assert_eq!(refused.code(), Code::NotFound, "{refused}");
        assert!(refused.message().ends_with(&format!("; did you mean {near}?")), "{refused}");
    }
    node.stop().await;
}

//! Etags over the API: a change that names an old one is refused, whatever kind of object it changes.

use std::fmt::Debug;

use jiff::SignedDuration;
use reveille_proto::admin::v1::{
    AddOptOutRequest, AddRelayRequest, Campaign, CampaignState, CancelCampaignRequest, CheckOptOutRequest,
    DeleteCampaignRequest, LaunchCampaignRequest, PauseCampaignRequest, PauseRunRequest, Pool, Relay,
    RemovePoolRequest, RemoveRelayRequest, RemoveTenantRequest, ResumeCampaignRequest, ResumeRunRequest, Run, RunState,
    SetPoolRequest, SetTenantRequest, TakeBackOptOutRequest, Tenant,
};
use tonic::{Code, Response, Status};

use super::campaigns::{at, becomes, body, seal, status};
use super::harness::{node, reason};

/// A pool without a relay, so that its runs stay open.
const NO_RELAY: &str = "no-relay-here";

/// Checks that the call is refused because of its etag.
fn assert_stale<T: Debug>(answer: Result<Response<T>, Status>) {
    let refused = answer.expect_err("the etag is not the present one");
    assert_eq!(reason(&refused), (Code::Aborted, "ETAG_MISMATCH".to_owned()), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_is_replaced_and_removed_only_as_it_was_read() {
    let node = node("").await;
    let name = || "bulk".to_owned();
    let add = async |weight: u32, etag: &str| {
        let relay = Some(Relay { name: name(), weight, ..node.relay() });
        let etag = etag.to_owned();
        node.relays().add_relay(AddRelayRequest { relay, replace: true, etag, ..Default::default() }).await
    };
    let added = async |weight: u32, etag: &str| -> Relay {
        add(weight, etag).await.expect("added").into_inner().relay.expect("a relay")
    };
    assert_stale(add(1, "*").await);
    let first = added(1, "0").await;
    assert_stale(add(2, "0").await);
    let second = added(2, &first.etag).await;
    assert_ne!(second.etag, first.etag);
    assert_stale(add(3, &first.etag).await);
    assert_eq!(added(2, &first.etag).await, second, "a repeat is answered, although its etag is old by now");
    assert_eq!(added(1, "*").await.etag, first.etag, "equal settings have the same etag");
    let dry = AddRelayRequest {
        relay: Some(Relay { weight: 9, ..second.clone() }),
        replace: true,
        validate_only: true,
        etag: second.etag.clone(),
        ..Default::default()
    };
    assert_stale(node.relays().add_relay(dry).await);
    let remove =
        async |etag: &str| node.relays().remove_relay(RemoveRelayRequest { name: name(), etag: etag.to_owned() }).await;
    assert_stale(remove(&second.etag).await);
    remove(&first.etag).await.expect("removed");
    let long = remove(&"x".repeat(200)).await.expect_err("no etag is so long");
    assert_eq!(reason(&long), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_of_tenants_and_pools_are_set_only_as_they_were_read() {
    let node = node("").await;
    let set_tenant = async |share: u32, etag: &str| {
        let (name, etag) = ("acme".to_owned(), etag.to_owned());
        node.tenants().set_tenant(SetTenantRequest { name, share: Some(share), etag, ..Default::default() }).await
    };
    let tenant = async |share: u32, etag: &str| -> Tenant {
        set_tenant(share, etag).await.expect("set").into_inner().tenant.expect("a tenant")
    };
    assert_stale(set_tenant(2, "*").await);
    let first = tenant(2, "0").await;
    let second = tenant(3, &first.etag).await;
    assert_stale(set_tenant(4, &first.etag).await);
    assert_eq!(tenant(3, &first.etag).await, second, "a repeat changes nothing");
    let remove = async |etag: &str| {
        let (name, etag) = ("acme".to_owned(), etag.to_owned());
        node.tenants().remove_tenant(RemoveTenantRequest { name, etag }).await
    };
    assert_stale(remove(&first.etag).await);
    remove(&second.etag).await.expect("removed");
    remove(&second.etag).await.expect("a repeat finds nothing");

    let set_pool = async |cap: u32, etag: &str| {
        let (name, etag) = ("bulk".to_owned(), etag.to_owned());
        node.pools().set_pool(SetPoolRequest { name, warm_up: vec![cap], etag, ..Default::default() }).await
    };
    let pool = async |cap: u32, etag: &str| -> Pool {
        set_pool(cap, etag).await.expect("set").into_inner().pool.expect("a pool")
    };
    assert_stale(set_pool(2, "*").await);
    let first = pool(2, "0").await;
    let second = pool(3, &first.etag).await;
    assert_stale(set_pool(4, &first.etag).await);
    assert_eq!(pool(3, &first.etag).await, second, "a repeat changes nothing");
    let remove = async |etag: &str| {
        let (name, etag) = ("bulk".to_owned(), etag.to_owned());
        node.pools().remove_pool(RemovePoolRequest { name, etag }).await
    };
    assert_stale(remove(&first.etag).await);
    remove(&second.etag).await.expect("removed");
    remove(&second.etag).await.expect("a repeat finds nothing");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn campaign_changes_only_as_it_was_read() {
    let node = node("").await;
    seal(&node, "all").await;
    // Its relay is removed before the run opens, so that the run stays open.
    let relay = Some(Relay { name: "away".into(), pool: "away".into(), ..node.relay() });
    node.relays().add_relay(AddRelayRequest { relay, ..Default::default() }).await.expect("added");
    let mut request = body("spring", "all", at(SignedDuration::from_secs(10)));
    request.schedule.as_mut().expect("a body").pool = "away".into();
    node.campaigns().create_campaign(request).await.expect("a draft");
    let name = || "spring".to_owned();
    let draft = status(&node, "spring").await;
    let launch = async |etag: &str, validate_only| {
        let request = LaunchCampaignRequest { name: name(), etag: etag.into(), validate_only, ..Default::default() };
        node.campaigns().launch_campaign(request).await
    };
    for is_dry in [true, false] {
        assert_stale(launch("1.0.0", is_dry).await);
    }
    launch(&draft.etag, false).await.expect("launched");
    launch(&draft.etag, false).await.expect("a repeat is answered");
    node.relays()
        .remove_relay(RemoveRelayRequest { name: "away".into(), ..Default::default() })
        .await
        .expect("removed");

    let pause = async |reason: &str| -> Campaign {
        let request = PauseCampaignRequest { name: name(), reason: reason.into(), ..Default::default() };
        node.campaigns().pause_campaign(request).await.expect("paused").into_inner().campaign.expect("a campaign")
    };
    let resume = async |etag: &str| {
        let request = ResumeCampaignRequest { name: name(), etag: etag.into(), ..Default::default() };
        node.campaigns().resume_campaign(request).await
    };
    let cancel = async |etag: &str| {
        let request = CancelCampaignRequest { name: name(), etag: etag.into(), ..Default::default() };
        node.campaigns().cancel_campaign(request).await
    };
    // Before its instant the schedule is paused, afterwards the run.
    for state in [CampaignState::Launched, CampaignState::Open] {
        let former = becomes(&node, "spring", state).await;
        let (looked, wrong) = (pause("look").await, pause("it is wrong").await);
        assert!(former.etag != looked.etag && looked.etag != wrong.etag, "{looked:?}, {wrong:?}");
        assert_stale(resume(&looked.etag).await);
        assert_eq!(status(&node, "spring").await.state(), CampaignState::Paused);
        resume(&wrong.etag).await.expect("resumed");
        assert_stale(cancel(&wrong.etag).await);
    }
    let open = status(&node, "spring").await;
    cancel(&open.etag).await.expect("cancelled");
    cancel(&open.etag).await.expect("a repeat is answered");
    let delete = async |etag: &str| {
        let request = DeleteCampaignRequest { name: name(), etag: etag.into(), ..Default::default() };
        node.campaigns().delete_campaign(request).await
    };
    assert_stale(delete(&open.etag).await);
    delete(&status(&node, "spring").await.etag).await.expect("deleted");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_resumed_only_as_it_was_read() {
    let node = node("").await;
    let opened = node.triggered("stuck", &["ada@example.net"], NO_RELAY).await;
    let pause = async |reason: &str| -> Run {
        let request = PauseRunRequest { run: opened.run.clone(), reason: reason.into(), ..Default::default() };
        node.runs().pause_run(request).await.expect("paused").into_inner().run.expect("a run")
    };
    let resume = async |etag: &str| {
        let request = ResumeRunRequest { run: opened.run.clone(), etag: etag.into(), ..Default::default() };
        node.runs().resume_run(request).await
    };
    let (looked, wrong) = (pause("look").await, pause("it is wrong").await);
    assert!(opened.etag != looked.etag && looked.etag != wrong.etag, "{looked:?}, {wrong:?}");
    for etag in ["1", "0", &opened.etag, &looked.etag] {
        assert_stale(resume(etag).await);
    }
    let resumed = resume(&wrong.etag).await.expect("resumed").into_inner().run.expect("a run");
    assert_eq!(resumed.state(), RunState::Open);
    assert_stale(resume(&wrong.etag).await);
    pause("again").await;
    resume("*").await.expect("whatever it is");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opt_out_is_taken_back_only_as_it_was_read() {
    let node = node("").await;
    let recipient = || "ada@example.net".to_owned();
    let add = async || {
        let request = AddOptOutRequest { recipient: recipient(), ..Default::default() };
        node.opt_outs().add_opt_out(request).await.expect("added");
    };
    let etag = async || {
        let request = CheckOptOutRequest { recipient: recipient(), ..Default::default() };
        node.opt_outs().check_opt_out(request).await.expect("checked").into_inner().etag
    };
    let take_back = async |etag: &str, validate_only: bool| {
        let (recipient, reason, etag) = (recipient(), "her letter".to_owned(), etag.to_owned());
        let request = TakeBackOptOutRequest { recipient, reason, etag, validate_only, ..Default::default() };
        node.opt_outs().take_back_opt_out(request).await
    };
    assert_eq!(etag().await, "");
    add().await;
    let first = etag().await;
    add().await;
    let second = etag().await;
    assert_ne!(first, second, "she has opted out again");
    for is_dry in [true, false] {
        assert_stale(take_back(&first, is_dry).await);
    }
    assert_eq!(take_back("", true).await.expect("validated").into_inner().etag, second);
    let taken = take_back(&second, false).await.expect("taken back").into_inner().taken_back;
    assert!(taken.is_some());
    assert_eq!(take_back(&second, false).await.expect("a repeat is answered").into_inner().taken_back, taken);
    add().await;
    assert_stale(take_back(&second, false).await);
    take_back("*", false).await.expect("whatever it is");
    node.stop().await;
}

//! Canaries (P6): some recipients are sent to first, and their outcomes let the run continue or pause it.

use jiff::SignedDuration;
use reveille_proto::admin::v1::{
    AddRelayRequest, Campaign, CampaignState, Canary, CanaryVerdict, ExplainRequest, PauseCause, Relay,
    RemoveRelayRequest, ResumeCampaignRequest, RunCanary,
};
use tonic::Code;

use super::campaigns::{RECIPIENTS, at, becomes, body, launched, seal};
use super::harness::{Node, node, reason};
use crate::cli::wording::explained;

/// Of 300 recipients 30 are the canary, and at most 3 of them may fail.
const TENTH: Canary = Canary { percent: 10.0, hold_percent: Some(10.0) };

/// Launches a campaign for an instant `ahead` of now.
async fn launched_for(node: &Node, pool: &str, ahead: SignedDuration) -> Campaign {
    seal(node, "all").await;
    let mut request = body("spring", "all", at(SignedDuration::from_hours(1)));
    request.canary = Some(TENTH);
    request.schedule.as_mut().expect("a body").pool = pool.to_owned();
    let draft = node.campaigns().create_campaign(request.clone()).await.expect("a draft").into_inner();
    assert_eq!(draft.campaign.and_then(|campaign| campaign.canary), Some(TENTH));
    assert!(!node.campaigns().create_campaign(request).await.expect("the same").into_inner().created);
    launched(node, "spring", Some(at(ahead))).await.expect("launched")
}

/// Launches a campaign for now.
async fn launched_now(node: &Node) -> Campaign {
    launched_for(node, "", SignedDuration::ZERO).await
}

/// Returns true if the recipient belongs to the canary, according to its history.
async fn is_of_canary(node: &Node, campaign: &Campaign, recipient: &str) -> bool {
    let run = campaign.run.as_ref().expect("a run").run.clone();
    let request = ExplainRequest { run, recipient: recipient.to_owned(), ..ExplainRequest::default() };
    let explanation = node.runs().explain(request).await.expect("a story").into_inner();
    explanation.events[0].opening.as_ref().is_some_and(|opening| opening.of_canary)
}

/// Returns for each of the first thirty emails, in order of arrival, whether its recipient belongs to the canary.
async fn arrived(node: &Node, campaign: &Campaign) -> Vec<bool> {
    let mut first = Vec::new();
    for (_, mail) in node.sink.emails().iter().take(30) {
        first.push(is_of_canary(node, campaign, &mail.recipient).await);
    }
    first
}

fn canary(campaign: &Campaign) -> RunCanary {
    campaign.run.as_ref().and_then(|run| run.canary).expect("a canary")
}

/// Returns the last event of a recipient.
async fn last_word(node: &Node, campaign: &Campaign, recipient: &str) -> String {
    let run = campaign.run.as_ref().expect("a run").run.clone();
    let request = ExplainRequest { run, recipient: recipient.to_owned(), ..ExplainRequest::default() };
    let explanation = node.runs().explain(request).await.expect("a story").into_inner();
    let last = explanation.events.last().expect("an event");
    format!("{:?}: {}", last.kind(), explained(last))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_canary_continues_by_itself() {
    let node = node("rcpt:550=5.1.1 no such user#2").await;
    launched_now(&node).await;
    let done = becomes(&node, "spring", CampaignState::Finished).await;
    let counts = done.run.as_ref().and_then(|run| run.counts).expect("counts");
    assert_eq!((counts.sent, counts.dead), (RECIPIENTS - 2, 2), "{done:?}");
    let RunCanary { recipients, undecided, bad, bad_max, .. } = canary(&done);
    assert_eq!((recipients, bad_max, canary(&done).verdict()), (30, 3, CanaryVerdict::Passed), "{done:?}");
    assert!(bad + undecided <= bad_max);
    // When the verdict is certain, the last three of the canary may still be on their way. So the first 27 are checked.
    assert!(arrived(&node, &done).await[..27].iter().all(|first| *first), "no other recipient is sent before");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_canary_is_held_until_resumed() {
    let node = node("rcpt:550=5.1.1 no such user#4").await;
    launched_now(&node).await;
    let held = becomes(&node, "spring", CampaignState::Paused).await;
    let pause = held.run.as_ref().and_then(|run| run.pause.clone()).expect("a pause");
    let state = pause.canary.expect("a canary");
    assert_eq!((pause.cause(), state.recipients, state.bad, state.bad_max), (PauseCause::Canary, 30, 4, 3), "{held:?}");
    assert_eq!((canary(&held).bad, canary(&held).verdict()), (4, CanaryVerdict::Held));
    let waits = last_word(&node, &held, "#0").await;
    assert!(waits.starts_with("Waits: the run is paused: canary: of 30 recipients 4 are dead"), "{waits}");
    assert!(arrived(&node, &held).await.iter().all(|first| *first), "no other recipient is sent");

    let resume = ResumeCampaignRequest { name: "spring".into(), ..ResumeCampaignRequest::default() };
    let refused =
        node.campaigns().resume_campaign(resume.clone()).await.expect_err("it does not say that it has seen that");
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "CANARY_HELD".to_owned()));
    let resume = ResumeCampaignRequest { without_canary: true, ..resume };
    node.campaigns().resume_campaign(resume).await.expect("it goes on");
    let done = becomes(&node, "spring", CampaignState::Finished).await;
    let counts = done.run.as_ref().and_then(|run| run.counts).expect("counts");
    assert_eq!((counts.sent, counts.dead), (RECIPIENTS - 4, 4), "{done:?}");
    assert_eq!(canary(&done).verdict(), CanaryVerdict::Overruled);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_recipient_explains_canary() {
    let node = node("").await;
    // The relay is removed before the run opens, because a campaign without a relay cannot be launched.
    let relay = Some(Relay { name: "away".into(), pool: "no-relay-here".into(), ..node.relay() });
    node.relays().add_relay(AddRelayRequest { relay, ..AddRelayRequest::default() }).await.expect("added");
    launched_for(&node, "no-relay-here", SignedDuration::from_secs(10)).await;
    node.relays()
        .remove_relay(RemoveRelayRequest { name: "away".into(), ..Default::default() })
        .await
        .expect("removed");
    let open = becomes(&node, "spring", CampaignState::Open).await;
    let waits = "Waits: for the canary: of 30 recipients 30 are undecided, 0 dead or in doubt and 3 may be";
    let mut in_canary = 0;
    for number in 0..10 {
        let recipient = format!("#{number}");
        let last = last_word(&node, &open, &recipient).await;
        match is_of_canary(&node, &open, &recipient).await {
            true => assert!(last.contains("for a relay: pool 'no-relay-here' has none"), "{last}"),
            false => assert_eq!(last, waits),
        }
        in_canary += u32::from(is_of_canary(&node, &open, &recipient).await);
    }
    assert_eq!(in_canary, 1, "a tenth of each stride of ten");
    assert_eq!(canary(&open).verdict(), CanaryVerdict::Undecided);

    let mut request = body("summer", "all", at(SignedDuration::from_hours(1)));
    request.canary = Some(Canary { percent: 60.0, hold_percent: Some(-1.0) });
    let refused = node.campaigns().create_campaign(request).await.expect_err("more than half is not a canary");
    assert_eq!(refused.code(), Code::InvalidArgument);
    for field in ["canary.percent", "canary.hold_percent"] {
        assert!(format!("{refused:?}").contains(field), "{refused:?}");
    }
    node.stop().await;
}

//! Decisions of operators: pause and cancel runs, resolve doubts, requeue dead letters, add and take back opt-outs.

use reveille_proto::admin::v1::{
    AddOptOutRequest, CancelRunRequest, CheckOptOutRequest, DiscardDeadLettersRequest, DoubtCause, DoubtGroup,
    ExplainRequest, ExplainResponse, ExplainedEvent, ExplainedEventKind as Kind, GetDoubtRequest,
    ListDeadLettersRequest, ListDoubtsRequest, PauseCause, PauseRunRequest, RecipientState, RequeueDeadLettersRequest,
    Resolution, ResolveDoubtsRequest, ResumeRunRequest, RunState, TakeBackOptOutRequest, WatchRunRequest,
};
use tonic::Code;

use super::harness::{node, reason};
use crate::cli::wording::explained;

/// Returns the kinds of the events in a recipient's history.
fn kinds(history: &ExplainResponse) -> Vec<Kind> {
    history.events.iter().map(ExplainedEvent::kind).collect()
}

const NO_RELAY: &str = "no-relay-here";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_paused_resumed_and_cancelled_behind_barriers() {
    let node = node("").await;
    let run = node.triggered("stuck", &["ada@example.net", "bob@example.net"], NO_RELAY).await.run;
    let tenant = String::new;
    let pause = PauseRunRequest { tenant: tenant(), run: run.clone(), reason: "wrong text".to_owned() };
    let paused = node.runs().pause_run(pause).await.expect("paused").into_inner();
    let (state, barrier) = (paused.run.expect("a run"), paused.barrier.expect("a barrier"));
    let pause = state.pause.clone().unwrap_or_default();
    assert_eq!((state.state(), pause.cause(), &*pause.text), (RunState::Paused, PauseCause::Operator, "wrong text"));
    assert!(barrier.index > state.opened_index && barrier.crossed.is_empty() && barrier.unconfirmed.is_empty());
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.pending == 2)).await;
    let explain = ExplainRequest { run: run.clone(), recipient: "#0".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(explain.clone()).await.expect("a story").into_inner();
    let waits = history.events.last().map(|event| (event.kind(), explained(event)));
    assert_eq!(waits, Some((Kind::Waits, "the run is paused: wrong text".to_owned())));

    let resume = ResumeRunRequest { tenant: tenant(), run: run.clone(), ..ResumeRunRequest::default() };
    let resumed = node.runs().resume_run(resume.clone()).await.expect("resumed").into_inner();
    assert_eq!(resumed.run.map(|run| run.state()), Some(RunState::Open));
    let history = node.runs().explain(explain.clone()).await.expect("a story").into_inner();
    assert_eq!(history.events.get(2).map(|event| event.index), Some(resumed.index), "of the entry that the story has");
    assert_eq!(kinds(&history), [Kind::Opened, Kind::RunPaused, Kind::RunResumed, Kind::Waits]);
    let waits = history.events.last().map(explained).unwrap_or_default();
    assert!(waits.contains("pool 'no-relay-here' has none"), "{waits}");
    let twice = node.runs().resume_run(resume).await.expect_err("not paused");
    assert_eq!(reason(&twice), (Code::FailedPrecondition, "RUN_STATE".to_owned()));

    let cancel = CancelRunRequest { tenant: tenant(), run: run.clone(), validate_only: false };
    let cancelled = node.runs().cancel_run(cancel).await.expect("cancelled").into_inner();
    assert_eq!(cancelled.run.map(|run| run.state()), Some(RunState::Cancelled));
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.cancelled == 2)).await;
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    assert_eq!(history.state(), RecipientState::Cancelled);
    assert_eq!(kinds(&history), [Kind::Opened, Kind::RunPaused, Kind::RunResumed, Kind::Cancelled]);
    assert!(history.events.iter().all(|event| event.time.is_some()), "{history:?}");
    assert_eq!(node.sink.accepted_count(), 0);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_of_stopping_node_ends_with_an_error() {
    let node = node("").await;
    let run = node.triggered("stuck", &["ada@example.net"], NO_RELAY).await.run;
    let watch = WatchRunRequest { run, ..WatchRunRequest::default() };
    let mut watched = node.runs().watch_run(watch).await.expect("a stream").into_inner();
    let first = watched.message().await.expect("a state").and_then(|state| state.run).expect("a run");
    assert_eq!(first.state(), RunState::Open);
    node.close();
    let mut end = watched.message().await;
    while let Ok(Some(_)) = end {
        end = watched.message().await;
    }
    assert_eq!(reason(&end.expect_err("stopping")), (Code::Unavailable, "STOPPING".to_owned()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answered_opt_out_holds_and_repeat_names_the_first() {
    let node = node("").await;
    let add = AddOptOutRequest { recipient: "Ada@Example.net".to_owned(), ..AddOptOutRequest::default() };
    let first = node.opt_outs().add_opt_out(add.clone()).await.expect("added").into_inner();
    assert_eq!(first.recipient, "ada@example.net");
    let index = first.barrier.expect("a barrier").index;
    let again = node.opt_outs().add_opt_out(add).await.expect("again").into_inner().barrier.expect("a barrier");
    assert_eq!(again.index, index);
    let check =
        |recipient: &str| CheckOptOutRequest { recipient: recipient.to_owned(), ..CheckOptOutRequest::default() };
    let known = node.opt_outs().check_opt_out(check("ada@example.net")).await.expect("checked").into_inner();
    assert_eq!((known.opted_out, known.index), (true, Some(index)));
    let free = node.opt_outs().check_opt_out(check("bob@example.net")).await.expect("checked").into_inner();
    assert_eq!((free.opted_out, free.index), (false, None));
    assert_eq!(
        node.opt_outs().check_opt_out(check("ada")).await.expect_err("no address").code(),
        Code::InvalidArgument
    );

    let run = node.triggered("report", &["ada@example.net", "bob@example.net"], "").await.run;
    let run = node.until(&run, |run| run.finished_index.is_some()).await;
    let counts = run.counts.expect("counts");
    assert_eq!((counts.suppressed, counts.sent), (1, 1), "{run:?}");
    let explain = ExplainRequest { run: run.run, recipient: "ada@example.net".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    assert_eq!(history.state(), RecipientState::Suppressed);
    assert_eq!(history.events.first().map(|event| (event.kind(), event.index)), Some((Kind::OptedOut, index)));
    assert_eq!(node.sink.accepted_count(), 1);

    // Taking back an opt-out needs a reason. The next email to the recipient is sent.
    let back = |recipient: &str, reason: &str| TakeBackOptOutRequest {
        recipient: recipient.to_owned(),
        reason: reason.to_owned(),
        ..TakeBackOptOutRequest::default()
    };
    let groundless = node.opt_outs().take_back_opt_out(back("ada@example.net", " ")).await.expect_err("no reason");
    assert_eq!(groundless.code(), Code::InvalidArgument);
    let never = node.opt_outs().take_back_opt_out(back("bob@example.net", "why not")).await.expect_err("not out");
    assert_eq!(reason(&never), (Code::NotFound, "RECIPIENT_NOT_FOUND".to_owned()));
    let dry_run = TakeBackOptOutRequest { validate_only: true, ..back("ada@example.net", "her letter") };
    let checked = node.opt_outs().take_back_opt_out(dry_run).await.expect("validated").into_inner();
    assert_eq!((checked.recipient.as_str(), checked.taken_back), ("ada@example.net", None));
    let requested = node.opt_outs().take_back_opt_out(back("Ada@example.net", "her letter")).await;
    let taken = requested.expect("taken back").into_inner().taken_back.expect("an entry");
    assert_eq!((taken.reason.as_str(), taken.index > index), ("her letter", true));
    let again = node.opt_outs().take_back_opt_out(back("ada@example.net", "again")).await.expect("it is done");
    assert_eq!(again.into_inner().taken_back, Some(taken.clone()), "what was done first stands");
    let known = node.opt_outs().check_opt_out(check("ada@example.net")).await.expect("checked").into_inner();
    assert_eq!((known.opted_out, known.taken_back), (false, Some(taken)));
    let run = node.triggered("news", &["ada@example.net"], "").await.run;
    let run = node.until(&run, |run| run.finished_index.is_some()).await;
    assert_eq!(run.counts.map(|counts| counts.sent), Some(1), "{run:?}");
    assert_eq!(node.sink.accepted_count(), 2);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_sent_again_and_discarded() {
    let node = node("rcpt:550=5.1.1 no such user").await;
    let run = node.triggered("report", &["ada@example.net", "bob@example.net"], "").await.run;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.dead == 2)).await;
    let list = ListDeadLettersRequest { run: "-".to_owned(), page_size: 1, ..ListDeadLettersRequest::default() };
    let page = node.dead_letters().list_dead_letters(list.clone()).await.expect("a page").into_inner();
    let [letter] = page.dead_letters.as_slice() else { panic!("{page:?}") };
    assert_eq!((letter.recipient.as_str(), letter.code, letter.enhanced.as_str()), ("ada@example.net", 550, "5.1.1"));
    let list = ListDeadLettersRequest { page_token: page.next_page_token, ..list };
    let page = node.dead_letters().list_dead_letters(list).await.expect("a page").into_inner();
    let rest: Vec<&str> = page.dead_letters.iter().map(|letter| letter.recipient.as_str()).collect();
    assert_eq!(rest, ["bob@example.net"]);
    let explain = ExplainRequest { run: run.clone(), recipient: "#0".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    assert_eq!(
        (kinds(&history), history.state()),
        (vec![Kind::Opened, Kind::Claimed, Kind::Refused, Kind::Dead], RecipientState::Dead)
    );
    let refused = "550 5.1.1 no such user; about this mailbox: final";
    assert_eq!(explained(&history.events[2]), refused);
    let detail = history.events.last().map(explained).unwrap_or_default();
    assert!(detail.contains("550 5.1.1") && detail.ends_with("(1 of 5 attempts)"), "{detail}");

    let discard = DiscardDeadLettersRequest {
        run: run.clone(),
        recipients: vec!["#1".to_owned()],
        ..DiscardDeadLettersRequest::default()
    };
    assert_eq!(node.dead_letters().discard_dead_letters(discard).await.expect("discarded").into_inner().discarded, 1);
    node.sink.set_faults("".parse().expect("a plan"));
    let requeue = RequeueDeadLettersRequest { run: run.clone(), all: true, ..RequeueDeadLettersRequest::default() };
    assert_eq!(node.dead_letters().requeue_dead_letters(requeue).await.expect("requeued").into_inner().requeued, 1);
    let run = node.until(&run, |run| run.counts.is_some_and(|counts| counts.sent == 1)).await;
    let of = |recipient: &str| ExplainRequest {
        run: run.run.clone(),
        recipient: recipient.to_owned(),
        ..ExplainRequest::default()
    };
    let history = node.runs().explain(of("#0")).await.expect("a story").into_inner();
    use Kind::{Claimed, Dead, Opened, Refused, Requeued, Sent};
    assert_eq!(kinds(&history), [Opened, Claimed, Refused, Dead, Requeued, Claimed, Sent]);
    assert_eq!(explained(&history.events[2]), refused, "the history keeps it after the letter is gone");
    assert!(history.events.iter().all(|event| event.time.is_some()), "{history:?}");
    let history = node.runs().explain(of("#1")).await.expect("a story").into_inner();
    assert_eq!(kinds(&history), [Opened, Claimed, Refused, Dead, Kind::Discarded]);
    let list = ListDeadLettersRequest { run: run.run, ..ListDeadLettersRequest::default() };
    let left = node.dead_letters().list_dead_letters(list).await.expect("a page").into_inner();
    assert!(left.dead_letters.is_empty(), "{left:?}");
    let no_run =
        RequeueDeadLettersRequest { run: "r9.9".to_owned(), all: true, ..RequeueDeadLettersRequest::default() };
    assert_eq!(
        reason(&node.dead_letters().requeue_dead_letters(no_run).await.expect_err("no run")),
        (Code::NotFound, "RUN_NOT_FOUND".to_owned())
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answer_is_in_doubt_until_decided() {
    let node = node("after-commit:reset#1").await;
    let run = node.triggered("report", &["ada@example.net"], "").await.run;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.in_doubt == 1)).await;
    let of_all = ListDoubtsRequest { run: "-".to_owned(), ..ListDoubtsRequest::default() };
    let of_all = node.doubts().list_doubts(of_all).await.expect("a page").into_inner();
    let listed = node.doubts().list_doubts(ListDoubtsRequest::default()).await.expect("a page").into_inner();
    assert_eq!(of_all.doubts, listed.doubts);
    let [doubt] = listed.doubts.as_slice() else { panic!("{listed:?}") };
    assert_eq!((doubt.recipient.as_str(), doubt.node.as_str()), ("ada@example.net", "node-1"));
    assert!(doubt.message_id.ends_with("@example.org"), "{doubt:?}");
    assert_eq!((doubt.cause(), doubt.incarnation, doubt.node_returned), (DoubtCause::NoAnswer, 1, false), "{doubt:?}");
    let seconds = |at: &Option<prost_types::Timestamp>| at.map(|at| (at.seconds, at.nanos)).expect("an instant");
    assert!(seconds(&doubt.doubt_time) >= seconds(&doubt.claim_time), "{doubt:?}");
    let kept = seconds(&doubt.leave_time).0 - seconds(&doubt.doubt_time).0;
    assert!((90 * 86_400..90 * 86_400 + 60).contains(&kept), "the retention: {doubt:?}");
    let get =
        GetDoubtRequest { run: run.clone(), recipient: "ada@example.net".to_owned(), ..GetDoubtRequest::default() };
    let one = node.doubts().get_doubt(get.clone()).await.expect("a doubt").into_inner();
    assert_eq!(one.doubt.as_ref(), Some(doubt));

    let resolve = |recipients: &[&str], all, resolution: Resolution| ResolveDoubtsRequest {
        tenant: String::new(),
        run: run.clone(),
        recipients: recipients.iter().map(|recipient| (*recipient).to_owned()).collect(),
        all,
        resolution: resolution.into(),
        validate_only: false,
        fence: doubt.fence.clone(),
        request_id: String::new(),
    };
    for (request, message) in [
        (resolve(&[], false, Resolution::Sent), "recipients: is empty; name some, or say that you mean all"),
        (resolve(&["#0"], true, Resolution::Sent), "recipients: names some, and all are asked for; choose one"),
        (resolve(&["#0"], false, Resolution::Unspecified), "resolution: is missing; it is to say what becomes of them"),
        (resolve(&["#x"], false, Resolution::Sent), "recipients[0]: \"#x\" is not a number; write it like #17"),
        (
            ResolveDoubtsRequest { fence: String::new(), ..resolve(&["#0"], false, Resolution::Sent) },
            "fence: is missing; give the newest that you have read: validate_only and ListDoubts name it",
        ),
        (
            ResolveDoubtsRequest { fence: "1.2".to_owned(), ..resolve(&["#0"], false, Resolution::Sent) },
            "fence: '1.2' is not a fence (expected GROUP.EPOCH.INDEX.PLACE)",
        ),
    ] {
        assert_eq!(node.doubts().resolve_doubts(request).await.expect_err(message).message(), message);
    }
    let early = ResolveDoubtsRequest { fence: "1.0.0.0".to_owned(), ..resolve(&["#0"], false, Resolution::Sent) };
    let early = node.doubts().resolve_doubts(early).await.expect_err("a later doubt");
    let later = format!("in doubt for a later handoff, {}, than the one that the decision names", doubt.fence);
    assert_eq!(early.message(), later);
    let dry_run =
        ResolveDoubtsRequest { validate_only: true, fence: String::new(), ..resolve(&[], true, Resolution::Resend) };
    let checked = node.doubts().resolve_doubts(dry_run).await.expect("counted").into_inner();
    assert_eq!(checked.fence, doubt.fence, "the handoff of the decision");
    let group = DoubtGroup { cause: doubt.cause, count: 1, node: "node-1".to_owned() };
    assert_eq!((checked.resolved, checked.index, checked.groups), (1, 0, vec![group]), "counted, and nothing changed");
    let sent = ResolveDoubtsRequest { request_id: "once".to_owned(), ..resolve(&["#0"], false, Resolution::Sent) };
    let resolved = node.doubts().resolve_doubts(sent.clone()).await.expect("resolved").into_inner();
    assert_eq!(resolved.resolved, 1);
    let again = node.doubts().resolve_doubts(sent.clone()).await.expect("answered again").into_inner();
    assert_eq!((again.resolved, again.index), (1, resolved.index), "the same request has the same answer");
    let read_anew = ResolveDoubtsRequest { validate_only: true, fence: String::new(), ..sent.clone() };
    let again = node.doubts().resolve_doubts(read_anew).await.expect("answered again").into_inner();
    assert_eq!((again.resolved, again.index), (1, resolved.index), "the command line counts first");
    let other = ResolveDoubtsRequest { resolution: Resolution::Resend.into(), ..sent };
    let other = node.doubts().resolve_doubts(other).await.expect_err("another decision");
    assert_eq!(reason(&other), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()));
    let run = node.until(&run, |run| run.counts.is_some_and(|counts| counts.assumed == 1)).await;
    for validate_only in [true, false] {
        let again = ResolveDoubtsRequest { validate_only, ..resolve(&["#0"], false, Resolution::Sent) };
        let again = node.doubts().resolve_doubts(again).await.expect_err("none is in doubt");
        assert_eq!(reason(&again), (Code::FailedPrecondition, "RECIPIENT_STATE".to_owned()));
        assert_eq!(again.message(), format!("#0 is not in doubt in run {}: it is assumed to be sent", run.run));
    }
    let all = node.doubts().resolve_doubts(resolve(&[], true, Resolution::Sent)).await.expect("of none");
    assert_eq!(all.into_inner().resolved, 0, "all of none is no mistake");
    let gone = node.doubts().get_doubt(get).await.expect_err("decided");
    assert_eq!(reason(&gone), (Code::NotFound, "RECIPIENT_NOT_FOUND".to_owned()));
    let explain = ExplainRequest { run: run.run, recipient: "#0".to_owned(), ..ExplainRequest::default() };
    let history = node.runs().explain(explain).await.expect("a story").into_inner();
    assert_eq!(kinds(&history), [Kind::Opened, Kind::Claimed, Kind::InDoubt, Kind::Assumed]);
    assert_eq!(history.events[2].time, doubt.doubt_time, "since is the instant at which it came into doubt");
    assert!(history.events.iter().all(|event| event.time.is_some()), "{history:?}");
    assert_eq!(node.sink.accepted_count(), 1, "it had arrived, and the ledger never says that it was sent");
    node.stop().await;
}

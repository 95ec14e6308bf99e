//! Recipients of a run by state: of a live and of an archived run, of a sealed audience, for each kind of token.

use std::time::Instant;

use prost_types::Duration;
use reveille_cluster::file_store::GeneratedAudience;
use reveille_ledger::token::TenantScope;
use reveille_proto::admin::v1::recipient_service_client::RecipientServiceClient;
use reveille_proto::admin::v1::{
    AddOptOutRequest, Audience, CancelRunRequest, DeleteScheduleRequest, DoubtCause, EraseRecipientRequest,
    ExplainRequest, ExportRunRecipientsRequest, FindRecipientRequest, ListRunRecipientsRequest, Overlap, PlaceKind,
    Policies, RecipientState, Resolution, ResolveDoubtsRequest, RunRecipient, RunState, ScheduleBody, Suppression,
    TriggerScheduleRequest,
};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::access::{locked, only, role, token, with};
use super::archive::{lose_runs, until_archived};
use super::audiences::imported;
use super::clock::{DAY, advance_clock, by};
use super::harness::{Node, STEP_TIMEOUT, creation, node, node_with_test_clock, opened, reason, yearly};
use super::messages::message;
use crate::token_text::TokenText;

const NO_RELAY: &str = "no-relay-here";
const ALL: [RecipientState; 0] = [];

fn request(run: &str, states: &[RecipientState]) -> ListRunRecipientsRequest {
    let states = states.iter().map(|state| i32::from(*state)).collect();
    ListRunRecipientsRequest { run: run.to_owned(), states, ..ListRunRecipientsRequest::default() }
}

/// Returns all recipients of a list, read in pages of this size.
async fn list(node: &Node, run: &str, states: &[RecipientState], page_size: i32) -> Vec<RunRecipient> {
    let (mut rows, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListRunRecipientsRequest { page_size, page_token, ..request(run, states) };
        let page = node.recipients().list_run_recipients(request).await.expect("a page").into_inner();
        assert!(page_size == 0 || page.recipients.len() <= page_size as usize);
        rows.extend(page.recipients);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return rows;
        }
    }
}

async fn export(node: &Node, run: &str, states: &[RecipientState]) -> Vec<RunRecipient> {
    let ListRunRecipientsRequest { run, states, .. } = request(run, states);
    let request = ExportRunRecipientsRequest { run, states, ..ExportRunRecipientsRequest::default() };
    let mut stream = node.recipients().export_run_recipients(request).await.expect("a stream").into_inner();
    let mut rows = Vec::new();
    while let Some(row) = stream.message().await.expect("a recipient") {
        rows.push(row);
    }
    rows
}

/// Opens a run of a new schedule without `min_gap`, so that it is archived soon.
async fn run_of(node: &Node, name: &str, recipients: &[&str], pool: &str) -> String {
    let policies =
        Policies { min_gap: Some(Duration::default()), overlap: Overlap::Allow.into(), ..Policies::default() };
    let body = ScheduleBody { pool: pool.to_owned(), policies: Some(policies), ..yearly(name, recipients) };
    opened(&node.channel, body).await.1.run.expect("a run").run
}

fn state_of(rows: &[RunRecipient], state: RecipientState) -> &RunRecipient {
    rows.iter().find(|row| row.state() == state).unwrap_or_else(|| panic!("none is {state:?}: {rows:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_state_of_a_live_run_is_listed_with_its_cause() {
    let node = node_with_test_clock("rcpt:550=5.1.1 no such user#1,after-commit:close#1").await;
    let opt_out = AddOptOutRequest { recipient: "out@example.net".to_owned(), ..AddOptOutRequest::default() };
    node.opt_outs().add_opt_out(opt_out).await.expect("added");
    let everyone = ["ada@example.net", "bob@example.net", "eve@example.net", "out@example.net"];
    let run = run_of(&node, "mixed", &everyone, "").await;
    node.until(&run, |run| run.finished_index.is_some()).await;
    let rows = list(&node, &run, &ALL, 0).await;
    assert_eq!(rows.iter().map(|row| row.address.as_str()).collect::<Vec<_>>(), everyone, "in the order of numbers");
    assert!(rows.iter().all(|row| row.update_time.is_some()), "{rows:?}");
    let dead = state_of(&rows, RecipientState::Dead);
    assert_eq!(
        (dead.code, dead.enhanced.as_str(), dead.text.as_str(), dead.attempts),
        (550, "5.1.1", "no such user", 1)
    );
    let doubt = state_of(&rows, RecipientState::InDoubt);
    assert_eq!((doubt.code, doubt.text.as_str(), doubt.doubt_cause()), (0, "", DoubtCause::NoAnswer));
    let sent = state_of(&rows, RecipientState::Sent);
    assert_eq!((sent.code, sent.text.as_str()), (0, ""));
    let suppressed = state_of(&rows, RecipientState::Suppressed);
    assert_eq!((suppressed.number, suppressed.suppression()), (3, Suppression::OptedOut));
    for row in &rows {
        let explain = ExplainRequest { run: run.clone(), recipient: format!("#{}", row.number), ..Default::default() };
        let history = node.runs().explain(explain).await.expect("a story").into_inner();
        assert_eq!((history.state(), history.recipient.as_str()), (row.state(), row.address.as_str()));
        assert_eq!(list(&node, &run, &[row.state()], 1).await, std::slice::from_ref(row));
    }
    for size in [1, 2, 3, 4, 5] {
        assert_eq!(list(&node, &run, &ALL, size).await, rows, "{size} a page");
    }
    assert_eq!(export(&node, &run, &ALL).await, rows);
    let two = [RecipientState::Dead, RecipientState::Suppressed];
    let of_two: Vec<_> = rows.iter().filter(|row| two.contains(&row.state())).cloned().collect();
    assert_eq!(list(&node, &run, &two, 1).await, of_two);
    assert_eq!(export(&node, &run, &two).await, of_two);
    assert_eq!(export(&node, &run, &[RecipientState::Pending]).await, []);

    let resolve = ResolveDoubtsRequest {
        run: run.clone(),
        all: true,
        resolution: Resolution::Sent.into(),
        validate_only: true,
        ..ResolveDoubtsRequest::default()
    };
    let fence = node.doubts().resolve_doubts(resolve.clone()).await.expect("counted").into_inner().fence;
    let resolve = ResolveDoubtsRequest { validate_only: false, fence, ..resolve };
    node.doubts().resolve_doubts(resolve).await.expect("resolved");
    let assumed = list(&node, &run, &[RecipientState::Assumed], 0).await;
    assert_eq!(assumed.iter().map(|row| row.number).collect::<Vec<_>>(), [doubt.number]);

    let stuck = run_of(&node, "stuck", &everyone, NO_RELAY).await;
    let pending = list(&node, &stuck, &[RecipientState::Pending], 3).await;
    assert_eq!((pending.len(), pending[0].update_time, pending[0].attempts), (4, None, 0));
    let cancel = CancelRunRequest { run: stuck.clone(), ..CancelRunRequest::default() };
    node.runs().cancel_run(cancel).await.expect("cancelled");
    let cancelled = list(&node, &stuck, &[RecipientState::Cancelled], 3).await;
    assert!(cancelled.len() == 4 && cancelled.iter().all(|row| row.update_time.is_some()), "{cancelled:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_run_is_listed_as_before() {
    let node = node_with_test_clock("").await;
    let opt_out = AddOptOutRequest { recipient: "out@example.net".to_owned(), ..AddOptOutRequest::default() };
    node.opt_outs().add_opt_out(opt_out).await.expect("added");
    let sent = run_of(&node, "sent", &["ada@example.net", "out@example.net"], "").await;
    let late = run_of(&node, "late", &["ada@example.net"], NO_RELAY).await;
    node.until(&sent, |run| run.finished_index.is_some()).await;
    advance_clock(&node, by(2 * DAY)).await;
    node.until(&late, |run| run.state() == RunState::Expired).await;
    let mut before = Vec::new();
    for run in [&sent, &late] {
        before.push(list(&node, run, &ALL, 0).await);
    }
    assert_eq!(state_of(&before[1], RecipientState::Expired).number, 0);
    advance_clock(&node, by(4 * DAY)).await;
    until_archived(&node, [sent.as_str(), late.as_str()]).await;
    for (run, before) in [&sent, &late].into_iter().zip(&before) {
        assert_eq!(list(&node, run, &ALL, 1).await, *before);
        assert_eq!(export(&node, run, &ALL).await, *before);
    }
    let suppressed = list(&node, &sent, &[RecipientState::Suppressed], 0).await;
    assert_eq!(suppressed.iter().map(|row| row.address.as_str()).collect::<Vec<_>>(), ["out@example.net"]);
    node.stop().await;
}

/// Returns kind, name and number of all places of a person, read in pages of this size.
async fn places(node: &Node, page_size: i32) -> Vec<(i32, String, Option<u32>)> {
    places_of(node, "ada@example.net", page_size).await
}

async fn places_of(node: &Node, person: &str, page_size: i32) -> Vec<(i32, String, Option<u32>)> {
    let (mut places, mut page_token) = (Vec::new(), String::new());
    loop {
        let recipient = person.to_owned();
        let request = FindRecipientRequest { recipient, page_size, page_token, ..FindRecipientRequest::default() };
        let page = node.recipients().find_recipient(request).await.expect("a page").into_inner();
        assert!(page_size == 0 || page.places.len() <= page_size as usize, "{page:?}");
        places.extend(page.places.into_iter().map(|place| (place.kind, place.name, place.number)));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return places;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_of_a_person_come_in_pages_of_any_size() {
    const MESSAGES: usize = 6;
    let node = node_with_test_clock("").await;
    let mut runs = Vec::new();
    for name in ["one", "two", "three"] {
        runs.push(run_of(&node, name, &["bob@example.net", "ada@example.net"], "").await);
    }
    // Messages that come together share a page of runs.
    let mut each = JoinSet::new();
    for number in 0..MESSAGES {
        let (mut messages, request) = (node.messages(), message(&format!("key-{number}"), &["ada@example.net"]));
        each.spawn(async move { messages.send_message(request).await.map(tonic::Response::into_inner) });
    }
    let sent = each.join_all().await.into_iter().map(|answer| answer.expect("sent").message.expect("a message"));
    runs.extend(sent.map(|message| message.run.expect("a run").run));
    let generated = GeneratedAudience { seed: 7, recipients: 3, columns: Vec::new() };
    imported(&node, "without-her", &generated).await.expect("sealed");
    let in_state = places(&node, 0).await;
    assert_eq!(in_state.len(), 3 + 3 + MESSAGES, "schedules and runs: {in_state:?}");
    for size in 1..=5 {
        assert_eq!(places(&node, size).await, in_state, "{size} a page");
    }

    for run in &runs {
        node.until(run, |run| run.state() == RunState::Finished).await;
    }
    advance_clock(&node, by(4 * DAY)).await;
    until_archived(&node, runs.iter().map(String::as_str)).await;
    let opt_out = AddOptOutRequest { recipient: "ada@example.net".to_owned(), ..AddOptOutRequest::default() };
    node.opt_outs().add_opt_out(opt_out).await.expect("added");
    let archived = places(&node, 0).await;
    assert_eq!(archived[0].0, i32::from(PlaceKind::OptOut));
    let (mut before, mut after) = (in_state.clone(), archived[1..].to_vec());
    before.sort();
    after.sort();
    assert_eq!(before, after);
    for size in 1..=5 {
        assert_eq!(places(&node, size).await, archived, "{size} a page");
    }
    node.stop().await;
}

/// Erases a person, from the first page to the last.
async fn erase(mut recipients: RecipientServiceClient<Channel>, person: String) -> Result<(), Status> {
    let mut request = EraseRecipientRequest { recipient: person, ..EraseRecipientRequest::default() };
    loop {
        let answer = recipients.erase_recipient(request.clone()).await?.into_inner();
        if answer.next_page_token.is_empty() {
            return Ok(());
        }
        request.page_token = answer.next_page_token;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn persons_of_one_list_who_are_erased_at_once_are_all_erased() {
    const PERSONS: usize = 8;
    let node = node_with_test_clock("").await;
    let generated = GeneratedAudience { seed: 7, recipients: PERSONS as u32, columns: Vec::new() };
    imported(&node, "all", &generated).await.expect("sealed");
    let persons: Vec<String> = generated.list().into_iter().map(|recipient| recipient.key).collect();
    let names: Vec<&str> = persons.iter().map(String::as_str).collect();
    let (kept, other) = (run_of(&node, "kept", &names, "").await, run_of(&node, "other", &names, "").await);
    for run in [&kept, &other] {
        node.until(run, |run| run.state() == RunState::Finished).await;
    }
    advance_clock(&node, by(4 * DAY)).await;
    until_archived(&node, [kept.as_str(), other.as_str()]).await;
    let with_all = run_of(&node, "only-archived", &[&names[..], &["bob@example.org"]].concat(), "").await;
    node.until(&with_all, |run| run.state() == RunState::Finished).await;
    let delete = DeleteScheduleRequest { name: "only-archived".to_owned(), ..DeleteScheduleRequest::default() };
    node.schedules().delete_schedule(delete).await.expect("deleted");
    advance_clock(&node, by(4 * DAY)).await;
    until_archived(&node, [with_all.as_str()]).await;
    assert_eq!(places_of(&node, names[0], 0).await.len(), 1 + 2 + 3, "an audience, schedules and runs");

    let erasures: JoinSet<_> = persons.iter().map(|person| erase(node.recipients(), person.clone())).collect();
    for erased in erasures.join_all().await {
        erased.expect("erased");
    }
    for person in names {
        let left = places_of(&node, person, 0).await;
        assert!(left.len() == 1 && left[0].0 == i32::from(PlaceKind::OptOut), "{person}: {left:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_of_a_claimed_person_is_continued_by_its_caller() {
    let node = node("rcpt:stall=8s#1").await;
    let run = run_of(&node, "report", &["ada@example.net"], "").await;
    node.until(&run, |run| run.counts.is_some_and(|counts| counts.claimed == 1)).await;
    let request = EraseRecipientRequest { recipient: "ada@example.net".to_owned(), ..EraseRecipientRequest::default() };
    let mut request = Request::new(request);
    request.set_timeout(std::time::Duration::from_secs(6));
    let first = node.recipients().erase_recipient(request).await.expect("a page").into_inner();
    assert!(first.barrier.is_some() && !first.next_page_token.is_empty(), "{first:?}");
    assert_eq!(places_of(&node, "ada@example.net", 0).await.len(), 2, "the opt-out and the run that has claimed it");
    erase(node.recipients(), "ada@example.net".to_owned()).await.expect("erased");
    let left = places_of(&node, "ada@example.net", 0).await;
    assert!(left.len() == 1 && left[0].0 == i32::from(PlaceKind::OptOut), "{left:?}");
    node.stop().await;
}

/// Equal lists are stored once, also those of different tenants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn person_is_erased_from_archived_run_whose_list_another_tenant_uses() {
    let node = node_with_test_clock("").await;
    let names = ["ada@example.net", "bob@example.net"];
    let others = ScheduleBody { tenant: "acme".to_owned(), ..yearly("theirs", &names) };
    node.schedules().create_schedule(creation(others)).await.expect("created");
    let run = run_of(&node, "ours", &names, "").await;
    node.until(&run, |run| run.state() == RunState::Finished).await;
    advance_clock(&node, by(4 * DAY)).await;
    until_archived(&node, [run.as_str()]).await;
    assert_eq!(places(&node, 0).await.len(), 2, "a schedule and an archived run");

    erase(node.recipients(), "ada@example.net".to_owned()).await.expect("erased");
    let left = places(&node, 0).await;
    assert!(left.len() == 1 && left[0].0 == i32::from(PlaceKind::OptOut), "{left:?}");
    assert_eq!(places_of(&node, "bob@example.net", 0).await.len(), 2, "others stay");
    let of_others = FindRecipientRequest {
        tenant: "acme".to_owned(),
        recipient: "ada@example.net".to_owned(),
        ..FindRecipientRequest::default()
    };
    let of_others = node.recipients().find_recipient(of_others).await.expect("found").into_inner();
    assert_eq!(of_others.places.len(), 1, "another tenant keeps its list");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasure_is_not_done_while_a_block_of_the_archive_is_missing() {
    let node = node_with_test_clock("").await;
    let run = run_of(&node, "report", &["ada@example.net", "bob@example.net"], "").await;
    node.until(&run, |run| run.state() == RunState::Finished).await;
    let delete = DeleteScheduleRequest { name: "report".to_owned(), ..DeleteScheduleRequest::default() };
    node.schedules().delete_schedule(delete).await.expect("deleted");
    advance_clock(&node, by(4 * DAY)).await;
    until_archived(&node, [run.as_str()]).await;
    // From here on the part is open in memory, so only the erasure reads its files.
    assert_eq!(places(&node, 0).await.len(), 1);
    lose_runs(&node);
    let refused = erase(node.recipients(), "ada@example.net".to_owned()).await.expect_err("a block is missing");
    assert_eq!(reason(&refused), (Code::DataLoss, "ARCHIVE_UNREADABLE".to_owned()));
    assert!(refused.message().contains("start the nodes that are down"), "{refused}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_audience_is_listed_from_its_parts() {
    let node = node("").await;
    let generated = GeneratedAudience { seed: 7, recipients: 300, columns: vec!["name".to_owned()] };
    imported(&node, "all", &generated).await.expect("sealed");
    let to = Some(Audience { sealed: "all".to_owned(), ..Audience::default() });
    let (_, triggered) = opened(&node.channel, ScheduleBody { audience: to, ..yearly("report", &[]) }).await;
    let run = triggered.run.expect("a run").run;
    node.until(&run, |run| run.state() == RunState::Finished).await;
    let rows = export(&node, &run, &ALL).await;
    let expected: Vec<String> = generated.list().into_iter().map(|recipient| recipient.address).collect();
    assert_eq!(rows.iter().map(|row| row.address.clone()).collect::<Vec<_>>(), expected);
    assert!(rows.iter().all(|row| row.state() == RecipientState::Sent && row.update_time.is_some()), "{rows:?}");
    assert_eq!(list(&node, &run, &[RecipientState::Sent], 0).await, rows);
    assert_eq!(list(&node, &run, &ALL, 299).await, rows);

    let refused = async |request: ListRunRecipientsRequest| {
        reason(&node.recipients().list_run_recipients(request).await.expect_err("refused"))
    };
    let wrong = (Code::InvalidArgument, "INVALID_FIELD".to_owned());
    let page_token = "6e6f6e65".to_owned();
    assert_eq!(refused(ListRunRecipientsRequest { page_token, ..request(&run, &ALL) }).await, wrong);
    assert_eq!(refused(ListRunRecipientsRequest { page_size: -1, ..request(&run, &ALL) }).await, wrong);
    assert_eq!(refused(ListRunRecipientsRequest { states: vec![77], ..request(&run, &ALL) }).await, wrong);
    assert_eq!(refused(request(&run, &[RecipientState::Unspecified])).await, wrong);
    assert_eq!(refused(request("r999999.0", &ALL)).await, (Code::NotFound, "RUN_NOT_FOUND".to_owned()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_sees_its_tenant_only_and_addresses_only_with_pii() {
    let node = node("rcpt:550=5.1.1 no such user").await;
    let channel = locked(&node).await;
    let body = ScheduleBody { tenant: "acme".to_owned(), ..yearly("report", &["ada@example.net"]) };
    let created = node.schedules().create_schedule(creation(body)).await.expect("created");
    let name = created.into_inner().schedule.expect("a schedule").name;
    let trigger =
        TriggerScheduleRequest { tenant: "acme".to_owned(), name, request_id: "once".to_owned(), ..Default::default() };
    let run = node.schedules().trigger_schedule(trigger).await.expect("triggered").into_inner().run.expect("a run").run;
    let viewer = token(&node, role("viewer"), only("acme")).await;
    let pii = token(&node, role("pii"), only("acme")).await;
    let other = token(&node, role("admin"), only("other")).await;
    let everywhere = token(&node, role("pii"), TenantScope::All).await;
    let of_acme = || ListRunRecipientsRequest { tenant: "acme".to_owned(), ..request(&run, &ALL) };
    let ask = async |request: Request<ListRunRecipientsRequest>| {
        let mut service: RecipientServiceClient<Channel> = RecipientServiceClient::new(channel.clone());
        let answer: Result<_, Status> = service.list_run_recipients(request).await;
        answer.map(|answer| answer.into_inner().recipients.pop().expect("a recipient"))
    };
    let end = Instant::now() + STEP_TIMEOUT;
    let seen = loop {
        let seen = ask(with(of_acme(), &pii)).await.expect("permitted");
        if seen.state() == RecipientState::Dead {
            break seen;
        }
        assert!(Instant::now() < end, "{seen:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!((seen.address.as_str(), seen.text.as_str()), ("ada@example.net", "no such user"));
    assert_eq!(ask(with(of_acme(), &everywhere)).await.expect("permitted"), seen);
    let hidden = RunRecipient { address: String::new(), text: String::new(), ..seen };
    assert_eq!(ask(with(of_acme(), &viewer)).await.expect("permitted"), hidden);
    let foreign = ask(with(of_acme(), &other)).await.expect_err("another tenant");
    assert_eq!(foreign.code(), Code::PermissionDenied);
    let own = ListRunRecipientsRequest { tenant: "other".to_owned(), ..request(&run, &ALL) };
    let unknown = ask(with(own, &other)).await.expect_err("not of this tenant");
    assert_eq!(reason(&unknown), (Code::NotFound, "RUN_NOT_FOUND".to_owned()));
    let strange = ask(with(of_acme(), &TokenText::generate())).await.expect_err("no such token");
    assert_eq!(strange.code(), Code::Unauthenticated);
    node.stop().await;
}

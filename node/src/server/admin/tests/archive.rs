//! Archived runs: every read gives the same answer as before, on every page of a list, and says what is lost.

use std::time::Instant;

use jiff::Timestamp;
use reveille_ledger::ids::RunId;
use reveille_proto::admin::v1::audit_service_client::AuditServiceClient;
use reveille_proto::admin::v1::{
    AcceptArchiveLossRequest, CancelRunRequest, DeleteScheduleRequest, ExplainRequest, ExplainResponse,
    FindRecipientRequest, GetArchiveLossRequest, GetRunRequest, HistoryEntry, ListAuditRecordsRequest,
    ListDeadLettersRequest, ListRunsRequest, ListScheduleHistoryRequest, LostPart, PauseRunRequest, Policies,
    RequeueDeadLettersRequest, Run, RunState, ScheduleBody, SendMessageRequest, TriggerScheduleRequest,
    WatchRunRequest, When, when,
};
use tonic::Code;

use super::clock::{DAY, HOUR, advance_clock, at, by, coming_day};
use super::harness::{Node, STEP_TIMEOUT, creation, node_with_test_clock, reason, yearly};

const RECIPIENTS: [&str; 2] = ["ada@example.net", "bob@example.net"];

/// Returns all runs of a list, read in pages of this size.
async fn list(node: &Node, page_size: i32, filter: ListRunsRequest) -> Vec<Run> {
    let (mut runs, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListRunsRequest { page_size, page_token, ..filter.clone() };
        let page = node.runs().list_runs(request).await.expect("a list").into_inner();
        assert!(page_size == 0 || page.runs.len() <= page_size as usize);
        runs.extend(page.runs);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return runs;
        }
    }
}

async fn history(node: &Node, page_size: i32) -> Vec<HistoryEntry> {
    let (mut entries, mut page_token) = (Vec::new(), String::new());
    loop {
        let name = "daily".to_owned();
        let request =
            ListScheduleHistoryRequest { name, page_size, page_token, ..ListScheduleHistoryRequest::default() };
        let page = node.schedules().list_schedule_history(request).await.expect("a history").into_inner();
        entries.extend(page.entries);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return entries;
        }
    }
}

async fn show(node: &Node, run: &str) -> Run {
    let request = GetRunRequest { run: run.to_owned(), ..GetRunRequest::default() };
    node.runs().get_run(request).await.expect("a run").into_inner().run.expect("a run")
}

/// Returns the history of a recipient, without the freshness of the answer.
async fn explain(node: &Node, run: &str, recipient: &str) -> ExplainResponse {
    let (run, recipient) = (run.to_owned(), recipient.to_owned());
    let request = ExplainRequest { run, recipient, ..ExplainRequest::default() };
    let explanation = node.runs().explain(request).await.expect("a story").into_inner();
    ExplainResponse { freshness: None, ..explanation }
}

/// Waits until none of these runs is in the replicated state.
pub(super) async fn until_archived(node: &Node, runs: impl IntoIterator<Item = &str>) {
    let ids: Vec<RunId> = runs.into_iter().map(|run| run.parse().expect("a run")).collect();
    let end = Instant::now() + STEP_TIMEOUT;
    while node.context().replica.read(|ledger| ids.iter().any(|id| ledger.run(*id).is_some())) {
        assert!(Instant::now() < end, "not archived within {STEP_TIMEOUT:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_runs_are_answered_as_before() {
    let node = node_with_test_clock("").await;
    let day = coming_day(&node).await;
    advance_clock(&node, at(day)).await;
    let no_gap = Some(prost_types::Duration::default());
    let body = ScheduleBody {
        timing: Some(When { pattern: Some(when::Pattern::Cron("0 9 * * *".to_owned())) }),
        policies: Some(Policies { min_gap: no_gap, ..Policies::default() }),
        ..yearly("daily", &RECIPIENTS)
    };
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let trigger = TriggerScheduleRequest {
        name: "daily".to_owned(),
        request_id: "by-hand".to_owned(),
        ..TriggerScheduleRequest::default()
    };
    advance_clock(&node, at(day + DAY + 12 * HOUR)).await;
    node.schedules().trigger_schedule(trigger.clone()).await.expect("triggered");
    advance_clock(&node, at(day + 2 * DAY + 12 * HOUR)).await;

    let runs = list(&node, 0, ListRunsRequest::default()).await;
    assert_eq!(runs.len(), 4, "three days and a trigger");
    assert!(runs.iter().all(|run| run.state() == RunState::Finished), "{runs:?}");
    let entries = history(&node, 0).await;
    assert_eq!(entries.len(), 4);
    let mut histories = Vec::new();
    for run in &runs {
        histories.push(explain(&node, &run.run, RECIPIENTS[0]).await);
    }

    advance_clock(&node, by(4 * DAY)).await;
    until_archived(&node, runs.iter().map(|run| run.run.as_str())).await;
    for size in [0, 1, 2, 3] {
        let all = list(&node, size, ListRunsRequest::default()).await;
        assert_eq!(all.len(), 8, "{size} a page");
        assert_eq!(all[4..], runs, "{size} a page");
        let all = history(&node, size).await;
        assert_eq!(all.len(), 8, "{size} a page");
        assert_eq!(all[4..], entries, "{size} a page");
    }
    for (run, explanation) in runs.iter().zip(&histories) {
        assert_eq!(show(&node, &run.run).await, *run);
        assert_eq!(explain(&node, &run.run, RECIPIENTS[0]).await, *explanation);
        assert_eq!(explain(&node, &run.run, "#0").await, *explanation);
        let watch = WatchRunRequest { run: run.run.clone(), ..WatchRunRequest::default() };
        let mut watched = node.runs().watch_run(watch).await.expect("a stream").into_inner();
        assert_eq!(watched.message().await.expect("a state").and_then(|state| state.run).as_ref(), Some(run));
        assert_eq!(watched.message().await.expect("the end"), None);
    }

    // Names of occurrences still lead to their runs.
    let nine = |days: i64| Timestamp::from_second(day + days * DAY + 9 * HOUR).expect("an instant");
    let local = nine(1).to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let by_hand = runs.iter().find(|run| run.occurrence.ends_with("by-hand")).expect("the trigger");
    for (name, run) in [
        (format!("daily@{}", nine(0)), &runs[3]),
        (format!("daily@{local}"), &runs[2]),
        (format!("daily@{}", nine(2)), &runs[0]),
        ("daily@by-hand".to_owned(), by_hand),
    ] {
        assert_eq!(show(&node, &name).await.run, run.run, "{name}");
    }
    let unknown = GetRunRequest { run: format!("daily@{}", nine(-3)), ..GetRunRequest::default() };
    assert_eq!(reason(&node.runs().get_run(unknown).await.expect_err("no such run")).1, "RUN_NOT_FOUND");
    let again = node.schedules().trigger_schedule(trigger).await.expect("the same").into_inner();
    assert_eq!(again.run.as_ref(), Some(by_hand), "a repeated trigger gets its run");

    // Filters.
    let since = runs[1].open_time;
    assert_eq!(list(&node, 1, ListRunsRequest { since_time: since, ..Default::default() }).await.len(), 6);
    let before = list(&node, 1, ListRunsRequest { until_time: since, ..Default::default() }).await;
    let all = list(&node, 1, ListRunsRequest::default()).await.len();
    assert_eq!((before.len() + 6, before.contains(&runs[1])), (all, false), "the others, in state and archive");
    assert!(!before.is_empty());
    let states = vec![RunState::Cancelled.into()];
    assert!(list(&node, 1, ListRunsRequest { states, ..Default::default() }).await.is_empty());
    let labelled = ListRunsRequest { selector: "team".to_owned(), ..Default::default() };
    assert!(list(&node, 1, labelled).await.is_empty());
    let other = ListRunsRequest { tenant: "other".to_owned(), ..Default::default() };
    assert!(list(&node, 1, other).await.is_empty());

    // Nothing changes an archived run.
    let run = runs[0].run.clone();
    let archived = format!("run {run} of daily is finished and in the archive: its results cannot change");
    let pause = PauseRunRequest { run: run.clone(), ..PauseRunRequest::default() };
    assert_eq!(node.runs().pause_run(pause).await.expect_err("archived").message(), archived);
    let cancel = CancelRunRequest { run: run.clone(), ..CancelRunRequest::default() };
    assert_eq!(node.runs().cancel_run(cancel).await.expect_err("archived").message(), archived);
    let recipients = vec![RECIPIENTS[0].to_owned()];
    let requeue = RequeueDeadLettersRequest { run: run.clone(), recipients, ..RequeueDeadLettersRequest::default() };
    assert_eq!(node.dead_letters().requeue_dead_letters(requeue).await.expect_err("archived").message(), archived);
    let letters = ListDeadLettersRequest { run, ..ListDeadLettersRequest::default() };
    let letters = node.dead_letters().list_dead_letters(letters).await.expect("a list").into_inner();
    assert!(letters.dead_letters.is_empty());

    // A deleted schedule leaves its archived runs.
    let delete = DeleteScheduleRequest { name: "daily".to_owned(), ..DeleteScheduleRequest::default() };
    node.schedules().delete_schedule(delete).await.expect("deleted");
    let of_it = ListRunsRequest { schedule: "daily".to_owned(), ..ListRunsRequest::default() };
    assert_eq!(list(&node, 3, of_it).await.len(), 8);
    assert_eq!(show(&node, &runs[3].run).await, runs[3]);
    node.stop().await;
}

/// Saves the archive of a node, and removes the files of all parts with runs.
pub(super) fn lose_runs(node: &Node) {
    let context = node.context();
    let saved = tokio::task::block_in_place(|| context.replica.pinned_snapshot(|_| ()));
    saved.expect("a snapshot");
    let parts = context.replica.read(|ledger| ledger.parts().clone());
    let blocks = node.folder.path().join("data").join("snapshots").join("blocks");
    for block in parts.iter().filter(|(_, part)| part.runs().is_some()).flat_map(|(_, part)| part.all_blocks()) {
        std::fs::remove_file(blocks.join(block.hash.to_string())).expect("it is saved");
    }
}

async fn lost_parts(node: &Node) -> Vec<LostPart> {
    let loss = node.cluster().get_archive_loss(GetArchiveLossRequest {}).await.expect("an answer").into_inner();
    assert!(loss.silent.is_empty(), "{loss:?}");
    loss.parts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_runs_are_shown_as_lost_after_their_loss_is_accepted() {
    let node = node_with_test_clock("").await;
    let day = coming_day(&node).await;
    advance_clock(&node, at(day)).await;
    let body = ScheduleBody {
        timing: Some(When { pattern: Some(when::Pattern::Cron("0 9 * * *".to_owned())) }),
        policies: Some(Policies { min_gap: Some(prost_types::Duration::default()), ..Policies::default() }),
        ..yearly("daily", &RECIPIENTS)
    };
    let content = body.content.clone();
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let trigger = TriggerScheduleRequest {
        name: "daily".to_owned(),
        request_id: "by-hand".to_owned(),
        ..TriggerScheduleRequest::default()
    };
    let to = vec!["ann@example.net".to_owned()];
    let message = SendMessageRequest { key: "order-1".to_owned(), to, content, ..SendMessageRequest::default() };
    let triggered = node.schedules().trigger_schedule(trigger.clone()).await.expect("triggered").into_inner();
    let by_hand = triggered.run.expect("a run").run;
    node.messages().send_message(message.clone()).await.expect("sent");
    advance_clock(&node, at(day + 2 * DAY + 12 * HOUR)).await;
    let runs = list(&node, 0, ListRunsRequest::default()).await;
    assert_eq!(runs.len(), 5, "three days, a trigger and a message");
    let entries = history(&node, 0).await;
    advance_clock(&node, by(DAY + 4 * HOUR)).await;
    until_archived(&node, runs.iter().map(|run| run.run.as_str())).await;
    lose_runs(&node);

    // A tenant without lost runs learns nothing of them, before and after the loss is accepted.
    let as_if_nothing_were_lost = async || {
        let tenant = "other".to_owned();
        let of_other = ListRunsRequest { tenant: tenant.clone(), ..ListRunsRequest::default() };
        let listed = node.runs().list_runs(of_other).await.expect("a list").into_inner();
        assert!(listed.runs.is_empty() && !listed.incomplete, "{listed:?}");
        for run in runs.iter().map(|run| run.run.clone()) {
            let request = GetRunRequest { tenant: tenant.clone(), run, ..GetRunRequest::default() };
            let refused = node.runs().get_run(request).await.expect_err("a run of another tenant");
            assert_eq!(reason(&refused), (Code::NotFound, "RUN_NOT_FOUND".to_owned()));
        }
        let recipient = RECIPIENTS[0].to_owned();
        let person = FindRecipientRequest { tenant, recipient, ..FindRecipientRequest::default() };
        let found = node.recipients().find_recipient(person).await.expect("an answer").into_inner();
        assert!(found.places.is_empty(), "{found:?}");
    };
    as_if_nothing_were_lost().await;

    // Until it is accepted, no list is shown without the lost runs.
    let refused = node.runs().list_runs(ListRunsRequest::default()).await.expect_err("a part is lost");
    assert_eq!(refused.code(), Code::DataLoss);
    let parts = lost_parts(&node).await;
    assert_eq!(parts.iter().map(|part| part.runs).sum::<u32>(), 5);
    let is_whole = |part: &LostPart| part.details && part.summaries && part.accept_time.is_none();
    assert!(parts.iter().all(is_whole), "{parts:?}");
    let due = |of: fn(&LostPart) -> Option<prost_types::Timestamp>| parts.iter().filter_map(of).map(|at| at.seconds);
    let (first, last) = (due(|part| part.from_time).min(), due(|part| part.to_time).max());
    assert!(first.is_some_and(|first| (day..day + 9 * HOUR).contains(&first)), "{first:?}");
    assert_eq!(last, Some(day + 2 * DAY + 9 * HOUR));
    let names: Vec<String> = parts.iter().map(|part| part.part.clone()).collect();
    let accept = async |parts: Vec<String>| {
        let accepted = node.cluster().accept_archive_loss(AcceptArchiveLossRequest { parts }).await;
        accepted.map(tonic::Response::into_inner).map_err(|status| status.code())
    };
    assert_eq!(accept(Vec::new()).await, Err(Code::InvalidArgument));
    assert_eq!(accept(vec!["seven".to_owned()]).await, Err(Code::InvalidArgument));
    assert_eq!(accept([names.clone(), vec!["1.0".to_owned()]].concat()).await, Err(Code::FailedPrecondition));
    let accepted = accept(names.clone()).await.expect("accepted");
    assert!(accepted.index > 0 && accepted.parts == parts, "{accepted:?}");
    assert_eq!(accept(names).await.expect("a repeat").index, 0);
    assert!(lost_parts(&node).await.iter().all(|part| part.accept_time.is_some()));
    let audited = ListAuditRecordsRequest { command: "archive_loss_accept".to_owned(), ..Default::default() };
    let audited = AuditServiceClient::new(node.channel.clone()).list_audit_records(audited).await.expect("a list");
    assert_eq!(audited.into_inner().records.iter().map(|one| one.index).collect::<Vec<_>>(), [accepted.index]);

    // Then each read says what is lost, and nothing opens again.
    as_if_nothing_were_lost().await;
    let listed = node.runs().list_runs(ListRunsRequest::default()).await.expect("a list").into_inner();
    assert!(listed.incomplete && !listed.runs.iter().any(|run| runs.contains(run)), "{listed:?}");
    for run in &runs {
        let request = GetRunRequest { run: run.run.clone(), ..GetRunRequest::default() };
        let refused = node.runs().get_run(request).await.expect_err("it is lost");
        assert_eq!(reason(&refused), (Code::NotFound, "ARCHIVE_LOST".to_owned()));
    }
    for size in [0, 1, 2] {
        let all = history(&node, size).await;
        let lost: Vec<&HistoryEntry> = all.iter().filter(|entry| entry.run_lost).collect();
        let names = |entries: &[&HistoryEntry]| {
            let mut names: Vec<String> = entries.iter().map(|entry| entry.occurrence.clone()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&lost), names(&entries.iter().collect::<Vec<_>>()), "{size} a page");
    }
    let again = node.schedules().trigger_schedule(trigger).await.expect("the same").into_inner();
    let run = again.run.expect("a run");
    assert_eq!((run.run, run.lost), (by_hand, true));
    let again = node.messages().send_message(message).await.expect("the same").into_inner();
    assert!(again.replayed && again.message.and_then(|message| message.run).is_some());
    node.stop().await;
}

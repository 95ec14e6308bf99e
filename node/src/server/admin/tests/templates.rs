//! Templates over the API: versions, schedules that keep theirs, preview, and what refuses a delete.

use reveille_proto::admin::v1::message_service_client::MessageServiceClient;
use reveille_proto::admin::v1::{
    AddRelayRequest, Content, DeleteScheduleRequest, DeleteTemplateRequest, GetScheduleRequest, GetTemplateRequest,
    KeyRule, ListTemplatesRequest, PreviewTemplateRequest, PutTemplateRequest, PutTemplateResponse, Relay, RunState,
    Schedule, ScheduleBody, SendMessageRequest, SendMessageResponse, TriggerScheduleRequest, UpdateScheduleRequest,
    UpdateScheduleResponse,
};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::access::{address_of, connected};
use super::harness::{Node, creation, node, opened, reason, yearly};
use super::messages::message;
use crate::server::admin::Admin;

fn content(subject: &str) -> Content {
    Content { subject: subject.to_owned(), ..yearly("x", &[]).content.expect("a content") }
}

fn put_request(name: &str, subject: &str) -> PutTemplateRequest {
    PutTemplateRequest { name: name.to_owned(), content: Some(content(subject)), ..PutTemplateRequest::default() }
}

async fn put(node: &Node, name: &str, subject: &str) -> PutTemplateResponse {
    node.templates().put_template(put_request(name, subject)).await.expect("put").into_inner()
}

/// Returns a body that names a template instead of a content.
fn of_template(name: &str, template: &str) -> ScheduleBody {
    ScheduleBody { content: None, template: template.to_owned(), ..yearly(name, &["ada@example.net"]) }
}

async fn create(node: &Node, name: &str, template: &str) -> Result<Schedule, Status> {
    let created = node.schedules().create_schedule(creation(of_template(name, template))).await?;
    Ok(created.into_inner().schedule.expect("a schedule"))
}

async fn update(node: &Node, paths: &[&str], body: ScheduleBody) -> Result<UpdateScheduleResponse, Status> {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    let request = UpdateScheduleRequest {
        schedule: Some(body),
        update_mask: Some(prost_types::FieldMask { paths }),
        with_bodies: true,
        ..UpdateScheduleRequest::default()
    };
    node.schedules().update_schedule(request).await.map(tonic::Response::into_inner)
}

async fn triggered(node: &Node, name: &str, request_id: &str) -> String {
    let (name, request_id) = (name.to_owned(), request_id.to_owned());
    let request = TriggerScheduleRequest { name, request_id, ..TriggerScheduleRequest::default() };
    node.schedules().trigger_schedule(request).await.expect("triggered").into_inner().run.expect("a run").run
}

/// Returns the subjects of the emails that the mailbox has.
fn subjects(node: &Node) -> Vec<String> {
    let mut subjects = Vec::new();
    for (number, _) in node.sink.emails().iter() {
        let text = String::from_utf8_lossy(&node.sink.text(number).expect("its text")).into_owned();
        subjects.extend(text.lines().find_map(|line| line.strip_prefix("Subject: ").map(str::to_owned)));
    }
    subjects.sort();
    subjects
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_puts_at_once_is_the_one_that_created() {
    let node = node("").await;
    for round in 0..10 {
        let mut puts = JoinSet::new();
        for _ in 0..8 {
            let (mut templates, request) = (node.templates(), put_request("welcome", &format!("Round {round}")));
            puts.spawn(async move { templates.put_template(request).await.expect("put").into_inner() });
        }
        let answers = puts.join_all().await;
        assert!(answers.iter().all(|one| one.version == round + 1), "round {round}: {answers:?}");
        assert_eq!(answers.iter().filter(|one| one.created).count(), 1, "round {round}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_makes_another_version_only_of_another_content() {
    let node = node("").await;
    let dry_run = PutTemplateRequest { validate_only: true, ..put_request("welcome", "One") };
    let checked = node.templates().put_template(dry_run).await.expect("checked").into_inner();
    assert_eq!((checked.template, checked.version, checked.created), (None, 0, false));
    let first = put(&node, "welcome", "One").await;
    assert_eq!((first.version, first.created), (1, true));
    let again = put(&node, "welcome", "One").await;
    assert_eq!((again.version, again.created, &again.template), (1, false, &first.template));
    let second = put(&node, "welcome", "Two").await;
    assert_eq!((second.version, second.created), (2, true));

    let etag = |response: &PutTemplateResponse| response.template.clone().expect("a template").etag;
    let late = PutTemplateRequest { etag: etag(&first), ..put_request("welcome", "Three") };
    let refused = node.templates().put_template(late).await.expect_err("it was changed");
    assert_eq!(reason(&refused), (Code::Aborted, "ETAG_MISMATCH".to_owned()));
    let repeat = PutTemplateRequest { etag: etag(&first), ..put_request("welcome", "Two") };
    let repeat = node.templates().put_template(repeat).await.expect("a repeat after a lost answer").into_inner();
    assert_eq!((repeat.version, repeat.created), (2, false));

    let get = |version| GetTemplateRequest { name: "welcome".to_owned(), version, ..GetTemplateRequest::default() };
    for (requested, version, subject) in [(0, 2, "Two"), (1, 1, "One"), (2, 2, "Two")] {
        let got = node.templates().get_template(get(requested)).await.expect("a template").into_inner();
        let shown = (got.version, got.content.map(|content| content.subject));
        assert_eq!(shown, (version, Some(subject.to_owned())), "{requested}");
        assert_eq!(got.template, second.template);
    }
    let missing = (Code::NotFound, "TEMPLATE_NOT_FOUND".to_owned());
    assert_eq!(reason(&node.templates().get_template(get(3)).await.expect_err("no such version")), missing);
    put(&node, "other", "x").await;
    let list = ListTemplatesRequest { page_size: 1, ..ListTemplatesRequest::default() };
    let page = node.templates().list_templates(list.clone()).await.expect("a page").into_inner();
    assert_eq!(page.templates.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["other"]);
    let list = ListTemplatesRequest { page_token: page.next_page_token, ..list };
    let page = node.templates().list_templates(list).await.expect("a page").into_inner();
    assert_eq!(page.templates, Vec::from_iter(second.template));
    assert_eq!(page.next_page_token, "");

    for (request, field) in [
        (put_request("a b", "x"), "name: "),
        (PutTemplateRequest { content: None, ..put_request("x", "x") }, "content: "),
        (put_request("x", "{{ unclosed"), "content.subject: "),
    ] {
        let refused = node.templates().put_template(request).await.expect_err("it is wrong");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().starts_with(field), "{refused:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn condition_can_be_that_a_template_exists_or_does_not() {
    let node = node("").await;
    let put_if = async |etag: &str, subject: &str| {
        let request = PutTemplateRequest { etag: etag.to_owned(), ..put_request("welcome", subject) };
        let put = node.templates().put_template(request).await.map(|put| put.into_inner().version);
        put.map_err(|refused| (reason(&refused), refused.message().to_owned()))
    };
    let mismatch = |message: &str| Err(((Code::Aborted, "ETAG_MISMATCH".to_owned()), message.to_owned()));
    assert_eq!(put_if("*", "One").await, mismatch("no template 'welcome', so no etag of it matches"));
    assert_eq!(put_if("0", "One").await, Ok(1));
    assert_eq!(put_if("0", "One").await, Ok(1), "a repeat after a lost answer");
    assert_eq!(put_if("0", "Two").await, mismatch("template 'welcome' exists already"));
    assert_eq!(put_if("abc", "Two").await, mismatch("no version of template 'welcome' has this etag"));
    assert_eq!(put_if("*", "Two").await, Ok(2));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_and_open_run_keep_their_version() {
    let node = node("").await;
    put(&node, "welcome", "One").await;
    let started = create(&node, "newest", "welcome").await.expect("created");
    assert_eq!(started.template, "welcome@1");
    put(&node, "welcome", "Two").await;
    let old = create(&node, "old", "welcome@1").await.expect("created");
    assert_eq!((old.template.as_str(), &old.content_hash), ("welcome@1", &started.content_hash));
    let again = create(&node, "newest", "welcome@1").await.expect("the same");
    assert_eq!(again.number, started.number);
    let other = create(&node, "newest", "welcome").await.expect_err("another version by now");
    assert_eq!(reason(&other), (Code::AlreadyExists, "NAME_TAKEN".to_owned()));

    // A run is open while the schedule is moved to another version.
    let (_, open) =
        opened(&node.channel, ScheduleBody { pool: "late".to_owned(), ..of_template("open", "welcome@1") }).await;
    let open = open.run.expect("a run").run;
    let moved = update(&node, &["template"], of_template("open", "welcome")).await.expect("updated");
    assert_eq!(moved.schedule.expect("a schedule").template, "welcome@2");
    put(&node, "welcome", "Three").await;
    let relay = Relay { name: "late".to_owned(), pool: "late".to_owned(), ..node.relay() };
    let add = AddRelayRequest { relay: Some(relay), ..AddRelayRequest::default() };
    node.relays().add_relay(add).await.expect("added");
    let run = triggered(&node, "newest", "once").await;
    for run in [&open, &run] {
        node.until(run, |run| run.state() == RunState::Finished).await;
    }
    assert_eq!(subjects(&node), ["One", "One"], "neither the run nor the schedule has changed");

    // An update takes the newest version, a content of its own, or the content of the template.
    let body = update(&node, &["template"], of_template("newest", "welcome")).await.expect("updated");
    assert_eq!(body.schedule.expect("a schedule").template, "welcome@3");
    let refused = update(&node, &["content.subject"], yearly("newest", &[])).await.expect_err("of a template");
    assert!(refused.message().starts_with("schedule.content: is that of template 'welcome@3'"), "{refused:?}");
    let both = ScheduleBody { template: "welcome".to_owned(), ..yearly("newest", &["ada@example.net"]) };
    let refused = update(&node, &["content", "template"], both.clone()).await.expect_err("both");
    assert!(refused.message().starts_with("schedule.template: "), "{refused:?}");
    let refused = node.schedules().create_schedule(creation(both)).await.expect_err("both");
    assert!(refused.message().starts_with("schedule.template: "), "{refused:?}");
    let detached = update(&node, &["template"], of_template("newest", "")).await.expect("updated");
    let (schedule, body) = (detached.schedule.expect("a schedule"), detached.body.expect("a body"));
    assert_eq!(
        (schedule.template.as_str(), body.content.map(|content| content.subject)),
        ("", Some("Three".to_owned()))
    );
    update(&node, &["template"], of_template("newest", "welcome@2")).await.expect("updated");
    let own = update(&node, &["content"], yearly("newest", &[])).await.expect("updated");
    assert_eq!(own.schedule.expect("a schedule").template, "");

    let get = GetScheduleRequest { name: "old".to_owned(), with_body: true, ..GetScheduleRequest::default() };
    let body = node.schedules().get_schedule(get).await.expect("a schedule").into_inner().body.expect("a body");
    assert_eq!((body.template.as_str(), body.content), ("welcome@1", None));
    for (template, says) in [("welcome@9", "in version 9"), ("nothing", "'nothing'"), ("welcome@0", "not a version")] {
        let refused = create(&node, "wrong", template).await.expect_err("no such template");
        assert!(refused.message().starts_with("schedule.template: "), "{refused:?}");
        assert!(refused.message().contains(says), "{refused:?}");
    }
    put(&node, "named", "Hello {{ name }}").await;
    let unfit = create(&node, "unfit", "named").await.expect_err("no such column");
    assert!(unfit.message().starts_with("schedule.template: 'named@1', subject: "), "{unfit:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeat_of_a_message_outlives_a_new_version_of_its_template() {
    let node = node("").await;
    put(&node, "welcome", "first").await;
    let send = async |key: &str| {
        let named =
            SendMessageRequest { content: None, template: "welcome".to_owned(), ..message(key, &["ada@example.net"]) };
        node.messages().send_message(named).await.map(|answer| answer.into_inner().replayed)
    };
    assert!(!send("one").await.expect("sent"));
    put(&node, "welcome", "Hello {{ name }}").await;
    assert!(send("one").await.expect("a repeat has the first answer"));
    send("two").await.expect_err("the new version needs a name");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeat_of_a_message_is_known_after_its_template_was_deleted() {
    let node = node("").await;
    put(&node, "welcome", "first").await;
    let named = |key: &str, template: &str, rule: KeyRule| SendMessageRequest {
        content: None,
        template: template.to_owned(),
        key_rule: rule.into(),
        ..message(key, &["ada@example.net"])
    };
    let send = async |request: SendMessageRequest| {
        node.messages().send_message(request).await.map(|answer| answer.into_inner())
    };
    let run_of =
        |answer: &SendMessageResponse| answer.message.as_ref().and_then(|one| one.run.clone()).map(|run| run.run);
    let first = send(named("one", "welcome", KeyRule::Strict)).await.expect("sent");
    let delete = DeleteTemplateRequest { name: "welcome".to_owned(), ..DeleteTemplateRequest::default() };
    node.templates().delete_template(delete).await.expect("deleted");
    for validate_only in [false, true] {
        for template in ["welcome", "welcome@1"] {
            let repeat = |rule| SendMessageRequest { validate_only, ..named("one", template, rule) };
            let again = send(repeat(KeyRule::FirstWins)).await.expect("the first call wins");
            assert_eq!((again.replayed, run_of(&again)), (true, run_of(&first)));
            let refused = send(repeat(KeyRule::Strict)).await.expect_err("it cannot be compared");
            assert_eq!(reason(&refused), (Code::AlreadyExists, "REQUEST_ID_REUSED".to_owned()), "{refused}");
            assert!(refused.message().contains("KEY_RULE_FIRST_WINS"), "{refused}");
        }
    }
    for rule in [KeyRule::FirstWins, KeyRule::Strict] {
        let unknown = send(named("two", "welcome", rule)).await.expect_err("no such template");
        assert_eq!(reason(&unknown), (Code::InvalidArgument, "TEMPLATE_NOT_FOUND".to_owned()), "{unknown}");
    }
    // A content that no rule allows is no reason to refuse what compares nothing.
    let empty = SendMessageRequest { key_rule: KeyRule::FirstWins.into(), content: None, ..message("one", &[]) };
    assert_eq!(run_of(&send(empty).await.expect("the first call wins")), run_of(&first));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn used_template_is_not_deleted_and_its_used_versions_stay() {
    let node = node("").await;
    put(&node, "welcome", "first").await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        create(&node, name, "welcome@1").await.expect("created");
    }
    let delete = DeleteTemplateRequest { name: "welcome".to_owned(), ..DeleteTemplateRequest::default() };
    for validate_only in [true, false] {
        let request = DeleteTemplateRequest { validate_only, ..delete.clone() };
        let used = node.templates().delete_template(request).await.expect_err("it is used");
        assert_eq!(reason(&used), (Code::FailedPrecondition, "IN_USE".to_owned()));
        assert_eq!(used.message(), "template 'welcome' is used by 'a', 'b', 'c', 'd', 'e' and 1 more");
    }
    for number in 0..120 {
        put(&node, "welcome", &format!("subject {number}")).await;
    }
    let get = GetTemplateRequest { name: "welcome".to_owned(), ..GetTemplateRequest::default() };
    let got_etag = async || {
        let got = node.templates().get_template(get.clone()).await.expect("a template").into_inner();
        got.template.expect("a template").etag
    };
    let got = node.templates().get_template(get.clone()).await.expect("a template").into_inner();
    let versions = got.template.expect("a template").versions;
    let kept: Vec<u32> = versions.iter().map(|version| version.version).collect();
    assert_eq!((kept.len(), kept[0], kept[1], got.version), (100, 1, 23, 121), "the used version stays");
    assert_eq!(versions[0].users, 6);
    for name in ["a", "b", "c", "d", "e", "f"] {
        let request = DeleteScheduleRequest { name: name.to_owned(), ..DeleteScheduleRequest::default() };
        node.schedules().delete_schedule(request).await.expect("deleted");
    }
    let etag = got_etag().await;
    put(&node, "welcome", "another one").await;
    let late = DeleteTemplateRequest { etag, ..delete.clone() };
    for (validate_only, etag) in [(true, &late.etag), (false, &late.etag), (false, &"0".to_owned())] {
        let request = DeleteTemplateRequest { validate_only, etag: etag.clone(), ..delete.clone() };
        let stale = node.templates().delete_template(request).await.expect_err("another version came");
        assert_eq!(reason(&stale), (Code::Aborted, "ETAG_MISMATCH".to_owned()), "{etag}");
    }
    let delete = DeleteTemplateRequest { etag: got_etag().await, ..delete };
    assert!(node.templates().delete_template(delete.clone()).await.expect("deleted").into_inner().index > 0);
    let gone = node.templates().delete_template(delete).await.expect_err("gone");
    assert_eq!(reason(&gone), (Code::NotFound, "TEMPLATE_NOT_FOUND".to_owned()));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preview_renders_stored_and_given_contents() {
    let node = node("").await;
    put(&node, "welcome", "Hello {{ name }}").await;
    let preview = |version, values: &[(&str, &str)]| PreviewTemplateRequest {
        name: "welcome".to_owned(),
        version,
        recipient: "Ada@Example.net".to_owned(),
        values: values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..PreviewTemplateRequest::default()
    };
    let shown = node.templates().preview_template(preview(0, &[("name", "Ada")])).await.expect("rendered").into_inner();
    assert_eq!((shown.subject.as_str(), shown.version), ("Hello Ada", 1));
    assert_eq!(shown.text.as_deref(), Some("Dear Ada@Example.net"));
    let given = PreviewTemplateRequest { content: Some(content("Bye {{ name }}")), ..preview(0, &[("name", "Ada")]) };
    let shown = node.templates().preview_template(given).await.expect("rendered").into_inner();
    assert_eq!((shown.subject.as_str(), shown.version), ("Bye Ada", 0));
    for (request, field) in [
        (preview(0, &[]), "values: "),
        (PreviewTemplateRequest { content: Some(content("{{ name }}")), ..preview(0, &[]) }, "content.subject: "),
        (PreviewTemplateRequest { recipient: "ada".to_owned(), ..preview(0, &[]) }, "recipient: "),
    ] {
        let refused = node.templates().preview_template(request).await.expect_err("it is wrong");
        assert!(refused.message().starts_with(field), "{refused:?}");
    }
    let missing = node.templates().preview_template(preview(7, &[])).await.expect_err("no such version");
    assert_eq!(reason(&missing), (Code::NotFound, "TEMPLATE_NOT_FOUND".to_owned()));
    assert_eq!(node.sink.accepted_count(), 0);
    node.stop().await;
}

/// The node that is asked may be behind the one that has stored the template.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_with_a_template_reads_the_latest_state() {
    let node = node("").await;
    put(&node, "welcome", "One").await;
    let admin = Admin::new(node.shared_context()).with_insecure_callers();
    let steps = || std::mem::take(&mut *admin.steps.lock());
    let mut messages = MessageServiceClient::new(connected(address_of(admin.clone()).await).await);
    messages.send_message(message("inline", &["ann@example.net"])).await.expect("sent");
    assert_eq!(steps(), ["propose"]);
    let named =
        SendMessageRequest { template: "welcome".to_owned(), content: None, ..message("named", &["ann@example.net"]) };
    messages.send_message(named).await.expect("sent");
    assert_eq!(steps(), ["read", "propose"]);
    node.stop().await;
}

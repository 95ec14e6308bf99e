//! Sealed audiences over the API: created, used by schedules, deleted.

use reveille_cluster::file_store::{GeneratedAudience, encode, name as part_name};
use reveille_proto::admin::v1::{
    Audience, Daily, DeleteAudienceRequest, DeleteScheduleRequest, ExplainRequest, GetAudienceRequest,
    GetScheduleRequest, ListAudiencesRequest, Policies, PrepareAudienceRequest, PutPartRequest, RecipientState, Run,
    RunState, ScheduleBody, SealAudienceRequest, SealedAudience, TriggerScheduleRequest, When, when,
};
use tonic::{Code, Status};

use super::harness::{Node, creation, node, reason, yearly};

const RECIPIENTS: u32 = 300;

fn generated(seed: u64) -> GeneratedAudience {
    GeneratedAudience { seed, recipients: RECIPIENTS, columns: vec!["name".to_owned()] }
}

/// Uploads the only part of an audience and seals it.
pub async fn imported(node: &Node, name: &str, generated: &GeneratedAudience) -> Result<SealedAudience, Status> {
    let bytes = encode(&generated.list());
    let part = part_name(&bytes).expect("a part").0.to_vec();
    node.audiences()
        .put_part(tokio_stream::iter([PutPartRequest { part: part.clone(), number: 0, piece: bytes }]))
        .await?;
    sealed(node, name, generated, part).await
}

/// Seals an audience of this part, which may be on no node.
async fn sealed(
    node: &Node,
    name: &str,
    GeneratedAudience { recipients, columns, .. }: &GeneratedAudience,
    part: Vec<u8>,
) -> Result<SealedAudience, Status> {
    let request = SealAudienceRequest {
        name: name.to_owned(),
        recipients: *recipients,
        columns: columns.clone(),
        parts: vec![part],
        request_id: uuid::Uuid::new_v4().to_string(),
        ..SealAudienceRequest::default()
    };
    let mut messages = node.audiences().seal_audience(request).await?.into_inner();
    let mut last = None;
    while let Some(message) = messages.message().await? {
        assert!(last.is_none(), "a message after the last one: {message:?}");
        last = message.audience;
    }
    Ok(last.expect("the last message has it"))
}

async fn started(node: &Node, name: &str) -> SealedAudience {
    imported(node, name, &generated(7)).await.expect("made")
}

fn to(name: &str) -> Option<Audience> {
    Some(Audience { sealed: name.to_owned(), ..Audience::default() })
}

async fn triggered(node: &Node, schedule: &str) -> Run {
    let (name, request_id) = (schedule.to_owned(), "now".to_owned());
    let request = TriggerScheduleRequest { name, request_id, ..TriggerScheduleRequest::default() };
    node.schedules().trigger_schedule(request).await.expect("triggered").into_inner().run.expect("a run")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_create_is_the_same_and_other_body_needs_other_name() {
    let node = node("").await;
    let first = started(&node, "all").await;
    assert_eq!((first.tenant.as_str(), first.name.as_str(), first.recipients), ("default", "all", RECIPIENTS));
    assert_eq!((first.columns.as_slice(), first.parts, first.missing), (["name".to_owned()].as_slice(), 1, 0));
    assert!(first.seal_time.is_some() && first.index > 0 && first.seal.len() == 64, "{first:?}");
    assert_eq!(started(&node, "all").await, first);

    let others = [
        generated(8),
        GeneratedAudience { recipients: 301, ..generated(7) },
        GeneratedAudience { columns: vec![], ..generated(7) },
    ];
    for other in others {
        let taken = imported(&node, "all", &other).await.expect_err("the name is taken");
        assert_eq!(reason(&taken), (Code::AlreadyExists, "NAME_TAKEN".to_owned()));
    }
    started(&node, "more").await;
    let request = ListAudiencesRequest { page_size: 1, ..ListAudiencesRequest::default() };
    let page = node.audiences().list_audiences(request.clone()).await.expect("a page").into_inner();
    assert_eq!(page.audiences, std::slice::from_ref(&first));
    let request = ListAudiencesRequest { page_token: page.next_page_token, ..request };
    let page = node.audiences().list_audiences(request).await.expect("a page").into_inner();
    assert_eq!((page.audiences.len(), page.audiences[0].name.as_str(), page.next_page_token.as_str()), (1, "more", ""));
    let request = GetAudienceRequest { name: "all".to_owned(), ..GetAudienceRequest::default() };
    let got = node.audiences().get_audience(request).await.expect("it is there").into_inner();
    assert_eq!(got.audience, Some(first));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_audience_is_refused_before_any_part_is_written() {
    let node = node("").await;
    let requested = |name: &str, recipients: u32, column: &str| PrepareAudienceRequest {
        name: name.to_owned(),
        recipients,
        columns: vec![column.to_owned()],
        ..PrepareAudienceRequest::default()
    };
    let wrong = [
        (requested("all", 0, "name"), "recipients: "),
        (requested("all", 67_108_865, "name"), "recipients: "),
        (requested("a b", RECIPIENTS, "name"), "name: "),
        (requested("all", RECIPIENTS, ""), "columns[0]: "),
    ];
    for (request, field) in wrong {
        let refused = node.audiences().prepare_audience(request).await.expect_err("it is wrong");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().starts_with(field), "{refused:?}");
    }
    let name = "missing".to_owned();
    let unknown = GetAudienceRequest { name: name.clone(), ..GetAudienceRequest::default() };
    let unknown = node.audiences().get_audience(unknown).await.expect_err("it is not there");
    assert_eq!(reason(&unknown), (Code::NotFound, "AUDIENCE_NOT_FOUND".to_owned()));
    let delete = DeleteAudienceRequest { name, ..DeleteAudienceRequest::default() };
    let unknown = node.audiences().delete_audience(delete).await.expect_err("it is not there");
    assert_eq!(reason(&unknown), (Code::NotFound, "AUDIENCE_NOT_FOUND".to_owned()));

    let unknown = ScheduleBody { audience: to("missing"), ..yearly("report", &[]) };
    let unknown = node.schedules().create_schedule(creation(unknown)).await.expect_err("no such audience");
    assert!(unknown.message().starts_with("schedule.audience.sealed: "), "{unknown:?}");
    started(&node, "all").await;
    let both =
        Audience { sealed: "all".to_owned(), ..yearly("report", &["ada@example.net"]).audience.expect("a list") };
    let both = ScheduleBody { audience: Some(both), ..yearly("report", &[]) };
    let both = node.schedules().create_schedule(creation(both)).await.expect_err("a list and a name");
    assert!(both.message().starts_with("schedule.audience.sealed: "), "{both:?}");
    let mut content = yearly("report", &[]).content.expect("content");
    content.subject = "Hello {{ surname }}".to_owned();
    let unfit = ScheduleBody { audience: to("all"), content: Some(content), ..yearly("report", &[]) };
    let unfit = node.schedules().create_schedule(creation(unfit)).await.expect_err("no such column");
    assert!(unfit.message().starts_with("schedule.content.subject: "), "{unfit:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daily_schedule_to_it_has_no_gap_and_is_refused_one() {
    let node = node("").await;
    started(&node, "all").await;
    let daily = Daily { hour: 9, minute: 0, days: String::new() };
    let when = Some(When { pattern: Some(when::Pattern::Daily(daily)) });
    let body = ScheduleBody { timing: when, audience: to("all"), ..yearly("report", &[]) };
    let created = node.schedules().create_schedule(creation(body.clone())).await.expect("created").into_inner();
    let gap = created.schedule.and_then(|known| known.policies?.min_gap);
    assert_eq!(gap.map(|gap| gap.seconds), Some(0));
    let policies = Policies { min_gap: Some(prost_types::Duration { seconds: 60, nanos: 0 }), ..Policies::default() };
    let apart = ScheduleBody { name: "apart".to_owned(), policies: Some(policies), ..body };
    let refused = node.schedules().create_schedule(creation(apart)).await.expect_err("a gap for it");
    assert!(refused.message().starts_with("schedule.policies.min_gap: "), "{refused:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_audience_gets_one_email_each_and_stays_while_in_use() {
    let node = node("").await;
    started(&node, "all").await;
    let mut content = yearly("report", &[]).content.expect("content");
    content.subject = "Hello {{ name }}".to_owned();
    let body = ScheduleBody { audience: to("all"), content: Some(content), ..yearly("report", &[]) };
    node.schedules().create_schedule(creation(body)).await.expect("created");
    let run = triggered(&node, "report").await.run;
    let last = node.until(&run, |run| run.state() == RunState::Finished).await;
    let counts = last.counts.expect("counts");
    assert_eq!((last.audience, counts.sent, node.sink.accepted_count()), (RECIPIENTS, RECIPIENTS, RECIPIENTS as u64));

    // The number and the address name the same recipient.
    let explain = |recipient: &str| ExplainRequest {
        run: run.clone(),
        recipient: recipient.to_owned(),
        ..ExplainRequest::default()
    };
    let history = node.runs().explain(explain("#17")).await.expect("a story").into_inner();
    assert_eq!((history.recipient.as_str(), history.state()), ("r00000017.s7@audience.invalid", RecipientState::Sent));
    let same = node.runs().explain(explain(&history.recipient)).await.expect("a story").into_inner();
    assert_eq!((same.number, same.events), (17, history.events));
    let stranger = node.runs().explain(explain("ada@example.net")).await.expect_err("not of it");
    assert_eq!(stranger.code(), Code::NotFound);

    // A schedule is shown with the audience as it was given.
    let name = "report".to_owned();
    let shown = GetScheduleRequest { name: name.clone(), with_body: true, ..GetScheduleRequest::default() };
    let shown = node.schedules().get_schedule(shown).await.expect("a schedule").into_inner();
    assert_eq!(shown.body.and_then(|body| body.audience), to("all"));

    let delete = || DeleteAudienceRequest { name: "all".to_owned(), ..DeleteAudienceRequest::default() };
    let used = node.audiences().delete_audience(delete()).await.expect_err("a schedule sends to it");
    assert_eq!(reason(&used), (Code::FailedPrecondition, "IN_USE".to_owned()));
    assert!(used.message().contains("'report'"), "{used:?}");
    let request = DeleteScheduleRequest { name, ..DeleteScheduleRequest::default() };
    node.schedules().delete_schedule(request).await.expect("deleted");
    let list = node.audiences().list_audiences(ListAudiencesRequest::default()).await.expect("a list").into_inner();
    let etag = list.audiences[0].etag.clone();
    let late = DeleteAudienceRequest { etag: format!("{etag}0"), ..delete() };
    let late = node.audiences().delete_audience(late).await.expect_err("it was read before it was sealed again");
    assert_eq!(reason(&late), (Code::Aborted, "ETAG_MISMATCH".to_owned()));
    let delete = DeleteAudienceRequest { etag, request_id: "once".to_owned(), ..delete() };
    let first = node.audiences().delete_audience(delete.clone()).await.expect("no schedule sends to it").into_inner();
    for validate_only in [false, true] {
        let repeat = DeleteAudienceRequest { validate_only, ..delete.clone() };
        let repeat = node.audiences().delete_audience(repeat).await.expect("the first answer").into_inner();
        assert_eq!(repeat, first, "{validate_only}");
    }
    let list = node.audiences().list_audiences(ListAudiencesRequest::default()).await.expect("a list").into_inner();
    assert_eq!(list.audiences, []);
    let history = node.runs().explain(explain("#17")).await.expect("the run keeps its part").into_inner();
    assert_eq!(history.recipient, "r00000017.s7@audience.invalid");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_of_parts_are_asked_before_every_seal() {
    let node = node("").await;
    let bytes = encode(&generated(9).list());
    let part = part_name(&bytes).expect("a part");
    let put = || PutPartRequest { part: part.0.to_vec(), number: 1, piece: bytes.clone() };
    let prepare = || PrepareAudienceRequest {
        name: "list".to_owned(),
        recipients: RECIPIENTS,
        columns: vec!["name".to_owned()],
        parts: vec![part.0.to_vec()],
        ..PrepareAudienceRequest::default()
    };
    let missing = async || node.audiences().prepare_audience(prepare()).await.expect("asked").into_inner().missing;
    assert_eq!(missing().await, [part.0.to_vec()]);
    let early = sealed(&node, "list", &generated(9), part.0.to_vec()).await.expect_err("no node has it");
    assert!(early.message().contains("1 of 1 parts are on no node"), "{early:?}");
    node.audiences().put_part(tokio_stream::iter([put()])).await.expect("it is kept");
    assert_eq!(missing().await, Vec::<Vec<u8>>::new());
    let first = sealed(&node, "list", &generated(9), part.0.to_vec()).await.expect("sealed");

    // A sealed audience may be deleted while it is sealed again, so its parts must exist and be protected from removal.
    let file = node.folder.path().join("parts").join(part.to_string());
    std::fs::remove_file(&file).expect("it was there");
    let gone = sealed(&node, "list", &generated(9), part.0.to_vec()).await.expect_err("its part is gone");
    assert_eq!(reason(&gone), (Code::FailedPrecondition, "PARTS_MISSING".to_owned()));
    assert_eq!(missing().await, [part.0.to_vec()]);
    node.audiences().put_part(tokio_stream::iter([put()])).await.expect("it is kept again");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7 * 3_600);
    let opened = std::fs::File::options().append(true).open(&file);
    opened.and_then(|file| file.set_modified(old)).expect("it is old");
    assert_eq!(sealed(&node, "list", &generated(9), part.0.to_vec()).await.expect("it is there"), first);
    let since = std::fs::metadata(&file).and_then(|about| about.modified()).expect("its age");
    assert!(since > old + std::time::Duration::from_secs(3_600), "it is as young as if it were new");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_comes_again_with_its_bytes_and_with_no_others() {
    let node = node("").await;
    let (bytes, others) = (encode(&generated(9).list()), encode(&generated(10).list()));
    let part = part_name(&bytes).expect("a part");
    // A client sends the part's name with the first piece only.
    let put = async |bytes: &[u8]| {
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        let named = PutPartRequest { part: part.0.to_vec(), number: 3, piece: first.to_vec() };
        let rest = PutPartRequest { piece: rest.to_vec(), ..PutPartRequest::default() };
        node.audiences().put_part(tokio_stream::iter([named, rest])).await.map(drop)
    };
    put(&bytes).await.expect("it is kept");
    put(&bytes).await.expect("it is the same again");
    let mut damaged = bytes.clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    for (bytes, why) in [
        (others.as_slice(), "part 3: these bytes are not the part that was announced"),
        (damaged.as_slice(), "part 3: "),
        (&bytes[..bytes.len() - 1], "part 3: "),
        (&[], "part 3: "),
    ] {
        let refused = put(bytes).await.expect_err("other bytes");
        assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()), "{refused:?}");
        assert!(refused.message().contains(why), "{refused:?}");
    }
    // The first upload is the sealed one.
    let file = node.folder.path().join("parts").join(part.to_string());
    assert_eq!(std::fs::read(file).expect("it is there"), bytes);
    assert_eq!(sealed(&node, "list", &generated(9), part.0.to_vec()).await.expect("sealed").recipients, RECIPIENTS);
    node.stop().await;
}

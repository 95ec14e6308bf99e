//! Attachments: stored on a majority before the entry that names them, and read by each worker (P20).

use std::time::{Duration, SystemTime};

use reveille_cluster::file_store::{encode_attachment, spread};
use reveille_ledger::RunFile;
use reveille_ledger::command::{Command, ScheduleCreate, TemplatePut};
use reveille_ledger::content::{Attachment, Content, ContentChoice};
use reveille_ledger::ids::Hash;

use super::cluster::*;
use super::parts::{file, removed_and_damaged};
use super::reconciliation::*;
use crate::support::schedule;

const RECIPIENTS: u32 = 40;
const DATA: &[u8] = &[b'%'; 100_000];

/// Puts a file on a majority by this node, as the admin service does.
pub async fn stored(cluster: &Cluster, index: usize, data: &[u8]) -> Hash {
    let (name, bytes) = encode_attachment(data);
    let context = cluster.nodes[index].context();
    assert_eq!(context.files.put(&bytes).expect("it is kept"), name);
    assert_eq!(spread(context, &[name]).await, Ok(Vec::new()), "a majority has it");
    name
}

/// Returns a schedule whose emails carry this file.
fn with_file(file: Hash, size: usize) -> Command {
    let (create, content) = parts_of_schedule(file, size);
    Command::ScheduleCreate(Box::new(ScheduleCreate { content: content.into(), ..create }))
}

/// Returns a template whose emails carry this file.
pub fn template_with_file(file: Hash, size: usize) -> Command {
    let (_, content) = parts_of_schedule(file, size);
    let (tenant, name) = ("default".to_owned(), "terms".to_owned());
    Command::TemplatePut(Box::new(TemplatePut { tenant, name, content, expected: None }))
}

fn parts_of_schedule(file: Hash, size: usize) -> (ScheduleCreate, Content) {
    let Command::ScheduleCreate(create) = schedule(RECIPIENTS) else { panic!("it creates a schedule") };
    let ContentChoice::Given(mut content) = create.content.clone() else { panic!("it has a content") };
    content.attachments = vec![Attachment {
        name: "terms.pdf".to_owned(),
        content_type: "application/pdf".to_owned(),
        content_id: None,
        size: size as u64,
        file,
    }];
    (*create, content)
}

async fn all_arrive_once_with_the_file(cluster: &Cluster, index: usize) {
    let context = cluster.nodes[index].context();
    until("all are sent", || is_all_sent(context, RECIPIENTS).then_some(())).await;
    assert_consistent(cluster, RECIPIENTS).await;
    // 57 bytes a line.
    let line = "JSUl".repeat(19) + "\r\n";
    for (number, _) in cluster.sink.emails().iter() {
        let text = cluster.sink.text(number).expect("its text");
        let text = String::from_utf8_lossy(&text);
        assert_eq!(text.matches(&line).count(), DATA.len() / 57, "each has all of it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lacking_and_damaged_attachments_are_fetched_and_each_email_has_its_file() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let name = stored(&cluster, leads, DATA).await;
    let (gone, whole) = removed_and_damaged(&cluster, leads, name, 50_000).await;
    cluster.put(leads, relay(&cluster, 0)).await;
    cluster.put(leads, with_file(name, DATA.len())).await;
    all_arrive_once_with_the_file(&cluster, leads).await;
    let is_whole = |index| std::fs::read(file(&cluster, index, name)).is_ok_and(|bytes| bytes == whole);
    until("the file is fetched", || is_whole(gone).then_some(())).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_killed_between_file_and_entry_costs_a_repeat_of_the_request() {
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let name = stored(&cluster, leads, DATA).await;
    cluster.kill(leads).await;
    let next = cluster.leader_but(Some(leads)).await;
    assert_eq!(stored(&cluster, next, DATA).await, name, "the request again, at another node");
    cluster.put(next, relay(&cluster, 0)).await;
    cluster.put(next, with_file(name, DATA.len())).await;
    all_arrive_once_with_the_file(&cluster, next).await;

    // A file that was never named goes, and that of the run stays.
    let never_named = stored(&cluster, next, b"given up").await;
    for kept in [name, never_named] {
        let old = SystemTime::now() - Duration::from_secs(9 * 3_600);
        std::fs::File::open(file(&cluster, next, kept)).expect("it is there").set_modified(old).expect("it is older");
    }
    until("the unneeded file is gone", || (!file(&cluster, next, never_named).exists()).then_some(())).await;
    assert!(file(&cluster, next, name).exists());
    cluster.restart(leads).await;
    until("the node that was away has it, too", || file(&cluster, leads, name).exists().then_some(())).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_without_its_attachment_is_blocked_until_a_node_has_it() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    // The hash is known, and no node has the file, as after the loss of a majority.
    let (name, bytes) = encode_attachment(DATA);
    cluster.put(leads, relay(&cluster, 0)).await;
    cluster.put(leads, with_file(name, DATA.len())).await;
    let context = cluster.nodes[leads].context();
    let blocked = || context.replica.read(|ledger| ledger.runs().next().and_then(|(_, _, run)| run.blocked));
    assert_eq!(until("it is said", blocked).await.file, RunFile::Attachment);
    assert_eq!(cluster.sink.accepted_count(), 0);
    cluster.nodes[(leads + 1) % 3].context().files.put(&bytes).expect("it is kept");
    all_arrive_once_with_the_file(&cluster, leads).await;
    until("it is free", || blocked().is_none().then_some(())).await;
    cluster.end().await;
}

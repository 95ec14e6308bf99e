//! Sealed audiences: stored on a majority before the seal, read by each worker, and fetched by nodes that lack them
//! (P20).

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use reveille_cluster::file_store::{GeneratedAudience, SpreadError, encode, name, spread};
use reveille_ledger::command::{AudienceDelete, Command, OptOut, ScheduleDelete};
use reveille_ledger::ids::Hash;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{RecipientState, RunFile};

use super::cluster::*;
use super::reconciliation::*;
use crate::support::schedule_to;

const RECIPIENTS: u32 = 600;

fn generated() -> GeneratedAudience {
    GeneratedAudience { seed: 7, recipients: RECIPIENTS, columns: vec!["name".to_owned()] }
}

pub fn file(cluster: &Cluster, index: usize, file: Hash) -> PathBuf {
    cluster.nodes[index].data().join("parts").join(file.to_string())
}

/// Removes a file from one follower, and damages it at this byte on the other one. Returns the first follower, and the
/// bytes of the file.
pub async fn removed_and_damaged(cluster: &Cluster, leads: usize, name: Hash, byte: usize) -> (usize, Vec<u8>) {
    let (gone, damaged) = ((leads + 1) % 3, (leads + 2) % 3);
    let whole = std::fs::read(file(cluster, leads, name)).expect("it was written");
    // A majority is enough for the entry that names it. The third node stores the file later.
    for index in [gone, damaged] {
        until("every node has it", || file(cluster, index, name).exists().then_some(())).await;
    }
    std::fs::remove_file(file(cluster, gone, name)).expect("it is there");
    let mut other = whole.clone();
    other[byte] ^= 1;
    std::fs::write(file(cluster, damaged, name), other).expect("it is damaged");
    (gone, whole)
}

async fn all_arrive_once(cluster: &Cluster, index: usize) {
    let context = cluster.nodes[index].context();
    until("all are sent", || is_all_sent(context, RECIPIENTS).then_some(())).await;
    assert_consistent(cluster, RECIPIENTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_sends_sealed_audience_from_own_parts() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let (_, to) = sealed(&cluster, (leads + 1) % 3, &generated()).await;
    // An opted-out recipient is recognized by the key in the part (P15).
    let key = generated().recipient(17).key;
    let opt_out = Command::OptOut(OptOut { tenant: "default".to_owned(), keys: vec![key] });
    cluster.put(leads, opt_out).await;
    cluster.put(leads, relay(&cluster, 0)).await;
    cluster.put(leads, schedule_to(to)).await;
    let context = cluster.nodes[leads].context();
    until("all are sent", || is_all_sent(context, RECIPIENTS - 1).then_some(())).await;
    assert_eq!(count(context, RecipientState::Suppressed), 1);
    assert_consistent(&cluster, RECIPIENTS).await;
    for index in 0..3 {
        assert!(accepts_of(&cluster, index) > 0, "node {index} sends, too");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lacking_part_is_fetched_and_no_recipient_is_lost() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let (part, to) = sealed(&cluster, leads, &generated()).await;
    let last = std::fs::metadata(file(&cluster, leads, part)).expect("it was written").len() as usize - 1;
    let (gone, whole) = removed_and_damaged(&cluster, leads, part, last).await;
    cluster.put(leads, relay(&cluster, 0)).await;
    cluster.put(leads, schedule_to(to)).await;
    let is_whole = |index| std::fs::read(file(&cluster, index, part)).is_ok_and(|bytes| bytes == whole);
    until("the part is fetched", || is_whole(gone).then_some(())).await;
    all_arrive_once(&cluster, leads).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audience_is_sealed_by_a_majority_without_waiting_for_the_last() {
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    cluster.isolate(leads);
    let context = cluster.nodes[leads].context();
    let part = context.files.put(&encode(&generated().list())).expect("it is kept");
    let alone = spread(context, &[part]).await;
    assert!(matches!(alone, Err(SpreadError::TooFew { answered: 1, voters: 3, .. })), "{alone:?}");
    cluster.network.heal();
    cluster.kill(leads).await;
    let next = cluster.leader_but(Some(leads)).await;
    let (part, to) = sealed(&cluster, next, &generated()).await;
    cluster.put(next, relay(&cluster, 0)).await;
    cluster.put(next, schedule_to(to)).await;
    all_arrive_once(&cluster, next).await;
    let unneeded = file(&cluster, leads, Hash::of(b"of an audience that is gone"));
    let written = std::fs::File::create(&unneeded).expect("a file");
    written.set_modified(SystemTime::now() - Duration::from_secs(9 * 3_600)).expect("it is old");
    cluster.restart(leads).await;
    until("the node that was away has it, too", || file(&cluster, leads, part).exists().then_some(())).await;
    until("the unneeded part is gone", || (!unneeded.exists()).then_some(())).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploaded_audience_reaches_a_majority_and_survives_a_crash() {
    let mut cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let (one, other) = ((leads + 1) % 3, (leads + 2) % 3);
    let bytes = encode(&generated().list());
    let part = name(&bytes).expect("a part");
    let unknown = Hash([7; 32]);
    // The client sent the part to a node that did not pass it on, and then repeated the upload at another node.
    cluster.nodes[one].context().files.store_upload(part, &bytes).expect("it is kept");
    let missing = spread(cluster.nodes[other].context(), &[part, unknown]).await.expect("a majority");
    assert_eq!(missing, [unknown], "what one member has is not sent again");
    let count = (0..3).filter(|index| file(&cluster, *index, part).exists()).count();
    assert!(count >= 2, "{count} nodes have it");
    assert_eq!(std::fs::read(file(&cluster, one, part)).ok(), Some(bytes));

    // Any node may die: confirmed parts are still on a majority, and are not requested again.
    cluster.kill(one).await;
    let next = cluster.leader_but(Some(one)).await;
    assert_eq!(spread(cluster.nodes[next].context(), &[part]).await, Ok(Vec::new()));
    let alive = (0..3).filter(|index| *index != one && file(&cluster, *index, part).exists()).count();
    assert_eq!(alive, 2, "of the nodes that are left a majority has it again");

    // A node alone cannot confirm a part.
    cluster.isolate(next);
    let alone = spread(cluster.nodes[next].context(), &[part]).await;
    assert!(matches!(alone, Err(SpreadError::TooFew { answered: 1, voters: 3, .. })), "{alone:?}");
    cluster.network.heal();
    cluster.restart(one).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_an_upload_that_was_given_up_go_and_those_of_an_open_run_stay() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let (needed, to) = sealed(&cluster, leads, &generated()).await;
    let bytes = encode(&GeneratedAudience { seed: 8, ..generated() }.list());
    let given_up = name(&bytes).expect("a part");
    let context = cluster.nodes[leads].context();
    context.files.store_upload(given_up, &bytes).expect("it is kept");
    // A run is open, and no relay serves it. Its schedule and the audience's name are deleted.
    cluster.put(leads, schedule_to(to)).await;
    let run = until("a run", || context.replica.read(|ledger| ledger.runs().next().map(|(id, ..)| id))).await;
    let (tenant, name) = ("default".to_owned(), "all".to_owned());
    let schedule = context.replica.read(|ledger| ledger.schedules().iter().next().map(|(id, _)| *id));
    let delete = ScheduleDelete { schedule: schedule.expect("a schedule"), expected: None };
    let delete = Command::ScheduleDelete(delete);
    assert_eq!(cluster.put(leads, delete).await.outcome, CommandOutcome::Done);
    let delete = AudienceDelete { request: None, tenant, name, expected: None };
    assert_eq!(cluster.put(leads, Command::AudienceDelete(delete)).await.outcome, CommandOutcome::Done);
    for part in [needed, given_up] {
        let old = SystemTime::now() - Duration::from_secs(9 * 3_600);
        let file = std::fs::File::open(file(&cluster, leads, part)).expect("it is there");
        file.set_modified(old).expect("it is older");
    }
    until("the unneeded part is gone", || (!file(&cluster, leads, given_up).exists()).then_some(())).await;
    assert!(file(&cluster, leads, needed).exists(), "{run} needs it");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_without_part_is_blocked_until_a_node_has_it() {
    let cluster = Cluster::start().await;
    let leads = cluster.leader().await;
    let (part, to) = sealed(&cluster, leads, &generated()).await;
    let bytes = std::fs::read(file(&cluster, leads, part)).expect("it was written");
    let gone = |index| match std::fs::remove_file(file(&cluster, index, part)) {
        Ok(()) => false,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    // Removes the part from all nodes at each attempt, because a node may have fetched it from another meanwhile.
    let all_lack = || {
        let gone = [0, 1, 2].map(gone);
        gone == [true; 3] && (0..3).all(|index| cluster.nodes[index].context().files.missing() == [part])
    };
    until("no node has it", || all_lack().then_some(())).await;
    cluster.put(leads, relay(&cluster, 0)).await;
    cluster.put(leads, schedule_to(to)).await;
    let blocked = |index: usize| {
        let context: &reveille_cluster::process::context::NodeContext = cluster.nodes[index].context();
        context.replica.read(|ledger| ledger.runs().next().and_then(|(_, _, run)| run.blocked))
    };
    for index in 0..3 {
        let mark = until("it is said, on every node", || blocked(index)).await;
        assert_eq!(mark.file, RunFile::Part(0));
    }
    assert_eq!(cluster.sink.accepted_count(), 0);

    // As an import of the same list would do.
    cluster.nodes[(leads + 1) % 3].context().files.store_upload(part, &bytes).expect("it is kept");
    all_arrive_once(&cluster, leads).await;
    for index in 0..3 {
        until("it is free", || blocked(index).is_none().then_some(())).await;
    }
    cluster.end().await;
}

//! The commands of a test, reads of the ledger, and the final check: the mailbox's record against all ledgers.

use std::collections::{BTreeMap, BTreeSet};

use reveille_cluster::file_store::{GeneratedAudience, encode, spread};
use reveille_cluster::process::context::NodeContext;
use reveille_ledger::access::Access;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{AudienceSeal, Command, Relay, ScheduleCreate};
use reveille_ledger::content::{AudienceChoice, NamedAudience, Seal};
use reveille_ledger::ids::{ClaimOwner, Hash, NodeId, RunId};
use reveille_ledger::invariants::violations;
use reveille_ledger::policy::Policies;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::{Claim, Ledger, RecipientState};

use super::cluster::{Cluster, until};
pub use crate::support::{address, schedule};

/// Dialogues that one node may have open with the mailbox. The node is granted four emails for each, and more once the
/// mailbox has shown its speed.
pub const SESSIONS: u32 = 2;

/// Returns the relay. `rate` is in emails per second over the cluster; 0 means no limit.
pub fn relay(cluster: &Cluster, rate: u64) -> Command {
    relay_named(cluster, "mailbox", "default", rate)
}

pub fn relay_named(cluster: &Cluster, name: &str, pool: &str, rate: u64) -> Command {
    Command::RelayPut(
        Relay {
            name: name.into(),
            pool: pool.into(),
            host: "127.0.0.1".into(),
            port: cluster.sink.address().port(),
            access: Access::default(),
            rate_milli: rate * 1_000,
            max_sessions: SESSIONS,
            late_rate_milli: 0,
            weight: 1,
        }
        .into(),
    )
}

/// Creates the relay and the run on this node.
pub async fn open(cluster: &Cluster, index: usize, recipients: u32, rate: u64) {
    cluster.put(index, relay(cluster, rate)).await;
    let created = cluster.put(index, schedule(recipients)).await;
    assert!(matches!(created.outcome, CommandOutcome::Schedule(_)), "{created:?}");
}

/// Creates the relay and a run with these policies.
pub async fn open_with(cluster: &Cluster, index: usize, recipients: u32, policies: Policies) {
    cluster.put(index, relay(cluster, 0)).await;
    let Command::ScheduleCreate(create) = schedule(recipients) else { unreachable!("it is a create") };
    let create = Command::ScheduleCreate(Box::new(ScheduleCreate { policies, ..*create }));
    let created = cluster.put(index, create).await;
    assert!(matches!(created.outcome, CommandOutcome::Schedule(_)), "{created:?}");
}

/// Uploads the audience to this node and seals it; returns its only part and what a schedule names.
pub async fn sealed(cluster: &Cluster, index: usize, generated: &GeneratedAudience) -> (Hash, AudienceChoice) {
    let context = cluster.nodes[index].context();
    let part = context.files.put(&encode(&generated.list())).expect("it is kept");
    assert_eq!(spread(context, &[part]).await, Ok(Vec::new()), "a majority has it");
    let (rows, columns) = (generated.recipients, generated.columns.clone());
    let seal = Seal { name: "all".to_owned(), columns, rows, parts: vec![part] };
    let named = NamedAudience { name: seal.name.clone(), seal: seal.blob().hash, rows };
    let seal = AudienceSeal { request: None, tenant: "default".to_owned(), seal };
    assert_eq!(cluster.put(index, Command::AudienceSeal(seal)).await.outcome, CommandOutcome::Done);
    (part, AudienceChoice::Sealed(named))
}

/// Returns the number of open and closed claims that were revoked.
pub fn revoked_claims(context: &NodeContext) -> usize {
    context.replica.read(|ledger| {
        let open = ledger.claims().iter().map(|(_, row)| row.clone());
        open.chain(ledger.closed_claims().map(|(_, row)| row)).filter(|row| row.was_revoked()).count()
    })
}

/// Returns how many crashes of this node the ledger knows.
pub fn crashes_of(context: &NodeContext, node: NodeId) -> usize {
    context.replica.read(|ledger| ledger.nodes().get(&node).map_or(0, |node| node.crashes.times().len()))
}

pub fn count(context: &NodeContext, state: RecipientState) -> u32 {
    context.replica.read(|ledger| ledger.runs().map(|(_, _, run)| run.counts.get(state)).sum())
}

/// Returns true if nothing is left to send; recipients in doubt may remain.
pub fn is_over(context: &NodeContext) -> bool {
    context
        .replica
        .read(|ledger| ledger.runs().count() > 0 && ledger.runs().all(|(_, _, run)| run.counts.is_finished()))
}

/// Returns true if all recipients are sent.
pub fn is_all_sent(context: &NodeContext, recipients: u32) -> bool {
    count(context, RecipientState::Sent) == recipients
}

/// Returns recipients of this node's claims, selected by `part`, with the claim's owner. Reads the state of `context`.
fn recipients_of_claims(
    context: &NodeContext,
    node: NodeId,
    part: impl Fn(&Claim) -> &Bitmap,
) -> BTreeMap<u32, ClaimOwner> {
    context.replica.read(|ledger| {
        let claims = ledger.claims().iter().map(|(_, claim)| claim).filter(|claim| claim.owner.node == node);
        let named = claims.flat_map(|claim| {
            let slots: Vec<u16> = part(claim).iter().collect();
            slots.into_iter().filter_map(|slot| {
                let recipient = ledger.recipient_at(claim.chunk, slot)?.number;
                Some((recipient, claim.owner))
            })
        });
        named.collect()
    })
}

pub fn claimed_by(context: &NodeContext, node: NodeId) -> BTreeMap<u32, ClaimOwner> {
    recipients_of_claims(context, node, |claim| &claim.claimed)
}

pub fn in_doubt_of(context: &NodeContext, node: NodeId) -> BTreeMap<u32, ClaimOwner> {
    recipients_of_claims(context, node, |claim| &claim.in_doubt)
}

/// Returns the number of emails accepted from this node so far.
pub fn accepts_of(cluster: &Cluster, index: usize) -> usize {
    cluster.sink.find(|accept| accept.ehlo == cluster.nodes[index].name).len()
}

/// Returns the number of a recipient from its address.
pub fn number_of(address: &str) -> u32 {
    let digits = address.strip_prefix('r').and_then(|rest| rest.split(['@', '.']).next());
    digits.and_then(|digits| digits.parse().ok()).expect("an address of this test")
}

/// Returns the only run.
pub fn run(context: &NodeContext) -> RunId {
    context.replica.read(|ledger| ledger.runs().map(|(id, _, _)| id).next()).expect("a run has opened")
}

/// Compares the mailbox's record with the ledgers of all nodes at the same index:
///
/// - No recipient was accepted twice (I1), and each accept has the fence of a claim that granted it (I2).
/// - A sent recipient was accepted. An accepted recipient that is not sent is in doubt (I9). Others are suppressed
///   (P1).
/// - The ledgers are equal (I11) and sound, and report no duplicate and no contradiction (P14).
pub async fn assert_consistent(cluster: &Cluster, recipients: u32) {
    let hash = |context: &NodeContext| context.replica.read(|ledger| (ledger.head().applied, ledger.state_hash()));
    let contexts: Vec<_> = cluster.nodes.iter().filter(|node| node.runs()).map(|node| node.context()).collect();
    until("all have applied the same entries", || {
        let (indices, hashes): (BTreeSet<_>, BTreeSet<_>) = contexts.iter().map(|context| hash(context)).unzip();
        let quiet = indices.len() == 1;
        assert!(!quiet || hashes.len() == 1, "I11: not the same state at index {indices:?}");
        quiet.then_some(())
    })
    .await;
    for context in &contexts {
        let violations = context.replica.read(violations);
        assert!(violations.is_empty(), "{violations:?}");
    }
    let run = run(contexts[0]);
    contexts[0].replica.read(|ledger| assert_run_consistent(ledger, cluster, run, recipients));
}

fn assert_run_consistent(ledger: &Ledger, cluster: &Cluster, run: RunId, recipients: u32) {
    let open = ledger.claims().iter().map(|(fence, claim)| (*fence, claim.clone()));
    let claims = open.chain(ledger.closed_claims()).map(|(fence, claim)| (fence.to_string(), claim));
    let claims: BTreeMap<String, Claim> = claims.collect();
    let mut accepted = BTreeSet::new();
    for (_, accept) in cluster.sink.emails().iter() {
        let number = number_of(&accept.recipient);
        assert!(accepted.insert(number), "I1: {} was accepted twice", accept.recipient);
        let claim = accept.fence.as_ref().and_then(|fence| claims.get(fence)).expect("I2: the fence of a claim");
        let (_, slot) = ledger.slot_of(run, number).expect("a recipient of the run");
        assert!(claim.granted.contains(slot), "I2: {} was not granted by {:?}", accept.recipient, accept.fence);
    }
    for number in 0..recipients {
        match ledger.state(run, number) {
            Some(RecipientState::Sent) => {
                assert!(accepted.contains(&number), "I9: {number} is sent and did not arrive")
            }
            Some(RecipientState::InDoubt) => {}
            Some(RecipientState::Suppressed) => assert!(!accepted.contains(&number), "P15: {number} arrived"),
            other => panic!("{number} is {other:?}"),
        }
    }
    let of_run = ledger.run(run).expect("the run");
    assert_eq!((of_run.known_duplicates, of_run.contradictions), (0, 0), "P14");
    assert_eq!(of_run.counts.total(), u64::from(recipients), "P1");
}

//! Barriers (P15): after an opt-out, a pause or a cancel is applied, the leader makes sure that every gate on every
//! node takes it into account. The barrier also names the handoffs that had passed their gate before.
//!
//! No barrier waits for a relay. If a node is silent, the barrier waits until the leases granted to it before the entry
//! are over. Later leases carry the entry as their floor (see `lease_grants`), so every barrier ends. [`hold`] is the
//! leader's part, [`answer`] the part of each node, and [`through_leader`] starts a barrier from any node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use reveille_ledger::Ledger;
use reveille_ledger::content::{Recipients, Seal};
use reveille_ledger::ids::{ClaimOwner, Fence, Hash, RecipientId, RunId};
use reveille_ledger::injected_bugs::{self, Bug};

use super::leadership::Leadership;
use crate::process::context::NodeContext;
use crate::process::peer_messages::{
    self, BarrierAnswer, BarrierReport, BarrierRequest, BarrierSubject, CrossedHandoff, HoldBarrier,
};
use crate::smtp::relay_follower;
use crate::worker::in_flight_handoffs::Handoff;

/// Maximum time of one step: the answer to a request, or applying the entry.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before a node, or the leader, is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Reason why a barrier failed. The entry itself is applied and in force; only the report is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BarrierError {
    /// The leader changed before the barrier ended.
    #[error("the leader changed while the barrier was open: ask again")]
    LeaderChanged,
    /// The leader did not reach in time the entry, or the state that another node had applied when it answered.
    #[error("the leader has not applied yet what the barrier needs: ask again")]
    Behind,
    /// No leader answered in time.
    #[error("no leader held the barrier in time: {0}; ask again")]
    TimedOut(String),
}

/// Asks the leader to hold a barrier, from any node, until `deadline`.
///
/// # Errors
/// [`BarrierError::TimedOut`] with the last refusal or error.
pub async fn through_leader(
    context: &Arc<NodeContext>,
    index: u64,
    about: BarrierSubject,
    deadline: Instant,
) -> Result<BarrierReport, BarrierError> {
    let mut last = "no leader is known".to_owned();
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(BarrierError::TimedOut(last));
        }
        if let Some(peer) = context.leader().and_then(|leader| context.replica.peer(leader)) {
            let request = HoldBarrier(BarrierRequest { index, subject: about.clone() });
            match peer_messages::ask(&peer, request, remaining).await {
                Ok(Ok(report)) => return Ok(report),
                Ok(Err(refusal)) => last = refusal,
                Err(error) => last = error.to_string(),
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Holds a barrier as leader: returns when every gate on every node decides by a state with the entry at `index`.
///
/// # Errors
/// [`BarrierError::LeaderChanged`] if the leadership ended, [`BarrierError::Behind`] if this node lags behind the
/// entry or another node.
pub async fn hold(
    context: &Arc<NodeContext>,
    leadership: &Arc<Leadership>,
    index: u64,
    about: BarrierSubject,
) -> Result<BarrierReport, BarrierError> {
    let applied = context.replica.wait_applied(index, Instant::now() + STEP_TIMEOUT).await;
    if !leadership.is_in_force() {
        return Err(BarrierError::LeaderChanged);
    }
    if applied.is_none() {
        return Err(BarrierError::Behind);
    }
    if injected_bugs::is(Bug::AnswerBeforeBarrier) {
        return Ok(BarrierReport::default());
    }
    let nodes: Vec<ClaimOwner> =
        context.replica.read(|ledger| ledger.nodes().iter().map(|(node, known)| known.owner(*node)).collect());
    let answers = ask_each(context, leadership, nodes, index, &about).await;
    // A node that is ahead of this one may have put a handoff in doubt and removed it from its list. In this node's
    // state it is still claimed, so it would not be named (the model finds this in thirteen steps). So this node
    // catches up with the most advanced node first.
    let known = answers.iter().filter_map(|(_, answer)| answer.as_ref()).map(|answer| answer.applied).max();
    let caught_up = context.replica.wait_applied(known.unwrap_or(index), Instant::now() + STEP_TIMEOUT).await;
    // The report is valid only while this epoch is in force (P13).
    if !leadership.is_in_force() {
        return Err(BarrierError::LeaderChanged);
    }
    if caught_up.is_none() {
        return Err(BarrierError::Behind);
    }
    let mut crossed: BTreeMap<(Fence, RunId, u32), CrossedHandoff> = BTreeMap::new();
    let mut confirmed = BTreeSet::new();
    let mut unconfirmed = Vec::new();
    let key = |crossed: &CrossedHandoff| (crossed.fence, crossed.run, crossed.recipient);
    for (owner, answer) in answers {
        match answer {
            Some(answer) => {
                confirmed.insert(owner);
                crossed.extend(answer.crossed.into_iter().map(|one| (key(&one), one)));
            }
            None => unconfirmed.push(owner.node),
        }
    }
    let unknown = context.replica.read(|ledger| outcome_unknown(ledger, &about, &confirmed));
    let unknown = concerning(context, &about, unknown).await;
    crossed.extend(unknown.into_iter().map(|one| (key(&one), one)));
    Ok(BarrierReport { crossed: crossed.into_values().collect(), unconfirmed })
}

/// Asks these processes at the same time, each until it answers. `None` if the leases granted to it before the entry
/// ended first.
pub(crate) async fn ask_each(
    context: &NodeContext,
    leadership: &Leadership,
    owners: Vec<ClaimOwner>,
    index: u64,
    about: &BarrierSubject,
) -> Vec<(ClaimOwner, Option<BarrierAnswer>)> {
    let asked =
        owners.into_iter().map(|owner| async move { (owner, ask(context, leadership, owner, index, about).await) });
    join_all(asked).await
}

async fn ask(
    context: &NodeContext,
    leadership: &Leadership,
    owner: ClaimOwner,
    index: u64,
    about: &BarrierSubject,
) -> Option<BarrierAnswer> {
    loop {
        let request = BarrierRequest { index, subject: about.clone() };
        let answer = match context.replica.peer(owner.node) {
            Some(peer) => peer_messages::ask(&peer, request, 2 * STEP_TIMEOUT).await.unwrap_or_default(),
            None => BarrierAnswer::default(),
        };
        // Only the same incarnation knows its own handoffs; the next one does not.
        if answer.confirmed && answer.incarnation == owner.incarnation {
            return Some(answer);
        }
        if leadership.lease_is_over_below(owner, index) || leadership.ended() {
            return None;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Returns handoffs whose outcome no process can report: recipients in doubt, and recipients claimed by an incarnation
/// that did not confirm. (Without them the model finds an accepted email that was not named, within eleven steps.)
fn outcome_unknown(ledger: &Ledger, about: &BarrierSubject, confirmed: &BTreeSet<ClaimOwner>) -> Vec<Unknown> {
    let mut found = Vec::new();
    for (fence, claim) in ledger.claims().iter() {
        let mut slots = claim.in_doubt.clone();
        if !confirmed.contains(&claim.owner) {
            slots.add(&claim.claimed);
        }
        for slot in slots.iter() {
            let Some(RecipientId { run, number: recipient }) = ledger.recipient_at(claim.chunk, slot) else { continue };
            let may_concern = match about {
                BarrierSubject::Run(other) => *other == run,
                BarrierSubject::RelayShares => false,
                BarrierSubject::OptedOut { tenant, .. } => {
                    ledger.pages().get(&claim.chunk.page).is_some_and(|page| *page.tenant == **tenant)
                }
            };
            if let Some(known) = ledger.run(run).filter(|_| may_concern) {
                found.push((CrossedHandoff { run, recipient, fence: *fence }, known.audience));
            }
        }
    }
    found
}

/// A handoff whose outcome is not known, and the audience that has the address key of its recipient.
type Unknown = (CrossedHandoff, Hash);

/// Returns the handoffs that concern the subject: all of them for a run, those with one of the keys for an opt-out.
/// Reads each audience and each part once, outside the lock of the state: after a reboot thousands of recipients of one
/// list may be in doubt. If an audience cannot be read on this node, all its handoffs are returned.
async fn concerning(context: &Arc<NodeContext>, about: &BarrierSubject, unknown: Vec<Unknown>) -> Vec<CrossedHandoff> {
    let all: Vec<CrossedHandoff> = unknown.iter().map(|(crossed, _)| crossed.clone()).collect();
    let BarrierSubject::OptedOut { keys, .. } = about else { return all };
    let (own, keys) = (Arc::clone(context), keys.clone());
    context.replica.blocking(move || concerning_keys(&own, unknown, &keys)).await.unwrap_or(all)
}

fn concerning_keys(context: &NodeContext, unknown: Vec<Unknown>, keys: &BTreeSet<String>) -> Vec<CrossedHandoff> {
    let mut found = Vec::new();
    let mut by_audience: BTreeMap<Hash, Vec<CrossedHandoff>> = BTreeMap::new();
    for (crossed, audience) in unknown {
        by_audience.entry(audience).or_default().push(crossed);
    }
    for (audience, handoffs) in by_audience {
        match context.recipients(audience).as_deref() {
            Err(_) => found.extend(handoffs),
            Ok(Recipients::Inline(audience)) => {
                let key = |number: u32| audience.recipients.get(number as usize).map(|recipient| &recipient.key);
                let concerns = |crossed: &CrossedHandoff| key(crossed.recipient).is_some_and(|key| keys.contains(key));
                found.extend(handoffs.into_iter().filter(concerns));
            }
            Ok(Recipients::Sealed(seal)) => found.extend(concerning_keys_of_seal(context, seal, handoffs, keys)),
        }
    }
    found
}

/// Returns the handoffs of a sealed audience that concern these keys (P20).
fn concerning_keys_of_seal(
    context: &NodeContext,
    seal: &Seal,
    mut handoffs: Vec<CrossedHandoff>,
    keys: &BTreeSet<String>,
) -> Vec<CrossedHandoff> {
    let read = context.files.read_each(handoffs.iter().filter_map(|crossed| seal.locate(crossed.recipient)).collect());
    handoffs.retain(|crossed| match seal.locate(crossed.recipient).and_then(|place| read.get(&place)) {
        Some(Ok(recipient)) => keys.contains(&recipient.key),
        Some(Err(_)) => true,
        None => false,
    });
    handoffs
}

/// Answers a barrier on a node that sends. Once the readable state includes the entry, it reads the list of handoffs
/// and then the applied index.
///
/// The order matters. A handoff leaves the list before its answer is known only if a state that this node could read
/// has settled it, or has it in doubt. The index is read after the list, so that state is not newer than the index, and
/// the leader waits for the index. An index read before the list could miss an entry, applied in between, that removed
/// a handoff from the list. A higher index than necessary only costs a wait. The index comes from the state itself,
/// because the workers read the state too; the watch on the applied index follows later.
pub async fn answer(context: &NodeContext, request: BarrierRequest) -> BarrierAnswer {
    let deadline = Instant::now() + STEP_TIMEOUT;
    if context.replica.wait_applied(request.index, deadline).await.is_none() {
        return BarrierAnswer { incarnation: context.me.incarnation, ..BarrierAnswer::default() };
    }
    let concerns = |handoff: &Handoff| match &request.subject {
        BarrierSubject::OptedOut { tenant, keys } => {
            let (of, key) = &handoff.tenant_and_key;
            of == tenant && keys.contains(key)
        }
        BarrierSubject::Run(run) => handoff.run == *run,
        BarrierSubject::RelayShares => false,
    };
    if request.subject == BarrierSubject::RelayShares
        && let Some(relays) = context.relays()
    {
        relay_follower::follow(context, &relays);
    }
    let crossed = context.handoffs.about(concerns).into_iter();
    let crossed = crossed.map(|handoff| CrossedHandoff {
        run: handoff.run,
        recipient: handoff.recipient,
        fence: handoff.claimed_slot.fence,
    });
    let crossed = crossed.collect();
    let applied = context.replica.read(|ledger| ledger.head().applied);
    BarrierAnswer { confirmed: true, incarnation: context.me.incarnation, crossed, applied }
}

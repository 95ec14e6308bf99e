//! Barriers (P15): after an opt-out, a pause or a cancel is applied, the leader makes sure that no gate on
//! any node decides without it, and names the hand-offs that were past their gate by then.
//!
//! No barrier waits for a relay. A silent node is waited out by the grants that it had before the entry; later
//! ones carry the entry as their floor (see `lease`), so every barrier ends. The leader's half is [`hold`], the
//! owner's is [`answer`], and [`through_leader`] asks from any node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use reveille_ledger::Ledger;
use reveille_ledger::content::{Recipients, Seal};
use reveille_ledger::ids::{ClaimOwner, Fence, Hash, NodeId, RunId};
use reveille_ledger::injected_bugs::{self, Bug};
use tokio::task::JoinSet;

use super::leadership::Leadership;
use crate::node::context::NodeContext;
use crate::node::peer_messages::{
    self, BarrierAnswer, BarrierReport, BarrierRequest, BarrierSubject, CrossedHandOff, HoldBarrier,
};
use crate::worker::in_flight_handoffs::HandOff;

/// How long one question waits for its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause before a node, or a leader, is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Why a barrier was not held. The entry itself is applied and holds; only the report is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BarrierError {
    /// The leader changed meanwhile.
    #[error("the leader changed while the barrier was open: ask again")]
    LeaderChanged,
    /// A node confirmed by a state that the leader has not reached in time.
    #[error("the leader does not know yet what a node confirmed by: ask again")]
    Behind,
    /// No leader answered in time.
    #[error("no leader held the barrier in time: {0}; ask again")]
    TimedOut(String),
}

/// From any node: has the leader hold the barrier, until `deadline`.
pub async fn through_leader(
    context: &Arc<NodeContext>,
    index: u64,
    about: BarrierSubject,
    deadline: Instant,
) -> Result<BarrierReport, BarrierError> {
    let mut last = "no leader is known".to_owned();
    loop {
        let patience = deadline.saturating_duration_since(Instant::now());
        if patience.is_zero() {
            return Err(BarrierError::TimedOut(last));
        }
        if let Some(peer) = context.leader().and_then(|leader| context.replica.peer(leader)) {
            let question = HoldBarrier(BarrierRequest { index, subject: about.clone() });
            match peer_messages::ask(&peer, question, patience).await {
                Ok(Ok(report)) => return Ok(report),
                Ok(Err(refusal)) => last = refusal,
                Err(error) => last = error.to_string(),
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// As leader: returns when no gate on any node decides by a state without the entry at `index`.
pub async fn hold(
    context: &Arc<NodeContext>,
    leadership: &Arc<Leadership>,
    index: u64,
    about: BarrierSubject,
) -> Result<BarrierReport, BarrierError> {
    if context.replica.wait_applied(index, Instant::now() + PATIENCE).await.is_none() || !leadership.is_in_force() {
        return Err(BarrierError::LeaderChanged);
    }
    if injected_bugs::is(Bug::AnswerBeforeBarrier) {
        return Ok(BarrierReport::default());
    }
    let nodes: Vec<ClaimOwner> = context.replica.read(|ledger| {
        let current = |(node, known): (&NodeId, &reveille_ledger::Node)| ClaimOwner {
            node: *node,
            incarnation: known.incarnation,
        };
        ledger.nodes().iter().map(current).collect()
    });
    let mut asked = JoinSet::new();
    for owner in nodes {
        let (context, leadership, about) = (Arc::clone(context), Arc::clone(leadership), about.clone());
        asked.spawn(async move { (owner, ask(&context, &leadership, owner, index, about).await) });
    }
    let answers = asked.join_all().await;
    // A node ahead of this one may already have moved a hand-off to in-doubt and off its list, while this state still
    // shows it as claimed: it would go unnamed (the model finds it in thirteen steps). So catch up with the most advanced
    // node before naming.
    let known = answers.iter().filter_map(|(_, answer)| answer.as_ref()).map(|answer| answer.applied).max();
    let caught_up = context.replica.wait_applied(known.unwrap_or(index), Instant::now() + PATIENCE).await;
    // P13: what follows is only true in the name of the epoch in force.
    if !leadership.is_in_force() {
        return Err(BarrierError::LeaderChanged);
    }
    if caught_up.is_none() {
        return Err(BarrierError::Behind);
    }
    let mut crossed: BTreeMap<(Fence, RunId, u32), CrossedHandOff> = BTreeMap::new();
    let mut confirmed = BTreeSet::new();
    let mut unconfirmed = Vec::new();
    let key = |crossed: &CrossedHandOff| (crossed.fence, crossed.run, crossed.recipient);
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

/// Asks one node until it answers; none when the grants that it had before the entry were over first.
async fn ask(
    context: &Arc<NodeContext>,
    leadership: &Leadership,
    owner: ClaimOwner,
    index: u64,
    about: BarrierSubject,
) -> Option<BarrierAnswer> {
    loop {
        let question = BarrierRequest { index, subject: about.clone() };
        let answer = match context.replica.peer(owner.node) {
            Some(peer) => peer_messages::ask(&peer, question, 2 * PATIENCE).await.unwrap_or_default(),
            None => BarrierAnswer::default(),
        };
        // Only this life can speak of its own hand-offs: the next one knows nothing of them.
        if answer.confirmed && answer.incarnation == owner.incarnation {
            return Some(answer);
        }
        if leadership.lease_is_over_below(owner, index) || leadership.ended() {
            return None;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Hand-offs whose outcome no process can tell: recipients in doubt, and recipients claimed for an incarnation that did not
/// confirm. (Without these the model finds an arrival that was not named within eleven steps.)
fn outcome_unknown(ledger: &Ledger, about: &BarrierSubject, confirmed: &BTreeSet<ClaimOwner>) -> Vec<Unknown> {
    let mut found = Vec::new();
    for (fence, claim) in ledger.claims().iter() {
        let mut slots = claim.in_doubt.clone();
        if !confirmed.contains(&claim.owner) {
            slots.add(&claim.claimed);
        }
        for slot in slots.iter() {
            let Some((run, recipient)) = ledger.recipient_at((claim.page, claim.chunk), slot) else { continue };
            let may_concern = match about {
                BarrierSubject::Run(other) => *other == run,
                BarrierSubject::OptedOut { tenant, .. } => {
                    ledger.pages().get(&claim.page).is_some_and(|page| page.tenant == *tenant)
                }
            };
            if let Some(known) = ledger.run(run).filter(|_| may_concern) {
                found.push((CrossedHandOff { run, recipient, fence: *fence }, known.audience));
            }
        }
    }
    found
}

/// A hand-off whose outcome is not known, and the audience that shows whether it concerns a recipient in question.
type Unknown = (CrossedHandOff, Hash);

/// The hand-offs that concern the recipients in question; all of them, if a run is in question. Decodes each audience and
/// reads each part once, outside the lock of the state: after a reboot thousands of one list are in doubt. Where an audience
/// cannot be read here, each of its recipients may be meant, and is named.
async fn concerning(context: &Arc<NodeContext>, about: &BarrierSubject, unknown: Vec<Unknown>) -> Vec<CrossedHandOff> {
    let all: Vec<CrossedHandOff> = unknown.iter().map(|(crossed, _)| crossed.clone()).collect();
    let BarrierSubject::OptedOut { keys, .. } = about else { return all };
    let (own, keys) = (Arc::clone(context), keys.clone());
    context.replica.blocking(move || concerning_keys(&own, unknown, &keys)).await.unwrap_or(all)
}

fn concerning_keys(context: &NodeContext, unknown: Vec<Unknown>, keys: &BTreeSet<String>) -> Vec<CrossedHandOff> {
    let mut found = Vec::new();
    let mut by_audience: BTreeMap<Hash, Vec<CrossedHandOff>> = BTreeMap::new();
    for (crossed, audience) in unknown {
        by_audience.entry(audience).or_default().push(crossed);
    }
    for (audience, hand_offs) in by_audience {
        match context.recipients(audience).as_deref() {
            Err(_) => found.extend(hand_offs),
            Ok(Recipients::Inline(audience)) => {
                let key = |number: u32| audience.recipients.get(number as usize).map(|recipient| &recipient.key);
                let concerns = |crossed: &CrossedHandOff| key(crossed.recipient).is_some_and(|key| keys.contains(key));
                found.extend(hand_offs.into_iter().filter(concerns));
            }
            Ok(Recipients::Sealed(seal)) => found.extend(concerning_keys_of_seal(context, seal, hand_offs, keys)),
        }
    }
    found
}

/// The same of a sealed audience (P20).
fn concerning_keys_of_seal(
    context: &NodeContext,
    seal: &Seal,
    hand_offs: Vec<CrossedHandOff>,
    keys: &BTreeSet<String>,
) -> Vec<CrossedHandOff> {
    let mut by_part: BTreeMap<Hash, BTreeMap<u16, Vec<CrossedHandOff>>> = BTreeMap::new();
    for crossed in hand_offs {
        if let Some((part, place)) = seal.place(crossed.recipient) {
            by_part.entry(part).or_default().entry(place).or_default().push(crossed);
        }
    }
    let of_part = |(part, by_place): (Hash, BTreeMap<u16, Vec<CrossedHandOff>>)| {
        let places: Vec<u16> = by_place.keys().copied().collect();
        let meant = context.parts.of_these(part, &places, keys).ok();
        let is_meant = move |place: &u16| meant.as_ref().is_none_or(|meant| meant.contains(place));
        by_place.into_iter().filter(move |(place, _)| is_meant(place)).flat_map(|(_, crossed)| crossed)
    };
    by_part.into_iter().flat_map(of_part).collect()
}

/// On the node that sends: once the readable state includes the entry, reads the list of hand-offs, and then the applied index.
///
/// Both orders matter. A hand-off leaves the list before its answer is known only because a state that this node could
/// read has settled it, or holds it in doubt; such a state is no younger than the one that is read after the
/// list, and the leader waits for that index. Read before the list, the index could miss an entry that was applied
/// in between and has taken a hand-off off. An index that is too high costs a wait. The state is asked, and not the
/// watch on the applied index: that follows it, and claim workers read the state.
pub async fn answer(context: &NodeContext, question: BarrierRequest) -> BarrierAnswer {
    let deadline = Instant::now() + PATIENCE;
    if context.replica.wait_applied(question.index, deadline).await.is_none() {
        return BarrierAnswer { incarnation: context.me.incarnation, ..BarrierAnswer::default() };
    }
    let concerns = |hand_off: &HandOff| match &question.subject {
        BarrierSubject::OptedOut { tenant, keys } => hand_off.tenant == *tenant && keys.contains(&hand_off.key),
        BarrierSubject::Run(run) => hand_off.run == *run,
    };
    let crossed = context.hand_offs.about(concerns).into_iter();
    let crossed = crossed.map(|hand_off| CrossedHandOff {
        run: hand_off.run,
        recipient: hand_off.recipient,
        fence: hand_off.place.fence,
    });
    let crossed = crossed.collect();
    let applied = context.replica.read(|ledger| ledger.head().applied);
    BarrierAnswer { confirmed: true, incarnation: context.me.incarnation, crossed, applied }
}

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
use reveille_ledger::content::Recipients;
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
    let unknown = context.replica.read(|ledger| fate_unknown(ledger, &about, &confirmed));
    let unknown = theirs(context, &about, unknown).await;
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

/// Hand-offs of processes that can no longer tell: rows in doubt, and rows claimed for a life that did not
/// confirm (the model's eleven steps to an arrival that was not named).
fn fate_unknown(ledger: &Ledger, about: &BarrierSubject, confirmed: &BTreeSet<ClaimOwner>) -> Vec<Unknown> {
    let mut found = Vec::new();
    for (fence, row) in ledger.claims().iter() {
        let mut slots = row.in_doubt.clone();
        if !confirmed.contains(&row.owner) {
            slots.add(&row.claimed);
        }
        for slot in slots.iter() {
            let Some((run, recipient)) = ledger.recipient_at((row.page, row.chunk), slot) else { continue };
            let may_concern = match about {
                BarrierSubject::Run(other) => *other == run,
                BarrierSubject::OptedOut { tenant, .. } => {
                    ledger.pages().get(&row.page).is_some_and(|page| page.tenant == *tenant)
                }
            };
            if let Some(known) = ledger.run(run).filter(|_| may_concern) {
                found.push((CrossedHandOff { run, recipient, fence: *fence }, known.audience));
            }
        }
    }
    found
}

/// A hand-off whose outcome is not known, and the audience that shows whether it concerns the recipient in question.
type Unknown = (CrossedHandOff, Hash);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// It does.
    Theirs,
    /// Who stands at this place of a part of a sealed audience will tell (P20).
    At(Hash, u16),
}

/// None: of another recipient. An audience that cannot be read may hold any recipient.
fn whose(recipients: Result<&Recipients, ()>, recipient: u32, keys: &BTreeSet<String>) -> Option<Whose> {
    match recipients {
        Err(()) => Some(Whose::Theirs),
        Ok(Recipients::Inline(audience)) => {
            keys.contains(&audience.recipients.get(recipient as usize)?.key).then_some(Whose::Theirs)
        }
        Ok(Recipients::Sealed(seal)) => seal.place(recipient).map(|(part, place)| Whose::At(part, place)),
    }
}

/// Those that concern the recipient in question. Decodes each audience and reads each part once, outside the lock of
/// the state: after a reboot thousands of one list are in doubt. Where one cannot be read here each of its recipients may be
/// meant, and is named.
async fn theirs(context: &Arc<NodeContext>, about: &BarrierSubject, unknown: Vec<Unknown>) -> Vec<CrossedHandOff> {
    let all: Vec<CrossedHandOff> = unknown.iter().map(|(crossed, _)| crossed.clone()).collect();
    let BarrierSubject::OptedOut { keys, .. } = about else { return all };
    let (own, keys) = (Arc::clone(context), keys.clone());
    let looked = context.replica.blocking(move || {
        let mut audiences: BTreeMap<Hash, Result<Arc<Recipients>, ()>> = BTreeMap::new();
        let mut asked: BTreeMap<Hash, BTreeSet<u16>> = BTreeMap::new();
        let mut may_be: Vec<(CrossedHandOff, Whose)> = Vec::new();
        for (crossed, audience) in unknown {
            let recipients = audiences.entry(audience).or_insert_with(|| own.recipients(audience).map_err(drop));
            let recipients = recipients.as_ref().map(Arc::as_ref).map_err(|_| ());
            let Some(whose) = whose(recipients, crossed.recipient, &keys) else { continue };
            if let Whose::At(part, place) = whose {
                asked.entry(part).or_default().insert(place);
            }
            may_be.push((crossed, whose));
        }
        let in_part = |(part, places): (Hash, BTreeSet<u16>)| {
            let places: Vec<u16> = places.into_iter().collect();
            (part, own.parts.of_these(part, &places, &keys).ok())
        };
        // None: it cannot be read.
        let meant: BTreeMap<Hash, Option<BTreeSet<u16>>> = asked.into_iter().map(in_part).collect();
        let is_theirs = |whose: Whose| match whose {
            Whose::Theirs => true,
            Whose::At(part, place) => {
                meant.get(&part).and_then(Option::as_ref).is_none_or(|places| places.contains(&place))
            }
        };
        may_be.into_iter().filter(|(_, whose)| is_theirs(*whose)).map(|(crossed, _)| crossed).collect()
    });
    looked.await.unwrap_or(all)
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

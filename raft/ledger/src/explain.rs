//! The history of one recipient in one run, read from its claims and from the events of the run.

use crate::model::{
    Claim, ClaimEvent, ClaimEventKind, ClaimOwner, DeadLetter, Deferral, EnhancedCode, Fence, Ledger, RecipientState,
    RefusalEffect, RunEvent, RunEventKind, RunId, Time, run_events, wave_start,
};

/// History of a recipient, in the order of log indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipientExplanation {
    /// Its present state.
    pub state: RecipientState,
    /// Its claims, oldest first.
    pub claims: Vec<ClaimExplanation>,
    /// Events of the run that concern it, by log index.
    pub run_events: Vec<(u64, RunEvent)>,
    /// When its next attempt may begin; `None` if it does not wait.
    pub waits_until: Option<Time>,
    /// The last answer of a relay that refused it, since the last requeue. For an expired recipient it is the cause.
    pub last_refusal: Option<LastRefusal>,
    /// Its dead letter; `None` if it is not dead.
    pub dead: Option<DeadLetter>,
    /// A run within `min_gap` that keeps it from its email or makes it wait (P17).
    pub kept_apart_by: Option<RunId>,
}

/// Answer by which a relay refused a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRefusal {
    /// Basic code.
    pub code: u16,
    /// Enhanced status code; `None` if the answer had none, or if it is no longer known.
    pub enhanced: Option<EnhancedCode>,
    /// Subject of the answer.
    pub effect: RefusalEffect,
}

/// One claim that contains the recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimExplanation {
    /// Fence of the claim; its index is the log index of the claim.
    pub fence: Fence,
    /// Owner of the claim.
    pub owner: ClaimOwner,
    /// Ledger time of the claim.
    pub claimed_at: Time,
    /// Events of the recipient in this claim, in the order of log indices. Empty while it is still claimed.
    pub history: Vec<ClaimEvent>,
}

impl Ledger {
    /// Returns the history of recipient `number` of `run`; `None` if there is no such recipient.
    pub fn explain_recipient(&self, run: RunId, number: u32) -> Option<RecipientExplanation> {
        let (key, slot) = self.slot_of(run, number)?;
        let slots = self.chunks.get(&key)?;
        let held = |claim: &Claim| claim.granted.contains(slot);
        let open = self.claims.iter().filter(|(_, claim)| claim.chunk == key && held(claim));
        let mut claims: Vec<ClaimExplanation> = open.map(|(fence, claim)| explain_claim(*fence, claim, slot)).collect();
        let closed = self.closed_claims_of(key).filter(|(_, claim)| held(claim));
        claims.extend(closed.map(|(fence, claim)| explain_claim(fence, &claim, slot)));
        claims.sort_by_key(|claim| claim.fence);
        let waiting = slots.waves.iter().find(|(_, wave)| wave.contains(slot));
        let run_events = self.run_events.range(run_events::keys_of(run));
        let run_events = run_events.flat_map(|((_, index, of), run_events)| {
            let concerns = |event: &&RunEvent| event.concerns(*of, (key.number, slot));
            run_events.iter().filter(concerns).map(move |event| (*index, event.clone()))
        });
        let run_events: Vec<(u64, RunEvent)> = run_events.collect();
        let requeued = run_events.iter().filter(|(_, event)| matches!(event.what, RunEventKind::Requeued(_)));
        let requeued = requeued.map(|(index, _)| *index).max().unwrap_or(0);
        let last_refusal = last_refusal(&claims, requeued, slots.deferrals.get(slot));
        Some(RecipientExplanation {
            state: slots.state(slot)?,
            claims,
            run_events,
            waits_until: waiting.map(|(wave, _)| wave_start(*wave)),
            last_refusal,
            dead: self.dead.get(&run.recipient(number)).cloned(),
            kept_apart_by: self.kept_apart_by(run, number),
        })
    }
}

/// Returns the last answer of a relay in these claims, after the entry `since`. A claim that merged different answers
/// has no code. Then the answer that deferred the recipient is returned.
fn last_refusal(claims: &[ClaimExplanation], since: u64, deferral: Option<Deferral>) -> Option<LastRefusal> {
    let events = claims.iter().flat_map(|claim| &claim.history).filter(|event| event.index > since);
    let refusals = events.filter_map(|event| match event.what {
        ClaimEventKind::Refused { code, enhanced, effect, .. } if code > 0 => {
            Some((event.index, LastRefusal { code, enhanced, effect }))
        }
        _ => None,
    });
    let deferred = |Deferral { code, .. }| LastRefusal { code, enhanced: None, effect: RefusalEffect::BackOff };
    refusals.max_by_key(|(index, _)| *index).map(|(_, answer)| answer).or_else(|| deferral.map(deferred))
}

fn explain_claim(fence: Fence, claim: &Claim, slot: u16) -> ClaimExplanation {
    let mine = claim.history.iter().filter(|event| event.slots(&claim.granted).contains(slot));
    ClaimExplanation { fence, owner: claim.owner, claimed_at: claim.claimed_at, history: mine.cloned().collect() }
}

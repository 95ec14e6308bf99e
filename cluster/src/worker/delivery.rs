//! Sees one email through: its dialogue, what the answer means for the recipient, and the outcome that is settled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::command::{Refused, RelayReply, ReleaseReason, ReplyScope, Unsendable};
use reveille_raft::crash;
use tokio::time::Instant;

use super::claim::{ClaimedRecipient, WorkedClaim};
use super::composition::compose;
use super::context::WorkerContext;
use super::gate::WorkerGate;
use super::in_flight_handoffs::HandOff;
use super::journal::{Act, Place};
use super::outcome::{DeliveryOutcome, clip, no_relay, unanswered};
use crate::smtp::registry::RelayPermit;
use crate::smtp::{self, Deadlines, DialogueResult, Email, RefusalScope, Stage, Unavailable};

/// A dialogue that has not reached its gate by then ends without a hand-off.
pub(crate) const PREPARE_WITHIN: Duration = Duration::from_secs(60);

/// Sends the email of one recipient, from composing to the settled outcome.
pub(crate) async fn send(
    context: Arc<WorkerContext>,
    claim: Arc<WorkedClaim>,
    number: usize,
    permit: RelayPermit,
    deadline: Instant,
) {
    let recipient = &claim.recipients[number];
    if let Some(outcome) = outcome_of(&context, &claim, recipient, permit, deadline).await {
        context.settler.settle(recipient.place, outcome).await;
    }
}

/// The outcome of one recipient; `None` if nothing may be settled of it.
async fn outcome_of(
    context: &Arc<WorkerContext>,
    claim: &WorkedClaim,
    recipient: &ClaimedRecipient,
    permit: RelayPermit,
    deadline: Instant,
) -> Option<DeliveryOutcome> {
    let (hand_off, email) = match compose(context, claim, recipient, deadline).await {
        Ok(composed) => composed,
        Err(outcome) => return Some(outcome),
    };
    let hand_off = Arc::new(hand_off);
    let (relay, verdict) = match deliver(context, claim, (&hand_off, email), permit, deadline).await {
        Ok(verdict) => verdict,
        Err(outcome) => return Some(outcome),
    };
    let said = recipient.test.then(|| said(relay, &verdict)).flatten();
    let outcome = judge(context, &hand_off, verdict)?;
    // A hand-off in doubt stays listed until the state names it: until then only this node can (P15).
    let hand_offs = &context.node.hand_offs;
    if outcome == DeliveryOutcome::InDoubt {
        hand_offs.in_doubt(&hand_off);
    }
    if outcome != DeliveryOutcome::InDoubt || !is_claimed(context, hand_off.place) {
        hand_offs.remove(&hand_off);
    }
    Some(match said {
        Some(said) => DeliveryOutcome::Test(said, Box::new(outcome)),
        None => outcome,
    })
}

/// The dialogue, and the relay that it was with. A relay whose EHLO offers no SMTPUTF8 for an email that needs it passes it
/// to another relay of the pool: each is asked once, with what its current session offers, and nothing was written. Where
/// one of them took no EHLO, the recipient waits as after a transient refusal: that relay may take one next time.
///
/// # Errors
/// What becomes of the recipient when the relays that are left cannot be used in time: it comes back.
async fn deliver(
    context: &Arc<WorkerContext>,
    claim: &WorkedClaim,
    (hand_off, email): (&Arc<HandOff>, Email),
    mut permit: RelayPermit,
    deadline: Instant,
) -> Result<(String, DialogueResult), DeliveryOutcome> {
    let (mut lacking, mut all_asked) = (BTreeSet::new(), true);
    loop {
        let (open_by, begin_by) = (Some(deadline), Some(Instant::now() + PREPARE_WITHIN));
        let deadlines = Deadlines { open_by, begin_by, stop: context.drain.child_token() };
        let gate = WorkerGate { context: Arc::clone(context), hand_off: Arc::clone(hand_off) };
        let verdict = permit.permit.deliver(&email, gate, &deadlines).await;
        let DialogueResult::NoSmtpUtf8 { asked } = &verdict else {
            return Ok((permit.relay, verdict));
        };
        all_asked &= *asked;
        lacking.insert(permit.relay.clone());
        let next = context.relays.acquire_except(&lacking, &claim.pool, deadline);
        permit = match context.drain.run_until_cancelled(next).await {
            Some(Ok(next)) => next,
            // The relay that took no EHLO may offer SMTPUTF8.
            Some(Err(None)) if !all_asked => return Ok((permit.relay, DialogueResult::smtputf8_is_not_known())),
            // No relay of the pool offers it. A sender beyond ASCII is not the recipient's fault.
            Some(Err(None)) if email.to.is_ascii() => {
                return Ok((permit.relay, DialogueResult::sender_needs_smtputf8()));
            }
            Some(Err(None)) => return Ok((permit.relay, verdict)),
            Some(Err(Some(Unavailable::Closed))) | None => {
                return Err(DeliveryOutcome::Released(ReleaseReason::Stopping));
            }
            // Pending at once, it would be claimed again by the rate of the relay that cannot take it.
            Some(Err(Some(why))) => return Err(no_relay(hand_off.place, &why.to_string())),
        };
    }
}

/// In the state that this node has applied. Where it is no longer claimed, the claim was revoked: the state has named this
/// hand-off, or a decision has closed it.
fn is_claimed(context: &WorkerContext, place: Place) -> bool {
    let claimed = |claim: &reveille_ledger::Claim| claim.claimed.contains(place.slot);
    context.node.replica.read(|ledger| ledger.claims().get(&place.fence).is_some_and(claimed))
}

/// P6: what a verdict means for the recipient. Answers are journaled before they are settled (P11). `None` if nothing may
/// be settled.
fn judge(context: &WorkerContext, hand_off: &HandOff, verdict: DialogueResult) -> Option<DeliveryOutcome> {
    let place = hand_off.place;
    Some(match verdict {
        DialogueResult::Accepted { .. } => {
            crash::point("smtp.after-250-before-record");
            // A journal that fails here has closed the gate for all that follow; this answer is settled all the same.
            let _ = context.journal.note(place, Act::Accepted);
            DeliveryOutcome::Accepted
        }
        DialogueResult::Refused { stage, code, enhanced, text, scope, .. } => {
            let scope = reply_scope(stage, code, scope);
            let text = clip(&smtp::without_enhanced_code(&text, enhanced));
            let refused = Refused { slot: place.slot, code, enhanced, text, scope };
            let _ = context.journal.note(place, Act::Refused(refused.clone()));
            DeliveryOutcome::Refused(refused)
        }
        DialogueResult::Broken { stage, cause } => match cause {
            // Peers close politely between emails: another session, at once.
            smtp::Cause::ClosedBetweenEmails => DeliveryOutcome::Released(ReleaseReason::SessionEnded),
            // No relay refused it: it is pending at once, and another node takes it.
            smtp::Cause::Stopped => DeliveryOutcome::Released(ReleaseReason::Stopping),
            cause => {
                let text = format!("lost at {stage:?}: {cause}");
                if uses_up_attempt(stage, &cause) { unanswered(place, &text) } else { no_relay(place, &text) }
            }
        },
        DialogueResult::NoSmtpUtf8 { .. } => DeliveryOutcome::Unsendable(Unsendable::NoSmtpUtf8),
        DialogueResult::GateClosed(refusal) => return DeliveryOutcome::of_closed_gate(refusal),
        DialogueResult::InDoubt { cause } => {
            tracing::warn!(recipient = hand_off.name(), fence = %place.fence, %cause, "in doubt");
            metrics::counter!("reveille_in_doubt_total").increment(1);
            DeliveryOutcome::InDoubt
        }
    })
}

/// What an answer concerns, as the ledger counts it. From RCPT on, the relay's trouble may be caused by this recipient or
/// this email, and a 4yz about the sender or the content lasts longer than a retry wave: each recipient waits its own
/// back-off. An answer about the rate waits for the relay, whose rate is lowered.
fn reply_scope(stage: Stage, code: u16, scope: RefusalScope) -> ReplyScope {
    match scope {
        RefusalScope::Mailbox => ReplyScope::Mailbox,
        RefusalScope::Unnamed => ReplyScope::Unnamed,
        RefusalScope::Deferred => ReplyScope::Deferred,
        RefusalScope::Relay if stage >= Stage::Rcpt => ReplyScope::Deferred,
        RefusalScope::Relay | RefusalScope::Throttle { .. } => ReplyScope::Relay,
        RefusalScope::Tenant | RefusalScope::Content if code < 500 => ReplyScope::Deferred,
        RefusalScope::Tenant | RefusalScope::Content => ReplyScope::Policy,
    }
}

/// The relay knew the recipient when it broke the dialogue, so this recipient or this email may be the cause. What this
/// node ended itself says nothing of them.
fn uses_up_attempt(stage: Stage, cause: &smtp::Cause) -> bool {
    stage >= Stage::Rcpt && !cause.is_ours()
}

/// The relay that was asked, and the words with which it took an email: like those of a refusal, without the enhanced code.
fn said(relay: String, verdict: &DialogueResult) -> Option<RelayReply> {
    match verdict {
        DialogueResult::Accepted { code, text } => {
            let enhanced = smtp::enhanced_code(*code, text);
            let text = clip(&smtp::without_enhanced_code(text, enhanced));
            Some(RelayReply { relay, code: *code, enhanced, text })
        }
        DialogueResult::GateClosed(_) => None,
        DialogueResult::Refused { .. }
        | DialogueResult::NoSmtpUtf8 { .. }
        | DialogueResult::Broken { .. }
        | DialogueResult::InDoubt { .. } => Some(RelayReply { relay, code: 0, enhanced: None, text: String::new() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_from_rcpt_on_wait_back_off_of_their_recipient() {
        let throttle = RefusalScope::Throttle { daily_quota: false };
        let table = [
            (Stage::Mail, 451, RefusalScope::Relay, ReplyScope::Relay),
            (Stage::Rcpt, 451, RefusalScope::Relay, ReplyScope::Deferred),
            (Stage::Data, 554, RefusalScope::Relay, ReplyScope::Deferred),
            (Stage::Answered, 452, RefusalScope::Relay, ReplyScope::Deferred),
            (Stage::Mail, 450, RefusalScope::Tenant, ReplyScope::Deferred),
            (Stage::Rcpt, 450, RefusalScope::Content, ReplyScope::Deferred),
            (Stage::Rcpt, 550, RefusalScope::Tenant, ReplyScope::Policy),
            (Stage::Answered, 554, RefusalScope::Content, ReplyScope::Policy),
            (Stage::Rcpt, 421, throttle, ReplyScope::Relay),
            (Stage::Rcpt, 550, RefusalScope::Unnamed, ReplyScope::Unnamed),
            (Stage::Rcpt, 550, RefusalScope::Mailbox, ReplyScope::Mailbox),
        ];
        for (stage, code, scope, expected) in table {
            assert_eq!(reply_scope(stage, code, scope), expected, "{stage:?} {code} {scope:?}");
        }
    }

    #[test]
    fn broken_dialogue_uses_up_attempt_from_rcpt_on_unless_node_ended_it() {
        use smtp::Cause::{Closed, NotBegunInTime, Stopped, TimedOut};
        for stage in Stage::ALL {
            assert_eq!(uses_up_attempt(stage, &Closed), stage >= Stage::Rcpt, "{stage:?}");
            assert_eq!(uses_up_attempt(stage, &TimedOut), stage >= Stage::Rcpt, "{stage:?}");
            assert!(!uses_up_attempt(stage, &NotBegunInTime) && !uses_up_attempt(stage, &Stopped), "{stage:?}");
        }
    }
}

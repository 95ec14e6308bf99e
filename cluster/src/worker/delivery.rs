//! Sends emails over one session: runs the dialogue of each, classifies the answer, and settles the outcome.

use std::collections::BTreeSet;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::command::{EnhancedCode, RefusalEffect, RelayRefusal, RelayReply, ReleaseReason, Unsendable};
use reveille_raft::crash;
use tokio::time::{Instant, sleep_until};

use super::claim::ClaimedRecipient;
use super::composition::{ComposedEmail, SessionTurn, compose};
use super::context::WorkerContext;
use super::gate_checks::WorkerGate;
use super::in_flight_handoffs::Handoff;
use super::journal::{ClaimedSlot, JournalStep};
use super::outcome::{DeliveryOutcome, RecipientOutcome, clip, no_relay};
use super::taken_recipient::{ClaimQueue, TakenRecipient, take_next};
use crate::smtp::registry::NoPermit;
use crate::smtp::{self, Deadlines, DialogueResult, NextEmail, NextPermit, ReplyClass, SendPermit, Stage, Unavailable};

/// Time within which a dialogue must reach its gate ([`Deadlines::gate_by`]). Otherwise it ends without a handoff.
const GATE_WITHIN: Duration = Duration::from_secs(60);
/// A longer text has a second more for each of these bytes: attachments take long on a slow line.
const BYTES_PER_SECOND_MIN: usize = 64 * 1024;

/// What a stored reply has instead of the recipient's address.
const NO_ADDRESS: &str = "(the recipient)";

/// Sends the email of one recipient, from composing to the settled outcome, and then the next emails of the same
/// session (P5.3).
pub(crate) async fn send(
    context: Arc<WorkerContext>,
    queue: Arc<ClaimQueue>,
    first: TakenRecipient,
    permit: SendPermit,
) {
    let mut ready = compose(&context, first, SessionTurn::First).await.map(|email| (email, permit));
    while let Some((email, mut permit)) = ready {
        let next = next_email(&context, &queue, &email, &mut permit).await;
        ready = send_one(&context, email, permit, next).await;
    }
}

/// Takes the next recipient of the pool for the session of `permit`, after `email`, and composes its email. `None` if
/// the session takes none (P5.3).
async fn next_email(
    context: &WorkerContext,
    queue: &ClaimQueue,
    email: &ComposedEmail,
    permit: &mut SendPermit,
) -> Option<(ComposedEmail, NextPermit)> {
    // An email that needs SMTPUTF8 may leave for another relay. A stopping node begins nothing.
    if email.email.needs_smtputf8() || context.stop_requested.is_cancelled() {
        return None;
    }
    let mut next_permit = None;
    let wanted = |recipient: &ClaimedRecipient| {
        may_be_next(recipient, &mut next_permit, || context.relays.try_acquire_next(&email.taken.claim.pool, permit))
    };
    let taken = take_next(context, queue, wanted).await?;
    compose(context, taken, SessionTurn::Next).await.zip(next_permit)
}

/// Returns true if this recipient may be the next one of a session in use, and fills `next_permit` if it is
/// empty. A crash suspect never is: it is composed alone (P12), which would hold up the email before it. Nor is one
/// with attachments: it could wait for the memory that the email before it has.
fn may_be_next<P>(
    recipient: &ClaimedRecipient,
    next_permit: &mut Option<P>,
    acquire: impl FnOnce() -> Option<P>,
) -> bool {
    let fits = !recipient.is_crash_suspect && !recipient.has_attachments;
    if fits && next_permit.is_none() {
        *next_permit = acquire();
    }
    fits && next_permit.is_some()
}

/// Sends one email and settles its recipient. Returns the next email if it can be sent now. Otherwise settles the next
/// recipient as not sent.
async fn send_one(
    context: &Arc<WorkerContext>,
    email: ComposedEmail,
    permit: SendPermit,
    next: Option<(ComposedEmail, NextPermit)>,
) -> Option<(ComposedEmail, SendPermit)> {
    let (next, next_permit) = next.unzip();
    let next_email = next.as_ref().zip(next_permit).map(|(next, permit)| NextEmail { email: &next.email, permit });
    let (ended, next_waits) = {
        let mut dialogue = pin!(send_through_relays(context, &email, permit, next_email));
        // The answer to this email is awaited, also after the next recipient went back.
        tokio::select! {
            biased;
            ended = &mut dialogue => (ended, true),
            expired = next_recipient_expired(context, next.as_ref()) => {
                context.settler.settle(expired).await;
                (dialogue.await, false)
            }
        }
    };
    let next_permit = settle_ended(context, &email, ended).await;
    let next = next.filter(|_| next_waits)?;
    if next_permit.is_none() {
        let outcome = DeliveryOutcome::Released(ReleaseReason::SessionEnded);
        context.settler.settle(RecipientOutcome::new(next.taken.claimed_slot(), outcome)).await;
    }
    Some((next, next_permit?))
}

/// Waits until the next recipient must go back, since it waits for its session like those in the queue (P12). Returns
/// its outcome.
async fn next_recipient_expired(context: &WorkerContext, next: Option<&ComposedEmail>) -> RecipientOutcome {
    let Some(ComposedEmail { taken, .. }) = next else { return pending().await };
    let reason = match context.stop_requested.run_until_cancelled(sleep_until(taken.deadline)).await {
        Some(()) => ReleaseReason::Busy,
        None => ReleaseReason::Stopping,
    };
    RecipientOutcome::new(taken.claimed_slot(), DeliveryOutcome::Released(reason))
}

/// Settles the recipient of a dialogue that has ended, or that no relay could begin. Returns the permit for the next
/// email.
async fn settle_ended(
    context: &Arc<WorkerContext>,
    email: &ComposedEmail,
    ended: Result<EndedDialogue, DeliveryOutcome>,
) -> Option<SendPermit> {
    let claimed_slot = email.taken.claimed_slot();
    let EndedDialogue { relay_name, result, outcome_if_closed, next } = match ended {
        Ok(ended) => ended,
        Err(outcome) => {
            context.settler.settle(RecipientOutcome::new(claimed_slot, outcome)).await;
            return None;
        }
    };
    let is_test = email.taken.claimed().is_test;
    let test_reply =
        is_test.then(|| relay_reply(relay_name.clone(), &result, &email.handoff.tenant_and_key.1)).flatten();
    if let Some(outcome) = classify_and_journal(context, &email.handoff, result, outcome_if_closed) {
        // A handoff in doubt stays listed until the state names it, because until then only this node knows of it
        // (P15).
        let handoffs = &context.node.handoffs;
        if outcome == DeliveryOutcome::InDoubt {
            handoffs.in_doubt(&email.handoff);
        }
        if outcome != DeliveryOutcome::InDoubt || !is_claimed(context, claimed_slot) {
            handoffs.remove(&email.handoff);
        }
        context.settler.settle(RecipientOutcome { claimed_slot, outcome, test_reply }).await;
    }
    next
}

/// Returns the deadlines of a dialogue that begins now with a text of so many bytes, and whose session is to be open by
/// `open_by`.
fn deadlines(context: &WorkerContext, open_by: Instant, text_bytes: usize) -> Deadlines {
    let gate_by = Some(Instant::now() + GATE_WITHIN + Duration::from_secs((text_bytes / BYTES_PER_SECOND_MIN) as u64));
    Deadlines { open_by: Some(open_by), gate_by, stop: context.stop_requested.clone() }
}

/// A dialogue that has ended.
struct EndedDialogue {
    relay_name: String,
    result: DialogueResult,
    /// The outcome after a closed gate ([`WorkerGate::outcome_if_closed`]).
    outcome_if_closed: Option<DeliveryOutcome>,
    /// The permit for the next email. `None`: there was none, or it cannot follow.
    next: Option<SendPermit>,
}

/// Runs the dialogue. If the email needs SMTPUTF8 and the relay's EHLO does not offer it, nothing was written and
/// another relay of the pool is tried. Each relay is tried once. If one of them took no EHLO (`asked` is false), the
/// recipient waits as after a transient refusal, since that relay may offer SMTPUTF8 next time.
///
/// # Errors
/// Fails if no remaining relay can be used in time: returns an outcome by which the recipient is pending again.
async fn send_through_relays(
    context: &Arc<WorkerContext>,
    composed: &ComposedEmail,
    mut permit: SendPermit,
    mut next_email: Option<NextEmail<'_>>,
) -> Result<EndedDialogue, DeliveryOutcome> {
    let ComposedEmail { taken, handoff, email, .. } = composed;
    let ended = |relay_name, result| EndedDialogue { relay_name, result, outcome_if_closed: None, next: None };
    let (mut missing, mut all_asked) = (BTreeSet::new(), true);
    loop {
        let mut gate = WorkerGate::new(context, handoff);
        let relay_name = permit.relay().to_owned();
        let deadlines = deadlines(context, taken.deadline, email.text.bytes());
        let (result, next) = permit.send(email, &mut gate, &deadlines, next_email.take()).await;
        let DialogueResult::NoSmtpUtf8 { asked } = &result else {
            return Ok(EndedDialogue { relay_name, result, outcome_if_closed: gate.outcome_if_closed, next });
        };
        all_asked &= *asked;
        missing.insert(relay_name.clone());
        let acquiring = context.relays.acquire_except(&missing, &taken.claim.pool, taken.deadline);
        permit = match context.stop_requested.run_until_cancelled(acquiring).await {
            Some(Ok(of_another_relay)) => of_another_relay,
            // A relay that took no EHLO may offer SMTPUTF8 later.
            Some(Err(NoPermit::NoRelay)) if !all_asked => {
                return Ok(ended(relay_name, DialogueResult::smtputf8_is_not_known()));
            }
            // No relay of the pool offers SMTPUTF8. The recipient's address is ASCII, so the sender's is the cause.
            Some(Err(NoPermit::NoRelay)) if email.to.is_ascii() => {
                return Ok(ended(relay_name, DialogueResult::sender_needs_smtputf8()));
            }
            Some(Err(NoPermit::NoRelay)) => return Ok(ended(relay_name, result)),
            Some(Err(NoPermit::Unavailable(Unavailable::Closed))) | None => {
                return Err(DeliveryOutcome::Released(ReleaseReason::Stopping));
            }
            // If the recipient were pending at once, it would be claimed again at the rate of the relay that cannot
            // take it.
            Some(Err(NoPermit::Unavailable(why))) => return Err(no_relay(&why.to_string())),
        };
    }
}

/// Returns true if the recipient is claimed in the applied state. Otherwise the claim was revoked: the state has named
/// this handoff, or a decision has closed it.
fn is_claimed(context: &WorkerContext, claimed_slot: ClaimedSlot) -> bool {
    let claimed = |claim: &reveille_ledger::Claim| claim.claimed.contains(claimed_slot.slot);
    context.node.replica.read(|ledger| ledger.claims().get(&claimed_slot.fence).is_some_and(claimed))
}

/// Returns what a dialogue's result means for the recipient (P6); `None` if nothing may be settled. Answers are
/// journaled before they are settled (P11).
fn classify_and_journal(
    context: &WorkerContext,
    handoff: &Handoff,
    result: DialogueResult,
    outcome_if_closed: Option<DeliveryOutcome>,
) -> Option<DeliveryOutcome> {
    let claimed_slot = handoff.claimed_slot;
    Some(match result {
        DialogueResult::Accepted { .. } => {
            crash::point("smtp.after-250-before-record");
            // If the journal fails here, the gate is closed for all later emails. This answer is settled all the same.
            let _ = context.journal.append(claimed_slot, JournalStep::Accepted);
            DeliveryOutcome::Accepted
        }
        DialogueResult::Refused { stage, code, enhanced, text, class, .. } => {
            let effect = refusal_effect(stage, code, class);
            let text = reply_text(&text, enhanced, &handoff.tenant_and_key.1);
            let refused = RelayRefusal { slot: claimed_slot.slot, code, enhanced, text, effect };
            let _ = context.journal.append(claimed_slot, JournalStep::Refused(refused.clone()));
            DeliveryOutcome::Refused(refused)
        }
        DialogueResult::Broken { stage, cause } => match cause {
            // A relay may close a session between two emails. The recipient gets another session at once.
            smtp::Cause::ClosedBetweenEmails => DeliveryOutcome::Released(ReleaseReason::SessionEnded),
            // No relay refused the email, so the recipient is pending at once, and another node takes it.
            smtp::Cause::Stopped => DeliveryOutcome::Released(ReleaseReason::Stopping),
            cause => {
                let text = format!("lost at {stage:?}: {cause}");
                if uses_up_attempt(stage, &cause) {
                    DeliveryOutcome::BrokenFromRcpt(clip(&text))
                } else {
                    no_relay(&text)
                }
            }
        },
        DialogueResult::NoSmtpUtf8 { .. } => DeliveryOutcome::Unsendable(Unsendable::NoSmtpUtf8),
        DialogueResult::GateClosed => return outcome_if_closed,
        DialogueResult::InDoubt { cause } => {
            tracing::warn!(recipient = handoff.name(), fence = %claimed_slot.fence, %cause, "an email is in doubt");
            metrics::counter!("reveille_in_doubt_total").increment(1);
            DeliveryOutcome::InDoubt
        }
    })
}

/// Returns the effect of a refusal, in the ledger's terms. From RCPT on, this recipient or this email may be the cause
/// of the relay's trouble. A 4yz about the sender or the content lasts longer than a retry wave. In both cases each
/// recipient waits its own back-off. After a refusal because of the rate it waits for the relay, whose rate is reduced.
fn refusal_effect(stage: Stage, code: u16, class: ReplyClass) -> RefusalEffect {
    match class {
        ReplyClass::Throttle | ReplyClass::Quota => RefusalEffect::NextWave,
        ReplyClass::Relay if stage < Stage::Rcpt => RefusalEffect::NextWave,
        ReplyClass::Relay => RefusalEffect::BackOff,
        _ if code < 500 => RefusalEffect::BackOff,
        ReplyClass::Recipient => RefusalEffect::Dead,
        ReplyClass::Unnamed => RefusalEffect::CountAttempt,
        ReplyClass::Sender | ReplyClass::Content => RefusalEffect::MayPauseRun,
    }
}

/// Returns true if a broken dialogue counts as an attempt. From the answer to MAIL on the relay may know the recipient,
/// so this recipient or this email may be the cause. If this node ended the dialogue, it does not count.
fn uses_up_attempt(stage: Stage, cause: &smtp::Cause) -> bool {
    stage >= Stage::Rcpt && !cause.ended_by_this_node()
}

/// Returns the text of a reply as it is stored: without its enhanced code and without the recipient's address, which
/// must not be where an erasure does not look for it.
fn reply_text(text: &str, enhanced: Option<EnhancedCode>, key: &str) -> String {
    clip(&without_address(&smtp::without_enhanced_code(text, enhanced), key))
}

/// Returns the text with [`NO_ADDRESS`] instead of each address of this key.
fn without_address(text: &str, key: &str) -> String {
    let lower = text.to_lowercase();
    if !lower.contains(key) {
        return text.to_owned();
    }
    if lower.len() != text.len() {
        // Positions differ: the text has letters whose lower case is longer or shorter.
        return lower.replace(key, NO_ADDRESS);
    }
    let (mut kept, mut rest) = (String::new(), 0);
    for (at, _) in lower.match_indices(key) {
        kept.push_str(text.get(rest..at).unwrap_or_default());
        kept.push_str(NO_ADDRESS);
        rest = at + key.len();
    }
    kept + text.get(rest..).unwrap_or_default()
}

/// Returns the relay of a test email and its reply; `None` if the gate was closed. The text of an accept has no
/// enhanced code. For any other result code and text are empty, since the outcome has the text of a refusal.
fn relay_reply(relay: String, result: &DialogueResult, key: &str) -> Option<RelayReply> {
    match result {
        DialogueResult::Accepted { code, text } => {
            let enhanced = smtp::enhanced_code(*code, text);
            let text = reply_text(text, enhanced, key);
            Some(RelayReply { relay, code: *code, enhanced, text })
        }
        DialogueResult::GateClosed => None,
        DialogueResult::Refused { .. }
        | DialogueResult::NoSmtpUtf8 { .. }
        | DialogueResult::Broken { .. }
        | DialogueResult::InDoubt { .. } => Some(RelayReply { relay, code: 0, enhanced: None, text: String::new() }),
    }
}

#[cfg(test)]
mod tests {
    use reveille_ledger::ids::{Epoch, Fence, Hash, PageId, RunId};

    use super::*;

    #[test]
    fn crash_suspect_is_never_next_and_uses_no_permit() {
        let run = RunId { index: 5, place: 0 };
        let fence = Fence { group: 1, epoch: Epoch(1), index: 7, place: 0 };
        let recipient = |is_crash_suspect| ClaimedRecipient {
            claimed_slot: ClaimedSlot { chunk: PageId(run).chunk(0), fence, slot: 3 },
            run,
            number: 3,
            content: Hash::of(b"content"),
            audience: Hash::of(b"audience"),
            is_crash_suspect,
            has_attachments: false,
            is_test: false,
        };
        let mut next_permit = None;
        let with_files = ClaimedRecipient { has_attachments: true, ..recipient(false) };
        assert!(!may_be_next(&with_files, &mut next_permit, || Some(1)));
        assert!(!may_be_next(&recipient(true), &mut next_permit, || Some(1)));
        assert_eq!(next_permit, None, "the relay's rate is not used");
        assert!(!may_be_next(&recipient(false), &mut next_permit, || None));
        assert!(may_be_next(&recipient(false), &mut next_permit, || Some(1)));
        assert!(may_be_next(&recipient(false), &mut next_permit, || panic!("acquired twice")), "for the one before it");
        assert!(!may_be_next(&recipient(true), &mut next_permit, || None));
    }

    #[test]
    fn stored_reply_has_no_address_of_the_recipient() {
        for (text, expected) in [
            ("<Ann@Example.com>: user unknown", "<(the recipient)>: user unknown"),
            ("ann@example.com, ANN@EXAMPLE.COM", "(the recipient), (the recipient)"),
            ("\u{130} ann@example.com", "i\u{307} (the recipient)"),
            ("mailbox full", "mailbox full"),
        ] {
            assert_eq!(
                reply_text(&format!("5.1.1 {text}"), smtp::enhanced_code(550, "5.1.1 x"), "ann@example.com"),
                expected
            );
        }
    }

    #[test]
    fn answers_from_rcpt_on_wait_back_off_of_their_recipient() {
        let table = [
            (Stage::Mail, 451, ReplyClass::Relay, RefusalEffect::NextWave),
            (Stage::Rcpt, 451, ReplyClass::Relay, RefusalEffect::BackOff),
            (Stage::Data, 554, ReplyClass::Relay, RefusalEffect::BackOff),
            (Stage::Answered, 452, ReplyClass::Relay, RefusalEffect::BackOff),
            (Stage::Mail, 450, ReplyClass::Sender, RefusalEffect::BackOff),
            (Stage::Rcpt, 450, ReplyClass::Content, RefusalEffect::BackOff),
            (Stage::Rcpt, 550, ReplyClass::Sender, RefusalEffect::MayPauseRun),
            (Stage::Answered, 554, ReplyClass::Content, RefusalEffect::MayPauseRun),
            (Stage::Rcpt, 421, ReplyClass::Throttle, RefusalEffect::NextWave),
            (Stage::Rcpt, 550, ReplyClass::Unnamed, RefusalEffect::CountAttempt),
            (Stage::Rcpt, 550, ReplyClass::Recipient, RefusalEffect::Dead),
            (Stage::Rcpt, 450, ReplyClass::Recipient, RefusalEffect::BackOff),
        ];
        for (stage, code, class, expected) in table {
            assert_eq!(refusal_effect(stage, code, class), expected, "{stage:?} {code} {class:?}");
        }
    }

    #[test]
    fn transient_reply_never_counts_as_attempt() {
        use ReplyClass::{Content, Quota, Recipient, Relay, Sender, Throttle, Unnamed};
        for class in [Recipient, Sender, Content, Quota, Throttle, Relay, Unnamed] {
            for stage in Stage::ALL {
                let effect = refusal_effect(stage, 450, class);
                assert!(matches!(effect, RefusalEffect::BackOff | RefusalEffect::NextWave), "{stage:?} {class:?}");
            }
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

//! Composes the email of one recipient, between the records `composing` and `composed` of the journal (P12).
//!
//! Only composing processes the data of a recipient (parsing, compiling, rendering), so only there can a recipient
//! crash the process. A crash suspect is composed while nothing else is composed on this node. Composing never waits
//! for a relay.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use reveille_ledger::command::ReleaseReason;
use reveille_ledger::content::Recipients;
use reveille_ledger::ids::Hash;
use tokio::time::{Instant, timeout_at};

use super::attachments::EncodedAttachments;
use super::audience_read::NOT_READ;
use super::claim::{ClaimWork, ClaimedRecipient};
use super::context::{COMPOSING_MAX, WorkerContext};
use super::in_flight_handoffs::Handoff;
use super::journal::JournalStep;
use super::outcome::{DeliveryOutcome, RecipientOutcome, node_unable, not_composed};
use super::taken_recipient::TakenRecipient;
use super::{gate_checks, injected_bugs};
use crate::compose::return_path::Bounced;
use crate::compose::{Stamp, message_id};
use crate::smtp::{Dsn, Email, EmailText, Notify};

/// Maximum wait for the attachments of an email, which has a session of the relay meanwhile.
const ATTACHMENTS_WITHIN: Duration = Duration::from_secs(2);

/// Reason why a node does not send bulk email. The recipient is pending again after 30 s, until its deadline.
const NO_UNSUBSCRIBE: &str =
    "this node cannot write List-Unsubscribe into bulk email: give it unsubscribe.url and unsubscribe.keys";

/// A recipient with its email, ready for a dialogue.
pub(crate) struct ComposedEmail {
    pub taken: TakenRecipient,
    pub handoff: Arc<Handoff>,
    pub email: Email,
    /// Holds the memory of the attachments.
    _attachments: Option<Arc<EncodedAttachments>>,
}

/// Place of an email among those of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionTurn {
    /// It has waited for the session.
    First,
    /// It is composed before the final dot of another email.
    Next,
}

/// Composes the email of one recipient. A crash suspect is composed alone, others in parallel. `None` if there will be
/// no dialogue: the recipient is settled.
pub(crate) async fn compose(
    context: &WorkerContext,
    taken: TakenRecipient,
    turn: SessionTurn,
) -> Option<ComposedEmail> {
    match composed(context, &taken, turn).await {
        Ok((handoff, email, attachments)) => {
            Some(ComposedEmail { taken, handoff: Arc::new(handoff), email, _attachments: attachments })
        }
        Err(outcome) => {
            context.settler.settle(RecipientOutcome::new(taken.claimed_slot(), outcome)).await;
            None
        }
    }
}

async fn composed(
    context: &WorkerContext,
    taken: &TakenRecipient,
    turn: SessionTurn,
) -> Result<(Handoff, Email, Option<Arc<EncodedAttachments>>), DeliveryOutcome> {
    let (claim, recipient, deadline) = (&taken.claim, taken.claimed(), taken.deadline);
    let attachments = match recipient.has_attachments {
        true => Some(attachments(context, recipient.content, deadline).await?),
        false => None,
    };
    // A crash suspect waits here with a session reserved, because the feeder chooses a recipient only after it has a
    // session for it. The wait ends at `deadline`.
    let permits = context.composing.acquire_many(if recipient.is_crash_suspect { COMPOSING_MAX } else { 1 });
    let _permits = match context.stop_requested.run_until_cancelled(timeout_at(deadline, permits)).await {
        Some(Ok(Ok(permits))) => permits,
        Some(_) => return Err(DeliveryOutcome::Released(ReleaseReason::Busy)),
        None => return Err(DeliveryOutcome::Released(ReleaseReason::Stopping)),
    };
    let append = |step| context.journal.append(recipient.claimed_slot, step);
    let journal_failed = || DeliveryOutcome::Released(ReleaseReason::JournalFailed);
    // `composing` is written before anything is parsed or compiled, so that a recipient that crashes the process there is in
    // the journal.
    append(JournalStep::Composing).map_err(|_| journal_failed())?;
    let prepared = catch_unwind(AssertUnwindSafe(|| prepare(context, claim, recipient)));
    match turn {
        SessionTurn::First => append(JournalStep::Composed).map_err(|_| journal_failed())?,
        // The `handoff` before it is near. A crash until then makes the recipient a suspect in vain, which costs a claim
        // of its own. A suspect, whose next crash may make it dead, is always the first.
        SessionTurn::Next => context.journal.append_with_next(recipient.claimed_slot, JournalStep::Composed),
    }
    let (handoff, mut email) = prepared.unwrap_or_else(|_| Err(not_composed("preparing it panicked")))?;
    email.text = email.text.with_end(attachments.as_ref().map(|encoded| Arc::clone(&encoded.text)));
    // The gate checks the same again. Here a refusal costs no dialogue.
    gate_checks::check(context, &handoff)?;
    Ok((handoff, email, attachments))
}

/// Returns the attachments of an email. If this node cannot read them, the recipient is pending again after a while,
/// uncounted: this node may fetch the file from a peer, or another node may have it.
async fn attachments(
    context: &WorkerContext,
    content: Hash,
    deadline: Instant,
) -> Result<Arc<EncodedAttachments>, DeliveryOutcome> {
    let deadline = deadline.min(Instant::now() + ATTACHMENTS_WITHIN);
    let reading = timeout_at(deadline, context.attachments.get(&context.node, content));
    match context.stop_requested.run_until_cancelled(reading).await {
        Some(Ok(read)) => read.map_err(|cause| node_unable(&cause)),
        Some(Err(_)) => Err(node_unable("memory or disk of this node are too busy for its attachments")),
        None => Err(DeliveryOutcome::Released(ReleaseReason::Stopping)),
    }
}

/// Composes the email of one recipient, without the journal.
///
/// # Errors
/// Fails if the email cannot be composed on this node: returns the outcome of the recipient.
fn prepare(
    context: &WorkerContext,
    claim: &ClaimWork,
    claimed: &ClaimedRecipient,
) -> Result<(Handoff, Email), DeliveryOutcome> {
    let node = &context.node;
    let recipients = node.recipients(claimed.audience).map_err(|cause| not_composed(&cause))?;
    let recipient = match recipients.as_ref() {
        Recipients::Inline(audience) => audience.recipients.get(claimed.number as usize).map(Ok),
        Recipients::Sealed(seal) => match claim.sealed_recipients.get(&claimed.claimed_slot.slot) {
            // The audience was sealed, or its seal became known, after the claim's recipients were read.
            None if seal.locate(claimed.number).is_some() => return Err(node_unable(NOT_READ)),
            read => read.map(Result::as_ref),
        },
    };
    let recipient = match recipient {
        // The content may be erased too, and then it does not compile.
        Some(Ok(recipient)) if recipient.is_erased() => return Err(DeliveryOutcome::Suppressed),
        Some(Ok(recipient)) => recipient,
        Some(Err(cause)) => return Err(node_unable(cause)),
        None => return Err(not_composed("the recipient is not in the audience")),
    };
    let compiled =
        context.compiled_content(claimed.content, recipients.columns()).map_err(|cause| not_composed(&cause))?;
    let handoff = Handoff {
        claimed_slot: claimed.claimed_slot,
        run: claimed.run,
        recipient: claimed.number,
        tenant_and_key: (claim.tenant.clone(), recipient.key.clone()),
    };
    let sender = compiled.sender();
    let list_unsubscribe = match (compiled.is_bulk(), &node.unsubscribe) {
        (false, _) => None,
        (true, Some(unsubscribe)) => Some(unsubscribe.header(&claim.tenant, &recipient.key)),
        // Another node may have this setting.
        (true, None) => return Err(node_unable(NO_UNSUBSCRIBE)),
    };
    let cluster = claim.former_cluster.unwrap_or_else(|| node.cluster());
    let incarnation = claim.cluster_incarnation;
    let stamp = Stamp {
        message_id: message_id(cluster, incarnation, claimed.run, claimed.number, sender.domain()),
        run: claimed.run,
        fence: claim.reveille_headers.then_some(injected_bugs::fence(claimed.claimed_slot.fence)),
        date: claim.date,
        boundary_seed: claimed.content.0,
        list_unsubscribe,
    };
    let mut composed = compiled.compose(recipient, &stamp).map_err(|error| {
        tracing::warn!(recipient = handoff.name(), %error, "an email cannot be composed");
        not_composed(&error.to_string())
    })?;
    injected_bugs::swap_contents((&compiled, &recipients), claimed.number, &stamp, &mut composed);
    let (from, notify) = match &node.return_path {
        Some(path) => {
            let bounced = Bounced { run: claimed.run, recipient: claimed.number };
            (path.address(cluster, incarnation, bounced), Notify::Failure)
        }
        // Notifications would go to the mailbox that receives replies of recipients.
        None if compiled.is_bulk() => (sender.wire(), Notify::Never),
        None => (sender.wire(), Notify::Failure),
    };
    let dsn = Some(Dsn { envelope_id: claimed.claimed_slot.fence.to_string(), notify });
    let text = EmailText::new(composed.data).ok_or_else(|| not_composed("a line end is not CRLF"))?;
    Ok((handoff, Email { from, to: composed.to, text, dsn }))
}

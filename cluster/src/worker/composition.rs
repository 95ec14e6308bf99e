//! Composes the email of one recipient, between the records `open` and `composed` of the journal (P12).
//!
//! Only composing runs what a recipient brings along (parsing, compiling, rendering), so only composing can be killed by
//! it. A crash suspect is composed while nothing else is composed on this node. Composing never waits for a relay.

use std::panic::{AssertUnwindSafe, catch_unwind};

use reveille_ledger::command::ReleaseReason;
use reveille_ledger::content::Recipients;
use tokio::time::{Instant, timeout_at};

use super::audience_read::NOT_READ;
use super::claim::{ClaimedRecipient, WorkedClaim};
use super::context::{COMPOSING_MAX, WorkerContext};
use super::in_flight_handoffs::HandOff;
use super::journal::Act;
use super::outcome::{DeliveryOutcome, no_relay, not_composed};
use super::{gate, injected_bugs};
use crate::compose::{Stamp, message_id};
use crate::ops::return_path::Bounced;
use crate::smtp::{Dsn, Email, Notify};

/// Why a node leaves bulk email to others; it comes back every 30 s until its deadline.
const NO_UNSUBSCRIBE: &str =
    "this node cannot write List-Unsubscribe into bulk mail: give it unsubscribe.url and unsubscribe.keys";

/// Composes the email of one recipient, beside others or, if it is a crash suspect, alone.
///
/// # Errors
/// What becomes of the recipient without a dialogue.
pub(crate) async fn compose(
    context: &WorkerContext,
    claim: &WorkedClaim,
    recipient: &ClaimedRecipient,
    deadline: Instant,
) -> Result<(HandOff, Email), DeliveryOutcome> {
    let permits = context.composing.acquire_many(if recipient.crash_suspect { COMPOSING_MAX } else { 1 });
    let _permits = match context.drain.run_until_cancelled(timeout_at(deadline, permits)).await {
        Some(Ok(Ok(permits))) => permits,
        Some(_) => return Err(DeliveryOutcome::Released(ReleaseReason::Busy)),
        None => return Err(DeliveryOutcome::Released(ReleaseReason::Stopping)),
    };
    let note = |act| context.journal.note(recipient.place, act);
    let journal_failed = || DeliveryOutcome::Released(ReleaseReason::JournalFailed);
    // Before anything is parsed or compiled: a recipient that kills the process there must be in the journal.
    note(Act::Open).map_err(|_| journal_failed())?;
    let prepared = catch_unwind(AssertUnwindSafe(|| prepare(context, claim, recipient)));
    note(Act::Composed).map_err(|_| journal_failed())?;
    let (hand_off, email) = prepared.unwrap_or_else(|_| Err(not_composed("preparing it panicked")))?;
    // The gate asks again. Here a closed gate costs no dialogue.
    if let Err(refusal) = gate::check(context, &hand_off)
        && let Some(outcome) = DeliveryOutcome::of_closed_gate(refusal)
    {
        return Err(outcome);
    }
    Ok((hand_off, email))
}

/// Composes the email of one recipient.
///
/// # Errors
/// The outcome of a recipient whose email cannot be composed here.
pub(crate) fn prepare(
    context: &WorkerContext,
    claim: &WorkedClaim,
    claimed: &ClaimedRecipient,
) -> Result<(HandOff, Email), DeliveryOutcome> {
    let node = &context.node;
    let content = context.compiled_content(claimed.content, claimed.audience).map_err(|cause| not_composed(&cause))?;
    let recipient = match content.recipients.as_ref() {
        Recipients::Inline(audience) => audience.recipients.get(claimed.recipient as usize).map(Ok),
        Recipients::Sealed(seal) => match claim.read.get(&claimed.place.slot) {
            // It was sealed since, or the ledger has come to know its seal.
            None if seal.place(claimed.recipient).is_some() => return Err(no_relay(claimed.place, NOT_READ)),
            read => read.map(Result::as_ref),
        },
    };
    let recipient = match recipient {
        Some(Ok(recipient)) => recipient,
        Some(Err(cause)) => return Err(no_relay(claimed.place, cause)),
        None => return Err(not_composed("the recipient is not in the audience")),
    };
    let hand_off = HandOff {
        place: claimed.place,
        run: claimed.run,
        recipient: claimed.recipient,
        tenant: claim.tenant.clone(),
        key: recipient.key.clone(),
    };
    let sender = content.compiled.sender();
    let list_unsubscribe = match (content.compiled.is_bulk(), &node.unsubscribe) {
        (false, _) => None,
        (true, Some(unsubscribe)) => Some(unsubscribe.header(&hand_off.tenant, &hand_off.key)),
        // Another node may have the configuration.
        (true, None) => return Err(no_relay(claimed.place, NO_UNSUBSCRIBE)),
    };
    let (cluster, incarnation) = (node.cluster(), claim.cluster_incarnation);
    let stamp = Stamp {
        message_id: message_id(cluster, incarnation, claimed.run, claimed.recipient, sender.domain()),
        reveille: claim.reveille_headers.then_some((claimed.run, claimed.place.fence)),
        date: claim.date,
        boundary_seed: claimed.content.0,
        list_unsubscribe,
    };
    let mut composed = content.compiled.compose(recipient, &stamp).map_err(|error| {
        tracing::warn!(recipient = hand_off.name(), %error, "an email cannot be composed");
        not_composed(&error.to_string())
    })?;
    injected_bugs::swap_contents((&content.compiled, &content.recipients), claimed.recipient, &stamp, &mut composed);
    let (from, notify) = match &node.return_path {
        Some(path) => {
            let bounced = Bounced { run: claimed.run, recipient: claimed.recipient };
            (path.address((cluster, incarnation), bounced), Notify::Failure)
        }
        // Notifications would go to the mailbox that people answer to.
        None if content.compiled.is_bulk() => (sender.wire(), Notify::Never),
        None => (sender.wire(), Notify::Failure),
    };
    let dsn = Some(Dsn { envelope_id: claimed.place.fence.to_string(), notify });
    Ok((hand_off, Email { from, to: composed.to, data: composed.data, dsn }))
}

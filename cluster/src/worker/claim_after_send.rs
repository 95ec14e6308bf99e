//! Bugs that tests inject into the order of claim and send, to prove that the judge finds them
//! (`reveille_ledger::injected_bugs`). Only a build with the feature `injected-bugs` has this file.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use reveille_ledger::Claim;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::claim_history::ClaimHistory;
use reveille_ledger::command::ReleaseReason;
use reveille_ledger::ids::{ClaimOwner, Fence, GROUP, RunId};
use reveille_ledger::injected_bugs::{self, Bug};
use tokio::time::Instant;

use super::claim::WorkedClaim;
use super::claim_tasks::ClaimTasks;
use super::composition::prepare;
use super::context::WorkerContext;
use super::delivery::{PREPARE_WITHIN, deadlines};
use super::journal::ClaimedSlot;
use super::outcome::DeliveryOutcome;
use crate::leader::claims::claimable::claimable;
use crate::process::limits::SESSION_WITHIN;
use crate::smtp::{DialogueResult, Gate, GateAnswer};

/// Fence place of a claim that no entry has granted.
const NOT_GRANTED: u32 = u32::MAX;
/// Maximum number of recipients that one call sends before their claim.
const AHEAD_MAX: u32 = 4;

/// Recipients that a process has sent before their claim, with their outcome. The outcome is `None` until the dialogue
/// has ended.
type Sent = BTreeMap<(ClaimOwner, RunId, u32, u16), Option<DeliveryOutcome>>;

/// The gate of an email without a claim: always open.
struct OpenGate;

impl Gate for OpenGate {
    fn pass(&mut self) -> GateAnswer {
        GateAnswer::Pass
    }
}

/// Shared by all nodes of this process; the key names the node.
static SENT: Mutex<Sent> = Mutex::new(BTreeMap::new());

/// Returns true if the bug handles this recipient, so that its worker must not send it. [`Bug::ClaimAfterSend`] settles
/// the outcome of the email that was sent before the claim. [`Bug::IdleClaim`] keeps the recipient claimed for a
/// minute.
pub(crate) async fn takes_over(
    context: &Arc<WorkerContext>,
    tasks: &ClaimTasks,
    claimed_slot: ClaimedSlot,
    is_last_of_several: bool,
) -> bool {
    let key = (context.node.me, claimed_slot.page, claimed_slot.chunk, claimed_slot.slot);
    let sent = if injected_bugs::is(Bug::ClaimAfterSend) { SENT.lock().get(&key).cloned().flatten() } else { None };
    if let Some(outcome) = sent {
        context.settler.settle(claimed_slot, outcome).await;
        return true;
    }
    let idles = injected_bugs::is(Bug::IdleClaim) && is_last_of_several;
    if idles {
        let context = Arc::clone(context);
        tasks.spawn(async move {
            tokio::time::sleep(PREPARE_WITHIN).await;
            context.settler.settle(claimed_slot, DeliveryOutcome::Released(ReleaseReason::Busy)).await;
        });
    }
    idles
}

/// [`Bug::ClaimAfterSend`]: if this node leads, sends some pending recipients that have no claim yet.
pub(crate) fn send_before_claim(context: &Arc<WorkerContext>, tasks: &ClaimTasks) {
    if !injected_bugs::is(Bug::ClaimAfterSend) {
        return;
    }
    let Some(leadership) = context.node.leadership() else { return };
    let (me, now) = (context.node.me, leadership.now());
    let claim = context.node.replica.read(|ledger| {
        let mut sent = SENT.lock();
        let parts = ledger
            .open_pages()
            .flat_map(|(id, page)| claimable(ledger, id, page, now).map(move |part| (id, part.number, part.slots)));
        let fresh = parts.map(|(page, chunk, slots)| {
            let is_new = |slot: &u16| !sent.contains_key(&(me, page, chunk, *slot));
            (page, chunk, slots.iter().filter(is_new).collect::<Bitmap>().first(AHEAD_MAX))
        });
        let (page, chunk, slots) = fresh.into_iter().find(|(_, _, slots)| !slots.is_empty())?;
        sent.extend(slots.iter().map(|slot| ((me, page, chunk, slot), None)));
        let fence = Fence { group: GROUP, epoch: leadership.epoch(), index: ledger.head().applied, place: NOT_GRANTED };
        let granted = Claim {
            page,
            chunk,
            owner: me,
            claimed_at: now,
            granted: slots.clone(),
            claimed: slots,
            in_doubt: Bitmap::new(),
            sent: Bitmap::new(),
            assumed: Bitmap::new(),
            history: ClaimHistory::default(),
        };
        WorkedClaim::new(ledger, fence, &granted)
    });
    let Some(claim) = claim else { return };
    let claim = Arc::new(claim);
    for number in 0..claim.recipients.len() {
        let (context, claim) = (Arc::clone(context), Arc::clone(&claim));
        tasks.spawn(async move {
            let (recipient, deadline) = (&claim.recipients[number], Instant::now() + SESSION_WITHIN);
            let Ok(permit) = context.relays.acquire(&claim.pool, deadline).await else { return };
            let Ok((_, email)) = prepare(&context, &claim, recipient) else { return };
            let outcome = match permit.session.send(&email, OpenGate, &deadlines(&context, deadline)).await {
                DialogueResult::Accepted { .. } => DeliveryOutcome::Accepted,
                DialogueResult::InDoubt { .. } => DeliveryOutcome::InDoubt,
                _ => DeliveryOutcome::Released(ReleaseReason::Busy),
            };
            let ClaimedSlot { page, chunk, slot, .. } = recipient.claimed_slot;
            SENT.lock().insert((context.node.me, page, chunk, slot), Some(outcome));
        });
    }
}

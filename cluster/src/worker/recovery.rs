//! Recovery (P10): settles the open claims of earlier incarnations of this node from their journals.
//!
//! Called once this incarnation's `NodeUp` is applied. From then on no leader can grant another claim to an earlier
//! incarnation. If a journal proves nothing, all its claimed recipients are in doubt. Claims that a decision has closed
//! meanwhile are read too: an acceptance in the journal still counts, and an assumed recipient without a handoff is
//! released (P14). A journal is deleted when all this is settled and no claim of its incarnation is open.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use reveille_ledger::command::ClaimOutcome;
use reveille_ledger::ids::{ClaimOwner, Fence, Incarnation};
use reveille_ledger::{Claim, Ledger, RecipientState};
use tokio_util::sync::CancellationToken;

use super::journal::{self, Journal, JournalOwner, Reading};
use crate::process::context::NodeContext;
use crate::process::proposal;

/// Maximum time to wait until this node has applied a settle.
const APPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// Settles every claim of every earlier incarnation that is open, or about which a journal has news. Returns when the
/// ledger has accepted the outcomes, or on `cancel`.
pub(crate) async fn settle_earlier_incarnations(
    context: &NodeContext,
    folder: &Path,
    boot: &str,
    cancel: &CancellationToken,
) {
    let mut incarnations = context.replica.read(|ledger| earlier_incarnations(ledger, context.me));
    let leftovers = journal::leftovers(folder, context.me.node).unwrap_or_else(|error| {
        tracing::warn!(%error, "old journals cannot be listed");
        Default::default()
    });
    incarnations.extend(leftovers.iter().copied());
    for incarnation in incarnations.into_iter().filter(|incarnation| *incarnation < context.me.incarnation) {
        let process = ClaimOwner { node: context.me.node, incarnation };
        let owner = JournalOwner { cluster: context.cluster(), process };
        let reading = Journal::read(folder, &owner, boot);
        let outcomes = context.replica.read(|ledger| outcomes(ledger, process, &reading));
        match &reading {
            Reading::Whole(_) => {
                tracing::info!(
                    incarnation = process.incarnation.0,
                    claims = outcomes.len(),
                    "an earlier incarnation left its journal"
                );
            }
            Reading::Nothing(why) => tracing::warn!(
                incarnation = process.incarnation.0,
                claims = outcomes.len(),
                why,
                "the journal of an earlier incarnation proves nothing: what it had claimed is in doubt"
            ),
        }
        if let Ok(Some(index)) = proposal::settle(context, outcomes, cancel).await {
            let _ = context.replica.wait_applied(index, Instant::now() + APPLY_TIMEOUT).await;
        }
    }
    if !cancel.is_cancelled() {
        sweep(context, folder, leftovers);
    }
}

/// Deletes the journals of earlier incarnations without open claims.
fn sweep(context: &NodeContext, folder: &Path, leftovers: Vec<Incarnation>) {
    let open = context.replica.read(|ledger| earlier_incarnations(ledger, context.me));
    for incarnation in leftovers {
        let process = ClaimOwner { node: context.me.node, incarnation };
        if process.incarnation < context.me.incarnation
            && !open.contains(&process.incarnation)
            && let Err(error) = journal::delete(folder, process)
        {
            tracing::warn!(%error, "an old journal stays behind");
        }
    }
}

/// Returns the earlier incarnations of this node that have open claims.
fn earlier_incarnations(ledger: &Ledger, me: ClaimOwner) -> BTreeSet<Incarnation> {
    let owners = ledger.claims().iter().map(|(_, claim)| claim.owner);
    let former = owners.filter(|owner| owner.node == me.node && owner.incarnation < me.incarnation);
    former.map(|owner| owner.incarnation).collect()
}

/// Returns the outcome of each claim of an incarnation, as its journal proves it. Claims that were revoked are in doubt
/// already, or closed by a decision. An intact journal resolves them; any other journal adds nothing.
fn outcomes(ledger: &Ledger, process: ClaimOwner, reading: &Reading) -> Vec<ClaimOutcome> {
    let open = ledger
        .claims()
        .iter()
        .filter(|(_, claim)| claim.owner == process)
        .map(|(fence, claim)| (*fence, claim.clone()));
    let claims: BTreeMap<Fence, Claim> = open.chain(closed_claims(ledger, process, reading)).collect();
    let outcome = |(fence, claim): (Fence, Claim)| {
        let mut slots = claim.claimed.clone();
        slots.add(&claim.in_doubt);
        if let Reading::Whole(journaled) = reading {
            slots.add(&claim.assumed);
            slots.add(&journaled.accepted(fence).and(&claim.granted).and_not(&claim.sent));
        }
        (!slots.is_empty()).then(|| reading.outcome(claim.chunk, fence, &slots))
    };
    claims.into_iter().filter_map(outcome).collect()
}

/// Returns the closed claims of an incarnation about which its journal has news. These are claims with records, since
/// an acceptance counts forever, and claims with assumed recipients, since a missing record disproves the assumption.
/// All other closed claims stay packed: a large run leaves hundreds of thousands of them.
fn closed_claims(ledger: &Ledger, process: ClaimOwner, reading: &Reading) -> Vec<(Fence, Claim)> {
    let Reading::Whole(journaled) = reading else { return Vec::new() };
    let named = journaled.claims().filter_map(|(fence, chunk)| Some((fence, ledger.closed_claim(chunk, fence)?)));
    let named = named.filter(|(_, claim)| claim.owner == process);
    let assumes = ledger.chunks().iter().filter(|(_, chunk)| !chunk.set(RecipientState::Assumed).is_empty());
    named.chain(assumes.flat_map(|(chunk, _)| ledger.assumed_claims_by(process, *chunk))).collect()
}

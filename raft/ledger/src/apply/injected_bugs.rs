//! Injected bugs of `apply` that have code of their own. The code that has the bug chooses between the two.

use super::Context;
use crate::effect::Effect;
use crate::model::{ClaimEventKind, Fence, Ledger, RecipientState};

impl Ledger {
    /// The bug [`Bug::SendAgain`](crate::injected_bugs::Bug::SendAgain): handles a lost owner as if it had begun no
    /// handoff.
    pub(super) fn return_to_pending(&mut self, context: &mut Context, fence: Fence) -> u64 {
        let Some(mut claim) = self.claims.get(&fence).cloned() else { return 0 };
        let (claimed, key) = (std::mem::take(&mut claim.claimed), claim.chunk);
        if claimed.is_empty() {
            return 0;
        }
        claim.record(context, (ClaimEventKind::Released(None), RecipientState::Pending), &claimed);
        context.emit(Effect::ClaimEmptied { fence, owner: claim.owner });
        self.put_claim(fence, claim, true);
        self.transition(context, key, &claimed, RecipientState::Claimed, RecipientState::Pending);
        u64::from(claimed.len())
    }
}

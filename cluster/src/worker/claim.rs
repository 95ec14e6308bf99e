//! A claim for its worker: the recipients, and the data of the ledger about them.

use std::collections::BTreeMap;

use reveille_ledger::command::OpeningCause;
use reveille_ledger::content::Recipient;
use reveille_ledger::ids::{Fence, Hash, RunId, Time};
use reveille_ledger::{Claim, Ledger};

use super::journal::ClaimedSlot;

/// One recipient of a claim, with the keys of its data in the ledger.
pub(crate) struct ClaimedRecipient {
    pub claimed_slot: ClaimedSlot,
    pub run: RunId,
    pub recipient: u32,
    pub content: Hash,
    pub audience: Hash,
    /// True if the recipient was open when a process died. It is composed alone (P12).
    pub crash_suspect: bool,
    /// True for a test email, whose caller wants the relay's reply.
    pub test: bool,
}

/// A claim, with all that its worker needs.
pub(crate) struct WorkedClaim {
    pub tenant: String,
    /// Share of the tenant when the claim was read.
    pub share: u32,
    pub pool: String,
    /// True if emails of the pool carry `X-Reveille-*` headers.
    pub reveille_headers: bool,
    pub date: Time,
    pub cluster_incarnation: u64,
    pub recipients: Vec<ClaimedRecipient>,
    /// Recipients of sealed audiences by slot, read once for the whole claim. An error says why one could not be read.
    pub read: BTreeMap<u16, Result<Recipient, String>>,
}

impl WorkedClaim {
    /// Returns the claim for its worker; `None` if its page no longer exists.
    pub fn new(ledger: &Ledger, fence: Fence, claim: &Claim) -> Option<WorkedClaim> {
        let page = ledger.pages().get(&claim.page)?;
        let mut slots = claim.claimed.clone();
        if claim.was_revoked() {
            slots.add(&claim.in_doubt);
        }
        let suspects = ledger.chunks().get(&(claim.page, claim.chunk)).map(|chunk| &chunk.crash_suspects);
        let recipients = slots.iter().filter_map(|slot| {
            let (run, recipient) = ledger.recipient_at((claim.page, claim.chunk), slot)?;
            let state = ledger.run(run)?;
            let claimed_slot = ClaimedSlot { page: claim.page, chunk: claim.chunk, fence, slot };
            let crash_suspect = suspects.is_some_and(|suspects| suspects.contains(slot));
            let test = state.cause == OpeningCause::Test;
            let (content, audience) = (state.content, state.audience);
            Some(ClaimedRecipient { claimed_slot, run, recipient, content, audience, crash_suspect, test })
        });
        let pool = ledger.pool_of_claim(page, claim);
        Some(WorkedClaim {
            tenant: page.tenant.to_string(),
            share: ledger.tenants().get(&page.tenant.to_string()).map_or(1, |tenant| tenant.share),
            pool: pool.to_owned(),
            reveille_headers: ledger.has_reveille_headers(pool),
            date: claim.claimed_at,
            cluster_incarnation: page.cluster_incarnation,
            recipients: recipients.collect(),
            read: BTreeMap::new(),
        })
    }
}

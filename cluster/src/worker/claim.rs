//! The work of one claim: its recipients, and the data of the ledger about them.

use std::collections::BTreeMap;

use reveille_ledger::command::OpeningCause;
use reveille_ledger::content::Recipient;
use reveille_ledger::ids::{Fence, Hash, RecipientId, RunId, Time};
use reveille_ledger::{Claim, Ledger};

use super::journal::ClaimedSlot;

/// One recipient of a claim, with the keys of its data in the ledger.
pub(crate) struct ClaimedRecipient {
    pub claimed_slot: ClaimedSlot,
    pub run: RunId,
    /// Number of the recipient in its audience.
    pub number: u32,
    pub content: Hash,
    pub audience: Hash,
    /// True if the recipient was open when a process crashed. It is composed alone (P12).
    pub is_crash_suspect: bool,
    /// True if its email has attachments.
    pub has_attachments: bool,
    /// True for a test email, whose caller wants the relay's reply.
    pub is_test: bool,
}

/// A claim, with all data that is needed to send its emails.
pub(crate) struct ClaimWork {
    pub tenant: String,
    /// Share of the tenant when the claim was read.
    pub share: u32,
    pub pool: String,
    /// True if emails of the pool carry `X-Reveille-*` headers.
    pub reveille_headers: bool,
    pub date: Time,
    pub cluster_incarnation: u64,
    /// Id of the cluster of that incarnation, if it is a former one.
    pub former_cluster: Option<u128>,
    pub recipients: Vec<ClaimedRecipient>,
    /// Recipients of sealed audiences by slot, read once for the whole claim. An error says why a recipient could not
    /// be read.
    pub sealed_recipients: BTreeMap<u16, Result<Recipient, String>>,
}

impl ClaimWork {
    /// Returns the work of a claim; `None` if its page no longer exists.
    pub fn new(ledger: &Ledger, fence: Fence, claim: &Claim) -> Option<ClaimWork> {
        let page = ledger.pages().get(&claim.chunk.page)?;
        let mut slots = claim.claimed.clone();
        if claim.was_revoked() {
            slots.add(&claim.in_doubt);
        }
        let suspects = ledger.chunks().get(&claim.chunk).map(|chunk| &chunk.crash_suspects);
        let recipients = slots.iter().filter_map(|slot| {
            let RecipientId { run, number } = ledger.recipient_at(claim.chunk, slot)?;
            let state = ledger.run(run)?;
            let claimed_slot = ClaimedSlot { chunk: claim.chunk, fence, slot };
            let is_crash_suspect = suspects.is_some_and(|suspects| suspects.contains(slot));
            let is_test = state.cause == OpeningCause::Test;
            let (content, audience) = (state.content, state.audience);
            let has_attachments = ledger.attached_files(&content).next().is_some();
            Some(ClaimedRecipient {
                claimed_slot,
                run,
                number,
                content,
                audience,
                is_crash_suspect,
                has_attachments,
                is_test,
            })
        });
        let pool = ledger.pool_of_claim(page, claim);
        Some(ClaimWork {
            tenant: page.tenant.to_string(),
            share: ledger.tenants().get(&page.tenant.to_string()).map_or(1, |tenant| tenant.share),
            pool: pool.to_owned(),
            reveille_headers: ledger.has_reveille_headers(pool),
            date: claim.claimed_at,
            cluster_incarnation: page.cluster_incarnation,
            former_cluster: ledger.former_cluster(page.cluster_incarnation),
            recipients: recipients.collect(),
            sealed_recipients: BTreeMap::new(),
        })
    }
}

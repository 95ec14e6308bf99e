//! Refuses a campaign that sends the same content to the same recipients within thirty days, unless asked for (P20).
//!
//! It compares launched campaigns and runs to sealed audiences. A run outlives its campaign and a summary outlives its
//! run, so a campaign that was deleted and created again is found. An audience is compared by the hashes of its parts,
//! not by its name. Inline lists of schedules are not compared, because no campaign has one.

use std::collections::BTreeMap;

use crate::command::CampaignName;
use crate::model::{Armed, Campaign, CommandRefusal, Hash, Ledger, Mailing, Run, RunId, SealedAudience, Time};

/// A run to a sealed audience that sends or has sent emails.
struct Former<'a> {
    tenant: &'a str,
    name: &'a str,
    opened_at: Time,
    /// Its audience: the hash of a seal or, for a summary, the hash of its recipients.
    audience: FormerAudience,
}

enum FormerAudience {
    Seal(Hash),
    Recipients(Hash),
}

impl Ledger {
    /// Compares the campaign with all campaigns of the tenant, and with runs of the same content, latest first.
    pub(super) fn check_not_sent_recently(
        &self,
        now: Time,
        named: &CampaignName,
        campaign: &Campaign,
        (again, sealed): (bool, SealedAudience),
    ) -> Result<(), CommandRefusal> {
        if again {
            return Ok(());
        }
        let recipients = self.recipients_hash(&sealed.seal);
        // Many runs may share few audiences, and a large one has a seal of 34 KiB, so results are kept.
        let mut known = BTreeMap::from([(sealed.seal, true)]);
        let mut is_same = |seal: Hash| *known.entry(seal).or_insert_with(|| self.recipients_hash(&seal) == recipients);
        let is_lately = |at: Time| now.since_ms(at) < self.limits().again_ms;
        for (name, other) in self.campaigns_of(&named.tenant) {
            let Some(armed @ Armed { launch, audience, .. }) = other.stage.armed() else { continue };
            // A campaign that missed its instant has sent nothing and never will.
            if self.missed_because(other, armed).is_some() {
                continue;
            }
            let is_other = name != named.name && is_lately(launch.at.max(other.due));
            if is_other && other.content == campaign.content && is_same(*audience) {
                return Err(CommandRefusal::LaunchedBefore { campaign: name.to_owned(), at: launch.at });
            }
        }
        let (first, last) = (RunId { index: 0, place: 0 }, RunId { index: u64::MAX, place: u32::MAX });
        let of_content = self.derived.to_seals.range((campaign.content, first)..=(campaign.content, last)).rev();
        for (_, run) in of_content {
            let Some(Former { tenant, name, opened_at, audience }) = self.former(*run) else { continue };
            // Runs are numbered in the order of opening, and ledger time never goes back.
            if !is_lately(opened_at) {
                break;
            }
            let is_same = match audience {
                FormerAudience::Seal(seal) => is_same(seal),
                FormerAudience::Recipients(kept) => Some(kept) == recipients,
            };
            if tenant == named.tenant && is_same {
                return Err(CommandRefusal::SentBefore { run: *run, name: name.to_owned(), at: opened_at });
            }
        }
        Ok(())
    }

    /// Returns the run or its summary; `None` if no recipient got an email, may have got one, or may still get one.
    fn former(&self, id: RunId) -> Option<Former<'_>> {
        if let Some((_, page, position)) = self.page_of(id) {
            let run = page.runs.get(position).filter(|run| run.has_emails() || !run.counts.is_finished())?;
            let audience = FormerAudience::Seal(run.audience);
            return Some(Former { tenant: &page.tenant, name: &run.name, opened_at: page.opened_at, audience });
        }
        let summary = self.summaries.get(&id)?;
        let audience = FormerAudience::Recipients(summary.mailing.as_ref()?.recipients);
        Some(Former { tenant: &summary.tenant, name: &summary.name, opened_at: summary.opened_at, audience })
    }

    /// Hash of a seal's recipients; see [`crate::model::Seal::recipients_hash`].
    fn recipients_hash(&self, seal: &Hash) -> Option<Hash> {
        self.seal(seal).map(|seal| seal.recipients_hash())
    }

    /// Returns what a summary keeps of a run's send; `None` if it sent no email or has an inline audience.
    pub(super) fn mailing(&self, run: &Run) -> Option<Box<Mailing>> {
        let recipients = self.recipients_hash(&run.audience).filter(|_| run.has_emails())?;
        Some(Box::new(Mailing { content: run.content, recipients }))
    }
}

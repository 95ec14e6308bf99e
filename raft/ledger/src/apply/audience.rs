//! Sealed audiences: seal and delete (P20), and references of schedules to audiences.
//!
//! A sealed audience is stored by name, with the hash of its seal. The seal is a blob, referenced by the name, by
//! schedules and by runs. The proposer knows that the parts of a seal are on the disks of a majority. The checks here
//! only protect the ledger.

use super::Context;
use super::bounds::{bounded, refuse_if};
use crate::command::{AudienceDelete, AudienceSeal};
use crate::model::{
    Audience, AudienceChoice, CAMPAIGNS_NAMED, CampaignStage, CommandOutcome, CommandRefusal, EtagKind, Hash,
    Impossible, Ledger, LimitedQuantity, SealedAudience, check_etag,
};

impl Ledger {
    /// Registers a sealed audience. Idempotent by its name: sealing the same recipients again is a repeat.
    pub(super) fn audience_seal(
        &mut self,
        context: &mut Context,
        AudienceSeal { tenant, seal, .. }: &AudienceSeal,
    ) -> Result<CommandOutcome, CommandRefusal> {
        if let Some(wrong) = seal.wrong(self.limits()) {
            return Err(Impossible::Seal(wrong).into());
        }
        let (name, blob) = ((tenant.clone(), seal.name.clone()), seal.blob());
        match self.audiences.get(&name).copied() {
            Some(known) if known.seal != blob.hash => return Err(CommandRefusal::AudienceNameTaken(seal.name.clone())),
            Some(known) => context.repeats = Some(known.index),
            None => {
                let (index, at) = (context.index, context.now);
                self.audiences.put(name, SealedAudience { seal: blob.hash, rows: seal.rows, index, at });
                self.derived.seals.insert(blob.hash);
                self.store_blob(blob);
            }
        }
        Ok(CommandOutcome::Done)
    }

    /// Refuses the delete while a campaign or a schedule uses the audience. A draft counts too: it was checked against
    /// these recipients. Reads all schedules, because deletes are rare.
    pub(super) fn check_audience_delete(&self, delete: &AudienceDelete) -> Result<(), CommandRefusal> {
        let key = (delete.tenant.clone(), delete.name.clone());
        let gone = || CommandRefusal::NoSuchAudience(delete.name.clone());
        let SealedAudience { seal, index, .. } = *self.audiences.get(&key).ok_or_else(gone)?;
        check_etag(delete.expected.as_deref(), (EtagKind::Audience, &delete.name), &index.to_string())?;
        self.check_used_by_no_campaign(&key)?;
        let mut schedules = self.schedules.iter();
        let user =
            schedules.find(|(_, schedule)| *schedule.settings.tenant == *delete.tenant && schedule.audience == seal);
        match user {
            Some((_, user)) => {
                Err(CommandRefusal::AudienceUsed { name: delete.name.clone(), schedule: user.name.to_string() })
            }
            None => Ok(()),
        }
    }

    pub(super) fn audience_delete(&mut self, delete: &AudienceDelete) -> Result<CommandOutcome, CommandRefusal> {
        let removed = self.audiences.remove(&(delete.tenant.clone(), delete.name.clone()));
        let seal = removed.ok_or_else(|| CommandRefusal::NoSuchAudience(delete.name.clone()))?.seal;
        self.release_blob(&seal);
        Ok(CommandOutcome::Done)
    }

    /// Refuses if a campaign uses the audience. A campaign that was cancelled before it opened does not count.
    fn check_used_by_no_campaign(&self, (tenant, audience): &(String, String)) -> Result<(), CommandRefusal> {
        let mut users = self.campaigns_of(tenant).filter(|(_, campaign)| {
            let is_over = matches!(campaign.stage, CampaignStage::Cancelled { opened: None, .. });
            campaign.audience == *audience && !is_over
        });
        let named = users.by_ref().take(CAMPAIGNS_NAMED);
        let campaigns: Vec<String> = named.map(|(name, _)| name.to_owned()).collect();
        if campaigns.is_empty() {
            return Ok(());
        }
        let more = u32::try_from(users.count()).unwrap_or(u32::MAX);
        Err(CommandRefusal::AudienceOfCampaign { name: audience.clone(), campaigns, more })
    }

    /// Checks that a schedule of this tenant may send to the audience.
    pub(super) fn check_audience(&self, tenant: &str, to: &AudienceChoice) -> Result<(), CommandRefusal> {
        match to {
            AudienceChoice::Listed(audience) => self.check_list(audience),
            AudienceChoice::Sealed(named) => {
                let known = self.audiences.get(&(tenant.to_owned(), named.name.clone()));
                let same = known.is_some_and(|known| known.seal == named.seal && known.rows == named.rows);
                if same { Ok(()) } else { Err(CommandRefusal::NoSuchAudience(named.name.clone())) }
            }
        }
    }

    /// Checks the bounds of a list.
    pub(super) fn check_list(&self, audience: &Audience) -> Result<(), CommandRefusal> {
        let limits = self.limits();
        bounded(LimitedQuantity::InlineBytes, audience.encoded_len(), limits.inline_bytes_max)?;
        bounded(LimitedQuantity::InlineRecipients, audience.recipients.len(), limits.inline_recipients_max)?;
        refuse_if(audience.recipients.is_empty(), Impossible::NoRecipients)
    }

    /// Adds a schedule's reference to an audience. Returns the hash under which the audience is stored.
    pub(super) fn retain_audience(&mut self, to: &AudienceChoice) -> Hash {
        match to {
            AudienceChoice::Listed(audience) => self.store_blob(audience.blob()),
            AudienceChoice::Sealed(named) => {
                self.retain_blob(&named.seal);
                named.seal
            }
        }
    }
}

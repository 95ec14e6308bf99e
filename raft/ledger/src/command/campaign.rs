//! Commands about campaigns.

use serde::{Deserialize, Serialize};

use crate::fingerprint::fingerprint;
use crate::model::{Campaign, CampaignStage, ContentChoice, Hash, Labels, Policies, Time};

/// Arguments of [`Command::CampaignCreate`](super::Command::CampaignCreate).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignCreate {
    /// Request id; `None` if the caller gave none.
    pub request: Option<String>,
    /// Tenant of the campaign.
    pub tenant: String,
    /// Name, unique among campaigns and schedules of the tenant.
    pub name: String,
    /// Instant at which it is to be sent.
    pub due: Time,
    /// IANA name of the time zone in which the user gave that instant.
    pub zone: String,
    /// Name of the audience. It need not be sealed yet.
    pub audience: String,
    /// Content of its emails.
    pub content: ContentChoice,
    /// Policies of its run.
    pub policies: Policies,
    /// True if the user chose `finish_by`. Otherwise it is forecast at the launch.
    pub finish_by_given: bool,
    /// Pool of relays that sends it.
    pub pool: String,
    /// Higher numbers go first within the tenant.
    pub priority: u8,
    /// Labels by which users group campaigns.
    pub labels: Labels,
}

impl CampaignCreate {
    /// Hash of the arguments without the request id. An equal hash is the same campaign.
    pub fn body_hash(&self) -> Hash {
        let content = self.content.requested();
        fingerprint(&("campaign", &CampaignCreate { content, request: None, ..self.clone() }))
    }

    /// Returns the draft that this command creates in the entry with this log index. `content` is the hash under which
    /// its content is stored.
    pub fn to_campaign(&self, content: Hash, index: u64) -> Campaign {
        Campaign {
            due: self.due,
            drafted_for: self.due,
            zone: self.zone.clone(),
            audience: self.audience.clone(),
            content,
            template: self.content.template(),
            policies: self.policies.clone(),
            finish_by_given: self.finish_by_given,
            pool: self.pool.clone(),
            priority: self.priority,
            labels: self.labels.clone(),
            body_hash: self.body_hash(),
            index,
            stage: CampaignStage::Draft,
        }
    }
}

/// Identifies a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignName {
    /// Tenant of the campaign.
    pub tenant: String,
    /// Name of the campaign.
    pub name: String,
}

impl CampaignName {
    /// Key of the campaign in the ledger's table.
    pub fn key(&self) -> (String, String) {
        (self.tenant.clone(), self.name.clone())
    }
}

/// Arguments of [`Command::CampaignArm`](super::Command::CampaignArm).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignArm {
    /// The campaign.
    pub campaign: CampaignName,
    /// Hash of the seal for which the proposer compiled the content. If the audience has another seal by now, the entry
    /// is refused, and the campaign waits for another check.
    pub checked: Option<Hash>,
    /// Why its content cannot be sent to that audience, as the proposer found. `None`: it can.
    pub wrong: Option<String>,
}

/// Arguments of [`Command::CampaignLaunch`](super::Command::CampaignLaunch).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignLaunch {
    /// The campaign.
    pub campaign: CampaignName,
    /// Instant at which it is to be sent.
    pub due: Time,
    /// Hash of the seal for which the proposer compiled the content. If the audience has another seal by now, or none,
    /// the leader compiles the content later.
    pub checked: Option<Hash>,
    /// The user allows the launch even if the same content went to the same audience within thirty days.
    pub again: bool,
    /// Version of the proposer's time zone database.
    pub tzdb: String,
    /// Etag that the campaign must have, unless it is launched for this instant already. `None`: any.
    pub expected: Option<String>,
}

/// Arguments of [`Command::CampaignCancel`](super::Command::CampaignCancel) and
/// [`Command::CampaignDelete`](super::Command::CampaignDelete).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignEnd {
    /// The campaign.
    pub campaign: CampaignName,
    /// Etag that it must have; one that is cancelled already may be cancelled whatever it has. `None`: any.
    pub expected: Option<String>,
}

impl From<CampaignName> for CampaignEnd {
    fn from(campaign: CampaignName) -> CampaignEnd {
        CampaignEnd { campaign, expected: None }
    }
}

impl Campaign {
    /// True if `create` asks for this campaign: with the instant of the draft, as a repeated request does, or with the
    /// instant of its latest launch, as it is shown to users.
    pub fn matches_request(&self, create: &CampaignCreate) -> bool {
        let drafted = || CampaignCreate { due: self.drafted_for, ..create.clone() }.body_hash();
        create.body_hash() == self.body_hash || (create.due == self.due && drafted() == self.body_hash)
    }
}

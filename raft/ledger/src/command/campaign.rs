//! Commands about campaigns.

use serde::{Deserialize, Serialize};

use crate::fingerprint::fingerprint;
use crate::model::{Campaign, Content, Hash, Labels, Policies, Time};

/// See [`Command::CampaignCreate`](super::Command::CampaignCreate).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignCreate {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// Tenant.
    pub tenant: String,
    /// Name, unique among campaigns and schedules of the tenant.
    pub name: String,
    /// When it is to be sent.
    pub due: Time,
    /// IANA name of the zone in which that was said.
    pub zone: String,
    /// Name of the audience, sealed or to be sealed.
    pub audience: String,
    /// Content.
    pub content: Content,
    /// Policies.
    pub policies: Policies,
    /// The user chose `finish_by`; if not, it is forecast at the launch.
    pub finish_by_given: bool,
    /// Pool of relays.
    pub pool: String,
    /// Higher goes first within the tenant.
    pub priority: u8,
    /// By which people group it.
    pub labels: Labels,
}

impl CampaignCreate {
    /// Hash of the body without the request id: an equal body is the same campaign.
    pub fn body(&self) -> Hash {
        fingerprint(&("campaign", &CampaignCreate { request: None, ..self.clone() }))
    }
}

/// A campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignName {
    /// Tenant.
    pub tenant: String,
    /// Name.
    pub name: String,
}

impl CampaignName {
    /// Its key.
    pub fn place(&self) -> (String, String) {
        (self.tenant.clone(), self.name.clone())
    }
}

/// See [`Command::CampaignArm`](super::Command::CampaignArm).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignArm {
    /// Which.
    pub campaign: CampaignName,
    /// The seal against which the proposer has compiled the content: where it is another one by now, or none, the
    /// campaign keeps waiting and is checked again.
    pub checked: Option<Hash>,
    /// Why its content cannot be sent to that audience, as the proposer found.
    pub wrong: Option<String>,
}

/// See [`Command::CampaignLaunch`](super::Command::CampaignLaunch).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignLaunch {
    /// Which.
    pub campaign: CampaignName,
    /// When it is to be sent.
    pub due: Time,
    /// The seal with which the proposer has compiled the content: with another one, or none, the leader does so.
    pub checked: Option<Hash>,
    /// Also where the same content went to the same audience within thirty days.
    pub again: bool,
    /// Version of the proposer's time zone database.
    pub tzdb: String,
}

impl Campaign {
    /// Does `create` ask for what this is? By the instant for which it was drafted, as a repeat of its creation does,
    /// or by the one for which it was launched since, as it is shown.
    pub fn is_asked_for_by(&self, create: &CampaignCreate) -> bool {
        let drafted = || CampaignCreate { due: self.drafted_for, ..create.clone() }.body();
        create.body() == self.body || (create.due == self.due && drafted() == self.body)
    }
}

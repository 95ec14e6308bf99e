//! Campaigns: one content for one audience at one instant, sent once for ever (P7).
//!
//! A campaign is a draft until it is launched. Then it becomes a schedule of one instant, which no command
//! can trigger, edit or backfill: what opens is one run, and there is no second one.

use serde::{Deserialize, Serialize};

use crate::model::{Hash, Labels, MissedCause, Policies, ScheduleId, Time};

/// A campaign, by tenant and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// When it is to be sent: what the latest launch says.
    pub due: Time,
    /// When it was to be sent, as the draft said.
    pub drafted_for: Time,
    /// In which zone people speak of that instant: IANA name.
    pub zone: String,
    /// Name of the sealed audience; it need not be sealed before its instant.
    pub audience: String,
    /// Content, by hash: frozen from the first entry on.
    pub content: Hash,
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
    /// Hash of the body that created it: the same body again is the same campaign.
    pub body: Hash,
    /// Log index of its last change.
    pub index: u64,
    /// How far it has come.
    pub stage: CampaignStage,
}

/// The launch of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Log index of the entry.
    pub index: u64,
    /// When.
    pub at: Time,
    /// Also where the same content went to the same audience a short time before.
    pub again: bool,
    /// Version of the time zone database of the node that launched it.
    pub tzdb: String,
}

/// What a launched campaign made of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Armed {
    /// Its launch.
    pub launch: Launch,
    /// A schedule of one instant.
    pub schedule: ScheduleId,
    /// Hash of the audience's seal.
    pub audience: Hash,
}

/// How far a campaign has come. What its run does is the run's to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CampaignStage {
    /// It does nothing before it is launched.
    Draft,
    /// Launched, and its audience is not sealed yet.
    Waiting(Launch),
    /// It has a schedule of its one instant.
    Armed(Armed),
    /// Its instant passed, and it did not fire. It may be launched for another one.
    Missed {
        /// When that was known.
        at: Time,
        /// Why.
        cause: MissedCause,
        /// Its launch.
        launch: Launch,
    },
    /// A user cancelled it.
    Cancelled {
        /// When.
        at: Time,
        /// Its launch, where there was one.
        launch: Option<Launch>,
        /// What it had made of itself, where that had opened a run already.
        opened: Option<Armed>,
    },
}

/// How far a campaign has come, without details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageKind {
    /// See [`CampaignStage::Draft`].
    Draft,
    /// See [`CampaignStage::Waiting`].
    Waiting,
    /// See [`CampaignStage::Armed`].
    Launched,
    /// See [`CampaignStage::Missed`].
    Missed,
    /// See [`CampaignStage::Cancelled`].
    Cancelled,
}

impl StageKind {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            StageKind::Draft => "draft",
            StageKind::Waiting => "waiting",
            StageKind::Launched => "launched",
            StageKind::Missed => "missed",
            StageKind::Cancelled => "cancelled",
        }
    }
}

impl CampaignStage {
    /// The stage without its details.
    pub fn kind(&self) -> StageKind {
        match self {
            CampaignStage::Draft => StageKind::Draft,
            CampaignStage::Waiting(_) => StageKind::Waiting,
            CampaignStage::Armed(_) => StageKind::Launched,
            CampaignStage::Missed { .. } => StageKind::Missed,
            CampaignStage::Cancelled { .. } => StageKind::Cancelled,
        }
    }

    /// One word for it.
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// What it has made of itself.
    pub fn armed(&self) -> Option<&Armed> {
        match self {
            CampaignStage::Armed(armed) => Some(armed),
            CampaignStage::Cancelled { opened, .. } => opened.as_ref(),
            CampaignStage::Draft | CampaignStage::Waiting(_) | CampaignStage::Missed { .. } => None,
        }
    }

    /// Its launch, where there was one.
    pub fn launch(&self) -> Option<&Launch> {
        match self {
            CampaignStage::Draft => None,
            CampaignStage::Waiting(launch) | CampaignStage::Missed { launch, .. } => Some(launch),
            CampaignStage::Armed(armed) => Some(&armed.launch),
            CampaignStage::Cancelled { launch, .. } => launch.as_ref(),
        }
    }

    /// The schedule of its run.
    pub fn schedule(&self) -> Option<ScheduleId> {
        self.armed().map(|armed| armed.schedule)
    }
}

//! Campaigns: one content for one audience at one instant, sent only once (P7).
//!
//! A campaign is a draft until it is launched. Then it becomes a schedule of one instant, which no command can trigger,
//! edit or backfill. So it opens exactly one run.

use serde::{Deserialize, Serialize};

use crate::model::{Hash, Labels, MissedCause, Policies, ScheduleId, TemplateUse, Time};

/// A campaign; stored by tenant and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// The instant at which it is due, as the latest launch says.
    pub due: Time,
    /// The instant at which it was due, as the draft said.
    pub drafted_for: Time,
    /// IANA name of the time zone in which users think of that instant.
    pub zone: String,
    /// Name of the sealed audience. It need not be sealed before the campaign is due.
    pub audience: String,
    /// Hash of the content; it never changes.
    pub content: Hash,
    /// The version of a template that has this content; `None` if the content was given.
    pub template: Option<TemplateUse>,
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
    /// Hash of the request body that created it. Creating it again with the same body is idempotent.
    pub body_hash: Hash,
    /// Log index of its last change.
    pub index: u64,
    /// Its stage, with details.
    pub stage: CampaignStage,
}

/// The launch of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Log index of the entry that launched it.
    pub index: u64,
    /// Ledger time of that entry.
    pub at: Time,
    /// The user allowed the launch even if the same content went to the same audience a short time before (P20).
    pub again: bool,
    /// Version of the time zone database of the node that launched it.
    pub tzdb: String,
}

/// The schedule of a launched campaign whose audience is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Armed {
    /// The launch.
    pub launch: Launch,
    /// The schedule of one instant.
    pub schedule: ScheduleId,
    /// Hash of the audience's seal.
    pub audience: Hash,
}

/// Stage of a campaign. The state of its run is in the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CampaignStage {
    /// Not launched.
    Draft,
    /// Launched, and its audience is not sealed yet.
    Waiting(Launch),
    /// Launched, with a schedule of one instant.
    Armed(Armed),
    /// Its instant passed without a run. It may be launched again for another instant.
    Missed {
        /// Ledger time of the entry that recorded it.
        at: Time,
        /// Why it did not open.
        cause: MissedCause,
        /// The launch that was missed.
        launch: Launch,
    },
    /// A user cancelled it.
    Cancelled {
        /// Ledger time of the cancel.
        at: Time,
        /// Its launch; `None` if it was a draft.
        launch: Option<Launch>,
        /// Its schedule, if that had opened a run already.
        opened: Option<Armed>,
    },
}

word_enum! {
    /// Stage of a campaign, without details.
    StageKind {
        /// See [`CampaignStage::Draft`].
        Draft = "draft",
        /// See [`CampaignStage::Waiting`].
        Waiting = "waiting",
        /// See [`CampaignStage::Armed`].
        Launched = "launched",
        /// See [`CampaignStage::Missed`].
        Missed = "missed",
        /// See [`CampaignStage::Cancelled`].
        Cancelled = "cancelled",
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

    /// The stage in one word.
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// Its schedule and launch; `None` unless it is armed, or was cancelled after its run opened.
    pub fn armed(&self) -> Option<&Armed> {
        match self {
            CampaignStage::Armed(armed) => Some(armed),
            CampaignStage::Cancelled { opened, .. } => opened.as_ref(),
            CampaignStage::Draft | CampaignStage::Waiting(_) | CampaignStage::Missed { .. } => None,
        }
    }

    /// As [`CampaignStage::armed`], for a change.
    pub(crate) fn armed_mut(&mut self) -> Option<&mut Armed> {
        match self {
            CampaignStage::Armed(armed) => Some(armed),
            CampaignStage::Cancelled { opened, .. } => opened.as_mut(),
            CampaignStage::Draft | CampaignStage::Waiting(_) | CampaignStage::Missed { .. } => None,
        }
    }

    /// Its latest launch; `None` for a draft.
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

//! Refusals: deterministic answers of the ledger, equal on every replica and part of the reply.
//!
//! A refusal changes nothing. It is never a fault of storage and never worth a blind retry; what to do
//! next is in the text.

use serde::{Deserialize, Serialize};

use crate::model::{
    ActivityKind, Bounded, CanaryState, Epoch, Impossible, Incarnation, RunId, ScheduleId, StageKind, Time,
};

/// Why the ledger did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// P13: proposed under another epoch than the one in force.
    #[error("proposed under epoch {}, but epoch {} is in force", .proposed.0, .current.0)]
    WrongEpoch {
        /// What the entry carried.
        proposed: Epoch,
        /// What is in force.
        current: Epoch,
    },
    /// P18: ledger time never goes back.
    #[error("ledger time is {ledger} already, the entry says {entry}")]
    TimeWentBack {
        /// Ledger time.
        ledger: Time,
        /// The entry's.
        entry: Time,
    },
    /// P18: a leap is only possible at the start of an epoch.
    #[error("the entry is more than 60 s ahead of ledger time {ledger}: {entry}")]
    TimeLeaps {
        /// Ledger time.
        ledger: Time,
        /// The entry's.
        entry: Time,
    },
    /// P18: nothing fires while no two voters agree on the time.
    #[error("no two voters' clocks agree within 2 s: nothing fires; put the clocks right (chrony, ntpd)")]
    ClocksDisagree,
    /// P10: a life that the ledger has seen the end of.
    #[error("incarnation {} is not above {} that the ledger knows: this data folder is an old copy, and no node must start with it", .asked.0, .known.0)]
    OldIncarnation {
        /// What asked.
        asked: Incarnation,
        /// What is known.
        known: Incarnation,
    },
    /// No schedule of that number (any more).
    #[error("no schedule with number {}", .0.0)]
    NoSuchSchedule(ScheduleId),
    /// No run of that name.
    #[error("no run {0}")]
    NoSuchRun(RunId),
    /// No relay of that name.
    #[error("no relay named '{0}'")]
    NoSuchRelay(String),
    /// The name is taken by something else.
    #[error("'{0}' exists with another body; choose another name, or delete it first")]
    NameTaken(String),
    /// The request id was used for something else.
    #[error("request id '{0}' was used with another body; draw a new one")]
    RequestReused(String),
    /// P8: the plan has moved on.
    #[error("the plan has moved on")]
    StalePlan,
    /// P8: proposed before its instant.
    #[error("not due before {0}")]
    NotDue(Time),
    /// P8: not above what has fired or was explained.
    #[error("at or below what has fired already")]
    FiredThrough,
    /// The schedule is paused, blocked, done or deleted.
    #[error("the schedule is {}", .0.word())]
    NotActive(ActivityKind),
    /// P4: the owner is not a node's current life.
    #[error("the holder is not alive in the ledger")]
    OwnerGone,
    /// Nothing of what was asked for can be claimed.
    #[error("nothing to claim")]
    NothingPending,
    /// A bound that protects the ledger.
    #[error("{what} is above the bound of {bound}")]
    TooLarge {
        /// What.
        what: Bounded,
        /// The bound.
        bound: u64,
    },
    /// The state does not allow it.
    #[error("not possible: {0}")]
    NotPossible(#[from] Impossible),
    /// A relay of that name is there, and is another.
    #[error("relay '{0}' exists with another body; replace it, or choose another name")]
    RelayNameTaken(String),
    /// P16: a former run of the schedule is not finished, and its `overlap` forbids two at once.
    #[error("run {0} of the schedule is not finished, and its overlap policy forbids a second one beside it")]
    RunOpen(RunId),
    /// No recipient would get an email (P17).
    #[error(
        "min_gap: each recipient got an email of this schedule too short a time ago, the last one in run {run}; the next one is allowed at {until}"
    )]
    InsideGap {
        /// A run that sent one.
        run: RunId,
        /// When the first of them may get another one.
        until: Time,
    },
    /// P20: no sealed audience of that name, or it is another one by now.
    #[error("no sealed audience named '{0}', or it is another one by now")]
    NoSuchAudience(String),
    /// The name of an audience is taken by another one.
    #[error("audience '{0}' exists with other recipients; choose another name, or delete it first")]
    AudienceNameTaken(String),
    /// P20: a schedule names the audience.
    #[error("audience '{name}' is used by schedule '{schedule}'")]
    AudienceUsed {
        /// The audience.
        name: String,
        /// One of the schedules.
        schedule: String,
    },
    /// No campaign of that name.
    #[error("no campaign named '{0}'")]
    NoSuchCampaign(String),
    /// What was asked of a campaign does not fit how far it has come.
    #[error("the campaign is {} already", .0.word())]
    CampaignIs(StageKind),
    /// A campaign opens once, and is not changed by its schedule (P7).
    #[error("'{0}' is a campaign: it opens once, and is cancelled or deleted as one")]
    OfCampaign(String),
    /// P20: the same content went to the same audience.
    #[error(
        "campaign '{campaign}' sends the same content to the same audience, launched at {at}; say that it is to go out again, if it is"
    )]
    LaunchedBefore {
        /// The former one.
        campaign: String,
        /// When it was launched.
        at: Time,
    },
    /// P20: campaigns send to the audience, or will once they are launched.
    #[error("audience '{name}' is used by {}", campaigns_named(campaigns, *more))]
    AudienceOfCampaign {
        /// The audience.
        name: String,
        /// The first campaigns by name, [`CAMPAIGNS_NAMED`] at most.
        campaigns: Vec<String>,
        /// Campaigns beside those.
        more: u32,
    },
    /// The name is taken by a campaign.
    #[error("campaign '{0}' exists with another body; choose another name, or delete it first")]
    CampaignNameTaken(String),
    /// P20: the same content went to the same recipients, and may have been deleted since.
    #[error(
        "run {run} of '{name}', opened at {at}, has sent the same content to the same recipients, or is sending it; say that it is to go out again, if it is"
    )]
    SentBefore {
        /// The former run.
        run: RunId,
        /// The name of its schedule or campaign.
        name: String,
        /// When it opened.
        at: Time,
    },
    /// P12: as much of the tenant is claimed as may be at once.
    #[error("tenant '{tenant}' has as many recipients claimed as it may at once: {most}")]
    AtConcurrency {
        /// Whose.
        tenant: String,
        /// How many at once.
        most: u32,
    },
    /// P25: as much as may go by the pool today has gone, or is on its way.
    #[error("today's cap of pool '{pool}' is used up until {until}")]
    CapUsedUp {
        /// The pool.
        pool: String,
        /// When the next day begins.
        until: Time,
    },
    /// The run's canary has held it, and the resume does not say so (P6).
    #[error("its canary has held it, and it goes on only where that is overruled; {0}")]
    CanaryHeld(CanaryState),
}

/// Campaigns that a refusal names; of more it says how many they are.
pub const CAMPAIGNS_NAMED: usize = 5;

/// `campaign 'spring'`, or `campaigns 'spring', 'summer' and 3 more`.
fn campaigns_named(campaigns: &[String], more: u32) -> String {
    let noun = if campaigns.len() == 1 { "campaign" } else { "campaigns" };
    let names = campaigns.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{noun} {names}{more}")
}

//! Refusals: deterministic answers of the ledger, equal on every replica and part of the reply.
//!
//! A refusal does nothing of what was asked. Two leave a trace: a refused fire is counted, and a claim first suppresses
//! recipients inside `min_gap`. It is never caused by storage, and a blind retry does not help; its text says what to
//! do.

use serde::{Deserialize, Serialize};

use crate::model::{
    CanaryState, Epoch, EtagKind, Impossible, Incarnation, LimitedQuantity, RunId, ScheduleId, ScheduleStateKind,
    StageKind, Time, TokenId,
};

/// Why the ledger refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CommandRefusal {
    /// The entry was proposed under another epoch than the current one (P13).
    #[error("proposed under epoch {}, but epoch {} is in force", .proposed.0, .current.0)]
    WrongEpoch {
        /// Epoch of the entry.
        proposed: Epoch,
        /// Current epoch.
        current: Epoch,
    },
    /// Ledger time never goes back (P18).
    #[error("ledger time is {ledger} already, the entry says {entry}")]
    TimeWentBack {
        /// Current ledger time.
        ledger: Time,
        /// Time of the entry.
        entry: Time,
    },
    /// A large step of ledger time is only possible at the start of an epoch (P18).
    #[error("the entry is too far ahead of ledger time {ledger}: {entry}")]
    TimeLeaps {
        /// Current ledger time.
        ledger: Time,
        /// Time of the entry.
        entry: Time,
    },
    /// No two voters agree on the time, so nothing fires (P18).
    #[error("no two voters' clocks agree within 2 s: nothing fires; put the clocks right (chrony, ntpd)")]
    ClocksDisagree,
    /// The ledger knows a later incarnation of the node, or another process of the same incarnation (P10).
    #[error("incarnation {} is not above {} that the ledger knows: this data folder is an old copy, and no node must start with it", .requested.0, .known.0)]
    OldIncarnation {
        /// Incarnation that the node requests.
        requested: Incarnation,
        /// Last incarnation in the ledger.
        known: Incarnation,
    },
    /// No schedule has this id, or it was deleted.
    #[error("no schedule with id {0}")]
    NoSuchSchedule(ScheduleId),
    /// No run has this id.
    #[error("no run {0}")]
    NoSuchRun(RunId),
    /// No relay has this name.
    #[error("no relay named '{0}'")]
    NoSuchRelay(String),
    /// A schedule with other properties has this name.
    #[error("'{0}' exists with another body; choose another name, or delete it first")]
    NameTaken(String),
    /// The request id was used for another request.
    #[error("request id '{0}' was used with another body; draw a new one")]
    RequestReused(String),
    /// The plan has changed since the proposer read it (P8).
    #[error("the plan of the schedule has changed since it was read")]
    StalePlan,
    /// Proposed before its instant (P8).
    #[error("not due before {0}")]
    NotDue(Time),
    /// The instant is not after the last fired or explained one (P8).
    #[error("this instant has been opened or explained already")]
    FiredThrough,
    /// The schedule is paused, blocked, done or deleted.
    #[error("the schedule is {}", .0.word())]
    NotActive(ScheduleStateKind),
    /// The owner is not the current incarnation of its node (P4).
    #[error("the owner is not the current process of its node")]
    OwnerGone,
    /// No recipient of the request can be claimed.
    #[error("nothing to claim")]
    NothingPending,
    /// A limit that protects the ledger.
    #[error("{what} is above the bound of {bound}")]
    TooLarge {
        /// The quantity.
        what: LimitedQuantity,
        /// The limit.
        bound: u64,
    },
    /// The state does not allow it.
    #[error("not possible: {0}")]
    NotPossible(#[from] Impossible),
    /// A relay with other properties has this name.
    #[error("relay '{0}' exists with another body; replace it, or choose another name")]
    RelayNameTaken(String),
    /// An earlier run of the schedule is unfinished, and `overlap` forbids two at once (P16).
    #[error("run {0} of the schedule is not finished, and its overlap policy forbids a second one beside it")]
    RunOpen(RunId),
    /// No recipient would get an email, because of `min_gap` (P17).
    #[error(
        "min_gap: each recipient got an email of this schedule too short a time ago, the last one in run {run}; the next one is allowed at {until}"
    )]
    InsideGap {
        /// A run that sent one of the earlier emails.
        run: RunId,
        /// When the first recipient may get another email.
        until: Time,
    },
    /// No sealed audience has this name, or its seal differs from the expected one (P20).
    #[error("audience '{0}' is not sealed, or was sealed again since it was read")]
    NoSuchAudience(String),
    /// An audience with other recipients has this name.
    #[error("audience '{0}' exists with other recipients; choose another name, or delete it first")]
    AudienceNameTaken(String),
    /// A schedule uses the audience (P20).
    #[error("audience '{name}' is used by schedule '{schedule}'")]
    AudienceUsed {
        /// Name of the audience.
        name: String,
        /// Name of one of the schedules.
        schedule: String,
    },
    /// No campaign has this name.
    #[error("no campaign named '{0}'")]
    NoSuchCampaign(String),
    /// The stage of the campaign does not allow the request.
    #[error("the campaign is {} already", .0.word())]
    CampaignIs(StageKind),
    /// The schedule belongs to a campaign: it opens once, and cannot be changed by itself (P7).
    #[error("'{0}' is a campaign: it opens once, and is cancelled or deleted as one")]
    OfCampaign(String),
    /// The same content went to the same audience (P20).
    #[error(
        "campaign '{campaign}' sends the same content to the same audience, launched at {at}; say that it is to go out again, if it is"
    )]
    LaunchedBefore {
        /// The earlier campaign.
        campaign: String,
        /// When it was launched.
        at: Time,
    },
    /// Campaigns use the audience, or will when they are launched (P20).
    #[error("audience '{name}' is used by {}", campaigns_named(campaigns, *more))]
    AudienceOfCampaign {
        /// Name of the audience.
        name: String,
        /// Names of the first [`CAMPAIGNS_NAMED`] campaigns.
        campaigns: Vec<String>,
        /// Number of further campaigns.
        more: u32,
    },
    /// A campaign has this name.
    #[error("campaign '{0}' exists with another body; choose another name, or delete it first")]
    CampaignNameTaken(String),
    /// A run sent the same content to the same recipients; its campaign may have been deleted since (P20).
    #[error(
        "run {run} of '{name}', opened at {at}, has sent the same content to the same recipients, or is sending it; say that it is to go out again, if it is"
    )]
    SentBefore {
        /// The earlier run.
        run: RunId,
        /// Name of its schedule or campaign.
        name: String,
        /// When it opened.
        at: Time,
    },
    /// The tenant has as many recipients claimed as it may have at once (P12).
    #[error("tenant '{tenant}' has as many recipients claimed as it may at once: {most}")]
    AtConcurrency {
        /// Name of the tenant.
        tenant: String,
        /// Largest number of claimed recipients.
        most: u32,
    },
    /// Today's cap of the pool is used up by sent and claimed recipients (P25).
    #[error("today's cap of pool '{pool}' is used up until {until}")]
    CapUsedUp {
        /// Name of the pool.
        pool: String,
        /// When the next day begins.
        until: Time,
    },
    /// The run's canary failed, and the resume does not overrule it (P6).
    #[error("its canary has held it, and it goes on only where that is overruled; {0}")]
    CanaryHeld(CanaryState),
    /// The token of the caller is unknown, revoked or expired.
    #[error("the token is not valid: it is unknown, revoked or expired")]
    TokenNotValid,
    /// The token of the caller has not the right that this needs, or not the tenant.
    #[error("the token does not permit this")]
    NotPermitted,
    /// No token has this id.
    #[error("no token {0}")]
    NoSuchToken(TokenId),
    /// Another token has this id.
    #[error("another token has the id {0}; try again")]
    TokenIdTaken(TokenId),
    /// The cluster was restored from a backup, and no operator has accepted it (P21).
    #[error(
        "this cluster was restored from a backup and sends nothing yet: stop the former cluster for good, read what \
         the restored one would send, then accept the restore"
    )]
    RestoreNotAccepted,
    /// A former cluster may have sent the instant (P21).
    #[error("the former cluster may have sent any instant up to {0}: only a backfill opens it")]
    MaybeSent(Time),
    /// The person is claimed in a run, so an email may be on its way (P15).
    #[error("run {0} is sending to this recipient right now; repeat the command")]
    RecipientClaimed(RunId),
    /// No template has this name, or this version of it does not exist, was removed, or has another content.
    #[error("no template '{name}'{}", version.map(|version| format!(" in version {version}")).unwrap_or_default())]
    NoSuchTemplate {
        /// Name of the template.
        name: String,
        /// The version; `None`: the newest one.
        version: Option<u32>,
    },
    /// The object has another etag than the caller read, or does not exist.
    #[error("{} '{name}' was changed since it was read", kind.word())]
    Changed {
        /// Kind of the object.
        kind: EtagKind,
        /// Its name.
        name: String,
    },
    /// Schedules or campaigns were made of the template.
    #[error("template '{name}' is used by {}", users_named(users, *more))]
    TemplateUsed {
        /// Name of the template.
        name: String,
        /// Names of the first [`TEMPLATE_USERS_NAMED`] schedules and campaigns.
        users: Vec<String>,
        /// Number of further ones.
        more: u32,
    },
}

/// Maximum number of campaigns that a refusal names; further campaigns are only counted.
pub const CAMPAIGNS_NAMED: usize = 5;

/// Maximum number of schedules and campaigns that a refusal names; further ones are only counted.
pub const TEMPLATE_USERS_NAMED: usize = 5;

/// Returns `campaign 'spring'`, or `campaigns 'spring', 'summer' and 3 more`.
fn campaigns_named(campaigns: &[String], more: u32) -> String {
    let noun = if campaigns.len() == 1 { "campaign" } else { "campaigns" };
    format!("{noun} {}", users_named(campaigns, more))
}

/// Returns `'spring', 'summer' and 3 more`.
fn users_named(users: &[String], more: u32) -> String {
    let names = users.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{names}{more}")
}

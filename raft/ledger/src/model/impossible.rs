//! Requests that the state does not allow, one variant for each rule. Refusals may be stored, so they hold no sentences
//! (P2).

use serde::{Deserialize, Serialize};

use crate::model::{NodeId, RunStateKind, ScheduleId, Time, WrongLabel, WrongSeal};

/// Why a request is not possible. New variants are added at the end (P23).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Impossible {
    /// The run's state does not allow it.
    #[error("the run is {}", .0.word())]
    RunIs(RunStateKind),
    /// The policy `resend` does not send after the deadline.
    #[error("the deadline has passed: only an operator can send again")]
    PastDeadline,
    /// No canary paused the run.
    #[error("no canary paused the run, so there is none to overrule")]
    NoCanary,
    /// No relay of the pool accepts email.
    #[error("no relay of pool '{0}' accepts email")]
    PoolWithoutRelay(String),
    /// Labels are invalid.
    #[error("labels: {0}")]
    Labels(WrongLabel),
    /// Details would be removed before `min_gap` is over (P17).
    #[error("a min_gap above the retention: what was sent would be forgotten")]
    GapAboveRetention,
    /// The ledger has no address keys of a sealed audience, so `min_gap` cannot be checked (P17).
    #[error("a min_gap for a sealed audience: leave one of them out")]
    GapOfSealed,
    /// `max_runs` is 0.
    #[error("a schedule that may never run (max_runs is 0)")]
    NoRuns,
    /// `max_runs` occurrences have opened.
    #[error("max_runs is used up")]
    RunsUsedUp,
    /// The audience is empty.
    #[error("a schedule needs at least one recipient")]
    NoRecipients,
    /// The seal is invalid.
    #[error("{0}")]
    Seal(WrongSeal),
    /// The name is that of the schedule of a tenant's messages.
    #[error("a schedule without a name")]
    NoName,
    /// The deadline of a message has passed before it opens.
    #[error("a message whose deadline {0} has passed: give a later send time or finish_by")]
    MessageTooLate(Time),
    /// An instant opens outside the window of `jitter` (P8).
    #[error("an instant that opens outside its window")]
    OutsideWindow,
    /// The fire opens nothing and explains nothing.
    #[error("a fire that neither opens nor explains")]
    EmptyFire,
    /// Openings are not sorted by their instants, or one is listed twice.
    #[error("openings that are out of order or twice the same")]
    Unordered,
    /// `overlap` allows one opening at a time (P16).
    #[error("several openings at once where runs must not overlap")]
    SeveralOpenings,
    /// A backfill opens only occurrences before the plan's next instant, each once.
    #[error("a backfill of what the plan has not left behind, or twice")]
    BackfillAhead,
    /// An edit that changes a policy of the calendar must contain the new plan.
    #[error("a policy of the calendar changes without the plan")]
    CalendarWithoutPlan,
    /// An explained range begins with an occurrence that opened.
    #[error("a range of missed instants that begins with a run")]
    RangeBeginsWithRun,
    /// The fire of an edit is for another schedule, or the edit also explains ranges.
    #[error("the fire in this edit is for another schedule, or the edit explains ranges")]
    FiresElse,
    /// The former timing has more due instants than the entry opens or explains.
    #[error("more is due than this entry opens or explains")]
    MoreIsDue,
    /// A due instant of the former timing is neither opened nor explained.
    #[error("what is due is neither opened nor explained")]
    DueUnexplained,
    /// The former timing has no due instant that could be explained.
    #[error("nothing was missed that could be explained")]
    NothingMissed,
    /// The instant of a campaign has passed.
    #[error("an instant that is over since {0}: give a later one")]
    InstantOver(Time),
    /// The campaign may still send.
    #[error("to delete a campaign that is not over: cancel it first")]
    CampaignNotOver,
    /// The campaign is cancelled, and its run is not finished.
    #[error(
        "to delete it yet: it is cancelled, and some of its recipients are still claimed; try again when its run is \
         finished"
    )]
    CampaignStillClaimed,
    /// The share of a tenant is 0.
    #[error("a tenant has a share of 1 at least; pause what it must not send")]
    NoShare,
    /// A day of the warm-up has no cap.
    #[error("a warm-up has a cap for each of its days, 1 at least")]
    DayWithoutCap,
    /// The first day of the warm-up is after today or too long ago.
    #[error("a warm-up begins today, or began no longer ago than it may last")]
    WarmUpBegin,
    /// A test clock can only be chosen before the cluster is used (P19).
    #[error("a test clock is chosen when a cluster is made, and this one is in use with real time")]
    InUse,
    /// The cluster has no test clock (P19).
    #[error("this cluster keeps real time: a test clock is chosen when a cluster is made, and for good")]
    RealTime,
    /// The test clock never goes back (P19).
    #[error("it is {now} already, and the clock only goes forward")]
    ClockGoesForward {
        /// Current ledger time.
        now: Time,
    },
    /// An advance must not pass a due instant (P19).
    #[error("a schedule is due {due}, before {to}: advance to it, or jump")]
    DueBefore {
        /// The instant that is due.
        due: Time,
        /// Target of the advance.
        to: Time,
    },
    /// With a test clock no email leaves the machine (P19).
    #[error("the time is a test's, so no email leaves this machine, and {host} is another; give a relay on 127.0.0.1")]
    RelayElsewhere {
        /// Host of the relay.
        host: String,
    },
    /// Taking back an opt-out needs a reason (P15).
    #[error("an opt-out is taken back for a reason, and there is none")]
    NoReason,
    /// The recipient opted out again after the request was made (P15).
    #[error("{0} has opted out again meanwhile")]
    OptedOutAgain(String),
    /// The recipient has not opted out (P15).
    #[error("{0} has not opted out")]
    NotOptedOut(String),
    /// The node cannot apply entries of the ledger's level (P23).
    #[error("the ledger is at level {ledger}, this node knows {node}")]
    LevelTooLow {
        /// Level of the ledger.
        ledger: u32,
        /// Highest level that the node can apply.
        node: u32,
    },
    /// The ledger's level never goes down (P23).
    #[error("the ledger is at level {ledger} and never goes back to {requested}")]
    LevelRaised {
        /// Requested level.
        requested: u32,
        /// Level of the ledger.
        ledger: u32,
    },
    /// A node has not announced that it can apply the level (P23).
    #[error(
        "node {node} has announced level {announced} (0: none), below {requested}; start it with the new release first"
    )]
    LevelNotAnnounced {
        /// Requested level.
        requested: u32,
        /// The node.
        node: NodeId,
        /// Level that it announced; 0 if it never announced one.
        announced: u32,
    },
    /// One entry would create too many schedules.
    #[error("one request creates at most {} schedules; send several requests", ScheduleId::PER_ENTRY)]
    TooManySchedules,
    /// The node was removed, and ids are never used again (P22).
    #[error("node {0} was removed, and its id is never used again")]
    NodeRemoved(NodeId),
    /// No process of the node ever came up.
    #[error("no process of node {0} ever came up")]
    NodeUnknown(NodeId),
    /// A node that drains gets no claims (P22).
    #[error("node {0} drains")]
    NodeDrains(NodeId),
    /// A node is removed only when nothing is claimed for it (P22).
    #[error("{claimed} recipients are claimed for node {node}: they are settled or taken back first")]
    NodeHasClaims {
        /// The node.
        node: NodeId,
        /// Number of the recipients.
        claimed: u32,
    },
    /// A token would have expired before it exists.
    #[error("the token would have expired already")]
    TokenEnded,
    /// A restore makes the first state of another cluster (P21).
    #[error("a backup is restored offline, into an empty data folder")]
    RestoreOfRunningCluster,
    /// There is no restore to accept.
    #[error("this cluster was not restored from a backup")]
    NotRestored,
    /// A policy has no evidence.
    #[error("only an operator has evidence that an email was accepted")]
    EvidenceOfPolicy,
    /// The authority that a rotation would replace is not the present one (P22).
    #[error("the certificate authority was rotated meanwhile")]
    AuthorityChanged,
    /// Another rotation of the authority is under way, or this one is not so far (P22).
    #[error("the rotation of the certificate authority is at another step")]
    OtherRotation,
    /// Members use the new authority, so the rotation can only be finished (P22).
    #[error("members use the new certificate authority already: finish the rotation")]
    AuthorityUsed,
    /// Nothing that is accepted as lost is named (P24).
    #[error("no part of the archive names such a block")]
    NothingLost,
}

/// A quantity with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LimitedQuantity {
    /// Size of a content, in bytes.
    #[error("content (bytes)")]
    ContentBytes,
    /// Number of attachments of a content.
    #[error("attachments")]
    Attachments,
    /// Bytes of a content's attachments together.
    #[error("attachments (bytes)")]
    AttachmentBytes,
    /// Size of an audience in an entry, in bytes.
    #[error("inline audience (bytes)")]
    InlineBytes,
    /// Number of recipients of an audience in an entry.
    #[error("inline audience (recipients)")]
    InlineRecipients,
    /// Length of an audience's name, in bytes.
    #[error("name of the audience (bytes)")]
    AudienceNameBytes,
    /// Number of occurrences that one entry opens.
    #[error("openings in one entry")]
    Openings,
    /// Number of occurrences of one backfill.
    #[error("occurrences in one backfill")]
    Backfill,
    /// Number of recipients of one slice.
    #[error("slice (recipients)")]
    Slice,
    /// Rate of a tenant, in thousandths of a recipient a second.
    #[error("rate of a tenant (thousandths)")]
    TenantRate,
    /// Share of a tenant.
    #[error("share of a tenant")]
    TenantShare,
    /// Number of days of a warm-up.
    #[error("warm-up (days)")]
    WarmUpDays,
    /// Number of nodes that were ever removed.
    #[error("removed nodes")]
    RemovedNodes,
    /// Number of tokens that have not ended.
    #[error("tokens; revoke those that are not used")]
    Tokens,
    /// Number of tenants of a token.
    #[error("tenants of a token")]
    TokenTenants,
    /// Length of the name of a token or of one of its tenants, in bytes.
    #[error("name of a token (bytes)")]
    TokenNameBytes,
    /// Length of the name of a template, in bytes.
    #[error("name of the template (bytes)")]
    TemplateNameBytes,
    /// Number of versions of a template that schedules and campaigns use.
    #[error("versions of the template; delete or change what uses the oldest ones")]
    TemplateVersions,
    /// Number of templates of a tenant.
    #[error("templates of the tenant")]
    Templates,
    /// Number of pools that a tenant may name.
    #[error("pools of a tenant")]
    TenantPools,
}

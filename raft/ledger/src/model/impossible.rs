//! What the state does not allow, one variant a rule. A refusal may be stored, so it holds no sentence (P2).

use serde::{Deserialize, Serialize};

use crate::model::{NodeId, RunKind, Time, WrongLabel, WrongSeal};

/// Why something is not possible. Variants are only ever added at the end (P23).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Impossible {
    /// The run's state does not allow it.
    #[error("the run is {}", .0.word())]
    RunIs(RunKind),
    /// The policy `resend` does not act after the deadline.
    #[error("past its deadline only a person sends again")]
    PastDeadline,
    /// No canary paused the run.
    #[error("no canary has held it, so there is none to overrule")]
    NoCanary,
    /// No relay of the pool accepts email.
    #[error("no relay of pool '{0}' takes mail")]
    PoolWithoutRelay(String),
    /// Labels that break a rule.
    #[error("labels: {0}")]
    Labels(WrongLabel),
    /// The details would be pruned before the gap is over (P17).
    #[error("a min_gap above the retention: what was sent would be forgotten")]
    GapAboveRetention,
    /// P17: recipients of a sealed audience have no address keys in the ledger.
    #[error("a min_gap for a sealed audience: leave one of them out")]
    GapOfSealed,
    /// `max_runs` is 0.
    #[error("a schedule that may never run (max_runs is 0)")]
    NoRuns,
    /// `max_runs` occurrences opened.
    #[error("max_runs is used up")]
    RunsUsedUp,
    /// An empty audience.
    #[error("a schedule needs at least one recipient")]
    NoRecipients,
    /// A seal that breaks a rule.
    #[error("{0}")]
    Seal(WrongSeal),
    /// A test email has one recipient.
    #[error("a test mail that does not go to exactly one recipient")]
    NotOneRecipient,
    /// P8: outside the window of `jitter`.
    #[error("an instant that opens outside its window")]
    OutsideWindow,
    /// A fire without content.
    #[error("a fire that neither opens nor explains")]
    EmptyFire,
    /// Openings are sorted by their instants.
    #[error("openings that are out of order or twice the same")]
    Unordered,
    /// P16: `overlap` allows one at a time.
    #[error("several openings at once where runs must not overlap")]
    SeveralOpenings,
    /// A backfill opens what lies behind the plan, each name once.
    #[error("a backfill of what the plan has not left behind, or twice")]
    BackfillAhead,
    /// An edit of a policy of the calendar carries the plan with it.
    #[error("a policy of the calendar changes without the plan")]
    CalendarWithoutPlan,
    /// The first name of an explained range opened.
    #[error("a range of missed instants that begins with a run")]
    RangeBeginsWithRun,
    /// The fire of an edit is of another schedule, or beside explained ranges.
    #[error("an edit that fires something else")]
    FiresElse,
    /// The former timing has more due instants.
    #[error("more is due than this entry opens or explains")]
    MoreIsDue,
    /// The former timing has a due instant.
    #[error("what is due is neither opened nor explained")]
    DueUnexplained,
    /// The former timing has no due instant.
    #[error("nothing was missed that could be explained")]
    NothingMissed,
    /// A campaign is launched for an instant that has not passed.
    #[error("an instant that is over since {0}: give a later one")]
    InstantOver(Time),
    /// A campaign that may still send.
    #[error("to delete a campaign that is not over: cancel it first")]
    CampaignNotOver,
    /// A cancelled campaign whose run is not finished.
    #[error(
        "to delete it yet: it is cancelled, and some of its recipients are still claimed; try again when its run is \
         finished"
    )]
    CampaignStillClaimed,
    /// A share of 0.
    #[error("a tenant has a share of 1 at least; pause what it must not send")]
    NoShare,
    /// A day of a warm-up without a cap.
    #[error("a warm-up has a cap for each of its days, 1 at least")]
    DayWithoutCap,
    /// The first day of a warm-up.
    #[error("a warm-up begins today, or began within the last 400 days")]
    WarmUpBegin,
    /// P19: chosen before the cluster is used.
    #[error("a test clock is chosen when a cluster is made, and this one is in use with real time")]
    InUse,
    /// P19: no test clock.
    #[error("this cluster keeps real time; `cluster init --test-clock` makes one whose time can be moved")]
    RealTime,
    /// P19: the test clock never goes back.
    #[error("it is {now} already, and the clock only goes forward")]
    ClockGoesForward {
        /// Ledger time.
        now: Time,
    },
    /// P19: an advance does not pass a due instant.
    #[error("a schedule is due {due}, before {to}: advance to it, or jump")]
    DueBefore {
        /// The due instant.
        due: Time,
        /// The end of the advance.
        to: Time,
    },
    /// P19: with a test clock no email leaves the machine.
    #[error("the time is a test's, so no mail leaves this machine, and {host} is another; give a relay on 127.0.0.1")]
    RelayElsewhere {
        /// The relay's host.
        host: String,
    },
    /// P15: an opt-out is taken back for a reason.
    #[error("an opt-out is taken back for a reason, and there is none")]
    NoReason,
    /// P15: the recipient opted out again.
    #[error("{0} has opted out again meanwhile")]
    OptedOutAgain(String),
    /// P15: the recipient never opted out.
    #[error("{0} has not opted out")]
    NotOptedOut(String),
    /// P23: the node cannot apply what the ledger may hold.
    #[error("the ledger is at level {ledger}, this node knows {node}")]
    LevelTooLow {
        /// Level of the ledger.
        ledger: u32,
        /// Highest level of the node.
        node: u32,
    },
    /// P23: the level never falls.
    #[error("the ledger is at level {ledger} and never goes back to {asked}")]
    LevelRaised {
        /// The level asked for.
        asked: u32,
        /// Level of the ledger.
        ledger: u32,
    },
    /// P23: a node has not announced the level.
    #[error(
        "node {node} has announced level {announced} (0: none), below {asked}; start it with the new release first"
    )]
    LevelNotAnnounced {
        /// The level asked for.
        asked: u32,
        /// The node.
        node: NodeId,
        /// The level that it announced; 0 if it never came up.
        announced: u32,
    },
}

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Bounded {
    /// Content in bytes.
    #[error("content (bytes)")]
    ContentBytes,
    /// Audience of an entry in bytes.
    #[error("inline audience (bytes)")]
    InlineBytes,
    /// Recipients of an audience of an entry.
    #[error("inline audience (recipients)")]
    InlineRecipients,
    /// Name of an audience in bytes.
    #[error("name of the audience (bytes)")]
    AudienceNameBytes,
    /// Occurrences that one entry opens.
    #[error("openings in one entry")]
    Openings,
    /// Occurrences of one backfill.
    #[error("occurrences in one backfill")]
    Backfill,
    /// Recipients of one slice.
    #[error("slice (recipients)")]
    Slice,
    /// Rate of a tenant.
    #[error("rate of a tenant (thousandths)")]
    TenantRate,
    /// Share of a tenant.
    #[error("share of a tenant")]
    TenantShare,
    /// Days of a warm-up.
    #[error("warm-up (days)")]
    WarmUpDays,
}

//! Audit records: the caller and the result of each command of an operator.
//!
//! A record begins with the hash of the one before it, so the records are a chain; `Head::audit` is the hash of the
//! last one. A record has ids, names of objects and counts, and no address of a recipient. Full sets of records become
//! parts of the archive.
//!
//! A later form of records must keep the bytes of the former ones, because their hashes are over these bytes.

use serde::{Deserialize, Serialize};

use crate::model::{CommandRefusal, Hash, NodeId, RunId, ScheduleId, Time, TokenId};
use crate::storage::form::{self, Unreadable};

/// Declares the kinds of an enum's values. The names are those of its variants.
macro_rules! kinds {
    ($(#[$doc:meta])* $kinds:ident { $($(#[$attribute:meta])* $kind:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub enum $kinds {
            $($(#[$attribute])* $kind,)*
        }
    };
}

/// The variants of [`Command`](crate::command::Command), in their order, for a macro.
macro_rules! with_commands {
    ($then:ident) => {
        $then! {
            EpochStart, Tick, NodeUp, RelayPut, RelayRemove, ScheduleCreate, SchedulePause, ScheduleResume,
            ScheduleDelete, Trigger, Fire, Claim, Settle, Revoke, Expire, RunPause, RunResume, RunCancel, Decide,
            Requeue, Discard, OptOut, Quarantine, TestClock, Advance, ScheduleEdit, Backfill, Archive, Replan,
            SendMessages, AudienceSeal, AudienceDelete, CampaignCreate, CampaignLaunch, CampaignArm, CampaignCancel,
            CampaignDelete, RunBlock, TenantSet, TenantRemove, OptOutTakeBack, PoolSet, PoolReset, RaiseLevel, SchedulesCreate,
            NodeDrain, NodeShare, NodeRemove, TokenCreate, TokenRevoke, Restore, RestoreAccept, Authority, BackupEnded,
            RecipientErase, TemplatePut, TemplateDelete, NodeInvite, LeaderTransfer, ArchiveLossAccept,
            NodeUndrain,
            #[cfg(feature = "next-level")] OfNextLevel,
        }
    };
}
pub(crate) use with_commands;

macro_rules! command_kinds {
    ($($kinds:tt)*) => {
        kinds! {
            /// The kind of a command.
            CommandKind { $($kinds)* }
        }
    };
}
with_commands!(command_kinds);

macro_rules! all_command_kinds {
    ($($(#[$attribute:meta])* $kind:ident),* $(,)?) => {
        impl CommandKind {
            /// All kinds, in their order.
            pub const ALL: &[CommandKind] = &[$($(#[$attribute])* CommandKind::$kind),*];
        }
    };
}
with_commands!(all_command_kinds);

macro_rules! refusal_kinds {
    ($($kind:ident),* $(,)?) => {
        kinds! {
            /// The kind of a refusal.
            RefusalKind { $($kind),* }
        }

        impl From<&CommandRefusal> for RefusalKind {
            fn from(refusal: &CommandRefusal) -> RefusalKind {
                match refusal {
                    $(CommandRefusal::$kind { .. } => RefusalKind::$kind,)*
                }
            }
        }
    };
}
refusal_kinds! {
    WrongEpoch, TimeWentBack, TimeLeaps, ClocksDisagree, OldIncarnation, NoSuchSchedule, NoSuchRun, NoSuchRelay,
    NameTaken, RequestReused, StalePlan, NotDue, FiredThrough, NotActive, OwnerGone, NothingPending, TooLarge,
    NotPossible, RelayNameTaken, RunOpen, InsideGap, NoSuchAudience, AudienceNameTaken, AudienceUsed, NoSuchCampaign,
    CampaignIs, OfCampaign, LaunchedBefore, AudienceOfCampaign, CampaignNameTaken, SentBefore, AtConcurrency, CapUsedUp,
    CanaryHeld, TokenNotValid, NotPermitted, NoSuchToken, TokenIdTaken,
    RestoreNotAccepted, MaybeSent, RecipientClaimed, NoSuchTemplate, Changed, TemplateUsed,
}

/// The caller of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditCaller {
    /// A caller of a listener that asks for no token.
    Insecure,
    /// A user of a node's machine.
    Local,
    /// The owner of a token.
    Token(TokenId),
}

/// What a command was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditObject {
    /// The cluster as a whole.
    Cluster,
    /// The object of this name: a relay, a pool, a tenant, an audience, a campaign, a new schedule.
    Name(String),
    /// A schedule, and its name unless it was unknown.
    Schedule(ScheduleId, Option<String>),
    /// A run.
    Run(RunId),
    /// This number of named recipients of a run; none are named for all of it.
    Recipients(RunId, u32),
    /// This number of schedules, runs or addresses.
    Items(u32),
    /// A node.
    Node(NodeId),
    /// A token.
    Token(TokenId),
    /// The level of the ledger.
    Level(u32),
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// It repeats the request of this log index, and changed nothing.
    Repeats(u64),
    /// Each of its items was done or refused by itself.
    Partly {
        /// Items that were done.
        done: u32,
        /// Items that were refused.
        refused: u32,
    },
    /// It was refused, and changed nothing.
    Refused(RefusalKind),
}

/// The record of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Hash of the record before it; zeros in the first one.
    pub previous: Hash,
    /// Log index of the entry.
    pub index: u64,
    /// Ledger time.
    pub at: Time,
    /// The caller of the command.
    pub caller: AuditCaller,
    /// The tenant that the call was about; `None`: several, or none.
    pub tenant: Option<String>,
    /// The command.
    pub command: CommandKind,
    /// What it was about.
    pub object: AuditObject,
    /// Request id of the caller.
    pub request: Option<String>,
    /// The reason that the caller gave, in its words.
    pub reason: Option<String>,
    /// What came of it.
    pub outcome: AuditOutcome,
}

impl AuditRecord {
    /// Returns the bytes that are hashed.
    pub fn to_bytes(&self) -> Vec<u8> {
        form::encode(self)
    }

    /// Reads the bytes of [`AuditRecord::to_bytes`].
    ///
    /// # Errors
    /// If they are not a record.
    pub fn from_bytes(bytes: &[u8]) -> Result<AuditRecord, Unreadable> {
        form::decode(bytes)
    }

    /// Returns the hash by which the next record names this one.
    pub fn hash(&self) -> Hash {
        Hash::of(&self.to_bytes())
    }
}

//! Commands of the ledger. Each log entry holds one [`Entry`] with one command.
//!
//! Commands carry times and random numbers as data; `apply` uses neither a clock nor a time zone database (P2). The set
//! of commands is closed: an ordinal that a build does not know stops the node (P23). So new variants are added at the
//! end, and a changed meaning is a new variant.

use serde::{Deserialize, Serialize};

use crate::model::audit::with_commands;
use crate::model::{
    BackupResult, CommandKind, Epoch, Fence, NodeId, PoolSet, Restore, RunId, TenantSet, Time, TokenCreate, TokenId,
};
use crate::storage::form;
use crate::storage::level::GENESIS_LEVEL;

mod actor;
mod audience;
mod campaign;
mod claim;
mod cluster;
mod erase;
mod fire;
mod message;
mod opt_out;
mod relay;
mod run;
mod schedule;
mod template;

pub use actor::*;
pub use audience::*;
pub use campaign::*;
pub use claim::*;
pub use cluster::*;
pub use erase::*;
pub use fire::*;
pub use message::*;
pub use opt_out::*;
pub use relay::*;
pub use run::*;
pub use schedule::*;
pub use template::*;

pub use crate::model::claim::{
    Decider, OutcomeSource, RefusalEffect, RelayRefusal, RelayReply, ReleaseReason, Unsendable,
};
pub use crate::model::enhanced_code::EnhancedCode;
pub use crate::model::node::{MachineClock, VoterClock};
pub use crate::model::relay::Relay;
pub use crate::model::schedule::{NextInstant, OpeningCause, Unopened, UnopenedReason};
pub use crate::storage::form::Unreadable;

/// Maximum size of an encoded entry, in bytes. A larger entry is refused before it is proposed.
pub const ENTRY_BYTES_MAX: usize = 1024 * 1024;

/// Content of one log entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Epoch of the leader that proposed it (P13). Zero in `EpochStart`, which begins an epoch.
    pub epoch: Epoch,
    /// Reading of the leader's clock when it was proposed (P18). `apply` adds the offset of a test clock (P19), so
    /// moving the test clock makes no entry stale. Ignored in `EpochStart`.
    pub now: Time,
    /// Who wants the command. `apply` checks it against the state.
    pub actor: Actor,
    /// The command.
    pub command: Command,
}

/// The closed set of commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Begins an epoch: the first entry of a new leader.
    EpochStart(EpochStart),
    /// Advances ledger time. An idle leader commits one every ten seconds.
    Tick,
    /// Announces a new incarnation of a node (P10).
    NodeUp(NodeUp),
    /// Adds a relay or changes one.
    RelayPut(RelayPut),
    /// Removes a relay by name.
    RelayRemove(Removal),
    /// Creates a schedule.
    ScheduleCreate(Box<ScheduleCreate>),
    /// Stops a schedule from firing.
    SchedulePause(SchedulePause),
    /// Lets a paused or blocked schedule fire again.
    ScheduleResume(ScheduleResume),
    /// Deletes a schedule. Its open runs continue.
    ScheduleDelete(ScheduleDelete),
    /// Opens one run of a schedule now. Its name is the request id.
    Trigger(Trigger),
    /// Opens or explains due instants (P8).
    Fire(Vec<Fire>),
    /// Grants slices to owners (P4).
    Claim(Vec<ClaimRequest>),
    /// Records outcomes of claims (P14).
    Settle(Vec<ClaimOutcome>),
    /// Revokes the claims of owners whose lease is over (P9): their claimed recipients are in doubt, "owner lost".
    Revoke(Vec<Fence>),
    /// Ends runs at their deadline: pending recipients expire (P16).
    Expire(Vec<RunId>),
    /// Pauses a run. After the barrier no gate passes (P15).
    RunPause(RunPause),
    /// Resumes a paused run.
    RunResume(RunResume),
    /// Cancels a run: pending recipients are cancelled.
    RunCancel(RunId),
    /// Decides about recipients in doubt.
    Decide(Decide),
    /// Sends dead recipients again. Their attempts are counted from zero.
    Requeue(Requeue),
    /// Takes dead recipients off the dead-letter list. They stay dead.
    Discard(PickedLetters),
    /// Stops all emails of a tenant to these recipients (P15).
    OptOut(OptOut),
    /// Blocks a schedule or pauses a run that makes the leader fail (P13).
    Quarantine(Quarantine),
    /// Gives the cluster a test clock, permanently. Only possible before the cluster is used (P19).
    TestClock,
    /// Moves the test clock forward (P19).
    Advance(Advance),
    /// Changes a schedule.
    ScheduleEdit(Box<ScheduleEdit>),
    /// Opens occurrences that the plan has passed and that did not open (P7).
    Backfill(Backfill),
    /// Moves finished runs to the archive, and removes what is older than its retention (P24).
    Archive(Archive),
    /// Replaces next instants that another release of the time zone database changes (I10).
    Replan(Vec<Replan>),
    /// Opens a run for each message whose key is new.
    SendMessages(SendMessages),
    /// Registers a sealed audience (P20).
    AudienceSeal(AudienceSeal),
    /// Deletes a sealed audience that no schedule uses.
    AudienceDelete(AudienceDelete),
    /// Creates a campaign as a draft.
    CampaignCreate(Box<CampaignCreate>),
    /// Launches a campaign: it opens at its instant.
    CampaignLaunch(CampaignLaunch),
    /// Opens a launched campaign whose audience is sealed now, or records why the campaign misses its instant.
    CampaignArm(CampaignArm),
    /// Cancels a campaign.
    CampaignCancel(CampaignEnd),
    /// Deletes a campaign that is over.
    CampaignDelete(CampaignEnd),
    /// Records for runs whether a part of their audience is on no live node (P20).
    RunBlock(Vec<RunBlock>),
    /// Sets limits of a tenant (P12, P25).
    TenantSet(TenantSet),
    /// Removes the limits of a tenant, by its name.
    TenantRemove(Removal),
    /// Takes an opt-out back: emails go to this recipient again (P15).
    OptOutTakeBack(OptOutTakeBack),
    /// Sets the warm-up caps of a pool (P25), or whether its emails carry `X-Reveille-*`.
    PoolSet(PoolSet),
    /// Removes the settings of a pool, by its name.
    PoolReset(Removal),
    /// Raises the ledger's level. Commands and row forms of that level may be used afterwards (P23).
    RaiseLevel(RaiseLevel),
    /// Creates up to [`ScheduleId::PER_ENTRY`] schedules, each by itself.
    SchedulesCreate(Vec<ScheduleCreate>),
    /// Lets a node get no more claims (P22).
    NodeDrain(NodeId),
    /// Gives a node a share of each relay's rate (P25).
    NodeShare(NodeShare),
    /// Removes a node for good (P22). Refused while recipients are claimed for it.
    NodeRemove(NodeId),
    /// Creates a token of the admin API.
    TokenCreate(Box<TokenCreate>),
    /// Revokes a token of the admin API.
    TokenRevoke(TokenId),
    /// Begins another cluster with the state of a backup (P21). It is applied offline, and never in a log.
    Restore(Box<Restore>),
    /// Lets a restored cluster send: its former cluster sends nothing any more (P21).
    RestoreAccept,
    /// A step of the rotation of the certificate authority (P22).
    Authority(AuthorityStep),
    /// Records how the making of a backup ended.
    BackupEnded(BackupResult),
    /// Erases a person from lists of a tenant, and leaves an opt-out without the address (P15).
    RecipientErase(Box<RecipientErase>),
    /// Stores another version of a template, unless the newest one has the content.
    TemplatePut(Box<TemplatePut>),
    /// Deletes a template that no schedule and no campaign uses.
    TemplateDelete(TemplateDelete),
    /// Changes nothing. An operator made a join token for this id: the entry checks the caller's token, and its audit
    /// record says who asked (P22).
    NodeInvite(NodeId),
    /// As [`Command::NodeInvite`]: an operator asked that this node leads.
    LeaderTransfer(NodeId),
    /// Accepts that blocks of the archive are lost (P24).
    ArchiveLossAccept(Vec<LostBlocks>),
    /// Lets a drained node get claims again (P22).
    NodeUndrain(NodeId),
    /// Changes nothing; stands for a command of the next level in tests.
    #[cfg(feature = "next-level")]
    OfNextLevel,
}

macro_rules! kind_of_command {
    ($($(#[$attribute:meta])* $kind:ident),* $(,)?) => {
        impl Command {
            /// Its kind, for audit records. A new variant does not compile without a kind.
            pub fn kind(&self) -> CommandKind {
                match self {
                    $($(#[$attribute])* Command::$kind { .. } => CommandKind::$kind,)*
                }
            }
        }
    };
}
with_commands!(kind_of_command);

impl Command {
    /// Lowest level of the ledger at which this command may be proposed (P23). A command that a later release adds gets
    /// its own arm here, with the level of that release.
    pub fn level(&self) -> u32 {
        match self {
            #[cfg(feature = "next-level")]
            Command::OfNextLevel => crate::storage::level::KNOWN,
            _ => GENESIS_LEVEL,
        }
    }
}

impl Entry {
    /// Encodes the entry for the log.
    pub fn to_bytes(&self) -> Vec<u8> {
        form::encode(self)
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// Fails if the form or an ordinal is unknown, bytes are left over, or a set is not in its canonical form. A node
    /// with such an entry in its log stops (P23).
    pub fn from_bytes(bytes: &[u8]) -> Result<Entry, Unreadable> {
        form::decode(bytes)
    }
}

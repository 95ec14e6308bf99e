//! Everything that may be asked of the ledger. One log entry holds one [`Entry`].
//!
//! Commands carry time and chance as data; `apply` sees neither a clock nor a zone table (P2). The
//! enumeration is closed: an ordinal that this build does not know stops the node (P23), so variants are
//! only ever added at the end, and a changed meaning is a new variant.

use serde::{Deserialize, Serialize};

use crate::model::{Epoch, Fence, PoolSet, RunId, ScheduleId, TenantSet, Time};
use crate::storage::form;
use crate::storage::level::GENESIS_LEVEL;

mod audience;
mod campaign;
mod claim;
mod cluster;
mod fire;
mod relay;
mod run;
mod schedule;

pub use audience::*;
pub use campaign::*;
pub use claim::*;
pub use cluster::*;
pub use fire::*;
pub use relay::*;
pub use run::*;
pub use schedule::*;

pub use crate::model::claim::{Decider, OutcomeSource, Refused, RelayReply, ReleaseReason, ReplyScope, Unsendable};
pub use crate::model::node::{MachineClock, VoterClock};
pub use crate::model::relay::Relay;
pub use crate::model::schedule::{NextInstant, OpeningCause, Unopened, UnopenedReason};
pub use crate::storage::form::Unreadable;
/// Bytes of one encoded entry; a larger one is refused before it is proposed.
pub const ENTRY_BYTES_MAX: usize = 1024 * 1024;

/// What one log entry holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The epoch of the leader that proposed it (P13). `EpochStart` carries zero: it makes one.
    pub epoch: Epoch,
    /// What the leader's clock said when it was proposed (P18): ledger time, but for the offset of a test
    /// clock, which `apply` adds (P19). So no stamp is stale because the clock was moved after it was given.
    /// Ignored on `EpochStart`.
    pub now: Time,
    /// What is asked.
    pub command: Command,
}

/// The closed set of commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A new leader's first entry.
    EpochStart(EpochStart),
    /// Nothing but time: an idle leader commits one every ten seconds.
    Tick,
    /// A process says that it lives (P10).
    NodeUp(NodeUp),
    /// Adds a relay or changes one.
    RelayPut(RelayPut),
    /// Removes a relay by name.
    RelayRemove(String),
    /// Creates a schedule.
    ScheduleCreate(Box<ScheduleCreate>),
    /// Stops a schedule from firing.
    SchedulePause(SchedulePause),
    /// Lets a schedule fire again.
    ScheduleResume(ScheduleResume),
    /// Deletes a schedule; its open runs go on.
    ScheduleDelete(ScheduleId),
    /// Opens one run of a schedule now, named by its request.
    Trigger(Trigger),
    /// Opens what is due (P8).
    Fire(Vec<Fire>),
    /// Gives slices to owners (P4).
    Claim(Vec<ClaimRequest>),
    /// Records outcomes of rows (P14).
    Settle(Vec<ClaimOutcome>),
    /// The leader closes the rows of owners whose lease is over (P9): in doubt, "owner lost".
    Revoke(Vec<Fence>),
    /// What a run has not sent by its deadline expires (P16).
    Expire(Vec<RunId>),
    /// Pauses a run: no gate passes after the barrier (P15).
    RunPause(RunPause),
    /// Lets a paused run go on.
    RunResume(RunResume),
    /// Cancels what a run has not sent.
    RunCancel(RunId),
    /// Decides what is in doubt.
    Decide(Decide),
    /// Sends dead recipients again, with attempts counted anew.
    Requeue(Requeue),
    /// Takes dead recipients off the list; they stay dead.
    Discard(Vec<PickedRecipients>),
    /// Nothing is sent to this recipient of a tenant any more (P15).
    OptOut(OptOut),
    /// Takes an item that makes the leader fail out of the way (P13).
    Quarantine(Quarantine),
    /// Gives the cluster a clock that is moved by hand (P19): for good, and before anything else is in it.
    TestClock,
    /// Moves the test clock forward (P19).
    Advance(Advance),
    /// Changes a schedule.
    ScheduleEdit(Box<ScheduleEdit>),
    /// Opens occurrences that the plan has left behind unopened (P7).
    Backfill(Backfill),
    /// Forgets what is older than it has to be kept (P24).
    Prune(Prune),
    /// What another release of the zone database makes of schedules' next instants (I10).
    Replan(Vec<Replan>),
    /// Opens a run of one mail, whose schedule is gone in the same entry.
    SendTest(Box<SendTest>),
    /// Makes a large audience known by its seal (P20).
    AudienceSeal(AudienceSeal),
    /// Forgets a sealed audience that no schedule names.
    AudienceDelete(AudienceDelete),
    /// Makes a campaign known: a draft.
    CampaignCreate(Box<CampaignCreate>),
    /// Lets a campaign open at its instant.
    CampaignLaunch(CampaignLaunch),
    /// Decides about a launched campaign whose audience was not sealed.
    CampaignArm(CampaignArm),
    /// Ends a campaign.
    CampaignCancel(CampaignName),
    /// Forgets a campaign that is over.
    CampaignDelete(CampaignName),
    /// Whether some live node has what runs are sent from (P20).
    RunBlock(Vec<RunBlock>),
    /// Sets bounds of a tenant (P12, P25).
    TenantSet(TenantSet),
    /// Takes the bounds of a tenant away, by its name.
    TenantRemove(String),
    /// Takes an opt-out back: mail goes to this recipient again (P15).
    OptOutTakeBack(OptOutTakeBack),
    /// Bounds what goes by a pool on each of its first days (P25), or says whether its emails carry `X-Reveille-*`.
    PoolSet(PoolSet),
    /// Takes away what is set of a pool.
    PoolReset(String),
    /// Raises the ledger's level, after which commands and row forms of that level may be used (P23).
    RaiseLevel(RaiseLevel),
    /// Changes nothing.
    #[cfg(feature = "next-level")]
    OfNextLevel,
}

impl Command {
    /// The lowest level of the ledger at which this command may be proposed (P23). A command that a later release
    /// adds gets its own arm here, with the level of that release.
    pub fn level(&self) -> u32 {
        match self {
            #[cfg(feature = "next-level")]
            Command::OfNextLevel => crate::storage::level::KNOWN,
            _ => GENESIS_LEVEL,
        }
    }
}

impl Entry {
    /// The bytes that go into the log.
    pub fn to_bytes(&self) -> Vec<u8> {
        form::encode(self)
    }

    /// Reads an entry; bytes left over, an unknown form or ordinal or a set in another form is an error, and the
    /// node that meets one in its log stops (P23).
    pub fn from_bytes(bytes: &[u8]) -> Result<Entry, Unreadable> {
        form::decode(bytes)
    }
}

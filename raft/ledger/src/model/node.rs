//! Nodes, epochs and clocks, and the head of the ledger: the only row that changes with every entry.

use serde::{Deserialize, Serialize};

use crate::model::{
    AuthorityId, BackupHistory, ClaimOwner, CrashHistory, Epoch, GROUP, Hash, Incarnation, NodeId, Restored, Time,
};
use crate::storage::level::GENESIS_LEVEL;

/// A node in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name, for users.
    pub name: String,
    /// Its current incarnation.
    pub incarnation: Incarnation,
    /// Log index of the `NodeUp` entry of this incarnation.
    pub up_index: u64,
    /// Highest ledger level that the node can apply, as it announced it.
    pub level: u32,
    /// Random number of its process. A repeated `NodeUp` of the same process is recognised by it.
    pub process_nonce: u64,
    /// Log index of the last revocation of one of its claims: see [`Ledger::lease_floor`](crate::Ledger::lease_floor).
    pub revoked_index: u64,
    /// Its last crashes with open claims (P12).
    pub crashes: CrashHistory,
    /// True if claims of its current incarnation were revoked, and it has claimed nothing since. If another incarnation
    /// comes up then, this counts as a crash.
    pub has_revoked_claims: bool,
    /// True if it gets no more claims, until the operator takes that back or removes it (P22). A restart keeps it.
    pub drains: bool,
    /// Its share of each relay's rate (P25). A restart keeps it.
    pub share: RelayShare,
    /// Ledger time at which its current incarnation came up. `None`: at level 1.
    #[cfg(feature = "next-level")]
    pub up_at: Option<Time>,
}

/// A node's share of each relay's rate. All shares are equal (P25).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelayShare {
    /// It has none.
    #[default]
    None,
    /// The entry at this log index reserved it: it counts, and is not used yet.
    Reserved(u64),
    /// The node uses it.
    Open,
}

impl Node {
    /// Returns the owner of new claims of this node, whose id is `id`: its current incarnation.
    pub fn owner(&self, id: NodeId) -> ClaimOwner {
        ClaimOwner { node: id, incarnation: self.incarnation }
    }

    /// True if the node may be given claims, as far as the ledger knows (P22, P25).
    pub fn takes_claims(&self) -> bool {
        !self.drains && self.share == RelayShare::Open
    }
}

/// A node that was removed (P22). Its row is kept for ever: no process ever uses its id again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedNode {
    /// Its name, for users. Empty if no process of it came up.
    pub name: String,
    /// Log index of the entry that removed it.
    pub index: u64,
    /// Ledger time at which it was removed.
    pub at: Time,
}

/// The current epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochState {
    /// Log index of its `EpochStart`.
    pub epoch: Epoch,
    /// Leader of the epoch.
    pub leader: ClaimOwner,
    /// Ledger time at which it began.
    pub base: Time,
    /// True if two voters' clocks agreed. Otherwise nothing fires (P18).
    pub clocks_agree: bool,
}

/// Clock of a single voter, and the uptime of its machine at that reading (P18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoleClock {
    /// Reading of its wall clock.
    pub reading: VoterClock,
    /// Boot and uptime of its machine.
    pub machine: MachineClock,
}

/// The only row that changes with every entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Index of the last applied entry.
    pub applied: u64,
    /// Current ledger time (P18).
    pub now: Time,
    /// The current epoch; `None` before the first one.
    pub epoch: Option<EpochState>,
    /// Last accepted clock of a cluster with one voter; `None` with more voters, or if the machine's uptime is unknown.
    pub sole_clock: Option<SoleClock>,
    /// Number of the Raft group.
    pub group: u32,
    /// Incarnation of the cluster: raised by a restore (P21).
    pub cluster_incarnation: u64,
    /// Level of the ledger (P23).
    pub level: u32,
    /// Log index of the last opt-out, cancel, quarantine of a run, pause by an operator, or reserved share: see
    /// [`Ledger::lease_floor`](crate::Ledger::lease_floor).
    pub forbidden_index: u64,
    /// The test clock; `None` if the cluster keeps real time (P19).
    pub test_clock: Option<TestClock>,
    /// Ids of the clusters of which a backup was restored, oldest first: the first one is that of incarnation 1.
    pub former_clusters: Vec<u128>,
    /// The last restore; `None` if the cluster was never restored (P21).
    pub restored: Option<Restored>,
    /// The certificate authority, since its first rotation began (P22). `None` before: it is the one of `cluster init`.
    pub authority: Option<AuthorityState>,
    /// The backups of this cluster.
    pub backups: BackupHistory,
    /// Hash of the last audit record; zeros before the first one.
    pub audit: Hash,
    /// Log index of the last erasure of a person; 0: there was none. Nodes then make snapshots until no file is older.
    pub erased_index: u64,
    /// Log index of the last entry whose events are no longer kept; 0: all are.
    pub dropped_events_index: u64,
}

impl Head {
    /// Returns the current epoch. `None` before the first one.
    pub fn current_epoch(&self) -> Option<Epoch> {
        self.epoch.map(|epoch| epoch.epoch)
    }
}

/// The cluster's certificate authority (P22). Keys and certificates are in no state: only their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityState {
    /// The authority that every member trusts.
    pub present: AuthorityId,
    /// The rotation under way.
    pub rotation: Option<AuthorityRotation>,
}

/// A rotation of the certificate authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityRotation {
    /// The new authority.
    pub next: AuthorityId,
    /// How far it is.
    pub phase: RotationPhase,
}

/// How far a rotation of the certificate authority is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RotationPhase {
    /// Each member fetches the new authority, and trusts it too.
    Adding,
    /// Each member has a certificate of the new authority, and still trusts the old one.
    Using,
}

/// A clock that the operator moves (P19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestClock {
    /// Log index of the entry that chose it.
    pub index: u64,
    /// How far ledger time is ahead of the leader's clock; it only grows. Milliseconds.
    pub offset_ms: i64,
}

impl Default for Head {
    fn default() -> Head {
        Head {
            applied: 0,
            now: Time(0),
            epoch: None,
            sole_clock: None,
            group: GROUP,
            cluster_incarnation: 1,
            level: GENESIS_LEVEL,
            forbidden_index: 0,
            test_clock: None,
            former_clusters: Vec::new(),
            restored: None,
            authority: None,
            backups: BackupHistory::default(),
            audit: Hash::default(),
            erased_index: 0,
            dropped_events_index: 0,
        }
    }
}

impl Head {
    /// How far ledger time is ahead of the leader's clock; 0 without a test clock (P19). Milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.test_clock.map_or(0, |clock| clock.offset_ms)
    }

    /// Ledger time without a test clock: it follows the clocks on which two voters agree (P18).
    pub fn real_now(&self) -> Time {
        self.now.plus_ms(-self.offset_ms())
    }
}

/// One voter's clock reading at the start of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterClock {
    /// The voter.
    pub node: NodeId,
    /// Reading of its wall clock.
    pub wall: Time,
}

/// Uptime of a machine (CLOCK_BOOTTIME), a clock that is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClock {
    /// Identifies one boot of one machine: a hash of its boot id.
    pub boot: u64,
    /// Time since that boot, sleep included. Milliseconds.
    pub boot_ms: u64,
}

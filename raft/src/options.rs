//! Settings of a replica, and the seams that tests and simulations use instead of real disks and networks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, SnapshotPolicy};
use reveille_ledger::ids::{ClaimOwner, NodeId};
use reveille_ledger::level;

use crate::execution::Execution;
use crate::fatal_error::FatalError;
use crate::injected_bugs;
use crate::peer::Transport;
use crate::wal::Disk;

/// Settings of a replica. Start from [`ReplicaOptions::new`].
#[derive(Clone)]
pub struct ReplicaOptions {
    /// Data folder with identity, log, state and snapshots. Created if missing.
    pub data_dir: PathBuf,
    /// This node. Drawn once with the data folder and never used again.
    pub node: NodeId,
    /// Random number of this process. It distinguishes two processes with one incarnation number, which exist after an
    /// old data folder was put back (P10). By default the incarnation's number, for tests.
    pub process_nonce: u64,
    /// How peers are reached and listened to.
    pub transport: Arc<dyn Transport>,
    /// Interval of a leader's heartbeats.
    pub heartbeat_ms: u64,
    /// A follower without a heartbeat for a random time from this range asks for votes. Fail-over takes the maximum plus
    /// such a time.
    pub election_ms: std::ops::Range<u64>,
    /// A node with a history waits this long before it takes part: its former process may have promised a leader not to
    /// vote for another node for so long. At least the election maximum, except in tests.
    pub startup_delay: Duration,
    /// Entries from one snapshot to the next. The log keeps those behind the last snapshot but one: a restart replays
    /// them if the last one is damaged, and followers that lag less need no snapshot.
    pub snapshot_every: u64,
    /// Disk for the log instead of `data_dir/wal`: for tests and simulations.
    pub log_disk: Option<Arc<dyn Disk>>,
    /// Highest ledger level that this node applies and announces (P23). A lower one than the build's makes it behave like
    /// the former release.
    pub highest_level: u32,
    /// Threads of Raft's own runtime.
    pub threads: usize,
    /// Where blocking work runs. With [`Execution::Inline`] Raft has no runtime of its own, and `threads` is ignored.
    pub execution: Execution,
}

impl ReplicaOptions {
    /// Defaults: fail-over within 0.6 to 1.2 s, measured over 200 isolations.
    pub fn new(data_dir: PathBuf, me: ClaimOwner, transport: Arc<dyn Transport>) -> ReplicaOptions {
        ReplicaOptions {
            data_dir,
            node: me.node,
            process_nonce: me.incarnation.0,
            transport,
            heartbeat_ms: 50,
            election_ms: 300..600,
            startup_delay: Duration::from_millis(600),
            snapshot_every: 20_000,
            log_disk: None,
            highest_level: level::highest(),
            threads: 2,
            execution: Execution::Threads,
        }
    }

    /// As openraft wants it.
    pub(crate) fn config(&self) -> Result<Config, FatalError> {
        let election_ms = injected_bugs::election_ms(&self.election_ms);
        let config = Config {
            cluster_name: "reveille".to_owned(),
            heartbeat_interval: self.heartbeat_ms,
            election_timeout_min: election_ms.start,
            election_timeout_max: election_ms.end,
            // A leader that restarts asks for votes like any other node.
            enable_leader_restore: Some(false),
            enable_pre_vote: Some(true),
            // The leader sends a follower the tail that it lost; without this openraft treats that as a defect.
            allow_log_reversion: Some(true),
            // The SnapshotManager makes snapshots and purges the log.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            replication_lag_threshold: self.snapshot_every,
            // The log reader bounds the bytes; these bound the count.
            max_payload_entries: 512,
            max_append_entries: Some(1_024),
            // The proposer bounds proposals; what remains are the messages of a few peers.
            api_channel_size: Some(8_192),
            notification_channel_size: Some(8_192),
            state_machine_channel_size: Some(256),
            backoff: "50ms 100ms 200ms ..500ms".to_owned(),
            ..Config::default()
        };
        config.validate().map_err(|error| FatalError::Broken(format!("Raft refuses its settings: {error}")))
    }
}

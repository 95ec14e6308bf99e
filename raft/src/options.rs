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
use crate::tls::NodeTls;
use crate::wal::Disk;

/// Settings of a replica. Start from [`ReplicaOptions::new`].
#[derive(Clone)]
pub struct ReplicaOptions {
    /// Data folder with identity, log and snapshots. Created if missing.
    pub data_dir: PathBuf,
    /// Id of this node. Drawn at random once for a data folder, and never used for another folder.
    pub node: NodeId,
    /// Random number of this process. If an old data folder is put back, two processes can have the same incarnation;
    /// this number distinguishes them (P10). The default is the incarnation, which is enough for tests.
    pub process_nonce: u64,
    /// Transport to and from peers.
    pub transport: Arc<dyn Transport>,
    /// Keys and certificates with which this node admits new members. `None` in a cluster without certificates.
    pub tls: Option<NodeTls>,
    /// Interval of a leader's heartbeats in milliseconds.
    pub heartbeat_ms: u64,
    /// Range of election time-outs in milliseconds. A follower that hears no heartbeat for a random time from this
    /// range requests votes. Fail-over takes the maximum plus one such random time, or only the maximum if the leader's
    /// connection ends (`election/early.rs`).
    pub election_ms: std::ops::Range<u64>,
    /// Time that a node with a log that is not empty waits before it takes part. Its former process may have promised a
    /// leader not to vote for another node for that time. At least the maximum of `election_ms`, except in tests.
    pub startup_delay: Duration,
    /// Time after which a start fails if no readable snapshot is here, and none comes from a peer.
    pub snapshot_wait: Duration,
    /// Number of entries between two snapshots. The log keeps all entries after the last snapshot but one. A restart
    /// replays them if the last snapshot is damaged, and followers with a smaller lag need no snapshot.
    pub snapshot_every: u64,
    /// Disk for the log instead of `data_dir/wal`: for tests and simulations.
    pub log_disk: Option<Arc<dyn Disk>>,
    /// Highest ledger level that this node applies and announces (P23). With a level below the build's the node behaves
    /// like the former release.
    pub highest_level: u32,
    /// Place where blocking work runs. With [`Execution::Inline`] Raft uses the caller's runtime.
    pub execution: Execution,
}

impl ReplicaOptions {
    /// Returns the defaults: fail-over within 0.6 to 1.2 s.
    pub fn new(data_dir: PathBuf, me: ClaimOwner, transport: Arc<dyn Transport>) -> ReplicaOptions {
        ReplicaOptions {
            data_dir,
            node: me.node,
            process_nonce: me.incarnation.0,
            transport,
            tls: None,
            heartbeat_ms: 50,
            election_ms: 250..500,
            startup_delay: Duration::from_millis(600),
            snapshot_wait: Duration::from_secs(60),
            snapshot_every: 20_000,
            log_disk: None,
            highest_level: level::highest(),
            execution: Execution::Threads,
        }
    }

    /// Converts the settings for openraft. Fails if openraft rejects them.
    pub(crate) fn config(&self) -> Result<Config, FatalError> {
        let election_ms = injected_bugs::election_ms(&self.election_ms);
        let config = Config {
            cluster_name: "reveille".to_owned(),
            heartbeat_interval: self.heartbeat_ms,
            election_timeout_min: election_ms.start,
            election_timeout_max: election_ms.end,
            // A leader that restarts requests votes like any other node.
            enable_leader_restore: Some(false),
            enable_pre_vote: Some(true),
            // A follower may lose the tail of its log in a power cut. Let the leader resend it; by default openraft
            // treats that as a defect.
            allow_log_reversion: Some(true),
            // The SnapshotManager makes snapshots and purges the log.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            replication_lag_threshold: self.snapshot_every,
            // The log reader limits the bytes; these two limit the number of entries.
            max_payload_entries: 512,
            max_append_entries: Some(1_024),
            // The proposer limits proposals; the channels need space only for the messages of a few peers.
            api_channel_size: Some(8_192),
            notification_channel_size: Some(8_192),
            state_machine_channel_size: Some(256),
            backoff: "50ms 100ms 200ms ..500ms".to_owned(),
            ..Config::default()
        };
        config.validate().map_err(|error| FatalError::Broken(format!("Raft refuses its settings: {error}")))
    }
}

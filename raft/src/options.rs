//! What a replica is told at its start, and the seams through which tests and simulations reach in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, SnapshotPolicy};
use reveille_ledger::ids::{ClaimOwner, NodeId};
use reveille_ledger::injected_bugs::{self, Bug};
use reveille_ledger::level;

use crate::execution::Execution;
use crate::fatal_error::FatalError;
use crate::peer::Transport;
use crate::store::MemoryStore;
use crate::wal::Disk;

/// Everything a replica needs to know. Start from [`Options::new`].
#[derive(Clone)]
pub struct Options {
    /// The data folder: identity, log, state and snapshots lie in it. Created when it is not there.
    pub data_dir: PathBuf,
    /// This node. Drawn once with the data folder and never used again.
    pub node: NodeId,
    /// Drawn by each process anew: an old data folder that is put back counts to the same incarnation twice (P10).
    /// By default the incarnation's number, for tests.
    pub process_nonce: u64,
    /// How peers are reached and listened to.
    pub transport: Arc<dyn Transport>,
    /// A leader shows itself this often.
    pub heartbeat_ms: u64,
    /// A follower that hears nothing for a time drawn from this range asks for votes. Fail-over takes the
    /// maximum plus such a time.
    pub election_ms: std::ops::Range<u64>,
    /// Before a node with a history takes part it waits this long: its former life may have promised a
    /// leader not to vote for another one so long. At least the election maximum, except in tests.
    pub startup_delay: Duration,
    /// A snapshot is made after so many entries.
    pub snapshot_every: u64,
    /// So many entries before a snapshot stay in the log, for followers that lag a little.
    pub log_keep: u64,
    /// Where the log lies instead of `data_dir/wal`: for tests and simulations.
    pub log_disk: Option<Arc<dyn Disk>>,
    /// Where the applied state is mirrored to instead of `data_dir/state`: for simulations.
    pub state_store: Option<MemoryStore>,
    /// The highest level of the ledger that this node applies and announces (P23): that of the build, or a lower one to
    /// stand for a former release.
    pub highest_level: u32,
    /// Threads of Raft's own runtime.
    pub threads: usize,
    /// Who does what blocks. With [`Execution::Inline`] Raft has no runtime of its own either, and `threads` says nothing.
    pub execution: Execution,
}

impl Options {
    /// What suits most: fail-over within 0.6 to 1.2 s, measured over 200 isolations.
    pub fn new(data_dir: PathBuf, me: ClaimOwner, transport: Arc<dyn Transport>) -> Options {
        Options {
            data_dir,
            node: me.node,
            process_nonce: me.incarnation.0,
            transport,
            heartbeat_ms: 50,
            election_ms: 300..600,
            startup_delay: Duration::from_millis(600),
            snapshot_every: 20_000,
            log_keep: 5_000,
            log_disk: None,
            state_store: None,
            highest_level: level::highest(),
            threads: 2,
            execution: Execution::Threads,
        }
    }

    /// As openraft wants it.
    pub(crate) fn config(&self) -> Result<Config, FatalError> {
        let election_ms = if injected_bugs::is(Bug::NoElection) { 15_000..20_000 } else { self.election_ms.clone() };
        let config = Config {
            cluster_name: "reveille".to_owned(),
            heartbeat_interval: self.heartbeat_ms,
            election_timeout_min: election_ms.start,
            election_timeout_max: election_ms.end,
            // A leader that restarts asks for votes like anybody else.
            enable_leader_restore: Some(false),
            enable_pre_vote: Some(true),
            // A follower whose log lost its tail gets it again; without this openraft takes that for a defect.
            allow_log_reversion: Some(true),
            // Snapshots are made by our own scheduler, and purging follows a snapshot that was verified.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: self.log_keep,
            replication_lag_threshold: self.log_keep.max(self.snapshot_every),
            // Bytes are bounded where the log is read; these bound the count.
            max_payload_entries: 512,
            max_append_entries: Some(1_024),
            // Proposals are bounded by the proposer; what is left are the messages of a few peers.
            api_channel_size: Some(8_192),
            notification_channel_size: Some(8_192),
            state_machine_channel_size: Some(256),
            backoff: "50ms 100ms 200ms ..500ms".to_owned(),
            ..Config::default()
        };
        config.validate().map_err(|error| FatalError::Broken(format!("Raft refuses its settings: {error}")))
    }
}

//! The result of injecting a fault.

use anyhow::Result;
use reveille_check::events::Fault;
use tokio::task::JoinHandle;

use super::syscall_trace::SyncTrace;

/// Progress of the upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpgradeProgress {
    /// A node went back to the former release.
    pub(super) went_back: bool,
    /// The operator requested the next level. The level may be raised, so no node goes back.
    pub(super) is_asked: bool,
    /// The ledger has the next level.
    pub(super) is_finished: bool,
}

/// The replacement of a lost node.
pub(super) enum Replacement {
    /// The lost node is being removed. The task returns a join token for the new one.
    Removing { lost: String, new: String, task: JoinHandle<Result<String>> },
    /// The new node joins. The task returns true when it votes.
    Joining { fault: Fault, task: JoinHandle<bool> },
}

/// Repair of a fault.
pub(super) enum Repair {
    /// No repair is needed.
    Nothing,
    /// Starts these nodes. The log of each of `torn` ends inside a batch.
    Start { nodes: Vec<String>, torn: Vec<String> },
    /// Resumes this node.
    Resume(String),
    /// Removes this table of filter rules from these hosts.
    Links { table: String, hosts: Vec<String> },
    /// Corrects the clock of this node.
    Clock(String),
    /// Ends the tracing of a node's syncs. `fails`: the process whose syncs failed.
    Untrace { node: String, trace: SyncTrace, fails: Option<u32> },
    /// Frees the disk of this node.
    Empty(String),
    /// Restores the relay.
    Relay,
}

impl Repair {
    /// Returns the repair that starts these nodes, whose logs are whole.
    pub fn start(nodes: Vec<String>) -> Repair {
        Repair::Start { nodes, torn: Vec::new() }
    }

    /// Returns true if the repair will start this node.
    pub fn starts(&self, name: &str) -> bool {
        matches!(self, Repair::Start { nodes, .. } if nodes.iter().any(|known| known == name))
    }
}

/// An injected fault.
pub(super) struct Injected {
    /// The fault, as far as it is known.
    pub fault: Fault,
    pub repair: Repair,
}

/// Reason why a fault was not injected.
pub(super) enum NotInjected {
    /// This machine cannot inject the fault.
    Cannot(String),
    /// The fault had no target, came at an unsuitable time, or failed.
    NotNow(String),
}

/// Returns a part of the environment, or why this machine does not have it.
pub(super) fn required<T>(part: &Result<T, String>) -> Result<&T, NotInjected> {
    part.as_ref().map_err(|why| NotInjected::Cannot(why.clone()))
}

impl NotInjected {
    pub fn no_node_runs() -> NotInjected {
        NotInjected::NotNow("no node runs".to_owned())
    }
}

impl From<anyhow::Error> for NotInjected {
    fn from(error: anyhow::Error) -> NotInjected {
        NotInjected::NotNow(format!("{error:#}"))
    }
}

//! Injected faults: their status and their observed effect.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Text for people, such as `kill -9 of the leader`.
    pub name: String,
    /// Names of the affected nodes.
    pub nodes: Vec<String>,
    /// Start of the fault.
    pub from_ns: u64,
    /// End of the fault. `None`: the fault has no end.
    pub until_ns: Option<u64>,
    /// Status of the installation.
    pub status: FaultStatus,
    /// True if a fault was skipped because this machine cannot inject it. Any other skipped fault had no target, or
    /// came at an unsuitable time.
    pub cannot: bool,
    /// True if an effect occurred: the leader changed, a connection was cut, a write failed. `None`: not observed.
    pub observed: Option<bool>,
    /// Text for people: the effect, or why the fault was skipped.
    pub detail: String,
    /// For each node whose process ended or paused: number of its handoffs between final dot and 250, by the sink's
    /// record. A node that is missing here: unknown.
    pub past_gate: BTreeMap<String, u64>,
    /// True if the journals of these nodes were lost.
    pub journals_lost: bool,
    /// Epoch that an affected node led. `None`: no affected node led.
    pub led_epoch: Option<u64>,
}

impl Fault {
    /// Returns a fault that was installed and has not ended, without an observed effect.
    pub fn installed(kind: FaultKind, name: String, nodes: Vec<String>, from_ns: u64) -> Fault {
        Fault {
            kind,
            name,
            nodes,
            from_ns,
            until_ns: None,
            status: FaultStatus::Installed,
            cannot: false,
            observed: None,
            detail: String::new(),
            past_gate: BTreeMap::new(),
            journals_lost: false,
            led_epoch: None,
        }
    }

    /// Returns true if the fault was, or may have been, installed.
    pub fn may_be_installed(&self) -> bool {
        self.status != FaultStatus::Skipped
    }

    /// Returns true if a handoff of an affected node was past its gate.
    pub fn is_inside_data(&self) -> bool {
        self.past_gate.values().any(|past_gate| *past_gate > 0)
    }

    /// Returns the end of the fault, and `u64::MAX` for a fault without an end.
    pub fn over_ns(&self) -> u64 {
        self.until_ns.unwrap_or(u64::MAX)
    }
}

/// Status of the installation of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultStatus {
    /// The fault was installed.
    Installed,
    /// The fault was skipped (see [`Fault::cannot`]).
    Skipped,
    /// It is unknown if the fault was installed.
    Indeterminate,
}

/// Kinds of faults. `invariants/doubt.rs` says how many recipients each kind may leave in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// `kill -9` and a later restart.
    Kill,
    /// SIGTERM and a restart.
    Restart,
    /// `kill -9` and a restart as another release, or an increase of the ledger's level.
    Upgrade,
    /// SIGSTOP, SIGCONT.
    Pause,
    /// Some links are cut, both ways or one.
    Partition,
    /// A link is slow, loses packets or resets connections.
    Link,
    /// A node's wall clock jumps or drifts.
    Clock,
    /// A disk is full, fails, is slow or lies.
    Disk,
    /// Power is cut: unsynced writes and everything in memory are lost.
    PowerCut,
    /// Files are damaged, lost, or replaced by older ones.
    Damage,
    /// A node never comes back.
    NodeLost,
    /// A new node joins. It does not vote before the fault ends.
    Join,
    /// A new node joins in addition to the others. It may vote at any time from then on.
    Grow,
    /// A node that runs is drained and removed. It may vote until the fault ends, if an effect was observed, or for
    /// ever.
    Shrink,
    /// The relay refuses, throttles, stalls, is down, or drops connections.
    Relay,
    /// Leadership is handed over on request.
    Transfer,
    /// An operator acts while emails are sent.
    Operator,
    /// The certificate authority is rotated.
    Rotation,
    /// A backup is made.
    Backup,
    /// A process crashes at a named place of its code.
    CrashPoint,
}

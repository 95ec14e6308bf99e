//! Injected faults: whether they were installed, and which effect was observed.

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
    /// When it began.
    pub from_ns: u64,
    /// When it ended; `None` for a fault without an end.
    pub until_ns: Option<u64>,
    /// Whether it was installed.
    pub status: FaultStatus,
    /// For a skipped fault: this machine cannot inject it. Otherwise it had no target, or came at an unsuitable time.
    pub cannot: bool,
    /// Whether an effect occurred: the leader changed, a connection was cut, a write failed. `None`: not observed.
    pub observed: Option<bool>,
    /// Text for people: the effect, or why it was skipped.
    pub word: String,
    /// For the end of a process: whether one of its handoffs was between final dot and 250. `None`: unknown.
    pub inside_data: Option<bool>,
    /// Number of its handoffs past the gate at that time, by the sink. `None`: unknown.
    pub past_gate: Option<u64>,
    /// Whether the journals of these nodes were lost.
    pub journals_lost: bool,
    /// The epoch that an affected node led.
    pub led_epoch: Option<u64>,
}

impl Fault {
    /// A fault that was installed and has not ended; its effect was not observed.
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
            word: String::new(),
            inside_data: None,
            past_gate: None,
            journals_lost: false,
            led_epoch: None,
        }
    }

    /// Whether it was, or may have been, installed.
    pub fn may_have_struck(&self) -> bool {
        self.status != FaultStatus::Skipped
    }

    /// When it ended; `u64::MAX` for a fault without an end.
    pub fn over_ns(&self) -> u64 {
        self.until_ns.unwrap_or(u64::MAX)
    }
}

/// Whether a fault was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultStatus {
    /// It was installed.
    Installed,
    /// It was skipped; see [`Fault::cannot`].
    Skipped,
    /// Unknown.
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
    /// `kill -9` and a restart as another release; or the ledger's level is raised.
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
    /// The relay refuses, throttles, stalls, is down, or drops connections.
    Relay,
    /// Leadership is handed over on request.
    Transfer,
    /// An operator acts while emails are sent.
    Operator,
    /// A process dies at a named place of its code.
    CrashPoint,
}

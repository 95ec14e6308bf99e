//! What was broken, whether it came about, and what was seen of it.

use serde::{Deserialize, Serialize};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// What exactly, for people: `kill -9 of the leader`.
    pub name: String,
    /// The nodes that it affected; empty where it affected none.
    pub nodes: Vec<String>,
    /// When it began.
    pub from_ns: u64,
    /// When it ended; none for one that has no length.
    pub until_ns: Option<u64>,
    /// Whether it came about.
    pub status: FaultStatus,
    /// Of one that was left out: this machine cannot do it at all. Else there was no target, or it was not
    /// the moment for it, and another run may have it.
    pub cannot: bool,
    /// Whether an effect was seen: leadership changed, a connection was cut, a write failed. None: not observed.
    pub observed: Option<bool>,
    /// In words: what was seen, or why it was skipped.
    pub word: String,
    /// Of the end of a life: a hand-off of it was between its final dot and its 250. None: unknown.
    pub inside_data: Option<bool>,
    /// How many hand-offs were past the gate then, as the sink saw it. None: unknown.
    pub past_gate: Option<u64>,
    /// The journals of these nodes were lost with it: by a power cut, or on purpose.
    pub journals_lost: bool,
    /// The epoch that a struck node led.
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
}

impl Fault {
    /// Whether it came about, or may have.
    pub fn may_have_struck(&self) -> bool {
        self.status != FaultStatus::Skipped
    }

    /// When it ended; never for one without an end.
    pub fn over_ns(&self) -> u64 {
        self.until_ns.unwrap_or(u64::MAX)
    }
}

/// Whether a fault came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultStatus {
    /// It did.
    Installed,
    /// It was left out; [`Fault::cannot`] says whether for good.
    Skipped,
    /// Unknown.
    Indeterminate,
}

/// Kinds of faults. What follows from a kind for the bound on doubt stands in `invariants/doubt.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// `kill -9`, started again sooner or later.
    Kill,
    /// Asked to stop, started again.
    Restart,
    /// `kill -9`, started again as another release; or the ledger's level is raised.
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
    /// Power is cut: what was not synced is gone, and so is what lay in memory.
    PowerCut,
    /// Files are damaged, lost, or put back from earlier.
    Damage,
    /// A node never comes back.
    NodeLost,
    /// The relay refuses, throttles, stalls, vanishes, or drops connections.
    Relay,
    /// Leadership is handed over on request.
    Transfer,
    /// An operator pauses, cancels, replays or opts out in the middle.
    Operator,
    /// A process dies at a named place of its code.
    CrashPoint,
}

//! The steps of a run.

use reveille_ledger::{LEVEL, level};

use crate::faults::{Fault, NodeIndex};

/// A step of the run.
#[derive(Clone, Debug)]
pub(crate) enum AgendaStep {
    NextFault,
    /// Installs a fault.
    InstallFault(Fault),
    EndFaults(FaultScope),
    Start(NodeIndex),
    Create(usize),
    Operate,
    CheckLedgers,
    Observe,
    /// Proposes an entry that is stamped with a former epoch.
    StaleEntry,
    /// Installs a release that applies this level, and restarts the node.
    Install(NodeIndex, u32),
    /// The operator finishes the upgrade, if that is possible.
    Finish,
    Heal,
    End,
}

/// What a fault affects. Faults of one scope end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultScope {
    Network,
    Relay,
    Clock(NodeIndex),
    Process(NodeIndex),
}

/// Returns the steps of the upgrade, each at a percentage of the run. They depend only on the number of the seed, so
/// that they change no random draw.
pub(crate) fn upgrade_plan(seed: u64) -> Vec<(u32, AgendaStep)> {
    if level::KNOWN == LEVEL || seed % 3 != 2 {
        return Vec::new();
    }
    let install = |index, level| AgendaStep::Install(index, level);
    vec![
        (12, install(0, level::KNOWN)),
        (20, install(1, level::KNOWN)),
        (28, install(0, LEVEL)),
        (34, install(0, level::KNOWN)),
        (40, install(2, level::KNOWN)),
        (44, AgendaStep::Finish),
    ]
}

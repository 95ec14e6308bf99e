//! A rolling upgrade while faults occur: each node gets the next release, one node goes back to the former release for
//! a while, and then the ledger's level is raised (P23). It runs in one seed of three, in a build that has a next
//! level.

use anyhow::Result;
use reveille_ledger::command::{Command, RaiseLevel};
use reveille_ledger::ids::NodeId;
use reveille_ledger::{Ledger, level};
use tokio::time::Duration;

use crate::agenda::{AgendaStep, upgrade_plan};
use crate::faults::NodeIndex;
use crate::node::{CrashKind, SimulatedNode};
use crate::simulation::Simulation;

/// Time for which a node is down while it gets another release.
const ABSENCE: Duration = Duration::from_secs(1);
/// Interval of the operator's tries to finish the upgrade.
const AGAIN: Duration = Duration::from_secs(5);

impl Simulation {
    /// Kills a running node and starts it with the other release. A node that is down will start with it.
    pub(crate) fn install(&mut self, index: NodeIndex, level: u32) -> Result<()> {
        self.trace().say(format_args!("n{} gets a release of level {level}", index + 1));
        self.count("release installed");
        self.nodes[index].level = level;
        match self.nodes[index].process() {
            Some(_) => self.kill(index, CrashKind::Kill, ABSENCE),
            None => Ok(()),
        }
    }

    /// Proposes the next level until the level is raised. The ledger refuses until each node has announced that level.
    pub(crate) fn finish_upgrade(&mut self) {
        if self.read_ledgers(|ledger| ledger.head().level).into_iter().max() == Some(level::KNOWN) {
            return self.count("level raised");
        }
        self.after(AGAIN, AgendaStep::Finish);
        let Some(context) = self.nodes.iter().find_map(SimulatedNode::context) else { return };
        let raise = Command::RaiseLevel(RaiseLevel { level: level::KNOWN, voters: self.voters() });
        tokio::spawn(async move {
            // The result is ignored: the next call reads the level from the ledgers.
            let _ = context.replica.propose(&raise, std::time::Instant::now() + AGAIN).await;
        });
    }

    /// Returns a violation if every node announced the next level and the level was not raised.
    pub(crate) fn upgrade_left_open(&self) -> Option<String> {
        if upgrade_plan(self.options.seed).is_empty() {
            return None;
        }
        let voters = self.voters();
        let is_open = |ledger: &Ledger| {
            let are_ready = ledger.announced_levels(&voters).into_values().all(|level| level == level::KNOWN);
            are_ready && ledger.head().level < level::KNOWN
        };
        let is_open = self.read_ledgers(is_open).into_iter().all(|is_open| is_open);
        is_open.then(|| "P23: every node announced the next level, and it was not raised".to_owned())
    }

    fn voters(&self) -> Vec<NodeId> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    fn read_ledgers<T>(&self, read: impl Fn(&Ledger) -> T) -> Vec<T> {
        self.nodes.iter().filter_map(SimulatedNode::context).map(|context| context.replica.read(&read)).collect()
    }
}

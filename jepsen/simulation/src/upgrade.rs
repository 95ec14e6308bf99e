//! A rolling upgrade in the midst of the faults: each node gets the next release, one gets the former one again for a
//! while, and then the ledger's level is raised (P23). In one seed of three, in a build that knows a next level.

use anyhow::Result;
use reveille_ledger::command::{Command, RaiseLevel};
use reveille_ledger::ids::NodeId;
use reveille_ledger::{Ledger, level};
use tokio::time::Duration;

use crate::agenda::{AgendaStep, upgrade_plan};
use crate::faults::NodeIndex;
use crate::node::{Death, SimulatedNode};
use crate::world::World;

/// How long a node is away for its new release.
const ABSENCE: Duration = Duration::from_secs(1);
/// The operator who finishes the upgrade tries again after this.
const AGAIN: Duration = Duration::from_secs(5);

impl World {
    /// A node that runs is killed and starts with the other release; one that is down starts with it later.
    pub(crate) fn install(&mut self, place: NodeIndex, level: u32) -> Result<()> {
        self.trace().say(format_args!("n{} gets a release of level {level}", place + 1));
        self.count("release installed");
        self.nodes[place].level = level;
        match self.nodes[place].process() {
            Some(_) => self.kill(place, Death::Kill, ABSENCE),
            None => Ok(()),
        }
    }

    /// Asks until the level is raised: as long as a node has not announced it, this is refused.
    pub(crate) fn finish_upgrade(&mut self) {
        if self.read_ledgers(|ledger| ledger.head().level).into_iter().max() == Some(level::KNOWN) {
            return self.count("level raised");
        }
        self.after(AGAIN, AgendaStep::Finish);
        let Some(context) = self.nodes.iter().find_map(SimulatedNode::context) else { return };
        let raise = Command::RaiseLevel(RaiseLevel { level: level::KNOWN, voters: self.voters() });
        tokio::spawn(async move {
            // A refusal, a loss and a success look the same from here: the next look at the ledgers tells.
            let _ = context.replica.propose(&raise, std::time::Instant::now() + AGAIN).await;
        });
    }

    /// What is wrong with an upgrade that every node is ready for and that was not finished.
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

//! A rolling upgrade (P23). One node after the other is killed and starts again as the next release. One node goes back
//! once. When all nodes run the next release, the operator raises the ledger's level, after the last fault at the
//! latest. A binary with the feature `next-level` is both releases: a variable says which release a process is.

use anyhow::Context;
use reveille_check::events::FaultStatus;
use reveille_harness::{CallResult, FORMER_LEVEL, NEXT_LEVEL};

use super::inject::status_of;
use super::nemesis::{Injected, Injection, Nemesis, NotInjected, Repair, UpgradeProgress};
use super::plan::PlannedFault;

#[derive(Clone, Debug, PartialEq, Eq)]
enum UpgradeStep {
    /// The node is killed, and starts again as a release of this level.
    Install(String, u32),
    /// The operator raises the ledger's level.
    Finish,
}

/// A node: its name, the level of its release, and true if it runs and can be killed.
type Installed = (String, u32, bool);

/// Returns the next step. `None`: no node that needs the next release runs.
fn next_step(nodes: &[Installed], progress: UpgradeProgress, number: usize, goes_back: bool) -> Option<UpgradeStep> {
    let install = |from: u32, to: u32| {
        let fit: Vec<&Installed> = nodes.iter().filter(|(_, level, runs)| *runs && *level == from).collect();
        fit.get(number % fit.len().max(1)).map(|(name, ..)| UpgradeStep::Install(name.clone(), to))
    };
    let all_are_next = nodes.iter().all(|(_, level, _)| *level == NEXT_LEVEL);
    let goes_back = (goes_back || all_are_next) && !progress.went_back && !progress.is_asked;
    let back = goes_back.then(|| install(NEXT_LEVEL, FORMER_LEVEL)).flatten();
    match all_are_next {
        _ if back.is_some() => back,
        true => Some(UpgradeStep::Finish),
        false => install(FORMER_LEVEL, NEXT_LEVEL),
    }
}

impl Nemesis {
    /// Executes the next step of the upgrade. `None`: the upgrade is finished.
    pub(super) async fn upgrade(
        &mut self,
        planned: &PlannedFault,
        number: usize,
        goes_back: bool,
    ) -> Injection<Option<Injected>> {
        self.record_ends()?;
        if self.upgrade.is_finished {
            return Ok(None);
        }
        let (running, names) = (self.processes.running(), self.processes.names());
        let nodes = self.processes.cluster.nodes().iter().filter(|node| names.contains(&node.name));
        let nodes: Vec<Installed> =
            nodes.map(|node| (node.name.clone(), node.level, running.contains(&node.name))).collect();
        let step = next_step(&nodes, self.upgrade, number, goes_back);
        match step.ok_or_else(|| NotInjected::NotNow("no node of the former release runs".to_owned()))? {
            UpgradeStep::Install(name, level) => self.install(planned, name, level).map(Some),
            UpgradeStep::Finish => self.finish_upgrade(planned).await.map(Some),
        }
    }

    fn install(&mut self, planned: &PlannedFault, victim: String, level: u32) -> Injection {
        let name = format!("kill -9, then a release of level {level}");
        let mut fault = self.fault(planned, &name, std::slice::from_ref(&victim));
        let past_gate = self.count_past_gate(&victim, &mut fault);
        self.processes.kill(&victim)?;
        self.processes.cluster.node_mut(&victim)?.level = level;
        self.upgrade.went_back |= level == FORMER_LEVEL;
        fault.observed = Some(true);
        fault.detail = format!("{past_gate} past the gate, down for {} ms", planned.lasts.as_millis());
        Ok(Injected { fault, repair: Repair::start(vec![victim]) })
    }

    /// Lets the operator finish the upgrade. The ledger refuses if a node has not announced its level yet.
    async fn finish_upgrade(&mut self, planned: &PlannedFault) -> Injection {
        let mut fault = self.fault(planned, &format!("the ledger is raised to level {NEXT_LEVEL}"), &[]);
        self.upgrade.is_asked = true;
        let result = self.operator.admin.finish_upgrade().await;
        if let CallResult::Refused(why) = result {
            return Err(NotInjected::NotNow(why));
        }
        fault.status = status_of(&result);
        let level = self.operator.admin.ledger_level().await.context("the ledger's level")?;
        self.upgrade.is_finished = level == NEXT_LEVEL;
        if self.upgrade.is_finished {
            fault.status = FaultStatus::Installed;
        }
        fault.observed = Some(self.upgrade.is_finished);
        fault.detail = format!("{result:?}, the ledger has level {level}");
        Ok(Injected { fault, repair: Repair::Nothing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(levels: [u32; 3]) -> Vec<Installed> {
        (1..).zip(levels).map(|(number, level)| (format!("n{number}"), level, true)).collect()
    }

    fn install(name: &str, level: u32) -> Option<UpgradeStep> {
        Some(UpgradeStep::Install(name.to_owned(), level))
    }

    #[test]
    fn nodes_are_upgraded_one_by_one_and_then_level_is_raised() {
        let progress = UpgradeProgress::default();
        assert_eq!(next_step(&nodes([1, 1, 1]), progress, 4, true), install("n2", 2));
        assert_eq!(next_step(&nodes([2, 1, 2]), progress, 4, false), install("n2", 2));
        let went_back = UpgradeProgress { went_back: true, ..progress };
        assert_eq!(next_step(&nodes([2, 2, 2]), went_back, 4, false), Some(UpgradeStep::Finish));
        let mut down = nodes([2, 1, 2]);
        down[1].2 = false;
        assert_eq!(next_step(&down, progress, 4, false), None);
    }

    #[test]
    fn one_node_goes_back_once_and_not_after_finish() {
        let progress = UpgradeProgress::default();
        assert_eq!(next_step(&nodes([2, 1, 2]), progress, 1, true), install("n3", 1));
        assert_eq!(next_step(&nodes([2, 2, 2]), progress, 1, false), install("n2", 1), "no node has gone back yet");
        let went_back = UpgradeProgress { went_back: true, ..progress };
        assert_eq!(next_step(&nodes([2, 1, 2]), went_back, 1, true), install("n2", 2));
        let is_asked = UpgradeProgress { is_asked: true, ..progress };
        assert_eq!(next_step(&nodes([2, 2, 2]), is_asked, 1, true), Some(UpgradeStep::Finish));
    }
}

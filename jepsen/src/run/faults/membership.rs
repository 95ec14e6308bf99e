//! Replaces nodes (P22). A node is killed and never starts again. Its operator removes it and starts a new one with a
//! join token, while other faults go on. Until the new node votes, no further one is lost.

use anyhow::{Context, Result};
use reveille_check::events::{Fault, FaultKind};
use reveille_harness::{FORMER_LEVEL, NEXT_LEVEL, replacement};

use super::actions::FaultTarget;
use super::injection::{Injected, NotInjected, Repair, Replacement};
use super::nemesis::Nemesis;
use super::plan::PlannedFault;

impl Nemesis {
    /// Loses a node, and begins to replace it. `None`: no spare node is left.
    pub(super) async fn replace(
        &mut self,
        planned: &PlannedFault,
        target: FaultTarget,
    ) -> Result<Option<Injected>, NotInjected> {
        self.note_ends()?;
        if self.replacement.is_some() {
            return Err(NotInjected::NotNow("another node is being replaced".to_owned()));
        }
        if self.rotation.is_some() {
            return Err(NotInjected::NotNow("a rotation needs all members".to_owned()));
        }
        let Some(new) = self.processes.spare() else { return Ok(None) };
        let lost = self.target(target)?;
        let mut fault = self.fault(planned, &format!("{target} is lost"), std::slice::from_ref(&lost));
        let past_gate = self.count_past_gate(&lost, &[], &mut fault);
        self.processes.lose(&lost)?;
        (fault.observed, fault.journals_lost) = (Some(true), true);
        fault.word = format!("{past_gate} past the gate; {new} replaces it");
        let task = tokio::spawn(replacement::remove_lost(self.operator.admin.clone(), lost.clone()));
        self.replacement = Some(Replacement::Removing { lost, new, task });
        Ok(Some(Injected { fault, repair: Repair::Nothing }))
    }

    /// Goes on with a replacement, if its present step is done. Returns true while one is in progress.
    pub(super) async fn go_on_replacing(&mut self) -> Result<bool> {
        match self.replacement.take() {
            None => return Ok(false),
            Some(Replacement::Removing { lost, new, task }) if task.is_finished() => {
                let token = task.await?.with_context(|| format!("{lost} is lost and is not replaced"))?;
                let node = self.processes.cluster.node_mut(&new)?;
                node.join_token = Some(token);
                // The ledger may have the next level, or is about to get it.
                node.level = if self.upgrade.is_asked { NEXT_LEVEL } else { FORMER_LEVEL };
                self.processes.join(&new)?;
                let (name, from_ns) = (format!("{new} joins instead of {lost}"), self.processes.recorder.now_ns());
                eprintln!("  {:>5.1} s {name}", from_ns as f64 / 1e9);
                let fault = Fault::installed(FaultKind::Join, name, vec![new.clone()], from_ns);
                let task = tokio::spawn(replacement::wait_for_vote(self.operator.admin.clone(), new));
                self.replacement = Some(Replacement::Joining { fault, task });
            }
            Some(Replacement::Joining { mut fault, task }) if task.is_finished() => {
                let votes = task.await?;
                (fault.observed, fault.until_ns) = (Some(votes), Some(self.processes.recorder.now_ns()));
                if !votes {
                    self.processes.unexpected_ends.push(format!("{}: it does not vote", fault.name));
                }
                self.record(fault);
            }
            unfinished => self.replacement = unfinished,
        }
        Ok(self.replacement.is_some())
    }
}

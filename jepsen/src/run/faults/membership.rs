//! Changes of the members (P22), while other faults go on. A node is killed and never starts again: its operator
//! removes it and starts a new one with a join token. Until the new node votes, no further one is lost. The certificate
//! authority is rotated: until all members have followed, no node is lost for good, because the rotation would wait for
//! it.

use std::time::Duration;

use anyhow::{Context, Result};
use reveille_check::events::{Fault, FaultKind};
use reveille_harness::{AdminClient, CallResult, FORMER_LEVEL, NEXT_LEVEL, replacement, wait};

use super::actions::FaultTarget;
use super::nemesis::{Injected, Injection, Nemesis, NotInjected, Repair, Replacement};
use super::plan::PlannedFault;

/// Maximum time until all members have followed. Other faults may leave some of them down for long.
const ROTATED_WITHIN: Duration = Duration::from_secs(240);

impl Nemesis {
    /// Loses a node, and begins to replace it. `None`: no spare node is left.
    pub(super) async fn replace(&mut self, planned: &PlannedFault, target: FaultTarget) -> Injection<Option<Injected>> {
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

    /// Begins a rotation.
    pub(super) fn rotate(&mut self, planned: &PlannedFault) -> Injection<()> {
        if self.replacement.is_some() || self.rotation.is_some() {
            return Err(NotInjected::NotNow("another change of the members is not over".to_owned()));
        }
        let fault = self.fault(planned, "the certificate authority is rotated", &[]);
        self.rotation = Some((fault, tokio::spawn(rotate(self.operator.admin.clone()))));
        Ok(())
    }

    /// Records a rotation that is over. Returns true while one is in progress.
    pub(super) async fn go_on_rotating(&mut self) -> Result<bool> {
        match self.rotation.take() {
            Some((mut fault, task)) if task.is_finished() => {
                let is_over = task.await?;
                (fault.observed, fault.until_ns) = (Some(is_over), Some(self.processes.recorder.now_ns()));
                if !is_over {
                    self.processes.unexpected_ends.push(format!("{}: it does not end", fault.name));
                }
                self.record(fault);
            }
            unfinished => self.rotation = unfinished,
        }
        Ok(self.rotation.is_some())
    }
}

/// Rotates as the operator's command does. Returns true when it is over.
async fn rotate(admin: AdminClient) -> bool {
    let read = || async { admin.authority().await.ok() };
    let Some(former) = wait::for_some(ROTATED_WITHIN, read).await else { return false };
    let rotates = || async { matches!(admin.rotate_authority(&former.fingerprint).await, CallResult::Done(true)) };
    wait::until(ROTATED_WITHIN, rotates).await
}

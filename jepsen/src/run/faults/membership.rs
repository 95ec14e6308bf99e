//! Changes of the members (P22), while other faults go on. A node is killed and never starts again: its operator
//! removes it and starts a new one with a join token. Or a node is added, or one that runs is drained and removed; it
//! must stop by itself. The members change one at a time: until a new node votes, no further one is lost. The
//! certificate authority is rotated: until all members have followed, they do not change, because the rotation would
//! wait for a lost one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reveille_check::events::{Fault, FaultKind};
use reveille_harness::{AdminClient, CallResult, FORMER_LEVEL, NEXT_LEVEL, members, wait};

use super::actions::FaultTarget;
use super::nemesis::{Injected, Injection, MemberChange, Nemesis, NotInjected, Repair};
use super::plan::PlannedFault;
use crate::run::processes::ProcessState;

/// Number of nodes that may be added to the founders.
const ADDED_MAX: usize = 2;
/// Maximum time from the removal of a node that runs to its end. Faults may cut it off meanwhile.
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// Maximum time until all members have followed. Other faults may leave some of them down for long.
const ROTATED_WITHIN: Duration = Duration::from_secs(240);

impl Nemesis {
    /// Loses a node, and begins to replace it. `None`: no spare node is left.
    pub(super) async fn replace(&mut self, planned: &PlannedFault, target: FaultTarget) -> Injection<Option<Injected>> {
        self.check_nothing_changes()?;
        let Some(new) = self.processes.spares().into_iter().next() else { return Ok(None) };
        let lost = self.target(target)?;
        let mut fault = self.fault(planned, &format!("{target} is lost"), std::slice::from_ref(&lost));
        let past_gate = self.count_past_gate(&lost, &mut fault);
        self.processes.lose(&lost)?;
        (fault.observed, fault.journals_lost) = (Some(true), true);
        fault.detail = format!("{past_gate} past the gate; {new} replaces it");
        let name = format!("{new} joins instead of {lost}");
        let task = tokio::spawn(members::remove_lost(self.operator.admin.clone(), lost));
        self.change = Some(MemberChange::Admitting { new, kind: FaultKind::Join, name, task });
        Ok(Some(Injected { fault, repair: Repair::Nothing }))
    }

    /// Begins to add a node, or to drain and remove one. There are never fewer than the founders.
    pub(super) fn resize(&mut self, planned: &PlannedFault, target: FaultTarget, grows: bool) -> Injection<()> {
        self.check_nothing_changes()?;
        let added = self.processes.names().len().saturating_sub(self.processes.cluster.founders().len());
        let admin = self.operator.admin.clone();
        if added == 0 || (grows && added < ADDED_MAX) {
            let [new, _, ..] = &self.processes.spares()[..] else {
                return Err(NotInjected::NotNow("the last spare node is for a lost one".to_owned()));
            };
            let new = new.clone();
            let name = format!("{new} joins in addition");
            let task = tokio::spawn(async move { admin.join_token().await });
            self.change = Some(MemberChange::Admitting { new, kind: FaultKind::Grow, name, task });
            return Ok(());
        }
        let leaving = self.target(target)?;
        let name = format!("{target} is drained and removed");
        let mut fault = self.fault(planned, &name, std::slice::from_ref(&leaving));
        fault.kind = FaultKind::Shrink;
        eprintln!("  {:>5.1} s {name} {leaving}", fault.from_ns as f64 / 1e9);
        self.processes.may_leave(&leaving, true);
        let removed = members::remove(admin, leaving.clone(), false);
        let task = tokio::spawn(async move { removed.await.inspect_err(|error| eprintln!("  {error:#}")).is_ok() });
        self.change = Some(MemberChange::Draining { fault, leaving, task });
        Ok(())
    }

    fn check_nothing_changes(&mut self) -> Injection<()> {
        self.record_ends()?;
        if self.change.is_some() || self.rotation.is_some() {
            return Err(NotInjected::NotNow("another change of the members is not over".to_owned()));
        }
        Ok(())
    }

    /// Goes on with a change of the members, if its present step is done. Returns true while one is in progress.
    pub(super) async fn go_on_changing(&mut self) -> Result<bool> {
        match self.change.take() {
            None => return Ok(false),
            Some(MemberChange::Admitting { new, kind, name, task }) if task.is_finished() => {
                let token = task.await?.with_context(|| format!("{name}: no token"))?;
                let node = self.processes.cluster.node_mut(&new)?;
                node.join_token = Some(token);
                // The ledger may have the next level, or is about to get it.
                node.level = if self.upgrade.is_asked { NEXT_LEVEL } else { FORMER_LEVEL };
                let from_ns = self.processes.recorder.now_ns();
                self.processes.join(&new)?;
                eprintln!("  {:>5.1} s {name}", from_ns as f64 / 1e9);
                let fault = Fault::installed(kind, name, vec![new.clone()], from_ns);
                let task = tokio::spawn(members::wait_for_vote(self.operator.admin.clone(), new));
                self.change = Some(MemberChange::Joining { fault, task });
            }
            Some(MemberChange::Joining { fault, task }) if task.is_finished() => {
                let votes = task.await?;
                self.end_change(fault, votes, "it does not vote");
            }
            Some(MemberChange::Draining { fault, leaving, task }) if task.is_finished() => {
                if task.await? {
                    self.change = Some(MemberChange::Stopping { fault, leaving, since: Instant::now() });
                } else {
                    self.processes.may_leave(&leaving, false);
                    self.end_change(fault, false, "it is not removed");
                }
            }
            Some(MemberChange::Stopping { fault, leaving, since }) => {
                self.record_ends()?;
                if self.processes.state(&leaving) == ProcessState::Down {
                    self.processes.forget(&leaving);
                    self.end_change(fault, true, "");
                } else if since.elapsed() > STOPS_WITHIN {
                    self.processes.lose(&leaving)?;
                    self.end_change(fault, false, "it does not stop");
                } else {
                    self.change = Some(MemberChange::Stopping { fault, leaving, since });
                }
            }
            unfinished => self.change = unfinished,
        }
        Ok(self.change.is_some())
    }

    /// Records the end of a change of the members. A change that was not completed is unexpected.
    fn end_change(&mut self, mut fault: Fault, is_complete: bool, otherwise: &str) {
        (fault.observed, fault.until_ns) = (Some(is_complete), Some(self.processes.recorder.now_ns()));
        if !is_complete {
            self.processes.unexpected_ends.push(format!("{}: {otherwise}", fault.name));
        }
        self.record(fault);
    }

    /// Begins a rotation.
    pub(super) fn rotate(&mut self, planned: &PlannedFault) -> Injection<()> {
        self.check_nothing_changes()?;
        let fault = self.fault(planned, "the certificate authority is rotated", &[]);
        self.rotation = Some((fault, tokio::spawn(rotate(self.operator.admin.clone()))));
        Ok(())
    }

    /// Records a rotation that is over. Returns true while one is in progress.
    pub(super) async fn go_on_rotating(&mut self) -> Result<bool> {
        match self.rotation.take() {
            Some((fault, task)) if task.is_finished() => {
                let is_over = task.await?;
                self.end_change(fault, is_over, "it does not end");
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

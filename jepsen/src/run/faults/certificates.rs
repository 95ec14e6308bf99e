//! Rotates the certificate authority (P22), while other faults go on. Until all members have followed, no node is lost
//! for good: the rotation would wait for it.

use std::time::{Duration, Instant};

use anyhow::Result;
use reveille_harness::{AdminClient, CallResult};

use super::injection::NotInjected;
use super::nemesis::Nemesis;
use super::plan::PlannedFault;

/// Maximum time until all members have followed. Other faults may leave some of them down for long.
const ROTATED_WITHIN: Duration = Duration::from_secs(240);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(300);

impl Nemesis {
    /// Begins a rotation.
    pub(super) fn rotate(&mut self, planned: &PlannedFault) -> Result<(), NotInjected> {
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
    let until = Instant::now() + ROTATED_WITHIN;
    let mut replaces = None;
    while Instant::now() < until {
        match &replaces {
            None => replaces = admin.authority().await.ok().map(|authority| authority.fingerprint),
            Some(former) => {
                if matches!(admin.rotate_authority(former).await, CallResult::Done(true)) {
                    return true;
                }
            }
        }
        tokio::time::sleep(ASK_AGAIN_AFTER).await;
    }
    false
}

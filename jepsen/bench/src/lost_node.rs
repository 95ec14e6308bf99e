//! A follower that is lost for good in the middle of a campaign, and the new node that takes its place.

use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use reveille_harness::measure::{in_ms, rounded, unix_us};
use reveille_harness::{Cluster, members};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::accepts;

/// A replacement in progress.
pub struct LostNode {
    new: String,
    lost_at: SystemTime,
    removed_at: Option<SystemTime>,
    voted_at: Option<SystemTime>,
    step: Step,
}

/// The step that a replacement waits for.
enum Step {
    Removing(JoinHandle<Result<String>>),
    Joining(JoinHandle<bool>),
    Done,
}

impl LostNode {
    /// Kills a follower for good, and begins to replace it by the spare node.
    ///
    /// # Errors
    /// Fails without a leader, a follower or a spare node.
    pub async fn lose(cluster: &mut Cluster) -> Result<LostNode> {
        let lost = cluster.follower().await?;
        let new = cluster.nodes().get(cluster.founders().len()).context("no spare node")?.name.clone();
        cluster.node_mut(&lost)?.kill()?;
        eprintln!("{lost} is lost; {new} replaces it");
        let step = Step::Removing(tokio::spawn(members::remove_lost(cluster.admin().clone(), lost)));
        Ok(LostNode { new, lost_at: SystemTime::now(), removed_at: None, voted_at: None, step })
    }

    /// True if the new node votes.
    pub fn is_replaced(&self) -> bool {
        self.voted_at.is_some()
    }

    /// Starts the next step if the current step has finished.
    ///
    /// # Errors
    /// Fails if the lost node is not removed, or the new one does not vote, within four minutes.
    pub async fn poll(&mut self, cluster: &mut Cluster) -> Result<()> {
        match std::mem::replace(&mut self.step, Step::Done) {
            Step::Removing(task) if task.is_finished() => {
                let token = task.await??;
                self.removed_at = Some(SystemTime::now());
                let node = cluster.node_mut(&self.new)?;
                node.join_token = Some(token);
                node.start()?;
                let voting = members::wait_for_vote(cluster.admin().clone(), self.new.clone());
                self.step = Step::Joining(tokio::spawn(voting));
            }
            Step::Joining(task) if task.is_finished() => {
                ensure!(task.await?, "{} does not vote", self.new);
                self.voted_at = Some(SystemTime::now());
                eprintln!("{} votes", self.new);
            }
            unfinished => self.step = unfinished,
        }
        Ok(())
    }

    /// Returns the durations from the loss on, and the rates of accepts before and meanwhile.
    ///
    /// # Errors
    /// Fails if the node is not replaced, or no email came.
    pub fn figures(&self, sorted_us: &[i64]) -> Result<Value> {
        let (removed_at, voted_at) = self.removed_at.zip(self.voted_at).context("the node is not replaced")?;
        let (lost_us, voted_us) = (unix_us(self.lost_at), unix_us(voted_at));
        let seconds = |until_us: i64| rounded(in_ms(until_us - lost_us) / 1e3);
        Ok(json!({
            "removed_seconds": seconds(unix_us(removed_at)),
            // The new node votes and has all parts of the audience.
            "redundant_seconds": seconds(voted_us),
            "lost_seconds": accepts::lost_seconds(sorted_us, lost_us),
            "rate": accepts::rates_around(sorted_us, lost_us, voted_us).context("no email")?,
        }))
    }
}

//! Kills a node between the final dot and the relay's answer.
//!
//! The mailbox holds its answer to the victim's next email, and then the victim gets `kill -9`. So the relay has
//! accepted an email whose sender never got the answer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use reveille_node_client::AdminClient;
use reveille_sink::{Hold, HoldPoint, HoldRequest, Sink};

use super::client;
use super::processes::Nodes;
use super::progress::DemoProgress;

/// Maximum time that the mailbox holds an answer.
const HOLD_FOR: Duration = Duration::from_secs(20);
/// Number of newest emails that are searched for the first one of a new epoch: more than arrive between two polls.
const NEWEST: usize = 5_000;
/// Time from a kill to the restart.
const DOWN_FOR: Duration = Duration::from_secs(3);

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kill {
    /// The leader, while it sends.
    Leader,
    /// Another node, while it sends.
    Worker,
    /// No process.
    None,
}

enum Step {
    /// Waits until the mailbox has this many emails.
    At(u64),
    /// The mailbox holds the victim's next answer.
    Holding { victim: String, hold: Hold },
    /// The victim is dead.
    Down { victim: String, since: Instant, killed: SystemTime, epoch: u64, claimed: Option<Duration> },
    /// The victim runs again.
    Done,
}

struct Planned {
    kill: Kill,
    step: Step,
}

/// The kills of a demo, in order.
pub struct Kills {
    planned: Vec<Planned>,
    failovers: Vec<Duration>,
    /// Nodes that sent nothing when they were chosen. A node that crashed three times in ten minutes gets less work
    /// (P12).
    silent: BTreeSet<String>,
}

impl Kills {
    /// Spreads the kills over the campaign.
    pub fn plan(kills: &[Kill], recipients: u32) -> Kills {
        let kills: Vec<Kill> = kills.iter().copied().filter(|kill| *kill != Kill::None).collect();
        let parts = kills.len() as u64 + 2;
        let at = |place: usize| Step::At(u64::from(recipients) * (place as u64 + 1) / parts);
        let planned = kills.iter().enumerate().map(|(place, kill)| Planned { kill: *kill, step: at(place) });
        Kills { planned: planned.collect(), failovers: Vec::new(), silent: BTreeSet::new() }
    }

    /// True if every victim runs again.
    pub fn are_done(&self) -> bool {
        self.planned.iter().all(|planned| matches!(planned.step, Step::Done))
    }

    /// Returns, in milliseconds, the time from each kill of a leader to the first claim of the next epoch whose email
    /// arrived.
    pub fn failovers_ms(&self) -> Vec<u64> {
        self.failovers.iter().map(|failover| failover.as_millis() as u64).collect()
    }

    /// Does the next step, if its condition holds.
    pub async fn act(
        &mut self,
        run: &str,
        sink: &Sink,
        nodes: &mut Nodes,
        admin: &AdminClient,
        progress: &mut DemoProgress,
    ) -> Result<()> {
        let Some(planned) = self.planned.iter_mut().find(|planned| !matches!(planned.step, Step::Done)) else {
            return Ok(());
        };
        match &mut planned.step {
            Step::At(emails) if sink.accepted_count() >= *emails => {
                let Some(victim) = choose(planned.kill, nodes, admin, &mut self.silent).await else { return Ok(()) };
                let request = HoldRequest {
                    ehlo: Some(victim.clone()),
                    point: HoldPoint::AfterCommit,
                    count: 1,
                    limit: HOLD_FOR,
                };
                planned.step = Step::Holding { victim, hold: sink.hold_next_answer(request) };
            }
            Step::At(_) | Step::Done => {}
            Step::Holding { victim, hold } => {
                let Some(held) = hold.next(Duration::from_secs(2)).await else {
                    // It sends nothing now, so another victim is chosen.
                    self.silent.insert(victim.clone());
                    planned.step = Step::At(0);
                    return Ok(());
                };
                let epoch = epoch_of(held.accepted.fence.as_deref());
                let victim = victim.clone();
                nodes.named(&victim).context("the victim")?.kill()?;
                let (since, killed) = (Instant::now(), SystemTime::now());
                progress.note(&format!(
                    "kill -9 {victim} ({}), between the dot and the 250 of one of its emails",
                    if planned.kill == Kill::Leader { "leader" } else { "worker" }
                ));
                held.release();
                planned.step = Step::Down { victim, since, killed, epoch, claimed: None };
            }
            Step::Down { victim, since, killed, epoch, claimed } => {
                let leader = planned.kill == Kill::Leader;
                if leader && claimed.is_none() {
                    *claimed = first_claim_after(sink, admin, run, *epoch, *killed).await;
                }
                if since.elapsed() < DOWN_FOR || (leader && claimed.is_none() && since.elapsed() < 5 * DOWN_FOR) {
                    return Ok(());
                }
                if let Some(claimed) = *claimed {
                    progress.note(&format!("first claim under the next epoch after {} ms", claimed.as_millis()));
                    self.failovers.push(claimed);
                }
                nodes.named(victim).context("the victim")?.start()?;
                progress.note(&format!("{victim} is started again"));
                planned.step = Step::Done;
                self.silent.clear();
            }
        }
        Ok(())
    }
}

/// Returns the victim, if there is one now. A leader that sends nothing first transfers the leadership.
async fn choose(kill: Kill, nodes: &Nodes, admin: &AdminClient, silent: &mut BTreeSet<String>) -> Option<String> {
    let leader = client::leader(admin).await.ok()?;
    if nodes.running().iter().all(|name| silent.contains(name)) {
        silent.clear();
    }
    match kill {
        Kill::Leader if silent.contains(&leader) => {
            let successor = nodes.running().into_iter().find(|name| !silent.contains(name))?;
            // If the transfer fails, the next step tries it again.
            let _ = admin.transfer_leader(&successor).await;
            None
        }
        Kill::Leader => Some(leader),
        Kill::Worker => {
            let sends = |name: &String| *name != leader && !silent.contains(name);
            nodes.running().into_iter().find(sends).or(Some(leader))
        }
        Kill::None => None,
    }
}

/// Returns the epoch of a fence `group.epoch.index.place`.
fn epoch_of(fence: Option<&str>) -> u64 {
    fence.and_then(|fence| fence.split('.').nth(1)).and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
}

/// Returns the time from the kill to the first claim of a later epoch whose email arrived. Emails that were claimed
/// before the kill may arrive meanwhile.
async fn first_claim_after(
    sink: &Sink,
    admin: &AdminClient,
    run: &str,
    epoch: u64,
    killed: SystemTime,
) -> Option<Duration> {
    let (recipient, fence) = {
        let emails = sink.emails();
        // Among the newest: claims of both epochs are sent side by side for a while.
        let newest = emails.iter().rev().map(|(_, mail)| mail).take(NEWEST);
        let mut newer = newest.filter(|mail| epoch_of(mail.fence.as_deref()) > epoch);
        let mut first = newer.next()?;
        for mail in newer {
            first = if index_of(mail.fence.as_deref()) < index_of(first.fence.as_deref()) { mail } else { first };
        }
        (first.recipient.clone(), first.fence.clone()?)
    };
    let claimed = client::claimed_at(admin, run, &recipient, &fence).await?;
    Some(claimed.duration_since(killed).unwrap_or_default())
}

/// Returns the log index of a fence.
fn index_of(fence: Option<&str>) -> u64 {
    fence.and_then(|fence| fence.split('.').nth(2)).and_then(|index| index.parse().ok()).unwrap_or(u64::MAX)
}

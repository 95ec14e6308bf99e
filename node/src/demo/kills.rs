//! The kills: each one lands between the final dot and its answer, on purpose and not by luck.
//!
//! The mailbox holds the answer of the victim's next email; then the victim gets `kill -9`. So the relay has
//! taken an email whose sender will never hear of it: the case that only an honest ledger can tell.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use reveille_node_client::AdminClient;
use reveille_sink::{Hold, HoldPoint, HoldRequest, Sink};

use super::client;
use super::processes::Nodes;
use super::progress::DemoProgress;

/// How long a held answer waits at most.
const HOLD_FOR: Duration = Duration::from_secs(20);
/// Emails among which the first of a new epoch is looked for: far more than arrive between two polls.
const NEWEST: usize = 5_000;
/// A killed node is started again after this.
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
    /// Waits for the mailbox to have this many emails.
    At(u64),
    /// The mailbox holds the victim's next answer.
    Holding { victim: String, hold: Hold },
    /// The victim is down.
    Down { victim: String, since: Instant, killed: SystemTime, epoch: u64, claimed: Option<Duration> },
    /// It is over.
    Done,
}

struct Planned {
    kill: Kill,
    step: Step,
}

/// The kills of a demo, one after the other.
pub struct Kills {
    planned: Vec<Planned>,
    failovers: Vec<Duration>,
    /// Nodes that sent nothing when they were chosen: one that died three times in ten minutes rests (P12).
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

    /// Is every victim back?
    pub fn are_done(&self) -> bool {
        self.planned.iter().all(|planned| matches!(planned.step, Step::Done))
    }

    /// From the kill of a leader to the first claim under the next epoch whose mail arrived, in milliseconds.
    pub fn failovers_ms(&self) -> Vec<u64> {
        self.failovers.iter().map(|failover| failover.as_millis() as u64).collect()
    }

    /// Does what is to be done now.
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
                    // It sends nothing now: draw again, among the others.
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

/// The victim; none when there is none at this moment. A leader that sends nothing hands over first.
async fn choose(kill: Kill, nodes: &Nodes, admin: &AdminClient, silent: &mut BTreeSet<String>) -> Option<String> {
    let leader = client::leader(admin).await.ok()?;
    if nodes.running().iter().all(|name| silent.contains(name)) {
        silent.clear();
    }
    match kill {
        Kill::Leader if silent.contains(&leader) => {
            let heir = nodes.running().into_iter().find(|name| !silent.contains(name))?;
            // Without a transfer it is tried again.
            let _ = admin.transfer_leader(&heir).await;
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

/// The epoch in a fence `group.epoch.index.place`.
fn epoch_of(fence: Option<&str>) -> u64 {
    fence.and_then(|fence| fence.split('.').nth(1)).and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
}

/// How long after the kill the first email of a later epoch was claimed, by the ledger's own account of an email
/// that arrived; none while there is none. Emails that were claimed before the kill go on meanwhile.
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

/// The log index in a fence.
fn index_of(fence: Option<&str>) -> u64 {
    fence.and_then(|fence| fence.split('.').nth(2)).and_then(|index| index.parse().ok()).unwrap_or(u64::MAX)
}

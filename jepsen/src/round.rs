//! One round of `doubt`: a run, a node whose sessions are all past the gate, `kill -9`, and what is left.
//!
//! The sink holds the answers to the victim's mails, so the moment of the kill is no luck: what it saw past the
//! gate just before is what was past the gate when the process died.
//!
//! It says what the kill left in doubt. Who got what is judged at the very end, by [`expected`] of all rounds:
//! a mail of this round may come twice long after it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use reveille_proto::admin::v1::RunCounts;
use reveille_sink::{DialogueState, Held, HoldPoint, HoldRequest, Sink};

use crate::cluster::Cluster;
use crate::load;

/// Between the dot and the answer of every mail: claims of all nodes are open at the same time.
pub const PACE: Duration = Duration::from_millis(100);
/// The schedule is due so long after it was created.
const DUE_IN: Duration = Duration::from_secs(2);
/// The first mail must come within this.
const SENDS_WITHIN: Duration = Duration::from_secs(30);
/// A session of the victim that has sent nothing for so long has nothing to send.
const NEXT_HELD_WITHIN: Duration = Duration::from_secs(2);
/// A held answer waits at most so long: the victim is dead by then.
const HOLD_FOR: Duration = Duration::from_secs(120);
/// The others get this long to send theirs before the kill. Rows that have not begun within ten seconds go
/// back to the ledger, and there would be less to lose.
const OTHERS_DRAIN_WITHIN: Duration = Duration::from_secs(5);
/// Victims start again before their lease is over (their journal alone says what is in doubt), or long after
/// it (the leader has called everything in doubt, and the journal resolves it).
const DOWN_FOR: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];
/// All must be settled so long after the restart, and stay so for a while.
const SETTLED_WITHIN: Duration = Duration::from_secs(180);
const STAYS_FOR: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What each round is like.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Sessions to the sink on each node.
    pub sessions: u32,
    /// Recipients of the run.
    pub recipients: u32,
    /// Or the victim's journals are deleted while it is down.
    pub journal_survives: bool,
}

/// What a round came to.
pub struct Round {
    /// Mails of the victim whose final dot the sink had, and which it had not answered, at the kill.
    pub past_gate: u64,
    /// Recipients that the ledger had as claimed at the kill.
    pub claimed: u64,
    /// Had everything been claimed, and sent by all but the victim? Then nobody else has any of `claimed`.
    pub others_were_done: bool,
    /// Recipients that the ledger has in doubt, once nothing moves any more.
    pub in_doubt: u64,
}

/// Whom the round of this number writes to.
pub fn expected(plan: &Plan, number: u32) -> impl Iterator<Item = String> + use<> {
    let schedule = schedule(number);
    (0..plan.recipients).map(move |recipient| load::address(&schedule, recipient))
}

fn schedule(number: u32) -> String {
    format!("doubt-{number}")
}

/// Plays a round.
pub async fn play(cluster: &mut Cluster, sink: &Sink, plan: &Plan, number: u32) -> Result<Round> {
    let schedule = schedule(number);
    let due = SystemTime::now() + DUE_IN;
    cluster.admin().create(load::once_to(schedule.clone(), due, plan.recipients)).await?;
    let victim = victim(sink, number).await?;
    let held = hold_all(sink, plan, &victim).await?;
    let run = cluster.admin().run_of(&schedule).await?.context("mails without a run")?.run;
    let (claimed, others_were_done) = others_are_done(cluster, &run).await?;

    let past_gate = waiting_dots(sink).get(&victim).copied().unwrap_or(0);
    cluster.kill(&victim)?;
    drop(held);
    eprintln!("round {number}: kill -9 {victim}, {past_gate} past the gate, {claimed} claimed");
    if !plan.journal_survives {
        cluster.delete_journals(&victim)?;
    }
    tokio::time::sleep(if number.is_multiple_of(2) { DOWN_FOR[0] } else { DOWN_FOR[1] }).await;
    cluster.restart(&victim)?;
    cluster.wait_until_healthy().await?;
    settled(cluster, &run).await?;

    let in_doubt = cluster.admin().doubts(&run).await?.len() as u64;
    eprintln!("round {number}: {in_doubt} in doubt");
    Ok(Round { past_gate, claimed, others_were_done, in_doubt })
}

/// A node that sends, another one each time where several do. One that died too often is given nothing for a
/// while (P12), and so is no victim.
async fn victim(sink: &Sink, number: u32) -> Result<String> {
    let until = Instant::now() + SENDS_WITHIN;
    while waiting_dots(sink).is_empty() {
        if Instant::now() > until {
            bail!("no mail came within {} s; --keep FOLDER keeps the logs", SENDS_WITHIN.as_secs());
        }
        tokio::time::sleep(PACE).await;
    }
    // The others begin a moment later.
    tokio::time::sleep(2 * PACE).await;
    let senders: Vec<String> = waiting_dots(sink).into_keys().collect();
    let place = number as usize % senders.len().max(1);
    senders.into_iter().nth(place).context("whoever sent has sent all; raise --recipients")
}

/// Waits until as many of the victim's mails are held as it has sessions.
async fn hold_all(sink: &Sink, plan: &Plan, victim: &str) -> Result<Vec<Held>> {
    let request = HoldRequest {
        ehlo: Some(victim.to_owned()),
        point: HoldPoint::AfterCommit,
        count: plan.sessions as usize,
        limit: HOLD_FOR,
        ..HoldRequest::default()
    };
    let mut hold = sink.hold_next_answer(request);
    let mut held = Vec::new();
    while held.len() < plan.sessions as usize {
        let Some(next) = hold.next(NEXT_HELD_WITHIN).await else { break };
        held.push(next);
    }
    if held.is_empty() {
        bail!("{victim} had nothing left to send; raise --recipients");
    }
    Ok(held)
}

/// Waits until the nodes beside the victim have nothing left; answers what is claimed then, and whether it came
/// so far: only then all of it is the victim's, and nothing is left that could be claimed.
async fn others_are_done(cluster: &Cluster, run: &str) -> Result<(u64, bool)> {
    let until = Instant::now() + OTHERS_DRAIN_WITHIN;
    let mut former: Option<RunCounts> = None;
    loop {
        let counts = cluster.admin().counts(run).await?;
        let still = counts.pending == 0 && former == Some(counts);
        if still || Instant::now() > until {
            return Ok((counts.claimed.into(), still));
        }
        former = Some(counts);
        tokio::time::sleep(2 * PACE).await;
    }
}

/// Mails whose final dot the sink has and which it has not answered, by the node that sent them.
fn waiting_dots(sink: &Sink) -> BTreeMap<String, u64> {
    let mut waiting = BTreeMap::new();
    for dialogue in sink.connections().into_iter().filter(|dialogue| dialogue.state == DialogueState::AfterDot) {
        *waiting.entry(dialogue.ehlo).or_default() += dialogue.unanswered.len() as u64;
    }
    waiting
}

/// Waits until nothing is pending or claimed, and what is in doubt stays as it is.
async fn settled(cluster: &Cluster, run: &str) -> Result<()> {
    let until = Instant::now() + SETTLED_WITHIN;
    let (mut former, mut since) = (None, Instant::now());
    loop {
        let counts = cluster.admin().counts(run).await?;
        if former != Some(counts) {
            (former, since) = (Some(counts), Instant::now());
        }
        let done = counts.pending == 0 && counts.claimed == 0;
        if done && since.elapsed() >= STAYS_FOR {
            return Ok(());
        }
        if Instant::now() > until {
            let next = "--keep FOLDER keeps the logs of the nodes";
            bail!("run {run} is not settled {} s after the restart: {counts:?}; {next}", SETTLED_WITHIN.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

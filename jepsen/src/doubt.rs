//! `doubt`: how many mails a `kill -9` leaves in doubt, with the journal and without it (P11, I5).
//!
//! Each round kills another node while all its sessions wait for the answer to their final dot; `round.rs`
//! plays one. With its journal at most the sessions past the gate may be in doubt; without it at most what the
//! node had claimed, and that is never above the claim cap (P12).

use anyhow::Result;
use reveille_sink::{Amount, FaultKind, FaultPlan, FaultRule, FaultStage, Sink, SinkOptions};
use serde::Serialize;

use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::round::{self, PACE, Plan};
use crate::tally::Tally;

/// P12: claimed but unsettled recipients of a node, at the very most.
const CLAIM_CAP_MAX: u64 = 4_096;
/// With these a node cannot claim so far ahead that the others get nothing.
const RECIPIENTS_A_SESSION: u32 = 100;

/// Options of `doubt`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Kills, each with a schedule of its own
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Sessions to the sink, on each node
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub sessions: u32,
    /// What becomes of the killed node's journal before it starts again
    #[arg(long, value_enum, default_value = "keep")]
    pub journal: Journal,
    /// Recipients of each schedule, so many that every node gets some [default: 100 a session]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub recipients: Option<u32>,
    /// Nodes in the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    pub nodes: u8,
}

/// The fate of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Journal {
    /// It survives the kill, as memory does.
    Keep,
    /// It is gone, as after a power cut.
    Delete,
}

#[derive(Serialize)]
struct Report {
    rounds: u32,
    journal: Journal,
    in_doubt_per_kill: Vec<u64>,
    past_gate_per_kill: Vec<u64>,
    claimed_per_kill: Vec<u64>,
    /// Which no kill may exceed.
    bound: u64,
    arrived_of_in_doubt: u64,
    duplicates: u64,
    lost: u64,
    valid: bool,
}

/// Runs it; valid when doubt keeps its bound at each kill, and all else came once.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let plan = plan(args);
    let sink = slow_sink(args.rounds * plan.recipients)?;
    let mut cluster = Cluster::start(start, args.nodes).await?;
    cluster.admin().add_relay(sink.address(), args.sessions).await?;
    let bound = if plan.journal_survives { u64::from(args.sessions) } else { CLAIM_CAP_MAX };
    let mut report = Report {
        rounds: args.rounds,
        journal: args.journal,
        in_doubt_per_kill: Vec::new(),
        past_gate_per_kill: Vec::new(),
        claimed_per_kill: Vec::new(),
        bound,
        arrived_of_in_doubt: 0,
        duplicates: 0,
        lost: 0,
        valid: true,
    };
    for number in 0..args.rounds {
        let round = round::play(&mut cluster, &sink, &plan, number).await?;
        report.in_doubt_per_kill.push(round.tally.in_doubt);
        report.past_gate_per_kill.push(round.past_gate);
        report.claimed_per_kill.push(round.claimed);
        report.valid &= keeps_its_bound(&plan, &round.tally, round.past_gate) && round.tally.is_clean();
        report.arrived_of_in_doubt += round.tally.in_doubt_arrived;
        report.duplicates += round.tally.duplicates;
        report.lost += round.tally.lost;
    }
    Outcome::new(&report, report.valid)
}

fn plan(args: &Args) -> Plan {
    Plan {
        sessions: args.sessions,
        recipients: args.recipients.unwrap_or(args.sessions * RECIPIENTS_A_SESSION),
        journal_survives: args.journal == Journal::Keep,
    }
}

/// I5: what was past the gate as the relay saw it, or what a node can have claimed.
fn keeps_its_bound(plan: &Plan, tally: &Tally, past_gate: u64) -> bool {
    let bound = if plan.journal_survives { past_gate } else { CLAIM_CAP_MAX };
    tally.in_doubt <= bound
}

/// A relay that takes its time between the dot and the answer.
fn slow_sink(mails: u32) -> Result<Sink> {
    let kind = FaultKind::Stall(Some(PACE));
    let rule = FaultRule { stage: FaultStage::AfterCommit, kind, amount: Amount::Rate(1.0) };
    Ok(Sink::start(SinkOptions {
        faults: FaultPlan { seed: 0, rules: vec![rule] },
        keep_records: 2 * mails as usize,
        keep_bodies: 0,
        ..SinkOptions::default()
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_is_bounded_by_the_gate_with_a_journal_and_by_the_cap_without() {
        let tally = |in_doubt| Tally { in_doubt, ..Tally::default() };
        let kept = Plan { sessions: 8, recipients: 1, journal_survives: true };
        assert!(keeps_its_bound(&kept, &tally(5), 5) && !keeps_its_bound(&kept, &tally(6), 5));
        let deleted = Plan { journal_survives: false, ..kept };
        assert!(keeps_its_bound(&deleted, &tally(4_096), 5) && !keeps_its_bound(&deleted, &tally(4_097), 5));
    }
}

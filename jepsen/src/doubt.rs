//! `doubt`: how many mails a `kill -9` leaves in doubt, with the journal and without it (P11, I5).
//!
//! Each round kills another node while all its sessions wait for the answer to their final dot; `round.rs`
//! plays one. With its journal at most the sessions past the gate may be in doubt; without it at most what the
//! node had claimed, and that is never above the claim cap (P12). At the end everybody of all rounds is held
//! against all that the sink has.

use anyhow::Result;
use reveille_sink::{Amount, FaultKind, FaultPlan, FaultRule, FaultStage, Sink, SinkOptions};
use serde::Serialize;

use crate::Outcome;
use crate::cluster::{Cluster, Start};
use crate::round::{self, PACE, Plan, Round};
use crate::tally::Arrivals;

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
    /// What each kill is judged by.
    bound_per_kill: Vec<u64>,
    arrived_of_in_doubt: u64,
    duplicates: u64,
    lost: u64,
    unexplained: u64,
    valid: bool,
}

/// Runs it; valid when doubt keeps its bound at each kill, and all else came once.
pub async fn run(start: &Start, args: &Args) -> Result<Outcome> {
    let plan = plan(args);
    let sink = slow_sink(args.rounds * plan.recipients)?;
    let mut cluster = Cluster::start(start, args.nodes).await?;
    cluster.admin().add_relay(sink.address(), args.sessions).await?;
    let mut rounds = Vec::new();
    for number in 0..args.rounds {
        rounds.push(round::play(&mut cluster, &sink, &plan, number).await?);
    }
    let doubts = cluster.admin().doubts("").await?;
    let expected = (0..args.rounds).flat_map(|number| round::expected(&plan, number));
    let tally = Arrivals::of(&sink.mails()).judge(expected, &doubts);
    let of_each = |of: &dyn Fn(&Round) -> u64| rounds.iter().map(of).collect::<Vec<u64>>();
    let in_doubt_per_kill = of_each(&|round| round.in_doubt);
    // What a kill left in doubt may be resolved since; there is no way for it to grow.
    let has_not_grown = tally.in_doubt <= in_doubt_per_kill.iter().sum();
    let valid = rounds.iter().all(|round| round.in_doubt <= bound(&plan, round)) && has_not_grown && tally.is_clean();
    let report = Report {
        rounds: args.rounds,
        journal: args.journal,
        in_doubt_per_kill,
        past_gate_per_kill: of_each(&|round| round.past_gate),
        claimed_per_kill: of_each(&|round| round.claimed),
        bound_per_kill: of_each(&|round| bound(&plan, round)),
        arrived_of_in_doubt: tally.in_doubt_arrived,
        duplicates: tally.duplicates,
        lost: tally.lost,
        unexplained: tally.unexplained,
        valid,
    };
    Outcome::new(&report, valid)
}

fn plan(args: &Args) -> Plan {
    Plan {
        sessions: args.sessions,
        recipients: args.recipients.unwrap_or(args.sessions * RECIPIENTS_A_SESSION),
        journal_survives: args.journal == Journal::Keep,
    }
}

/// I5: what was past the gate as the relay saw it; without a journal, what the victim had claimed. Where the
/// others were not done, nobody outside can tell how much of what was claimed was the victim's, or became it.
fn bound(plan: &Plan, round: &Round) -> u64 {
    match (plan.journal_survives, round.others_were_done) {
        (true, _) => round.past_gate,
        (false, true) => round.claimed.min(CLAIM_CAP_MAX),
        (false, false) => CLAIM_CAP_MAX,
    }
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
    fn doubt_is_bounded_by_the_gate_with_a_journal_and_by_what_was_claimed_without() {
        let round = |claimed, others_were_done| Round { past_gate: 5, claimed, others_were_done, in_doubt: 0 };
        let kept = Plan { sessions: 8, recipients: 1, journal_survives: true };
        assert_eq!((bound(&kept, &round(40, true)), bound(&kept, &round(40, false))), (5, 5));
        let deleted = Plan { journal_survives: false, ..kept };
        assert_eq!(bound(&deleted, &round(40, true)), 40);
        assert_eq!(bound(&deleted, &round(5_000, true)), CLAIM_CAP_MAX, "no node may claim more");
        assert_eq!(bound(&deleted, &round(40, false)), CLAIM_CAP_MAX, "more may have been claimed since");
    }
}

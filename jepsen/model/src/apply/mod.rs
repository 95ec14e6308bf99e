//! `apply`: one committed entry, one new state. Pure and total; a refusal is an answer (P2).
//!
//! Called by [`crate::log::Log::commit`] for the tip, and by the tests. This is the part of the model
//! that should read like the real ledger, rule by rule; its files have the names of
//! `raft/ledger/src/apply/`.

mod claim;
mod doubt;
mod epoch;
mod moves;
mod run;
mod settle;

use crate::broken::Rules;
use crate::entry::Entry;
use crate::ledger::Ledger;

/// Why an entry changes nothing. Deterministic: all replicas refuse alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The command belongs to another leadership (P13).
    WrongEpoch,
    /// The process is not the current life of its node (P4, P10).
    OtherIncarnation,
    /// None of those asked for is pending, or the run does not send (P4).
    NothingPending,
    /// The claim does not exist, or does not hold the recipient in a state that this evidence moves.
    NotInClaim,
    /// The same was known before.
    NothingNew,
    /// The run, or the one who is meant, is not in a state in which this can be asked for.
    NotPossible,
    /// An entry's time is below ledger time (P18).
    TimeWentBack,
    /// An entry's time is further above ledger time than an entry may move it (P18).
    TimeLeaps,
}

/// The state after `entry`, or why it stays as it is.
pub fn apply(rules: Rules, ledger: &Ledger, entry: &Entry) -> Result<Ledger, Refusal> {
    let mut next = ledger.clone();
    next.index += 1;
    match *entry {
        Entry::EpochStart { agreed, .. } => next.epoch_start(rules, agreed),
        Entry::Tick { epoch, now } => next.tick(rules, epoch, now)?,
        Entry::NodeUp { process } => next.node_up(process)?,
        Entry::Claim { epoch, owner, slice } => next.apply_claim(rules, epoch, owner, slice)?,
        Entry::Settle(settle) => next.settle(rules, settle)?,
        Entry::Revoke { epoch, claim } => next.revoke(rules, epoch, claim)?,
        Entry::Expire { epoch } => next.expire(rules, epoch)?,
        Entry::Decide(decide) => next.decide(rules, decide)?,
        Entry::Requeue { recipient } => next.requeue(rules, recipient)?,
        Entry::RunPause => next.run_pause()?,
        Entry::RunResume => next.run_resume()?,
        Entry::RunCancel => next.run_cancel()?,
        Entry::OptOut { recipient } => next.opt_out(recipient),
    }
    next.after_moves();
    Ok(next)
}

//! `apply`: computes the new state after one committed entry. It is pure and total, and a refusal is a result (P2).
//!
//! Called by [`crate::log::Log::commit`] and by the tests. It follows the product's ledger rule by rule, and its files
//! have the names of those in `raft/ledger/src/apply/`.

mod claim;
mod doubt;
mod epoch;
mod moves;
mod run;
mod settle;

use crate::broken::Rules;
use crate::entry::Entry;
use crate::ledger::Ledger;

/// Reason why an entry changes nothing. It is deterministic: all replicas refuse the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The command belongs to another leadership (P13).
    WrongEpoch,
    /// The process is not the current incarnation of its node (P4, P10).
    OtherIncarnation,
    /// No requested recipient is pending, or the run does not send (P4).
    NothingPending,
    /// The claim does not exist, or does not hold the recipient in a state that this evidence moves.
    NotInClaim,
    /// The entry brings nothing new.
    NothingNew,
    /// The state of the run or of the recipient does not allow the command.
    NotPossible,
    /// An entry's time is below ledger time (P18).
    TimeWentBack,
    /// An entry's time is further above ledger time than an entry may move it (P18).
    TimeLeaps,
}

/// The result of an entry: it changed the state, or a refusal.
pub type Applied = Result<(), Refusal>;

/// Returns the state after `entry`, or the reason why the entry changes nothing.
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

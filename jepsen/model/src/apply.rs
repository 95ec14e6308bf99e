//! `apply`: one committed entry, one new state. Pure and total; a refusal is an answer (P2).
//!
//! Called by [`crate::log::Log::commit`] for the tip, and by the property that repeats settles. This
//! is the part of the model that should read like the real ledger, rule by rule.

use crate::broken::{Broken, Rules};
use crate::ledger::{Entry, Ledger, Outcome, Row, Settle, Up};
use crate::names::{Epoch, Fence, Holder, Recipient, Recipients};

/// Why an entry changes nothing. Deterministic: all replicas refuse alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The command belongs to another leadership (P13).
    OtherEpoch,
    /// The process is not the current life of its node (P4, P10).
    OtherIncarnation,
    /// None of those asked for is pending (P4).
    NothingPending,
    /// The row does not exist, or does not hold the recipient in a state that this evidence moves.
    NotInRow,
    /// The same was known before.
    NothingNew,
}

/// The state after `entry`, or why it stays as it is.
pub fn apply(rules: Rules, ledger: &Ledger, entry: &Entry) -> Result<Ledger, Refusal> {
    let mut next = ledger.clone();
    next.index += 1;
    match *entry {
        Entry::EpochStart { .. } => next.epoch = next.index,
        Entry::NodeUp { process } => node_up(&mut next, process)?,
        Entry::Claim { epoch, holder, slice } => claim(rules, &mut next, epoch, holder, slice)?,
        Entry::Settle(settle) => self::settle(rules, &mut next, settle)?,
        Entry::Revoke { epoch, row } => revoke(rules, &mut next, epoch, row)?,
        Entry::OptOut { recipient } => opt_out(&mut next, recipient),
    }
    Ok(next)
}

/// Lives only go forward: the announcement of an earlier one may still be under way (P10).
fn node_up(next: &mut Ledger, process: Holder) -> Result<(), Refusal> {
    let up = &mut next.up[process.node.place()];
    if process.incarnation <= up.incarnation {
        return Err(Refusal::OtherIncarnation);
    }
    *up = Up { incarnation: process.incarnation, since: next.index };
    Ok(())
}

fn claim(rules: Rules, next: &mut Ledger, epoch: Epoch, holder: Holder, slice: Recipients) -> Result<(), Refusal> {
    if rules.keep(Broken::ClaimOfAnyEpoch) && epoch != next.epoch {
        return Err(Refusal::OtherEpoch);
    }
    let any_life = !rules.keep(Broken::ClaimForAnyIncarnation) || !rules.keep(Broken::NoIncarnation);
    if !any_life && holder != next.current(holder.node) {
        return Err(Refusal::OtherIncarnation);
    }
    let granted = if rules.keep(Broken::ClaimWithoutPending) { slice.and(next.pending) } else { slice };
    if granted.is_empty() {
        return Err(Refusal::NothingPending);
    }
    next.pending = next.pending.without(granted);
    next.claimed = next.claimed.or(granted);
    next.rows.push(Row {
        fence: Fence { epoch, index: next.index },
        holder,
        granted,
        open: granted,
        accepted: Recipients::NONE,
    });
    Ok(())
}

fn revoke(rules: Rules, next: &mut Ledger, epoch: Epoch, fence: Fence) -> Result<(), Refusal> {
    if rules.keep(Broken::RevokeOfAnyEpoch) && epoch != next.epoch {
        return Err(Refusal::OtherEpoch);
    }
    let row = next.row(fence).copied().ok_or(Refusal::NotInRow)?;
    let lost = row.open.and(next.claimed);
    if lost.is_empty() {
        return Err(Refusal::NotInRow);
    }
    next.floor[row.holder.node.place()] = next.index;
    for recipient in lost.iter() {
        if rules.keep(Broken::Resend) {
            next.claimed.remove(recipient);
            next.in_doubt.insert(recipient);
        } else {
            back_to_pending(next, recipient);
        }
    }
    Ok(())
}

/// The list is changed at once; a recipient that is claimed stays in its row, where the gate refuses
/// it. Claims are not refused here, so that the model rests on the gate alone.
fn opt_out(next: &mut Ledger, recipient: Recipient) {
    next.opted_out.insert(recipient);
    next.opt_out_index = next.index;
    next.floor.fill(next.index);
}

/// The table of P14.
fn settle(rules: Rules, next: &mut Ledger, settle: Settle) -> Result<(), Refusal> {
    let Settle { row, recipient, outcome } = settle;
    if outcome == Outcome::Accepted {
        return accepted(rules, next, row, recipient);
    }
    let is_open = |row: &Row| row.open.has(recipient);
    let in_row = if rules.keep(Broken::SettleWithoutRow) {
        next.row(row).is_some_and(is_open)
    } else {
        next.rows.iter().any(is_open)
    };
    if !in_row {
        return Err(Refusal::NotInRow);
    }
    match outcome {
        Outcome::InDoubt => {
            if !next.claimed.remove(recipient) {
                return Err(Refusal::NothingNew);
            }
            next.in_doubt.insert(recipient);
        }
        Outcome::Accepted | Outcome::Refused | Outcome::Released => {
            if next.in_doubt.has(recipient) {
                next.resolved.insert(recipient);
            }
            back_to_pending(next, recipient);
        }
    }
    Ok(())
}

/// True for ever, from whatever fence: moves out of every state that is not terminal, and is counted
/// once for each row and recipient.
fn accepted(rules: Rules, next: &mut Ledger, fence: Fence, recipient: Recipient) -> Result<(), Refusal> {
    let row = next.rows.iter_mut().find(|row| row.fence == fence).ok_or(Refusal::NotInRow)?;
    let is_new = row.accepted.insert(recipient);
    if !is_new && rules.keep(Broken::CountEachRepeat) {
        return Err(Refusal::NothingNew);
    }
    if next.sent.has(recipient) {
        next.known_duplicates += 1;
        return Ok(());
    }
    if next.suppressed.has(recipient) {
        next.contradictions += 1;
        return Ok(());
    }
    if next.in_doubt.has(recipient) {
        next.resolved.insert(recipient);
    }
    leave_every_state(next, recipient);
    next.sent.insert(recipient);
    Ok(())
}

/// Pending again, or what the run now demands.
fn back_to_pending(next: &mut Ledger, recipient: Recipient) {
    leave_every_state(next, recipient);
    if next.opted_out.has(recipient) {
        next.suppressed.insert(recipient);
    } else {
        next.pending.insert(recipient);
    }
}

fn leave_every_state(next: &mut Ledger, recipient: Recipient) {
    next.pending.remove(recipient);
    next.claimed.remove(recipient);
    next.in_doubt.remove(recipient);
    for row in &mut next.rows {
        row.open.remove(recipient);
    }
}

//! The invariants of docs/protocol.md. Each is a function from a history to its findings.

use crate::history::History;
use crate::verdict::Findings;

pub mod accounts;
pub mod attribution;
pub mod availability;
pub mod barriers;
pub mod claim_cap;
pub mod claims;
pub mod contents;
pub mod doubt;
pub mod ends;
pub mod hashes;
pub mod identity;
pub mod limits;
pub mod loss;
pub mod majority;
pub mod occurrences;
pub mod once;
pub mod open_claims;
pub mod progress;
pub mod registers;
pub mod tenants;
pub mod writes;

/// An invariant.
#[derive(Clone, Copy, Debug)]
pub struct Invariant {
    /// Number of the invariant: 1 for `I1`.
    pub number: u8,
    /// Title for people, on one line.
    pub title: &'static str,
    /// The function that judges it.
    pub judge: fn(&History, &mut Findings),
}

/// Invariants that are always judged.
pub const ALWAYS: [u8; 4] = [1, 2, 4, 9];

/// All invariants, by number.
pub const ALL: [Invariant; 19] = [
    invariant(1, "no recipient of a run is accepted twice", once::accepted_once),
    invariant(2, "every handoff is covered by a committed claim", claims::covered),
    invariant(3, "each attempt has its own fence, one passes the gate", once::one_fence_past_the_gate),
    invariant(4, "nothing due is lost", loss::nothing_lost),
    invariant(5, "doubt is bounded and explained", doubt::bounded),
    invariant(6, "no gate pass after the answer to an opt-out", barriers::opted_out),
    invariant(7, "acknowledged writes remain", writes::survive),
    invariant(8, "no claim after a pause or cancel", barriers::paused_or_cancelled),
    invariant(9, "ledger and sink agree", accounts::agree),
    invariant(10, "each occurrence opens once, never early", occurrences::kept),
    invariant(11, "nodes at one log index are in one state", hashes::equal),
    invariant(12, "tenants do not delay each other", tenants::apart),
    invariant(13, "the backlog drains after healing", loss::drains),
    invariant(14, "handoffs are at most gate passes", claims::passed_the_gate),
    invariant(15, "no claim stays open after its owner ended", open_claims::revoked),
    invariant(16, "each recipient gets its own content", contents::own),
    invariant(17, "a majority that is up has a leader and sends", availability::available),
    invariant(18, "no budget is exceeded across fail-overs", limits::within_budgets),
    invariant(19, "`min_gap` and `max_attempts` are kept", limits::gaps_and_attempts),
];

const fn invariant(number: u8, title: &'static str, judge: fn(&History, &mut Findings)) -> Invariant {
    Invariant { number, title, judge }
}

//! The knobs of a schedule, with their defaults and bounds.

use serde::{Deserialize, Serialize};

use crate::calendar;
use crate::model::Canary;

/// One minute in milliseconds.
pub const MINUTE_MS: i64 = 60_000;
/// One hour in milliseconds.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// One day in milliseconds.
pub const DAY_MS: i64 = 24 * HOUR_MS;
/// The least time that a run has to be sent, however soon the next instant comes. Milliseconds.
pub const FINISH_MS_MIN: i64 = 10 * MINUTE_MS;
/// The longest `finish_by` that may be chosen, or forecast for a campaign. Milliseconds.
pub const FINISH_MS_MAX: i64 = 30 * DAY_MS;

/// What becomes of instants that were missed (P16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatchUp {
    /// The latest missed one opens, the others are explained.
    #[default]
    One,
    /// Each opens, within `start_within`.
    All,
    /// None opens.
    None,
}

/// What becomes of an instant that falls due while a former run of its schedule is not finished (P1): while
/// something of it is pending or claimed. What is in doubt does not hold it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlap {
    /// It waits until the run is finished. Of several that wait, `catch_up` says which open.
    #[default]
    BufferOne,
    /// It does not open.
    Skip,
    /// It opens: runs stand side by side.
    Allow,
    /// It opens, and what the former run has not sent is cancelled.
    CancelOther,
}

/// What becomes of a mail whose hand-off may or may not have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InDoubt {
    /// It waits for an operator, or for its owner's journal.
    #[default]
    Hold,
    /// It is sent again: a duplicate is possible, by choice, and counted.
    Resend,
    /// It is closed as `assumed` when the run ends or after 24 h; never counted as sent.
    AssumeSent,
}

/// Everything an owner may choose about a schedule's firing and sending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// Clock changes: the gap and the overlap.
    pub dst: calendar::DstPolicies,
    /// Missed instants.
    pub catch_up: CatchUp,
    /// An occurrence later than this does not open. Milliseconds.
    pub start_within_ms: i64,
    /// What an open run has not sent this long after its nominal instant expires; also at the next
    /// nominal instant. Milliseconds.
    pub finish_by_ms: i64,
    /// Doubt.
    pub in_doubt: InDoubt,
    /// Attempts without a known cause after which a recipient is dead: permanent answers that name none, dialogues that
    /// broke after RCPT, and doubts that were sent again by policy.
    pub max_attempts: u8,
    /// First wait after a failed attempt; it doubles. Milliseconds.
    pub backoff_from_ms: i64,
    /// Longest wait after a failed attempt. Milliseconds.
    pub backoff_to_ms: i64,
    /// The details of a run are kept this long after it finished (P24). Milliseconds.
    pub retention_ms: i64,
    /// A former run that is not finished.
    pub overlap: Overlap,
    /// No recipient gets emails of two runs whose nominal instants are less than this apart (P17); 0: no limit.
    /// Milliseconds.
    pub min_gap_ms: i64,
    /// An occurrence opens within this after its instant: its place there is a hash of the schedule's name and of
    /// its own, and never reaches the next instant. Milliseconds.
    pub jitter_ms: i64,
    /// Some recipients go first, and the rest waits until it is known how that went (P6).
    pub canary: Option<Canary>,
}

impl Default for Policies {
    fn default() -> Policies {
        Policies {
            dst: calendar::DstPolicies::default(),
            catch_up: CatchUp::One,
            start_within_ms: 12 * HOUR_MS,
            finish_by_ms: DAY_MS,
            in_doubt: InDoubt::Hold,
            max_attempts: 5,
            backoff_from_ms: MINUTE_MS,
            backoff_to_ms: HOUR_MS,
            retention_ms: 90 * DAY_MS,
            overlap: Overlap::BufferOne,
            min_gap_ms: 0,
            jitter_ms: 0,
            canary: None,
        }
    }
}

impl Policies {
    /// The wait after `attempts` counted attempts: doubling, within its bounds. Milliseconds.
    pub fn backoff_ms(&self, attempts: u8) -> i64 {
        let doublings = u32::from(attempts.saturating_sub(1)).min(30);
        self.backoff_from_ms.saturating_mul(1_i64 << doublings).min(self.backoff_to_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_bound() {
        let policies = Policies::default();
        let waits: Vec<i64> = (1..=8).map(|attempts| policies.backoff_ms(attempts) / MINUTE_MS).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(policies.backoff_ms(255), HOUR_MS);
    }
}

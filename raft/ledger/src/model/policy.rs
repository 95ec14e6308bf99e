//! Policies of a schedule, with their defaults and bounds.

use serde::{Deserialize, Serialize};

use crate::calendar;
use crate::model::Canary;

/// One minute in milliseconds.
pub const MINUTE_MS: i64 = 60_000;
/// One hour in milliseconds.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// One day in milliseconds.
pub const DAY_MS: i64 = 24 * HOUR_MS;
/// Shortest time to send a run, however soon the next instant comes. Milliseconds.
pub const FINISH_MS_MIN: i64 = 10 * MINUTE_MS;
/// Longest `finish_by` that may be chosen, or forecast for a campaign. Milliseconds.
pub const FINISH_MS_MAX: i64 = 30 * DAY_MS;

/// Policy for missed instants (P16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CatchUp {
    /// The latest missed instant opens; the others are explained.
    #[default]
    One,
    /// Each missed instant opens if it is within `start_within`.
    All,
    /// No missed instant opens.
    None,
}

/// Policy for an instant that is due while an earlier run of its schedule is unfinished (P16): a run that the calendar
/// opened has a recipient claimed, or pending before its deadline; it is neither paused nor reopened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Overlap {
    /// The instant waits until the run is finished. If several wait, `catch_up` decides which of them open.
    #[default]
    BufferOne,
    /// The instant does not open.
    Skip,
    /// The instant opens; both runs send at the same time.
    Allow,
    /// The instant opens, and pending recipients of the earlier run are cancelled.
    CancelOther,
}

/// Policy for a recipient in doubt: its email may or may not have been accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum InDoubt {
    /// It waits for the operator, or for the owner's journal.
    #[default]
    Hold,
    /// Its email is sent again. A duplicate is possible; the user accepts this, and it is counted.
    Resend,
    /// It is closed as `assumed` when the run ends, or after 24 h. It never counts as sent.
    AssumeSent,
}

/// Choices of the user for how a schedule fires and sends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Policies {
    /// How clock changes are handled: local times that are skipped or occur twice.
    pub dst: calendar::DstPolicies,
    /// How missed instants are handled.
    pub catch_up: CatchUp,
    /// An occurrence that is later than this does not open. Milliseconds.
    pub start_within_ms: i64,
    /// Recipients that are not sent this long after the run's nominal instant expire; also at the next nominal instant.
    /// Milliseconds.
    pub finish_by_ms: i64,
    /// How recipients in doubt are handled.
    pub in_doubt: InDoubt,
    /// A recipient is dead after this many counted attempts. Counted are permanent answers that name no cause,
    /// dialogues that broke from RCPT on, and doubts that the policy sent again.
    pub max_attempts: u8,
    /// First wait after a failed attempt; it doubles with each attempt. Milliseconds.
    pub backoff_from_ms: i64,
    /// Longest wait after a failed attempt. Milliseconds.
    pub backoff_to_ms: i64,
    /// Details of a run are kept this long after it finished (P24). Milliseconds.
    pub retention_ms: i64,
    /// How an earlier, unfinished run is handled.
    pub overlap: Overlap,
    /// No recipient gets emails of two runs whose nominal instants are closer than this (P17). 0: no limit.
    /// Milliseconds.
    pub min_gap_ms: i64,
    /// An occurrence opens within this time after its instant, and before the next instant. The delay is a hash of the
    /// schedule's name and the occurrence's name. Milliseconds.
    pub jitter_ms: i64,
    /// Some recipients are sent first, and the others wait for the verdict (P6). `None`: no canary.
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
    /// Returns the wait after `attempts` counted attempts; it doubles within its bounds. Milliseconds.
    pub fn backoff_ms(&self, attempts: u8) -> i64 {
        let doublings = u32::from(attempts.saturating_sub(1)).min(30);
        self.backoff_from_ms.saturating_mul(1_i64 << doublings).min(self.backoff_to_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_doubles_up_to_its_bound() {
        let policies = Policies::default();
        let waits: Vec<i64> = (1..=8).map(|attempts| policies.backoff_ms(attempts) / MINUTE_MS).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(policies.backoff_ms(255), HOUR_MS);
    }
}

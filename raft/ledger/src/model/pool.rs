//! Settings of a pool of relays: the daily caps of its warm-up (P25), and whether its emails carry `X-Reveille-*`
//! headers.
//!
//! A pool is a name that relays have, and needs no row of its own. A pool without a row has no caps. Days are days of
//! ledger time in UTC.

use serde::{Deserialize, Serialize};

use crate::model::{DAY_MS, Time};

/// A day in UTC: whole days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Day(pub i64);

impl Day {
    /// Returns the day of an instant.
    pub fn of(now: Time) -> Day {
        Day(now.0.div_euclid(DAY_MS))
    }

    /// Returns the end of the day.
    pub fn end(self) -> Time {
        Time(self.0.saturating_add(1).saturating_mul(DAY_MS))
    }
}

/// Settings of a pool, and its count for the current day of its warm-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// First day of its warm-up.
    pub first: Day,
    /// Largest number of emails on each day of the warm-up; after the last one there is no cap. Empty: no warm-up.
    pub caps: Vec<u32>,
    /// The day that `spent` counts.
    pub day: Day,
    /// Recipients that were sent on that day, or may have been: they were claimed, and then sent or in doubt.
    pub spent: u32,
    /// True if its emails carry `X-Reveille-Run` and `X-Reveille-Fence`.
    pub reveille_headers: bool,
    /// Log index of the entry that set it last.
    pub index: u64,
}

impl PoolRow {
    /// Cap of a day; `None` if there is none.
    pub fn cap(&self, day: Day) -> Option<u32> {
        let number = usize::try_from(day.0.checked_sub(self.first.0)?).ok()?;
        self.caps.get(number).copied()
    }

    /// Number of recipients that were sent on a day, or may have been.
    pub fn spent(&self, day: Day) -> u32 {
        if self.day == day { self.spent } else { 0 }
    }

    /// True if all settings have their defaults. The row stays until the end of the day on which its warm-up was
    /// removed: a warm-up that is set on the same day must know what was sent.
    pub fn is_default(&self) -> bool {
        self.caps.is_empty() && self.reveille_headers
    }

    /// True if it counts what is sent on a day.
    pub(crate) fn counts(&self, day: Day) -> bool {
        !self.caps.is_empty() || self.day >= day
    }

    /// True if the row can be removed.
    pub(crate) fn is_forgotten(&self, day: Day) -> bool {
        self.is_default() && !self.counts(day)
    }

    pub(crate) fn spend(&mut self, day: Day, count: u32) {
        // Ledger time never goes back.
        self.spent = self.spent(day).saturating_add(count);
        self.day = day;
    }
}

/// Arguments of [`crate::command::Command::PoolSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSet {
    /// Request id; `None` if the caller gave none.
    pub request: Option<String>,
    /// Name of the pool.
    pub pool: String,
    /// New [`PoolRow::caps`]. Empty: the warm-up does not change.
    pub caps: Vec<u32>,
    /// First day of the warm-up. `None`: the known first day if that warm-up is running or has the same caps, else
    /// today.
    pub first: Option<Day>,
    /// New [`PoolRow::reveille_headers`]. `None`: it does not change.
    pub reveille_headers: Option<bool>,
    /// Etag that the pool must have, if it is to change. `None`: any.
    pub expected: Option<String>,
}

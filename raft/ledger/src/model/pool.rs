//! What is set of a pool of relays: how much may go by it on each of its first days (P25), and whether its emails carry
//! `X-Reveille-*` headers.
//!
//! A pool is the name that relays have. It needs no object: one without sends what its relays take. Days are those of
//! ledger time in UTC.

use serde::{Deserialize, Serialize};

use crate::model::{DAY_MS, Time};

/// A day in UTC: whole days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Day(pub i64);

impl Day {
    /// The day of an instant.
    pub fn of(now: Time) -> Day {
        Day(now.0.div_euclid(DAY_MS))
    }

    /// When it is over.
    pub fn end(self) -> Time {
        Time(self.0.saturating_add(1).saturating_mul(DAY_MS))
    }
}

/// What is set of a pool, and what was sent on the current day of its warm-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// The first day of its warm-up.
    pub first: Day,
    /// Emails on each of its days, at most; after the last one there is no bound. Empty: there is no warm-up.
    pub caps: Vec<u32>,
    /// The day of which `spent` tells.
    pub day: Day,
    /// Recipients that were sent on that day, or may have been: claimed, and then sent or in doubt.
    pub spent: u32,
    /// Do its emails carry `X-Reveille-Run` and `X-Reveille-Fence`?
    pub reveille_headers: bool,
    /// Log index of the entry that set it last.
    pub index: u64,
}

impl PoolRow {
    /// How many may be sent on a day; none where there is no bound.
    pub fn cap(&self, day: Day) -> Option<u32> {
        let number = usize::try_from(day.0.checked_sub(self.first.0)?).ok()?;
        self.caps.get(number).copied()
    }

    /// How many were sent on a day, or may have been.
    pub fn spent(&self, day: Day) -> u32 {
        if self.day == day { self.spent } else { 0 }
    }

    /// Is it as a pool of which nothing is set? What was sent on the day on which its warm-up was taken away is known
    /// until the day is over, for the next one that is set.
    pub fn is_default(&self) -> bool {
        self.caps.is_empty() && self.reveille_headers
    }

    /// Does it count what is sent on a day?
    pub(crate) fn counts(&self, day: Day) -> bool {
        !self.caps.is_empty() || self.day >= day
    }

    /// Does it say nothing any more?
    pub(crate) fn is_forgotten(&self, day: Day) -> bool {
        self.is_default() && !self.counts(day)
    }

    pub(crate) fn spend(&mut self, day: Day, count: u32) {
        // Ledger time never goes back.
        self.spent = self.spent(day).saturating_add(count);
        self.day = day;
    }
}

/// See [`crate::command::Command::PoolSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSet {
    /// Request id, where the caller gave one.
    pub request: Option<String>,
    /// The pool.
    pub pool: String,
    /// As [`PoolRow::caps`]; empty: its warm-up stays as it is.
    pub caps: Vec<u32>,
    /// Its first day; where none is given the one it has, if that plan runs or is the same one, or today.
    pub first: Option<Day>,
    /// As [`PoolRow::reveille_headers`]; none: as it is.
    pub reveille_headers: Option<bool>,
}

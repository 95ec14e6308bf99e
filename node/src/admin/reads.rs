//! Reads: fresh on any node, or stale where the caller says so.

use std::time::Instant;

use reveille_ledger::Ledger;
use reveille_ledger::ids::Time;
use reveille_proto::admin::v1::Freshness;
use reveille_raft::{Member, ReadError};

use super::unled::Asked;
use super::views::duration;
use super::{Admin, Fault, refusals};

/// An idle leader commits an entry every ten seconds (P18); some more for its way here. Milliseconds.
const BETWEEN_ENTRIES_MS_MAX: i64 = 15_000;

impl Admin {
    /// Looks at a state that includes every write which was answered before this call; with `stale`, at
    /// what this node has applied, without asking anybody.
    ///
    /// A stale answer's age counts from the ledger time of the last applied entry; an idle leader commits
    /// one every ten seconds (P18).
    pub(super) async fn read<T>(
        &self,
        stale: bool,
        deadline: Instant,
        look: impl FnOnce(&Ledger) -> T,
    ) -> Result<(T, Option<Freshness>), Fault> {
        self.member()?;
        if !stale {
            match self.site.replica.linearizable_while_led(deadline).await {
                Ok(_) => {}
                Err(ReadError::NoLeader) => return Err(self.unled(Asked::Read, deadline).await),
                Err(error) => return Err(refusals::not_read(error, self.leader().as_ref())),
            }
        }
        let (value, index, stamped) = self.site.replica.read(|ledger| {
            let head = ledger.head();
            (look(ledger), head.applied, head.now.plus_ms(-head.offset_ms()))
        });
        let age_ms = self.site.clock.wall().since_ms(stamped).max(0);
        let age = (stale && index > 0).then(|| duration(age_ms));
        Ok((value, Some(Freshness { index, stale, age })))
    }

    /// Ledger time by this node's wall clock (and the offset of a test clock, P19), as far as that can be believed.
    pub(super) fn now(&self, applied: Time) -> Time {
        ledger_time(self.site.clock.wall().plus_ms(self.site.offset_ms()), applied)
    }

    /// # Errors
    /// When this node belongs to no cluster.
    pub(super) fn member(&self) -> Result<(), Fault> {
        self.site.replica.cluster().map(|_| ()).ok_or_else(refusals::not_initialized)
    }

    /// Who leads, as far as this node knows.
    pub(super) fn leader(&self) -> Option<Member> {
        let mut status = self.site.replica.status();
        status.members.remove(&status.leader?).map(|known| known.member)
    }
}

/// Never further from what was applied than an idle leader lets pass between two entries: a clock that is wrong by hours
/// is heard for seconds. A ledger whose first leader has not asked the voters for their clocks yet has no time: what is
/// created in that moment counts from now, not from 1970.
fn ledger_time(wall: Time, applied: Time) -> Time {
    match applied {
        Time(0) => wall,
        _ => wall.clamp(applied, applied.plus_ms(BETWEEN_ENTRIES_MS_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_without_a_time_yet_takes_the_clock_and_any_other_bounds_it() {
        let wall = Time(1_800_000_000_000);
        assert_eq!(ledger_time(wall, Time(0)), wall);
        assert_eq!(ledger_time(wall, wall.plus_ms(-9_000)), wall);
        assert_eq!(ledger_time(wall, wall.plus_ms(9_000)), wall.plus_ms(9_000), "it does not go back");
        let hours_ago = wall.plus_ms(-3 * 3_600_000);
        assert_eq!(ledger_time(wall, hours_ago), hours_ago.plus_ms(15_000), "a wrong clock is heard for seconds");
    }
}

//! Counts instants by outcome and reason, once their fire is in the ledger.

use reveille_ledger::command::{Fire, OpeningCause};

/// Number of instants with one outcome and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instants {
    outcome: &'static str,
    reason: &'static str,
    count: u32,
}

/// Returns the instants of a fire by outcome and reason.
pub(crate) fn instants(fire: &Fire) -> Vec<Instants> {
    let opened =
        fire.opened.iter().map(|opening| Instants { outcome: "fired", reason: cause(opening.cause), count: 1 });
    let explained = fire.explained.iter().map(|range| Instants {
        outcome: range.reason.outcome().word(),
        reason: range.reason.word(),
        count: range.count(),
    });
    opened.chain(explained).collect()
}

/// Increments the counters, after the ledger has accepted the fire.
pub(crate) fn count(instants: &[Instants]) {
    for Instants { outcome, reason, count } in instants.iter().copied() {
        metrics::counter!("reveille_instants_total", "outcome" => outcome, "reason" => reason)
            .increment(u64::from(count));
    }
}

fn cause(cause: OpeningCause) -> &'static str {
    match cause {
        OpeningCause::Due => "due",
        OpeningCause::CatchUp => "catch_up",
        OpeningCause::Trigger => "trigger",
        OpeningCause::Backfill => "backfill",
        OpeningCause::Test => "test",
        OpeningCause::Message => "message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_ledger::command::{ExplainedRange, Opening, UnopenedReason};
    use reveille_ledger::ids::{OccurrenceName, ScheduleId, Time};
    use reveille_ledger::instant_range::InstantRange;

    #[test]
    fn fire_is_counted_by_outcome_and_reason() {
        let at = |minute: i64| OccurrenceName::Instant(Time(minute * 60_000));
        let opening =
            Opening { occurrence: at(9), due: Time(540_000), cause: OpeningCause::CatchUp, finish_by: Time(900_000) };
        let fire = Fire {
            schedule: ScheduleId::new(1, 0),
            plan_version: 1,
            from: at(1),
            opened: vec![opening],
            explained: vec![ExplainedRange {
                first: at(1),
                instants: InstantRange::every(60_000, 7),
                reason: UnopenedReason::Coalesced,
            }],
            through: Time(540_000),
            next: None,
            tzdb: "test".to_owned(),
        };
        let expected = |outcome, reason, count| Instants { outcome, reason, count };
        assert_eq!(instants(&fire), [expected("fired", "catch_up", 1), expected("coalesced", "catch_up", 8)]);
    }
}

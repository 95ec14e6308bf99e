//! What became of instants and of mails, counted for operators by outcome and reason.
//!
//! The timer counts a fire when it is in the ledger; the settler counts an outcome when a lane or the recovery
//! leaves it. The words are those of the history, and of the commands that carry them.

use reveille_ledger::command::{Fire, OpeningCause, Refused, ReleaseReason, ReplyScope};

use super::settler::Fate;

/// Instants of one outcome and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instants {
    outcome: &'static str,
    reason: &'static str,
    count: u32,
}

/// What a fire says of its instants.
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

/// Counts them; the fire was taken.
pub(crate) fn count(instants: &[Instants]) {
    for Instants { outcome, reason, count } in instants.iter().copied() {
        metrics::counter!("reveille_instants_total", "outcome" => outcome, "reason" => reason)
            .increment(u64::from(count));
    }
}

/// Counts what became of one mail.
pub(crate) fn count_mail(fate: &Fate) {
    let (outcome, reason) = words(fate);
    metrics::counter!("reveille_mails_total", "outcome" => outcome, "reason" => reason).increment(1);
}

fn cause(cause: OpeningCause) -> &'static str {
    match cause {
        OpeningCause::Due => "due",
        OpeningCause::CatchUp => "catch_up",
        OpeningCause::Trigger => "trigger",
        OpeningCause::Backfill => "backfill",
        OpeningCause::Test => "test",
    }
}

fn words(fate: &Fate) -> (&'static str, &'static str) {
    match fate {
        Fate::Said(_, fate) => words(fate),
        Fate::Accepted => ("accepted", ""),
        Fate::Suppressed => ("suppressed", "opted_out"),
        Fate::InDoubt => ("in_doubt", ""),
        Fate::Unsendable(_) => ("unsendable", ""),
        // Nobody answered it (P6).
        Fate::Refused(Refused { code: 0, .. }) => ("released", "no_relay"),
        Fate::Refused(refused) => match refused.scope {
            ReplyScope::Mailbox => ("refused", "mailbox"),
            ReplyScope::Greylist => ("refused", "greylist"),
            ReplyScope::Relay => ("refused", "relay"),
            ReplyScope::Policy => ("refused", "policy"),
        },
        Fate::Released(why) => ("released", released(*why)),
    }
}

fn released(why: ReleaseReason) -> &'static str {
    match why {
        ReleaseReason::Busy => "busy",
        ReleaseReason::Paced => "paced",
        ReleaseReason::SessionEnded => "session_ended",
        ReleaseReason::NotInClaim => "not_in_row",
        ReleaseReason::RunPaused => "run_paused",
        ReleaseReason::RunEnded => "run_ended",
        ReleaseReason::PastDeadline => "past_deadline",
        ReleaseReason::LeaseOver => "lease_over",
        ReleaseReason::JournalFailed => "journal_failed",
        ReleaseReason::Stopping => "stopping",
        ReleaseReason::OwnerDied => "holder_died",
        ReleaseReason::OwnerDiedPreparing => "holder_died_preparing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_ledger::command::{ExplainedRange, Opening, UnopenedReason};
    use reveille_ledger::ids::{Nominal, ScheduleId, Time};
    use reveille_ledger::instant_range::InstantRange;

    #[test]
    fn what_no_relay_has_refused_is_not_counted_as_refused() {
        let refused = |code| {
            let text = "circuit open: connection refused".to_owned();
            words(&Fate::Refused(Refused { slot: 1, code, enhanced: None, text, scope: ReplyScope::Relay, words: 0 }))
        };
        assert_eq!((refused(0), refused(454)), (("released", "no_relay"), ("refused", "relay")));
    }

    #[test]
    fn a_fire_is_told_by_outcome_and_reason() {
        let at = |minute: i64| Nominal::Instant(Time(minute * 60_000));
        let opening =
            Opening { nominal: at(9), due: Time(540_000), cause: OpeningCause::CatchUp, finish_by: Time(900_000) };
        let fire = Fire {
            schedule: ScheduleId(1),
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
        let told = |outcome, reason, count| Instants { outcome, reason, count };
        assert_eq!(instants(&fire), [told("fired", "catch_up", 1), told("coalesced", "catch_up", 8)]);
    }
}

//! Adds notes about a schedule's runs to its next instants. The due instant may wait for a run (`overlap`), and the
//! next ones may be too soon after an email (`min_gap`). The notes are shown with every schedule and with the preview
//! of a change.

use reveille_ledger::Ledger;
use reveille_ledger::ids::{RunId, ScheduleId, Time};
use reveille_ledger::restore::Restored;
use reveille_proto::admin::v1::{self, InstantRemarkKind as Kind};

use crate::server::admin::validate::{instant, milliseconds};
use crate::server::admin::views::{ReadTime, timestamp};

/// Facts about the runs of a schedule, and a restore. The default, for a new schedule, has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScheduleNotes {
    /// The run that the next instant waits for.
    waits_for: Option<RunId>,
    /// The last run that sent an email or may have, and when it was due.
    mailed: Option<(RunId, Time)>,
    /// When the last archived run was due. Its recipients are not in the state.
    archived: Option<Time>,
    of_campaign: bool,
    /// The last restore of the cluster.
    restored: Option<Restored>,
}

impl ScheduleNotes {
    /// Reads the facts from the ledger.
    pub fn of(ledger: &Ledger, id: ScheduleId) -> ScheduleNotes {
        ScheduleNotes {
            waits_for: ledger.waits_for(id),
            mailed: ledger.last_mailed(id),
            archived: ledger.last_archived(id),
            of_campaign: ledger.check_not_of_campaign(id).is_err(),
            restored: ledger.head().restored,
        }
    }

    /// Returns the time of a read at `now`.
    pub fn read_time(&self, now: Time) -> ReadTime {
        ReadTime::new(now, self.restored)
    }

    /// Adds the notes to the message of the schedule.
    pub fn apply_to(self, mut shown: v1::Schedule) -> v1::Schedule {
        shown.of_campaign = self.of_campaign;
        shown.waits_for = self.waits_for.map(|run| run.to_string()).unwrap_or_default();
        let gap_ms = shown.policies.and_then(|policies| milliseconds(policies.min_gap?)).unwrap_or_default();
        if gap_ms > 0 {
            self.remark(&mut shown.next_instants, gap_ms);
        }
        if self.restored.is_some_and(|restored| restored.accepted_at.is_none()) {
            let held = v1::InstantRemark { kind: Kind::RestoreNotAccepted.into(), ..Default::default() };
            shown.next_instants.iter_mut().for_each(|next| next.remarks.push(held.clone()));
        }
        shown
    }

    /// Adds remarks to instants that are within `min_gap` of the last email or of an earlier instant (P17).
    fn remark(self, next: &mut [v1::Instant], gap_ms: i64) {
        let of_run = |run: RunId| v1::InstantRemark { run: run.to_string(), ..Default::default() };
        // The email before, as a remark names it.
        let mut last = self.mailed.map(|(run, due)| (of_run(run), due));
        for next in next {
            let Some(due) = next.time.and_then(instant) else { continue };
            match &last {
                Some((mail, at)) if due.since_ms(*at).saturating_abs() < gap_ms => {
                    next.remarks.push(v1::InstantRemark { kind: Kind::InsideMinGap.into(), ..mail.clone() });
                }
                _ => last = Some((v1::InstantRemark { earlier: next.local.clone(), ..Default::default() }, due)),
            }
            // This happens if an edit has made `min_gap` longer after the run was archived.
            if let Some(archived) = self.archived.filter(|archived| due.since_ms(*archived) < gap_ms) {
                next.remarks.push(v1::InstantRemark {
                    kind: Kind::RunsArchived.into(),
                    archived_time: Some(timestamp(archived)),
                    whole_time: Some(timestamp(archived.plus_ms(gap_ms))),
                    ..Default::default()
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::wording::instant_remarks;

    #[test]
    fn gap_that_reaches_what_was_pruned_says_from_when_it_is_whole() {
        let hour = 3_600_000;
        let next = |hours: i64| v1::Instant {
            time: Some(prost_types::Timestamp { seconds: hours * 3_600, nanos: 0 }),
            local: format!("at {hours}"),
            ..v1::Instant::default()
        };
        let min_gap = Some(prost_types::Duration { seconds: 20 * 3_600, nanos: 0 });
        let shown = v1::Schedule {
            policies: Some(v1::Policies { min_gap, ..v1::Policies::default() }),
            next_instants: vec![next(25), next(30)],
            ..v1::Schedule::default()
        };
        let notes = ScheduleNotes { archived: Some(Time(10 * hour)), ..ScheduleNotes::default() };
        let remarks: Vec<String> = notes.apply_to(shown).next_instants.iter().map(instant_remarks).collect();
        let whole = "runs up to 1970-01-01T10:00:00Z are in the archive: the min gap holds from 1970-01-02T06:00:00Z";
        assert_eq!(remarks, [whole, "inside the min gap of at 25: recipients of that email get none"]);
    }
}

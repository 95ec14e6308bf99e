//! What the runs of a schedule mean for its next instants: the one that is due may wait for a run (`overlap`), and
//! the next ones may come too soon after a mail (`min_gap`). It is told wherever a schedule is shown, and of one
//! that would be changed before it is.

use reveille_ledger::Ledger;
use reveille_ledger::ids::{RunId, ScheduleId, Time};
use reveille_proto::admin::v1;

use super::validate::milliseconds;

/// Of a new schedule: nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// The run that the next instant waits for, where it does.
    waits_for: Option<RunId>,
    /// The last one of which somebody got a mail, and when it was due.
    mailed: Option<(RunId, Time)>,
}

impl Beside {
    /// As the ledger has it.
    pub fn of(ledger: &Ledger, id: ScheduleId) -> Beside {
        Beside { waits_for: ledger.waits_for(id), mailed: ledger.last_mailed(id) }
    }

    /// The schedule, told with it.
    pub fn told(self, mut shown: v1::Schedule) -> v1::Schedule {
        shown.waits_for = self.waits_for.map(|run| run.to_string()).unwrap_or_default();
        let gap_ms = shown.policies.and_then(|policies| milliseconds(policies.min_gap?)).unwrap_or_default();
        if gap_ms > 0 {
            self.remark(&mut shown.next, gap_ms);
        }
        shown
    }

    /// P17: which instants come too soon after the last mail, or after an instant before, for whoever gets that.
    fn remark(self, next: &mut [v1::Instant], gap_ms: i64) {
        let mut last = self.mailed.map(|(run, due)| (run.to_string(), due));
        for next in next {
            let Some(instant) = next.instant else { continue };
            let due = Time(instant.seconds * 1_000 + i64::from(instant.nanos) / 1_000_000);
            match &last {
                Some((mail, at)) if due.since_ms(*at).saturating_abs() < gap_ms => {
                    let apart = format!("inside the min gap of {mail}: who got that mail gets none");
                    let remarks = [std::mem::take(&mut next.remark), apart];
                    next.remark = remarks.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
                }
                _ => last = Some((next.local.clone(), due)),
            }
        }
    }
}

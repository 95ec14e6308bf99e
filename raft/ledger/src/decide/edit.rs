//! What a schedule's other timing does to its plan (P8): computed where an edit is proposed, checked by
//! `apply`.

use super::calendar::{self, Pattern, When};
use super::catch_up::{Jitter, Zone, first};
use crate::command::{Explained, Fire, Next, Reason, Retiming};
use crate::ids::{Nominal, Time};
use crate::policy::Policies;
use crate::state::{Activity, Schedule};

/// Missed instants that one edit counts; as many as a schedule by the minute misses in six weeks.
const MISSED_MAX: u64 = 65_536;

/// A pattern, and the rules by which it is read.
#[derive(Clone, Copy, Debug)]
pub struct Calendar<'a> {
    /// When it fires.
    pub pattern: &'a Pattern,
    /// The zone's rules.
    pub zone: &'a Zone,
}

/// Another timing, as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// When it fires.
    pub when: When,
    /// IANA name of the zone.
    pub zone: String,
    /// No instant before this fires.
    pub start: Option<Time>,
    /// No instant after this fires.
    pub end: Option<Time>,
    /// Occurrences that open at most, those before the edit among them.
    pub max_runs: Option<u32>,
    /// The policies: of the calendar, and of the window.
    pub policies: Policies,
}

/// Why an edit has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotYet {
    /// So many instants are due that one entry does not settle them; the timer is at it.
    #[error("the schedule is catching up with missed instants; try again in a moment")]
    CatchingUp,
    /// More instants were missed than an edit explains.
    #[error("more than 65,536 instants were missed since it stopped; resume it first")]
    TooMuchMissed,
}

/// The change of a schedule's timing at `through`. `due` is the fire that moves its plan there, of a schedule
/// that fires and is due, and `waits` for no run (`overlap`); what waits is explained. `former` is none where its
/// zone is not known any more. `has_opened` knows the names of its runs.
///
/// # Errors
/// When what is due or was missed does not fit into the entry.
pub fn retime(
    schedule: &Schedule,
    due: Option<Fire>,
    former: Option<Calendar<'_>>,
    (wanted, calendar): (Wanted, Calendar<'_>),
    (through, waits): (Time, bool),
    has_opened: impl Fn(&Nominal) -> bool,
) -> Result<Retiming, NotYet> {
    let due = due.filter(|_| !waits);
    if due.as_ref().and_then(|fire| fire.next.as_ref()).is_some_and(|next| next.due <= through) {
        return Err(NotYet::CatchingUp);
    }
    let explained = match schedule.activity {
        Activity::Active if !waits => Vec::new(),
        _ => missed(schedule, former, through, has_opened)?,
    };
    let fired_through = schedule.plan.fired_through.max(through);
    let bounds = (wanted.start, wanted.end);
    let jitter = Jitter { window_ms: wanted.policies.jitter_ms, ..Jitter::of(schedule) };
    let next = first(calendar.pattern, calendar.zone, &wanted.policies.dst, fired_through, bounds, jitter);
    let opened = schedule.plan.opened as usize + due.as_ref().map_or(0, |fire| fire.opened.len());
    Ok(Retiming {
        when: wanted.when,
        zone: wanted.zone,
        start: wanted.start,
        end: wanted.end,
        max_runs: wanted.max_runs,
        through,
        due,
        explained,
        next: next.filter(|_| wanted.max_runs.is_none_or(|most| most as usize > opened)),
        tzdb: calendar.zone.tzdb.clone(),
    })
}

/// What a schedule that does not fire has missed up to `through`, or what waits there: one range, which begins
/// after names that have opened already. There are such after an edit of its zone: nine o'clock is told there
/// too, later. They stay on record as runs.
fn missed(
    schedule: &Schedule,
    former: Option<Calendar<'_>>,
    through: Time,
    has_opened: impl Fn(&Nominal) -> bool,
) -> Result<Vec<Explained>, NotYet> {
    let Some(mut next) = schedule.plan.next.clone().filter(|next| next.due <= through) else { return Ok(Vec::new()) };
    let end = schedule.end.map_or(through, |end| through.min(end)).max(next.due);
    let dst = &schedule.policies.dst;
    let after = |next: &Next| {
        let Calendar { pattern, zone } = former?;
        first(pattern, zone, dst, next.due, (schedule.start, Some(end)), Jitter::NONE)
    };
    let mut ranges = Vec::new();
    while has_opened(&next.nominal) {
        match ranges.last_mut() {
            None => ranges.push(range(&next, Reason::OpenedBefore)),
            Some(Explained { last, count, .. }) => (*last, *count) = (next.nominal.clone(), *count + 1),
        }
        match after(&next) {
            Some(following) => next = following,
            None => return Ok(ranges),
        }
    }
    let mut range = range(&next, Reason::Edited);
    if let Some(Calendar { pattern, zone }) = former {
        let from = next.due.timestamp();
        let later = calendar::count(pattern, &zone.rules, dst, from, end.timestamp(), MISSED_MAX);
        if !later.complete {
            return Err(NotYet::TooMuchMissed);
        }
        range.count += u32::try_from(later.firings).unwrap_or(u32::MAX - 1);
        if let Some(last) = later.last {
            range.last = last.nominal.into();
        }
    }
    ranges.push(range);
    Ok(ranges)
}

fn range(next: &Next, reason: Reason) -> Explained {
    Explained { first: next.nominal.clone(), last: next.nominal.clone(), count: 1, reason }
}

//! Remarks about the instants of a schedule.

use jiff::civil::DateTime;
use reveille_proto::admin::v1::{ClockChange, Instant, InstantRemark, InstantRemarkKind as Kind};

use super::at;

/// Returns the remarks of an instant as one text. Empty if there are none.
pub fn instant_remarks(instant: &Instant) -> String {
    instant.remarks.iter().map(in_words).collect::<Vec<_>>().join("; ")
}

fn in_words(remark: &InstantRemark) -> String {
    let InstantRemark { change, wanted, others, run, earlier, .. } = remark;
    let change = change.as_ref().map(change_in_words).unwrap_or_default();
    match remark.kind() {
        Kind::MovedAfterGap => {
            let together = if *others == 0 { String::new() } else { format!(", together with {}", times(*others)) };
            format!("{} does not exist that day: {change}; moved to the end of the gap{together}", clock(wanted))
        }
        Kind::ShiftedOverGap => format!("{} does not exist that day: {change}; moved by the same", clock(wanted)),
        Kind::JoinedFromGap => format!("stands also for {} that do not exist that day: {change}", times(*others)),
        Kind::FirstOfTwo => format!("first of two: {change}"),
        Kind::SecondOfTwo => format!("second of two: {change}"),
        Kind::InsideMinGap => {
            let mail = if run.is_empty() { earlier } else { run };
            format!("inside the min gap of {mail}: recipients of that email get none")
        }
        Kind::RunsArchived => {
            let (archived, whole) = (at(remark.archived_time.as_ref()), at(remark.whole_time.as_ref()));
            format!("runs up to {archived} are in the archive: the min gap holds from {whole}")
        }
        Kind::UnknownZone => "the zone is not in this node's database".to_owned(),
        Kind::RestoreNotAccepted => "not before `reveille restore accept`".to_owned(),
        Kind::Unspecified => "this version does not know the remark".to_owned(),
    }
}

fn times(count: u32) -> String {
    if count == 1 { "1 other time".to_owned() } else { format!("{count} other times") }
}

/// Says `clocks go forward from 02:00 to 03:00`, with dates if they differ.
fn change_in_words(change: &ClockChange) -> String {
    let ClockChange { from_local, to_local, .. } = change;
    let (Ok(from), Ok(to)) = (from_local.parse::<DateTime>(), to_local.parse::<DateTime>()) else {
        return format!("clocks go from {from_local} to {to_local}");
    };
    let direction = if from < to { "forward" } else { "back" };
    let show = |local: DateTime, text: &str| {
        if from.date() == to.date() { clock(text) } else { format!("{} {}", local.date(), clock(text)) }
    };
    format!("clocks go {direction} from {} to {}", show(from, from_local), show(to, to_local))
}

/// Returns the time of day of `2026-03-08T02:00:00` like a wall clock, with seconds only if they are not zero.
fn clock(local: &str) -> String {
    let time = local.split('T').nth(1).unwrap_or(local);
    time.strip_suffix(":00").filter(|time| time.len() == 5).unwrap_or(time).to_owned()
}

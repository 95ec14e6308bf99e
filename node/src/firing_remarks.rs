//! Builds the API's remarks about changes of the clocks: for answers of the server, and for `schedule preview`, which
//! asks none.

use prost_types::Timestamp;
use reveille_ledger::calendar::{Edge, Firing, Remark};
use reveille_proto::admin::v1::{ClockChange, InstantRemark, InstantRemarkKind as Kind};

/// Returns what a change of the clocks does to a firing, as a message of the API.
pub fn firing_remarks(firing: &Firing) -> Vec<InstantRemark> {
    firing.remark.iter().map(remark).collect()
}

fn remark(remark: &Remark) -> InstantRemark {
    let (kind, edge, wanted, others) = match remark {
        Remark::MovedAfterGap { wanted, edge, others } => (Kind::MovedAfterGap, edge, Some(wanted), *others),
        Remark::ShiftedOverGap { wanted, edge } => (Kind::ShiftedOverGap, edge, Some(wanted), 0),
        Remark::JoinedFromGap { edge, others } => (Kind::JoinedFromGap, edge, None, *others),
        Remark::FirstOfTwo { edge } => (Kind::FirstOfTwo, edge, None, 0),
        Remark::SecondOfTwo { edge } => (Kind::SecondOfTwo, edge, None, 0),
    };
    InstantRemark {
        kind: kind.into(),
        change: Some(change(edge)),
        wanted: wanted.map(ToString::to_string).unwrap_or_default(),
        others: u32::try_from(others).unwrap_or(u32::MAX),
        ..InstantRemark::default()
    }
}

fn change(edge: &Edge) -> ClockChange {
    let time = Timestamp { seconds: edge.at.as_second(), nanos: edge.at.subsec_nanosecond() };
    ClockChange { time: Some(time), from_local: edge.from.to_string(), to_local: edge.to.to_string() }
}

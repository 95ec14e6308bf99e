//! Text of `schedule backfill`.

use reveille_proto::admin::v1::BackfillScheduleResponse;

use super::{format, some, text};

/// Returns in words which occurrences a backfill opened, or would open.
pub fn sentence(answer: &BackfillScheduleResponse) -> String {
    let mut said = format::counted(answer.opened.into(), "occurrence");
    if let (Some(first), Some(last)) = (&answer.first, &answer.last) {
        said = format!("{said}, {} to {}", first.local, last.local);
    }
    let said = match (some(&answer.first_run), some(&answer.last_run)) {
        (Some(first), Some(last)) => format!("{said}, opened as {first} to {last}"),
        _ => format!("{said}; {} had opened before", answer.opened_before),
    };
    let said = match answer.inside_gap {
        0 => said,
        inside => {
            let inside = format::count(inside.into());
            format!("{said}; {inside} inside the min gap, where no recipient would get an email")
        }
    };
    match text(answer.rest_time.as_ref()) {
        Some(rest) => format!("{said}; what comes from {rest} on is not among them"),
        None => said,
    }
}

//! Output of `clock …`.

use reveille_proto::admin::v1::{AdvanceClockResponse, GetClockResponse};

use super::{Cell, View, card, duration_ms, format, text};

/// Returns the progress of an advance in one line.
pub fn progress_text(answer: &AdvanceClockResponse) -> String {
    let left = [
        (answer.due, "due schedule"),
        (answer.pending, "pending recipient"),
        (answer.claimed, "claimed recipient"),
        (answer.late, "overdue run"),
    ];
    let left = left.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format::counted(*count, what));
    let waits = match left.collect::<Vec<_>>().join(", ") {
        nothing if nothing.is_empty() => nothing,
        left => format!(", waits for {left}"),
    };
    let (steps, fired) = (format::counted(answer.steps, "step"), format::count(answer.fired));
    format!("{}: {steps}, {fired} fired{waits}", instant(answer.current_time.as_ref()))
}

/// Returns the result of an advance that took this time.
pub fn advanced(answer: &AdvanceClockResponse, seconds: f64) -> String {
    let (from, to) = (instant(answer.former_time.as_ref()), instant(answer.current_time.as_ref()));
    let (steps, fired) = (format::counted(answer.steps, "step"), format::count(answer.fired));
    format!("{from} to {to}: {steps}, {fired} fired, in {seconds:.1} s")
}

/// Returns an instant, or a question mark.
pub fn instant(instant: Option<&prost_types::Timestamp>) -> String {
    text(instant).unwrap_or_else(|| "?".to_owned())
}

impl View for GetClockResponse {
    fn name(&self) -> String {
        text(self.current_time.as_ref()).unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("now", Cell::at(self.current_time.as_ref())),
            ("ahead", format::duration(self.offset.as_ref().map_or(0, duration_ms)).into()),
            ("next due", Cell::at(self.next_due_time.as_ref())),
        ];
        card(pairs, paint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_shows_its_position_and_what_it_waits_for() {
        let answer = AdvanceClockResponse {
            current_time: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            steps: 1,
            fired: 1_200,
            claimed: 2,
            ..AdvanceClockResponse::default()
        };
        assert_eq!(progress_text(&answer), "1970-01-01T00:00:00Z: 1 step, 1,200 fired, waits for 2 claimed recipients");
        let quiet = AdvanceClockResponse { claimed: 0, ..answer };
        assert_eq!(progress_text(&quiet), "1970-01-01T00:00:00Z: 1 step, 1,200 fired");
    }
}

//! Output of `clock …`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::View;
use super::fields::view;
use super::layout::{Cell, card};
use crate::cli::instant::{duration_ms, text};
use crate::format;

view! {
    /// The state of the test clock.
    pub struct ClockView of v1::GetClockResponse as clock {
        now: Option<String>,
        offset_ms: i64 = clock.offset.as_ref().map_or(0, duration_ms),
        next_due: Option<String>,
    }
}

/// Result or progress of an advance of the test clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdvancedView {
    /// Ledger time before the advance.
    from: Option<String>,
    /// Ledger time after the advance, or now while it is running.
    to: Option<String>,
    /// Number of steps in which the clock was moved.
    steps: u64,
    /// Runs that schedules opened during the advance.
    fired: u64,
    /// Duration of the advance in real time.
    seconds: f64,
    /// Work that the clock waited for at the last progress report; empty if none.
    #[serde(skip)]
    waits_for: String,
}

impl From<&v1::AdvanceClockResponse> for AdvancedView {
    fn from(word: &v1::AdvanceClockResponse) -> AdvancedView {
        let left = [
            (word.due, "due schedule"),
            (word.pending, "pending recipient"),
            (word.claimed, "claimed recipient"),
            (word.late, "overdue run"),
        ];
        let left = left.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format::counted(*count, what));
        AdvancedView {
            from: text(word.from.as_ref()),
            to: text(word.now.as_ref()),
            steps: word.steps,
            fired: word.fired,
            seconds: 0.0,
            waits_for: left.collect::<Vec<_>>().join(", "),
        }
    }
}

impl AdvancedView {
    /// Adds the duration in real time.
    pub fn after(self, seconds: f64) -> AdvancedView {
        AdvancedView { seconds, ..self }
    }

    /// Returns the progress of an advance in one line.
    pub fn standing(&self) -> String {
        let now = self.to.as_deref().unwrap_or("?");
        let (steps, fired) = (format::counted(self.steps, "step"), format::count(self.fired));
        let waits = if self.waits_for.is_empty() { String::new() } else { format!(", waits for {}", self.waits_for) };
        format!("{now}: {steps}, {fired} fired{waits}")
    }
}

impl View for ClockView {
    fn name(&self) -> String {
        self.now.clone().unwrap_or_default()
    }

    fn text(&self, paint: bool) -> String {
        let pairs = vec![
            ("now", Cell::or_dash(self.now.as_deref())),
            ("ahead", format::duration(self.offset_ms).into()),
            ("next due", Cell::or_dash(self.next_due.as_deref())),
        ];
        card(pairs, paint)
    }
}

impl View for AdvancedView {
    fn name(&self) -> String {
        self.to.clone().unwrap_or_default()
    }

    fn text(&self, _paint: bool) -> String {
        format!(
            "{} to {}: {}, {} fired, in {:.1} s",
            self.from.as_deref().unwrap_or("?"),
            self.to.as_deref().unwrap_or("?"),
            format::counted(self.steps, "step"),
            format::count(self.fired),
            self.seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_shows_its_position_and_what_it_waits_for() {
        let word = v1::AdvanceClockResponse {
            now: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            steps: 1,
            fired: 1_200,
            claimed: 2,
            ..v1::AdvanceClockResponse::default()
        };
        let standing = AdvancedView::from(&word).standing();
        assert_eq!(standing, "1970-01-01T00:00:00Z: 1 step, 1,200 fired, waits for 2 claimed recipients");
        let quiet = v1::AdvanceClockResponse { claimed: 0, ..word };
        assert_eq!(AdvancedView::from(&quiet).standing(), "1970-01-01T00:00:00Z: 1 step, 1,200 fired");
    }
}

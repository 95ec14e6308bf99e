//! Reads and writes days in UTC, such as `2026-11-22`.

use jiff::ToSpan;
use jiff::civil::{Date, date};
use reveille_ledger::pool::Day;

const EPOCH: Date = date(1970, 1, 1);

/// Parses a day. Returns `None` if the text is not a valid day.
pub fn read(text: &str) -> Option<Day> {
    let day: Date = text.parse().ok().filter(|_| text.len() == 10)?;
    Some(Day(EPOCH.until(day).ok()?.get_days().into()))
}

/// Formats a day.
pub fn text(day: Day) -> String {
    let days = i32::try_from(day.0).ok().and_then(|days| EPOCH.checked_add(days.days()).ok());
    days.map(|date| date.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_day_reads_back() {
        for (number, written) in [(0, "1970-01-01"), (20_779, "2026-11-22"), (-1, "1969-12-31")] {
            assert_eq!((text(Day(number)).as_str(), read(written)), (written, Some(Day(number))));
        }
        for wrong in ["", "2026-11-31", "22.11.2026", "2026-11-22T10:00", "tomorrow"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

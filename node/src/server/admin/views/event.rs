//! Builds the message of an event.

use reveille_ledger::RecipientState;
use reveille_ledger::bitmap::CHUNK;
use reveille_ledger::events::{EventKind, EventSubject};
use reveille_proto::admin::v1::{self, EventType};

use super::run::{counts, occurrence, pause};
use super::schedule::block;
use crate::server::admin::enums::OnWire;

/// Returns the type of an event.
pub fn event_type(kind: &EventKind) -> EventType {
    match kind {
        EventKind::RunOpened(_) => EventType::RunOpened,
        EventKind::RunFinished(_) => EventType::RunFinished,
        EventKind::RunPaused(_) => EventType::RunPaused,
        EventKind::RunResumed => EventType::RunResumed,
        EventKind::RunCancelled(_) => EventType::RunCancelled,
        EventKind::RunExpired => EventType::RunExpired,
        EventKind::Recipients { state, .. } => match state {
            RecipientState::Sent => EventType::RecipientsSent,
            RecipientState::Dead => EventType::RecipientsDead,
            RecipientState::InDoubt => EventType::RecipientsInDoubt,
            RecipientState::Suppressed => EventType::RecipientsSuppressed,
            RecipientState::Assumed => EventType::RecipientsAssumed,
            RecipientState::Expired => EventType::RecipientsExpired,
            RecipientState::Cancelled => EventType::RecipientsCancelled,
            // A claim is no event.
            RecipientState::Pending | RecipientState::Claimed => EventType::RecipientsPending,
        },
        EventKind::OptedOut(_) => EventType::OptedOut,
        EventKind::ScheduleBlocked(_) => EventType::ScheduleBlocked,
    }
}

/// Returns the event without its place, its time and its recipients.
pub fn event(tenant: &str, subject: &EventSubject, kind: &EventKind) -> v1::Event {
    let event = v1::Event { r#type: event_type(kind).into(), tenant: tenant.to_owned(), ..v1::Event::default() };
    let event = match subject {
        EventSubject::Run { run, schedule, occurrence: named, cause } => v1::Event {
            schedule: schedule.to_string(),
            run: run.to_string(),
            occurrence: occurrence(*cause, named),
            cause: cause.wire().into(),
            ..event
        },
        EventSubject::Schedule(_, name) => v1::Event { schedule: name.to_string(), ..event },
        EventSubject::OptOuts => event,
    };
    match kind {
        EventKind::RunOpened(count) | EventKind::OptedOut(count) => v1::Event { count: *count, ..event },
        EventKind::RunFinished(by_state) => v1::Event { counts: Some(counts(by_state)), ..event },
        EventKind::RunPaused(reason) => v1::Event { pause: Some(pause(reason)), ..event },
        EventKind::RunCancelled(by) => {
            v1::Event { cancelled_by: by.map(|other| other.to_string()).unwrap_or_default(), ..event }
        }
        EventKind::ScheduleBlocked(cause) => v1::Event { block: Some(block(cause)), ..event },
        EventKind::RunResumed | EventKind::RunExpired | EventKind::Recipients { .. } => event,
    }
}

/// Returns the numbers of a chunk's recipients above `after` in words, and how many they are.
pub fn numbers(chunk: u32, runs: &[(u16, u16)], after: Option<u32>) -> (String, u32) {
    let (mut words, mut count) = (String::new(), 0);
    let base = chunk.saturating_mul(CHUNK);
    for (first, last) in runs {
        let (first, last) = (base + u32::from(*first), base + u32::from(*last));
        let first = after.map_or(first, |after| first.max(after.saturating_add(1)));
        if first > last {
            continue;
        }
        if !words.is_empty() {
            words.push(',');
        }
        words.push_str(&first.to_string());
        if last > first {
            words.push('-');
            words.push_str(&last.to_string());
        }
        count += last - first + 1;
    }
    (words, count)
}

/// Iterates over the numbers of a chunk's recipients above `after`.
pub fn each_number(chunk: u32, runs: &[(u16, u16)], after: Option<u32>) -> impl Iterator<Item = u32> {
    let base = chunk.saturating_mul(CHUNK);
    let all = runs.iter().flat_map(move |(first, last)| base + u32::from(*first)..=base + u32::from(*last));
    all.filter(move |number| after.is_none_or(|after| *number > after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ranges_within_the_whole_run() {
        let runs = [(0, 511), (600, 600), (700, 701)];
        assert_eq!(numbers(0, &runs, None), ("0-511,600,700-701".to_owned(), 515));
        assert_eq!(numbers(0, &runs, Some(510)), ("511,600,700-701".to_owned(), 4));
        assert_eq!(numbers(0, &runs, Some(700)), ("701".to_owned(), 1));
        assert_eq!(numbers(0, &runs, Some(701)), (String::new(), 0));
        assert_eq!(numbers(1, &[(0, 1)], None), ("65536-65537".to_owned(), 2));
        assert_eq!(numbers(1, &[(0, 1)], Some(9)), ("65536-65537".to_owned(), 2));
    }
}

//! Tests of the pages of a history whose runs are archived while it is read. The archive is a list.

use reveille_ledger::ids::Time;

use super::*;

/// A run of the model.
#[derive(Clone, Debug)]
struct Opened {
    id: RunId,
    occurrence: OccurrenceName,
    archived_at: u64,
}

/// An instant, named by its due time, whose run opened at a log index and is archived at another one.
fn instant(due: i64, index: u64, archived_at: u64) -> Opened {
    Opened { id: RunId { index, place: 0 }, occurrence: OccurrenceName::Instant(Time(due)), archived_at }
}

fn trigger(index: u64, archived_at: u64) -> Opened {
    Opened { id: RunId { index, place: 0 }, occurrence: OccurrenceName::Trigger(format!("id-{index}")), archived_at }
}

/// Returns the runs of one page, as the log indices of their opening, at the log index `now`.
fn page(runs: &[Opened], now: u64, size: usize, cursor: &HistoryCursor) -> (Vec<u64>, Option<HistoryCursor>) {
    let mut chain: Vec<&Opened> = runs.iter().filter(|run| run.archived_at <= now).collect();
    chain.sort_by_key(|run| std::cmp::Reverse((run.archived_at, run.id)));
    let mut page = HistoryPage::new(size, cursor.clone(), chain.first().map(|run| run.id));
    for run in runs.iter().filter(|run| !cursor.has_returned(run.id, &run.occurrence)) {
        let entry = Outcome::Entry(HistoryEntry { index: run.id.index, ..HistoryEntry::default() });
        match (&run.occurrence, run.archived_at <= now) {
            (OccurrenceName::Trigger(_), true) => {}
            (OccurrenceName::Trigger(request), false) => {
                drop(page.triggers.insert((run.id.index, request.clone()), entry))
            }
            (occurrence, true) => drop(page.instants.insert(occurrence.clone(), Outcome::Archived)),
            (occurrence, false) => drop(page.instants.insert(occurrence.clone(), entry)),
        }
    }
    while page.instants.len() > size + 1 {
        page.more = page.instants.pop_first().is_some();
    }
    while page.triggers.len() > size + 1 {
        page.more = page.triggers.pop_first().is_some();
    }
    let place_of = |id: Option<RunId>| {
        let place = id.and_then(|id| chain.iter().position(|run| run.id == id));
        place.unwrap_or(chain.len())
    };
    let (mut next, mut skip) = (0, cursor.chain.map(|(from, to)| (place_of(Some(from)), place_of(to))));
    let mut entries = Vec::new();
    loop {
        if let Some((_, to)) = skip.take_if(|(from, _)| *from == next) {
            next = to;
        }
        let following = chain.get(next).map(|run| run.id);
        if entries.len() >= size && !(page.instants.is_empty() && page.triggers.is_empty()) {
            return (entries, Some(page.end(following)));
        }
        match page.step() {
            Step::ReadArchive => {
                page.add(chain.get(next).map(|run| ArchivedRun {
                    id: run.id,
                    occurrence: run.occurrence.clone(),
                    due: Time(0),
                    archived_index: run.archived_at,
                }));
                next += 1;
            }
            Step::End => {
                let more = page.more;
                return (entries, more.then(|| page.end(following)));
            }
            step => match page.take(step) {
                Some((_, Outcome::Entry(entry))) => entries.push(entry.index),
                Some((_, Outcome::Run(run))) => entries.push(run.index),
                other => panic!("an entry is taken: {other:?}"),
            },
        }
    }
}

/// Returns the runs of all pages. Between two pages the log grows by `growth`, and further runs are archived.
fn pages(runs: &[Opened], size: usize, growth: u64) -> Vec<u64> {
    let (mut listed, mut cursor, mut now) = (Vec::new(), HistoryCursor::default(), 1_000);
    loop {
        let (entries, end) = page(runs, now, size, &cursor);
        listed.extend(entries);
        let Some(end) = end else { return listed };
        assert_ne!(end, cursor, "each page goes on");
        (cursor, now) = (end, now + growth);
    }
}

/// Returns a hundred instants and triggers. Every seventh run finishes much later than the others.
fn runs() -> Vec<Opened> {
    let archived_at = |number: u64| number * 10 + if number.is_multiple_of(7) { 700 } else { 150 };
    let run = |number: u64| match number % 3 {
        0 => trigger(number * 10, archived_at(number)),
        _ => instant(number as i64 * 100, number * 10, archived_at(number)),
    };
    (1..=100).map(run).collect()
}

#[test]
fn pages_list_each_run_once_and_latest_first() {
    let expected: Vec<u64> = (1..=100).rev().map(|number| number * 10).collect();
    for size in [1, 2, 7, 50, 100, 200] {
        for growth in [0, 1, 30, 400] {
            assert_eq!(pages(&runs(), size, growth), expected, "{size} a page, {growth} entries between two pages");
        }
    }
}

#[test]
fn backfilled_instant_is_at_its_place_by_name() {
    let mut runs = vec![instant(10, 500, 600), instant(40, 550, 900)];
    runs.extend([instant(20, 20, 80), instant(30, 30, 90), trigger(25, 85)]);
    for size in 1..6 {
        let mut listed = pages(&runs, size, 0);
        let instants: Vec<u64> = listed.iter().copied().filter(|index| *index != 25).collect();
        assert_eq!(instants, [550, 30, 20, 500], "{size} a page");
        listed.sort_unstable();
        assert_eq!(listed, [20, 25, 30, 500, 550], "{size} a page");
    }
}

#[test]
fn instant_without_run_in_archive_is_left_out() {
    let mut page = HistoryPage::new(10, HistoryCursor::default(), None);
    page.instants.insert(OccurrenceName::Instant(Time(1)), Outcome::Archived);
    assert_eq!(page.step(), Step::ReadArchive);
    page.add(None);
    assert_eq!(page.step(), Step::End);
}

#[test]
fn names_of_a_range_begin_below_the_cursor() {
    let at = |ms| OccurrenceName::Instant(Time(ms));
    let mut range = InstantRange::every(10, 3);
    range.extend(70, 2);
    let names = |before: Option<i64>, most| names_before(&at(100), &range, before.map(at).as_ref(), most);
    assert_eq!(names(None, 10), [100, 110, 120, 130, 200, 270].map(at));
    assert_eq!(names(None, 2), [200, 270].map(at));
    assert_eq!(names(Some(200), 2), [120, 130].map(at));
    assert_eq!(names(Some(125), 10), [100, 110, 120].map(at));
    assert!(names(Some(100), 10).is_empty());
    let civil = OccurrenceName::Civil { civil_ms: 200, fold: 1 };
    let first = OccurrenceName::Civil { civil_ms: 100, fold: 0 };
    assert_eq!(names_before(&first, &range, Some(&civil), 1), [OccurrenceName::Civil { civil_ms: 200, fold: 0 }]);
}

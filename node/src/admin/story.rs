//! One recipient's story as events, in the order of log indices.
//!
//! Told from the rows that the ledger keeps, so it is there after the log was purged. A row keeps the index
//! of its claim and of the last entry that changed it: where a recipient left its row earlier than others
//! of it, the second is the later of both.

use reveille_ledger::command::Cause;
use reveille_ledger::explain::{Chapter, Ended, Story};
use reveille_ledger::ids::RunId;
use reveille_ledger::{Ledger, Page, Run, RunState, Standing};
use reveille_proto::admin::v1::Event;

use super::views::{cause, node_name, timestamp};

/// Where the recipient stands, and how it came there; none when there is no such recipient.
pub fn tell(ledger: &Ledger, id: RunId, number: u32) -> Option<(Standing, Vec<Event>)> {
    let (_, page, place) = ledger.page_of(id)?;
    let (run, story) = (page.runs.get(place)?, ledger.story(id, number)?);
    let mut events = vec![opened(id, page, run)];
    for chapter in &story.rows {
        events.push(claimed(ledger, chapter));
        events.extend(ended(ledger, chapter));
    }
    let last = events.iter().map(|event| event.index).max().unwrap_or(id.index);
    events.extend(dead(&story, run, last));
    events.extend(opted_out(&story));
    events.extend(closed(&story, run, last));
    events.extend(waits(&story, run, last));
    // Stable: what one entry did stays in the order in which it is told here.
    events.sort_by_key(|event| event.index);
    Some((story.standing, events))
}

fn event(index: u64, what: &str, detail: impl Into<String>) -> Event {
    Event { index, what: what.to_owned(), detail: detail.into(), ..Event::default() }
}

fn opened(id: RunId, page: &Page, run: &Run) -> Event {
    let why = match run.cause {
        Cause::Due => "due",
        Cause::CatchUp => "missed and caught up; it was due",
        Cause::Trigger => "triggered",
        Cause::Backfill => "backfilled; it was due",
    };
    let detail = format!("{} {}, {why} {}", run.name, run.nominal, run.due);
    Event { instant: Some(timestamp(page.opened_at)), ..event(id.index, "opened", detail) }
}

fn in_hand(ledger: &Ledger, chapter: &Chapter, event: Event) -> Event {
    Event { node: node_name(ledger, chapter.holder.node), fence: chapter.fence.to_string(), ..event }
}

fn claimed(ledger: &Ledger, chapter: &Chapter) -> Event {
    let detail = format!("life {}", chapter.holder.incarnation.0);
    let event = Event { instant: Some(timestamp(chapter.claimed_at)), ..event(chapter.fence.index, "claimed", detail) };
    in_hand(ledger, chapter, event)
}

/// What became of it in this row; nothing while it is still claimed.
fn ended(ledger: &Ledger, chapter: &Chapter) -> Option<Event> {
    let (what, detail) = match chapter.ended {
        Ended::Claimed => return None,
        Ended::Accepted => ("sent", "the relay answered 250 to the final dot".to_owned()),
        Ended::InDoubt => ("in doubt", cause(chapter.lost.as_deref())),
        Ended::Assumed => ("assumed", format!("closed while in doubt: {}", cause(chapter.lost.as_deref()))),
        Ended::GivenBack => ("given back", "no hand-off, or a decision to send again".to_owned()),
    };
    Some(in_hand(ledger, chapter, event(chapter.settled_index, what, detail)))
}

fn dead(story: &Story, run: &Run, last: u64) -> Option<Event> {
    let letter = story.dead.as_ref()?;
    let enhanced = letter.enhanced.map(|(class, subject, detail)| format!("{class}.{subject}.{detail} "));
    let answer = match letter.code {
        0 => letter.text.clone(),
        code => format!("{code} {}{}", enhanced.unwrap_or_default(), letter.text),
    };
    let attempts = format!("{} of {} attempts", letter.attempts, run.policies.max_attempts);
    let discarded = if letter.discarded { "; taken off the list" } else { "" };
    let event = event(last, "dead", format!("{answer} ({attempts}){discarded}"));
    Some(Event { instant: Some(timestamp(letter.since)), ..event })
}

fn opted_out(story: &Story) -> Option<Event> {
    let opted_out = story.opted_out?;
    let event = event(opted_out.index, "opted out", "nothing of this tenant goes to this recipient any more");
    Some(Event { instant: Some(timestamp(opted_out.at)), ..event })
}

/// What ended it without a row's doing.
fn closed(story: &Story, run: &Run, last: u64) -> Option<Event> {
    let index = run.finished_index.unwrap_or(last).max(last);
    match story.standing {
        Standing::Expired => Some(event(index, "expired", format!("not sent by {}", run.finish_by))),
        Standing::Cancelled => Some(event(index, "cancelled", "an operator cancelled the run")),
        Standing::Suppressed => Some(event(index, "suppressed", "opted out before it was handed off")),
        Standing::Pending
        | Standing::Claimed
        | Standing::Sent
        | Standing::Dead
        | Standing::Assumed
        | Standing::InDoubt => None,
    }
}

/// What it waits for.
fn waits(story: &Story, run: &Run, last: u64) -> Option<Event> {
    if story.standing != Standing::Pending {
        return None;
    }
    let detail = match (&run.state, story.waits_until) {
        (RunState::Paused { reason }, _) if reason.is_empty() => "the run is paused".to_owned(),
        (RunState::Paused { reason }, _) => format!("the run is paused: {reason}"),
        (_, Some(until)) => format!("for the next attempt, not before {until}"),
        (_, None) => "for a node to take it".to_owned(),
    };
    Some(event(last, "waits", detail))
}

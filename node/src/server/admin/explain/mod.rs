//! The history of one recipient as events, in the order of log indices.
//!
//! It is read from the state, so it is available after the log is purged. Its sources are the claims with the
//! recipient's outcome in each, the events of the run, the dead letter and the opt-out.

mod event;
mod waits;

use reveille_ledger::explain::{ClaimExplanation, LastRefusal, RecipientExplanation};
use reveille_ledger::ids::{ClaimOwner, RunId, Time};
use reveille_ledger::run_events::{RunEvent, RunEventKind};
use reveille_ledger::{Ledger, Page, RecipientState, Run, RunState};
use reveille_proto::admin::v1::{
    DeathReason, ExplainedEvent, ExplainedEventKind as Kind, ExplainedOpening, SuppressionReason,
};

use super::archive::RunLedgers;
use super::enums::OnWire;
use super::views::{canary, duration, node_name, pause, timestamp};
pub use event::death;
use event::{dead, of, with_answer};
pub use waits::WaitContext;

/// Returns the recipient's state and the events that led to it. Returns `None` if there is no such recipient. `key` is
/// its address key; `None` if this node does not know it.
pub fn collect_events(
    RunLedgers { state: ledger, own }: RunLedgers<'_>,
    (id, number, key): (RunId, u32, Option<&str>),
    around: &WaitContext,
) -> Option<(RecipientState, Vec<ExplainedEvent>)> {
    let (_, page, place) = own.page_of(id)?;
    let (run, explanation) = (page.runs.get(place)?, own.explain_recipient(id, number)?);
    let mut events = vec![opened((id, number), page, run)];
    for chapter in &explanation.claims {
        if chapter.owner != ClaimOwner::NONE {
            events.push(claimed(ledger, chapter));
        }
        events.extend(settled(ledger, chapter, run));
    }
    let own = explanation.run_events.iter().filter(|(_, run_event)| run_event.slots.is_some());
    events.extend(own.map(|(index, run_event)| describe_run_event(*index, run_event, run, &explanation)));
    let last = events.iter().map(|event| event.index).max().unwrap_or(id.index);
    // Events of the run after the recipient reached a final state do not concern it.
    let of_all = explanation.run_events.iter().filter(|(_, run_event)| run_event.slots.is_none());
    let of_all = of_all.filter(|(index, _)| *index < last || !explanation.state.is_terminal());
    events.extend(of_all.map(|(index, run_event)| describe_run_event(*index, run_event, run, &explanation)));
    complete_with_letter(&explanation, run, &mut events);
    events.extend(key.and_then(|key| opted_out(ledger, &page.tenant, key)));
    events.extend(key.and_then(|key| taken_back(ledger, &page.tenant, key)));
    // The sort is stable: events of one log entry keep the order in which they were collected.
    events.sort_by_key(|event| event.index);
    let last = events.last().map_or(id.index, |event| event.index);
    let waits = waits::describe(ledger, (id, number), (page, run, &explanation), around);
    let waits = waits.map(|wait| ExplainedEvent { index: last, wait: Some(wait), ..of(Kind::Waits) });
    events.extend(waits);
    Some((explanation.state, events))
}

/// Returns the event with its place and its time.
fn placed(index: u64, at: Time, event: ExplainedEvent) -> ExplainedEvent {
    ExplainedEvent { index, time: Some(timestamp(at)), ..event }
}

fn opened((id, number): (RunId, u32), page: &Page, run: &Run) -> ExplainedEvent {
    let opening = ExplainedOpening {
        schedule: if run.cause.is_message() { String::new() } else { run.name.to_string() },
        occurrence: run.occurrence.to_string(),
        cause: run.cause.wire().into(),
        due_time: Some(timestamp(run.due)),
        waited_for: run.waited_for.map(|former| former.to_string()).unwrap_or_default(),
        of_canary: run.canary.is_some() && run.is_of_canary(number),
    };
    placed(id.index, page.opened_at, ExplainedEvent { opening: Some(opening), ..of(Kind::Opened) })
}

fn in_hand(ledger: &Ledger, chapter: &ClaimExplanation, event: ExplainedEvent) -> ExplainedEvent {
    ExplainedEvent { node: node_name(ledger, chapter.owner.node), fence: chapter.fence.to_string(), ..event }
}

fn claimed(ledger: &Ledger, chapter: &ClaimExplanation) -> ExplainedEvent {
    let incarnation = chapter.owner.incarnation.0;
    let event = placed(chapter.fence.index, chapter.claimed_at, of(Kind::Claimed));
    in_hand(ledger, chapter, ExplainedEvent { incarnation, ..event })
}

/// Returns the recipient's events in this claim. It has none while the recipient is still claimed.
fn settled(ledger: &Ledger, chapter: &ClaimExplanation, run: &Run) -> Vec<ExplainedEvent> {
    let mut events = Vec::new();
    for claim_event in &chapter.history {
        let mut add = |event: ExplainedEvent| {
            events.push(in_hand(ledger, chapter, placed(claim_event.index, claim_event.at, event)));
        };
        add(event::describe(claim_event));
        match event::led_to(claim_event) {
            Some(RecipientState::Dead) => add(event::why_dead(claim_event)),
            Some(RecipientState::Expired) => add(expired(run)),
            Some(RecipientState::Cancelled) => add(cancelled(run)),
            _ => {}
        }
    }
    events
}

fn expired(run: &Run) -> ExplainedEvent {
    ExplainedEvent { finish_by_time: Some(timestamp(run.finish_by)), ..of(Kind::Expired) }
}

fn cancelled(run: &Run) -> ExplainedEvent {
    let cancelled_by = match run.state {
        RunState::Cancelled { by: Some(other) } => other.to_string(),
        _ => String::new(),
    };
    ExplainedEvent { cancelled_by, ..of(Kind::Cancelled) }
}

/// Adds the last answer of a relay, because it is the reason why the deadline passed.
fn with_last_answer(explanation: &RecipientExplanation, event: ExplainedEvent) -> ExplainedEvent {
    let Some(LastRefusal { code, enhanced, effect }) = explanation.last_refusal else { return event };
    ExplainedEvent { effect: effect.wire().into(), ..with_answer(event, code, enhanced, "") }
}

/// Describes an event of the run that changed the recipient outside of a claim.
fn describe_run_event(
    index: u64,
    run_event: &RunEvent,
    run: &Run,
    explanation: &RecipientExplanation,
) -> ExplainedEvent {
    let event = match &run_event.what {
        RunEventKind::Paused(reason) => ExplainedEvent { pause: Some(pause(reason)), ..of(Kind::RunPaused) },
        RunEventKind::Resumed => of(Kind::RunResumed),
        RunEventKind::Cancelled => cancelled(run),
        RunEventKind::Expired => with_last_answer(explanation, expired(run)),
        RunEventKind::DeadAtDeadline => dead(DeathReason::Deadline),
        RunEventKind::Requeued(pool) => {
            ExplainedEvent { pool: pool.as_deref().unwrap_or_default().to_owned(), ..of(Kind::Requeued) }
        }
        RunEventKind::Discarded => of(Kind::Discarded),
        RunEventKind::RefusalUndone => of(Kind::Revived),
        RunEventKind::SuppressedByGap => too_near(explanation, run),
        RunEventKind::SuppressedByOptOut => event::opted_out(),
        RunEventKind::CanaryPassed => ExplainedEvent { canary: run.canary.map(canary), ..of(Kind::CanaryPassed) },
    };
    placed(index, run_event.at, event)
}

/// Describes the email that was less than `min_gap` away (P17). The run that sent it may be in another part of the
/// archive, and is then not named.
fn too_near(explanation: &RecipientExplanation, run: &Run) -> ExplainedEvent {
    ExplainedEvent {
        suppression_reason: SuppressionReason::MinGap.into(),
        other_run: explanation.kept_apart_by.map(|other| other.to_string()).unwrap_or_default(),
        min_gap: Some(duration(run.policies.min_gap_ms)),
        ..of(Kind::Suppressed)
    }
}

/// Completes the last `dead` event with the dead letter, which has the answer and the attempts.
fn complete_with_letter(explanation: &RecipientExplanation, run: &Run, events: &mut [ExplainedEvent]) {
    let Some(letter) = &explanation.dead else { return };
    let mut why = event::of_letter(letter);
    if why.death_reason() == DeathReason::Deadline {
        why = with_last_answer(explanation, why);
    }
    let since = Some(timestamp(letter.since));
    if let Some(dead) = events.iter_mut().rev().find(|event| event.kind() == Kind::Dead && event.time == since) {
        let ExplainedEvent { index, time, node, fence, .. } = std::mem::take(dead);
        let (attempts, max_attempts) = (u32::from(letter.attempts), u32::from(run.policies.max_attempts));
        *dead = ExplainedEvent { index, time, node, fence, attempts, max_attempts, ..why };
    }
}

fn opted_out(ledger: &Ledger, tenant: &str, key: &str) -> Option<ExplainedEvent> {
    let opted_out = ledger.opt_out_of(&(tenant.to_owned(), key.to_owned()))?;
    Some(placed(opted_out.index, opted_out.at, of(Kind::OptedOut)))
}

fn taken_back(ledger: &Ledger, tenant: &str, key: &str) -> Option<ExplainedEvent> {
    let back = ledger.taken_back().get(&(tenant.to_owned(), key.to_owned()))?;
    let event = ExplainedEvent { text: back.reason.clone(), ..of(Kind::OptOutTakenBack) };
    Some(placed(back.index, back.at, event))
}

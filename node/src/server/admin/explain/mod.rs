//! The history of one recipient as events, in the order of log indices.
//!
//! It is read from the state, so it is available after the log is purged. Its sources are the claims with the
//! recipient's outcome in each, the events of the run, the dead letter and the opt-out.

mod event;
mod waits;

use reveille_ledger::canary::CanaryState;
use reveille_ledger::causes::DeadLetterCause;
use reveille_ledger::claim_history::ClaimEventKind;
use reveille_ledger::command::{EnhancedCode, OpeningCause, RefusalEffect};
use reveille_ledger::explain::{ClaimExplanation, LastRefusal, RecipientExplanation};
use reveille_ledger::ids::{ClaimOwner, RunId, Time};
use reveille_ledger::run_events::{RunEvent, RunEventKind};
use reveille_ledger::{Ledger, Page, RecipientState, Run, RunState};
use reveille_proto::admin::v1::{ExplainedEvent, ExplainedEventKind as Kind};

use super::archive::RunLedgers;
use super::enums::OnWire;
use super::views::{node_name, pause, timestamp};
use crate::format;
use crate::wording::{self, made_way, waited_for};
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
    events.extend(waits.map(|detail| event(last, Kind::Waits, detail)));
    Some((explanation.state, events))
}

fn event(index: u64, kind: Kind, detail: impl Into<String>) -> ExplainedEvent {
    ExplainedEvent { index, kind: kind.into(), detail: detail.into(), ..ExplainedEvent::default() }
}

fn event_at(at: Time, index: u64, kind: Kind, detail: impl Into<String>) -> ExplainedEvent {
    ExplainedEvent { time: Some(timestamp(at)), ..event(index, kind, detail) }
}

fn opened((id, number): (RunId, u32), page: &Page, run: &Run) -> ExplainedEvent {
    let why = match run.cause {
        OpeningCause::Due => "due",
        OpeningCause::CatchUp => "missed and caught up; it was due",
        OpeningCause::Trigger => "triggered",
        OpeningCause::Backfill => "backfilled; it was due",
        OpeningCause::Test => "a test email of",
        OpeningCause::Message => "a message for",
    };
    let waited = run.waited_for.map(|former| format!("; {}", waited_for(&former.to_string()))).unwrap_or_default();
    let canary = match run.canary {
        Some(_) if run.is_of_canary(number) => "; of its canary, which goes first",
        _ => "",
    };
    let name = if run.cause.is_message() { String::new() } else { format!("{} ", run.name) };
    let detail = format!("{name}{}, {why} {}{waited}{canary}", run.occurrence, run.due);
    event_at(page.opened_at, id.index, Kind::Opened, detail)
}

fn in_hand(ledger: &Ledger, chapter: &ClaimExplanation, event: ExplainedEvent) -> ExplainedEvent {
    ExplainedEvent { node: node_name(ledger, chapter.owner.node), fence: chapter.fence.to_string(), ..event }
}

fn claimed(ledger: &Ledger, chapter: &ClaimExplanation) -> ExplainedEvent {
    let incarnation = chapter.owner.incarnation.0;
    let event = event_at(chapter.claimed_at, chapter.fence.index, Kind::Claimed, String::new());
    in_hand(ledger, chapter, ExplainedEvent { incarnation, ..event })
}

/// Returns the recipient's events in this claim. It has none while the recipient is still claimed.
fn settled(ledger: &Ledger, chapter: &ClaimExplanation, run: &Run) -> Vec<ExplainedEvent> {
    let mut events = Vec::new();
    for claim_event in &chapter.history {
        let at = |kind: Kind, detail: String| {
            in_hand(ledger, chapter, event_at(claim_event.at, claim_event.index, kind, detail))
        };
        let (kind, detail) = event::describe(claim_event);
        events.push(with_answer(at(kind, detail), &claim_event.what));
        match event::led_to(claim_event) {
            Some(RecipientState::Dead) => events.push(at(Kind::Dead, event::why_dead(claim_event))),
            Some(RecipientState::Expired) => events.push(at(Kind::Expired, format!("not sent by {}", run.finish_by))),
            Some(RecipientState::Cancelled) => events.push(at(Kind::Cancelled, cancelled(run))),
            _ => {}
        }
    }
    events
}

/// Adds the parts of the relay's answer as separate fields, for programs.
fn with_answer(event: ExplainedEvent, what: &ClaimEventKind) -> ExplainedEvent {
    match what {
        ClaimEventKind::TestAccepted(said) => {
            let (relay, code, text) = (said.relay.clone(), u32::from(said.code), said.text.clone());
            ExplainedEvent { relay, code, enhanced: enhanced_text(said.enhanced), text, ..event }
        }
        ClaimEventKind::TestRelay(relay) => ExplainedEvent { relay: relay.clone(), ..event },
        ClaimEventKind::Refused { code, enhanced, text, .. } => {
            ExplainedEvent { code: u32::from(*code), enhanced: enhanced_text(*enhanced), text: text.clone(), ..event }
        }
        ClaimEventKind::InDoubt(doubt) => ExplainedEvent { doubt_cause: doubt.wire().into(), ..event },
        _ => event,
    }
}

fn cancelled(run: &Run) -> String {
    match run.state {
        RunState::Cancelled { by: Some(other) } => made_way(&other.to_string()),
        _ => "the run was cancelled".to_owned(),
    }
}

fn enhanced_text(enhanced: Option<EnhancedCode>) -> String {
    enhanced.map(|enhanced| enhanced.to_string()).unwrap_or_default()
}

/// Returns the last answer of a relay, because it is the reason why the deadline passed. Empty if no relay answered.
fn last_answer(explanation: &RecipientExplanation) -> String {
    let Some(LastRefusal { code, enhanced, effect }) = explanation.last_refusal else { return String::new() };
    let subject = match effect {
        RefusalEffect::BackOff => "it deferred the recipient",
        RefusalEffect::NextWave => "about the relay or its rate",
        RefusalEffect::MayPauseRun => "about content or sender",
        RefusalEffect::Dead => "about the mailbox",
        RefusalEffect::CountAttempt => "without a named cause",
    };
    format!("; the last answer of a relay was {}, {subject}", event::answer(code, enhanced, ""))
}

/// Describes an event of the run that changed the recipient outside of a claim.
fn describe_run_event(
    index: u64,
    run_event: &RunEvent,
    run: &Run,
    explanation: &RecipientExplanation,
) -> ExplainedEvent {
    let (kind, detail) = match &run_event.what {
        RunEventKind::Paused(reason) => (Kind::RunPaused, wording::pause(&pause(reason))),
        RunEventKind::Resumed => (Kind::RunResumed, String::new()),
        RunEventKind::Cancelled => (Kind::Cancelled, cancelled(run)),
        RunEventKind::Expired => (Kind::Expired, format!("not sent by {}{}", run.finish_by, last_answer(explanation))),
        RunEventKind::DeadAtDeadline => (Kind::Dead, String::new()),
        RunEventKind::Requeued(pool) => {
            let pool = pool.as_ref().map(|pool| format!("; by pool '{pool}' from now on")).unwrap_or_default();
            (Kind::Requeued, format!("by an operator: attempts are counted anew{pool}"))
        }
        RunEventKind::Discarded => {
            (Kind::Discarded, "by an operator: off the list of dead letters, and still dead".to_owned())
        }
        RunEventKind::RefusalUndone => {
            (Kind::Revived, "so many refusals in a row do not name a mailbox that none of them is believed".to_owned())
        }
        RunEventKind::SuppressedByGap => (Kind::Suppressed, too_near(explanation, run)),
        RunEventKind::CanaryPassed => (Kind::CanaryPassed, canary(run)),
    };
    event_at(run_event.at, index, kind, detail)
}

/// Describes the counts that the canary's verdict is based on (P6).
fn canary(run: &Run) -> String {
    let Some(CanaryState { recipients, bad_max, undecided, bad, .. }) = run.canary else { return String::new() };
    format!("of {recipients} recipients {bad} were dead or in doubt and {bad_max} may be; {undecided} were undecided")
}

/// Describes the email that was less than `min_gap` away (P17). The run that sent it may be in another part of the
/// archive, and is then not named.
fn too_near(explanation: &RecipientExplanation, run: &Run) -> String {
    let gap = format::whole_units(run.policies.min_gap_ms);
    let of_run = explanation.kept_apart_by.map(|other| format!(" of {other}")).unwrap_or_default();
    format!("min_gap: it got an email{of_run}, or may have, less than {gap} from this run's instant")
}

/// Completes the last `dead` event with the dead letter, which has the answer and the attempts.
fn complete_with_letter(explanation: &RecipientExplanation, run: &Run, events: &mut [ExplainedEvent]) {
    let Some(letter) = &explanation.dead else { return };
    let answer = match letter.code {
        0 if letter.cause == DeadLetterCause::DeadlinePassed => {
            format!("{}{}", letter.text(), last_answer(explanation))
        }
        0 => letter.text().to_owned(),
        code => event::answer(code, letter.enhanced, letter.text()),
    };
    let since = Some(timestamp(letter.since));
    if let Some(dead) = events.iter_mut().rev().find(|event| event.kind() == Kind::Dead && event.time == since) {
        dead.detail = format!("{answer} ({} of {} attempts)", letter.attempts, run.policies.max_attempts);
    }
}

fn opted_out(ledger: &Ledger, tenant: &str, key: &str) -> Option<ExplainedEvent> {
    let opted_out = ledger.opt_out_of(&(tenant.to_owned(), key.to_owned()))?;
    let detail = "nothing of this tenant goes to this recipient any more";
    Some(event_at(opted_out.at, opted_out.index, Kind::OptedOut, detail))
}

fn taken_back(ledger: &Ledger, tenant: &str, key: &str) -> Option<ExplainedEvent> {
    let back = ledger.taken_back().get(&(tenant.to_owned(), key.to_owned()))?;
    Some(event_at(back.at, back.index, Kind::OptOutTakenBack, back.reason.clone()))
}

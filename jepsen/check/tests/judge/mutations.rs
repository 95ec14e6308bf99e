//! Loses, doubles or changes each event of the good history that proves something, one event at a time. Each change
//! names the invariant that must reject it, wherever in the history the change is made.

use reveille_check::events::*;
use reveille_check::judgement::InvariantNumber;
use reveille_check::{Judgement, Verdict};

use crate::good::{TestHistory, good, good_real};

/// A change of an event: the events that replace it.
type Change = fn(&Event) -> Vec<Event>;

/// The part of the judgement that must reject a change. Other invariants may reject it too, because one event may prove
/// several things.
#[derive(Clone, Copy, Debug)]
enum By {
    /// This invariant is false.
    False(u8),
    /// This invariant can no longer be judged.
    Unknown(u8),
    /// The run does not count.
    Coverage,
}

impl By {
    fn rejects(self, judgement: &Judgement) -> bool {
        let verdict = |number| &judgement.invariants[&InvariantNumber(number)];
        match self {
            By::False(number) => verdict(number).is_false(),
            By::Unknown(number) => matches!(verdict(number), Verdict::Unknown { .. }),
            By::Coverage => judgement.coverage.is_false(),
        }
    }
}

fn emails(event: &Event, change: impl Fn(&mut Handoff)) -> Vec<Event> {
    let mut event = event.clone();
    if let Event::Handoff(handoff) = &mut event {
        change(handoff);
    }
    vec![event]
}

fn lost(_: &Event) -> Vec<Event> {
    Vec::new()
}

fn twice(event: &Event) -> Vec<Event> {
    vec![event.clone(), event.clone()]
}

#[track_caller]
fn none_passes(what: &str, picks: impl Fn(&Event) -> bool, changes: &[(Change, By)]) {
    for history in [good(), good_real()] {
        let positions: Vec<usize> = (0..history.events.len()).filter(|index| picks(&history.events[*index])).collect();
        assert!(!positions.is_empty(), "{what}");
        for position in positions {
            for (number, (change, by)) in changes.iter().enumerate() {
                let event = &history.events[position];
                let mut events = history.events.clone();
                events.splice(position..=position, change(event));
                let judgement = TestHistory { events, header: history.header.clone(), ended: history.ended.clone() }
                    .judge_in_memory();
                let text =
                    || format!("{what}, change {number}, is not rejected by {by:?}: {event:?}\n{}", judgement.table());
                assert!(!judgement.valid && by.rejects(&judgement), "{}", text());
            }
        }
    }
}

#[test]
fn claim_after_its_email_is_rejected_by_its_ledger_time() {
    assert!(good_real().judge().valid, "\n{}", good_real().judge().table());
    let later = |event: &Event, by_ns| {
        let mut event = event.clone();
        if let Event::Claim(claim) = &mut event {
            claim.proposed_ns = claim.proposed_ns.map(|at_ns| at_ns + by_ns);
        }
        vec![event]
    };
    let mut history = good_real();
    let is_own = |event: &Event| matches!(event, Event::Claim(claim) if claim.run == "r300.0");
    let position = history.events.iter().position(is_own).unwrap();
    // It was proposed 40 ms before DATA, and ledger time may be ahead by two seconds.
    for (by_ns, is_late) in [(2_039_000_000, false), (2_041_000_000, true)] {
        let changed = later(&good_real().events[position], by_ns);
        history.events.splice(position..=position, changed);
        assert_eq!(By::False(2).rejects(&history.judge()), is_late);
    }
}

#[test]
fn doubled_or_changed_email_is_rejected() {
    let is_handoff = |event: &Event| matches!(event, Event::Handoff(_));
    none_passes("a handoff", is_handoff, &[(twice, By::False(3))]);
    let changes: [Change; 6] = [
        |event| emails(event, |handoff| handoff.recipient = format!("{}x", handoff.recipient).into()),
        |event| emails(event, |handoff| handoff.run = "".into()),
        |event| emails(event, |handoff| handoff.run = "r1.0".into()),
        |event| emails(event, |handoff| handoff.fence = None),
        |event| emails(event, |handoff| handoff.fence = handoff.fence.map(|fence| Fence { place: 9, ..fence })),
        |event| emails(event, |handoff| handoff.node = format!("{}x", handoff.node).into()),
    ];
    none_passes("a handoff", is_handoff, &changes.map(|change| (change, By::False(2))));
}

#[test]
fn lost_email_is_rejected() {
    let history = good();
    let doubted = |handoff: &Handoff| {
        history.events.iter().any(|event| {
            matches!(event, Event::FinalState(final_state) if (final_state.run, final_state.recipient)
                == (handoff.run, handoff.recipient) && matches!(final_state.state, RecipientState::InDoubt | RecipientState::Assumed))
        })
    };
    // The arrival of an email in doubt is unknown by definition.
    let proves =
        |event: &Event| matches!(event, Event::Handoff(handoff) if handoff.answer.is_accepted() && !doubted(handoff));
    none_passes("an accepted email", proves, &[(lost, By::False(9))]);
}

#[test]
fn lost_claim_is_rejected() {
    let history = good();
    let used = |claim: &Claim| {
        history.events.iter().any(|event| {
            matches!(event, Event::Handoff(handoff) if handoff.fence == Some(claim.fence)
            && claim.run == handoff.run && claim.recipient == handoff.recipient)
        })
    };
    none_passes("a claim", |event| matches!(event, Event::Claim(claim) if used(claim)), &[(lost, By::False(2))]);
}

#[test]
fn changed_final_state_is_rejected() {
    fn to(event: &Event, state: RecipientState) -> Vec<Event> {
        let mut event = event.clone();
        if let Event::FinalState(final_state) = &mut event {
            final_state.state = state;
        }
        vec![event]
    }
    let changes: [Change; 3] =
        [lost, |event| to(event, RecipientState::Pending), |event| to(event, RecipientState::Claimed)];
    let changes = changes.map(|change| (change, By::False(4)));
    none_passes("a final state", |event| matches!(event, Event::FinalState(_)), &changes);
    let is_sent =
        |event: &Event| matches!(event, Event::FinalState(final_state) if final_state.state == RecipientState::Sent);
    let changes: [Change; 2] = [|event| to(event, RecipientState::Dead), |event| to(event, RecipientState::Expired)];
    none_passes("a recipient that was sent", is_sent, &changes.map(|change| (change, By::False(9))));
    let unsent = |event: &Event| {
        matches!(event, Event::FinalState(final_state)
            if matches!(final_state.state, RecipientState::Dead | RecipientState::Suppressed | RecipientState::Cancelled))
    };
    none_passes("a recipient that was not sent", unsent, &[(|event| to(event, RecipientState::Sent), By::False(9))]);
    none_passes("a run", |event| matches!(event, Event::Run(_)), &[(lost, By::False(4))]);
    none_passes("an explanation", |event| matches!(event, Event::Explained(_)), &[(lost, By::False(4))]);
    none_passes("an object", |event| matches!(event, Event::Found(_)), &[(lost, By::False(7))]);
}

#[test]
fn changed_due_instant_or_fault_is_rejected() {
    let history = good();
    let opened = |due: &Due| {
        history.events.iter().any(|event| {
            matches!(event, Event::Run(run) if run.due_unix_ms == due.due_unix_ms && run.schedule == due.schedule)
        })
    };
    none_passes("an instant", |event| matches!(event, Event::Due(due) if opened(due)), &[(lost, By::False(10))]);
    none_passes("an audience", |event| matches!(event, Event::Audience(_)), &[(lost, By::Unknown(4))]);
    none_passes("a fault", |event| matches!(event, Event::Fault(_)), &[(lost, By::Coverage)]);
    none_passes("the draining", |event| matches!(event, Event::Drained { .. }), &[(lost, By::False(13))]);
}

#[test]
fn changed_read_is_rejected() {
    fn shows(event: &Event, other: Option<&str>) -> Vec<Event> {
        let mut event = event.clone();
        if let Event::Call(Call { answer: Answer::Found { value }, .. }) = &mut event {
            *value = other.map(str::to_owned);
        }
        vec![event]
    }
    let is_read = |event: &Event| matches!(event, Event::Call(call) if matches!(call.answer, Answer::Found { .. }));
    none_passes("a read", is_read, &[(|event| shows(event, Some("another")), By::False(7))]);
}

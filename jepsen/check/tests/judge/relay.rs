//! A relay that was broken on purpose leaves exactly the recipients without an answer in doubt (I5). A decision may
//! send recipients again (I9).

use reveille_check::events::*;

use crate::good::{TestHistory, fence, ns};
use crate::{accepted, rejected, with};

/// Puts `m7` of the campaign in doubt: its message was cut off instead of accepted.
fn cut_off(history: &mut TestHistory, change: impl Fn(&mut Handoff)) {
    for event in &mut history.events {
        match event {
            Event::Handoff(handoff) if handoff.recipient == "m7" => {
                (handoff.answer, handoff.body, handoff.message_id) = (Answered::Cut, None, None);
                change(handoff);
            }
            Event::FinalState(final_state) if final_state.recipient == "m7" => {
                final_state.state = RecipientState::InDoubt
            }
            _ => {}
        }
    }
}

#[test]
fn i5_message_that_was_cut_off_leaves_its_recipient_in_doubt() {
    let judgement = accepted(&with(|history| cut_off(history, |_| {})));
    assert_eq!((judgement.in_doubt, judgement.in_doubt_arrived, judgement.in_doubt_allowed), (3, 2, 3));
    // First the fence was not read, then the run was not read either.
    accepted(&with(|history| cut_off(history, |handoff| handoff.fence = None)));
    accepted(&with(|history| cut_off(history, |handoff| (handoff.fence, handoff.run) = (None, "".into()))));
}

#[test]
fn i5_message_that_was_cut_off_explains_no_other_recipient() {
    let others = with(|history| {
        cut_off(history, |_| {});
        history.outcome("r120.0", "m7", 123, OutcomeKind::Refused);
        for event in &mut history.events {
            match event {
                Event::FinalState(final_state) if final_state.recipient == "m7" => {
                    final_state.state = RecipientState::Dead
                }
                Event::FinalState(final_state) if final_state.recipient == "m8" => {
                    final_state.state = RecipientState::InDoubt
                }
                _ => {}
            }
        }
    });
    rejected(&others, &[5]);
    // An earlier attempt was cut off; the last attempt left no trace.
    let earlier = with(|history| {
        cut_off(history, |_| {});
        history.claim("r120.0", "m7", fence(10, 180), ("n2", 1), 15.0);
    });
    rejected(&earlier, &[5]);
    let answered = with(|history| cut_off(history, |handoff| handoff.answer = Answered::Refused));
    rejected(&answered, &[5]);
}

#[test]
fn i3_message_that_was_cut_off_may_have_been_before_its_gate() {
    let again = |answer| {
        with(|history| {
            history.claim("r120.0", "m7", fence(10, 99), ("n1", 1), 12.2);
            history.handoff("r120.0", "m7", fence(10, 99), "n1", 12.3, answer);
        })
    };
    accepted(&again(Answered::Cut));
    rejected(&again(Answered::Nothing), &[3]);
    let twice = with(|history| history.handoff("r120.0", "m7", fence(10, 121), "n2", 12.6, Answered::Cut));
    rejected(&twice, &[3]);
}

#[test]
fn i6_message_without_its_dot_passed_no_gate() {
    let late = |answer| {
        with(|history| {
            history.claim("r230.0", "a", fence(210, 236), ("n1", 1), 29.0);
            history.handoff("r230.0", "a", fence(210, 236), "n1", 29.1, answer);
        })
    };
    accepted(&late(Answered::Cut));
    rejected(&late(Answered::Refused), &[6]);
}

/// Makes a decision send `b` of `r200.0` again, which arrived and is in doubt. It ends in this state.
fn decided(history: &mut TestHistory, at: Option<u64>, state: RecipientState) {
    history.header.in_doubt = InDoubt::Resend;
    if let Some(at) = at {
        history.outcome("r200.0", "b", at, OutcomeKind::Resent(Decider::Policy));
    }
    for event in &mut history.events {
        if let Event::FinalState(final_state) = event
            && (&*final_state.run, &*final_state.recipient) == ("r200.0", "b")
        {
            final_state.state = state;
        }
    }
}

#[test]
fn i9_recipient_sent_again_by_decision_may_end_in_any_state() {
    for state in [RecipientState::Dead, RecipientState::Expired, RecipientState::Suppressed, RecipientState::Cancelled]
    {
        let judgement = with(|history| decided(history, Some(216), state)).judge();
        assert!(judgement.valid, "{state:?}\n{}", judgement.table());
        rejected(&with(|history| decided(history, None, state)), &[9]);
        // It arrived at an attempt after the decision, so its final state is wrong.
        let after = with(|history| {
            decided(history, Some(216), state);
            history.claim("r200.0", "b", fence(210, 218), ("n1", 1), 24.9);
            history.handoff("r200.0", "b", fence(210, 218), "n1", 25.0, Answered::Accepted);
        });
        rejected(&after, &[9]);
    }
}

#[test]
fn i5_handoffs_under_way_at_kill_are_past_gate_too() {
    let late = |at_s: f64| {
        with(|history| {
            for event in &mut history.events {
                match event {
                    Event::Handoff(handoff) if handoff.recipient == "m7" => handoff.at_ns = ns(at_s),
                    Event::FinalState(final_state) if final_state.recipient == "m7" => {
                        final_state.state = RecipientState::InDoubt
                    }
                    _ => {}
                }
            }
        })
    };
    // n2 is killed at 21 s and restarted at 24 s. The answers to emails shortly before may have been lost.
    for at_s in [20.98, 21.01] {
        let judgement = late(at_s).judge();
        assert!(judgement.valid, "{at_s}\n{}", judgement.table());
        assert_eq!((judgement.in_doubt, judgement.in_doubt_allowed), (3, 3));
    }
    rejected(&late(20.72), &[5]);
    rejected(&late(24.02), &[5]);
}

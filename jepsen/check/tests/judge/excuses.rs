//! Excuses without their cause: something is explained, allowed or decided, and the required cause is missing.

use reveille_check::Verdict;
use reveille_check::events::*;

use crate::good::{TestHistory, fence, ms, ns, ok};
use crate::{accepted, rejected, verdict, with};

/// Makes `m7` of the campaign never claimed and never sent. Its final state in the ledger is `state`.
fn ends(history: &mut TestHistory, state: RecipientState) {
    let own = |run: &str, recipient: &str| run == "r120.0" && recipient == "m7";
    history.events.retain(|event| match event {
        Event::Handoff(mail) => !own(&mail.run, &mail.recipient),
        Event::Claim(claim) => !own(&claim.run, &claim.recipient),
        Event::Outcome(outcome) => !own(&outcome.run, &outcome.recipient),
        _ => true,
    });
    history.set_final_state("r120.0", "m7", state);
}

fn without_a_mail(state: RecipientState, change: impl Fn(&mut TestHistory)) -> TestHistory {
    with(|history| {
        ends(history, state);
        change(history);
    })
}

#[test]
fn i4_final_state_without_cause_is_rejected() {
    for state in [RecipientState::Expired, RecipientState::Cancelled, RecipientState::Suppressed, RecipientState::Dead]
    {
        let history = without_a_mail(state, |_| {});
        rejected(&history, &[4]);
        assert_eq!(history.judge().lost, Some(1), "{state:?}");
    }
}

#[test]
fn i4_end_by_client_or_relay_is_explained() {
    let tenant = || "default".to_owned();
    let opt_out = || Operation::OptOut { tenant: tenant(), recipient: "m7".to_owned() };
    let take_back = || Operation::TakeBack { tenant: tenant(), recipient: "m7".to_owned() };
    let asks = |history: &mut TestHistory, at_s: f64, operation: Operation, answer| {
        history.call(at_s, at_s + 0.1, operation, answer);
    };
    let left = without_a_mail(RecipientState::Suppressed, |history| {
        asks(history, 11.0, opt_out(), ok(118));
        history.found(ObjectKind::OptOut, "m7", "opted_out");
    });
    accepted(&left);
    let unanswered =
        without_a_mail(RecipientState::Suppressed, |history| asks(history, 11.0, opt_out(), Answer::Unknown));
    accepted(&unanswered);
    let refused = Answer::Failed { reason: "NOT_FOUND".to_owned() };
    rejected(
        &without_a_mail(RecipientState::Suppressed, |history| asks(history, 11.0, opt_out(), refused.clone())),
        &[4],
    );
    let came_back = without_a_mail(RecipientState::Suppressed, |history| {
        asks(history, 8.0, opt_out(), ok(112));
        asks(history, 9.0, take_back(), ok(118));
    });
    rejected(&came_back, &[4]);

    let cancel = || Operation::Cancel { target: Target::Run("r120.0".to_owned()) };
    let cancelled = without_a_mail(RecipientState::Cancelled, |history| {
        asks(history, 15.0, cancel(), ok(189));
    });
    accepted(&cancelled);

    let bounced = without_a_mail(RecipientState::Dead, |history| {
        history.claim("r120.0", "m7", fence(10, 121), ("n2", 1), 12.4);
        history.outcome("r120.0", "m7", 122, OutcomeKind::Refused);
    });
    accepted(&bounced);
    let refused = |code| {
        let mut history = bounced.clone();
        history.change_first(|event| match event {
            Event::Outcome(outcome) if (&*outcome.run, &*outcome.recipient) == ("r120.0", "m7") => {
                outcome.code = code;
                true
            }
            _ => false,
        });
        history
    };
    accepted(&refused(None)); // The dialogue broke, or the code is not known.
    rejected(&refused(Some(451)), &[4]);
    let mut sent_again = refused(Some(451));
    sent_again.header.in_doubt = InDoubt::Resend;
    sent_again.outcome("r120.0", "m7", 121, OutcomeKind::Resent(Decider::Policy));
    accepted(&sent_again); // This counted as an attempt, and the deadline came.
    let mut decided = refused(Some(451));
    asks(&mut decided, 12.5, Operation::Resend { run: "r120.0".to_owned(), recipient: None }, ok(121));
    decided.outcome("r120.0", "m7", 121, OutcomeKind::Resent(Decider::Operator));
    rejected(&decided, &[4]);
    let given_back = without_a_mail(RecipientState::Dead, |history| {
        history.claim("r120.0", "m7", fence(10, 121), ("n1", 1), 12.4);
        history.outcome("r120.0", "m7", 122, OutcomeKind::Released);
        history.claim("r120.0", "m7", fence(10, 123), ("n1", 1), 12.5);
        history.outcome("r120.0", "m7", 124, OutcomeKind::Released);
    });
    rejected(&given_back, &[4]);
    // The owner of both claims crashed.
    let killed = without_a_mail(RecipientState::Dead, |history| {
        history.claim("r120.0", "m7", fence(10, 121), ("n2", 1), 12.4);
        history.outcome("r120.0", "m7", 122, OutcomeKind::Released);
        history.claim("r120.0", "m7", fence(10, 123), ("n2", 1), 12.5);
        history.outcome("r120.0", "m7", 124, OutcomeKind::Released);
    });
    accepted(&killed);
    // The ledger reports the release of the first claim with a later one of another recipient.
    let reported_late = without_a_mail(RecipientState::Dead, |history| {
        history.claim("r120.0", "m7", fence(10, 121), ("n2", 1), 12.4);
        history.claim("r120.0", "m7", fence(10, 123), ("n2", 1), 12.5);
        for (index, of) in [(125, 121), (124, 123)] {
            history.outcome("r120.0", "m7", index, OutcomeKind::Released);
            let Some(Event::Outcome(outcome)) = history.events.last_mut() else { unreachable!() };
            outcome.fence = Some(fence(10, of));
        }
    });
    accepted(&reported_late);
    // After the second claim it was not released.
    let held = without_a_mail(RecipientState::Dead, |history| {
        history.claim("r120.0", "m7", fence(10, 121), ("n2", 1), 12.4);
        history.outcome("r120.0", "m7", 122, OutcomeKind::Released);
        history.outcome("r120.0", "m7", 122, OutcomeKind::Released);
        history.claim("r120.0", "m7", fence(10, 123), ("n2", 1), 12.5);
    });
    rejected(&held, &[4]);

    let over =
        without_a_mail(RecipientState::Expired, |history| history.header.policies.finish_within_ms = Some(40_000));
    accepted(&over);
    rejected(
        &without_a_mail(RecipientState::Expired, |history| history.header.policies.finish_within_ms = Some(60_000)),
        &[4],
    );
    let at_once = without_a_mail(RecipientState::Expired, |history| {
        let policies = &mut history.header.policies;
        (policies.finish_within_ms, policies.finish_at_least_ms) = (Some(40_000), 50_000);
    });
    accepted(&at_once); // If `finish_within` is shorter than the minimum, it is the minimum.
    // Its schedule's next instant came.
    let daily = with(|history| {
        history.drop_first(|event| matches!(event, Event::Handoff(mail) if mail.run == "r100.0"));
        history.set_final_state("r100.0", "a", RecipientState::Expired);
    });
    accepted(&daily);
    let mut too_soon = daily;
    too_soon.header.policies.finish_at_least_ms = 600_000;
    rejected(&too_soon, &[4]);
}

/// The recipient had opted out already; the second opt-out was invoked first and served last.
#[test]
fn i4_opt_out_applied_after_concurrent_take_back_suppresses() {
    let repeated = |opted_out: u64, taken_back: u64| {
        without_a_mail(RecipientState::Suppressed, |history| {
            let own = || ("default".to_owned(), "m7".to_owned());
            let (tenant, recipient) = own();
            history.call(2.0, 4.0, Operation::OptOut { tenant, recipient }, ok(opted_out));
            let (tenant, recipient) = own();
            history.call(2.5, 2.6, Operation::TakeBack { tenant, recipient }, ok(taken_back));
        })
    };
    accepted(&repeated(30, 25));
    rejected(&repeated(25, 30), &[4]);
}

#[test]
fn i4_lost_run_of_trigger_is_rejected() {
    let vanished = with(|history| {
        history.events.retain(|event| match event {
            Event::Call(_) => true,
            event => !serde_json::to_string(event).unwrap().contains("\"r300.0\""),
        });
    });
    rejected(&vanished, &[4]);
}

#[test]
fn i1_decision_about_recipient_without_doubt_excuses_nothing() {
    let twice = with(|history| {
        accepted_again(history, "r120.0", "m7", 160, 16.0);
        resend(history, 14.0, ("r120.0", Some("m7")), ok(150));
    });
    rejected(&twice, &[1, 3]);
}

/// Sends a recipient again that was in doubt.
fn again(history: &mut TestHistory, run: &str, recipient: &str, index: u64, at_s: f64) {
    history.outcome(run, recipient, index - 30, OutcomeKind::InDoubt);
    accepted_again(history, run, recipient, index, at_s);
}

fn accepted_again(history: &mut TestHistory, run: &str, recipient: &str, index: u64, at_s: f64) {
    history.claim(run, recipient, fence(10, index), ("n1", 1), at_s - 0.05);
    history.handoff(run, recipient, fence(10, index), "n1", at_s, Answered::Accepted);
}

fn resend(history: &mut TestHistory, at_s: f64, (run, recipient): (&str, Option<&str>), answer: Answer) {
    let (run, recipient) = (run.to_owned(), recipient.map(str::to_owned));
    history.call(at_s, at_s + 0.1, Operation::Resend { run, recipient }, answer);
}

#[test]
fn i1_decision_excuses_only_handoffs_on_both_sides() {
    let decided = |at_s: f64, index: u64| {
        with(|history| {
            again(history, "r120.0", "m7", 160, 16.0);
            resend(history, at_s, ("r120.0", Some("m7")), ok(index));
        })
    };
    let by_choice = accepted(&decided(14.0, 150));
    assert_eq!((by_choice.duplicates, by_choice.duplicates_decided), (0, 1));
    let refused_between = with(|history| {
        again(history, "r120.0", "m7", 160, 16.0);
        resend(history, 14.0, ("r120.0", Some("m7")), ok(150));
        history.claim("r120.0", "m7", fence(10, 155), ("n1", 1), 15.0);
        history.handoff("r120.0", "m7", fence(10, 155), "n1", 15.1, Answered::Refused);
    });
    accepted(&refused_between); // The attempt after the decision was refused, and made again.
    rejected(&decided(17.0, 165), &[1, 3]);
    let too_late = decided(17.0, 165).judge();
    assert_eq!((too_late.duplicates, too_late.duplicates_decided), (1, 0));
    rejected(&decided(11.0, 118), &[1, 3]);
    let third = with(|history| {
        again(history, "r120.0", "m7", 160, 16.0);
        again(history, "r120.0", "m7", 170, 17.0);
        resend(history, 14.0, ("r120.0", Some("m7")), ok(150));
    });
    rejected(&third, &[1, 3]);
    assert_eq!((third.judge().duplicates, third.judge().duplicates_decided), (1, 1), "one of the two was decided");
    // The answer to the resend was lost, so its log index is unknown and the checker compares times.
    let unanswered = |at_s: f64| {
        with(|history| {
            again(history, "r120.0", "m7", 160, 16.0);
            resend(history, at_s, ("r120.0", Some("m7")), Answer::Unknown);
        })
    };
    accepted(&unanswered(14.0));
    rejected(&unanswered(17.0), &[1, 3]);
}

#[test]
fn i1_dead_letter_that_is_requeued_is_sent_once() {
    let requeued = with(|history| {
        history.handoff("r100.0", "c", fence(10, 104), "n1", 5.3, Answered::Refused);
        resend(history, 6.0, ("r100.0", Some("c")), ok(106));
        again(history, "r100.0", "c", 107, 7.0);
        again(history, "r100.0", "c", 109, 7.5);
        history.set_final_state("r100.0", "c", RecipientState::Sent);
    });
    rejected(&requeued, &[1, 3]);
}

#[test]
fn i1_decision_about_all_in_doubt_covers_each() {
    let all = |in_doubt: bool| {
        with(|history| {
            accepted_again(history, "r120.0", "m7", 160, 16.0);
            resend(history, 14.0, ("r120.0", None), ok(150));
            if in_doubt {
                history.outcome("r120.0", "m7", 149, OutcomeKind::InDoubt);
            }
        })
    };
    accepted(&all(true));
    rejected(&all(false), &[1, 3]);
}

#[test]
fn i1_under_resend_step_after_both_excuses_nothing() {
    let resent = |index: u64, by: Decider| {
        with(|history| {
            history.header.in_doubt = InDoubt::Resend;
            again(history, "r120.0", "m7", 160, 16.0);
            resend(history, 14.0, ("r120.0", Some("m7")), ok(150));
            history.outcome("r120.0", "m7", index, OutcomeKind::Resent(by));
        })
    };
    for (by, counted) in [(Decider::Policy, (1, 0)), (Decider::Operator, (0, 1))] {
        let judgement = accepted(&resent(150, by));
        assert_eq!((judgement.duplicates, judgement.duplicates_decided), counted, "{by:?}");
        rejected(&resent(161, by), &[1, 3]);
    }
}

#[test]
fn i1_under_resend_step_in_history_of_first_claim_excuses() {
    let resent = |of_first: bool| {
        with(|history| {
            history.header.in_doubt = InDoubt::Resend;
            history.change_mail("r120.0", "m7", |mail| mail.answer = Answered::AcceptedUnanswered);
            again(history, "r120.0", "m7", 160, 16.0);
            let fences = history.events.iter().filter_map(|event| match event {
                Event::Handoff(Handoff { run, recipient, fence, .. }) => {
                    fence.filter(|_| **run == *"r120.0" && **recipient == *"m7")
                }
                _ => None,
            });
            let fences: Vec<Fence> = fences.collect();
            let of = if of_first { fences.iter().min() } else { fences.iter().max() };
            // The ledger merged it with a later step of the same claim.
            history.outcome("r120.0", "m7", 161, OutcomeKind::Resent(Decider::Policy));
            if let Some(Event::Outcome(outcome)) = history.events.last_mut() {
                outcome.fence = of.copied();
            }
        })
    };
    accepted(&resent(true));
    rejected(&resent(false), &[1, 3, 5]);
}

#[test]
fn i6_node_that_was_waited_out_may_not_claim_anew() {
    let forgotten = with(|history| {
        history.claim("r230.0", "c", fence(210, 333), ("n3", 1), 44.0);
        history.handoff("r230.0", "c", fence(210, 333), "n3", 44.1, Answered::Refused);
    });
    rejected(&forgotten, &[3, 6]);
    // Without its log index, it is unknown which claims were earlier.
    let unread = with(|history| {
        history.change_first(|event| match event {
            Event::Call(Call { answer: Answer::Ok { index, unconfirmed, .. }, .. }) if !unconfirmed.is_empty() => {
                *index = None;
                true
            }
            _ => false,
        });
    });
    assert_eq!(crate::unknown(&unread.judge()), [6].into(), "\n{}", unread.judge().table());
}

/// The call that is invoked first need not take effect first.
#[test]
fn i6_take_back_invoked_before_opt_out_may_follow_it() {
    let asked_early = |index| {
        with(|history| {
            history.change_first(|event| match event {
                Event::Call(Call { invoked_ns, operation: Operation::TakeBack { .. }, answer, .. }) => {
                    (*invoked_ns, *answer) = (ns(1.9), ok(index));
                    true
                }
                _ => false,
            });
        })
    };
    accepted(&asked_early(23));
    // The log says that the opt-out was the last.
    let mut before = asked_early(21);
    before.found(ObjectKind::OptOut, "m0", "opted_out");
    rejected(&before, &[6]);
}

#[test]
fn i9_resend_without_request_is_rejected() {
    let resent = |policy, by| {
        with(|history| {
            history.header.in_doubt = policy;
            history.outcome("r200.0", "b", 216, OutcomeKind::Resent(by));
            history.set_final_state("r200.0", "b", RecipientState::Dead);
        })
    };
    for policy in [InDoubt::Hold, InDoubt::AssumeSent, InDoubt::Resend] {
        rejected(&resent(policy, Decider::Operator), &[9]);
        let asked = |by| {
            let mut history = resent(policy, by);
            resend(&mut history, 24.0, ("r200.0", Some("b")), ok(216));
            history
        };
        accepted(&asked(Decider::Operator));
        if policy != InDoubt::Resend {
            rejected(&asked(Decider::Policy), &[9]);
        }
    }
    accepted(&resent(InDoubt::Resend, Decider::Policy));
}

#[test]
fn i10_skipped_instant_without_earlier_run_is_rejected() {
    let passed = |outcome, may_skip: bool, schedule: &str| {
        with(|history| {
            history.header.policies.may_skip = may_skip;
            history.due(("default", schedule), 37.0, "team");
            history.explained(schedule, 37.0, outcome);
        })
    };
    rejected(&passed(PassedOver::Skipped, false, "daily"), &[10]);
    rejected(&passed(PassedOver::Skipped, true, "never"), &[10]);
    accepted(&passed(PassedOver::Skipped, true, "daily"));
    rejected(&passed(PassedOver::Refused, false, "never"), &[10]);
    accepted(&passed(PassedOver::Refused, false, "daily"));
}

/// A triggered run may open before an instant that no leader could open. Then the instant is skipped.
#[test]
fn i10_instant_skipped_for_run_that_opened_in_time_is_accepted() {
    let skipped = with(|history| {
        history.header.policies.may_skip = true;
        history.due(("default", "ping"), 21.5, "solo");
        history.explained("ping", 21.5, PassedOver::Skipped);
    });
    accepted(&skipped);
    let mut without_an_outage = skipped;
    without_an_outage.drop_first(|event| matches!(event, Event::Outage(_)));
    rejected(&without_an_outage, &[10]);
}

#[test]
fn i4_range_explains_its_count_of_instants() {
    let range = |count: u64| {
        with(|history| {
            history.header.policies.may_skip = true;
            (0..10).for_each(|number| history.due(("default", "daily"), 36.1 + f64::from(number) / 10.0, "team"));
            history.explained("daily", 36.1, PassedOver::Skipped);
            let Some(Event::Explained(explained)) = history.events.last_mut() else { unreachable!() };
            (explained.last_unix_ms, explained.count) = (ms(37.0), count);
        })
    };
    accepted(&range(10));
    rejected(&range(8), &[4]);
}

/// Opens the run of `daily` whose instant is at 34 s `by_ms` milliseconds late.
fn late(history: &mut TestHistory, by_ms: i64) {
    history.change_run("r250.0", |run| run.opened_unix_ms += by_ms);
}

#[test]
fn i10_outage_excuses_its_length_and_leader_wait() {
    let out = |to_s: f64, by_ms: i64| {
        with(|history| {
            history.events.push(Event::Outage(Outage { from_ns: ns(34.0), until_ns: ns(to_s) }));
            late(history, by_ms);
        })
    };
    let ended_before = with(|history| {
        history.events.push(Event::Outage(Outage { from_ns: ns(33.5), until_ns: ns(33.9) }));
        late(history, 12_000);
    });
    accepted(&ended_before); // The next leader waited until 43.9 s.
    // A lease and a margin are 5 s, the bound is 3 s, and it opens 0.1 s late in any case.
    accepted(&out(34.2, 13_000));
    rejected(&out(34.2, 13_300), &[10]);
    accepted(&out(36.2, 14_900));
}

#[test]
fn i10_pause_excuses_until_resume() {
    let target = || Target::Schedule { tenant: "default".to_owned(), schedule: "daily".to_owned() };
    let paused = |resumed_s: f64| {
        with(|history| {
            late(history, 4_000);
            history.call(31.0, 31.1, Operation::Pause { target: target() }, ok(24));
            history.call(resumed_s, resumed_s + 0.1, Operation::Resume { target: target() }, ok(25));
        })
    };
    accepted(&paused(37.9));
    rejected(&paused(32.0), &[10]);
}

#[test]
fn i12_tenant_that_gets_nothing_is_late() {
    let nothing = with(|history| {
        history.drop_first(|event| matches!(event, Event::Handoff(mail) if mail.run == "r225.0"));
        history.drop_first(|event| matches!(event, Event::Claim(claim) if claim.run == "r225.0"));
        history.set_final_state("r225.0", "d", RecipientState::Pending);
    });
    rejected(&nothing, &[4, 12]);
}

/// Gives the resumption of `r220.0`, which was paused at 221, this answer.
fn resumption(history: &mut TestHistory, answer: Answer) {
    history.change_first(|event| match event {
        Event::Call(call) if matches!(&call.operation, Operation::Resume { target: Target::Run(_) }) => {
            call.answer = answer.clone();
            true
        }
        _ => false,
    });
}

#[test]
fn i8_resumption_without_log_index_excuses_nothing_before_it() {
    let nowhere = || Answer::Ok { index: None, run: None, crossed: vec![], unconfirmed: vec![] };
    for answer in [nowhere(), Answer::Unknown] {
        let judgement = with(|history| resumption(history, answer.clone())).judge();
        assert!(judgement.valid, "what came later may have come after it\n{}", judgement.table());
        // It was asked for at 28 s.
        let before = with(|history| {
            resumption(history, answer.clone());
            history.claim("r220.0", "d", fence(210, 223), ("n1", 1), 26.0);
        });
        rejected(&before, &[8]);
    }
}

#[test]
fn i8_of_two_resumptions_first_in_log_counts() {
    let target = Target::Run("r220.0".to_owned());
    let two = with(|history| {
        resumption(history, ok(236));
        history.call(28.05, 28.2, Operation::Resume { target }, ok(229));
    });
    accepted(&two);
}

#[test]
fn i8_ledger_records_resumption_without_answer() {
    // Claims of unknown instants: their times alone prove nothing.
    let timeless = |history: &mut TestHistory, index: u64| {
        history.claim("r220.0", "d", fence(210, index), ("n1", 1), 28.5);
        let Some(Event::Claim(claim)) = history.events.last_mut() else { unreachable!() };
        claim.committed_ns = None;
    };
    let recorded = |history: &mut TestHistory| {
        resumption(history, Answer::Unknown);
        history.events.push(Event::Resumption(Resumption { run: "r220.0".into(), index: 227 }));
    };
    let unknown = with(|history| {
        resumption(history, Answer::Unknown);
        timeless(history, 229);
    });
    assert!(matches!(verdict(&unknown, 8), Verdict::Unknown { .. }));
    let behind = with(|history| {
        recorded(history);
        timeless(history, 229);
    });
    assert!(verdict(&behind, 8).is_true());
    let before = with(|history| {
        recorded(history);
        timeless(history, 224);
    });
    assert!(verdict(&before, 8).is_false());
}

//! Bad histories, made by hand from the good history. Each test names the invariants that must reject its history.

use reveille_check::Verdict;
use reveille_check::events::*;

use crate::good::{TestHistory, backfill, code_of, fence, good, ms, ns, ok, opened, read, shows, trigger, write};
use crate::{accepted, rejected, verdict, with};

impl TestHistory {
    /// Changes the first event for which `change` returns true.
    #[track_caller]
    pub fn change_first(&mut self, change: impl FnMut(&mut Event) -> bool) {
        assert!(self.events.iter_mut().any(change), "there is no such event");
    }

    #[track_caller]
    pub fn change_mail(&mut self, run: &str, recipient: &str, change: impl Fn(&mut Handoff)) {
        self.change_first(|event| match event {
            Event::Handoff(mail) if mail.run == run && mail.recipient == recipient => {
                change(mail);
                true
            }
            _ => false,
        });
    }

    /// Puts a recipient in doubt, and removes all outcomes of its claim.
    #[track_caller]
    pub fn leave_in_doubt(&mut self, run: &str, recipient: &str) {
        self.set_final_state(run, recipient, RecipientState::InDoubt);
        self.events.retain(
            |event| !matches!(event, Event::Outcome(outcome) if outcome.run == run && outcome.recipient == recipient),
        );
    }

    #[track_caller]
    pub fn set_final_state(&mut self, run: &str, recipient: &str, state: RecipientState) {
        self.change_first(|event| match event {
            Event::FinalState(final_state) if final_state.run == run && final_state.recipient == recipient => {
                final_state.state = state;
                true
            }
            _ => false,
        });
    }

    #[track_caller]
    pub fn change_run(&mut self, run: &str, change: impl Fn(&mut Run)) {
        self.change_first(|event| match event {
            Event::Run(changed) if changed.run == run => {
                change(changed);
                true
            }
            _ => false,
        });
    }

    #[track_caller]
    pub fn change_fault(&mut self, kind: FaultKind, change: impl Fn(&mut Fault)) {
        self.change_first(|event| match event {
            Event::Fault(fault) if fault.kind == kind => {
                change(fault);
                true
            }
            _ => false,
        });
    }

    #[track_caller]
    pub fn drop_first(&mut self, picks: impl FnMut(&Event) -> bool) {
        let position = self.events.iter().position(picks).expect("there is no such event");
        self.events.remove(position);
    }
}

fn is_claim(event: &Event, run: &str, recipient: &str) -> bool {
    matches!(event, Event::Claim(claim) if claim.run == run && claim.recipient == recipient)
}

fn is_mail(event: &Event, run: &str, recipient: &str) -> bool {
    matches!(event, Event::Handoff(mail) if mail.run == run && mail.recipient == recipient)
}

#[test]
fn i1_second_accept_under_another_claim_is_rejected() {
    let again = |history: &mut TestHistory| {
        history.claim("r120.0", "m7", fence(210, 240), ("n1", 1), 31.0);
        history.handoff("r120.0", "m7", fence(210, 240), "n1", 31.1, Answered::Accepted);
    };
    // An email that was accepted twice passed two gates, so I3 is false too.
    rejected(&with(again), &[1, 3]);
    let doubted = with(|history| {
        history.handoff("r200.0", "b", fence(210, 216), "n1", 25.0, Answered::Accepted);
        history.claim("r200.0", "b", fence(210, 216), ("n1", 1), 24.9);
    });
    // The recipient is still in doubt in the ledger, although no fault affected the last owner of its claim.
    rejected(&doubted, &[1, 3, 5]);
    assert_eq!(doubted.judge().duplicates, 1);
}

#[test]
fn i1_under_resend_duplicate_without_step_is_rejected() {
    let again = |history: &mut TestHistory| {
        history.header.in_doubt = InDoubt::Resend;
        history.claim("r200.0", "b", fence(210, 216), ("n1", 1), 24.9);
        history.handoff("r200.0", "b", fence(210, 216), "n1", 25.0, Answered::Accepted);
        history.set_final_state("r200.0", "b", RecipientState::Sent);
    };
    rejected(&with(again), &[1, 3]);
    let mut owned = with(again);
    // The policy sends again in the entry that puts the recipient in doubt, so no earlier outcome shows the doubt.
    owned.outcome("r200.0", "b", 215, OutcomeKind::Resent(Decider::Policy));
    let judgement = accepted(&owned);
    assert_eq!(judgement.duplicates, 1, "by choice, and counted");
    owned.header.in_doubt = InDoubt::Hold;
    rejected(&owned, &[1, 3, 9]);
}

#[test]
fn i2_refused_or_unanswered_handoff_without_claim_is_rejected() {
    let unclaimed = |answer| with(|history| history.handoff("r120.0", "m7", fence(10, 99), "n1", 12.25, answer));
    rejected(&unclaimed(Answered::Refused), &[2]);
    assert!(crate::broken(&unclaimed(Answered::Nothing).judge()).contains(&2));
    accepted(&unclaimed(Answered::Cut)); // It may have been before its gate.
}

#[test]
fn i2_accept_under_wrong_or_late_claim_is_rejected() {
    let others = with(|history| history.change_mail("r120.0", "m7", |mail| mail.node = "n1".into()));
    rejected(&others, &[2]);
    let late = with(|history| history.change_mail("r120.0", "m7", |mail| mail.data_ns -= ns(0.2)));
    rejected(&late, &[2]);
}

/// n2 was killed at 21 s, and its next process started at 24 s.
#[test]
fn i2_accept_by_another_process_than_owner_of_its_claim_is_rejected() {
    let of = |incarnation, at_s: f64| {
        with(|history| {
            history.change_mail("r220.0", "d", |mail| (mail.data_ns, mail.at_ns) = (ns(at_s - 0.01), ns(at_s)));
            history.change_first(|event| match event {
                Event::Claim(claim) if claim.run == "r220.0" => {
                    (claim.incarnation, claim.committed_ns) = (incarnation, Some(ns(20.0)));
                    true
                }
                _ => false,
            });
        })
    };
    assert!(crate::broken(&of(1, 29.0).judge()).contains(&2), "the former process ended at 21 s");
    assert!(crate::broken(&of(2, 23.9).judge()).contains(&2), "the next process started at 24 s");
    assert!(!crate::broken(&of(2, 24.1).judge()).contains(&2));
    assert!(!crate::broken(&of(3, 29.0).judge()).contains(&2), "the lifetime of this process was not observed");
}

#[test]
fn i3_repeated_fence_or_second_gate_pass_is_rejected() {
    let twice = |answer| with(|history| history.handoff("r120.0", "m7", fence(10, 121), "n2", 12.6, answer));
    rejected(&twice(Answered::Refused), &[3]);
    let second = with(|history| {
        history.claim("r120.0", "m7", fence(210, 240), ("n1", 1), 31.0);
        history.handoff("r120.0", "m7", fence(210, 240), "n1", 31.1, Answered::Nothing);
    });
    rejected(&second, &[3]);
    let refused = with(|history| {
        history.claim("r120.0", "m7", fence(10, 99), ("n1", 1), 12.2);
        history.handoff("r120.0", "m7", fence(10, 99), "n1", 12.25, Answered::Refused);
    });
    accepted(&refused); // After a definite refusal, the next one is the first.
    let refused_after_accept = with(|history| {
        history.claim("r120.0", "m7", fence(210, 240), ("n1", 1), 31.0);
        history.handoff("r120.0", "m7", fence(210, 240), "n1", 31.1, Answered::Refused);
    });
    rejected(&refused_after_accept, &[3]);
}

#[test]
fn i4_lost_instant_is_rejected() {
    rejected(&with(|history| history.due(("default", "daily"), 37.0, "team")), &[4]);
    assert_eq!(with(|history| history.due(("default", "daily"), 37.0, "team")).judge().lost, Some(3));
    let waiting = with(|history| {
        history.due(("default", "daily"), 37.0, "team");
        history.explained("daily", 37.0, PassedOver::Waiting);
    });
    rejected(&waiting, &[4]);
}

#[test]
fn i5_doubt_beyond_faults_or_of_unclaimed_recipient_is_rejected() {
    let more = with(|history| {
        history.leave_in_doubt("r120.0", "m7");
        history.leave_in_doubt("r120.0", "m8");
    });
    rejected(&more, &[5]);
    rejected(&with(|history| history.leave_in_doubt("r310.0", "d")), &[5]);
    let lose_journal = |history: &mut TestHistory| {
        history.change_fault(FaultKind::Kill, |fault| fault.journals_lost = true);
    };
    let mut lost = with(|history| {
        history.leave_in_doubt("r120.0", "m4");
        history.leave_in_doubt("r120.0", "m7");
    });
    rejected(&lost, &[5]);
    lose_journal(&mut lost);
    accepted(&lost); // With its journal lost, a node may leave its claim cap.
    let mut others = more;
    lose_journal(&mut others);
    rejected(&others, &[5]);
}

/// Makes the campaign take twice as long, so that no node begins two emails within a tenth of a second.
fn slow_campaign(history: &mut TestHistory) {
    for number in 0..90 {
        history.change_mail("r120.0", &format!("m{number}"), |mail| {
            mail.data_ns += ns(0.02) * number;
            mail.at_ns += ns(0.02) * number;
        });
    }
}

/// n2 has claimed the thirty recipients of the campaign whose numbers are one more than a multiple of three. Its claim
/// cap is measured at the sink, for each of two tenants: ten times the email that it began within a tenth of a second
/// and one for each session, or four for each session.
#[test]
fn i5_power_cut_excuses_no_more_than_measured_claim_cap() {
    let cut = |sessions: u32, doubts: u32| {
        with(|history| {
            slow_campaign(history);
            history.header.sessions = sessions;
            (0..doubts).for_each(|number| {
                history.leave_in_doubt("r120.0", &format!("m{}", 3 * number + 1));
            });
            history.change_fault(FaultKind::Kill, |fault| fault.journals_lost = true);
        })
    };
    accepted(&cut(3, 25)); // 26 with the one past its gate.
    assert_eq!(cut(3, 25).judge().in_doubt_allowed, 2 * (10 + 3) + 1);
    rejected(&cut(3, 26), &[5]);
    accepted(&cut(8, 30));
    assert_eq!(cut(8, 30).judge().in_doubt_allowed, 33, "what n2 had claimed and not settled, below 2 * 4 * 8");
}

#[test]
fn i5_claims_of_short_lived_process_may_be_open_too() {
    let doubts = |history: &mut TestHistory| {
        slow_campaign(history);
        history.header.sessions = 3;
        (0..30).for_each(|number| {
            history.leave_in_doubt("r120.0", &format!("m{}", 3 * number + 1));
        });
        history.fault(FaultKind::PowerCut, &["n2"], 21.0).journals_lost = true;
    };
    let started = |at_s: f64| {
        move |history: &mut TestHistory| {
            doubts(history);
            let is_own = |lifetime: &Lifetime| lifetime.node == "n2" && lifetime.ended_ns == Some(ns(21.0));
            history.change_first(|event| match event {
                Event::Lifetime(lifetime) if is_own(lifetime) => {
                    lifetime.started_ns = ns(at_s);
                    true
                }
                _ => false,
            });
            history.change_first(|event| match event {
                Event::Claim(claim) if claim.run == "r100.0" && claim.node == "n2" => {
                    claim.incarnation = 7;
                    true
                }
                _ => false,
            });
            let (node, end) = ("n2".to_owned(), Some(LifetimeEnd::Killed));
            let former = Lifetime { node, incarnation: Some(7), started_ns: 0, ended_ns: Some(ns(at_s)), end };
            history.events.push(Event::Lifetime(former));
        }
    };
    accepted(&with(started(12.0)));
    rejected(&with(started(10.9)), &[5]);
}

#[test]
fn i5_fault_of_one_node_explains_no_doubt_of_another() {
    // n2 was killed with one handoff past its gate. This recipient is no longer in doubt, so the kill explains another.
    let doubt = |run: &'static str, recipient: &'static str| {
        with(|history| {
            history.set_final_state("r200.0", "b", RecipientState::Sent);
            history.set_final_state(run, recipient, RecipientState::InDoubt);
        })
    };
    accepted(&doubt("r120.0", "m7")); // n2 had claimed it when it was killed.
    let others = doubt("r120.0", "m6");
    assert_eq!((others.judge().in_doubt, others.judge().in_doubt_allowed), (2, 2), "the sum would allow it");
    rejected(&others, &[5]);
    // The process that claimed it started long after the kill.
    rejected(&doubt("r255.0", "d"), &[5]);
}

#[test]
fn i5_fault_of_several_nodes_explains_handoffs_of_each() {
    // n1 claimed m6, and n2 claimed m7.
    let killed = |past_gate: [u64; 2]| {
        with(|history| {
            history.set_final_state("r200.0", "b", RecipientState::Sent);
            history.set_final_state("r120.0", "m7", RecipientState::InDoubt);
            history.change_fault(FaultKind::Kill, |fault| {
                fault.nodes = ["n1", "n2"].map(str::to_owned).to_vec();
                fault.past_gate = ["n1", "n2"].map(str::to_owned).into_iter().zip(past_gate).collect();
            });
        })
    };
    accepted(&killed([0, 1]));
    rejected(&killed([1, 0]), &[5]);
}

/// The policy sends `m7` again, whose claim n2 owned.
#[test]
fn i5_doubt_that_policy_sent_again_is_explained_too() {
    let resent_by = |by: Decider, change: fn(&mut TestHistory)| {
        with(|history| {
            history.header.in_doubt = InDoubt::Resend;
            for kind in [OutcomeKind::InDoubt, OutcomeKind::Resent(by)] {
                history.outcome("r120.0", "m7", 150, kind);
                let Some(Event::Outcome(outcome)) = history.events.last_mut() else { unreachable!() };
                outcome.fence = Some(fence(10, 121));
            }
            history.claim("r120.0", "m7", fence(10, 160), ("n1", 1), 16.0);
            history.handoff("r120.0", "m7", fence(10, 160), "n1", 16.1, Answered::Accepted);
            change(history);
        })
    };
    let resent = |change| resent_by(Decider::Policy, change);
    rejected(&resent(|_| {}), &[5]);
    // An operator's request about all recipients of the run changes nothing, if the policy decided.
    let asks = |history: &mut TestHistory| {
        history.call(15.0, 15.1, Operation::Resend { run: "r120.0".to_owned(), recipient: None }, ok(155));
    };
    rejected(&resent(asks), &[5]);
    accepted(&resent_by(Decider::Operator, asks));
    accepted(&resent(|history| history.change_mail("r120.0", "m7", |mail| mail.answer = Answered::Nothing)));
    accepted(&resent(|history| {
        history.fault(FaultKind::Kill, &["n2"], 12.5).past_gate = [("n2".to_owned(), 1)].into()
    }));
    let others = |history: &mut TestHistory| {
        history.fault(FaultKind::Kill, &["n1"], 12.5).past_gate = [("n1".to_owned(), 1)].into();
    };
    rejected(&resent(others), &[5]);
}

#[test]
fn i5_permanent_partition_hides_journals_of_both_sides() {
    let cut = |node: &'static str| {
        with(|history| {
            history.set_final_state("r255.0", "d", RecipientState::InDoubt);
            history.fault(FaultKind::Partition, &[node], 39.0).until_ns = None;
        })
    };
    accepted(&cut("n2")); // n2 had claimed it.
    rejected(&cut("n3"), &[5]);
}

fn answer_of(history: &mut TestHistory, recipient: &str, change: impl Fn(&mut Vec<Crossing>, &mut Vec<String>)) {
    history.change_first(|event| match event {
        Event::Call(Call {
            operation: Operation::OptOut { recipient: opted_out, .. },
            answer: Answer::Ok { crossed, unconfirmed, .. },
            ..
        }) if opted_out == recipient => {
            change(crossed, unconfirmed);
            true
        }
        _ => false,
    });
}

#[test]
fn i6_handoff_begun_after_answer_is_rejected() {
    for recipient in ["b", "c"] {
        rejected(&with(|history| history.change_mail("r230.0", recipient, |mail| mail.data_ns = mail.at_ns - 1)), &[6]);
    }
}

#[test]
fn i6_email_that_opt_out_answer_did_not_name_is_rejected() {
    rejected(&with(|history| answer_of(history, "b", |crossed, _| crossed.clear())), &[6]);
    rejected(&with(|history| answer_of(history, "b", |crossed, _| crossed[0].number = 2)), &[6]);
    rejected(&with(|history| answer_of(history, "b", |crossed, _| crossed[0].fence = fence(210, 230))), &[6]);
    rejected(&with(|history| answer_of(history, "c", |_, unconfirmed| unconfirmed.clear())), &[6]);
    rejected(&with(|history| answer_of(history, "c", |_, unconfirmed| unconfirmed[0] = "n1".to_owned())), &[6]);
    let not_lifted =
        |event: &Event| matches!(event, Event::Call(call) if matches!(call.operation, Operation::TakeBack { .. }));
    let mut without = with(|history| history.drop_first(not_lifted));
    without.found(ObjectKind::OptOut, "m0", "opted_out");
    rejected(&without, &[6]);
    let refused = with(|history| {
        history.claim("r220.0", "a", fence(210, 236), ("n1", 1), 29.0);
        history.handoff("r220.0", "a", fence(210, 236), "n1", 29.1, Answered::Refused);
    });
    rejected(&refused, &[6]);
}

#[test]
fn i7_lost_returned_or_old_write_is_rejected() {
    let daily = |event: &Event| matches!(event, Event::Found(found) if found.name == "daily");
    rejected(&with(|history| history.drop_first(daily)), &[7]);
    rejected(&with(|history| history.found(ObjectKind::Schedule, "old", "v1")), &[7]);
    let holds = |value: &'static str| {
        with(|history| {
            history.drop_first(daily);
            history.found(ObjectKind::Schedule, "daily", value);
        })
    };
    rejected(&holds("v1"), &[7]);
    rejected(&holds("v9"), &[7]);
    accepted(&holds("v3")); // What may have happened may be there.
    let opted_out = |event: &Event| matches!(event, Event::Found(found) if found.kind == ObjectKind::OptOut);
    rejected(&with(|history| history.drop_first(opted_out)), &[7]);
    rejected(&with(|history| history.found(ObjectKind::OptOut, "m0", "opted_out")), &[7]);
}

/// Returns one more read of a schedule.
fn and_read(name: &'static str, at_s: f64, value: Option<&'static str>) -> TestHistory {
    with(|history| history.call(at_s, at_s + 0.1, read(ObjectKind::Schedule, name), shows(value)))
}

#[test]
fn i7_stale_read_is_rejected() {
    rejected(&and_read("daily", 9.2, Some("v1")), &[7]);
    accepted(&and_read("daily", 9.08, Some("v1"))); // The write that replaces it had no answer yet.
    rejected(&and_read("daily", 1.2, None), &[7]);
    rejected(&and_read("old", 9.2, Some("v1")), &[7]);
    let opt_out = with(|history| history.call(27.3, 27.4, read(ObjectKind::OptOut, "a"), shows(None)));
    rejected(&opt_out, &[7]);
}

#[test]
fn i7_read_of_unwritten_value_is_rejected() {
    rejected(&and_read("daily", 30.0, Some("another")), &[7]);
    rejected(&and_read("daily", 30.0, Some("v9")), &[7]);
    rejected(&and_read("daily", 8.0, Some("v2")), &[7]);
    rejected(&and_read("unwritten", 30.0, Some("v1")), &[7]);
    accepted(&and_read("unwritten", 30.0, None));
    accepted(&and_read("daily", 24.0, Some("v2"))); // A write without an answer may never be done.
}

#[test]
fn i7_read_that_goes_back_is_rejected() {
    // A write without an answer is undecided until a read returns it.
    rejected(&and_read("unanswered", 32.0, Some("v1")), &[7]);
    accepted(&and_read("unanswered", 28.95, Some("v1"))); // It was seen by a read that was not over yet.
    // Two writes were under way together. A read of v3 after v2 proves that v3 replaced v2.
    rejected(&and_read("both", 31.0, Some("v2")), &[7]);
    rejected(&and_read("both", 31.0, Some("v1")), &[7]);
    let at_the_end = |name: &'static str, value: &'static str| {
        with(|history| {
            history.drop_first(|event| matches!(event, Event::Found(found) if found.name == name));
            history.found(ObjectKind::Schedule, name, value);
        })
    };
    rejected(&at_the_end("unanswered", "v1"), &[7]);
    rejected(&at_the_end("both", "v2"), &[7]);
    // The same value by two requests: either may be the one that was read.
    let again = with(|history| {
        history.call_as("again", 26.0, write(ObjectKind::Schedule, "both", Some("v2")), ok(227));
        history.call(31.0, 31.1, read(ObjectKind::Schedule, "both"), shows(Some("v2")));
        history.drop_first(|event| matches!(event, Event::Found(found) if found.name == "both"));
        history.found(ObjectKind::Schedule, "both", "v2");
    });
    accepted(&again);
}

#[test]
fn i7_two_calls_of_one_request_are_one_write() {
    let written_by = |other: &'static str| {
        with(|history| {
            for (id, at_s) in [("w1", 30.0), (other, 32.0)] {
                history.call_as(id, at_s, write(ObjectKind::Schedule, "one", Some("v1")), ok(240));
            }
            history.call_as("w2", 31.0, write(ObjectKind::Schedule, "one", Some("v2")), ok(241));
            history.found(ObjectKind::Schedule, "one", "v1");
        })
    };
    rejected(&written_by("w1"), &[7]);
    accepted(&written_by("w3")); // It was written once more.
}

#[test]
fn i7_request_id_with_two_answers_is_rejected() {
    rejected(&with(|history| history.call_as("t2", 42.1, trigger(), opened(300, "r300.0"))), &[7]);
    rejected(&with(|history| history.call_as("t2", 43.0, write(ObjectKind::Schedule, "other", None), ok(312))), &[7]);
}

#[test]
fn i7_changed_version_or_audience_is_rejected() {
    for (kind, name, value) in
        [(ObjectKind::TemplateVersion, "letter@1", "first"), (ObjectKind::Audience, "list", "6 in 1")]
    {
        let own = |event: &Event| matches!(event, Event::Found(found) if found.name == name);
        rejected(&with(|history| history.drop_first(own)), &[7]);
        let changed = |value| {
            with(|history| {
                history.drop_first(own);
                history.found(kind, name, value);
            })
        };
        rejected(&changed("another"), &[7]);
        // Of two answered writes, the one that is found was lost by the other.
        let twice = with(|history| {
            history.drop_first(own);
            history.call(5.0, 5.1, write(kind, name, Some("another")), ok(29));
            history.found(kind, name, "another");
        });
        rejected(&twice, &[7]);
        accepted(&with(|history| history.call(5.0, 5.1, write(kind, name, Some(value)), ok(29))));
    }
    rejected(&with(|history| history.found(ObjectKind::TemplateVersion, "letter@3", "first")), &[7]);
}

#[test]
fn i7_erased_person_that_is_found_is_rejected() {
    rejected(&with(|history| history.found(ObjectKind::Person, "e", LISTED)), &[7]);
    let unanswered = with(|history| {
        history.change_first(|event| match event {
            Event::Call(Call {
                operation: Operation::Write { kind: ObjectKind::Person, value: None, .. },
                answer,
                ..
            }) => {
                *answer = Answer::Unknown;
                true
            }
            _ => false,
        });
        history.found(ObjectKind::Person, "e", LISTED);
    });
    accepted(&unanswered); // It may not be erased yet.
}

#[test]
fn i6_email_to_erased_person_is_rejected() {
    let sent = with(|history| {
        history.claim("r230.0", "e", fence(210, 243), ("n1", 1), 30.7);
        history.handoff("r230.0", "e", fence(210, 243), "n1", 30.8, Answered::Accepted);
    });
    assert!(crate::broken(&sent.judge()).contains(&6), "{}", sent.judge().table());
}

#[test]
fn i8_claim_run_or_email_after_pause_or_cancel_is_rejected() {
    rejected(&with(|history| history.claim("r220.0", "d", fence(210, 222), ("n1", 1), 26.0)), &[8]);
    rejected(&with(|history| history.claim("r310.0", "d", fence(210, 312), ("n1", 1), 43.0)), &[8]);
    let run = with(|history| {
        history.run("r116.0", ("default", "weekly"), 16.0, 116);
        history.sends("r116.0", ("d", 0), fence(10, 118), ("n1", 1), 16.5);
    });
    rejected(&run, &[8]);
    let early = with(|history| {
        history.claim("r220.0", "d", fence(210, 220), ("n2", 2), 25.1);
        history.handoff("r220.0", "d", fence(210, 220), "n2", 25.5, Answered::Refused);
    });
    rejected(&early, &[8]);
    let before = with(|history| {
        history.claim("r220.0", "d", fence(210, 220), ("n2", 2), 25.1);
        history.handoff("r220.0", "d", fence(210, 220), "n2", 25.19, Answered::Refused);
    });
    accepted(&before); // It came before the answer.
}

#[test]
fn i8_unknown_resume_excuses_nothing_before_its_call() {
    let lost = |change: fn(&mut TestHistory)| {
        with(|history| {
            history.change_first(|event| match event {
                Event::Call(call) if call.operation == resume_of_r220() => {
                    (call.answer, call.answered_ns) = (Answer::Unknown, None);
                    true
                }
                _ => false,
            });
            change(history);
        })
    };
    accepted(&lost(|_| {})); // It may have gone on.
    rejected(&lost(|history| history.claim("r220.0", "d", fence(210, 222), ("n1", 1), 27.9)), &[8]);
    let after = lost(|history| history.claim("r220.0", "d", fence(210, 222), ("n1", 1), 28.05));
    accepted(&after); // It may have gone on by then.
}

fn resume_of_r220() -> Operation {
    Operation::Resume { target: Target::Run("r220.0".to_owned()) }
}

#[test]
fn i9_sent_without_arrival_and_arrival_without_sent_are_rejected() {
    let gone = with(|history| history.drop_first(|event| is_mail(event, "r300.0", "d")));
    rejected(&gone, &[9]);
    assert_eq!(gone.judge().lost, Some(1));
    rejected(&with(|history| history.set_final_state("r100.0", "c", RecipientState::Sent)), &[9]);
    for state in [RecipientState::Dead, RecipientState::Expired, RecipientState::Suppressed, RecipientState::Cancelled]
    {
        rejected(&with(|history| history.set_final_state("r120.0", "m7", state)), &[9]);
    }
}

/// The order of events means nothing, so no reading may replace another.
#[test]
fn second_reading_with_another_content_is_rejected() {
    let read_again = |change: fn(&mut Event)| {
        with(|history| {
            let is_read = |event: &&Event| match event {
                Event::Run(run) => run.run == "r310.0",
                Event::FinalState(read) => read.run == "r310.0",
                _ => false,
            };
            let again: Vec<Event> = history.events.iter().filter(is_read).cloned().collect();
            history.events.extend(again.into_iter().map(|mut event| {
                change(&mut event);
                event
            }));
        })
    };
    accepted(&read_again(|_| {}));
    let ends = |event: &mut Event| {
        if let Event::FinalState(read) = event {
            read.state = RecipientState::Suppressed;
        }
    };
    assert!(crate::broken(&read_again(ends).judge()).contains(&9));
    let opens = |event: &mut Event| {
        if let Event::Run(run) = event {
            run.opened_index += 1;
        }
    };
    rejected(&read_again(opens), &[10]);
}

#[test]
fn i9_assumed_recipient_without_request_is_rejected() {
    let assume =
        |event: &Event| matches!(event, Event::Call(call) if matches!(call.operation, Operation::Assume { .. }));
    let mut unasked = with(|history| history.drop_first(assume));
    rejected(&unasked, &[9]);
    let all_at = |index| {
        let mut history = unasked.clone();
        history.call(36.0, 36.1, Operation::Assume { run: "r250.0".to_owned(), recipient: None }, ok(index));
        history
    };
    rejected(&all_at(251), &[9]); // It came into doubt at 252.
    accepted(&all_at(253));
    unasked.header.in_doubt = InDoubt::AssumeSent;
    accepted(&unasked); // By policy.
}

#[test]
fn i9_email_without_unique_message_id_is_rejected() {
    let changed = |change: fn(&mut Handoff)| with(|history| history.change_mail("r120.0", "m7", change));
    rejected(&changed(|mail| mail.message_id = None), &[9]);
    // The Message-ID of m8.
    rejected(&changed(|mail| mail.message_id = Some("<r120.0.m8@example.net>".into())), &[9]);
    // The relay had refused it once, and it came again with another Message-ID or another body.
    let again = |change: fn(&mut Handoff)| {
        with(|history| {
            history.change_first(|event| match event {
                Event::Handoff(mail) if mail.recipient == "b" && mail.answer == Answered::Refused => {
                    change(mail);
                    true
                }
                _ => false,
            });
        })
    };
    rejected(&again(|mail| mail.message_id = Some("<another@example.net>".into())), &[9]);
    rejected(&again(|mail| mail.body = Some("another".into())), &[9]);
    accepted(&again(|mail| mail.body = None)); // Its body was not read.
}

#[test]
fn i9_malformed_message_is_rejected() {
    let bare = with(|history| {
        history.change_first(|event| match event {
            Event::Handoff(mail) if mail.recipient == "b" && mail.answer == Answered::Refused => {
                mail.answer = Answered::Malformed;
                true
            }
            _ => false,
        });
    });
    rejected(&bare, &[9]);
}

#[test]
fn i10_extra_run_of_instant_or_trigger_is_rejected() {
    let extra = with(|history| history.run("r350.0", ("default", "daily"), 33.0, 350));
    rejected(&extra, &[10]);
    let twice = with(|history| {
        history.run("r221.0", ("default", "ping"), 25.0, 221);
        history.sends("r221.0", ("d", 0), fence(210, 223), ("n1", 1), 25.6);
    });
    rejected(&twice, &[10]);
    let triggered = |id: &'static str, change: fn(&mut TestHistory)| {
        with(|history| {
            history.run_of("r352.0", ("default", "asked"), 43.0, 352, Some(id));
            history.sends("r352.0", ("d", 0), fence(210, 353), ("n1", 1), 43.5);
            change(history);
        })
    };
    rejected(&triggered("t1", |_| {}), &[10]);
    rejected(&triggered("t3", |_| {}), &[10]);
    let asks = |history: &mut TestHistory| history.call_as("t3", 43.0, trigger(), Answer::Unknown);
    accepted(&triggered("t3", asks));
    rejected(&triggered("t1", asks), &[10]); // A trigger that opened nothing is no other trigger's.
}

#[test]
fn recipients_of_unanswered_trigger_are_judged() {
    let asked = |change: fn(&mut TestHistory)| {
        with(|history| {
            history.call_as("t3", 43.0, trigger(), Answer::Unknown);
            history.run_of("r352.0", ("default", "asked"), 43.0, 352, Some("t3"));
            change(history);
        })
    };
    rejected(&asked(|_| {}), &[4]);
    let misdirected = asked(|history| {
        history.sends("r352.0", ("d", 0), fence(210, 353), ("n1", 1), 43.5);
        history.sends("r352.0", ("a", 1), fence(210, 354), ("n1", 1), 43.6);
    });
    assert!(crate::broken(&misdirected.judge()).contains(&10), "{}", misdirected.judge().table());
}

#[test]
fn i10_backfill_of_opened_instant_or_without_request_is_rejected() {
    let again = with(|history| {
        history.run("r280.0", ("default", "daily"), 5.0, 280);
        history.change_run("r280.0", |run| (run.cause, run.opened_unix_ms) = (RunCause::Backfill, ms(38.8)));
        let range = |value: i64| ms(5.0) + value;
        let (tenant, schedule) = ("default".to_owned(), "daily".to_owned());
        let (from_unix_ms, until_unix_ms) = (range(-1), range(1));
        let operation = Operation::Backfill { tenant, schedule, from_unix_ms, until_unix_ms };
        history.call(38.7, 38.9, operation, opened(280, "r280.0"));
        for (number, recipient) in ["a", "b", "c"].into_iter().enumerate() {
            history.item_state("r280.0", recipient, number as u32, RecipientState::Assumed);
            history.claim("r280.0", recipient, fence(210, 281), ("n1", 1), 39.0);
            let (run, recipient) = ("r280.0".to_owned(), None);
            history.call(39.1, 39.2, Operation::Assume { run, recipient }, ok(282));
        }
    });
    let judgement = again.judge();
    assert!(crate::broken(&judgement).contains(&10), "\n{}", judgement.table());
    let unasked = |change: fn(&mut Call)| {
        with(|history| {
            history.change_first(|event| match event {
                Event::Call(call) if matches!(call.operation, Operation::Backfill { .. }) => {
                    change(call);
                    true
                }
                _ => false,
            });
        })
    };
    rejected(&unasked(|call| call.operation = backfill(16.0, 16.9)), &[10]);
    rejected(&unasked(|call| call.answer = Answer::Failed { reason: "NOT_POSSIBLE".to_owned() }), &[10]);
    rejected(&unasked(|call| (call.invoked_ns, call.answered_ns) = (ns(43.0), Some(ns(43.1)))), &[10]);
    accepted(&unasked(|call| call.answer = Answer::Unknown));
}

#[test]
fn i10_early_late_skipped_and_misdirected_are_rejected() {
    let move_due = |seconds: f64| {
        with(|history| {
            let moved = (seconds * 1e3) as i64;
            history.change_first(|event| match event {
                Event::Due(due) if due.schedule == "campaign" => {
                    due.due_unix_ms += moved;
                    true
                }
                _ => false,
            });
            history.change_run("r120.0", |run| {
                run.due_unix_ms += moved;
                run.opened_unix_ms += moved;
            });
        })
    };
    rejected(&move_due(5.0), &[10]);
    accepted(&move_due(1.0)); // Clocks may be so far apart.
    let open = |by_ms: i64| with(|history| history.change_run("r120.0", |run| run.opened_unix_ms += by_ms));
    rejected(&open(-200), &[10]);
    rejected(&open(4_000), &[10]);
    let waited = |of: &str| {
        with(|history| {
            history.change_run("r250.0", |run| {
                run.opened_unix_ms += 4_000;
                run.waited_for = Some(of.into());
            });
        })
    };
    accepted(&waited("r230.0")); // Late since it waited for an earlier run.
    // A run does not wait for one of another schedule, for a later one, for itself, or for one that was finished.
    for of in ["r120.0", "r255.0", "r250.0", "r200.0"] {
        rejected(&waited(of), &[10]);
    }
    let over_an_outage = with(|history| history.change_run("r200.0", |run| run.opened_unix_ms += 4_000));
    accepted(&over_an_outage); // Late without a quorum.
    let passed = with(|history| {
        history.due(("default", "daily"), 37.0, "team");
        history.explained("daily", 37.0, PassedOver::Expired);
    });
    rejected(&passed, &[10]);
    rejected(&with(|history| history.sends("r120.0", ("z", 99), fence(10, 132), ("n1", 1), 14.0)), &[10]);
}

#[test]
fn i11_two_states_after_one_entry_are_rejected() {
    let differs = with(|history| {
        let (node, hash) = ("n3".to_owned(), "another".to_owned());
        history.events.push(Event::StateHash(StateHash { node, applied_index: 150, hash }));
    });
    rejected(&differs, &[11]);
}

#[test]
fn i12_tenant_that_waits_for_another_is_rejected() {
    let mail_late = |history: &mut TestHistory| {
        history.change_mail("r225.0", "d", |mail| {
            mail.at_ns += ns(9.0);
            mail.data_ns += ns(9.0);
        });
    };
    accepted(&with(mail_late)); // It was granted in time.
    // The outage until 23 s excuses the next ten seconds.
    let late = with(|history| {
        mail_late(history);
        for event in &mut history.events {
            if let Event::Claim(Claim { run, committed_ns, .. }) = event
                && *run == "r225.0"
            {
                *committed_ns = committed_ns.map(|at_ns| at_ns + ns(9.0));
            }
        }
    });
    rejected(&late, &[12]);
    let mut held = late.clone();
    let schedule = || Target::Schedule { tenant: "acme".to_owned(), schedule: "news".to_owned() };
    held.call(25.0, 25.1, Operation::Pause { target: schedule() }, Answer::Unknown);
    assert!(matches!(verdict(&held, 12), Verdict::Unknown { .. }), "its schedule may have been paused");
    let mut paused = late;
    paused.call(25.8, 25.9, Operation::Pause { target: Target::Run("r225.0".to_owned()) }, Answer::Unknown);
    assert!(matches!(verdict(&paused, 12), Verdict::Unknown { .. }), "an operator may have paused it");
}

#[test]
fn i13_backlog_that_drains_too_late_is_rejected() {
    let drained = |event: &Event| matches!(event, Event::Drained { .. });
    let mut history = good();
    history.drop_first(drained);
    rejected(&history, &[13]);
    history.events.push(Event::Drained { at_ns: ns(56.0) });
    rejected(&history, &[13]);
    history.ended.at_ns = ns(50.0);
    history.drop_first(drained);
    let judgement = history.judge();
    assert!(!judgement.valid && crate::broken(&judgement).is_empty(), "it may drain yet\n{}", judgement.table());
    assert!(crate::unknown(&judgement).contains(&13), "\n{}", judgement.table());
}

#[test]
fn i13_run_paused_without_cause_is_rejected() {
    let paused = |run: &'static str, change: fn(&mut TestHistory)| {
        with(|history| {
            history.events.push(Event::Paused { run: run.into() });
            change(history);
        })
    };
    accepted(&paused("r100.0", |_| {})); // Its emails were refused, so a guard may have paused it.
    rejected(&paused("r120.0", |_| {}), &[13]); // A broken relay is no cause without a refusal.
    let asks = |answer: Answer| {
        let mut history = paused("r120.0", |_| {});
        history.call(1.0, 1.1, Operation::Pause { target: Target::Run("r120.0".to_owned()) }, answer);
        history
    };
    let is_broken = |history: &TestHistory| crate::broken(&history.judge()).contains(&13);
    assert!(!is_broken(&asks(Answer::Unknown)), "an operator may have paused it");
    assert!(is_broken(&asks(Answer::Failed { reason: "NOT_FOUND".to_owned() })));
    let resumed = |answer: Answer, at_s: f64| {
        let mut history = asks(ok(120));
        history.call(at_s, at_s + 0.1, Operation::Resume { target: Target::Run("r120.0".to_owned()) }, answer);
        history
    };
    assert!(is_broken(&resumed(ok(121), 2.0)));
    assert!(!is_broken(&resumed(Answer::Unknown, 2.0)), "it may not have been resumed");
    assert!(!is_broken(&resumed(ok(119), 0.9)), "it was paused after that");
    assert!(!is_broken(&resumed(ok(300), 41.0)), "it was resumed when it was seen paused");
}

#[test]
fn i14_more_accepts_than_gate_passes_are_rejected() {
    let fewer = with(|history| {
        history.change_first(|event| match event {
            Event::GateReading(gate) if gate.node == "n1" => {
                gate.passes -= 4;
                true
            }
            _ => false,
        });
    });
    rejected(&fewer, &[14]);
    // Three more passes than handoffs were read.
    let refused = |times: u64| {
        with(|history| {
            for number in 0..times {
                history.claim("r100.0", "c", fence(10, 105 + number), ("n1", 1), 5.5);
                history.handoff("r100.0", "c", fence(10, 105 + number), "n1", 5.6, Answered::Refused);
            }
        })
    };
    accepted(&refused(3));
    rejected(&refused(4), &[14]);
}

#[test]
fn i14_last_reading_of_killed_process_counts() {
    let read = |node: &str, incarnation, at_s: f64, passes| {
        let node = node.to_owned();
        Event::GateReading(GateReading { at_ns: Some(ns(at_s)), node, incarnation, passes })
    };
    let killed = |event: &Event| matches!(event, Event::GateReading(gate) if (gate.node.as_str(), gate.incarnation) == ("n2", 1));
    let unread = with(|history| history.drop_first(killed));
    accepted(&unread); // A counter that went with its process.
    let living = |event: &Event| matches!(event, Event::GateReading(gate) if gate.node == "n1");
    rejected(&with(|history| history.drop_first(living)), &[14]);
    let arrived = |until_s: f64| {
        let emails = unread
            .events
            .iter()
            .filter(|event| matches!(event, Event::Handoff(mail) if mail.node == "n2" && mail.at_ns < ns(until_s)));
        emails.count() as u64
    };
    for at_s in [12.5, 13.0, 21.0] {
        let with_reading = |passes| {
            let mut history = unread.clone();
            history.events.push(read("n2", 1, at_s, passes));
            history
        };
        assert!(arrived(at_s) > 1);
        accepted(&with_reading(arrived(at_s)));
        rejected(&with_reading(arrived(at_s) - 1), &[14]);
    }
}

#[test]
fn i14_without_faults_they_are_equal() {
    let mut history = good();
    history.events.retain(|event| !matches!(event, Event::Fault(_)));
    history.header.coverage = Coverage::default();
    history.header.asks = vec![14];
    let judgement = history.judge();
    assert_eq!(crate::broken(&judgement), [14].into(), "some passes belong to emails that never came");
}

#[test]
fn i15_open_claim_of_ended_process_is_rejected() {
    let open_claim = |at_s: f64| {
        let (fence, node) = (fence(10, 202), "n2".to_owned());
        Event::OpenClaim(OpenClaim { at_ns: ns(at_s), fence, node, incarnation: 1, claimed: 1 })
    };
    // The process ended at 21 s; a leader could act from 23 s on; 4 + 1 + 1 s later it is too late.
    accepted(&with(|history| history.events.push(open_claim(28.9))));
    let stays = with(|history| history.events.push(open_claim(29.1)));
    rejected(&stays, &[15]);
    let mut leaderless = stays.clone();
    leaderless.events.push(Event::Outage(Outage { from_ns: ns(25.0), until_ns: ns(26.0) }));
    accepted(&leaderless); // No leader could revoke it.
    let cut = with(|history| {
        history.events.push(open_claim(29.1));
        history.fault(FaultKind::Partition, &["n3"], 25.0);
    });
    assert!(verdict(&cut, 15).is_true(), "the quorum is another one");
    let down = |nodes: &[&str], (from_s, until_s)| {
        let mut history = stays.clone();
        for lifetime in history.events.iter_mut().filter_map(|event| match event {
            Event::Lifetime(lifetime) if nodes.contains(&lifetime.node.as_str()) && lifetime.ended_ns.is_none() => {
                Some(lifetime)
            }
            _ => None,
        }) {
            (lifetime.ended_ns, lifetime.end) = (Some(ns(from_s)), Some(LifetimeEnd::Killed));
        }
        let later = nodes.iter().map(|node| Lifetime {
            node: (*node).to_owned(),
            incarnation: None,
            started_ns: ns(until_s),
            ended_ns: None,
            end: None,
        });
        history.events.extend(later.map(Event::Lifetime));
        verdict(&history, 15).is_true()
    };
    assert!(!down(&["n3"], (27.5, 28.0)), "two of three processes answered");
    assert!(down(&["n3"], (26.5, 28.0)), "n2 had started at 24 s, and answered from 27 s on");
    assert!(down(&["n2", "n3"], (25.0, 25.5)), "a majority answered again from 28.5 s on");
    assert!(down(&["n2", "n3"], (28.5, 29.5)), "no majority ran when it was reported");
    assert!(!down(&["n2", "n3"], (29.2, 29.5)), "a majority ran until then");
    let disturbed = |from_s, until_s, status| {
        let mut history = stays.clone();
        let mut fault = Fault::installed(FaultKind::Link, "loss".to_owned(), vec!["n1".to_owned()], ns(from_s));
        (fault.until_ns, fault.status) = (Some(ns(until_s)), status);
        history.events.push(Event::Fault(fault));
        history
    };
    accepted(&disturbed(28.0, 28.11, FaultStatus::Installed)); // 0.11 s do not count.
    rejected(&disturbed(28.0, 28.05, FaultStatus::Installed), &[15]);
    rejected(&disturbed(20.0, 23.0, FaultStatus::Installed), &[15]);
    rejected(&disturbed(28.0, 28.2, FaultStatus::Skipped), &[15]);
}

/// Returns the content of one email of the good history.
fn with_content(change: impl Fn(&mut Content)) -> TestHistory {
    with(|history| history.change_mail("r100.0", "a", |mail| change(mail.content.as_mut().unwrap())))
}

#[test]
fn i16_content_of_another_recipient_is_rejected() {
    rejected(&with_content(|content| content.recipient = "b".into()), &[16]);
    rejected(&with_content(|content| content.code = code_of("b").into()), &[16]);
}

#[test]
fn i16_content_of_another_schedule_is_rejected() {
    rejected(&with_content(|content| content.schedule = "ping".into()), &[16]);
}

#[test]
fn i16_content_of_another_run_is_rejected() {
    rejected(&with_content(|content| content.run = "r250.0".into()), &[16]);
}

#[test]
fn i16_body_without_names_is_rejected_unless_cut_off() {
    rejected(&with(|history| history.change_mail("r100.0", "a", |mail| mail.content = None)), &[16]);
    // Another email of the same relay fault, cut off within its body.
    let cut = with(|history| {
        history.claim("r250.0", "d", fence(210, 252), ("n1", 1), 34.6);
        history.handoff("r250.0", "d", fence(210, 252), "n1", 34.7, Answered::Cut);
        let Some(Event::Handoff(mail)) = history.events.last_mut() else { unreachable!() };
        mail.content = None;
    });
    assert!(!verdict(&cut, 16).is_false());
}

#[test]
fn i16_refused_email_with_wrong_content_is_rejected() {
    let refused = |mail: &mut Handoff| {
        assert_eq!(mail.answer, Answered::Refused);
        mail.content.as_mut().unwrap().recipient = "a".into();
    };
    rejected(&with(|history| history.change_mail("r100.0", "b", refused)), &[16]);
}

#[test]
fn i9_identity_header_that_comes_twice_is_rejected() {
    for header in ["Message-ID", "X-Reveille-Run", "X-Reveille-Fence"] {
        let twice = |mail: &mut Handoff| mail.repeated_headers = vec![header.to_owned()];
        rejected(&with(|history| history.change_mail("r100.0", "a", twice)), &[9]);
    }
}

/// Returns the good history without a leader from 44 s on, for `seconds`. Every node is up since 24 s.
fn without_a_leader(seconds: f64, change: impl FnOnce(&mut TestHistory)) -> TestHistory {
    with(|history| {
        history.events.push(Event::Outage(Outage { from_ns: ns(44.0), until_ns: ns(44.0 + seconds) }));
        change(history);
    })
}

#[test]
fn i17_majority_without_leader_for_longer_than_ten_seconds_is_rejected() {
    rejected(&without_a_leader(10.5, |_| ()), &[17]);
    accepted(&without_a_leader(9.5, |_| ()));
    // One node of three that is down is no excuse.
    rejected(
        &without_a_leader(10.5, |history| {
            history.fault(FaultKind::NodeLost, &["n3"], 44.0);
        }),
        &[17],
    );
}

#[test]
fn i17_outage_without_majority_is_excused() {
    let two_faults = |kind, until_s: f64| {
        without_a_leader(14.0, |history| {
            for node in ["n1", "n2"] {
                history.fault(kind, &[node], 43.0).until_ns = Some(ns(until_s));
            }
        })
    };
    accepted(&two_faults(FaultKind::Clock, 49.0)); // 8 s are left with a majority.
    rejected(&two_faults(FaultKind::Clock, 46.0), &[17]);
    accepted(&two_faults(FaultKind::Damage, 46.0)); // A torn log does not vote before there is a leader.
    rejected(&two_faults(FaultKind::Relay, 57.0), &[17]);
}

#[test]
fn i17_torn_log_counts_when_leader_has_stood_for_five_seconds() {
    let repaired = |until_s: f64| {
        without_a_leader(14.0, |history| {
            for node in ["n1", "n2"] {
                history.fault(FaultKind::Damage, &[node], 35.0).until_ns = Some(ns(until_s));
            }
        })
    };
    accepted(&repaired(40.0)); // The leader went before they had caught up.
    rejected(&repaired(38.0), &[17]);
    let cut_until = |until_s: f64| {
        without_a_leader(14.0, |history| {
            history.fault(FaultKind::Link, &["n1", "n2"], 35.0).until_ns = Some(ns(until_s));
            for node in ["n1", "n2"] {
                history.fault(FaultKind::Damage, &[node], 35.0).until_ns = Some(ns(36.0));
            }
        })
    };
    accepted(&cut_until(40.0)); // A bad link kept them from catching up.
    rejected(&cut_until(38.0), &[17]);
}

#[test]
fn i17_torn_log_waits_minute_for_leader_restarts_included() {
    let torn = |seconds: f64, restart_s: Option<f64>| {
        without_a_leader(seconds, |history| {
            history.ended.at_ns = ns(160.0);
            for node in ["n1", "n2"] {
                history.fault(FaultKind::Damage, &[node], 43.0).until_ns = Some(ns(46.0));
            }
            let Some(at_ns) = restart_s.map(ns) else { return };
            let mut again = Vec::new();
            history.change_first(|event| match event {
                Event::Lifetime(lifetime) if lifetime.node != "n3" && lifetime.ended_ns.is_none() => {
                    again.push(Lifetime { started_ns: at_ns, incarnation: Some(90), ..lifetime.clone() });
                    (lifetime.ended_ns, lifetime.end) = (Some(at_ns), Some(LifetimeEnd::Stopped));
                    true
                }
                _ => false,
            });
            history.events.extend(again.into_iter().map(Event::Lifetime));
        })
    };
    accepted(&torn(71.9, None));
    rejected(&torn(72.1, None), &[17]);
    // 33 s before the restart, and 27 s that begin three seconds after it.
    accepted(&torn(75.9, Some(80.0)));
    rejected(&torn(76.1, Some(80.0)), &[17]);
}

#[test]
fn i17_bound_for_leader_is_one_of_header() {
    let within = |ms| without_a_leader(14.0, |history| history.header.led_within_ms = Some(ms));
    accepted(&within(14_000));
    rejected(&within(13_999), &[17]);
}

#[test]
fn i17_outage_while_any_link_is_cut_is_excused() {
    let cut = |until_s: f64| {
        without_a_leader(14.0, |history| {
            history.fault(FaultKind::Partition, &["n3"], 43.0).until_ns = Some(ns(until_s));
        })
    };
    accepted(&cut(50.0));
    rejected(&cut(46.0), &[17]);
}

/// Makes the relay work again before the minute is over.
fn repair_relay(history: &mut TestHistory) {
    history.change_fault(FaultKind::Relay, |fault| fault.until_ns = Some(ns(36.0)));
}

/// Returns the good history with one more recipient, which is due at 70 s and gets its email after `seconds`.
fn waiting_until(seconds: f64, change: impl FnOnce(&mut TestHistory)) -> TestHistory {
    with(|history| {
        history.ended.at_ns = ns(130.0);
        repair_relay(history);
        let late = ("default", "late");
        history.due(late, 70.0, "solo");
        history.run("r400.0", late, 70.0, 400);
        history.sends("r400.0", ("d", 0), fence(210, 401), ("n1", 1), 70.0 + seconds);
        change(history);
    })
}

/// The clock may be off by two seconds, and the run opens 0.1 s late.
#[test]
fn i17_recipients_that_wait_for_longer_than_twenty_seconds_are_rejected() {
    let plain = |seconds| waiting_until(seconds, |_| ());
    accepted(&plain(22.0));
    rejected(&plain(22.2), &[17]);
    let never = waiting_until(0.0, |history| {
        history.events.retain(|event| {
            !is_mail(event, "r400.0", "d") && !is_claim(event, "r400.0", "d") && !matches!(event, Event::Drained { .. })
        });
        history.set_final_state("r400.0", "d", RecipientState::Pending);
        history.events.push(Event::Drained { at_ns: ns(45.0) });
    });
    rejected(&never, &[4, 17]);
    let others = waiting_until(30.0, |history| {
        let late = ("default", "other");
        history.due(late, 84.0, "solo");
        history.run("r410.0", late, 84.0, 410);
        history.sends("r410.0", ("d", 0), fence(210, 411), ("n1", 1), 85.0);
    });
    accepted(&others); // Emails came, though not this one.
}

#[test]
fn i17_each_fault_restarts_bound_once() {
    let disturbed = |kind, node: &'static str, until_s: Option<f64>, seconds| {
        waiting_until(seconds, |history| history.fault(kind, &[node], 80.0).until_ns = until_s.map(ns))
    };
    for (kind, until_s, over_s) in
        [(FaultKind::Kill, None, 80.0), (FaultKind::Pause, Some(84.0), 84.0), (FaultKind::Clock, Some(86.0), 86.0)]
    {
        let within = disturbed(kind, "n3", until_s, over_s - 70.0 + 19.9);
        assert!(within.judge().valid, "{kind:?}\n{}", within.judge().table());
        rejected(&disturbed(kind, "n3", until_s, over_s - 70.0 + 20.1), &[17]);
    }
    // For I17 the loss of a node restarts the time limit once. A command of an operator never restarts it.
    rejected(&disturbed(FaultKind::NodeLost, "n3", None, 30.1), &[17]);
    rejected(&disturbed(FaultKind::Operator, "n3", None, 22.2), &[17]);
}

#[test]
fn i17_majority_is_one_of_the_voters_of_that_time() {
    let silent = |grown: bool, shrunk: bool| {
        waiting_until(30.1, |history| {
            history.fault(FaultKind::NodeLost, &["n3"], 80.0);
            if grown {
                history.fault(FaultKind::Grow, &["n4"], 60.0).until_ns = Some(ns(61.0));
            }
            if shrunk {
                let fault = history.fault(FaultKind::Shrink, &["n4"], 62.0);
                (fault.until_ns, fault.observed) = (Some(ns(63.0)), Some(true));
            }
        })
    };
    rejected(&silent(false, false), &[17]);
    // Two of four are no majority.
    accepted(&silent(true, false));
    rejected(&silent(true, true), &[17]);
}

#[test]
fn i17_broken_relay_excuses_until_its_circuits_must_be_closed() {
    let broken = |until_s: f64, seconds: f64| {
        waiting_until(seconds, |history| {
            history.fault(FaultKind::Relay, &[], 75.0).until_ns = Some(ns(until_s));
        })
    };
    // As long again as it was broken, and ten seconds.
    accepted(&broken(80.0, 44.9));
    rejected(&broken(80.0, 45.1), &[17]);
    // Once an email has come, circuits are closed.
    let closed = |seconds: f64| {
        waiting_until(seconds, |history| {
            history.fault(FaultKind::Relay, &[], 75.0).until_ns = Some(ns(80.0));
            let other = ("default", "other");
            history.due(other, 79.0, "solo");
            history.run("r410.0", other, 79.0, 410);
            history.sends("r410.0", ("d", 0), fence(210, 411), ("n1", 1), 81.0);
        })
    };
    accepted(&closed(30.9));
    rejected(&closed(31.1), &[17]);
}

#[test]
fn i17_recipients_that_wait_for_another_reason_are_accepted() {
    let target = || Target::Run("r400.0".to_owned());
    let paused = waiting_until(40.0, |history| {
        history.call(71.0, 71.1, Operation::Pause { target: target() }, ok(402));
        history.call(105.0, 105.1, Operation::Resume { target: target() }, ok(403));
    });
    assert!(!verdict(&paused, 17).is_false());
    let refused = waiting_until(40.0, |history| history.outcome("r400.0", "d", 402, OutcomeKind::Refused));
    accepted(&refused);
    let without_a_majority = waiting_until(60.0, |history| {
        for node in ["n1", "n2"] {
            history.fault(FaultKind::Clock, &[node], 72.0).until_ns = Some(ns(115.0));
        }
    });
    accepted(&without_a_majority);
}

/// Returns the good history with a claim of `d` at 100 s, which is released after `seconds` without a handoff. `d` is
/// sent at once under its next claim. Other emails arrive each ten seconds.
fn held_for(seconds: f64, change: impl FnOnce(&mut TestHistory)) -> TestHistory {
    with(|history| {
        history.ended.at_ns = ns(230.0);
        repair_relay(history);
        let late = ("default", "late");
        history.due(late, 100.0, "solo");
        history.run("r400.0", late, 100.0, 400);
        history.claim("r400.0", "d", fence(210, 401), ("n2", 2), 100.0);
        history.outcome("r400.0", "d", 402, OutcomeKind::Released);
        let Some(Event::Outcome(outcome)) = history.events.last_mut() else { unreachable!() };
        outcome.proposed_ns = Some(ns(100.0 + seconds));
        history.sends("r400.0", ("d", 0), fence(210, 403), ("n1", 1), 100.1 + seconds);
        for number in 0..12_u32 {
            let (at_s, index) = (100.0 + f64::from(number) * 10.0, 410 + u64::from(number) * 10);
            let (run, other) = (format!("r{index}.0"), ("default", "other"));
            history.due(other, at_s, "solo");
            history.run(&run, other, at_s, index);
            history.sends(&run, ("d", 0), fence(210, index + 1), ("n1", 1), at_s + 0.5);
        }
        history.change_first(|event| match event {
            Event::GateReading(passes) if passes.node == "n1" => {
                passes.passes += 20;
                true
            }
            _ => false,
        });
        change(history);
    })
}

fn is_held(event: &Event) -> bool {
    match event {
        Event::Claim(claim) => claim.fence == fence(210, 401),
        Event::Outcome(outcome) => (&*outcome.run, outcome.index) == ("r400.0", 402),
        _ => false,
    }
}

/// 30 s, and two seconds by which the instant of its release may be wrong.
#[test]
fn i17_recipient_that_is_claimed_and_not_begun_is_rejected() {
    accepted(&held_for(31.9, |_| ()));
    rejected(&held_for(32.1, |_| ()), &[17]);
    let begun =
        held_for(40.0, |history| history.handoff("r400.0", "d", fence(210, 401), "n2", 101.0, Answered::Refused));
    accepted(&begun);
    // The recipient was claimed again in between, and nothing is known of its first claim.
    let again = held_for(40.0, |history| {
        history.events.retain(|event| !matches!(event, Event::Outcome(_)) || !is_held(event));
        history.claim("r400.0", "d", fence(210, 402), ("n2", 2), 120.0);
    });
    accepted(&again);
    let never = held_for(40.0, |history| {
        history.events.retain(|event| match event {
            Event::Claim(claim) => claim.fence != fence(210, 403),
            Event::Handoff(mail) => mail.fence != Some(fence(210, 403)),
            Event::Outcome(outcome) => outcome.run != "r400.0",
            _ => true,
        });
        history.set_final_state("r400.0", "d", RecipientState::Claimed);
    });
    assert!(crate::broken(&never.judge()).contains(&17), "\n{}", never.judge().table());
}

#[test]
fn i17_claim_is_timed_by_ledger_where_its_commit_was_not_seen() {
    let proposed = |at_s: Option<f64>| {
        held_for(40.0, |history| {
            history.change_first(|event| match event {
                Event::Claim(claim) if claim.fence == fence(210, 401) => {
                    (claim.committed_ns, claim.proposed_ns) = (None, at_s.map(ns));
                    true
                }
                _ => false,
            });
        })
    };
    // Both instants may be wrong by two seconds.
    accepted(&proposed(Some(106.1)));
    rejected(&proposed(Some(105.9)), &[17]);
    accepted(&proposed(None));
}

#[test]
fn i17_disturbance_restarts_time_of_claim() {
    let disturbed = |seconds: f64| {
        held_for(seconds, |history| history.fault(FaultKind::Pause, &["n3"], 110.0).until_ns = Some(ns(114.0)))
    };
    accepted(&disturbed(45.9));
    rejected(&disturbed(46.1), &[17]);
    // A dialogue that a broken relay holds up may go on for a minute.
    let broken = |until_s: f64| {
        held_for(55.0, |history| history.fault(FaultKind::Relay, &[], 60.0).until_ns = Some(ns(until_s)))
    };
    accepted(&broken(63.1));
    rejected(&broken(62.9), &[17]);
}

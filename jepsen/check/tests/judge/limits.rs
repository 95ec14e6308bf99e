//! Budgets, gaps and attempts: the maximum that is allowed, and one more.

use reveille_check::events::*;

use crate::good::{BEGAN, TestHistory, fence, good};
use crate::{accepted, ns, rejected, unknown, with};

/// Returns the good history with this limit instead of its own limits.
fn under(tenant: &str, schedules: &[&str], bound: Bound) -> TestHistory {
    with(|history| {
        let is_last = |event: &Event| matches!(event, Event::Limit(_));
        history.events.retain(|event| !is_last(event));
        history.limit("acme", &["nothing"], Bound::RelayRate { per_second_milli: 1_000, sessions: 1 });
        history.limit("acme", &["nothing"], Bound::MinGap { gap_ms: 1_000 });
        history.limit(tenant, schedules, bound);
    })
}

/// The campaign sends 50 emails a second for 1.8 s; three nodes have one process each then.
#[test]
fn i18_relay_gets_its_rate_burst_and_email_for_each_session_in_any_second() {
    let rate = |per_second: u64, sessions| {
        let per_second_milli = per_second * 1_000;
        under("default", &["campaign"], Bound::RelayRate { per_second_milli, sessions })
    };
    // A burst is a tenth, and one for each node at least.
    accepted(&rate(23, 8));
    rejected(&rate(22, 8), &[18]);
    accepted(&rate(43, 1));
    rejected(&rate(42, 1), &[18]);
    // Over ten seconds too: 90 emails, of which 5 a second, a burst of three and one for each session make 89.
    rejected(&rate(5, 12), &[18]);
}

#[test]
fn i18_another_process_may_have_had_emails_under_way() {
    let restarted = |at_s: f64| {
        let mut history = under("default", &["campaign"], Bound::RelayRate { per_second_milli: 22_000, sessions: 8 });
        let (node, end) = ("n1".to_owned(), Some(LifetimeEnd::Killed));
        let (started_ns, ended_ns) = (0, Some(ns(at_s)));
        history.events.push(Event::Lifetime(Lifetime { node, incarnation: Some(9), started_ns, ended_ns, end }));
        history
    };
    assert!(!crate::broken(&restarted(12.5).judge()).contains(&18));
    assert!(crate::broken(&restarted(11.0).judge()).contains(&18));
}

#[test]
fn i18_clock_that_is_ninth_too_fast_is_no_excess() {
    let drifts = |node: &str, until_s: f64| {
        let mut history = under("default", &["campaign"], Bound::RelayRate { per_second_milli: 21_000, sessions: 8 });
        history.fault(FaultKind::Clock, &[node], 10.0).until_ns = Some(ns(until_s));
        history
    };
    accepted(&drifts("n1", 20.0));
    rejected(&drifts("n1", 12.0), &[18]);
}

#[test]
fn i18_limit_is_judged_while_in_force() {
    let between = |from_s: f64, until_s: Option<f64>| {
        let mut history = under("default", &["campaign"], Bound::RelayRate { per_second_milli: 10_000, sessions: 1 });
        let Some(Event::Limit(limit)) = history.events.last_mut() else { unreachable!() };
        (limit.from_ns, limit.until_ns) = (ns(from_s), until_s.map(ns));
        history
    };
    rejected(&between(0.0, None), &[18]);
    accepted(&between(14.0, None));
    accepted(&between(0.0, Some(12.5)));
}

/// A limit is recorded when it is set, and again when it is lifted, so that it is known even if the run ends early.
#[test]
fn i18_limit_recorded_again_with_its_end_is_one() {
    let recorded = |ends_s: &[Option<f64>]| {
        let mut history = under("default", &["campaign"], Bound::RelayRate { per_second_milli: 10_000, sessions: 1 });
        let Some(Event::Limit(first)) = history.events.pop() else { unreachable!() };
        for until_s in ends_s {
            history.events.push(Event::Limit(Limit { until_ns: until_s.map(ns), ..first.clone() }));
        }
        history
    };
    rejected(&recorded(&[None]), &[18]);
    accepted(&recorded(&[None, Some(12.5)]));
    accepted(&recorded(&[Some(12.5), None])); // Their order means nothing.
    rejected(&recorded(&[None, Some(14.0)]), &[18]);
}

fn tenant_rate(per_second_milli: u64) -> TestHistory {
    under("default", &["campaign"], Bound::TenantRate { per_second_milli })
}

fn change_claims(history: &mut TestHistory, change: impl Fn(&mut Claim)) {
    for event in &mut history.events {
        match event {
            Event::Claim(claim) if claim.run == "r120.0" => change(claim),
            _ => {}
        }
    }
}

/// The 90 recipients of the campaign are claimed within 1.78 s.
#[test]
fn i18_tenant_gets_its_rate_and_two_buckets_of_two_seconds_in_any_interval() {
    accepted(&tenant_rate(15_600));
    rejected(&tenant_rate(15_500), &[18]);
    rejected(&tenant_rate(15_000), &[18]);
    // The last three of ten entries come a minute later.
    let mut apart = tenant_rate(15_000);
    change_claims(&mut apart, |claim| {
        claim.ledger_unix_ms = claim.ledger_unix_ms.map(|at_ms| at_ms + 60_000 * i64::from(claim.fence.index > 127));
    });
    accepted(&apart);
}

/// The campaign is claimed by ten entries of nine recipients.
#[test]
fn i18_excess_of_each_claim_entry_adds_up() {
    let claimed = |per_second_milli, every_ms: i64| {
        let mut history = tenant_rate(per_second_milli);
        change_claims(&mut history, |claim| {
            claim.ledger_unix_ms = Some(BEGAN + 12_000 + every_ms * (claim.fence.index as i64 - 121));
        });
        history
    };
    accepted(&claimed(9_000, 1_000));
    rejected(&claimed(6_700, 1_000), &[18]);
    rejected(&claimed(9_000, 600), &[18]);
}

/// Wrong clocks and slow commits delay what is observed. Only ledger time counts.
#[test]
fn i18_tenant_rate_is_judged_by_ledger_time_only() {
    let mut late = tenant_rate(5_000);
    change_claims(&mut late, |claim| {
        claim.ledger_unix_ms = Some(BEGAN + 12_000 + 2_000 * (claim.fence.index as i64 - 121));
    });
    accepted(&late);
    let mut unseen = tenant_rate(5_000);
    change_claims(&mut unseen, |claim| claim.ledger_unix_ms = None);
    assert_eq!(unknown(&unseen.judge()), [18].into());
}

#[test]
fn i18_claims_after_limit_of_tenant_was_lifted_are_not_counted() {
    let lifted = |until_s: f64| {
        let mut history = tenant_rate(5_000);
        let Some(Event::Limit(limit)) = history.events.last_mut() else { unreachable!() };
        limit.until_ns = Some(ns(until_s));
        history
    };
    accepted(&lifted(12.5));
    rejected(&lifted(13.5), &[18]);
}

#[test]
fn i18_warm_up_allows_caps_of_days_so_far() {
    let first_day = BEGAN / 86_400_000;
    let caps =
        |first_day, caps: &[u32]| under("default", &["campaign"], Bound::WarmUp { first_day, caps: caps.to_vec() });
    accepted(&caps(first_day, &[90]));
    rejected(&caps(first_day, &[89]), &[18]);
    rejected(&caps(first_day, &[89, 89]), &[18]);
    accepted(&caps(first_day - 1, &[45, 45])); // The second day.
    accepted(&caps(first_day - 1, &[1])); // After the last day.
    rejected(&caps(first_day + 1, &[90]), &[18]);
}

#[test]
fn i18_without_budget_nothing_is_known() {
    let none = with(|history| history.events.retain(|event| !matches!(event, Event::Limit(_))));
    assert_eq!(unknown(&none.judge()), [18, 19].into());
}

#[test]
fn i19_two_emails_within_gap_of_their_schedule_are_rejected() {
    // `d` gets emails of the instants 34 s and 35 s.
    let gap = |gap_ms| under("default", &["daily"], Bound::MinGap { gap_ms });
    accepted(&gap(1_000));
    rejected(&gap(1_001), &[19]);
}

#[test]
fn i4_recipient_within_gap_of_another_run_may_be_suppressed() {
    let suppressed = |gap_ms| {
        let mut history = under("default", &["daily"], Bound::MinGap { gap_ms });
        history.events.retain(|event| match event {
            Event::Handoff(mail) => mail.run != "r255.0",
            Event::Claim(claim) => claim.run != "r255.0",
            Event::Outcome(outcome) => outcome.run != "r255.0",
            _ => true,
        });
        history.set_final_state("r255.0", "d", RecipientState::Suppressed);
        history
    };
    accepted(&suppressed(1_001));
    rejected(&suppressed(1_000), &[4]);
}

#[test]
fn i19_handoffs_without_answer_are_as_many_as_attempts() {
    let tried = |attempts| {
        let mut history = under("default", &["campaign"], Bound::MaxAttempts { attempts });
        history.header.in_doubt = InDoubt::Resend;
        for (index, at_s) in [(160, 16.0), (170, 17.0)] {
            history.outcome("r120.0", "m7", index - 5, OutcomeKind::InDoubt);
            history.outcome("r120.0", "m7", index - 5, OutcomeKind::Resent(Decider::Policy));
            history.claim("r120.0", "m7", fence(10, index), ("n1", 1), at_s - 0.05);
            history.handoff("r120.0", "m7", fence(10, index), "n1", at_s, Answered::Accepted);
        }
        history
    };
    accepted(&tried(3));
    rejected(&tried(2), &[19]);
    // A decision to send again counts anew.
    let mut again = tried(2);
    let (run, recipient) = ("r120.0".to_owned(), Some("m7".to_owned()));
    again.call(16.1, 16.2, Operation::Resend { run, recipient }, crate::good::ok(166));
    accepted(&again);
    accepted(&good());
}

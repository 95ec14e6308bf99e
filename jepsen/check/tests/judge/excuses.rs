//! Excuses that excuse nothing: histories in which something is explained, allowed or decided, and not by what would have
//! to be there.

use reveille_check::history::*;

use crate::good::{History, fence, ns, ok};
use crate::{rejected, with};

/// `m7` of the campaign is never granted and never sent, and the ledger calls that an end.
fn ends(history: &mut History, state: Fate) {
    let own = |run: &str, who: &str| run == "r120.0" && who == "m7";
    history.events.retain(|event| match event {
        Event::Mail(mail) => !own(mail.run.as_deref().unwrap_or_default(), &mail.recipient),
        Event::Claim(claim) => !own(&claim.run, &claim.recipients[0]),
        Event::Outcome(outcome) => !own(&outcome.run, &outcome.recipient),
        _ => true,
    });
    history.alter_standing("r120.0", "m7", state);
}

fn without_a_mail(state: Fate, change: impl Fn(&mut History)) -> History {
    with(|history| {
        ends(history, state);
        change(history);
    })
}

#[test]
fn i4_an_end_that_nothing_brought_about() {
    for state in [Fate::Expired, Fate::Cancelled, Fate::Suppressed, Fate::Dead] {
        let history = without_a_mail(state, |_| {});
        rejected(&history, &[4]);
        assert_eq!(history.judge().lost, Some(1), "{state:?}");
    }
}

#[test]
fn i4_an_end_that_somebody_asked_for_or_that_the_relay_brought_about() {
    let tenant = || "default".to_owned();
    let opt_out = || Operation::OptOut { tenant: tenant(), recipient: "m7".to_owned() };
    let take_back = || Operation::TakeBack { tenant: tenant(), recipient: "m7".to_owned() };
    let asks = |history: &mut History, at_s: f64, operation: Operation, answer| {
        history.call(at_s, at_s + 0.1, operation, answer);
    };
    let left = without_a_mail(Fate::Suppressed, |history| {
        asks(history, 11.0, opt_out(), ok(118));
        history.found(Noun::OptOut, "m7", "opted_out");
    });
    assert!(left.judge().valid, "\n{}", left.judge().table());
    let perhaps = without_a_mail(Fate::Suppressed, |history| asks(history, 11.0, opt_out(), Answer::Unknown));
    assert!(perhaps.judge().valid);
    let refused = Answer::Failed { reason: "NOT_FOUND".to_owned() };
    rejected(&without_a_mail(Fate::Suppressed, |history| asks(history, 11.0, opt_out(), refused.clone())), &[4]);
    let came_back = without_a_mail(Fate::Suppressed, |history| {
        asks(history, 8.0, opt_out(), ok(112));
        asks(history, 9.0, take_back(), ok(118));
    });
    rejected(&came_back, &[4]);

    let cancel = || Operation::Cancel { target: Target::Run("r120.0".to_owned()) };
    let cancelled = without_a_mail(Fate::Cancelled, |history| {
        asks(history, 15.0, cancel(), ok(189));
    });
    assert!(cancelled.judge().valid, "\n{}", cancelled.judge().table());

    let bounced = without_a_mail(Fate::Dead, |history| {
        history.claim("r120.0", "m7", fence(10, 121), ("n2", 1), 12.4);
        history.step("r120.0", "m7", 122, Step::Refused);
    });
    assert!(bounced.judge().valid, "\n{}", bounced.judge().table());
    let given_back = without_a_mail(Fate::Dead, |history| {
        history.claim("r120.0", "m7", fence(10, 121), ("n1", 1), 12.4);
        history.step("r120.0", "m7", 122, Step::Released);
        history.claim("r120.0", "m7", fence(10, 123), ("n1", 1), 12.5);
        history.step("r120.0", "m7", 124, Step::Released);
    });
    rejected(&given_back, &[4]);

    let over = without_a_mail(Fate::Expired, |history| history.header.policies.finish_within_ms = Some(40_000));
    assert!(over.judge().valid);
    rejected(&without_a_mail(Fate::Expired, |history| history.header.policies.finish_within_ms = Some(60_000)), &[4]);
    // Its schedule's next instant came.
    let daily = with(|history| {
        history.drop_first(|event| matches!(event, Event::Mail(mail) if mail.run.as_deref() == Some("r100.0")));
        history.alter_standing("r100.0", "a", Fate::Expired);
    });
    assert!(daily.judge().valid, "\n{}", daily.judge().table());
}

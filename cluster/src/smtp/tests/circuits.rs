//! Tests of the circuit breaker as a value: when it opens, probes and closes (P6, P12).

use std::time::Duration;

use crate::smtp::relay::circuit::Admitted::{AsProbe, Normally, ToOpenSession};
use crate::smtp::relay::circuit::{Admitted, Backoff, Circuit, CircuitEvent, CircuitRefusal, CircuitState, OpenReason};

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn not_opened() -> CircuitEvent {
    CircuitEvent::NotOpened("refused".to_owned())
}

fn lost_after() -> CircuitEvent {
    CircuitEvent::LostAfter("closed".to_owned())
}

/// Opens a session as a probe without an email.
fn opens_session(circuit: &mut Circuit, now: Duration) {
    assert_eq!(circuit.admit(now), Ok(ToOpenSession));
    circuit.note(CircuitEvent::SessionOpened, ToOpenSession, now, 0.0);
}

fn circuit() -> Circuit {
    Circuit::new(Backoff { first: seconds(1), longest: seconds(8), parked: seconds(900) })
}

#[test]
fn failed_session_opens_circuit_at_once() {
    let mut circuit = circuit();
    assert_eq!(circuit.admit(seconds(0)), Ok(Normally));
    circuit.note(not_opened(), Normally, seconds(0), 0.0);
    let refusal = CircuitRefusal { until: seconds(1), reason: OpenReason::Failing("refused".to_owned()) };
    assert_eq!(circuit.admit(seconds(0)), Err(refusal));
}

#[test]
fn after_the_back_off_a_session_is_opened_and_then_one_mail_decides() {
    let mut circuit = circuit();
    circuit.note(not_opened(), Normally, seconds(0), 0.0);
    assert_eq!(circuit.admit(seconds(1)), Ok(ToOpenSession));
    assert!(circuit.admit(seconds(1)).is_err(), "no mail waits for it, and there is one at a time");
    circuit.note(CircuitEvent::SessionOpened, ToOpenSession, seconds(2), 0.0);
    assert_eq!(circuit.admit(seconds(2)), Ok(AsProbe), "a greeting alone proves nothing");
    assert!(circuit.admit(seconds(2)).is_err(), "one at a time");
    circuit.note(CircuitEvent::Accepted, AsProbe, seconds(2), 0.0);
    assert_eq!(circuit.admit(seconds(2)), Ok(Normally));
}

#[test]
fn failed_probes_double_the_wait_up_to_its_bound() {
    let mut circuit = circuit();
    circuit.note(not_opened(), Normally, seconds(0), 0.0);
    let mut now = seconds(1);
    for expected in [2, 4, 8, 8] {
        assert_eq!(circuit.admit(now), Ok(ToOpenSession));
        circuit.note(not_opened(), ToOpenSession, now, 0.0);
        assert!(circuit.admit(now + seconds(expected) - Duration::from_millis(1)).is_err());
        now += seconds(expected);
    }
}

#[test]
fn jitter_stretches_the_wait_by_up_to_half() {
    let mut circuit = circuit();
    circuit.note(not_opened(), Normally, seconds(0), 1.0);
    assert_eq!(
        *circuit.state(),
        CircuitState::Open { until: Duration::from_millis(1500), reason: OpenReason::Failing("refused".to_owned()) }
    );
}

#[test]
fn failures_already_under_way_do_not_prolong_the_wait() {
    let mut circuit = circuit();
    for _ in 0..20 {
        circuit.note(not_opened(), Normally, seconds(0), 0.0);
    }
    assert_eq!(circuit.admit(seconds(1)), Ok(ToOpenSession));
}

#[test]
fn three_losses_after_the_dot_without_250_between_open_circuit() {
    let mut circuit = circuit();
    for _ in 0..2 {
        circuit.note(lost_after(), Normally, seconds(0), 0.0);
    }
    circuit.note(CircuitEvent::Accepted, Normally, seconds(0), 0.0);
    for _ in 0..2 {
        circuit.note(lost_after(), Normally, seconds(61), 0.0);
        circuit.note(CircuitEvent::Reached, Normally, seconds(61), 0.0);
    }
    assert_eq!(circuit.admit(seconds(61)), Ok(Normally));
    circuit.note(lost_after(), Normally, seconds(61), 0.0);
    assert!(circuit.admit(seconds(61)).is_err());
}

#[test]
fn one_loss_in_a_thousand_within_a_minute_opens_circuit() {
    let mut circuit = circuit();
    let mut losses = 0;
    while circuit.admit(seconds(0)).is_ok() {
        for _ in 0..900 {
            circuit.note(CircuitEvent::Accepted, Normally, seconds(0), 0.0);
        }
        circuit.note(lost_after(), Normally, seconds(0), 0.0);
        losses += 1;
        assert!(losses < 100, "it never opens");
    }
    assert_eq!(losses, 3);
}

#[test]
fn greeting_after_losses_does_not_close_circuit() {
    let mut circuit = circuit();
    for _ in 0..3 {
        circuit.note(lost_after(), Normally, seconds(0), 0.0);
    }
    opens_session(&mut circuit, seconds(1));
    assert_eq!(circuit.admit(seconds(1)), Ok(AsProbe));
    circuit.note(CircuitEvent::Reached, AsProbe, seconds(1), 0.0);
    assert_eq!(circuit.admit(seconds(1)), Ok(AsProbe), "the next email probes");
    circuit.note(CircuitEvent::Answered, AsProbe, seconds(1), 0.0);
    assert_eq!(circuit.admit(seconds(1)), Ok(Normally));
}

#[test]
fn refused_probe_email_closes_only_circuit_opened_by_missing_session() {
    let mail_failed = || CircuitEvent::MailFailed("refused".to_owned());
    for (event, closes) in
        [(not_opened(), true), (mail_failed(), false), (CircuitEvent::LostAfter(String::new()), false)]
    {
        let mut circuit = circuit();
        for _ in 0..3 {
            circuit.note(event.clone(), Normally, seconds(0), 0.0);
        }
        opens_session(&mut circuit, seconds(1));
        assert_eq!(circuit.admit(seconds(1)), Ok(AsProbe));
        circuit.note(CircuitEvent::SessionOpened, AsProbe, seconds(1), 0.0);
        let next = if closes { Normally } else { AsProbe };
        assert_eq!(circuit.admit(seconds(1)), Ok(next), "after {event:?}");
    }
    let mut circuit = circuit();
    circuit.note(mail_failed(), Normally, seconds(0), 0.0);
    circuit.note(CircuitEvent::NotOpened(String::new()), AsProbe, seconds(1), 0.0);
    opens_session(&mut circuit, seconds(3));
    assert_eq!(circuit.admit(seconds(3)), Ok(AsProbe));
    circuit.note(CircuitEvent::SessionOpened, AsProbe, seconds(3), 0.0);
    assert_eq!(circuit.admit(seconds(3)), Ok(AsProbe), "MAIL has not been answered since");
}

#[test]
fn unused_probe_is_returned() {
    let mut circuit = circuit();
    circuit.note(not_opened(), Normally, seconds(0), 0.0);
    assert_eq!(circuit.admit(seconds(1)), Ok(ToOpenSession));
    circuit.release_probe(seconds(1));
    opens_session(&mut circuit, seconds(1));
    assert_eq!(circuit.admit(seconds(1)), Ok(AsProbe));
    circuit.release_probe(seconds(1));
    assert_eq!(circuit.admit(seconds(1)), Ok(AsProbe));
    circuit.note(CircuitEvent::Nothing, AsProbe, seconds(1), 0.0);
    assert_eq!(circuit.admit(seconds(1)), Ok(AsProbe));
}

#[test]
fn email_of_failed_probe_is_not_the_next_probe() {
    let mut circuit = circuit();
    circuit.note(not_opened(), Normally, seconds(0), 0.0);
    opens_session(&mut circuit, seconds(1));
    assert_eq!(circuit.admit(seconds(1)), Ok(AsProbe));
    circuit.note(not_opened(), AsProbe, seconds(2), 0.0);
    assert!(circuit.admit(seconds(3)).is_err(), "twice as long");
    assert_eq!(circuit.admit(seconds(4)), Ok(ToOpenSession));
    circuit.note(CircuitEvent::Nothing, ToOpenSession, seconds(4), 0.0);
    assert!(circuit.admit(seconds(4)).is_err(), "one that proved nothing is not followed at once");
    assert_eq!(circuit.admit(seconds(5)), Ok(ToOpenSession));
}

#[test]
fn consecutive_losses_before_the_dot_open_circuit() {
    let mut circuit = circuit();
    for _ in 0..3 {
        assert_eq!(circuit.admit(seconds(0)), Ok(Normally));
        circuit.note(CircuitEvent::LostBefore("closed".to_owned()), Normally, seconds(0), 0.0);
    }
    assert!(circuit.admit(seconds(0)).is_err());
}

#[test]
fn exhausted_quota_parks_relay_until_probe_succeeds() {
    let mut circuit = circuit();
    let full = || CircuitEvent::QuotaUsedUp("454 enough".to_owned());
    let parked_until = |second| {
        let reason = OpenReason::QuotaUsedUp("454 enough".to_owned());
        Err::<Admitted, _>(CircuitRefusal { until: seconds(second), reason })
    };
    circuit.note(full(), Normally, seconds(0), 1.0);
    circuit.note(full(), Normally, seconds(60), 1.0);
    assert_eq!(circuit.admit(seconds(899)), parked_until(900), "those under way add nothing");
    assert_eq!(circuit.admit(seconds(900)), Ok(AsProbe));
    assert_eq!(circuit.admit(seconds(900)), parked_until(901), "one at a time");
    circuit.note(full(), AsProbe, seconds(901), 1.0);
    assert_eq!(circuit.admit(seconds(902)), parked_until(1801), "no longer than the first time");
    assert_eq!(circuit.admit(seconds(1801)), Ok(AsProbe));
    circuit.note(CircuitEvent::Reached, AsProbe, seconds(1802), 0.0);
    assert_eq!(
        circuit.admit(seconds(1802)),
        parked_until(1803),
        "a shut gate proves nothing, and is not probed again at once"
    );
    assert_eq!(circuit.admit(seconds(1803)), Ok(AsProbe));
    circuit.note(CircuitEvent::Accepted, AsProbe, seconds(1804), 0.0);
    assert_eq!(circuit.admit(seconds(1804)), Ok(Normally));
}

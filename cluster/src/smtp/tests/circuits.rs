//! Tests of the circuit breaker as a value: when it opens, probes and closes (P6, P12).

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::smtp::relay::Unavailable;
use crate::smtp::relay::circuit::CircuitPermit::{AsProbe, Normally, ToOpenSession};
use crate::smtp::relay::circuit::{Backoff, Circuit, CircuitEvent, CircuitPermit};
use crate::smtp::relay::failure::RelayFailure;
use crate::smtp::relay::status::CircuitStatus;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Returns the instant `s` seconds after the start of the tests.
fn at(s: u64) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START + seconds(s)
}

fn failure(text: &str) -> RelayFailure {
    RelayFailure::answered(None, 454, text)
}

fn not_opened() -> CircuitEvent {
    CircuitEvent::NotOpened(failure("refused"))
}

fn lost_after() -> CircuitEvent {
    CircuitEvent::LostAfter(failure("closed"))
}

/// Opens a session as a probe without an email.
fn opens_session(circuit: &mut Circuit, now: Instant) {
    assert_eq!(circuit.try_acquire(now), Ok(ToOpenSession));
    circuit.record(CircuitEvent::SessionOpened, ToOpenSession, now, 0.0);
}

fn circuit() -> Circuit {
    Circuit::new(Backoff { first: seconds(1), longest: seconds(8), parked: seconds(900) })
}

#[test]
fn failed_session_opens_circuit_at_once() {
    let mut circuit = circuit();
    assert_eq!(circuit.try_acquire(at(0)), Ok(Normally));
    circuit.record(not_opened(), Normally, at(0), 0.0);
    let refusal = Unavailable::CircuitOpen { until: at(1), cause: failure("refused") };
    assert_eq!(circuit.try_acquire(at(0)), Err(refusal));
}

#[test]
fn circuit_after_back_off_opens_session_then_probes_with_one_email() {
    let mut circuit = circuit();
    circuit.record(not_opened(), Normally, at(0), 0.0);
    assert_eq!(circuit.try_acquire(at(1)), Ok(ToOpenSession));
    assert!(circuit.try_acquire(at(1)).is_err(), "no email waits for it, and there is one at a time");
    circuit.record(CircuitEvent::SessionOpened, ToOpenSession, at(2), 0.0);
    assert_eq!(circuit.try_acquire(at(2)), Ok(AsProbe), "a greeting alone proves nothing");
    assert!(circuit.try_acquire(at(2)).is_err(), "one at a time");
    circuit.record(CircuitEvent::Accepted, AsProbe, at(2), 0.0);
    assert_eq!(circuit.try_acquire(at(2)), Ok(Normally));
}

#[test]
fn failed_probes_double_the_wait_up_to_its_bound() {
    let mut circuit = circuit();
    circuit.record(not_opened(), Normally, at(0), 0.0);
    let mut now = at(1);
    for expected in [2, 4, 8, 8] {
        assert_eq!(circuit.try_acquire(now), Ok(ToOpenSession));
        circuit.record(not_opened(), ToOpenSession, now, 0.0);
        assert!(circuit.try_acquire(now + seconds(expected) - Duration::from_millis(1)).is_err());
        now += seconds(expected);
    }
}

#[test]
fn jitter_stretches_the_wait_by_up_to_half() {
    let mut circuit = circuit();
    circuit.record(not_opened(), Normally, at(0), 1.0);
    assert_eq!(
        *circuit.state(),
        CircuitStatus::Open { until: at(0) + Duration::from_millis(1500), cause: failure("refused") }
    );
}

#[test]
fn failures_already_under_way_do_not_prolong_the_wait() {
    let mut circuit = circuit();
    for _ in 0..20 {
        circuit.record(not_opened(), Normally, at(0), 0.0);
    }
    assert_eq!(circuit.try_acquire(at(1)), Ok(ToOpenSession));
}

#[test]
fn three_losses_after_the_dot_without_250_between_open_circuit() {
    let mut circuit = circuit();
    for _ in 0..2 {
        circuit.record(lost_after(), Normally, at(0), 0.0);
    }
    circuit.record(CircuitEvent::Accepted, Normally, at(0), 0.0);
    for _ in 0..2 {
        circuit.record(lost_after(), Normally, at(61), 0.0);
        circuit.record(CircuitEvent::Reached, Normally, at(61), 0.0);
    }
    assert_eq!(circuit.try_acquire(at(61)), Ok(Normally));
    circuit.record(lost_after(), Normally, at(61), 0.0);
    assert!(circuit.try_acquire(at(61)).is_err());
}

#[test]
fn three_losses_above_one_in_a_thousand_open_circuit() {
    let mut circuit = circuit();
    let mut losses = 0;
    while circuit.try_acquire(at(0)).is_ok() {
        for _ in 0..900 {
            circuit.record(CircuitEvent::Accepted, Normally, at(0), 0.0);
        }
        circuit.record(lost_after(), Normally, at(0), 0.0);
        losses += 1;
        assert!(losses < 100, "it never opens");
    }
    assert_eq!(losses, 3);
}

#[test]
fn greeting_after_losses_does_not_close_circuit() {
    let mut circuit = circuit();
    for _ in 0..3 {
        circuit.record(lost_after(), Normally, at(0), 0.0);
    }
    opens_session(&mut circuit, at(1));
    assert_eq!(circuit.try_acquire(at(1)), Ok(AsProbe));
    circuit.record(CircuitEvent::Reached, AsProbe, at(1), 0.0);
    assert_eq!(circuit.try_acquire(at(1)), Ok(AsProbe), "the next email probes");
    circuit.record(CircuitEvent::Answered, AsProbe, at(1), 0.0);
    assert_eq!(circuit.try_acquire(at(1)), Ok(Normally));
}

#[test]
fn refused_probe_email_closes_only_circuit_opened_by_missing_session() {
    let mail_failed = || CircuitEvent::MailFailed(failure("refused"));
    for (event, closes) in [(not_opened(), true), (mail_failed(), false), (CircuitEvent::LostAfter(failure("")), false)]
    {
        let mut circuit = circuit();
        for _ in 0..3 {
            circuit.record(event.clone(), Normally, at(0), 0.0);
        }
        opens_session(&mut circuit, at(1));
        assert_eq!(circuit.try_acquire(at(1)), Ok(AsProbe));
        circuit.record(CircuitEvent::SessionOpened, AsProbe, at(1), 0.0);
        let next = if closes { Normally } else { AsProbe };
        assert_eq!(circuit.try_acquire(at(1)), Ok(next), "after {event:?}");
    }
    let mut circuit = circuit();
    circuit.record(mail_failed(), Normally, at(0), 0.0);
    circuit.record(CircuitEvent::NotOpened(failure("")), AsProbe, at(1), 0.0);
    opens_session(&mut circuit, at(3));
    assert_eq!(circuit.try_acquire(at(3)), Ok(AsProbe));
    circuit.record(CircuitEvent::SessionOpened, AsProbe, at(3), 0.0);
    assert_eq!(circuit.try_acquire(at(3)), Ok(AsProbe), "MAIL has not been answered since");
}

#[test]
fn unused_probe_is_returned() {
    let mut circuit = circuit();
    circuit.record(not_opened(), Normally, at(0), 0.0);
    assert_eq!(circuit.try_acquire(at(1)), Ok(ToOpenSession));
    circuit.release_probe(at(1));
    opens_session(&mut circuit, at(1));
    assert_eq!(circuit.try_acquire(at(1)), Ok(AsProbe));
    circuit.release_probe(at(1));
    assert_eq!(circuit.try_acquire(at(1)), Ok(AsProbe));
    circuit.record(CircuitEvent::Nothing, AsProbe, at(1), 0.0);
    assert_eq!(circuit.try_acquire(at(1)), Ok(AsProbe));
}

#[test]
fn email_of_failed_probe_is_not_the_next_probe() {
    let mut circuit = circuit();
    circuit.record(not_opened(), Normally, at(0), 0.0);
    opens_session(&mut circuit, at(1));
    assert_eq!(circuit.try_acquire(at(1)), Ok(AsProbe));
    circuit.record(not_opened(), AsProbe, at(2), 0.0);
    assert!(circuit.try_acquire(at(3)).is_err(), "twice as long");
    assert_eq!(circuit.try_acquire(at(4)), Ok(ToOpenSession));
    circuit.record(CircuitEvent::Nothing, ToOpenSession, at(4), 0.0);
    assert!(circuit.try_acquire(at(4)).is_err(), "one that proved nothing is not followed at once");
    assert_eq!(circuit.try_acquire(at(5)), Ok(ToOpenSession));
}

#[test]
fn consecutive_losses_before_the_dot_open_circuit() {
    let mut circuit = circuit();
    for _ in 0..3 {
        assert_eq!(circuit.try_acquire(at(0)), Ok(Normally));
        circuit.record(CircuitEvent::LostBefore(failure("closed")), Normally, at(0), 0.0);
    }
    assert!(circuit.try_acquire(at(0)).is_err());
}

#[test]
fn exhausted_quota_parks_relay_until_probe_succeeds() {
    let mut circuit = circuit();
    let full = || CircuitEvent::QuotaUsedUp(failure("enough"));
    let parked_until =
        |second| Err::<CircuitPermit, _>(Unavailable::Parked { until: at(second), cause: failure("enough") });
    circuit.record(full(), Normally, at(0), 1.0);
    circuit.record(full(), Normally, at(60), 1.0);
    assert_eq!(circuit.try_acquire(at(899)), parked_until(900), "those under way add nothing");
    assert_eq!(circuit.try_acquire(at(900)), Ok(AsProbe));
    assert_eq!(circuit.try_acquire(at(900)), parked_until(901), "one at a time");
    circuit.record(full(), AsProbe, at(901), 1.0);
    assert_eq!(circuit.try_acquire(at(902)), parked_until(1801), "no longer than the first time");
    assert_eq!(circuit.try_acquire(at(1801)), Ok(AsProbe));
    circuit.record(CircuitEvent::Reached, AsProbe, at(1802), 0.0);
    assert_eq!(
        circuit.try_acquire(at(1802)),
        parked_until(1803),
        "a closed gate proves nothing, and is not probed again at once"
    );
    assert_eq!(circuit.try_acquire(at(1803)), Ok(AsProbe));
    circuit.record(CircuitEvent::Accepted, AsProbe, at(1804), 0.0);
    assert_eq!(circuit.try_acquire(at(1804)), Ok(Normally));
}

//! Builds the messages of a relay: its settings from the ledger, and its health on this node.

use std::time::Duration;

use reveille_cluster::smtp::{Cause, CircuitStatus, RelayFailure, RelayStatus, RelayTrouble, SetupProblem, Stage};
use reveille_ledger::access::{Tls, Trust};
use reveille_ledger::command::Relay;
use reveille_ledger::ids::Time;
use reveille_proto::admin::v1;
use tokio::time::Instant;

use super::timestamp;
use crate::server::admin::enums::OnWire;

/// Builds the message of a relay without its health.
pub fn relay(relay: &Relay) -> v1::Relay {
    let tls = match relay.access.tls {
        Tls::None => v1::RelayTls::None,
        Tls::StartTls(_) => v1::RelayTls::Starttls,
        Tls::Implicit(_) => v1::RelayTls::Implicit,
    };
    let Trust { ca, name } = relay.access.tls.trust().cloned().unwrap_or_default();
    v1::Relay {
        name: relay.name.clone(),
        pool: relay.pool.clone(),
        host: relay.host.clone(),
        port: u32::from(relay.port),
        tls: tls.into(),
        rate_per_second: relay.rate_milli as f64 / 1_000.0,
        max_sessions: relay.max_sessions,
        ca: ca.unwrap_or_default(),
        tls_name: name.unwrap_or_default(),
        credentials: relay.access.credentials.clone().unwrap_or_default(),
        health: None,
        late_rate_per_second: relay.late_rate_milli as f64 / 1_000.0,
        weight: relay.weight,
        etag: relay.etag(),
    }
}

/// Builds the health of a relay as `node` sees it at `now`.
pub fn health(node: &str, now: Time, status: RelayStatus) -> v1::RelayHealth {
    let at = |until: Instant| {
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(365 * 24 * 3_600));
        timestamp(now.plus_ms(i64::try_from(left.as_millis()).unwrap_or_default()))
    };
    let (condition, cause, until) = match status.circuit {
        CircuitStatus::Closed => match (status.refusing, status.slowed) {
            (Some(cause), _) => (v1::RelayCondition::Refusing, Some(cause), None),
            (None, Some(cause)) => (v1::RelayCondition::Throttled, Some(cause), None),
            (None, None) => (v1::RelayCondition::Ready, None, None),
        },
        CircuitStatus::Open { until, cause } => (v1::RelayCondition::Failing, Some(cause), Some(at(until))),
        CircuitStatus::Parked { until, cause } => (v1::RelayCondition::Parked, Some(cause), Some(at(until))),
        CircuitStatus::HalfOpen { cause, .. } => (v1::RelayCondition::Probing, Some(cause), None),
    };
    v1::RelayHealth {
        node: node.to_owned(),
        condition: condition.into(),
        cause: cause.map(relay_cause),
        retry_time: until,
        sessions_open: u32::try_from(status.sessions_open).unwrap_or(u32::MAX),
        rate_per_second: status.rate_per_second,
    }
}

/// Builds the message of a failure, or of an answer that slowed the node down.
fn relay_cause(RelayFailure { stage, trouble }: RelayFailure) -> v1::RelayCause {
    use v1::RelayTrouble as Wire;
    let with = |trouble: Wire, text: String| v1::RelayCause {
        trouble: trouble.into(),
        stage: stage.map_or(v1::RelayStage::Unspecified, relay_stage).into(),
        text,
        ..v1::RelayCause::default()
    };
    let setup = |trouble: Wire, problem: SetupProblem| v1::RelayCause {
        fix: problem.fix.wire().into(),
        ..with(trouble, problem.message)
    };
    match trouble {
        RelayTrouble::Answered { code, text } => v1::RelayCause { code: u32::from(code), ..with(Wire::Answer, text) },
        RelayTrouble::Slow(_) => with(Wire::TimedOut, String::new()),
        RelayTrouble::OpeningLate => with(Wire::Opening, String::new()),
        RelayTrouble::Broken(cause) => match cause {
            Cause::Dial(text) => with(Wire::NoConnection, text),
            Cause::Closed => with(Wire::Closed, String::new()),
            Cause::Io(text) => with(Wire::ConnectionFailed, text),
            Cause::TimedOut => with(Wire::TimedOut, String::new()),
            Cause::OutOfStep(text) | Cause::Malformed(text) => with(Wire::Protocol, text),
            Cause::ReplyTooLong => with(Wire::Protocol, "a reply without end".to_owned()),
            Cause::Tls(problem) => setup(Wire::Tls, problem),
            Cause::Credentials(problem) => setup(Wire::Credentials, problem),
            Cause::ClosedBetweenEmails | Cause::NotBegunInTime | Cause::Stopped | Cause::Panicked(_) => {
                with(Wire::GivenUp, cause.to_string())
            }
        },
    }
}

/// Returns the step of a session.
pub fn relay_stage(stage: Stage) -> v1::RelayStage {
    match stage {
        Stage::Connect => v1::RelayStage::Connect,
        Stage::Tls => v1::RelayStage::Tls,
        Stage::Banner => v1::RelayStage::Greeting,
        Stage::Ehlo => v1::RelayStage::Ehlo,
        Stage::Auth => v1::RelayStage::Auth,
        Stage::Mail | Stage::Rcpt | Stage::Data | Stage::Body => v1::RelayStage::Mail,
        Stage::FinalDot | Stage::Answered => v1::RelayStage::Unspecified,
    }
}

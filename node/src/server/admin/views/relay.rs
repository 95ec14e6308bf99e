//! Builds the messages of a relay: its settings from the ledger, and its health on this node.

use std::time::Duration;

use reveille_cluster::smtp::{CircuitStatus, RelayStatus};
use reveille_ledger::access::{Tls, Trust};
use reveille_ledger::command::Relay;
use reveille_ledger::ids::Time;
use reveille_proto::admin::v1;
use tokio::time::Instant;

use super::timestamp;

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
        CircuitStatus::Closed => match status.slowed {
            Some(cause) => (v1::RelayCondition::Throttled, cause, None),
            None => (v1::RelayCondition::Ready, String::new(), None),
        },
        CircuitStatus::Open { until, cause } => (v1::RelayCondition::Failing, cause, Some(at(until))),
        CircuitStatus::Parked { until, cause } => (v1::RelayCondition::Parked, cause, Some(at(until))),
        CircuitStatus::HalfOpen { cause, .. } => (v1::RelayCondition::Probing, cause, None),
    };
    v1::RelayHealth {
        node: node.to_owned(),
        condition: condition.into(),
        cause,
        retry_time: until,
        sessions_open: u32::try_from(status.sessions_open).unwrap_or(u32::MAX),
        rate_per_second: status.rate_per_second,
    }
}

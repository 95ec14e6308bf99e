//! Validates a relay.

use reveille_cluster::smtp::{BadTarget, CredentialStore, Target};
use reveille_ledger::DEFAULT_POOL;
use reveille_ledger::access::{Access, Tls, Trust, is_path};
use reveille_ledger::command::Relay;
use reveille_proto::admin::v1;

use super::{Fields, NAME_MAX};
use crate::server::admin::{ApiError, ApiResult};

/// Default number of open dialogues on one node.
const SESSIONS_DEFAULT: u32 = 10;
/// Maximum number of open dialogues on one node.
const SESSIONS_MAX: u32 = 1_000;
/// Maximum weight of a relay in its pool.
const WEIGHT_MAX: u32 = 1_000;
/// Maximum rate in emails per second, over the whole cluster.
const RATE_MAX: f64 = 1_000_000.0;

/// Checks a relay, and fills in defaults.
pub fn relay(requested: Option<v1::Relay>) -> ApiResult<Relay> {
    let requested = requested.ok_or_else(|| ApiError::of_field("relay", "is missing"))?;
    let mut fields = Fields::default();
    let name = fields.name("relay.name", &requested.name, NAME_MAX);
    let pool = fields.name_or("relay.pool", &requested.pool, DEFAULT_POOL);
    let port = u16::try_from(requested.port).ok().filter(|port| *port > 0);
    if port.is_none() {
        fields.refuse("relay.port", format!("{} is not a port; give 1 to 65535", requested.port));
    }
    if requested.host.is_empty() {
        fields.refuse("relay.host", "is missing; give a name or an address");
    } else if Target::new(&requested.host, 25, "localhost", &Access::default()).is_err()
        || requested.host.contains(['/', '@', '[', ']'])
    {
        let form = "give a name or an address, IPv6 without brackets";
        fields.refuse("relay.host", format!("{:?} is not a host; {form}", requested.host));
    }
    let access = access(&mut fields, &requested);
    let (rate, late) = (requested.rate_per_second, requested.late_rate_per_second);
    for (field, rate, zero) in
        [("relay.rate_per_second", rate, "no bound"), ("relay.late_rate_per_second", late, "half of the rate")]
    {
        if !(0.0..=RATE_MAX).contains(&rate) || (rate > 0.0 && rate < 0.001) {
            fields.refuse(field, format!("{rate} is not a rate; give 0.001 to {RATE_MAX}, or 0 for {zero}"));
        }
    }
    if rate > 0.0 && late > rate {
        fields.refuse("relay.late_rate_per_second", format!("{late} is above the rate of {rate}"));
    }
    let max_sessions = if requested.max_sessions == 0 { SESSIONS_DEFAULT } else { requested.max_sessions };
    if max_sessions > SESSIONS_MAX {
        fields
            .refuse("relay.max_sessions", format!("{max_sessions} is above {SESSIONS_MAX}; give 1 to {SESSIONS_MAX}"));
    }
    let weight = requested.weight.max(1);
    if weight > WEIGHT_MAX {
        fields.refuse("relay.weight", format!("{weight} is above {WEIGHT_MAX}; give 1 to {WEIGHT_MAX}"));
    }
    let created = port.map(|port| Relay {
        name,
        pool,
        host: requested.host,
        port,
        access,
        // The rate is bounded above, so it fits.
        rate_milli: (rate * 1_000.0).round() as u64,
        max_sessions,
        late_rate_milli: (late * 1_000.0).round() as u64,
        weight,
    });
    fields.done(created)
}

/// Checks TLS and credentials. Settings that have no effect without TLS are refused.
fn access(fields: &mut Fields, requested: &v1::Relay) -> Access {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let trust = Trust { ca: given(&requested.ca), name: given(&requested.tls_name) };
    let credentials = given(&requested.credentials);
    let is_section = |name: &str| name.len() <= NAME_MAX && name.bytes().all(CredentialStore::may_name);
    if credentials.as_deref().is_some_and(|name| !is_section(name)) {
        // The error does not repeat the text, because it may be the password itself.
        fields.refuse("relay.credentials", "is not the name of a section [credentials.NAME] of a node's configuration");
    }
    let tls = match v1::RelayTls::try_from(requested.tls) {
        Ok(v1::RelayTls::None) => {
            for (field, text) in [("relay.ca", &trust.ca), ("relay.tls_name", &trust.name)] {
                if text.is_some() {
                    fields.refuse(field, "needs TLS; give starttls or implicit");
                }
            }
            Tls::None
        }
        Ok(v1::RelayTls::Starttls) => Tls::StartTls(trust),
        Ok(v1::RelayTls::Implicit) => Tls::Implicit(trust),
        Ok(v1::RelayTls::Unspecified) => {
            fields.refuse("relay.tls", "is missing; give none, starttls or implicit");
            Tls::None
        }
        Err(_) => {
            fields.refuse("relay.tls", "is a value that this node does not know; give none, starttls or implicit");
            Tls::None
        }
    };
    if !requested.ca.is_empty() && !is_path(&requested.ca) {
        fields.refuse("relay.ca", "is not the absolute path of a file, which each node has to have");
    }
    let access = Access { tls, credentials };
    match Target::new(&requested.host, 25, "localhost", &access) {
        Err(BadTarget::TlsName) => {
            fields.refuse("relay.tls_name", "no certificate can be for that name; give a DNS name or an address");
        }
        Err(BadTarget::ClearPassword) => {
            let next = "give starttls or implicit (in the clear only for a relay on this machine)";
            fields.refuse("relay.credentials", format!("would cross the network in the clear; {next}"));
        }
        // The host has its own check, and the CA file is checked above.
        Err(BadTarget::Host | BadTarget::HelloName | BadTarget::CaFile) | Ok(_) => {}
    }
    access
}

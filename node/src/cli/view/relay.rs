//! Output of `relay …`.

use reveille_proto::admin::v1::{Relay, RelayCondition, RelayHealth, TestRelayResponse};

use super::{Cell, Tone, View, card, duration_ms, format, pairs, some, text, word};
use crate::cli::wording::relay_cause;

fn tone(health: &RelayHealth) -> Tone {
    match health.condition() {
        RelayCondition::Ready => Tone::Good,
        RelayCondition::Throttled => Tone::Notable,
        _ => Tone::Bad,
    }
}

/// Returns the whole state on a node, for the view of one relay.
fn condition_text(health: &RelayHealth) -> String {
    let until = text(health.retry_time.as_ref()).map(|until| format!(", tried at {until}")).unwrap_or_default();
    let cause = health.cause.as_ref().map(|cause| format!(": {}", relay_cause(cause))).unwrap_or_default();
    format!("{} on {}{until}{cause}", word(health.condition().as_str_name()), health.node)
}

/// True if the relay offers AUTH at the point that the test reached.
pub fn offers_auth(test: &TestRelayResponse) -> bool {
    let is_auth = |offer: &String| offer.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case("AUTH"));
    test.extensions.iter().any(is_auth)
}

fn health(test: &TestRelayResponse) -> Option<&RelayHealth> {
    test.relay.as_ref()?.health.as_ref()
}

/// Returns a warning if the relay answers but the node does not use it, for example because of a quota.
pub fn left_alone(test: &TestRelayResponse) -> Option<String> {
    use RelayCondition::{Ready, Throttled};
    let health = health(test).filter(|health| !matches!(health.condition(), Ready | Throttled))?;
    Some(format!("warning: it answers, but no mail goes out by it now: it is {}", condition_text(health)))
}

impl View for Relay {
    const NOUN: &'static str = "relays";
    const COLUMNS: &'static [&'static str] = &["NAME", "POOL", "ENDPOINT", "TLS", "RATE", "SESSIONS", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let state = |health: &RelayHealth| Cell::toned(word(health.condition().as_str_name()), tone(health));
        vec![
            self.name.as_str().into(),
            self.pool.as_str().into(),
            format!("{}:{}", self.host, self.port).into(),
            word(self.tls().as_str_name()).into(),
            Cell::rate(self.rate_per_second),
            self.max_sessions.to_string().into(),
            self.health.as_ref().map_or_else(|| Cell::or_dash(None), state),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = pairs(self);
        if let (Some(health), Some(state)) = (&self.health, pairs.last_mut()) {
            state.1 = Cell::toned(condition_text(health), tone(health));
        }
        let late = (self.late_rate_per_second > 0.0).then(|| format!("{}/s", self.late_rate_per_second));
        let weight = (self.weight > 1).then(|| self.weight.to_string());
        let more = [
            ("late rate", late.as_deref()),
            ("weight", weight.as_deref()),
            ("ca", some(&self.ca)),
            ("tls name", some(&self.tls_name)),
            ("credentials", some(&self.credentials)),
        ];
        pairs.extend(more.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))));
        card(pairs, paint)
    }
}

/// Returns the card of a relay's test.
pub fn tested(name: &str, test: &TestRelayResponse, paint: bool) -> String {
    let reachable = if test.reachable { Cell::toned("yes", Tone::Good) } else { Cell::toned("no", Tone::Bad) };
    let elapsed = test.elapsed.as_ref().map(duration_ms).unwrap_or_default();
    let mut pairs = vec![
        ("relay", name.into()),
        ("reachable", reachable),
        ("from node", test.node.as_str().into()),
        ("took", format::duration(elapsed).into()),
        ("banner", Cell::or_dash(test.banner.as_str())),
    ];
    if !test.extensions.is_empty() {
        pairs.push(("offers", test.extensions.join(", ").into()));
    }
    let expires = text(test.certificate_expire_time.as_ref());
    let more = [
        ("tls", some(&test.tls_version)),
        ("certificate", some(&test.certificate_subject)),
        ("expires", expires.as_deref()),
        ("auth", some(&test.auth_mechanism)),
    ];
    pairs.extend(more.into_iter().filter_map(|(name, text)| Some((name, text?.into()))));
    if let Some(health) = health(test).filter(|health| health.condition() != RelayCondition::Ready) {
        pairs.push(("state", Cell::toned(condition_text(health), tone(health))));
    }
    pairs.extend(some(&test.problem).map(|problem| ("problem", Cell::toned(problem, Tone::Bad))));
    card(pairs, paint)
}

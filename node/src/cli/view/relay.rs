//! Output of `relay …`.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::fields::view;
use super::layout::{Cell, Tone, card};
use super::{Row, View, some};
use crate::cli::instant::{self, duration_ms};
use crate::cli::word::word;
use crate::format;

view! {
    /// A relay.
    pub struct RelayView of v1::Relay as relay {
        name: String,
        pool: String,
        host: String,
        port: u32,
        tls: String = word("RELAY_TLS_", relay.tls().as_str_name()),
        /// Path of the CA certificates; null for the system's roots.
        ca: Option<String>,
        /// Name that the certificate must have; null for the host.
        tls_name: Option<String>,
        /// Name of the credentials in each node's configuration; null without AUTH.
        credentials: Option<String>,
        /// Null without a limit.
        rate_per_second: Option<f64>,
        max_sessions: u32,
        /// Null for half of the rate, or for no limit if the rate has none.
        late_rate_per_second: Option<f64>,
        weight: u32,
        /// Null if the answering node does not use the relay.
        health: Option<HealthView>,
    }
}

view! {
    /// A relay's state on one node.
    pub struct HealthView of v1::RelayHealth as health {
        node: String,
        /// One of `ready`, `throttled`, `failing`, `probing`, `parked`.
        condition: String = word("RELAY_CONDITION_", health.condition().as_str_name()),
        cause: Option<String>,
        /// When the node tries the relay again.
        until: Option<String>,
        sessions_open: u32,
        rate_per_second: f64,
    }
}

/// Result of a node's test of a relay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelayTestView {
    /// Name of the relay.
    pub name: String,
    /// True if a server answered at the relay's address.
    pub reachable: bool,
    /// Name of the testing node.
    pub node: String,
    /// Duration of the test.
    pub elapsed_ms: i64,
    /// The server's greeting.
    pub banner: Option<String>,
    /// Extensions that EHLO offers.
    pub extensions: Vec<String>,
    /// TLS version, such as `TLS 1.3`; null without TLS.
    pub tls_version: Option<String>,
    /// Subject of the relay's certificate.
    pub certificate_subject: Option<String>,
    /// Expiry of the relay's certificate.
    pub certificate_expires_at: Option<String>,
    /// `PLAIN` or `LOGIN`, if the relay accepted it.
    pub auth_mechanism: Option<String>,
    /// Where the test failed, and why.
    pub problem: Option<String>,
    /// Next step after a failed test.
    pub next: Option<String>,
    /// Null if the testing node does not use the relay.
    pub health: Option<HealthView>,
}

/// An object that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedView {
    /// Name of the removed object.
    pub name: String,
    /// Log index of the removal.
    pub index: u64,
    /// True if it would only be removed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl HealthView {
    fn cell(&self) -> Cell {
        Cell::toned(self.condition.as_str(), self.tone())
    }

    fn tone(&self) -> Tone {
        match self.condition.as_str() {
            "ready" => Tone::Good,
            "throttled" => Tone::Notable,
            _ => Tone::Bad,
        }
    }

    /// True if the node sends no email through the relay.
    fn is_left_alone(&self) -> bool {
        !matches!(self.condition.as_str(), "ready" | "throttled")
    }

    /// Returns the whole state, for the view of one relay.
    fn text(&self) -> String {
        let until = self.until.as_ref().map(|until| format!(", tried at {until}"));
        let cause = self.cause.as_ref().map(|cause| format!(": {cause}"));
        let (until, cause) = (until.unwrap_or_default(), cause.unwrap_or_default());
        format!("{} on {}{until}{cause}", self.condition, self.node)
    }
}

impl RelayTestView {
    /// Creates the view from a node's answer.
    pub fn new(name: String, test: v1::TestRelayResponse) -> RelayTestView {
        RelayTestView {
            name,
            reachable: test.reachable,
            node: test.node,
            elapsed_ms: test.elapsed.as_ref().map(duration_ms).unwrap_or_default(),
            banner: some(test.banner),
            extensions: test.extensions,
            tls_version: some(test.tls_version),
            certificate_subject: some(test.certificate_subject),
            certificate_expires_at: instant::text(test.certificate_expires_at.as_ref()),
            auth_mechanism: some(test.auth_mechanism),
            problem: some(test.problem),
            next: some(test.next),
            health: test.health.map(HealthView::from),
        }
    }

    /// True if the relay offers AUTH at the point that the test reached.
    pub fn offers_auth(&self) -> bool {
        self.extensions
            .iter()
            .any(|offer| offer.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case("AUTH")))
    }

    /// Returns a warning if the relay answers but the node does not use it, for example because of a quota.
    pub fn left_alone(&self) -> Option<String> {
        let health = self.health.as_ref().filter(|health| health.is_left_alone())?;
        Some(format!("warning: it answers, but no mail goes out by it now: it is {}", health.text()))
    }
}

impl RelayView {
    /// Returns the relay's name.
    pub fn own_name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }
}

impl View for RelayView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let names = RelayView::COLUMNS.iter().map(|column| column.to_lowercase()).collect::<Vec<_>>();
        let mut pairs: Vec<(&str, Cell)> = names.iter().map(String::as_str).zip(self.cells()).collect();
        if let (Some(health), Some(state)) = (&self.health, pairs.last_mut()) {
            state.1 = Cell::toned(health.text(), health.tone());
        }
        let late = self.late_rate_per_second.map(|rate| format!("{rate}/s"));
        let weight = (self.weight > 1).then(|| self.weight.to_string());
        let more = [
            ("late rate", &late),
            ("weight", &weight),
            ("ca", &self.ca),
            ("tls name", &self.tls_name),
            ("credentials", &self.credentials),
        ];
        pairs.extend(more.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?.into()))));
        card(pairs, paint)
    }
}

impl Row for RelayView {
    const NOUN: &'static str = "relays";
    const COLUMNS: &'static [&'static str] = &["NAME", "POOL", "ENDPOINT", "TLS", "RATE", "SESSIONS", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let rate = self.rate_per_second.map(|rate| format!("{rate}/s"));
        vec![
            self.name.as_str().into(),
            self.pool.as_str().into(),
            format!("{}:{}", self.host, self.port).into(),
            self.tls.as_str().into(),
            Cell::or_dash(rate.as_deref()),
            self.max_sessions.to_string().into(),
            self.health.as_ref().map_or_else(|| Cell::or_dash(None), HealthView::cell),
        ]
    }
}

impl View for RelayTestView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let reachable = if self.reachable { Cell::toned("yes", Tone::Good) } else { Cell::toned("no", Tone::Bad) };
        let mut pairs = vec![
            ("relay", self.name.as_str().into()),
            ("reachable", reachable),
            ("from node", self.node.as_str().into()),
            ("took", format::duration(self.elapsed_ms).into()),
            ("banner", Cell::or_dash(self.banner.as_deref())),
        ];
        if !self.extensions.is_empty() {
            pairs.push(("offers", self.extensions.join(", ").into()));
        }
        let more = [
            ("tls", &self.tls_version),
            ("certificate", &self.certificate_subject),
            ("expires", &self.certificate_expires_at),
            ("auth", &self.auth_mechanism),
        ];
        pairs.extend(more.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?.into()))));
        if let Some(health) = self.health.as_ref().filter(|health| health.condition != "ready") {
            pairs.push(("state", Cell::toned(health.text(), health.tone())));
        }
        if let Some(problem) = &self.problem {
            pairs.push(("problem", Cell::toned(problem.as_str(), Tone::Bad)));
        }
        card(pairs, paint)
    }
}

impl View for RemovedView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, _paint: bool) -> String {
        match self.dry_run {
            true => format!("{} would be removed", self.name),
            false => format!("{} removed, log index {}", self.name, self.index),
        }
    }
}

//! What `relay …` prints.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::sheet::{Cell, Tone, card};
use super::{Row, View, some};
use crate::cli::instant::{self, duration_ms};
use crate::cli::word::word;
use crate::format;

/// A relay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelayView {
    name: String,
    pool: String,
    host: String,
    port: u32,
    tls: String,
    /// Null: the system's roots.
    ca: Option<String>,
    /// Null: the host.
    tls_name: Option<String>,
    /// What each node's configuration calls the credentials. Null: no AUTH.
    credentials: Option<String>,
    /// Null: no bound.
    rate_per_second: Option<f64>,
    max_sessions: u32,
    /// Null: half of the rate.
    late_rate_per_second: Option<f64>,
    weight: u32,
    /// Null: the node that answered does not use it.
    health: Option<HealthView>,
}

/// A relay as one node sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealthView {
    node: String,
    /// `ready`, `throttled`, `failing`, `probing` or `parked`.
    condition: String,
    cause: Option<String>,
    /// When an email is tried.
    until: Option<String>,
    sessions_open: u32,
    rate_per_second: f64,
}

/// Whether a node can talk to a relay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelayTestView {
    /// The relay.
    pub name: String,
    /// Did a server answer there?
    pub reachable: bool,
    /// The node that tried.
    pub node: String,
    /// How long it took.
    pub elapsed_ms: i64,
    /// What it said first.
    pub banner: Option<String>,
    /// What EHLO offers.
    pub extensions: Vec<String>,
    /// As `TLS 1.3`; null in the clear.
    pub tls_version: Option<String>,
    /// The subject of the relay's certificate.
    pub certificate_subject: Option<String>,
    /// When that certificate ends.
    pub certificate_expires_at: Option<String>,
    /// `PLAIN` or `LOGIN`, where the relay took it.
    pub auth_mechanism: Option<String>,
    /// Where and why it failed.
    pub problem: Option<String>,
    /// What to do about it.
    pub next: Option<String>,
    /// Null: the node that tried does not use it.
    pub health: Option<HealthView>,
}

/// What an entry did, by its index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedView {
    /// What is gone.
    pub name: String,
    /// Log index.
    pub index: u64,
    /// Would it only be removed?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl From<v1::Relay> for RelayView {
    fn from(relay: v1::Relay) -> RelayView {
        RelayView {
            tls: word("RELAY_TLS_", relay.tls().as_str_name()),
            ca: some(relay.ca),
            tls_name: some(relay.tls_name),
            credentials: some(relay.credentials),
            health: relay.health.map(HealthView::from),
            name: relay.name,
            pool: relay.pool,
            host: relay.host,
            port: relay.port,
            rate_per_second: (relay.rate_per_second > 0.0).then_some(relay.rate_per_second),
            max_sessions: relay.max_sessions,
            weight: relay.weight,
            late_rate_per_second: (relay.late_rate_per_second > 0.0).then_some(relay.late_rate_per_second),
        }
    }
}

impl From<v1::RelayHealth> for HealthView {
    fn from(health: v1::RelayHealth) -> HealthView {
        HealthView {
            condition: word("RELAY_CONDITION_", health.condition().as_str_name()),
            until: instant::text(health.until.as_ref()),
            node: health.node,
            cause: some(health.cause),
            sessions_open: health.sessions_open,
            rate_per_second: health.rate_per_second,
        }
    }
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

    /// Does the node send no mail by it?
    fn is_left_alone(&self) -> bool {
        !matches!(self.condition.as_str(), "ready" | "throttled")
    }

    /// All of it, for one relay.
    fn text(&self) -> String {
        let until = self.until.as_ref().map(|until| format!(", tried at {until}"));
        let cause = self.cause.as_ref().map(|cause| format!(": {cause}"));
        let (until, cause) = (until.unwrap_or_default(), cause.unwrap_or_default());
        format!("{} on {}{until}{cause}", self.condition, self.node)
    }
}

impl RelayTestView {
    /// What a node found out about a relay.
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

    /// It takes a login where the test came to.
    pub fn offers_auth(&self) -> bool {
        self.extensions
            .iter()
            .any(|offer| offer.split(' ').next().is_some_and(|word| word.eq_ignore_ascii_case("AUTH")))
    }

    /// A relay that answers may be left alone all the same: for a quota, say.
    pub fn left_alone(&self) -> Option<String> {
        let health = self.health.as_ref().filter(|health| health.is_left_alone())?;
        Some(format!("warning: it answers, but no mail goes out by it now: it is {}", health.text()))
    }
}

impl RelayView {
    /// Its own name.
    pub fn own_name(&self) -> &str {
        &self.name
    }

    /// Its pool.
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
        let verdict = if self.reachable { Cell::toned("yes", Tone::Good) } else { Cell::toned("no", Tone::Bad) };
        let mut pairs = vec![
            ("relay", self.name.as_str().into()),
            ("reachable", verdict),
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

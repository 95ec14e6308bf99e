//! What `relay …` prints.

use reveille_proto::admin::v1;
use serde::Serialize;

use super::sheet::{Cell, Tone, card};
use super::{Row, View, some};
use crate::cli::human;
use crate::cli::instant::duration_ms;
use crate::cli::word::word;

/// A relay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelayView {
    name: String,
    pool: String,
    host: String,
    port: u32,
    tls: String,
    /// Null: no bound.
    rate_per_second: Option<f64>,
    max_sessions: u32,
}

/// Whether a node can talk to a relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelayTestView {
    /// The relay.
    pub name: String,
    /// Did it greet, and take EHLO?
    pub reachable: bool,
    /// Who tried.
    pub node: String,
    /// How long it took.
    pub elapsed_ms: i64,
    /// What it said first.
    pub banner: Option<String>,
    /// What EHLO offers.
    pub extensions: Vec<String>,
    /// Where and why it failed.
    pub problem: Option<String>,
}

/// What an entry did, by its index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedView {
    /// What is gone.
    pub name: String,
    /// Log index.
    pub index: u64,
}

impl From<v1::Relay> for RelayView {
    fn from(relay: v1::Relay) -> RelayView {
        let tls = match relay.tls() {
            v1::RelayTls::Unspecified => "none".to_owned(),
            tls => word("RELAY_TLS_", tls.as_str_name()),
        };
        RelayView {
            tls,
            name: relay.name,
            pool: relay.pool,
            host: relay.host,
            port: relay.port,
            rate_per_second: (relay.rate_per_second > 0.0).then_some(relay.rate_per_second),
            max_sessions: relay.max_sessions,
        }
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
            problem: some(test.problem),
        }
    }
}

impl View for RelayView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let cells = self.cells();
        let pairs = RelayView::COLUMNS.iter().map(|column| column.to_lowercase()).collect::<Vec<_>>();
        card(pairs.iter().map(String::as_str).zip(cells).collect(), paint)
    }
}

impl Row for RelayView {
    const NOUN: &'static str = "relays";
    const COLUMNS: &'static [&'static str] = &["NAME", "POOL", "ENDPOINT", "TLS", "RATE", "SESSIONS"];

    fn cells(&self) -> Vec<Cell> {
        let rate = self.rate_per_second.map(|rate| format!("{rate}/s"));
        vec![
            self.name.as_str().into(),
            self.pool.as_str().into(),
            format!("{}:{}", self.host, self.port).into(),
            self.tls.as_str().into(),
            Cell::or_dash(rate.as_deref()),
            self.max_sessions.to_string().into(),
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
            ("took", human::duration(self.elapsed_ms).into()),
            ("banner", Cell::or_dash(self.banner.as_deref())),
        ];
        if !self.extensions.is_empty() {
            pairs.push(("offers", self.extensions.join(", ").into()));
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
        format!("{} removed, log index {}", self.name, self.index)
    }
}

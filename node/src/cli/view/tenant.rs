//! Output of `tenant …`.

use reveille_proto::admin::v1;

use super::fields::view;
use super::layout::{Cell, card};
use super::{Row, View};
use crate::format;

view! {
    /// A tenant and its limits.
    pub struct TenantView of v1::Tenant as tenant {
        name: String,
        /// Null without a limit.
        rate_per_second: Option<f64>,
        /// Null without a limit.
        concurrency: Option<u32>,
        share: u32,
        /// Recipients claimed now.
        claimed: u32,
        /// Log index of the limits; null if none are recorded.
        index: Option<u64>,
    }
}

impl View for TenantView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let names = TenantView::COLUMNS.iter().map(|column| column.to_lowercase()).collect::<Vec<_>>();
        let mut pairs: Vec<(&str, Cell)> = names.iter().map(String::as_str).zip(self.cells()).collect();
        if let Some(index) = self.index {
            pairs.push(("set", format!("log index {index}").into()));
        }
        card(pairs, paint)
    }
}

impl Row for TenantView {
    const NOUN: &'static str = "tenants";
    const COLUMNS: &'static [&'static str] = &["NAME", "RATE", "CONCURRENCY", "SHARE", "CLAIMED"];

    fn cells(&self) -> Vec<Cell> {
        let rate = self.rate_per_second.map(|rate| format!("{rate}/s"));
        let concurrency = self.concurrency.map(|most| format::count(most.into()));
        vec![
            self.name.as_str().into(),
            Cell::or_dash(rate.as_deref()),
            Cell::or_dash(concurrency.as_deref()),
            self.share.to_string().into(),
            format::count(self.claimed.into()).into(),
        ]
    }
}

//! Output of `tenant …`.

use reveille_proto::admin::v1::Tenant;

use super::{Cell, View, card, format, pairs};

impl View for Tenant {
    const NOUN: &'static str = "tenants";
    const COLUMNS: &'static [&'static str] = &["NAME", "RATE", "CONCURRENCY", "SHARE", "CLAIMED"];

    fn cells(&self) -> Vec<Cell> {
        let concurrency = (self.concurrency > 0).then(|| format::count(self.concurrency.into()));
        vec![
            self.name.as_str().into(),
            Cell::rate(self.rate_per_second),
            Cell::or_dash(concurrency.as_deref()),
            self.share.to_string().into(),
            format::count(self.claimed.into()).into(),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = pairs(self);
        pairs.extend((!self.pools.is_empty()).then(|| ("pools".to_owned(), self.pools.join(", ").into())));
        pairs.extend((self.index > 0).then(|| ("set".to_owned(), format!("log index {}", self.index).into())));
        card(pairs, paint)
    }
}

//! Output of `pool …`, and the message of a status about a pool whose daily cap is used up.

use reveille_proto::admin::v1::Pool;

use super::{Cell, Tone, View, card, format, pairs, some};

/// Returns a message that the cap is used up, with the number of waiting emails.
pub fn sentence(pool: &Pool) -> String {
    let cap = format::count(pool.cap_today.unwrap_or_default().into());
    let waits = format::counted(pool.waiting, "email");
    let verb = if pool.waiting == 1 { "waits" } else { "wait" };
    format!("pool {}: today's cap of {cap} is used up; {waits} {verb} until 00:00 UTC", pool.name)
}

impl View for Pool {
    const NOUN: &'static str = "pools";
    const COLUMNS: &'static [&'static str] = &["NAME", "RELAYS", "CAP TODAY", "USED", "WAITING"];

    fn cells(&self) -> Vec<Cell> {
        let count = |count: u32| format::count(count.into());
        let used = self.cap_today.map_or(Cell::or_dash(None), |cap| {
            let tone = if self.used_today >= cap { Tone::Notable } else { Tone::Plain };
            Cell::toned(count(self.used_today), tone)
        });
        vec![
            self.name.as_str().into(),
            Cell::or_dash(self.relays.join(", ").as_str()),
            Cell::or_dash(self.cap_today.map(count).as_deref()),
            used,
            format::count(self.waiting).into(),
        ]
    }

    fn text(&self, paint: bool) -> String {
        let mut pairs = pairs(self);
        if let Some(first) = some(&self.first_day) {
            let caps: Vec<String> = self.warm_up.iter().map(ToString::to_string).collect();
            pairs.push(("warm-up".to_owned(), format!("{}, from {first}", caps.join(", ")).into()));
        }
        pairs.extend((!self.reveille_headers).then(|| ("X-Reveille-*".to_owned(), "off".into())));
        card(pairs, paint)
    }
}

//! Output of `pool …`, and the message of a status about a pool whose daily cap is used up.

use reveille_proto::admin::v1;

use super::fields::view;
use super::layout::{Cell, Tone, card};
use super::{Row, View};
use crate::format;

view! {
    /// A pool and its settings.
    pub struct PoolView of v1::Pool as pool {
        name: String,
        relays: Vec<String>,
        /// Daily caps of the warm-up; empty without one.
        warm_up: Vec<u32>,
        /// First day of the warm-up; null without one.
        first_day: Option<String>,
        /// Limit of emails today; null without a limit.
        cap_today: Option<u32>,
        /// Recipients sent today, possibly sent, or claimed; zero without a warm-up.
        used_today: u32,
        waiting: u64,
        /// End of today.
        until: Option<String>,
        /// Log index of the settings; null if nothing is set.
        index: Option<u64>,
        reveille_headers: bool,
    }
}

impl PoolView {
    /// Returns a message that the cap is used up, with the number of waiting emails.
    pub fn sentence(&self) -> String {
        let cap = format::count(self.cap_today.unwrap_or_default().into());
        let waits = format::counted(self.waiting, "email");
        let verb = if self.waiting == 1 { "waits" } else { "wait" };
        format!("pool {}: today's cap of {cap} is used up; {waits} {verb} until 00:00 UTC", self.name)
    }

    fn is_used_up(&self) -> bool {
        self.cap_today.is_some_and(|cap| self.used_today >= cap)
    }

    fn used(&self) -> Cell {
        let tone = if self.is_used_up() { Tone::Notable } else { Tone::Plain };
        match self.cap_today {
            Some(_) => Cell::toned(format::count(self.used_today.into()), tone),
            None => Cell::or_dash(None),
        }
    }
}

impl View for PoolView {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(&self, paint: bool) -> String {
        let names = PoolView::COLUMNS.iter().map(|column| column.to_lowercase()).collect::<Vec<_>>();
        let mut pairs: Vec<(&str, Cell)> = names.iter().map(String::as_str).zip(self.cells()).collect();
        if let Some(first) = &self.first_day {
            let caps: Vec<String> = self.warm_up.iter().map(ToString::to_string).collect();
            pairs.push(("warm-up", format!("{}, from {first}", caps.join(", ")).into()));
        }
        if !self.reveille_headers {
            pairs.push(("X-Reveille-*", "off".into()));
        }
        card(pairs, paint)
    }
}

impl Row for PoolView {
    const NOUN: &'static str = "pools";
    const COLUMNS: &'static [&'static str] = &["NAME", "RELAYS", "CAP TODAY", "USED", "WAITING"];

    fn cells(&self) -> Vec<Cell> {
        let relays = self.relays.join(", ");
        let cap = self.cap_today.map(|cap| format::count(cap.into()));
        vec![
            self.name.as_str().into(),
            Cell::or_dash(Some(relays.as_str()).filter(|relays| !relays.is_empty())),
            Cell::or_dash(cap.as_deref()),
            self.used(),
            format::count(self.waiting).into(),
        ]
    }
}

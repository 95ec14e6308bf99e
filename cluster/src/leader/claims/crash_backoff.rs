//! What is said of nodes that rest after three deaths in ten minutes (P12).
//!
//! The dispatcher shows at each wake who rests; this remembers what was said already, so that each rest is
//! one line in the log, and so is its end. When no node may claim anything it is an alarm: then nothing is
//! sent until the instant that it names. It decides nothing: `reveille_ledger::deaths` does.

use std::collections::BTreeMap;

use reveille_ledger::ids::{NodeId, Time};

/// A node that is given no claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Its name, for people.
    pub name: String,
    /// Until when; ledger time.
    pub until: Time,
}

/// What was not so at the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A node rests.
    Rests(Rest),
    /// It may claim again, or is gone.
    IsOver(Rest),
    /// All rest: nothing is claimed before this instant.
    NobodyClaims(Time),
}

/// What was said.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    told: BTreeMap<NodeId, Rest>,
    nobody_until: Option<Time>,
}

/// A node that no longer leads knows of nobody's rest.
impl Drop for Rests {
    fn drop(&mut self) {
        metrics::gauge!("reveille_nodes_resting").set(0.0);
    }
}

impl Rests {
    /// Takes in who rests among `live` nodes, and says what is new.
    pub fn look(&mut self, resting: BTreeMap<NodeId, Rest>, live: usize) {
        metrics::gauge!("reveille_nodes_resting").set(resting.len() as f64);
        for news in self.news(resting, live) {
            match news {
                News::Rests(Rest { name, until }) => {
                    tracing::warn!(node = name, %until, "a node that died several times is given no claims");
                }
                News::IsOver(Rest { name, .. }) => tracing::info!(node = name, "the rest of a node is over"),
                News::NobodyClaims(until) => {
                    tracing::error!(%until, "no node may claim anything: nothing is sent until then");
                    metrics::counter!("reveille_alarms_total").increment(1);
                }
            }
        }
    }

    fn news(&mut self, resting: BTreeMap<NodeId, Rest>, live: usize) -> Vec<News> {
        let mut news = Vec::new();
        for (node, rest) in &resting {
            if self.told.get(node) != Some(rest) {
                news.push(News::Rests(rest.clone()));
            }
        }
        let over = self.told.iter().filter(|(node, _)| !resting.contains_key(node));
        news.extend(over.map(|(_, rest)| News::IsOver(rest.clone())));
        let soonest = resting.values().map(|rest| rest.until).min();
        let nobody_until = soonest.filter(|_| resting.len() == live);
        if nobody_until != self.nobody_until {
            news.extend(nobody_until.map(News::NobodyClaims));
        }
        (self.told, self.nobody_until) = (resting, nobody_until);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(name: &str, until: i64) -> Rest {
        Rest { name: name.to_owned(), until: Time(until) }
    }

    #[test]
    fn each_rest_and_its_end_are_said_once() {
        let mut rests = Rests::default();
        let one: BTreeMap<NodeId, Rest> = [(NodeId(1), rest("n1", 600))].into();
        assert_eq!(rests.news(one.clone(), 3), [News::Rests(rest("n1", 600))]);
        assert_eq!(rests.news(one, 3), []);
        let longer: BTreeMap<NodeId, Rest> = [(NodeId(1), rest("n1", 700))].into();
        assert_eq!(rests.news(longer, 3), [News::Rests(rest("n1", 700))]);
        assert_eq!(rests.news(BTreeMap::new(), 3), [News::IsOver(rest("n1", 700))]);
        assert_eq!(rests.news(BTreeMap::new(), 3), []);
    }

    #[test]
    fn that_nobody_claims_is_an_alarm_with_the_time_when_it_goes_on() {
        let mut rests = Rests::default();
        let both: BTreeMap<NodeId, Rest> = [(NodeId(1), rest("n1", 600)), (NodeId(2), rest("n2", 500))].into();
        assert!(rests.news(both.clone(), 2).contains(&News::NobodyClaims(Time(500))));
        assert_eq!(rests.news(both.clone(), 2), [], "once");
        assert_eq!(rests.news(both.clone(), 3), [], "another node came: it claims");
        assert_eq!(rests.news(both, 2), [News::NobodyClaims(Time(500))], "and is gone again");
        assert_eq!(Rests::default().news(BTreeMap::new(), 0), [], "no live node is no rest");
    }
}

//! What is said of relays whose day is used up (P6): once when one is parked, and once when a mail has passed again.
//!
//! A probe that hears the same again is the same news. It decides nothing: `relay/circuit.rs` does.

use std::collections::{BTreeMap, BTreeSet};

use super::CircuitStatus;

/// What was not so at the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The day's allowance is used up: in the relay's words.
    Parked {
        /// The relay.
        relay: String,
        /// What it said.
        cause: String,
    },
    /// It takes mail again, or is gone.
    IsOver(String),
}

/// Who is known to be parked.
#[derive(Debug, Default)]
pub(crate) struct Parkings(BTreeSet<String>);

impl Parkings {
    /// Takes in what the relays are doing, and says what is new: an alarm where one is parked.
    pub fn look(&mut self, circuits: &BTreeMap<String, CircuitStatus>) {
        for news in self.news(circuits) {
            match news {
                News::Parked { relay, cause } => {
                    tracing::warn!(relay, cause, "a relay takes no more today: one mail tries it every 15 minutes");
                    metrics::counter!("reveille_alarms_total").increment(1);
                }
                News::IsOver(relay) => tracing::info!(relay, "a relay is parked no more"),
            }
        }
    }

    fn news(&mut self, circuits: &BTreeMap<String, CircuitStatus>) -> Vec<News> {
        let mut news = Vec::new();
        for (relay, circuit) in circuits {
            if let CircuitStatus::Parked { cause, .. } = circuit
                && self.0.insert(relay.clone())
            {
                news.push(News::Parked { relay: relay.clone(), cause: cause.clone() });
            }
        }
        let is_over = |relay: &String| matches!(circuits.get(relay), None | Some(CircuitStatus::Closed));
        let over: Vec<String> = self.0.iter().filter(|relay| is_over(relay)).cloned().collect();
        for relay in over {
            self.0.remove(&relay);
            news.push(News::IsOver(relay));
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[test]
    fn a_used_up_day_is_one_alarm_however_often_it_is_probed() {
        let parked = || CircuitStatus::Parked { until: Instant::now(), cause: "454 quota".to_owned() };
        let probed = || CircuitStatus::HalfOpen { cause: "454 quota".to_owned() };
        let mut parkings = Parkings::default();
        let mut look = |circuit| parkings.news(&BTreeMap::from([("ses".to_owned(), circuit)]));
        let is_parked = || vec![News::Parked { relay: "ses".to_owned(), cause: "454 quota".to_owned() }];
        assert_eq!(look(CircuitStatus::Closed), []);
        assert_eq!(look(parked()), is_parked());
        assert_eq!([look(parked()), look(probed()), look(parked())].concat(), [], "it is known");
        assert_eq!(look(CircuitStatus::Closed), [News::IsOver("ses".to_owned())]);
        assert_eq!(look(parked()), is_parked(), "the next day is another");
        assert_eq!(parkings.news(&BTreeMap::new()), [News::IsOver("ses".to_owned())], "it was removed");
    }
}

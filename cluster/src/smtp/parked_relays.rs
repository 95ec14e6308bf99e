//! Reports relays whose daily allowance is used up (P6): once when a relay is parked, and once when an email passes
//! again.
//!
//! A probe that gets the same answer changes nothing. `pool/circuit.rs` decides when a relay is parked; this file only
//! reports it.

use std::collections::BTreeMap;

use super::CircuitStatus;
use crate::process::conditions::{Change, Conditions};

/// The relays that are known to be parked.
#[derive(Debug, Default)]
pub(crate) struct ParkedRelays(Conditions<String, ()>);

impl ParkedRelays {
    /// Compares the circuits with the known relays and reports each change. A relay that became parked raises an alarm.
    pub fn report_changes(&mut self, circuits: &BTreeMap<String, CircuitStatus>) {
        for change in self.changes(circuits) {
            match change {
                Change::Began(relay, ()) => {
                    let cause = match circuits.get(&relay) {
                        Some(CircuitStatus::Parked { cause, .. }) => cause.as_str(),
                        _ => "",
                    };
                    tracing::warn!(relay, cause, "a relay takes no more today: one email tries it every 15 minutes");
                    metrics::counter!("reveille_alarms_total").increment(1);
                }
                Change::Ended(relay, ()) => tracing::info!(relay, "a relay is parked no more"),
            }
        }
    }

    fn changes(&mut self, circuits: &BTreeMap<String, CircuitStatus>) -> Vec<Change<String, ()>> {
        let is_parked = |relay: &String, circuit: &CircuitStatus| match circuit {
            CircuitStatus::Parked { .. } => true,
            CircuitStatus::Closed => false,
            CircuitStatus::Open { .. } | CircuitStatus::HalfOpen { .. } => self.0.holds(relay),
        };
        let parked = circuits.iter().filter(|(relay, circuit)| is_parked(relay, circuit));
        let parked = parked.map(|(relay, _)| (relay.clone(), ())).collect();
        self.0.update(parked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[test]
    fn exhausted_daily_quota_is_one_alarm_despite_probes() {
        let parked = || CircuitStatus::Parked { until: Instant::now(), cause: "454 quota".to_owned() };
        let probed = || CircuitStatus::HalfOpen { cause: "454 quota".to_owned() };
        let mut relays = ParkedRelays::default();
        let mut changes = |circuit| relays.changes(&BTreeMap::from([("ses".to_owned(), circuit)]));
        let (began, ended) = ([Change::Began("ses".to_owned(), ())], [Change::Ended("ses".to_owned(), ())]);
        assert_eq!(changes(CircuitStatus::Closed), []);
        assert_eq!(changes(parked()), began);
        assert_eq!([changes(parked()), changes(probed()), changes(parked())].concat(), [], "it is known");
        assert_eq!(changes(CircuitStatus::Closed), ended);
        assert_eq!(changes(parked()), began, "the next day is another");
        assert_eq!(relays.changes(&BTreeMap::new()), ended, "it was removed");
    }
}

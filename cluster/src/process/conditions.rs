//! Conditions that are reported when they begin and when they end, but not in between.

use std::collections::BTreeMap;

/// The conditions that hold now, by their subject.
#[derive(Debug)]
pub(crate) struct Conditions<K, V>(BTreeMap<K, V>);

/// Difference from the last update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change<K, V> {
    /// The condition holds now and did not before, or its value has changed.
    Began(K, V),
    /// The condition no longer holds.
    Ended(K, V),
}

impl<K, V> Default for Conditions<K, V> {
    fn default() -> Conditions<K, V> {
        Conditions(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> Conditions<K, V> {
    /// Replaces the conditions by those that hold now. Returns the differences.
    pub fn update(&mut self, current: BTreeMap<K, V>) -> Vec<Change<K, V>> {
        let before = std::mem::replace(&mut self.0, current);
        let began = self.0.iter().filter(|(key, value)| before.get(*key) != Some(*value));
        let mut changes: Vec<_> = began.map(|(key, value)| Change::Began(key.clone(), value.clone())).collect();
        let ended = before.into_iter().filter(|(key, _)| !self.0.contains_key(key));
        changes.extend(ended.map(|(key, value)| Change::Ended(key, value)));
        changes
    }

    /// True if the condition holds for this key.
    pub fn holds(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_is_reported_when_it_begins_changes_and_ends() {
        let mut conditions = Conditions::default();
        let one = |until| BTreeMap::from([("n1", until)]);
        assert_eq!(conditions.update(one(600)), [Change::Began("n1", 600)]);
        assert_eq!(conditions.update(one(600)), []);
        assert_eq!(conditions.update(one(700)), [Change::Began("n1", 700)]);
        assert_eq!(conditions.update(BTreeMap::new()), [Change::Ended("n1", 700)]);
        assert_eq!(conditions.update(BTreeMap::new()), []);
    }
}

//! What those who use the admin API know of each other: what is being written, so that readers look at it; which runs
//! somebody has paused; which schedules are still held.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reveille_check::history::Noun;

use super::workload::Item;

/// So many of the objects that were written last are looked at.
const LATEST: usize = 8;

/// Whose it is, what, and its name.
pub type Object = (&'static str, Noun, String);

/// A handle; cheap to clone.
#[derive(Clone, Default)]
pub struct Desk {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    written: VecDeque<Object>,
    paused: BTreeSet<String>,
    held: Vec<Item>,
}

impl Desk {
    /// An object is about to be written.
    pub fn writes(&self, tenant: &'static str, noun: Noun, name: &str) {
        let mut known = self.known();
        let object = (tenant, noun, name.to_owned());
        known.written.retain(|other| *other != object);
        known.written.push_back(object);
        if known.written.len() > LATEST {
            known.written.pop_front();
        }
    }

    /// What was written lately.
    pub fn written(&self) -> Vec<Object> {
        self.known().written.iter().cloned().collect()
    }

    /// A run is about to be paused.
    pub fn pauses(&self, run: &str) {
        self.known().paused.insert(run.to_owned());
    }

    /// Has anybody ever tried to pause this run? One that finishes while it is paused is paused no more, and no entry tells
    /// of that pause's end: what would open it again is left alone, since nobody outside could judge it.
    pub fn was_paused(&self, run: &str) -> bool {
        self.known().paused.contains(run)
    }

    /// A schedule is held.
    pub fn hold(&self, item: Item) {
        self.known().held.push(item);
    }

    /// One that is held, and whose instants are over by then; whoever takes it lets it go.
    pub fn take_held(&self, by_ms: i64) -> Option<Item> {
        let mut known = self.known();
        let is_over = |item: &Item| item.instants_ms().iter().all(|at_ms| *at_ms < by_ms);
        let place = known.held.iter().position(is_over)?;
        Some(known.held.remove(place))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::workload::Kind;

    #[test]
    fn what_is_held_is_let_go_once_and_when_it_is_over() {
        let desk = Desk::default();
        desk.hold(Item { name: "held-0".to_owned(), due_ms: 0, recipients: 2, kind: Kind::Held(vec![1_000, 2_000]) });
        assert_eq!(desk.take_held(2_000), None);
        assert_eq!(desk.take_held(2_001).map(|item| item.name), Some("held-0".to_owned()));
        assert_eq!(desk.take_held(9_000), None);
    }

    #[test]
    fn readers_look_at_what_was_written_last() {
        let desk = Desk::default();
        for number in 0..20 {
            desk.writes("default", Noun::Schedule, &format!("s{}", number % 10));
        }
        let written: Vec<String> = desk.written().into_iter().map(|(_, _, name)| name).collect();
        assert_eq!(written, ["s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"]);
    }
}

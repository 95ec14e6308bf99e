//! State that the clients share: the objects that are being written and read, the runs that were ever paused, the
//! schedules that are still paused, and answers that no fault explains.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reveille_check::events::ObjectKind;

use crate::run::workload::WorkloadItem;

/// Number of last written objects that are read.
const LATEST: usize = 8;

/// Tenant, kind and name of an object.
pub type Object = (&'static str, ObjectKind, String);

/// A handle to the shared state. A clone is cheap.
#[derive(Clone, Default)]
pub struct Coordination {
    known: Arc<Mutex<SharedObjects>>,
}

#[derive(Default)]
struct SharedObjects {
    written: VecDeque<Object>,
    paused_runs: BTreeSet<String>,
    paused_schedules: Vec<WorkloadItem>,
    unexpected: Vec<String>,
}

impl Coordination {
    /// Records that an object is about to be written.
    pub fn writes(&self, tenant: &'static str, kind: ObjectKind, name: &str) {
        let mut known = self.known();
        let object = (tenant, kind, name.to_owned());
        known.written.retain(|other| *other != object);
        known.written.push_back(object);
        if known.written.len() > LATEST {
            known.written.pop_front();
        }
    }

    /// Returns the objects that were written last.
    pub fn written(&self) -> Vec<Object> {
        self.known().written.iter().cloned().collect()
    }

    /// Records that a run is about to be paused.
    pub fn pauses(&self, run: &str) {
        self.known().paused_runs.insert(run.to_owned());
    }

    /// Returns true if a client ever tried to pause this run. A paused run that finishes is no longer paused, and no
    /// log entry shows it. So operators never resend into such a run, because the judge could not know if the new
    /// claims are allowed.
    pub fn was_paused(&self, run: &str) -> bool {
        self.known().paused_runs.contains(run)
    }

    /// Keeps a paused schedule.
    pub fn keep_paused(&self, item: WorkloadItem) {
        self.known().paused_schedules.push(item);
    }

    /// Takes a paused schedule whose instants are before `by_ms`. The caller resumes it.
    pub fn take_paused(&self, by_ms: i64) -> Option<WorkloadItem> {
        let mut known = self.known();
        let is_over = |item: &WorkloadItem| item.instants_ms().iter().all(|at_ms| *at_ms < by_ms);
        let index = known.paused_schedules.iter().position(is_over)?;
        Some(known.paused_schedules.remove(index))
    }

    /// Reports an answer that no fault explains. The run is not valid.
    pub fn unexpected(&self, answer: String) {
        self.known().unexpected.push(answer);
    }

    /// Takes the reported answers.
    pub fn take_unexpected(&self) -> Vec<String> {
        std::mem::take(&mut self.known().unexpected)
    }

    fn known(&self) -> MutexGuard<'_, SharedObjects> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::workload::ItemKind;

    #[test]
    fn paused_schedule_is_taken_once_and_after_its_instants() {
        let coordination = Coordination::default();
        let kind = ItemKind::Paused(vec![1_000, 2_000]);
        coordination.keep_paused(WorkloadItem { name: "paused-0".to_owned(), due_ms: 0, recipients: 2, kind });
        assert_eq!(coordination.take_paused(2_000), None);
        assert_eq!(coordination.take_paused(2_001).map(|item| item.name), Some("paused-0".to_owned()));
        assert_eq!(coordination.take_paused(9_000), None);
    }

    #[test]
    fn last_written_objects_are_kept() {
        let coordination = Coordination::default();
        for number in 0..20 {
            coordination.writes("default", ObjectKind::Schedule, &format!("s{}", number % 10));
        }
        let written: Vec<String> = coordination.written().into_iter().map(|(_, _, name)| name).collect();
        assert_eq!(written, ["s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"]);
    }
}

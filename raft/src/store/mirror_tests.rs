//! The mirror: what it leaves to the source, how it fails, how it comes back.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::suite::{Model, Random, changes, path_in};
use super::*;
use crate::execution::Execution;

const PATIENCE: Duration = Duration::from_secs(60);

/// A store that records its writes, holds them at a gate, and fails on request.
#[derive(Clone, Default)]
struct Probe {
    inner: MemoryStore,
    control: Arc<(Mutex<Control>, Condvar)>,
}

#[derive(Default)]
struct Control {
    shut: bool,
    entered: usize,
    failing: bool,
    writes: Vec<(Changes, Vec<u8>)>,
    replaces: usize,
}

impl Probe {
    fn control(&self, change: impl FnOnce(&mut Control)) {
        change(&mut self.control.0.lock());
        self.control.1.notify_all();
    }

    fn until(&self, condition: impl Fn(&Control) -> bool) {
        let mut control = self.control.0.lock();
        while !condition(&control) {
            assert!(!self.control.1.wait_for(&mut control, PATIENCE).timed_out(), "the mirror did not come so far");
        }
    }

    fn pass(&self) -> Result<(), StoreError> {
        self.control(|control| control.entered += 1);
        self.until(|control| !control.shut);
        match self.control.0.lock().failing {
            true => Err(StoreError::io("write a batch", io::ErrorKind::StorageFull.into())),
            false => Ok(()),
        }
    }

    fn contents(&self) -> Contents {
        self.inner.clone().load().unwrap()
    }
}

impl StateStore for Probe {
    fn load(&mut self) -> Result<Contents, StoreError> {
        self.inner.load()
    }

    fn write(&mut self, changes: &Changes, meta: &[u8]) -> Result<(), StoreError> {
        self.pass()?;
        self.control(|control| control.writes.push((changes.clone(), meta.to_vec())));
        self.inner.write(changes, meta)
    }

    fn replace(&mut self, rows: &mut dyn Iterator<Item = Row>, meta: &[u8]) -> Result<(), StoreError> {
        self.pass()?;
        self.control(|control| control.replaces += 1);
        self.inner.replace(rows, meta)
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A state that gathers what changed, as the ledger does: keys, and no values.
#[derive(Clone, Default)]
struct State(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    model: Model,
    changed: BTreeSet<Vec<u8>>,
    meta: Vec<u8>,
    /// It no longer knows what changed.
    forgotten: bool,
    broken: bool,
}

impl State {
    fn change(&self, changes: &Changes, meta: &[u8]) {
        let mut inside = self.0.lock();
        inside.model.apply(changes);
        inside.changed.extend(changes.keys().cloned());
        inside.meta = meta.to_vec();
    }
}

impl Source for State {
    fn take(&mut self, all: bool) -> Result<StateUpdate, String> {
        let mut inside = self.0.lock();
        if inside.broken {
            return Err("it is broken".to_owned());
        }
        let changed = std::mem::take(&mut inside.changed);
        let rows = match std::mem::take(&mut inside.forgotten) || all {
            true => UpdatedRows::All(inside.model.rows()),
            false => {
                UpdatedRows::Changed(changed.into_iter().map(|key| (key.clone(), inside.model.get(&key))).collect())
            }
        };
        Ok(StateUpdate { rows, meta: inside.meta.clone() })
    }
}

/// A mirror at work on a probe, and what it follows.
struct Stage {
    probe: Probe,
    state: State,
    mirror: Mirror,
    told: Receiver<MirrorFailure>,
}

impl Stage {
    fn new(every: Duration) -> Stage {
        let (sender, told) = sync_channel(8);
        let (probe, state) = (Probe::default(), State::default());
        let (store, source) = (Box::new(probe.clone()), Box::new(state.clone()));
        let mirror =
            Mirror::start(Execution::Threads, store, source, every, move |error| sender.try_send(error).unwrap())
                .unwrap();
        Stage { probe, state, mirror, told }
    }

    /// An entry is applied.
    fn follow(&self, rows: &[(&str, Option<&str>)], meta: &str) {
        self.state.change(&changes(rows), meta.as_bytes());
        self.mirror.note();
    }

    fn writes(&self) -> Vec<(Changes, Vec<u8>)> {
        self.probe.control.0.lock().writes.clone()
    }
}

/// So rare that nothing is written without a flush.
const NEVER: Duration = Duration::from_secs(3600);

fn state(meta: &str, rows: &[(&str, &str)]) -> Contents {
    let rows = rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
    Contents::State { meta: meta.as_bytes().to_vec(), rows }
}

#[test]
fn it_writes_by_itself() {
    let stage = Stage::new(MIRROR_EVERY);
    stage.follow(&[("a", Some("1"))], "1");
    stage.probe.until(|control| control.writes.len() == 1);
    stage.follow(&[("b", Some("1"))], "2");
    stage.probe.until(|control| control.writes.len() == 2);
    stage.mirror.stop(PATIENCE).unwrap();
    assert_eq!(stage.probe.contents(), state("2", &[("a", "1"), ("b", "1")]));
}

#[test]
fn what_changes_during_a_write_goes_out_as_one_with_the_values_of_then() {
    let stage = Stage::new(NEVER);
    stage.probe.control(|control| control.shut = true);
    stage.follow(&[("first", Some("x"))], "0");
    stage.probe.until(|control| control.entered == 1);
    for number in 1..=100 {
        let value = number.to_string();
        stage.follow(&[("a", Some(&value)), ("gone", Some("soon"))], &value);
    }
    stage.follow(&[("gone", None)], "101");
    stage.probe.control(|control| control.shut = false);
    stage.mirror.flush_now(PATIENCE).unwrap();
    let writes = stage.writes();
    assert_eq!(writes.len(), 2);
    assert_eq!(writes[1], (changes(&[("a", Some("100")), ("gone", None)]), b"101".to_vec()));
    assert_eq!(stage.probe.contents(), state("101", &[("a", "100"), ("first", "x")]));
}

#[test]
fn flush_waits_for_what_was_noted_and_not_longer_than_allowed() {
    let stage = Stage::new(NEVER);
    stage.probe.control(|control| control.shut = true);
    stage.follow(&[("a", Some("1"))], "1");
    let limit = Duration::from_millis(20);
    assert_eq!(stage.mirror.flush_now(limit), Err(MirrorError::TimedOut(limit)));
    stage.probe.control(|control| control.shut = false);
    stage.mirror.flush_now(PATIENCE).unwrap();
    assert_eq!(stage.probe.contents(), state("1", &[("a", "1")]));
    stage.mirror.flush_now(PATIENCE).unwrap();
    assert_eq!(stage.writes().len(), 1, "nothing new, nothing written");
}

#[test]
fn stop_writes_what_waits() {
    let stage = Stage::new(NEVER);
    stage.mirror.flush_now(PATIENCE).unwrap();
    for number in 0..10 {
        let name = number.to_string();
        stage.follow(&[(&name, Some(&name))], &name);
    }
    stage.mirror.stop(PATIENCE).unwrap();
    let Contents::State { meta, rows } = stage.probe.contents() else { panic!("nothing was written") };
    assert_eq!((meta, rows.len()), (b"9".to_vec(), 10));
}

#[test]
fn a_mirror_that_is_dropped_writes_what_waits_and_lets_go_of_its_store() {
    let stage = Stage::new(NEVER);
    stage.follow(&[("a", Some("1"))], "1");
    drop(stage.mirror);
    stage.probe.until(|control| control.writes.len() == 1);
}

#[test]
fn a_failed_write_is_told_once_and_a_rebuild_mends_it() {
    let stage = Stage::new(NEVER);
    stage.probe.control(|control| control.failing = true);
    stage.follow(&[("a", Some("1"))], "1");
    assert!(matches!(stage.mirror.flush_now(PATIENCE), Err(MirrorError::Failed { why }) if why.contains("full")));
    assert!(matches!(stage.told.recv_timeout(PATIENCE), Ok(MirrorFailure::Store(StoreError::Full { .. }))));

    stage.follow(&[("a", Some("2")), ("b", Some("2"))], "2");
    assert!(matches!(stage.mirror.flush_now(PATIENCE), Err(MirrorError::Failed { .. })), "it writes nothing any more");
    assert!(stage.told.try_recv().is_err(), "and tells it once");

    stage.probe.control(|control| {
        control.failing = false;
        control.shut = true;
    });
    stage.mirror.rebuild();
    stage.follow(&[("b", None), ("c", Some("4"))], "4");
    stage.probe.control(|control| control.shut = false);
    stage.mirror.flush_now(PATIENCE).unwrap();
    assert_eq!(stage.probe.contents(), state("4", &[("a", "2"), ("c", "4")]));
    assert_eq!(stage.probe.control.0.lock().replaces, 1);
    stage.mirror.stop(PATIENCE).unwrap();
}

#[test]
fn a_rebuild_that_fails_is_told_too() {
    let stage = Stage::new(NEVER);
    stage.probe.control(|control| control.failing = true);
    stage.mirror.rebuild();
    assert!(stage.told.recv_timeout(PATIENCE).is_ok());
    assert!(matches!(stage.mirror.stop(PATIENCE), Err(MirrorError::Failed { .. })));
}

#[test]
fn a_state_that_cannot_be_written_is_told_and_leaves_the_store_as_it_was() {
    let stage = Stage::new(NEVER);
    stage.follow(&[("a", Some("1"))], "1");
    stage.mirror.flush_now(PATIENCE).unwrap();
    stage.state.0.lock().broken = true;
    stage.follow(&[("a", Some("2"))], "2");
    assert!(matches!(stage.mirror.flush_now(PATIENCE), Err(MirrorError::Failed { why }) if why.contains("broken")));
    assert!(matches!(stage.told.recv_timeout(PATIENCE), Ok(MirrorFailure::Source(_))));
    assert_eq!(stage.probe.contents(), state("1", &[("a", "1")]));
}

#[test]
fn a_source_that_has_forgotten_what_changed_is_written_anew() {
    let stage = Stage::new(NEVER);
    stage.follow(&[("a", Some("1")), ("b", Some("1"))], "1");
    stage.mirror.flush_now(PATIENCE).unwrap();
    stage.follow(&[("a", None), ("c", Some("2"))], "2");
    {
        let mut inside = stage.state.0.lock();
        inside.changed.clear();
        inside.forgotten = true;
    }
    stage.mirror.flush_now(PATIENCE).unwrap();
    assert_eq!(stage.probe.contents(), state("2", &[("b", "1"), ("c", "2")]));
    assert_eq!(stage.probe.control.0.lock().replaces, 1);
}

#[test]
fn on_a_real_disk_the_store_ends_equal_to_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let (store, contents) = open_or_quarantine(&path_in(&folder)).unwrap();
    assert_eq!(contents, Contents::Empty);
    let source = State::default();
    let every = Duration::from_millis(5);
    let mirror =
        Mirror::start(Execution::Threads, Box::new(store), Box::new(source.clone()), every, |error| panic!("{error}"))
            .unwrap();
    let mut random = Random(3);
    for step in 0..200_u8 {
        source.change(&random.changes(20, 200), &[step]);
        mirror.note();
        if step == 100 {
            mirror.rebuild();
        }
    }
    mirror.stop(PATIENCE).unwrap();
    let expected = Contents::State { meta: vec![199], rows: source.0.lock().model.rows() };
    assert_eq!(open_or_quarantine(&path_in(&folder)).unwrap().1, expected);
}

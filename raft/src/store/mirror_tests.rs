//! The mirror: what it coalesces, how it fails, how it comes back.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::suite::{Model, Random, changes, path_in};
use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// A store that records its writes, holds them at a gate, and fails when told.
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

fn started(probe: &Probe, pace: Pace) -> (Mirror, Receiver<MirrorFailure>) {
    let (sender, told) = sync_channel(8);
    let mirror = Mirror::start(Box::new(probe.clone()), pace, move |error| sender.try_send(error).unwrap()).unwrap();
    (mirror, told)
}

/// A pace at which nothing is written unless somebody asks.
const NEVER: Pace = Pace { interval: Duration::from_secs(3600), waiting_bytes: 1 << 20 };

fn state(meta: &str, rows: &[(&str, &str)]) -> Contents {
    let rows = rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
    Contents::State { meta: meta.as_bytes().to_vec(), rows }
}

#[test]
fn it_writes_by_itself() {
    let probe = Probe::default();
    let (mirror, _told) = started(&probe, Pace::default());
    mirror.follow(changes(&[("a", Some("1"))]), b"1".to_vec());
    probe.until(|control| control.writes.len() == 1);
    mirror.follow(changes(&[("b", Some("1"))]), b"2".to_vec());
    probe.until(|control| control.writes.len() == 2);
    mirror.stop(PATIENCE).unwrap();
    assert_eq!(probe.contents(), state("2", &[("a", "1"), ("b", "1")]));
}

#[test]
fn changes_that_come_during_a_write_go_out_as_one_and_the_latest_wins() {
    let probe = Probe::default();
    probe.control(|control| control.shut = true);
    let (mirror, _told) = started(&probe, NEVER);
    mirror.follow(changes(&[("first", Some("x"))]), b"0".to_vec());
    probe.until(|control| control.entered == 1);
    for number in 1..=100 {
        let value = number.to_string();
        mirror.follow(changes(&[("a", Some(&value)), ("gone", Some("soon"))]), value.into_bytes());
    }
    mirror.follow(changes(&[("gone", None)]), b"101".to_vec());
    probe.control(|control| control.shut = false);
    mirror.flush_now(PATIENCE).unwrap();
    let writes = probe.control.0.lock().writes.clone();
    assert_eq!(writes.len(), 2);
    assert_eq!(writes[1], (changes(&[("a", Some("100")), ("gone", None)]), b"101".to_vec()));
    assert_eq!(probe.contents(), state("101", &[("a", "100"), ("first", "x")]));
}

#[test]
fn flush_waits_for_what_was_handed_over_and_not_longer_than_allowed() {
    let probe = Probe::default();
    probe.control(|control| control.shut = true);
    let (mirror, _told) = started(&probe, NEVER);
    mirror.follow(changes(&[("a", Some("1"))]), b"1".to_vec());
    let limit = Duration::from_millis(20);
    assert_eq!(mirror.flush_now(limit), Err(MirrorError::TimedOut(limit)));
    probe.control(|control| control.shut = false);
    mirror.flush_now(PATIENCE).unwrap();
    assert_eq!(probe.contents(), state("1", &[("a", "1")]));
    mirror.flush_now(PATIENCE).unwrap();
    assert_eq!(probe.control.0.lock().writes.len(), 1, "nothing new, nothing written");
}

#[test]
fn stop_writes_what_waits() {
    let probe = Probe::default();
    let (mirror, _told) = started(&probe, NEVER);
    mirror.flush_now(PATIENCE).unwrap();
    for number in 0..10_u8 {
        mirror.follow([(vec![number], Some(vec![number]))], vec![number]);
    }
    mirror.stop(PATIENCE).unwrap();
    let Contents::State { meta, rows } = probe.contents() else { panic!("nothing was written") };
    assert_eq!((meta, rows.len()), (vec![9], 10));
}

#[test]
fn a_mirror_that_is_dropped_writes_what_waits_and_lets_go_of_its_store() {
    let probe = Probe::default();
    let (mirror, _told) = started(&probe, NEVER);
    mirror.follow(changes(&[("a", Some("1"))]), b"1".to_vec());
    drop(mirror);
    probe.until(|control| control.writes.len() == 1);
}

#[test]
fn a_failed_write_is_told_once_and_a_rebuild_mends_it() {
    let probe = Probe::default();
    probe.control(|control| control.failing = true);
    let (mirror, told) = started(&probe, NEVER);
    mirror.follow(changes(&[("a", Some("1"))]), b"1".to_vec());
    assert!(matches!(mirror.flush_now(PATIENCE), Err(MirrorError::Failed { why }) if why.contains("full")));
    assert!(matches!(told.recv_timeout(PATIENCE), Ok(MirrorFailure::Store(StoreError::Full { .. }))));

    mirror.follow(changes(&[("a", Some("lost"))]), b"2".to_vec());
    assert!(matches!(mirror.flush_now(PATIENCE), Err(MirrorError::Failed { .. })), "it takes nothing any more");
    assert!(told.try_recv().is_err(), "and tells it once");

    probe.control(|control| {
        control.failing = false;
        control.shut = true;
    });
    mirror.rebuild(vec![(b"a".to_vec(), b"2".to_vec()), (b"b".to_vec(), b"2".to_vec())], b"3".to_vec());
    mirror.follow(changes(&[("b", None), ("c", Some("4"))]), b"4".to_vec());
    probe.control(|control| control.shut = false);
    mirror.flush_now(PATIENCE).unwrap();
    assert_eq!(probe.contents(), state("4", &[("a", "2"), ("c", "4")]));
    assert_eq!(probe.control.0.lock().replaces, 1);
    mirror.stop(PATIENCE).unwrap();
}

#[test]
fn a_rebuild_that_fails_is_told_too() {
    let probe = Probe::default();
    probe.control(|control| control.failing = true);
    let (mirror, told) = started(&probe, NEVER);
    mirror.rebuild(vec![(b"a".to_vec(), b"2".to_vec())], b"1".to_vec());
    assert!(told.recv_timeout(PATIENCE).is_ok());
    assert!(matches!(mirror.stop(PATIENCE), Err(MirrorError::Failed { .. })));
}

#[test]
fn a_disk_that_hangs_does_not_eat_the_memory() {
    let probe = Probe::default();
    probe.control(|control| control.shut = true);
    let (mirror, told) = started(&probe, Pace { waiting_bytes: 10_000, ..NEVER });
    mirror.follow(changes(&[("first", Some("x"))]), b"0".to_vec());
    probe.until(|control| control.entered == 1);
    for number in 0..20_u8 {
        mirror.follow([(b"same".to_vec(), Some(vec![number; 5_000]))], vec![number]);
    }
    let limit = Duration::from_millis(1);
    assert_eq!(mirror.flush_now(limit), Err(MirrorError::TimedOut(limit)), "one key counts once");
    for number in 0..20_u8 {
        mirror.follow([(vec![number], Some(vec![number; 5_000]))], vec![number]);
    }
    assert!(matches!(mirror.flush_now(PATIENCE), Err(MirrorError::Failed { why }) if why.contains("fell behind")));
    probe.control(|control| control.shut = false);
    assert!(matches!(told.recv_timeout(PATIENCE), Ok(MirrorFailure::FellBehind { waiting_bytes: 10_001.. })));
    mirror.rebuild(vec![], b"new".to_vec());
    mirror.flush_now(PATIENCE).unwrap();
    assert_eq!(probe.contents(), state("new", &[]));
}

#[test]
fn on_a_real_disk_the_store_ends_equal_to_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let (store, contents) = open_or_set_aside(&path_in(&folder)).unwrap();
    assert_eq!(contents, Contents::Empty);
    let pace = Pace { interval: Duration::from_millis(5), ..Pace::default() };
    let mirror = Mirror::start(Box::new(store), pace, |error| panic!("{error}")).unwrap();
    let mut random = Random(3);
    let mut model = Model::default();
    for step in 0..200_u8 {
        let changes = random.changes(20, 200);
        model.apply(&changes);
        mirror.follow(changes, vec![step]);
        if step == 100 {
            mirror.rebuild(model.rows(), vec![step]);
        }
    }
    mirror.stop(PATIENCE).unwrap();
    let expected = Contents::State { meta: vec![199], rows: model.rows() };
    assert_eq!(open_or_set_aside(&path_in(&folder)).unwrap().1, expected);
}

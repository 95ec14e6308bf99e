//! One suite for every store: what the contract of `StateStore` says, as tests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;

/// A place where a store can be opened again and again.
enum Place {
    Memory(MemoryStore),
    Disk(tempfile::TempDir),
}

impl Place {
    fn both() -> [Place; 2] {
        [Place::Memory(MemoryStore::default()), Place::Disk(tempfile::tempdir().unwrap())]
    }

    fn open(&self) -> Box<dyn StateStore> {
        match self {
            Place::Memory(store) => Box::new(store.clone()),
            Place::Disk(folder) => Box::new(SledStore::open(&path_in(folder)).unwrap()),
        }
    }

    /// What a new process would find.
    fn reopened(&self) -> Contents {
        let mut store = self.open();
        let contents = store.load().unwrap();
        store.close().unwrap();
        contents
    }
}

pub(super) fn path_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("state")
}

/// A stream of numbers from a seed (splitmix64).
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Some changes: mostly small rows, sometimes one of many cells, sometimes a removal.
    pub(super) fn changes(&mut self, count: u64, keys: u64) -> Changes {
        (0..count)
            .map(|_| {
                let key = format!("row/{}", self.below(keys)).into_bytes();
                let value = match self.below(20) {
                    0..3 => None,
                    3 => {
                        let length = self.below(12_000) as usize;
                        Some(self.bytes(length))
                    }
                    _ => {
                        let length = self.below(300) as usize;
                        Some(self.bytes(length))
                    }
                };
                (key, value)
            })
            .collect()
    }
}

/// The plainest model of a state.
#[derive(Clone, Default)]
pub(super) struct Model(BTreeMap<Vec<u8>, Vec<u8>>);

impl Model {
    pub(super) fn apply(&mut self, changes: &Changes) {
        for (key, value) in changes {
            match value {
                Some(value) => self.0.insert(key.clone(), value.clone()),
                None => self.0.remove(key),
            };
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).cloned()
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.0.clone().into_iter().collect()
    }

    fn with(&self, meta: &[u8]) -> Contents {
        Contents::State { meta: meta.to_vec(), rows: self.rows() }
    }
}

pub(super) fn changes(rows: &[(&str, Option<&str>)]) -> Changes {
    rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()))).collect()
}

#[test]
fn a_store_that_nobody_wrote_to_is_empty_also_after_it_was_opened_again() {
    for place in Place::both() {
        assert_eq!(place.reopened(), Contents::Empty);
        assert_eq!(place.reopened(), Contents::Empty);
    }
}

#[test]
fn rows_and_meta_come_back_together() {
    for place in Place::both() {
        let mut store = place.open();
        store.write(&changes(&[("a", Some("1")), ("b", Some("2")), ("c", Some(""))]), b"at 1").unwrap();
        store.write(&changes(&[("a", None), ("b", Some("two")), ("nobody", None)]), b"at 2").unwrap();
        store.close().unwrap();
        let rows = vec![(b"b".to_vec(), b"two".to_vec()), (b"c".to_vec(), vec![])];
        assert_eq!(place.reopened(), Contents::State { meta: b"at 2".to_vec(), rows });
    }
}

#[test]
fn a_state_without_rows_is_not_an_empty_store() {
    for place in Place::both() {
        let mut store = place.open();
        store.write(&Changes::new(), b"no rows yet").unwrap();
        store.close().unwrap();
        assert_eq!(place.reopened(), Contents::State { meta: b"no rows yet".to_vec(), rows: vec![] });
    }
}

#[test]
fn any_bytes_are_a_key_and_any_length_is_a_value() {
    let lengths = [0, 1, cell::CELL_BYTES - 1, cell::CELL_BYTES, cell::CELL_BYTES + 1, 3 * cell::CELL_BYTES, 700_000];
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0\0\0\0", b"a", b"a\0\0\0\0", b"a\0\0\0\x01", &[0xff; 300]];
    for place in Place::both() {
        let mut model = Model::default();
        let mut store = place.open();
        // Every key passes through every length: rows grow and shrink over cell bounds.
        for turn in 0..lengths.len() {
            let changes: Changes = keys
                .iter()
                .enumerate()
                .map(|(place, key)| (key.to_vec(), Some(Random(turn as u64).bytes(lengths[(turn + place) % 7]))))
                .collect();
            store.write(&changes, &[turn as u8]).unwrap();
            model.apply(&changes);
            assert_eq!(store.load().unwrap(), model.with(&[turn as u8]));
        }
        store.close().unwrap();
        assert_eq!(place.reopened(), model.with(&[6]));
    }
}

#[test]
fn random_histories_answer_equal_bytes_from_every_store() {
    for seed in 0..4 {
        let places = Place::both();
        let mut random = Random(seed);
        let mut model = Model::default();
        for step in 0..12_u8 {
            let changes = random.changes(60, 150);
            model.apply(&changes);
            for place in &places {
                let mut store = place.open();
                // One place may take the whole state while the other takes the changes: it must not show.
                if random.below(6) == 0 {
                    store.replace(&mut model.rows().into_iter().rev(), &[step]).unwrap();
                } else {
                    store.write(&changes, &[step]).unwrap();
                }
                store.close().unwrap();
            }
            for place in &places {
                assert_eq!(place.reopened(), model.with(&[step]), "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn replace_leaves_nothing_of_the_former_state() {
    for place in Place::both() {
        let mut store = place.open();
        store.write(&changes(&[("old", Some("x")), ("both", Some("former"))]), b"1").unwrap();
        let rows: Vec<Row> = vec![(b"both".to_vec(), b"new".to_vec()), (b"new".to_vec(), b"y".to_vec())];
        store.replace(&mut rows.clone().into_iter(), b"2").unwrap();
        assert_eq!(store.load().unwrap(), Contents::State { meta: b"2".to_vec(), rows: rows.clone() });
        store.close().unwrap();
        assert_eq!(place.reopened(), Contents::State { meta: b"2".to_vec(), rows });
    }
}

#[test]
fn a_write_of_many_batches_is_whole() {
    for place in Place::both() {
        let mut store = place.open();
        let many: Changes =
            (0..20_000_u32).map(|number| (number.to_be_bytes().to_vec(), Some(vec![number as u8; 9]))).collect();
        store.write(&many, b"many").unwrap();
        store.write(&changes(&[("one more", Some("1"))]), b"and one").unwrap();
        store.close().unwrap();
        let Contents::State { meta, rows } = place.reopened() else { panic!("it must hold a state") };
        assert_eq!((meta.as_slice(), rows.len()), (b"and one".as_slice(), 20_001));
    }
}

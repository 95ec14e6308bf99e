//! Whatever is done to the folder, the store answers a state that was written, or says that it is damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::small_disk::SmallDisk;
use super::suite::{Model, Random, changes, path_in};
use super::*;

/// A folder with a history: `states[n]` are the rows after the write whose meta is `n`.
struct History {
    folder: tempfile::TempDir,
    states: Vec<Vec<Row>>,
}

impl History {
    fn written() -> History {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(7);
        let mut model = Model::default();
        let mut states = Vec::new();
        for step in 0..10_u8 {
            // Opened again now and then, since recovery leaves files of its own.
            let mut store = SledStore::open(&path_in(&folder)).unwrap();
            for part in 0..3 {
                let changes = random.changes(80, 400);
                model.apply(&changes);
                states.push(model.rows());
                store.write(&changes, &[step * 3 + part]).unwrap();
            }
            Box::new(store).close().unwrap();
        }
        History { folder, states }
    }

    /// A copy to be damaged.
    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(self.folder.path(), copy.path());
        copy
    }

    /// Opens the store in `folder` as a node would; `None` when it was found damaged and set aside.
    fn found(&self, folder: &tempfile::TempDir, what: &str) -> Option<usize> {
        let (store, contents) =
            open_or_quarantine(&path_in(folder)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        Box::new(store).close().unwrap();
        match contents {
            Contents::Empty => {
                assert!(!folder.path().join("state.filled").exists(), "{what}: an emptied store passed for a new one");
                None
            }
            Contents::State { meta, rows } => {
                let state = usize::from(meta[0]);
                assert_eq!(meta.len(), 1, "{what}");
                assert!(rows == self.states[state], "{what}: wrong rows for state {state}");
                Some(state)
            }
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The files of the store that hold anything, in the order of their names.
fn files(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(path_in(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file() && fs::metadata(path).unwrap().len() > 0);
    files.sort();
    files
}

fn flip(path: &Path, bit: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    fs::write(path, bytes).unwrap();
}

fn set_aside_folders(folder: &tempfile::TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("state.damaged-"))
        .collect();
    names.sort();
    names
}

#[test]
fn an_untouched_store_answers_its_last_state() {
    let history = History::written();
    assert_eq!(history.found(&history.copy(), "untouched"), Some(29));
}

#[test]
fn flipped_bits_never_answer_wrong_rows() {
    let history = History::written();
    let rounds = std::env::var("STORE_FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(120);
    let (mut set_aside, mut last, mut earlier) = (0, 0, 0);
    for seed in 0..rounds {
        let folder = history.copy();
        let mut random = Random(seed);
        let files = files(&folder);
        for _ in 0..=random.below(3) {
            let file = &files[random.below(files.len() as u64) as usize];
            let bits = fs::metadata(file).unwrap().len() * 8;
            // Half of the flips hit the front of the file: headers, and the oldest pages.
            let bit = if random.below(2) == 0 { random.below(bits) } else { random.below(bits.min(80_000)) };
            flip(file, bit);
        }
        match history.found(&folder, &format!("flips of seed {seed}")) {
            None => set_aside += 1,
            Some(29) => last += 1,
            Some(_) => earlier += 1,
        }
    }
    println!("{rounds} rounds: {set_aside} set aside, {last} unharmed, {earlier} at an earlier state");
    assert!(set_aside > 0, "no flip was ever noticed: the test does not reach what the store reads");
}

#[test]
fn a_store_that_outlived_a_flip_writes_on_without_wrong_rows() {
    let history = History::written();
    for seed in 1000..1040 {
        let folder = history.copy();
        let mut random = Random(seed);
        let db = path_in(&folder).join("db");
        flip(&db, random.below(fs::metadata(&db).unwrap().len() * 8));
        let (mut store, contents) = open_or_quarantine(&path_in(&folder)).unwrap();
        let Contents::State { meta, .. } = contents else { continue };
        let mut model = Model::default();
        let rows = history.states[usize::from(meta[0])].iter();
        model.apply(&rows.map(|(key, value)| (key.clone(), Some(value.clone()))).collect());
        let changes = random.changes(50, 400);
        model.apply(&changes);
        if store.write(&changes, b"on").is_err() {
            continue;
        }
        Box::new(store).close().unwrap();
        match open_or_quarantine(&path_in(&folder)).unwrap().1 {
            Contents::Empty => {}
            Contents::State { meta, rows } => assert!(meta == b"on" && rows == model.rows(), "seed {seed}"),
        }
    }
}

#[test]
fn a_truncated_file_never_answers_wrong_rows() {
    let history = History::written();
    for file in files(&history.folder) {
        let name = file.file_name().unwrap();
        let length = fs::metadata(&file).unwrap().len();
        for keep in [0, 1, 20, 100, length / 4, length / 2, length * 3 / 4, length - 5_000.min(length), length - 1] {
            let folder = history.copy();
            let damaged = fs::OpenOptions::new().write(true).open(path_in(&folder).join(name)).unwrap();
            damaged.set_len(keep).unwrap();
            let what = format!("{name:?} cut to {keep} of {length} bytes");
            let found = history.found(&folder, &what);
            assert!(name != "db" || keep > 0 || found.is_none(), "{what}: the data are lost without an error");
        }
    }
}

#[test]
fn a_deleted_file_or_folder_is_noticed() {
    let history = History::written();
    for file in files(&history.folder) {
        let folder = history.copy();
        let name = file.file_name().unwrap();
        fs::remove_file(path_in(&folder).join(name)).unwrap();
        let found = history.found(&folder, &format!("{name:?} deleted"));
        assert!(name != "db" || found.is_none(), "the data are lost without an error");
    }
    let folder = history.copy();
    fs::remove_dir_all(path_in(&folder)).unwrap();
    assert_eq!(history.found(&folder, "the whole folder deleted"), None);
    let folder = history.copy();
    fs::remove_dir_all(path_in(&folder)).unwrap();
    fs::write(path_in(&folder), "not a folder").unwrap();
    assert_eq!(history.found(&folder, "a file in place of the folder"), None);
}

/// Opens sled directly. Its threads release the lock some time after the last handle is gone.
fn opened(path: &Path) -> sled::Db {
    let patient_until = Instant::now() + Duration::from_secs(60);
    loop {
        match sled::Config::new().path(path).flush_every_ms(None).open() {
            Ok(tree) => return tree,
            Err(error) => assert!(Instant::now() < patient_until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_lost_row_and_an_old_row_are_noticed_by_the_totals() {
    let lost = |tree: &sled::Db| drop(tree.remove(cell::cell_key(b"a", 0)).unwrap());
    let old = |tree: &sled::Db| {
        let former = cell::cells(b"a", b"0").next().unwrap();
        tree.insert(former.key, former.value).unwrap();
    };
    let extra = |tree: &sled::Db| {
        let foreign = cell::cells(b"z", b"?").next().unwrap();
        tree.insert(foreign.key, foreign.value).unwrap();
    };
    let no_meta = |tree: &sled::Db| drop(tree.remove(cell::META_KEY).unwrap());
    let emptied = |tree: &sled::Db| tree.clear().unwrap();
    let unfinished = |tree: &sled::Db| {
        tree.insert(cell::META_KEY, cell::MetaCell::Unfinished.to_value().unwrap()).unwrap();
    };
    type Harm<'a> = (&'a str, &'a dyn Fn(&sled::Db), &'a str);
    let harms: [Harm<'_>; 6] = [
        ("a row lost", &lost, "are there where"),
        ("an old row", &old, "are there where"),
        ("a row too many", &extra, "are there where"),
        ("no meta", &no_meta, "the meta row is missing"),
        ("emptied", &emptied, "unexpectedly empty"),
        ("died within a large write", &unfinished, "did not end"),
    ];
    for (what, harm, words) in harms {
        let folder = tempfile::tempdir().unwrap();
        let mut store = SledStore::open(&path_in(&folder)).unwrap();
        store.write(&changes(&[("a", Some("0")), ("b", Some("0"))]), b"0").unwrap();
        store.write(&changes(&[("a", Some("1"))]), b"1").unwrap();
        Box::new(store).close().unwrap();
        {
            let tree = opened(&path_in(&folder));
            harm(&tree);
            tree.flush().unwrap();
        }
        let error = SledStore::open(&path_in(&folder)).and_then(|mut store| store.load()).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { why } if why.contains(words)), "{what}: {error}");
        assert_eq!(open_or_quarantine(&path_in(&folder)).unwrap().1, Contents::Empty, "{what}");
    }
}

#[test]
fn a_damaged_store_is_moved_away_and_the_new_one_works() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=4 {
        let (mut store, contents) = open_or_quarantine(&path_in(&folder)).unwrap();
        assert_eq!(contents, Contents::Empty);
        store.replace(&mut [(b"a".to_vec(), b"1".to_vec())].into_iter(), b"filled").unwrap();
        Box::new(store).close().unwrap();
        let (store, contents) = open_or_quarantine(&path_in(&folder)).unwrap();
        assert!(matches!(contents, Contents::State { .. }), "round {round}: what was rebuilt is there");
        Box::new(store).close().unwrap();
        fs::write(path_in(&folder).join("db"), b"").unwrap();
    }
    assert_eq!(open_or_quarantine(&path_in(&folder)).unwrap().1, Contents::Empty);
    assert_eq!(set_aside_folders(&folder), ["state.damaged-3", "state.damaged-4"], "only the newest are kept");
}

#[test]
fn replace_mends_a_store_that_found_itself_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(&path_in(&folder)).unwrap();
    store.write(&changes(&[("a", Some("0")), ("b", Some("0"))]), b"0").unwrap();
    Box::new(store).close().unwrap();
    {
        let tree = opened(&path_in(&folder));
        tree.insert(cell::cell_key(b"a", 0), b"not a cell of ours".as_slice()).unwrap();
    }
    let mut store = SledStore::open(&path_in(&folder)).unwrap();
    let change = changes(&[("a", Some("1"))]);
    assert!(matches!(store.write(&change, b"1"), Err(StoreError::Damaged { .. })), "it reads before it writes");
    assert!(matches!(store.load(), Err(StoreError::Damaged { .. })), "and stays unusable");
    store.replace(&mut [(b"a".to_vec(), b"1".to_vec())].into_iter(), b"1").unwrap();
    store.write(&changes(&[("b", Some("2"))]), b"2").unwrap();
    let rows = vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())];
    assert_eq!(store.load().unwrap(), Contents::State { meta: b"2".to_vec(), rows });
    assert_eq!(set_aside_folders(&folder), ["state.damaged-1"]);
}

#[test]
fn a_store_in_use_is_busy_and_is_not_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SledStore::open(&path_in(&folder)).unwrap();
    store.write(&changes(&[("a", Some("1"))]), b"1").unwrap();
    assert!(matches!(open_or_quarantine(&path_in(&folder)), Err(StoreError::Busy)));
    assert_eq!(set_aside_folders(&folder), Vec::<String>::new());
    store.write(&changes(&[("a", Some("2"))]), b"2").unwrap();
}

#[test]
fn a_full_disk_is_told_as_such_and_a_replace_mends_the_store() {
    let Some(disk) = SmallDisk::mount(6) else { return };
    let folder = tempfile::tempdir_in(disk.path()).unwrap();
    let mut store = SledStore::open(&path_in(&folder)).unwrap();
    let mut random = Random(1);
    let mut row = |key: &str, length| (key.as_bytes().to_vec(), Some(random.bytes(length)));
    store.write(&[row("first", 100)].into(), b"0").unwrap();
    let error = (0..20).find_map(|number| store.write(&[row(&number.to_string(), 1 << 20)].into(), b"1").err());
    assert!(matches!(error, Some(StoreError::Full { .. })), "{error:?}");
    store.replace(&mut [(b"a".to_vec(), b"1".to_vec())].into_iter(), b"2").unwrap();
    Box::new(store).close().unwrap();
    let rows = vec![(b"a".to_vec(), b"1".to_vec())];
    assert_eq!(open_or_quarantine(&path_in(&folder)).unwrap().1, Contents::State { meta: b"2".to_vec(), rows });
}

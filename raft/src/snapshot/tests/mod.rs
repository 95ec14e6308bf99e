//! Tests of snapshots: round trips (here), shared blocks (`sharing`), archived blocks (`archive`), damage (`damage`),
//! the manager (`manager`), the fetch from a peer (`fetch`), a full disk (`small_disk`).

mod archive;
mod damage;
mod fetch;
mod manager;
mod sharing;
mod small_disk;

use std::collections::BTreeMap;

use reveille_ledger::storage::{BLOCK_BYTES_MAX, FrozenLeaf};

use super::*;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns pseudo-random bytes that depend on `number` and `version` only.
fn filler(number: u64, version: u64, length: usize) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_le_bytes()).update(&version.to_le_bytes());
    let mut bytes = vec![0; length];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

fn key(number: u64) -> Vec<u8> {
    format!("schedule/{number:08}").into_bytes()
}

/// Returns a state with rows of about 400 bytes.
fn state(rows: u64) -> State {
    (0..rows).map(|number| (key(number), filler(number, 0, 350 + (number % 100) as usize))).collect()
}

fn opened() -> (tempfile::TempDir, Snapshots) {
    let folder = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::open(&folder.path().join("snapshots")).unwrap();
    (folder, snapshots)
}

/// Returns the newest undamaged snapshot.
fn newest(snapshots: &Snapshots) -> Option<Manifest> {
    snapshots.list().unwrap().into_iter().find(|manifest| snapshots.verify(manifest).is_ok())
}

/// Rows whose keys begin with the same 15 bytes are a leaf: a hundred schedules.
fn frozen(state: &State) -> FrozenState {
    let rows: Vec<Row> = state.clone().into_iter().collect();
    let leaves = rows.chunk_by(|one, next| one.0.get(..15) == next.0.get(..15));
    FrozenState::of_leaves(leaves.map(|rows| FrozenLeaf::of_rows(rows.to_vec())).collect())
}

fn build(snapshots: &Snapshots, index: u64, state: &State) -> Built {
    snapshots.build(index, format!("meta {index}").into_bytes(), &frozen(state)).unwrap()
}

fn read(snapshots: &Snapshots, manifest: &Manifest) -> Result<State, SnapshotError> {
    Ok(snapshots.read(manifest)?.into_iter().collect())
}

fn block_path(snapshots: &Snapshots, entry: BlockEntry) -> PathBuf {
    snapshots.folder.join("blocks").join(entry.hash.to_string())
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn snapshot_reads_back_unchanged() {
    let (_folder, snapshots) = opened();
    let state = state(5_000);
    let built = build(&snapshots, 42, &state);
    let found = newest(&snapshots).unwrap();
    assert_eq!(found, built.manifest);
    assert_eq!((found.index, found.meta.as_slice()), (42, b"meta 42".as_slice()));
    assert_eq!(found.state_hash, frozen(&state).hash());
    assert_eq!((found.rows, found.total_bytes()), (5_000, built.new_bytes));
    assert_eq!(read(&snapshots, &found).unwrap(), state);
}

#[test]
fn empty_state_makes_a_snapshot() {
    let (_folder, snapshots) = opened();
    assert_eq!(newest(&snapshots), None);
    build(&snapshots, 1, &State::new());
    let found = newest(&snapshots).unwrap();
    assert_eq!(read(&snapshots, &found).unwrap(), State::new());
}

#[test]
fn any_bytes_are_a_row() {
    let (_folder, snapshots) = opened();
    let mut state =
        State::from([(vec![], vec![]), (vec![0], vec![]), (vec![0, 0], vec![1]), (vec![0xff; 300], vec![])]);
    // Two rows that are larger than any block, with small ones around.
    state.insert(b"m1".to_vec(), filler(1, 0, BLOCK_BYTES_MAX + 5));
    state.insert(b"m2".to_vec(), filler(2, 0, 3 * BLOCK_BYTES_MAX));
    let built = build(&snapshots, 1, &state);
    assert_eq!(read(&snapshots, &built.manifest).unwrap(), state);
    let sizes: Vec<u64> = built.manifest.blocks.iter().map(|entry| entry.bytes).collect();
    assert!(sizes.iter().filter(|bytes| **bytes > BLOCK_BYTES_MAX as u64).count() == 2, "{sizes:?}");
}

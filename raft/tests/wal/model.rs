//! Random steps against a simple model: after any sequence of operations, closings, crashes and openings, the log has
//! the model's content. After a crash during an operation, it has the content before or after it.
//!
//! A failure names its seed; set `SEEDS` to it alone to repeat it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;

use crate::support::*;
use reveille_raft::wal::{EntryRecord, LogPoint, LogState, MemoryDisk, VoteRecord, Wal, WalOptions};

const SEEDS: Range<u64> = 0..60;
const STEPS: usize = 150;

#[derive(Clone, Debug)]
enum Step {
    Vote(VoteRecord),
    Commit(LogPoint),
    Append(Vec<EntryRecord>),
    Truncate(Option<LogPoint>),
    Purge(LogPoint),
}

/// The content of a log, without segments, batches or bytes.
#[derive(Clone, Default)]
struct Model {
    vote: Option<VoteRecord>,
    committed: Option<LogPoint>,
    purged: Option<LogPoint>,
    entries: BTreeMap<u64, EntryRecord>,
}

impl Model {
    fn last(&self) -> Option<LogPoint> {
        self.entries.values().next_back().map(|entry| entry.point).or(self.purged)
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Vote(vote) => self.vote = Some(*vote),
            Step::Commit(point) => self.committed = Some(*point),
            Step::Append(entries) => {
                self.entries.extend(entries.iter().map(|entry| (entry.point.index, entry.clone())))
            }
            Step::Truncate(to) => self.entries.retain(|index, _| to.is_some_and(|to| *index <= to.index)),
            Step::Purge(upto) => {
                self.entries.retain(|index, _| *index > upto.index);
                self.purged = self.purged.filter(|purged| purged.index >= upto.index).or(Some(*upto));
            }
        }
    }

    fn content(&self) -> Content {
        let state = LogState { vote: self.vote, committed: self.committed, purged: self.purged, last: self.last() };
        Content { state, entries: self.entries.values().cloned().collect() }
    }
}

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn step(&mut self, model: &Model) -> Step {
        let next = model.last().map_or(1, |last| last.index + 1);
        let known: Vec<LogPoint> = model.entries.values().map(|entry| entry.point).collect();
        let some = (!known.is_empty()).then(|| known[self.below(known.len() as u64) as usize]);
        match (self.below(20), some) {
            (0 | 1, _) => Step::Vote(vote(self.below(100))),
            (2 | 3, Some(point)) => Step::Commit(point),
            (4 | 5, point) => Step::Truncate(point.or(model.purged)),
            (6, None) => Step::Truncate(None),
            (7 | 8, Some(point)) => Step::Purge(point),
            // As after the installation of a snapshot: the purge goes beyond all entries.
            (9, _) if self.below(4) == 0 => Step::Purge(point(50, next + self.below(5))),
            _ => {
                let (count, term) = (1 + self.below(6), 1 + self.below(50));
                let entries = (next..next + count).map(|index| entry(term, index, self.below(3000) as usize));
                Step::Append(entries.collect())
            }
        }
    }
}

fn submit(wal: &Wal, step: &Step) -> bool {
    match step {
        Step::Vote(vote) => save_vote(wal, *vote) == WRITTEN,
        Step::Commit(point) => at_once(wal.commit(Some(*point))).is_ok(),
        Step::Append(entries) => append(wal, entries.clone()) == WRITTEN,
        Step::Truncate(to) => at_once(wal.truncate(*to)).is_ok(),
        Step::Purge(upto) => at_once(wal.purge(*upto)).is_ok(),
    }
}

fn run(seed: u64) -> u64 {
    // Small segments and a small cache, so that a short run reaches all of their edge cases.
    let options = WalOptions { segment_bytes: 8 * 1024, cache_bytes: 6000, ..inline() };
    let (mut dice, mut model, mut crashes) = (Dice(seed), Model::default(), 0);
    let mut disk = MemoryDisk::new();
    let (mut wal, _) = open(&disk, &options);
    for number in 0..STEPS {
        let step = dice.step(&model);
        let before = model.content();
        model.take(&step);
        let what = format!("seed {seed}, step {number}: {step:?}");
        match dice.below(12) {
            0 => {
                assert!(submit(&wal, &step), "{what}");
                drop(wal);
                (wal, _) = open(&disk, &options);
            }
            1 => {
                disk.fail_syncs(ErrorKind::Other);
                let _ = submit(&wal, &step);
                drop(wal);
                disk = disk.crash(dice.below(u64::from(u32::MAX)));
                crashes += 1;
                (wal, _) = open(&disk, &options);
                let found = content(&wal);
                assert!(found == before || found == model.content(), "{what}: a crash left {found:?}");
                model = adopt(found);
            }
            _ => assert!(submit(&wal, &step), "{what}"),
        }
        assert_eq!(content(&wal), model.content(), "{what}");
        assert!(wal.health().cached_bytes() <= 6000, "{what}");
    }
    crashes
}

fn adopt(found: Content) -> Model {
    let Content { state, entries } = found;
    let entries = entries.into_iter().map(|entry| (entry.point.index, entry)).collect();
    Model { vote: state.vote, committed: state.committed, purged: state.purged, entries }
}

#[test]
fn random_sequences_with_crashes_agree_with_the_model() {
    let crashes: u64 = SEEDS.map(run).sum();
    assert!(crashes > 100, "only {crashes} crashes");
}

#[test]
fn purged_segments_are_deleted_and_their_other_records_kept() {
    let disk = MemoryDisk::new();
    let options = WalOptions { segment_bytes: 4000, ..inline() };
    let (wal, _) = open(&disk, &options);
    assert_eq!(save_vote(&wal, vote(5)), WRITTEN);
    (1..=30).for_each(|index| assert_eq!(append(&wal, vec![entry(1, index, 1000)]), WRITTEN));
    let segments = disk.files().len();
    let plan = wal.reader().plan(1..31, usize::MAX);
    assert_eq!(at_once(wal.purge(point(1, 28))), Ok(()));
    assert!(segments > 5 && disk.files().len() <= 2, "{segments} segments, then {}", disk.files().len());
    assert_eq!(plan.read().expect("still readable").len(), 30);
    let before = content(&wal);
    drop(wal);
    let (wal, _) = open(&disk.crash(1), &options);
    assert_eq!(content(&wal), before);
    assert_eq!(wal.state().vote, Some(vote(5)));
    assert_eq!(wal.first(), Some(point(1, 29)));
}

#[test]
fn purged_entries_leave_the_disk_however_little_is_written() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk, &inline());
    let name = newest(&disk).0;
    assert_eq!(append(&wal, (1..=3).map(|index| entry(1, index, 100)).collect()), WRITTEN);
    assert_eq!(at_once(wal.purge(point(1, 1))), Ok(()));
    assert_eq!(append(&wal, (4..=5).map(|index| entry(1, index, 100)).collect()), WRITTEN);
    assert_eq!(wal.health().counters().lowest_index, Some(1), "the file of a kept entry has a purged one too");
    drop(wal);
    // A copy of a torn end may have the same entries.
    let disk = with_file(&disk, &format!("{name}.torn-512"), vec![1; 100]);
    let (wal, _) = open(&disk, &inline());
    assert_eq!(wal.health().counters().lowest_index, Some(1));
    assert_eq!(at_once(wal.purge(point(1, 3))), Ok(()));
    assert_eq!(wal.health().counters().lowest_index, Some(4));
    assert!(!disk.files().keys().any(|file| file.starts_with(&name)), "{:?}", disk.files().keys());
    assert_eq!(content(&wal).entries.len(), 2);
}

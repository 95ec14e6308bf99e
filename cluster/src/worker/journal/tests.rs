//! Tests of the journal's promises.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use reveille_ledger::bitmap::Bitmap;
use reveille_ledger::command::{ClaimOutcome, EnhancedCode, OutcomeSource, RefusalEffect, RelayRefusal};
use reveille_ledger::ids::{ChunkKey, Epoch, Incarnation, NodeId, PageId, RunId};
use tempfile::TempDir;

use super::*;

const BOOT: &str = "b7d0";
const CHUNK: ChunkKey = ChunkKey { page: PageId(RunId { index: 40, place: 0 }), number: 2 };

fn owner(incarnation: u64) -> JournalOwner {
    JournalOwner { cluster: 77, process: ClaimOwner { node: NodeId(0xA1), incarnation: Incarnation(incarnation) } }
}

fn fence(index: u64) -> Fence {
    Fence { group: 1, epoch: Epoch(9), index, place: 0 }
}

fn record(index: u64, slot: u16, step: JournalStep) -> Record {
    Record { claimed_slot: ClaimedSlot { chunk: CHUNK, fence: fence(index), slot }, step }
}

fn refused(slot: u16, code: u16) -> JournalStep {
    JournalStep::Refused(RelayRefusal {
        slot,
        code,
        enhanced: EnhancedCode::parse("5.1.1"),
        effect: RefusalEffect::Dead,
        text: "no such user".to_owned(),
    })
}

/// Returns the recipients that were not handed off, for any reason.
fn all_released(outcome: &ClaimOutcome) -> Bitmap {
    outcome.released.iter().flat_map(|(_, slots)| slots.iter()).collect()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"))
}

fn journal(folder: &TempDir) -> Journal {
    Journal::create(folder.path(), &owner(3), BOOT).unwrap_or_else(|error| panic!("{error}"))
}

fn append(journal: &mut Journal, records: &[Record]) {
    records.iter().for_each(|record| journal.append(record).unwrap_or_else(|error| panic!("{error}")));
}

/// Writes four recipients of claim 50 with four different last steps. A fifth recipient has no record.
fn written(folder: &TempDir) -> Journal {
    let mut journal = journal(folder);
    let mut append = |records: &[Record]| append(&mut journal, records);
    append(&[record(50, 0, JournalStep::Composing), record(50, 1, JournalStep::Composing)]);
    append(&[record(50, 2, JournalStep::Composing), record(50, 3, JournalStep::Composing)]);
    append(&[record(50, 1, JournalStep::Handoff)]);
    append(&[record(50, 2, JournalStep::Handoff)]);
    append(&[record(50, 2, JournalStep::Accepted)]);
    append(&[record(50, 3, JournalStep::Handoff), record(50, 3, refused(3, 550))]);
    journal
}

fn read(folder: &TempDir) -> Reading {
    Journal::read(folder.path(), &owner(3), BOOT)
}

fn whole(folder: &TempDir) -> JournaledClaims {
    match read(folder) {
        Reading::Whole(claims) => claims,
        Reading::Nothing(reason) => panic!("{reason}"),
    }
}

fn why_nothing(reading: Reading) -> String {
    match reading {
        Reading::Nothing(reason) => reason,
        Reading::Whole(claims) => panic!("it proves {claims:?}"),
    }
}

#[test]
fn claim_of_dead_incarnation_is_settled_from_its_journal() {
    let folder = folder();
    drop(written(&folder));
    let outcome = read(&folder).outcome(CHUNK, fence(50), &Bitmap::range(0, 5));
    assert_eq!(outcome.accepted, Bitmap::range(2, 1));
    assert_eq!((outcome.source, &outcome.in_doubt), (OutcomeSource::Journal, &Bitmap::range(1, 1)));
    assert_eq!(all_released(&outcome), [0, 4].into_iter().collect());
    let codes: Vec<(u16, u16)> = outcome.refused.iter().map(|refused| (refused.slot, refused.code)).collect();
    assert_eq!(codes, [(3, 550)]);
    assert_eq!(whole(&folder).step(fence(50), 0), Some(&JournalStep::Composing));
    let other_claim = read(&folder).outcome(CHUNK, fence(51), &Bitmap::range(0, 5));
    assert_eq!(all_released(&other_claim), Bitmap::range(0, 5), "the absence of a record counts");
}

/// The recipient that killed the process is one of those that were being composed (P12).
#[test]
fn open_recipient_at_crash_is_named_and_whether_it_was_alone() {
    let folder = folder();
    let mut journal = written(&folder);
    let outcome = read(&folder).outcome(CHUNK, fence(50), &Bitmap::range(0, 5));
    assert_eq!(
        (outcome.interrupted(), outcome.alone),
        (Bitmap::range(0, 1), true),
        "the others were begun, or never open"
    );
    let mut append = |record: Record| append(&mut journal, &[record]);
    append(record(51, 7, JournalStep::Composing));
    let outcome = read(&folder).outcome(CHUNK, fence(50), &Bitmap::range(0, 5));
    assert_eq!(
        (outcome.interrupted(), outcome.alone),
        (Bitmap::range(0, 1), false),
        "one of another claim was open too"
    );
    append(record(51, 7, JournalStep::Composed));
    append(record(50, 1, JournalStep::Composed));
    let outcome = read(&folder).outcome(CHUNK, fence(50), &Bitmap::range(0, 5));
    assert!(outcome.alone, "it was composed before the crash");
    assert_eq!(outcome.in_doubt, Bitmap::range(1, 1), "`composed` never takes back a `handoff`");
    let other = read(&folder).outcome(CHUNK, fence(51), &Bitmap::range(7, 1));
    assert_eq!((all_released(&other), other.interrupted(), other.alone), (Bitmap::range(7, 1), Bitmap::new(), false));
    append(record(51, 7, JournalStep::Composing));
    assert!(!read(&folder).outcome(CHUNK, fence(50), &Bitmap::range(0, 5)).alone, "and is open again");
}

/// P12: the record of an email that follows in a session may be lost, and then costs its recipient a claim of its own.
#[test]
fn record_that_goes_with_the_next_is_read_after_it() {
    let folder = folder();
    let mut journal = journal(&folder);
    append(&mut journal, &[record(50, 0, JournalStep::Composing)]);
    journal.append_with_next(&record(50, 0, JournalStep::Composed));
    assert_eq!(whole(&folder).step(fence(50), 0), Some(&JournalStep::Composing), "a crash would lose it");
    append(&mut journal, &[record(50, 1, JournalStep::Handoff)]);
    let claims = whole(&folder);
    assert_eq!(claims.step(fence(50), 0), Some(&JournalStep::Composed));
    assert_eq!(claims.step(fence(50), 1), Some(&JournalStep::Handoff));
}

#[test]
fn unusable_journal_leaves_all_in_doubt() {
    let folder = folder();
    let reading = read(&folder);
    let outcome = reading.outcome(CHUNK, fence(50), &Bitmap::range(0, 5));
    assert_eq!((outcome.in_doubt.clone(), all_released(&outcome)), (Bitmap::range(0, 5), Bitmap::new()));
    assert_eq!(outcome.source, OutcomeSource::NoJournal);
    assert_eq!((outcome.interrupted(), outcome.alone), (Bitmap::new(), false), "P12: and it names no crash suspect");
    assert_eq!(why_nothing(reading), "there is no journal");
}

#[test]
fn journal_counts_only_for_its_incarnation_cluster_and_boot() {
    let folder = folder();
    drop(written(&folder));
    let ours = folder::path(folder.path(), owner(3).process);
    let other_incarnation = folder::path(folder.path(), owner(4).process);
    std::fs::copy(&ours, other_incarnation).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(why_nothing(Journal::read(folder.path(), &owner(4), BOOT)), "the journal belongs to a1/3 of cluster 4d");
    let other_cluster = JournalOwner { cluster: 78, ..owner(3) };
    assert!(why_nothing(Journal::read(folder.path(), &other_cluster, BOOT)).contains("belongs to"));
    assert_eq!(
        why_nothing(Journal::read(folder.path(), &owner(3), "b7d1")),
        "the machine was started anew since the journal was written"
    );
}

#[test]
fn incarnation_has_one_journal() {
    let folder = folder();
    drop(journal(&folder));
    assert!(matches!(Journal::create(folder.path(), &owner(3), BOOT), Err(JournalFault::Broken(_))));
}

#[test]
fn torn_journal_end_is_dropped_and_the_rest_counts() {
    let folder = folder();
    drop(written(&folder));
    let path = folder::path(folder.path(), owner(3).process);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{error}"));
    let mut known = Vec::new();
    for length in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap_or_else(|error| panic!("{error}"));
        match read(&folder) {
            Reading::Whole(claims) => known.push(
                claims.records().count()
                    + claims.outcome(CHUNK, fence(50), &Bitmap::range(1, 3)).accepted.len() as usize,
            ),
            Reading::Nothing(reason) => assert_eq!((reason.as_str(), known.len()), ("the journal has no header", 0)),
        }
    }
    assert!(known.is_sorted(), "a longer file never proves less");
    assert_eq!((known.first(), known.last()), (Some(&0), Some(&5)));
}

#[test]
fn journal_with_one_wrong_bit_counts_for_nothing() {
    let folder = folder();
    drop(written(&folder));
    let path = folder::path(folder.path(), owner(3).process);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{error}"));
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1 << bit;
            assert!(reading::prove(&damaged, &owner(3), BOOT).is_err(), "bit {bit} of byte {index}");
        }
    }
}

#[test]
fn failed_append_closes_gate_for_good() {
    let folder = folder();
    let mut journal = journal(&folder);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap_or_else(|error| panic!("{error}"));
    let whole_file = std::mem::replace(&mut journal.file, full);
    assert!(matches!(journal.append(&record(50, 0, JournalStep::Handoff)), Err(JournalFault::Broken(_))));
    journal.file = whole_file;
    assert!(matches!(journal.append(&record(50, 1, JournalStep::Composing)), Err(JournalFault::Broken(_))));
    assert_eq!(whole(&folder), JournaledClaims::default(), "what was not written is not proved");
}

#[test]
fn second_handoff_is_stopped_and_changes_nothing() {
    let folder = folder();
    let mut journal = written(&folder);
    for slot in [1, 2, 3] {
        let again = journal.append(&record(50, slot, JournalStep::Handoff));
        assert!(matches!(again, Err(JournalFault::HandedOffTwice(claimed_slot)) if claimed_slot.slot == slot));
    }
    assert_eq!(whole(&folder).records().count(), 4, "nothing more was written");
    assert!(journal.append(&record(51, 1, JournalStep::Handoff)).is_ok(), "another claim is another matter");
}

#[test]
fn accepted_step_is_final() {
    let folder = folder();
    let mut journal = written(&folder);
    let steps =
        [record(50, 2, refused(2, 450)), record(50, 1, JournalStep::Composing), record(50, 3, JournalStep::Composing)];
    append(&mut journal, &steps);
    let claims = whole(&folder);
    assert_eq!(claims.step(fence(50), 2), Some(&JournalStep::Accepted));
    assert_eq!(claims.step(fence(50), 1), Some(&JournalStep::Handoff));
    assert!(matches!(claims.step(fence(50), 3), Some(JournalStep::Refused(answer)) if answer.code == 550));
}

#[test]
fn grown_journal_is_rewritten_with_open_claims_only() {
    let folder = folder();
    let mut journal = written(&folder);
    let before = whole(&folder);
    let path = folder::path(folder.path(), owner(3).process);
    let size = || std::fs::metadata(&path).map(|file| file.len()).unwrap_or_default();
    let (mut index, mut largest) = (1_000, 0);
    while size() >= largest {
        largest = size();
        let records: Vec<Record> = (0..256).map(|slot| record(index, slot, JournalStep::Handoff)).collect();
        append(&mut journal, &records);
        journal.forget(fence(index));
        index += 1;
    }
    assert!(largest < REWRITE_BYTES_MIN && largest > REWRITE_BYTES_MIN / 2, "it grew to {largest}");
    assert!(size() < 100_000, "and shrank to {}", size());
    assert!(journal.append(&record(50, 1, JournalStep::Accepted)).is_ok(), "the chain goes on in the new file");
    let mut expected = before;
    expected.append(&record(50, 1, JournalStep::Accepted));
    let all = Bitmap::range(0, 6);
    assert_eq!(whole(&folder).outcome(CHUNK, fence(50), &all), expected.outcome(CHUNK, fence(50), &all));
    assert!(
        matches!(journal.append(&record(50, 3, JournalStep::Handoff)), Err(JournalFault::HandedOffTwice(_))),
        "nor is it forgotten"
    );
    assert_eq!(std::fs::read_dir(folder.path()).map(Iterator::count).ok(), Some(1));
}

#[test]
fn journal_that_cannot_be_rewritten_goes_on() {
    let folder = folder();
    let mut journal = written(&folder);
    let blocked = folder::unfinished(&folder::path(folder.path(), owner(3).process));
    std::fs::create_dir(&blocked).unwrap_or_else(|error| panic!("{error}"));
    journal.rewrite_at = 0;
    assert!(journal.append(&record(50, 1, JournalStep::Accepted)).is_ok());
    assert_eq!(whole(&folder).step(fence(50), 1), Some(&JournalStep::Accepted));
}

#[test]
fn leftover_journals_are_listed_and_deleted() {
    let folder = folder();
    assert_eq!(leftovers(&folder.path().join("none"), NodeId(0xA1)).ok(), Some(Vec::new()));
    for incarnation in [12, 3] {
        drop(Journal::create(folder.path(), &owner(incarnation), BOOT));
    }
    let other = JournalOwner { cluster: 77, process: ClaimOwner { node: NodeId(0xA10), incarnation: Incarnation(1) } };
    drop(Journal::create(folder.path(), &other, BOOT));
    let unfinished = folder::unfinished(&folder::path(folder.path(), owner(3).process));
    std::fs::write(&unfinished, b"half").unwrap_or_else(|error| panic!("{error}"));
    let incarnations = || -> Vec<u64> {
        let found = leftovers(folder.path(), NodeId(0xA1)).unwrap_or_default();
        found.iter().map(|incarnation| incarnation.0).collect()
    };
    assert_eq!(incarnations(), [3, 12]);
    assert!(delete(folder.path(), owner(3).process).is_ok() && !unfinished.exists());
    assert_eq!(incarnations(), [12]);
    assert!(delete(folder.path(), owner(3).process).is_ok(), "deleting what is gone is no error");
}

#[test]
fn boot_id_is_constant_until_reboot() {
    let id = boot_id().unwrap_or_else(|error| panic!("{error}"));
    assert!(id.len() >= 32);
    assert_eq!(boot_id().ok(), Some(id));
}

/// Environment variable with the folder for the process that [`appended_steps_survive_kill_9`] starts and kills.
const VICTIM: &str = "REVEILLE_JOURNAL_VICTIM";

#[test]
fn appended_steps_survive_kill_9() {
    if let Some(folder) = std::env::var_os(VICTIM) {
        write_until_killed(Path::new(&folder));
    }
    for lines in [1, 40, 700] {
        let folder = folder();
        let program = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
        let mut victim = Command::new(program)
            .args(["appended_steps_survive_kill_9", "--nocapture"])
            .env(VICTIM, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}"));
        let output = victim.stdout.take().unwrap_or_else(|| panic!("it was piped"));
        let mut printed =
            BufReader::new(output).lines().map_while(Result::ok).filter_map(|line| line.parse::<u16>().ok());
        let first: Vec<u16> = printed.by_ref().take(lines).collect();
        assert_eq!(first.len(), lines, "it has written");
        victim.kill().and_then(|()| victim.wait()).unwrap_or_else(|error| panic!("{error}"));
        let last = printed.last().or(first.last().copied()).unwrap_or_default();
        let claims = whole(&folder);
        let begun =
            (0..u16::MAX).take_while(|slot| claims.step(fence(50), *slot) == Some(&JournalStep::Handoff)).count();
        assert!(begun > usize::from(last), "{last} was appended, {begun} are there");
        assert_eq!(begun, claims.records().count(), "and nothing behind a gap");
    }
}

fn write_until_killed(folder: &Path) -> ! {
    let mut journal = Journal::create(folder, &owner(3), BOOT).unwrap_or_else(|error| panic!("{error}"));
    for slot in 0..u16::MAX {
        journal.append(&record(50, slot, JournalStep::Handoff)).unwrap_or_else(|error| panic!("{error}"));
        println!("{slot}");
    }
    std::process::exit(1);
}

proptest! {
    // Few cases, because each one writes files. They still contain dozens of rewrites and repeated steps of each kind.
    #![proptest_config(reveille_fuzz::cases(64))]

    #[test]
    fn reader_knows_what_the_writer_knew(
        steps in prop::collection::vec((0_u64..3, 0_u16..6, 0_u8..5), 1..80),
        rewrites in any::<bool>(),
    ) {
        let folder = folder();
        let mut journal = journal(&folder);
        if rewrites {
            journal.rewrite_at = 300;
        }
        let mut model = BTreeMap::new();
        for (claim, slot, step) in steps {
            let step = match step {
                1 => JournalStep::Handoff,
                2 => JournalStep::Accepted,
                3 => refused(slot, 550),
                4 => JournalStep::Composed,
                _ => JournalStep::Composing,
            };
            let written = journal.append(&record(claim, slot, step.clone()));
            let recipient = (claim, slot);
            let has_handoff = |state: &JournalStep| !matches!(state, JournalStep::Composing | JournalStep::Composed);
            let is_second_handoff = step == JournalStep::Handoff && model.get(&recipient).is_some_and(has_handoff);
            prop_assert_eq!(written.is_err(), is_second_handoff);
            if written.is_ok() {
                let state = model.entry(recipient).or_insert(JournalStep::Composing);
                match step {
                    JournalStep::Composing | JournalStep::Composed
                        if !matches!(state, JournalStep::Composing | JournalStep::Composed) => {}
                    _ if *state == JournalStep::Accepted => {}
                    step => *state = step,
                }
            }
            if rewrites {
                journal.rewrite_at = journal.rewrite_at.min(300);
            }
        }
        drop(journal);
        let claims = whole(&folder);
        prop_assert_eq!(claims.records().count(), model.len());
        for ((claim, slot), state) in &model {
            prop_assert_eq!(claims.step(fence(*claim), *slot), Some(state));
        }
    }
}

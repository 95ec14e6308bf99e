//! Reads the archive of a ledger whose archived blocks are all in memory.

use reveille_ledger::command::{Actor, Command, NodeUp, Trigger};
use reveille_ledger::content::{Audience, Recipient};
use reveille_ledger::ids::RunId;
use reveille_ledger::planning::archive::{ArchiveCursor, next_batch};
use reveille_ledger::policy::DAY_MS;
use reveille_ledger::reply::CommandOutcome;
use reveille_ledger::storage::unpack_block;
use reveille_ledger::{LEVEL, Ledger};

use crate::leading::{self, TestLedger};
use crate::plain;

/// Checks that the bytes of every block that a part names are in memory. No snapshot was made, so they are nowhere else.
pub fn assert_whole(ledger: &Ledger) {
    for (key, part) in ledger.parts().iter() {
        for block in part.all_blocks() {
            assert!(ledger.unsaved_block(&block.hash).is_some(), "P24: part {key} has lost block {:?}", block.hash);
        }
    }
}

/// Returns the part of the archive that has this run, as a ledger; `None` if no part has it.
pub fn archived(ledger: &Ledger, run: RunId) -> Option<Ledger> {
    let parts = ledger
        .parts()
        .iter()
        .filter(|(_, part)| part.runs().is_some_and(|(first, last)| (first..=last).contains(&run)));
    let open = |blocks: &[reveille_ledger::storage::BlockEntry]| {
        let rows = blocks.iter().flat_map(|block| {
            let bytes = ledger.unsaved_block(&block.hash).expect("the bytes of an archived block");
            unpack_block(&bytes).expect("rows")
        });
        Ledger::from_rows(rows).expect("a ledger")
    };
    let mut opened = parts.map(|(_, part)| open(part.blocks()));
    opened.find(|part| part.run(run).is_some() || part.summaries().contains(&run))
}

/// Lists of triggers are packed under the lock, and each is in memory twice then.
#[test]
fn entry_archives_few_runs_with_large_lists_of_their_own() {
    let mut test = TestLedger::new();
    let up = NodeUp { owner: leading::LEADER, name: "one".into(), level: LEVEL, process_nonce: 1 };
    test.put(Actor::System, Command::NodeUp(up));
    let create = plain::schedule("news", list("own", 1), test.now);
    let CommandOutcome::Schedule(schedule) = test.put(Actor::System, Command::ScheduleCreate(Box::new(create))) else {
        panic!("no schedule");
    };
    for number in 0..20 {
        // Some 700 KiB each.
        let audience = Some(list(&format!("of-trigger-{number}"), 7_000));
        let trigger = Trigger { audience, ..Trigger::new(schedule, format!("t{number}")) };
        let CommandOutcome::Run { run, .. } = test.put(Actor::System, Command::Trigger(trigger)) else {
            panic!("no run")
        };
        test.put(Actor::System, Command::RunCancel(run));
    }
    test.now = test.now.plus_ms(3 * DAY_MS);
    test.lead();
    let (mut cursor, mut batches) = (ArchiveCursor::default(), Vec::new());
    while !test.ledger.pages().is_empty() {
        let (batch, next) = next_batch(&test.ledger, &cursor, test.now, DAY_MS);
        let (pages, before) = (batch.pages.len(), test.ledger.unsaved_bytes());
        test.put(Actor::System, Command::Archive(batch));
        batches.push((pages, test.ledger.unsaved_bytes() - before));
        cursor = next.unwrap_or_default();
    }
    assert!(batches.len() >= 7, "{batches:?}");
    assert!(batches.iter().all(|(pages, bytes)| *pages <= 3 && *bytes < 3 * 1024 * 1024), "{batches:?}");
}

fn list(name: &str, recipients: u32) -> Audience {
    let recipient = |number| {
        let address = format!("{name}-{number:05}-{}@example.org", "x".repeat(20));
        Recipient { key: address.clone(), address, values: vec![] }
    };
    Audience { columns: vec![], recipients: (0..recipients).map(recipient).collect() }
}

//! Reads the archive of a ledger whose archived blocks are all in memory.

use reveille_ledger::Ledger;
use reveille_ledger::ids::RunId;
use reveille_ledger::storage::unpack_block;

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

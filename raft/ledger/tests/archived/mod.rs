//! Reads the archive of a ledger whose archived chunks are all in memory.

use reveille_ledger::Ledger;
use reveille_ledger::ids::RunId;
use reveille_ledger::storage::unpack_chunk;

/// Returns the part of the archive that has this run, as a ledger; `None` if no part has it.
pub fn archived(ledger: &Ledger, run: RunId) -> Option<Ledger> {
    let parts = ledger.parts().iter().filter(|(_, part)| (part.first..=part.last).contains(&run));
    let open = |chunks: &[reveille_ledger::storage::ChunkEntry]| {
        let rows = chunks.iter().flat_map(|chunk| {
            let bytes = ledger.unsaved_chunk(&chunk.hash).expect("the bytes of an archived chunk");
            unpack_chunk(&bytes).expect("rows")
        });
        Ledger::from_rows(rows).expect("a ledger")
    };
    let mut opened = parts.map(|(_, part)| open(part.chunks()));
    opened.find(|part| part.run(run).is_some() || part.summaries().contains(&run))
}

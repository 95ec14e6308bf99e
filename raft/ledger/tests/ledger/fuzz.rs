//! Fuzz targets (`reveille-fuzz`) for stored blocks and for the texts of ids. Entries and rows: `totality::fuzz`.

use proptest::prelude::*;
use reveille_fuzz::{cases, damage, damaged, text};
use reveille_ledger::ids::{Epoch, Fence, Hash, RunId, TokenId};
use reveille_ledger::storage::{FrozenLeaf, Row, unpack_block};

const IDS: &[&str] = &["r", ".", "0", "1", "42", "-1", "+1", "00", "18446744073709551615", "4294967296", "f", " "];

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let bytes = |most: usize| prop::collection::vec(any::<u8>(), 0..most);
    prop::collection::vec((bytes(9), bytes(60)), 0..20)
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn block_reads_back_and_damaged_one_has_another_name(rows in rows(), damage in prop::collection::vec(damage(), 1..4)) {
        let packed = FrozenLeaf::of_rows(rows.clone()).pack();
        let mut read = Vec::new();
        for (block, bytes) in &packed {
            prop_assert_eq!(Hash::of(bytes), block.hash);
            read.extend(unpack_block(bytes).expect("a block"));
            let damaged = damaged(bytes, &damage);
            if damaged == *bytes {
                continue;
            }
            prop_assert!(Hash::of(&damaged) != block.hash);
            // Where no name protects it, no bytes are made up: rows are never larger than the block.
            let rows = unpack_block(&damaged).unwrap_or_default();
            prop_assert!(rows.iter().map(|(key, value)| 16 + key.len() + value.len()).sum::<usize>() <= damaged.len());
        }
        prop_assert_eq!(read, rows);
    }

    #[test]
    fn id_reads_back_and_other_text_is_refused_or_an_id(
        index in any::<u64>(),
        place in any::<u32>(),
        other in text(IDS, 10),
    ) {
        let (run, token) = (RunId { index, place }, TokenId(index));
        let fence = Fence { group: place, epoch: Epoch(index), index, place };
        prop_assert_eq!(run.to_string().parse(), Ok(run));
        prop_assert_eq!(fence.to_string().parse(), Ok(fence));
        prop_assert_eq!(token.to_string().parse(), Ok(token));
        if let Ok(run) = other.parse::<RunId>() {
            prop_assert_eq!(run.to_string().parse(), Ok(run));
        }
        if let Ok(fence) = other.parse::<Fence>() {
            prop_assert_eq!(fence.to_string().parse(), Ok(fence));
        }
        if let Ok(token) = other.parse::<TokenId>() {
            prop_assert_eq!(token.to_string(), other, "an id has one text");
        }
    }
}

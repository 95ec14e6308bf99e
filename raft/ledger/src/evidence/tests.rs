//! Rows that were packed, found as they were, and what is damaged refused.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::command::Why;
use crate::ids::{Incarnation, NodeId};
use crate::moments::What;
use crate::state::Standing;

const PAGE: RunId = RunId { index: 5_000_000, place: 3 };

fn fence(number: u32) -> Fence {
    Fence { group: 1, epoch: Epoch(4_999_000), index: PAGE.index + 1 + u64::from(number / 4), place: number % 4 }
}

/// A closed row: who got it, whom it holds, and what became of them.
fn row(number: u32, (node, first, count, step): (u64, u32, u32, u16), fates: u8) -> Row {
    let granted: Bitmap = Bitmap::range(first, count).iter().step_by(usize::from(step)).collect();
    let part = |of: u8| granted.iter().filter(|slot| fates & 4 == 0 || slot % 3 == u16::from(of)).collect();
    let (sent, assumed): (Bitmap, Bitmap) = (part(0), part(1));
    let claimed_at = Time(1_800_000_000_000 + i64::from(number) * 35);
    let mut moments = Moments::default();
    let mut note = |after: u64, fate, slots: &Bitmap| {
        moments.note((fence(number).index + after, claimed_at.plus_ms(after as i64 * 7)), fate, slots, &granted);
    };
    note(3, (What::Released(Some(Why::Busy)), Standing::Pending), &granted);
    if fates & 1 != 0 {
        note(70, (What::Accepted, Standing::Sent), &sent);
    }
    Row {
        page: PAGE,
        chunk: 2,
        holder: Holder { node: NodeId(node.wrapping_mul(0x9e37_79b9_7f4a_7c15)), incarnation: Incarnation(node) },
        claimed_at,
        claimed: Bitmap::new(),
        in_doubt: Bitmap::new(),
        sent: if fates & 1 != 0 { sent } else { Bitmap::new() },
        assumed: if fates & 2 != 0 { assumed } else { Bitmap::new() },
        moments,
        granted,
    }
}

fn rows() -> impl Strategy<Value = Vec<(u32, Row)>> {
    let shape = (0..4_u64, 0..65_000_u32, 1..300_u32, prop_oneof![3 => Just(1_u16), 1 => 2..9_u16]);
    let one = (0..400_u32, shape, 0..8_u8).prop_map(|(number, shape, fates)| (number, row(number, shape, fates)));
    prop::collection::vec(one, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In whatever order they close, and however often they change: each is found, in its order, as it was put.
    #[test]
    fn what_was_packed_is_found_as_it_was(rows in rows(), in_order in any::<bool>()) {
        let mut rows = rows;
        if in_order {
            rows.sort_by_key(|(number, _)| *number);
        }
        let mut ledger = Ledger::new();
        let mut model: BTreeMap<Fence, Row> = BTreeMap::new();
        for (number, row) in &rows {
            ledger.put_closed(fence(*number), row);
            model.insert(fence(*number), row.clone());
        }
        for number in 0..400 {
            prop_assert_eq!(ledger.closed_row((PAGE, 2), fence(number)), model.get(&fence(number)).cloned());
            prop_assert_eq!(ledger.closed_row((PAGE, 1), fence(number)), None, "of another chunk");
        }
        let all: Vec<(Fence, Row)> = model.into_iter().collect();
        prop_assert_eq!(&ledger.closed_rows_of((PAGE, 2)).collect::<Vec<_>>(), &all);
        prop_assert_eq!(&ledger.closed_rows().collect::<Vec<_>>(), &all);
        prop_assert_eq!(ledger.closed_rows_of((PAGE, 3)).count(), 0);
        for holder in all.iter().map(|(_, row)| row.holder).collect::<BTreeSet<_>>() {
            let assumed = all.iter().filter(|(_, row)| row.holder == holder && !row.assumed.is_empty()).cloned();
            let found = ledger.assumed_rows_by(holder, (PAGE, 2));
            prop_assert_eq!(found.collect::<Vec<_>>(), assumed.collect::<Vec<_>>());
            prop_assert_eq!(ledger.assumed_rows_by(holder, (PAGE, 1)).count(), 0, "of another chunk");
        }
        for (_, sheet) in ledger.evidence().iter() {
            let count = sheet.rows((PAGE, 2)).count();
            prop_assert!(count > 0);
            prop_assert!(sheet.packed.len() <= ledger.limits().sheet_bytes || count == 1, "{count} rows, {} B", sheet.packed.len());
        }
        let read = Ledger::from_rows(ledger.all_rows()).expect("it reads back");
        prop_assert_eq!(read.closed_rows().collect::<Vec<_>>(), all);
        ledger.prune_closed(PAGE);
        prop_assert!(ledger.evidence().is_empty());
    }
}

#[test]
fn a_sheet_that_is_damaged_is_refused_or_read_and_never_ends_the_node() {
    let mut sheet = Sheet::default();
    for number in 0..4 {
        sheet.put(fence(number), &row(number, (1, number * 100, 100, 1), 5));
    }
    let bytes = postcard::to_stdvec(&sheet).expect("plain data");
    for length in 0..bytes.len() {
        assert!(postcard::from_bytes::<Sheet>(&bytes[..length]).is_err(), "the first {length} bytes");
    }
    let whole = (LAYOUT, sheet.holders.clone(), sheet.since, &sheet.packed[..sheet.packed.len() - 1]);
    let cut = postcard::to_stdvec(&whole).expect("plain data");
    assert!(postcard::from_bytes::<Sheet>(&cut).is_err(), "its last row is not whole");
    let unowned = postcard::to_stdvec(&(LAYOUT, Vec::<Holder>::new(), sheet.since, &sheet.packed)).expect("plain data");
    assert!(postcard::from_bytes::<Sheet>(&unowned).is_err(), "its rows have no holder");
    let newer = postcard::to_stdvec(&(LAYOUT + 1, &sheet.holders, sheet.since, &sheet.packed)).expect("plain data");
    assert!(postcard::from_bytes::<Sheet>(&newer).is_err(), "another layout");
    let (place, mut refused) = ((PAGE, 2), 0);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut other = bytes.clone();
            other[at] ^= 1 << bit;
            match postcard::from_bytes::<Sheet>(&other) {
                Ok(sheet) => assert!(sheet.rows(place).count() >= 1),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100, "{refused} of {}", bytes.len() * 8);
}

/// The arithmetic of this page.
#[test]
fn a_row_that_was_sent_takes_some_thirty_bytes() {
    let mut sheet = Sheet::default();
    let mut former = 0;
    for number in 0..40 {
        let mut moments = Moments::default();
        let row = row(number, (1, number * 256, 256, 1), 1);
        let stamp = (fence(number).index + 20, row.claimed_at.plus_ms(150));
        moments.note(stamp, (What::Accepted, Standing::Sent), &row.granted, &row.granted);
        sheet.put(fence(number), &Row { moments, ..row });
        assert!(sheet.packed.len() - former <= 32, "row {number}: {} bytes", sheet.packed.len() - former);
        former = sheet.packed.len();
    }
}

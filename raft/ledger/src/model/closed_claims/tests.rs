//! Packed claims are found unchanged, and damaged blocks are rejected.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::model::{ClaimEventKind, Incarnation, NodeId, RecipientState, ReleaseReason};

const PAGE: PageId = PageId(RunId { index: 5_000_000, place: 3 });

fn fence(number: u32) -> Fence {
    Fence { group: 1, epoch: Epoch(4_999_000), index: PAGE.0.index + 1 + u64::from(number / 4), place: number % 4 }
}

/// Returns a closed claim. `fates` selects the outcomes of its recipients.
fn claim(number: u32, (node, first, count, step): (u64, u32, u32, u16), fates: u8) -> Claim {
    let granted: Bitmap = Bitmap::range(first, count).iter().step_by(usize::from(step)).collect();
    let part = |of: u8| granted.iter().filter(|slot| fates & 4 == 0 || slot % 3 == u16::from(of)).collect();
    let (sent, assumed): (Bitmap, Bitmap) = (part(0), part(1));
    let claimed_at = Time(1_800_000_000_000 + i64::from(number) * 35);
    let mut history = ClaimHistory::default();
    let mut record = |after: u64, fate, slots: &Bitmap| {
        history.record((fence(number).index + after, claimed_at.plus_ms(after as i64 * 7)), fate, slots, &granted);
    };
    record(3, (ClaimEventKind::Released(Some(ReleaseReason::Busy)), RecipientState::Pending), &granted);
    if fates & 1 != 0 {
        record(70, (ClaimEventKind::Accepted, RecipientState::Sent), &sent);
    }
    Claim {
        chunk: PAGE.chunk(2),
        owner: ClaimOwner { node: NodeId(node.wrapping_mul(0x9e37_79b9_7f4a_7c15)), incarnation: Incarnation(node) },
        claimed_at,
        claimed: Bitmap::new(),
        in_doubt: Bitmap::new(),
        sent: if fates & 1 != 0 { sent } else { Bitmap::new() },
        assumed: if fates & 2 != 0 { assumed } else { Bitmap::new() },
        history,
        granted,
    }
}

fn claims() -> impl Strategy<Value = Vec<(u32, Claim)>> {
    let shape = (0..4_u64, 0..65_000_u32, 1..300_u32, prop_oneof![3 => Just(1_u16), 1 => 2..9_u16]);
    let one = (0..400_u32, shape, 0..8_u8).prop_map(|(number, shape, fates)| (number, claim(number, shape, fates)));
    prop::collection::vec(one, 1..300)
}

proptest! {
    #![proptest_config(reveille_fuzz::cases(64))]

    /// In whatever order claims close, and however often they change, each is found unchanged and in order.
    #[test]
    fn packed_claim_is_found_unchanged(claims in claims(), in_order in any::<bool>()) {
        let mut claims = claims;
        if in_order {
            claims.sort_by_key(|(number, _)| *number);
        }
        let mut ledger = Ledger::new();
        let mut model: BTreeMap<Fence, Claim> = BTreeMap::new();
        for (number, claim) in &claims {
            ledger.put_closed_claim(fence(*number), claim);
            model.insert(fence(*number), claim.clone());
        }
        for number in 0..400 {
            prop_assert_eq!(ledger.closed_claim(PAGE.chunk(2), fence(number)), model.get(&fence(number)).cloned());
            prop_assert_eq!(ledger.closed_claim(PAGE.chunk(1), fence(number)), None, "of another chunk");
        }
        let all: Vec<(Fence, Claim)> = model.into_iter().collect();
        prop_assert_eq!(&ledger.closed_claims_of(PAGE.chunk(2)).collect::<Vec<_>>(), &all);
        prop_assert_eq!(&ledger.closed_claims().collect::<Vec<_>>(), &all);
        prop_assert_eq!(ledger.closed_claims_of(PAGE.chunk(3)).count(), 0);
        for owner in all.iter().map(|(_, claim)| claim.owner).collect::<BTreeSet<_>>() {
            let assumed = all.iter().filter(|(_, claim)| claim.owner == owner && !claim.assumed.is_empty()).cloned();
            let found = ledger.assumed_claims_by(owner, PAGE.chunk(2));
            prop_assert_eq!(found.collect::<Vec<_>>(), assumed.collect::<Vec<_>>());
            prop_assert_eq!(ledger.assumed_claims_by(owner, PAGE.chunk(1)).count(), 0, "of another chunk");
        }
        for (_, block) in ledger.closed_claim_blocks().iter() {
            let count = block.claims(PAGE.chunk(2)).count();
            prop_assert!(count > 0);
            prop_assert!(block.packed.len() <= ledger.limits().claim_block_bytes_max || count == 1, "{count} claims, {} B", block.packed.len());
        }
        let read = Ledger::from_rows(ledger.all_rows()).expect("it reads back");
        prop_assert_eq!(read.closed_claims().collect::<Vec<_>>(), all);
        ledger.remove_closed_claims(PAGE);
        prop_assert!(ledger.closed_claim_blocks().is_empty());
    }
}

#[test]
fn damaged_block_is_refused_or_read_without_panic() {
    let mut block = ClosedClaimBlock::default();
    for number in 0..4 {
        block.put(fence(number), &claim(number, (1, number * 100, 100, 1), 5));
    }
    let bytes = postcard::to_stdvec(&block).expect("plain data");
    for length in 0..bytes.len() {
        assert!(postcard::from_bytes::<ClosedClaimBlock>(&bytes[..length]).is_err(), "the first {length} bytes");
    }
    let whole = (block.owners.clone(), block.since, &block.packed[..block.packed.len() - 1]);
    let cut = postcard::to_stdvec(&whole).expect("plain data");
    assert!(postcard::from_bytes::<ClosedClaimBlock>(&cut).is_err(), "its last claim is not whole");
    let unowned = postcard::to_stdvec(&(Vec::<ClaimOwner>::new(), block.since, &block.packed)).expect("plain data");
    assert!(postcard::from_bytes::<ClosedClaimBlock>(&unowned).is_err(), "its claims have no owner");
    let (key, mut refused) = (PAGE.chunk(2), 0);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut other = bytes.clone();
            other[at] ^= 1 << bit;
            match postcard::from_bytes::<ClosedClaimBlock>(&other) {
                Ok(block) => assert!(block.claims(key).count() >= 1),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100, "{refused} of {}", bytes.len() * 8);
}

/// Checks the bytes per claim that the module header states.
#[test]
fn sent_claim_takes_some_thirty_bytes() {
    let mut block = ClosedClaimBlock::default();
    let mut former = 0;
    for number in 0..40 {
        let mut history = ClaimHistory::default();
        let claim = claim(number, (1, number * 256, 256, 1), 1);
        let stamp = (fence(number).index + 20, claim.claimed_at.plus_ms(150));
        history.record(stamp, (ClaimEventKind::Accepted, RecipientState::Sent), &claim.granted, &claim.granted);
        block.put(fence(number), &Claim { history, ..claim });
        assert!(block.packed.len() - former <= 32, "claim {number}: {} bytes", block.packed.len() - former);
        former = block.packed.len();
    }
}

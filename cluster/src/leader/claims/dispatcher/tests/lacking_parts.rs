//! Tests of the offers of a sealed audience, of which nodes may lack parts (P20).

use reveille_ledger::LEVEL;
use reveille_ledger::limits::limits;

use super::*;
use crate::leader::claims::claimable::Lacking;

#[test]
fn page_of_many_chunks_offers_at_most_the_credit_of_all_nodes() {
    let mut test = DispatcherTest::sealed(10 * CHUNK);
    let (page, _) = test.ledger.open_pages().next().expect("the page");
    let offered = |test: &DispatcherTest, lacking: &Lacking| {
        let offers = offers(&test.ledger, lacking, &InFlightClaims::default(), test.now);
        offers.into_iter().map(|offer| (offer.source.chunk.number, offer.barred)).collect::<Vec<_>>()
    };
    let none = BTreeSet::new();
    let mut lacking: Lacking = test.owners().into_keys().map(|node| (node, BTreeSet::new())).collect();
    assert_eq!(offered(&test, &lacking), [(0, none.clone())], "a chunk is more than both may hold");
    let slices = (0..CHUNK - limits(LEVEL).slice_recipients_max).step_by(limits(LEVEL).slice_recipients_max as usize);
    let claim = |first| ClaimRequest {
        chunk: page.chunk(0),
        slice: Bitmap::range(first, limits(LEVEL).slice_recipients_max),
        owner: owner(1, 1),
    };
    test.put(Command::Claim(slices.map(claim).collect()));
    assert_eq!(offered(&test, &lacking), [(0, none.clone()), (1, none.clone())], "and a slice is less");
    // A part that one node lacks is not offered to it, and parts that few nodes have do not fill the offers (P20).
    lacking.insert(NodeId(2), [part(1)].into());
    assert_eq!(
        offered(&test, &lacking),
        [(0, none.clone()), (1, [NodeId(2)].into()), (2, none.clone())],
        "the chunk behind it is for both"
    );
    // A part that no node has is not offered, and does not keep the dispatcher awake.
    lacking.values_mut().for_each(|parts| *parts = [part(0), part(1)].into());
    assert_eq!(offered(&test, &lacking), [(2, none)]);
}

#[test]
fn lacking_part_hides_no_other_recipients() {
    let chunks = 300;
    let test = DispatcherTest::sealed(chunks * CHUNK);
    let mut lacking: Lacking = test.owners().into_keys().map(|node| (node, BTreeSet::new())).collect();
    lacking.insert(NodeId(2), (0..290).map(part).collect());
    let offers = offers(&test.ledger, &lacking, &InFlightClaims::default(), test.now);
    let for_it: Vec<u32> = offers
        .iter()
        .filter(|offer| !offer.barred.contains(&NodeId(2)))
        .map(|offer| offer.source.chunk.number)
        .collect();
    assert_eq!(for_it, [290], "a chunk is more than it may hold");
    assert!(offers.len() <= 257, "{} offers", offers.len());
}

#[test]
fn node_with_full_lacking_list_gets_no_sealed_audience() {
    let offers_of = |test: &DispatcherTest, named: u32| {
        let mut lacking: Lacking = test.owners().into_keys().map(|node| (node, BTreeSet::new())).collect();
        lacking.insert(NodeId(2), (1_000..1_000 + named).map(part).collect());
        let offers = offers(&test.ledger, &lacking, &InFlightClaims::default(), test.now);
        offers.into_iter().map(|offer| offer.barred).collect::<Vec<_>>()
    };
    let full = crate::audience::NAMED_MAX as u32;
    assert_eq!(offers_of(&DispatcherTest::sealed(9), full), [BTreeSet::from([NodeId(2)])]);
    assert_eq!(offers_of(&DispatcherTest::sealed(9), full - 1), [BTreeSet::new()]);
    assert_eq!(offers_of(&DispatcherTest::with(9), full), [BTreeSet::new()], "what is sealed is not all there is");
}

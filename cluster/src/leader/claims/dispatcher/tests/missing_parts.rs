//! Tests of the offers of runs whose files nodes may lack: parts of a sealed audience, and attachments (P20).

use reveille_ledger::LEVEL;
use reveille_ledger::command::{KeyRule, SendMessage, SendMessages};
use reveille_ledger::content::{Attachment, Audience, Content};
use reveille_ledger::limits::limits;

use super::*;
use crate::leader::claims::claimable::MissingFiles;

#[test]
fn page_of_many_chunks_offers_at_most_the_credit_of_all_nodes() {
    let mut test = DispatcherTest::sealed(10 * CHUNK);
    let (page, _) = test.ledger.open_pages().next().expect("the page");
    let offered = |test: &DispatcherTest, missing: &MissingFiles| {
        let offers = offers(&test.ledger, missing, &InFlightClaims::default(), test.now);
        offers.into_iter().map(|offer| (offer.source.chunk.number, offer.excluded)).collect::<Vec<_>>()
    };
    let none = BTreeSet::new();
    let mut missing: MissingFiles = test.owners().into_keys().map(|node| (node, BTreeSet::new())).collect();
    assert_eq!(offered(&test, &missing), [(0, none.clone())], "a chunk is more than both may hold");
    let slices = (0..CHUNK - limits(LEVEL).slice_recipients_max).step_by(limits(LEVEL).slice_recipients_max as usize);
    let claim = |first| ClaimRequest {
        chunk: page.chunk(0),
        slice: Bitmap::range(first, limits(LEVEL).slice_recipients_max),
        owner: owner(1, 1),
    };
    test.put(Command::Claim(slices.map(claim).collect()));
    assert_eq!(offered(&test, &missing), [(0, none.clone()), (1, none.clone())], "and a slice is less");
    // A part that one node lacks is not offered to it, and parts that few nodes have do not fill the offers (P20).
    missing.insert(NodeId(2), [part(1)].into());
    assert_eq!(
        offered(&test, &missing),
        [(0, none.clone()), (1, [NodeId(2)].into()), (2, none.clone())],
        "the chunk behind it is for both"
    );
    // A part that no node has is not offered, and does not keep the dispatcher awake.
    missing.values_mut().for_each(|parts| *parts = [part(0), part(1)].into());
    assert_eq!(offered(&test, &missing), [(2, none)]);
}

#[test]
fn lacking_part_hides_no_other_recipients() {
    let chunks = 300;
    let test = DispatcherTest::sealed(chunks * CHUNK);
    let mut missing: MissingFiles = test.owners().into_keys().map(|node| (node, BTreeSet::new())).collect();
    missing.insert(NodeId(2), (0..290).map(part).collect());
    let offers = offers(&test.ledger, &missing, &InFlightClaims::default(), test.now);
    let for_it: Vec<u32> = offers
        .iter()
        .filter(|offer| !offer.excluded.contains(&NodeId(2)))
        .map(|offer| offer.source.chunk.number)
        .collect();
    assert_eq!(for_it, [290], "a chunk is more than it may hold");
    assert!(offers.len() <= 257, "{} offers", offers.len());
}

#[test]
fn node_with_full_lacking_list_gets_no_sealed_audience() {
    let offers_of = |test: &DispatcherTest, named: u32| {
        let mut missing: MissingFiles = test.owners().into_keys().map(|node| (node, BTreeSet::new())).collect();
        missing.insert(NodeId(2), (1_000..1_000 + named).map(part).collect());
        let offers = offers(&test.ledger, &missing, &InFlightClaims::default(), test.now);
        offers.into_iter().map(|offer| offer.excluded).collect::<Vec<_>>()
    };
    let full = crate::process::limits::NAMED_MAX as u32;
    assert_eq!(offers_of(&DispatcherTest::sealed(9), full), [BTreeSet::from([NodeId(2)])]);
    assert_eq!(offers_of(&DispatcherTest::sealed(9), full - 1), [BTreeSet::new()]);
    assert_eq!(offers_of(&DispatcherTest::with(9), full), [BTreeSet::new()], "what is sealed is not all there is");
}

#[test]
fn attachment_that_nodes_lack_holds_back_only_its_own_message() {
    let mut test = DispatcherTest::with(1);
    let message = |key: u32| {
        let file = Attachment {
            name: "a.pdf".into(),
            content_type: "application/pdf".into(),
            content_id: None,
            size: 1,
            file: part(key),
        };
        let attachments = if key == 0 { vec![] } else { vec![file] };
        SendMessage {
            key: key.to_string(),
            rule: KeyRule::Strict,
            is_test: false,
            content: Content { attachments, ..samples::content() },
            audience: Audience { columns: vec![], recipients: vec![samples::recipient("ann@example.net")] },
            send_at: None,
            pool: "default".into(),
            priority: 0,
            policies: Policies::default(),
        }
    };
    let messages = (0..4).map(message).collect();
    let sent = test.put(Command::SendMessages(SendMessages { tenant: "default".into(), messages }));
    assert!(matches!(sent, CommandOutcome::Messages(_)), "{sent:?}");
    let (page, _) = test.ledger.open_pages().last().expect("the page of the messages");
    // Both nodes lack the file of message 1. Each lacks that of another message, so no node has all files of the page.
    let missing = MissingFiles::from([(NodeId(1), [part(1), part(2)].into()), (NodeId(2), [part(1), part(3)].into())]);
    let offers = offers(&test.ledger, &missing, &InFlightClaims::default(), test.now).into_iter();
    let of_page = offers.filter(|offer| offer.source.chunk.page == page);
    let mut offered: Vec<_> =
        of_page.map(|offer| (offer.slots.plain.iter().collect::<Vec<_>>(), offer.excluded)).collect();
    offered.sort();
    let excluded = |nodes: &[u64]| nodes.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
    assert_eq!(offered, [(vec![0], excluded(&[])), (vec![2], excluded(&[1])), (vec![3], excluded(&[2]))]);
}

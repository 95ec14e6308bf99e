//! Tests of the order in which tenants are served, for chosen and for random backlogs and credits.

use proptest::prelude::*;
use reveille_ledger::LEVEL;
use reveille_ledger::ids::{PageId, RunId, Time};
use reveille_ledger::limits::limits;

use super::*;
use crate::leader::claims::types::ClaimSource;

fn source(pool: &str, page: u64, chunk: u32) -> ClaimSource {
    ClaimSource { chunk: PageId(RunId { index: page, place: 0 }).chunk(chunk), pool: pool.to_owned() }
}

fn offer(tenant: &str, page: u64, claimable: u32) -> Offer {
    Offer {
        tenant: tenant.to_owned(),
        priority: 0,
        due: Time(0),
        late: false,
        source: source("default", page, 0),
        claimable,
        slots: Default::default(),
        excluded: BTreeSet::new(),
    }
}

fn credit(tenant: &str, node: u64, recipients: u32) -> Credit {
    Credit { tenant: Some(tenant.to_owned()), pool: "default".to_owned(), node: NodeId(node), recipients }
}

fn shared(node: u64, recipients: u32) -> Credit {
    Credit { tenant: None, ..credit("", node, recipients) }
}

fn late_credits(pool: &str, recipients: u32) -> ClaimLimits {
    ClaimLimits { late: [(pool.to_owned(), recipients)].into(), ..ClaimLimits::default() }
}

fn shares(shares: &[(&str, u32)]) -> ClaimLimits {
    ClaimLimits {
        shares: shares.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect(),
        ..ClaimLimits::default()
    }
}

fn pages(slices: &[PlannedSlice]) -> Vec<(u64, u32)> {
    slices.iter().map(|planned| (planned.source.chunk.page.0.index, planned.recipients)).collect()
}

#[test]
fn small_tenant_does_not_wait_for_large_one() {
    let offers = [offer("large", 1, 1_000_000), offer("small", 2, 3)];
    let slices = FairQueue::default().next_slices(&offers, &[shared(1, 10_000)], &mut ClaimLimits::default(), 4);
    assert_eq!(pages(&slices), [(1, 256), (2, 3), (1, 256), (1, 256)]);
}

#[test]
fn slice_is_as_large_as_the_level_of_the_ledger_allows() {
    let offers = [offer("large", 1, 1_000_000), offer("small", 2, 3)];
    for slice in [16, 512] {
        let mut limits = ClaimLimits { slice_max: slice, ..ClaimLimits::default() };
        let slices = FairQueue::default().next_slices(&offers, &[shared(1, 10_000)], &mut limits, 3);
        assert_eq!(pages(&slices), [(1, slice), (2, 3), (1, slice)]);
    }
}

#[test]
fn within_a_tenant_priority_goes_before_on_time_before_age() {
    let offers = [
        Offer { due: Time(50), ..offer("a", 1, 1) },
        Offer { due: Time(10), late: true, ..offer("a", 2, 1) },
        Offer { due: Time(40), ..offer("a", 3, 1) },
        Offer { due: Time(90), priority: 7, ..offer("a", 4, 1) },
        Offer { due: Time(5), late: true, ..offer("a", 5, 1) },
    ];
    let slices = FairQueue::default().next_slices(&offers, &[credit("a", 1, 100)], &mut ClaimLimits::default(), 100);
    assert_eq!(pages(&slices), [(4, 1), (3, 1), (1, 1), (5, 1), (2, 1)]);
}

#[test]
fn late_emails_use_own_credit_and_delay_no_others() {
    let late = |page, priority| Offer { late: true, priority, ..offer("a", page, 1_000) };
    let offers = [late(1, 9), late(2, 0), offer("a", 3, 40), Offer { late: true, ..offer("b", 4, 1_000) }];
    let mut credits = late_credits("default", 30);
    let slices = FairQueue::default().next_slices(&offers, &[shared(1, 500)], &mut credits, 100);
    assert_eq!(pages(&slices), [(1, 30), (3, 40)], "priority goes first, and what is on time is not behind it");
    assert_eq!(credits.late["default"], 0);
    let slices = FairQueue::default().next_slices(&offers, &[shared(1, 500)], &mut credits, 100);
    assert_eq!(pages(&slices), [(3, 40)]);
    let mut of_another = late_credits("other", 0);
    let slices = FairQueue::default().next_slices(&offers[1..2], &[shared(1, 500)], &mut of_another, 100);
    assert_eq!(pages(&slices), [(2, 256), (2, 244)], "a pool that is not named has no bound");
}

#[test]
fn tenant_bound_holds_in_all_pools_and_delays_no_others() {
    let fast = Offer { source: source("fast", 2, 0), ..offer("a", 2, 1_000) };
    let offers = [offer("a", 1, 1_000), fast, offer("b", 3, 1_000)];
    let credits = [shared(1, 500), Credit { pool: "fast".to_owned(), ..shared(1, 500) }];
    let mut limits = ClaimLimits { tenants: [("a".to_owned(), 300)].into(), ..ClaimLimits::default() };
    let slices = FairQueue::default().next_slices(&offers, &credits, &mut limits, 100);
    assert_eq!(pages(&slices), [(1, 256), (2, 44), (3, 244)], "the rest of the credit is for the other one");
    assert_eq!(limits.tenants["a"], 0);
    let slices = FairQueue::default().next_slices(&offers, &credits, &mut limits, 100);
    assert_eq!(pages(&slices), [(3, 256), (3, 244)]);
}

#[test]
fn daily_cap_of_pool_holds_for_all_tenants() {
    let fast = Offer { source: source("fast", 3, 0), ..offer("a", 3, 1_000) };
    let offers = [offer("a", 1, 1_000), offer("b", 2, 1_000), fast];
    let credits = [shared(1, 900), Credit { pool: "fast".to_owned(), ..shared(1, 200) }];
    let mut limits = ClaimLimits { pools: [("default".to_owned(), 300)].into(), ..ClaimLimits::default() };
    let slices = FairQueue::default().next_slices(&offers, &credits, &mut limits, 100);
    assert_eq!(pages(&slices), [(1, 256), (3, 200), (2, 44)]);
    assert_eq!(limits.pools["default"], 0);
    assert_eq!(pages(&FairQueue::default().next_slices(&offers, &credits, &mut limits, 100)), [(3, 200)]);
}

#[test]
fn turns_are_as_long_as_shares_are_and_never_longer_than_a_quantum() {
    let offers = [offer("a", 1, 9_000), offer("b", 2, 9_000), offer("c", 3, 9_000)];
    let mut limits = shares(&[("a", 4), ("c", 2)]);
    let slices = FairQueue::default().next_slices(&offers, &[shared(1, 10_000)], &mut limits, 6);
    assert_eq!(pages(&slices), [(1, 256), (2, 64), (3, 128), (1, 256), (2, 64), (3, 128)]);
    let slices = FairQueue::default().next_slices(&offers[1..], &[shared(1, 10_000)], &mut limits, 4);
    assert_eq!(pages(&slices), [(2, 128), (3, 256), (2, 128), (3, 256)], "of those that wait");
}

#[test]
fn pool_without_credit_delays_no_other_pools() {
    let dead = Offer { source: source("dead", 1, 0), priority: 9, ..offer("a", 1, 500) };
    let offers = [dead, offer("a", 2, 5), offer("b", 3, 5)];
    let slices = FairQueue::default().next_slices(
        &offers,
        &[credit("a", 1, 100), credit("b", 1, 100)],
        &mut ClaimLimits::default(),
        100,
    );
    assert_eq!(pages(&slices), [(2, 5), (3, 5)]);
    assert_eq!(
        FairQueue::default().next_slices(&offers, &[], &mut ClaimLimits::default(), 100),
        [],
        "no credit, no claim"
    );
}

#[test]
fn both_credits_bound_a_tenant_that_has_both() {
    let offers = [offer("a", 1, 1_000), offer("b", 2, 1_000)];
    let slices = FairQueue::default().next_slices(
        &offers,
        &[shared(1, 150), credit("a", 1, 40)],
        &mut ClaimLimits::default(),
        100,
    );
    assert_eq!(pages(&slices), [(1, 40), (2, 110)]);
}

#[test]
fn slices_go_where_the_most_room_is() {
    let credits = [credit("a", 1, 300), credit("a", 2, 400), credit("a", 3, 0)];
    let slices = FairQueue::default().next_slices(&[offer("a", 1, 10_000)], &credits, &mut ClaimLimits::default(), 100);
    let nodes: Vec<(u64, u32)> = slices.iter().map(|planned| (planned.node.0, planned.recipients)).collect();
    assert_eq!(nodes, [(2, 256), (1, 256), (2, 144), (1, 44)]);
}

#[test]
fn offer_with_lacking_part_goes_to_other_nodes() {
    let part = Offer { excluded: [NodeId(2)].into(), ..offer("a", 1, 300) };
    let offers = [part, offer("a", 2, 300)];
    let slices = FairQueue::default().next_slices(
        &offers,
        &[credit("a", 1, 100), credit("a", 2, 900)],
        &mut ClaimLimits::default(),
        100,
    );
    let mut who: Vec<(u64, u64)> =
        slices.iter().map(|planned| (planned.source.chunk.page.0.index, planned.node.0)).collect();
    who.dedup();
    assert_eq!(who, [(1, 1), (2, 2)], "an offer that no node may serve delays nothing");
    let excluded = Offer { excluded: [NodeId(1)].into(), ..offer("a", 1, 300) };
    assert_eq!(
        FairQueue::default().next_slices(&[excluded], &[credit("a", 1, 100)], &mut ClaimLimits::default(), 100),
        []
    );
}

#[test]
fn interrupted_turn_continues_in_next_call() {
    let mut fair = FairQueue::default();
    let offers = [offer("a", 1, 1_000), offer("b", 2, 1_000)];
    assert_eq!(
        pages(&fair.next_slices(&offers, &[shared(1, 100)], &mut ClaimLimits::default(), 9)),
        [(1, 100)],
        "by a credit"
    );
    assert_eq!(pages(&fair.next_slices(&offers, &[], &mut ClaimLimits::default(), 9)), [], "or by none");
    assert_eq!(
        pages(&fair.next_slices(&offers, &[shared(1, 9_000)], &mut ClaimLimits::default(), 1)),
        [(1, 156)],
        "or by the number of slices"
    );
    assert_eq!(
        pages(&fair.next_slices(&offers, &[shared(1, 9_000)], &mut ClaimLimits::default(), 2)),
        [(2, 256), (1, 256)]
    );
    assert_eq!(
        pages(&fair.next_slices(&offers[..1], &[shared(1, 9_000)], &mut ClaimLimits::default(), 1)),
        [(1, 256)],
        "alone, it has all turns"
    );
}

#[test]
fn pools_take_turns_slice_by_slice() {
    let fast = Offer { source: source("fast", 2, 0), ..offer("a", 2, 1_000) };
    let credit_fast = Credit { pool: "fast".to_owned(), ..shared(1, 9_000) };
    let slices = FairQueue::default().next_slices(
        &[offer("a", 1, 1_000), fast],
        &[shared(1, 9_000), credit_fast],
        &mut ClaimLimits::default(),
        4,
    );
    assert_eq!(pages(&slices), [(1, 256), (2, 256), (1, 256), (2, 256)]);
}

fn names(count: usize) -> Vec<String> {
    ('a'..='z').take(count).map(String::from).collect()
}

#[test]
fn tenant_with_all_pages_pending_keeps_its_turn() {
    let (offers, mut fair) = ([offer("a", 1, 1_000), offer("b", 2, 1_000)], FairQueue::default());
    assert_eq!(pages(&fair.next_slices(&offers, &[shared(1, 100)], &mut ClaimLimits::default(), 9)), [(1, 100)]);
    let mut waiting =
        ClaimLimits { waiting: [("a".to_owned(), "default".to_owned())].into(), ..ClaimLimits::default() };
    assert_eq!(fair.next_slices(&[], &[shared(1, 100)], &mut waiting, 9), []);
    let slices = fair.next_slices(&offers, &[shared(1, 9_000)], &mut ClaimLimits::default(), 2);
    assert_eq!(pages(&slices), [(1, 156), (2, 256)]);
}

#[test]
fn turn_length_is_the_same_beside_pending_claims_as_beside_offers() {
    let mut limits = shares(&[("a", 16)]);
    let next = |limits: &mut ClaimLimits| {
        FairQueue::default().next_slices(&[offer("b", 2, 1_000)], &[shared(1, 9_000)], limits, 1)
    };
    assert_eq!(pages(&next(&mut limits)), [(2, 256)], "a has nothing to send");
    limits.waiting = [("a".to_owned(), "default".to_owned())].into();
    assert_eq!(pages(&next(&mut limits)), [(2, 16)]);
    limits.waiting = [("a".to_owned(), "other".to_owned())].into();
    assert_eq!(pages(&next(&mut limits)), [(2, 256)], "by another pool");
}

proptest! {
    #[test]
    fn slices_stay_within_credit_and_offer_and_use_both_up(
        wanted in prop::collection::vec((0_usize..4, 0_usize..2, 0_u8..3, any::<bool>(), 0_u32..700), 0..30),
        credited in prop::collection::btree_map((prop::option::of(0_usize..4), 0_usize..2, 0_u64..3), 0_u32..900, 0..25),
        calls in prop::collection::vec(0_usize..9, 1..5),
    ) {
        let name = |number: usize| number.to_string();
        let offers: Vec<Offer> = wanted.iter().enumerate().map(|(page, (tenant, pool, priority, late, claimable))| Offer {
            tenant: name(*tenant), source: source(&name(*pool), page as u64, 0), priority: *priority, late: *late, ..offer("", page as u64, *claimable)
        }).collect();
        let credits: Vec<Credit> = credited.iter().map(|((tenant, pool, node), recipients)| Credit {
            tenant: tenant.map(name), pool: name(*pool), node: NodeId(*node), recipients: *recipients
        }).collect();
        let covers = |credit: &Credit, offer: &Offer, node: NodeId| {
            credit.pool == offer.source.pool && credit.node == node && credit.tenant.as_ref().is_none_or(|tenant| *tenant == offer.tenant)
        };
        let mut fair = FairQueue::default();
        for slices_max in calls {
            let slices = fair.next_slices(&offers, &credits, &mut ClaimLimits::default(), slices_max);
            prop_assert!(slices.len() <= slices_max);
            let (mut credits_left, mut offers_left) = (credits.clone(), offers.clone());
            for planned in &slices {
                prop_assert!((1..=ClaimLimits::default().slice_max).contains(&planned.recipients));
                let offer = &mut offers_left[planned.source.chunk.page.0.index as usize];
                offer.claimable = offer.claimable.checked_sub(planned.recipients).expect("no more than is claimable");
                let mut covered = false;
                for credit in credits_left.iter_mut().filter(|credit| covers(credit, offer, planned.node)) {
                    credit.recipients = credit.recipients.checked_sub(planned.recipients).expect("no more than the credit");
                    covered = true;
                }
                prop_assert!(covered);
            }
            let could_go_on = offers_left.iter().filter(|offer| offer.claimable > 0).any(|offer| (0..3).map(NodeId).any(|node| {
                let mut covering = credits_left.iter().filter(|credit| covers(credit, offer, node)).peekable();
                covering.peek().is_some() && covering.all(|credit| credit.recipients > 0)
            }));
            prop_assert!(slices.len() == slices_max || !could_go_on);
        }
    }

    #[test]
    fn shares_are_equal_to_within_one_quantum(
        tenants in 2_usize..7,
        calls in prop::collection::vec((0_usize..9, 0_u32..900, 0_u32..900, prop::collection::vec((1_u32..600, 0_u8..3), 12)), 1..60),
    ) {
        let mut fair = FairQueue::default();
        let names = names(tenants);
        let mut got = vec![0; tenants];
        for (slices_max, here, there, chunks) in calls {
            // Each tenant always has enough to claim, in pieces of any size. The shared credit runs out at any point.
            let offers: Vec<Offer> = names.iter().enumerate().flat_map(|(number, name)| {
                let piece = move |(place, (claimable, priority)): (usize, &(u32, u8))| Offer {
                    priority: *priority, source: source("default", number as u64, place as u32), ..offer(name, number as u64, *claimable)
                };
                let rest = Offer { source: source("default", number as u64, 99), ..offer(name, number as u64, 9_000) };
                chunks.iter().enumerate().map(piece).chain([rest]).collect::<Vec<_>>()
            }).collect();
            for planned in fair.next_slices(&offers, &[shared(1, here), shared(2, there)], &mut ClaimLimits::default(), slices_max) {
                got[planned.source.chunk.page.0.index as usize] += planned.recipients;
            }
            let (least, most) = (got.iter().min().copied().unwrap_or(0), got.iter().max().copied().unwrap_or(0));
            prop_assert!(most - least <= ClaimLimits::default().slice_max, "{:?}", got);
        }
    }

    #[test]
    fn shares_are_in_proportion_to_within_one_quantum(
        weights in prop::collection::vec(1_u32..=limits(LEVEL).tenant_share_max, 2..6),
        calls in prop::collection::vec((0_usize..40, 0_u32..2_000), 1..80),
    ) {
        let names = names(weights.len());
        let named: Vec<(&str, u32)> = names.iter().map(String::as_str).zip(weights.iter().copied()).collect();
        let mut limits = shares(&named);
        let mut fair = FairQueue::default();
        let mut got = vec![0_u32; weights.len()];
        for (slices_max, room) in calls {
            let offers: Vec<Offer> = names.iter().zip(0..).map(|(name, page)| offer(name, page, 9_000)).collect();
            for planned in fair.next_slices(&offers, &[shared(1, room)], &mut limits, slices_max) {
                got[planned.source.chunk.page.0.index as usize] += planned.recipients;
            }
            let each = got.iter().zip(&weights).map(|(got, weight)| f64::from(*got) / f64::from(*weight));
            let (least, most) = each.clone().fold((f64::MAX, 0.0_f64), |(least, most), one| (least.min(one), most.max(one)));
            let largest = weights.iter().copied().max().unwrap_or(1);
            prop_assert!(most - least <= f64::from(ClaimLimits::default().slice_max / largest), "{:?} by {:?}", got, weights);
        }
    }

    #[test]
    fn no_tenant_waits_longer_than_one_turn_of_each_other(
        tenants in 2_usize..7,
        patient in 0_usize..7,
        before in 0_usize..40,
        room in 1_u32..600,
        pieces in prop::collection::vec((1_u32..5_000, 0_u8..9), 1..6),
    ) {
        let names = names(tenants);
        let patient = patient % tenants;
        let mut fair = FairQueue::default();
        let others = names.iter().enumerate().filter(|(number, _)| *number != patient).flat_map(|(number, name)| {
            pieces.iter().map(move |(claimable, priority)| Offer { priority: *priority, ..offer(name, number as u64, *claimable) })
        });
        let mut offers: Vec<Offer> = others.collect();
        fair.next_slices(&offers, &[shared(1, 9_000)], &mut ClaimLimits::default(), before);
        offers.push(offer(&names[patient], patient as u64, 1));
        let mut waited = 0;
        loop {
            // One slice for each call cuts turns most often.
            let slices = fair.next_slices(&offers, &[shared(1, room)], &mut ClaimLimits::default(), 1);
            prop_assert_eq!(slices.len(), 1);
            if slices[0].source.chunk.page.0.index == patient as u64 {
                break;
            }
            waited += slices[0].recipients;
            prop_assert!(waited <= ClaimLimits::default().slice_max * (tenants as u32 - 1), "{} waited for {}", names[patient], waited);
        }
    }
}

//! Which packets do not arrive, as rules for the filter of each host, or as laws for each proxy. Pure.
//!
//! Every fault of a link is a rule at the host that receives. Only what comes from another node is touched: this
//! process must see all of them, and relays are broken by the sink.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::plan::Bad;
use crate::proxies::Law;

/// Something that happens to packets from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLink {
    /// Place of the sender.
    pub from: usize,
    /// Place of the receiver.
    pub to: usize,
    /// What; none: nothing arrives.
    pub how: Option<Bad>,
}

/// A link that carries nothing.
pub fn cut(from: usize, to: usize) -> BadLink {
    BadLink { from, to, how: None }
}

/// Every link between two places that do not hear each other.
pub fn cut_unless(nodes: usize, hear: impl Fn(usize, usize) -> bool) -> Vec<BadLink> {
    let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to && !hear(*from, *to)).map(|(from, to)| cut(from, to)).collect()
}

/// One from all others.
pub fn alone(nodes: usize, who: usize) -> Vec<BadLink> {
    cut_unless(nodes, |from, to| from != who && to != who)
}

/// A minority that begins at `first`, from the rest.
pub fn halves(nodes: usize, first: usize) -> Vec<BadLink> {
    let minority = (nodes - 1) / 2;
    let side = |place: usize| (place + nodes - first % nodes) % nodes < minority;
    cut_unless(nodes, |from, to| side(from) == side(to))
}

/// Each hears its neighbours in a ring. Of three nodes everybody is a neighbour, so there one link is cut.
pub fn ring(nodes: usize) -> Vec<BadLink> {
    if nodes <= 3 {
        return vec![cut(0, 1), cut(1, 0)];
    }
    cut_unless(nodes, |from, to| (from + 1) % nodes == to || (to + 1) % nodes == from)
}

/// Two halves, and one that hears both.
pub fn bridge(nodes: usize, middle: usize) -> Vec<BadLink> {
    let middle = middle % nodes;
    let side = |place: usize| (place + nodes - middle) % nodes <= nodes / 2;
    cut_unless(nodes, |from, to| from == middle || to == middle || side(from) == side(to))
}

/// Nothing comes in to `who` (or, the other way, out of it).
pub fn one_way(nodes: usize, who: usize, into: bool) -> Vec<BadLink> {
    cut_unless(nodes, |from, to| if into { to != who } else { from != who })
}

/// Links of one node that are bad in this way: both ways, or only out of it where its cable is narrow.
pub fn around(nodes: usize, who: usize, how: Bad) -> Vec<BadLink> {
    let others = (0..nodes).filter(|other| *other != who);
    let both = others.flat_map(|other| [(who, other), (other, who)]);
    let struck = both.filter(|(from, _)| *from == who || !matches!(how, Bad::Narrow(_)));
    struck.map(|(from, to)| BadLink { from, to, how: Some(how) }).collect()
}

/// How narrow the cable of a node is, given all that is bad at the moment.
pub fn narrowest(from: usize, bad: &[BadLink]) -> Option<u32> {
    let rates = bad.iter().filter(|link| link.from == from).filter_map(|link| match link.how {
        Some(Bad::Narrow(kbit)) => Some(kbit),
        _ => None,
    });
    rates.min()
}

/// The law of a link between proxies, given all that is bad at the moment: the worst of each kind.
pub fn law(from: usize, to: usize, bad: &[BadLink]) -> Law {
    let mut law = Law { kbit_per_second: narrowest(from, bad), ..Law::default() };
    for link in bad.iter().filter(|link| (link.from, link.to) == (from, to)) {
        match link.how {
            None => law.cut = true,
            Some(Bad::Loss(per_cent)) => law.lost_per_cent = law.lost_per_cent.max(per_cent),
            Some(Bad::Reset(per_mille)) => law.reset_per_mille = law.reset_per_mille.max(per_mille),
            Some(Bad::Delay(delay)) => law.delay = law.delay.max(delay),
            // Of all that the sender says.
            Some(Bad::Narrow(_)) => {}
        }
    }
    law
}

/// The rules of the filter at a host, given all that is bad at the moment.
pub fn rules(at: usize, addresses: &[Ipv4Addr], bad: &[BadLink]) -> String {
    let mut by_sender: BTreeMap<usize, Vec<Option<Bad>>> = BTreeMap::new();
    for link in bad.iter().filter(|link| link.to == at) {
        by_sender.entry(link.from).or_default().push(link.how);
    }
    let mut text = String::new();
    for (from, hows) in by_sender {
        let Some(address) = addresses.get(from) else { continue };
        for how in hows {
            let verdict = match how {
                None => "counter drop".to_owned(),
                Some(Bad::Loss(per_cent)) => format!("numgen random mod 100 < {per_cent} counter drop"),
                Some(Bad::Reset(per_mille)) => {
                    format!("meta l4proto tcp numgen random mod 1000 < {per_mille} counter reject with tcp reset")
                }
                // A matter of the sender's cable, not of a filter; and hosts have no delay.
                Some(Bad::Narrow(_) | Bad::Delay(_)) => continue,
            };
            text.push_str(&format!("    ip saddr {address} {verdict}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Places that each place still hears, itself left out.
    fn heard(nodes: usize, bad: &[BadLink]) -> Vec<Vec<usize>> {
        let hears = |to: usize| {
            let others = (0..nodes).filter(move |from| *from != to);
            others.filter(|from| !bad.contains(&cut(*from, to))).collect()
        };
        (0..nodes).map(hears).collect()
    }

    #[test]
    fn one_is_alone_and_the_others_are_not() {
        assert_eq!(heard(3, &alone(3, 1)), [vec![2], vec![], vec![0]]);
    }

    #[test]
    fn a_minority_is_cut_off() {
        assert_eq!(heard(5, &halves(5, 4)), [vec![4], vec![2, 3], vec![1, 3], vec![1, 2], vec![0]]);
        assert_eq!(heard(3, &halves(3, 5)), [vec![1], vec![0], vec![]]);
    }

    #[test]
    fn in_a_ring_each_hears_a_majority_and_no_two_the_same() {
        assert_eq!(heard(5, &ring(5)), [vec![1, 4], vec![0, 2], vec![1, 3], vec![2, 4], vec![0, 3]]);
        assert_eq!(heard(3, &ring(3)), [vec![2], vec![2], vec![0, 1]]);
    }

    #[test]
    fn only_the_bridge_hears_both_halves() {
        assert_eq!(heard(5, &bridge(5, 0)), [vec![1, 2, 3, 4], vec![0, 2], vec![0, 1], vec![0, 4], vec![0, 3]]);
        assert_eq!(heard(3, &bridge(3, 2)), [vec![2], vec![2], vec![0, 1]]);
    }

    #[test]
    fn one_way_is_one_way() {
        assert_eq!(heard(3, &one_way(3, 0, true)), [vec![], vec![0, 2], vec![0, 1]]);
        assert_eq!(heard(3, &one_way(3, 0, false)), [vec![1, 2], vec![2], vec![1]]);
    }

    #[test]
    fn rules_stand_at_the_receiver() {
        let addresses = [Ipv4Addr::new(10, 9, 8, 1), Ipv4Addr::new(10, 9, 8, 2)];
        let lossy = BadLink { from: 1, to: 0, how: Some(Bad::Loss(30)) };
        let bad = [cut(0, 1), lossy];
        assert_eq!(rules(1, &addresses, &bad), "    ip saddr 10.9.8.1 counter drop\n");
        assert_eq!(rules(0, &addresses, &bad), "    ip saddr 10.9.8.2 numgen random mod 100 < 30 counter drop\n");
        assert_eq!(rules(0, &addresses, &[]), "");
    }

    #[test]
    fn a_law_is_the_worst_of_what_is_bad_on_its_link() {
        let late = |millis| Some(Bad::Delay(Duration::from_millis(millis)));
        let bad = [(0, 1, late(50)), (0, 1, late(200)), (1, 0, late(50)), (1, 0, None), (0, 2, Some(Bad::Narrow(64)))];
        let bad = bad.map(|(from, to, how)| BadLink { from, to, how });
        let delay = Duration::from_millis(200);
        assert_eq!(law(0, 1, &bad), Law { delay, kbit_per_second: Some(64), ..Law::default() }, "one cable for all");
        let delay = Duration::from_millis(50);
        assert_eq!(law(1, 0, &bad), Law { cut: true, delay, ..Law::default() });
        assert!(law(2, 0, &bad).is_default());
    }

    #[test]
    fn a_bad_link_is_bad_both_ways_and_a_narrow_cable_one_way() {
        let ends = |how| around(3, 1, how).into_iter().map(|link| (link.from, link.to)).collect::<Vec<_>>();
        assert_eq!(ends(Bad::Loss(10)), [(1, 0), (0, 1), (1, 2), (2, 1)]);
        assert_eq!(ends(Bad::Narrow(64)), [(1, 0), (1, 2)]);
    }
}

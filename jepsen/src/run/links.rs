//! Which packets do not arrive, as rules for the filter of each node. Pure.
//!
//! Every fault of a link is a rule at the node that receives. Only what comes from another node is touched: this
//! process must see all of them, and relays are broken by the sink.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::plan::Bad;

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

/// The rules of the filter at a node, given all that is bad at the moment.
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
                // A matter of the sender's cable, not of a filter.
                Some(Bad::Narrow(_)) => continue,
            };
            text.push_str(&format!("    ip saddr {address} {verdict}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
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
}

//! Broken links between nodes: which links a fault breaks, the packet filter rules for it, and their counters.
//!
//! Each rule is at the receiving host. Only packets of other nodes are filtered: the harness must reach all nodes, and the
//! sink breaks the relay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use anyhow::Result;
use reveille_harness::host_network::HostNetwork;

use super::actions::LinkFault;
use super::injection::{BrokenLink, NotInjected, Repair, required};
use super::nemesis::Nemesis;

/// Packets hit on each link, by sender and receiver, since the rules were set. A narrow link has a counter of its own.
type Matched = BTreeMap<(usize, usize, bool), u64>;

/// A link that carries nothing.
pub fn cut(from: usize, to: usize) -> BrokenLink {
    BrokenLink { from, to, how: None }
}

/// Cuts every link that `hear` does not keep.
pub fn cut_unless(nodes: usize, hear: impl Fn(usize, usize) -> bool) -> Vec<BrokenLink> {
    let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to && !hear(*from, *to)).map(|(from, to)| cut(from, to)).collect()
}

/// One node is cut off from all others.
pub fn alone(nodes: usize, node: usize) -> Vec<BrokenLink> {
    cut_unless(nodes, |from, to| from != node && to != node)
}

/// A minority that begins at `first` is cut off from the rest.
pub fn halves(nodes: usize, first: usize) -> Vec<BrokenLink> {
    let minority = (nodes - 1) / 2;
    let side = |index: usize| (index + nodes - first % nodes) % nodes < minority;
    cut_unless(nodes, |from, to| side(from) == side(to))
}

/// Each node is connected to its neighbours in a ring. In a ring of three all are neighbours, so one link is cut.
pub fn ring(nodes: usize) -> Vec<BrokenLink> {
    if nodes <= 3 {
        return vec![cut(0, 1), cut(1, 0)];
    }
    cut_unless(nodes, |from, to| (from + 1) % nodes == to || (to + 1) % nodes == from)
}

/// Two halves, and one node that is connected to both.
pub fn bridge(nodes: usize, middle: usize) -> Vec<BrokenLink> {
    let middle = middle % nodes;
    let side = |index: usize| (index + nodes - middle) % nodes <= nodes / 2;
    cut_unless(nodes, |from, to| from == middle || to == middle || side(from) == side(to))
}

/// Nothing reaches `node` (`into`), or nothing leaves it.
pub fn one_way(nodes: usize, node: usize, into: bool) -> Vec<BrokenLink> {
    cut_unless(nodes, |from, to| if into { to != node } else { from != node })
}

/// The links of one node are bad: both ways, or only out of it if its rate is limited.
pub fn around(nodes: usize, node: usize, how: LinkFault) -> Vec<BrokenLink> {
    let others = (0..nodes).filter(|other| *other != node);
    let both = others.flat_map(|other| [(node, other), (other, node)]);
    let struck = both.filter(|(from, _)| *from == node || !matches!(how, LinkFault::Narrow(_)));
    struck.map(|(from, to)| BrokenLink { from, to, how: Some(how) }).collect()
}

/// The rate of a node, given all broken links.
fn narrowest(from: usize, bad: &[BrokenLink]) -> Option<u32> {
    let rates = bad.iter().filter(|link| link.from == from).filter_map(|link| match link.how {
        Some(LinkFault::Narrow(kbit)) => Some(kbit),
        _ => None,
    });
    rates.min()
}

/// The filter rules of a host, given all broken links.
fn rules(at: usize, addresses: &[Ipv4Addr], bad: &[BrokenLink]) -> String {
    let mut by_sender: BTreeMap<usize, Vec<Option<LinkFault>>> = BTreeMap::new();
    for link in bad.iter().filter(|link| link.to == at) {
        by_sender.entry(link.from).or_default().push(link.how);
    }
    let mut text = String::new();
    for (from, hows) in by_sender {
        let Some(address) = addresses.get(from) else { continue };
        for how in hows {
            let verdict = match how {
                None => "counter drop".to_owned(),
                Some(LinkFault::Loss(per_cent)) => format!("numgen random mod 100 < {per_cent} counter drop"),
                Some(LinkFault::Reset(per_mille)) => {
                    format!("meta l4proto tcp numgen random mod 1000 < {per_mille} counter reject with tcp reset")
                }
                // Done at the sender.
                Some(LinkFault::Narrow(_)) => continue,
            };
            text.push_str(&format!("    ip saddr {address} {verdict}\n"));
        }
    }
    text
}

impl Nemesis {
    /// Breaks these links too; all of them or none.
    pub(super) fn add_links(&mut self, broken: &[BrokenLink]) -> Result<(), NotInjected> {
        required(&self.processes.cluster.environment.network)?;
        let before = self.broken_links.clone();
        let set = self.set_links([&before, broken].concat());
        if set.is_err() {
            self.set_links(before)?;
        }
        Ok(set?)
    }

    /// Restores these links; returns the packets that the fault hit, including `matched` from before.
    pub(super) fn remove_links(&mut self, broken: &[BrokenLink], matched: u64) -> Result<u64> {
        let matched = matched + sum(broken, &self.matched());
        let mut left = self.broken_links.clone();
        for restored in broken {
            if let Some(index) = left.iter().position(|link| link == restored) {
                left.swap_remove(index);
            }
        }
        self.set_links(left)?;
        Ok(matched)
    }

    /// Replaces all broken links. The counters restart, so they are first added to the active faults.
    fn set_links(&mut self, broken: Vec<BrokenLink>) -> Result<()> {
        let seen = self.matched();
        for active in &mut self.active {
            if let Repair::Links { broken, matched } = &mut active.repair {
                *matched += sum(broken, &seen);
            }
        }
        let before = std::mem::replace(&mut self.broken_links, broken);
        match &self.processes.cluster.environment.network {
            Ok(network) => set(network, &self.processes.names(), &before, &self.broken_links),
            Err(_) => Ok(()),
        }
    }

    fn matched(&self) -> Matched {
        let network = self.processes.cluster.environment.network.as_ref();
        network.map(|network| matched(network, &self.processes.names(), &self.broken_links)).unwrap_or_default()
    }
}

fn is_narrow(link: &BrokenLink) -> bool {
    matches!(link.how, Some(LinkFault::Narrow(_)))
}

/// Packets on these links. Two faults of one link both count its packets.
fn sum(broken: &[BrokenLink], matched: &Matched) -> u64 {
    let keys: BTreeSet<_> = broken.iter().map(|link| (link.from, link.to, is_narrow(link))).collect();
    keys.iter().filter_map(|key| matched.get(key)).sum()
}

fn set(network: &HostNetwork, names: &[String], before: &[BrokenLink], now: &[BrokenLink]) -> Result<()> {
    let addresses = names.iter().map(|name| network.address(name)).collect::<Result<Vec<_>>>()?;
    for (index, name) in names.iter().enumerate() {
        network.set_rules(name, &rules(index, &addresses, now))?;
    }
    for (index, name) in names.iter().enumerate() {
        // Also where the rate stays the same: its counter restarts like all others.
        if narrowest(index, before).is_some() {
            network.limit_rate(name, None)?;
        }
        if let Some(kbit) = narrowest(index, now) {
            network.limit_rate(name, Some(kbit))?;
        }
    }
    Ok(())
}

/// A filter counts packets by sender. A limited rate counts once, for the first of its links.
fn matched(network: &HostNetwork, names: &[String], broken: &[BrokenLink]) -> Matched {
    let place_of =
        |address: Ipv4Addr| names.iter().position(|name| network.address(name).is_ok_and(|own| own == address));
    let mut matched = Matched::new();
    for (to, name) in names.iter().enumerate() {
        for (address, packets) in network.matched_packets(name).unwrap_or_default() {
            matched.extend(place_of(address).map(|from| ((from, to, false), packets)));
        }
    }
    for (from, name) in names.iter().enumerate() {
        if let Some(link) = broken.iter().find(|link| link.from == from && is_narrow(link)) {
            matched.insert((from, link.to, true), network.delayed_packets(name).unwrap_or_default());
        }
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes that each node still hears, without itself.
    fn heard(nodes: usize, bad: &[BrokenLink]) -> Vec<Vec<usize>> {
        let hears = |to: usize| {
            let others = (0..nodes).filter(move |from| *from != to);
            others.filter(|from| !bad.contains(&cut(*from, to))).collect()
        };
        (0..nodes).map(hears).collect()
    }

    #[test]
    fn alone_cuts_one_node_off() {
        assert_eq!(heard(3, &alone(3, 1)), [vec![2], vec![], vec![0]]);
    }

    #[test]
    fn halves_cut_minority_off() {
        assert_eq!(heard(5, &halves(5, 4)), [vec![4], vec![2, 3], vec![1, 3], vec![1, 2], vec![0]]);
        assert_eq!(heard(3, &halves(3, 5)), [vec![1], vec![0], vec![]]);
    }

    #[test]
    fn ring_keeps_different_majority_for_each_node() {
        assert_eq!(heard(5, &ring(5)), [vec![1, 4], vec![0, 2], vec![1, 3], vec![2, 4], vec![0, 3]]);
        assert_eq!(heard(3, &ring(3)), [vec![2], vec![2], vec![0, 1]]);
    }

    #[test]
    fn bridge_node_keeps_both_halves() {
        assert_eq!(heard(5, &bridge(5, 0)), [vec![1, 2, 3, 4], vec![0, 2], vec![0, 1], vec![0, 4], vec![0, 3]]);
        assert_eq!(heard(3, &bridge(3, 2)), [vec![2], vec![2], vec![0, 1]]);
    }

    #[test]
    fn one_way_cuts_one_direction() {
        assert_eq!(heard(3, &one_way(3, 0, true)), [vec![], vec![0, 2], vec![0, 1]]);
        assert_eq!(heard(3, &one_way(3, 0, false)), [vec![1, 2], vec![2], vec![1]]);
    }

    #[test]
    fn rules_are_at_receiver() {
        let addresses = [Ipv4Addr::new(10, 9, 8, 1), Ipv4Addr::new(10, 9, 8, 2)];
        let lossy = BrokenLink { from: 1, to: 0, how: Some(LinkFault::Loss(30)) };
        let bad = [cut(0, 1), lossy];
        assert_eq!(rules(1, &addresses, &bad), "    ip saddr 10.9.8.1 counter drop\n");
        assert_eq!(rules(0, &addresses, &bad), "    ip saddr 10.9.8.2 numgen random mod 100 < 30 counter drop\n");
        assert_eq!(rules(0, &addresses, &[]), "");
    }

    #[test]
    fn bad_link_affects_both_ways_and_narrow_link_one_way() {
        let ends = |how| around(3, 1, how).into_iter().map(|link| (link.from, link.to)).collect::<Vec<_>>();
        assert_eq!(ends(LinkFault::Loss(10)), [(1, 0), (0, 1), (1, 2), (2, 1)]);
        assert_eq!(ends(LinkFault::Narrow(64)), [(1, 0), (1, 2)]);
    }
}

//! Broken links between nodes: which links a fault breaks, the packet filter rules for it, and their counters.
//!
//! Each rule is at the receiving host. Only packets of other nodes are filtered: the harness must reach all nodes, and
//! the sink breaks the relay.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::actions::LinkFault;
use super::nemesis::{Injection, Nemesis, Repair, required};

/// Number of bytes that a narrow link lets through at once.
const BURST_BYTES: u32 = 2 << 10;

/// A link from one node to another that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenLink {
    /// Index of the sending node.
    pub from: usize,
    /// Index of the receiving node.
    pub to: usize,
    /// Fault of the link. `None`: nothing arrives.
    how: Option<LinkFault>,
}

/// Returns a link on which nothing arrives.
pub fn cut(from: usize, to: usize) -> BrokenLink {
    BrokenLink { from, to, how: None }
}

/// Returns cuts of every link that `hear` does not keep.
pub fn cut_unless(nodes: usize, hear: impl Fn(usize, usize) -> bool) -> Vec<BrokenLink> {
    let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to && !hear(*from, *to)).map(|(from, to)| cut(from, to)).collect()
}

/// Returns the cuts that isolate one node from all others.
pub fn alone(nodes: usize, node: usize) -> Vec<BrokenLink> {
    cut_unless(nodes, |from, to| from != node && to != node)
}

/// Returns the cuts that separate a minority, beginning at `first`, from the rest.
pub fn halves(nodes: usize, first: usize) -> Vec<BrokenLink> {
    let minority = (nodes - 1) / 2;
    let side = |index: usize| (index + nodes - first % nodes) % nodes < minority;
    cut_unless(nodes, |from, to| side(from) == side(to))
}

/// Returns the cuts that connect each node only to its neighbours in a ring. In a ring of three all nodes are
/// neighbours, so one link is cut.
pub fn ring(nodes: usize) -> Vec<BrokenLink> {
    if nodes <= 3 {
        return vec![cut(0, 1), cut(1, 0)];
    }
    cut_unless(nodes, |from, to| (from + 1) % nodes == to || (to + 1) % nodes == from)
}

/// Returns the cuts between two halves, of which one node is connected to both.
pub fn bridge(nodes: usize, middle: usize) -> Vec<BrokenLink> {
    let middle = middle % nodes;
    let side = |index: usize| (index + nodes - middle) % nodes <= nodes / 2;
    cut_unless(nodes, |from, to| from == middle || to == middle || side(from) == side(to))
}

/// Returns the cuts by which nothing reaches `node` (`into`), or nothing leaves it.
pub fn one_way(nodes: usize, node: usize, into: bool) -> Vec<BrokenLink> {
    cut_unless(nodes, |from, to| if into { to != node } else { from != node })
}

/// Returns the bad links of one node, in both directions.
pub fn around(nodes: usize, node: usize, how: LinkFault) -> Vec<BrokenLink> {
    let others = (0..nodes).filter(|other| *other != node);
    let both = others.flat_map(|other| [(node, other), (other, node)]);
    both.map(|(from, to)| BrokenLink { from, to, how: Some(how) }).collect()
}

/// Returns the filter rules of a host for these links. A narrow link drops packets above its rate.
fn rules(at: usize, addresses: &[Ipv4Addr], broken: &[BrokenLink]) -> String {
    let mut text = String::new();
    for link in broken.iter().filter(|link| link.to == at) {
        let Some(address) = addresses.get(link.from) else { continue };
        let verdict = match link.how {
            None => "counter drop".to_owned(),
            Some(LinkFault::Loss(per_cent)) => format!("numgen random mod 100 < {per_cent} counter drop"),
            Some(LinkFault::Reset(per_mille)) => {
                format!("meta l4proto tcp numgen random mod 1000 < {per_mille} counter reject with tcp reset")
            }
            Some(LinkFault::Narrow(kbit)) => {
                format!("limit rate over {} bytes/second burst {BURST_BYTES} bytes counter drop", kbit * 1_000 / 8)
            }
        };
        text.push_str(&format!("    ip saddr {address} {verdict}\n"));
    }
    text
}

impl Nemesis {
    /// Breaks these links, with a table of rules at each receiving host. Breaks all of them or none.
    pub(super) fn break_links(&mut self, broken: &[BrokenLink]) -> Injection<Repair> {
        let names = self.processes.names();
        let network = required(&self.processes.cluster.environment.network)?;
        let addresses = names.iter().map(|name| network.address(name)).collect::<Result<Vec<_>>>()?;
        self.link_faults += 1;
        let (table, mut hosts) = (format!("fault{}", self.link_faults), Vec::<String>::new());
        for (at, host) in names.into_iter().enumerate() {
            let rules = rules(at, &addresses, broken);
            if rules.is_empty() {
                continue;
            }
            if let Err(error) = network.add_rules(&host, &table, &rules) {
                for host in &hosts {
                    network.remove_rules(host, &table)?;
                }
                return Err(error.into());
            }
            hosts.push(host);
        }
        Ok(Repair::Links { table, hosts })
    }

    /// Restores the links of a fault. Returns the number of packets that the fault hit.
    pub(super) fn restore_links(&self, table: &str, hosts: &[String]) -> Result<u64> {
        let Ok(network) = &self.processes.cluster.environment.network else { return Ok(0) };
        hosts.iter().map(|host| network.remove_rules(host, table)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the nodes that each node still hears, without itself.
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
        let narrow = BrokenLink { from: 1, to: 0, how: Some(LinkFault::Narrow(64)) };
        let rate = "limit rate over 8000 bytes/second burst 2048 bytes counter drop";
        assert_eq!(rules(0, &addresses, &[narrow]), format!("    ip saddr 10.9.8.2 {rate}\n"));
    }

    #[test]
    fn bad_link_affects_both_ways() {
        let ends: Vec<_> = around(3, 1, LinkFault::Loss(10)).iter().map(|link| (link.from, link.to)).collect();
        assert_eq!(ends, [(1, 0), (0, 1), (1, 2), (2, 1)]);
    }
}

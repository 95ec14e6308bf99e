//! What stands between nodes, so that it can be broken: hosts of their own with a cable each, or proxies on loopback.
//! Who breaks links talks to this (`crate::run`'s `links.rs`), and need not know which it is.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};

use crate::hosts::Hosts;
use crate::node::{Ports, free_ports};
use crate::proxies::{Proxies, Seat};

/// Ports on a host of one's own.
const PORTS: [u16; 3] = [7600, 7601, 7680];

/// Which of them is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Ground {
    /// Hosts where this machine allows them, else proxies
    #[default]
    Any,
    /// A network namespace a node: packets are dropped; needs root
    Hosts,
    /// A TCP proxy a link on loopback: bytes are held, and can be late
    Proxy,
}

/// Links between all nodes of a cluster.
pub enum Wires {
    /// Each node is a host.
    Hosts(Hosts),
    /// All nodes are on loopback, each behind proxies.
    Proxies(Loopback),
}

/// Nodes on loopback and the proxies between them.
pub struct Loopback {
    /// What carries all that they say to each other.
    pub proxies: Proxies,
    names: Vec<String>,
    ports: Vec<Ports>,
}

impl Wires {
    /// Makes them, or says why there are none. The seed decides what proxies do by chance.
    pub fn new(ground: Ground, token: &str, names: &[String], seed: u64) -> Result<Wires, String> {
        match ground {
            Ground::Hosts => hosts(token, names),
            Ground::Proxy => proxies(names, seed),
            Ground::Any => hosts(token, names).or_else(|why| {
                eprintln!("all nodes are on loopback, with a proxy a link: {why}");
                proxies(names, seed)
            }),
        }
    }

    /// As it is named on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Wires::Hosts(_) => "hosts",
            Wires::Proxies(_) => "proxy",
        }
    }

    /// Where each node listens.
    pub fn ports(&self, names: &[String]) -> Result<Vec<Ports>> {
        let of = |name: &String| match self {
            Wires::Hosts(hosts) => {
                let address = hosts.address(name)?;
                Ok(PORTS.map(|port| SocketAddr::from((address, port))))
            }
            Wires::Proxies(loopback) => {
                let place = loopback.place(name).with_context(|| format!("no ports of {name}"))?;
                loopback.ports.get(place).copied().with_context(|| format!("no ports of {name}"))
            }
        };
        names.iter().map(of).collect()
    }

    /// By which address peers know a node that is reached by a proxy, and where its process is told of.
    pub fn behind(&self, name: &str) -> Option<(SocketAddr, Seat)> {
        let Wires::Proxies(loopback) = self else { return None };
        let place = loopback.place(name)?;
        Some((loopback.proxies.known(place)?, loopback.proxies.seat(place)))
    }

    /// The address of this process among the nodes.
    pub fn ours(&self) -> Ipv4Addr {
        match self {
            Wires::Hosts(hosts) => hosts.ours(),
            Wires::Proxies(_) => Ipv4Addr::LOCALHOST,
        }
    }
}

impl Loopback {
    fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }
}

fn hosts(token: &str, names: &[String]) -> Result<Wires, String> {
    match Hosts::missing() {
        Some(why) => Err(why),
        None => Hosts::new(token, names).map(Wires::Hosts).map_err(|error| format!("{error:#}")),
    }
}

fn proxies(names: &[String], seed: u64) -> Result<Wires, String> {
    let made = || -> Result<Wires> {
        let ports = free_ports(names.len() as u8)?;
        let proxies = Proxies::new(ports.iter().map(|[_, peers, _]| *peers).collect(), seed)?;
        Ok(Wires::Proxies(Loopback { proxies, names: names.to_vec(), ports }))
    };
    made().map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_proxies_a_node_is_known_by_another_address_than_the_one_it_listens_at() {
        let names = ["n1", "n2"].map(str::to_owned);
        let wires = Wires::new(Ground::Proxy, "0000000a", &names, 7).unwrap();
        let ports = wires.ports(&names).unwrap();
        let known = names.each_ref().map(|name| wires.behind(name).unwrap().0);
        assert!(ports.iter().flatten().all(|port| port.ip().is_loopback() && !known.contains(port)));
        assert!(known[0] != known[1] && wires.behind("n3").is_none() && wires.ports(&["n3".to_owned()]).is_err());
    }

    #[test]
    fn hosts_are_made_or_refused_with_a_word_and_anything_is_always_there() {
        let names = ["n1".to_owned()];
        if let Some(why) = Hosts::missing() {
            assert_eq!(Wires::new(Ground::Hosts, "0000000b", &names, 7).err(), Some(why));
            assert_eq!(Wires::new(Ground::Any, "0000000b", &names, 7).unwrap().name(), "proxy");
        }
    }
}

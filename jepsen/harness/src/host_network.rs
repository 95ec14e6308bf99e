//! A network of hosts. Each node has a network namespace, and a veth pair connects it to a bridge. The harness is
//! connected to the bridge too, and its sink listens there.
//!
//! Links are cut and disturbed by `nft` rules at the receiver. Needs root, `ip`, `nsenter` and `nft`. All names contain
//! the token of the [`Workspace`](crate::workspace::Workspace).

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};
use rand::Rng;

use crate::tool;

/// Last number of the address of this process.
const HARNESS: u8 = 254;
/// Maximum number of networks that are tried.
const NETWORK_TRIES: u32 = 50;

/// The network namespaces of the nodes and of their switch. They are removed when this is dropped.
pub struct HostNetwork {
    token: String,
    /// The first three numbers of every address.
    network: [u8; 3],
    names: Vec<String>,
}

impl HostNetwork {
    /// Returns why this machine cannot have such a network. `None`: it can.
    pub fn missing() -> Option<String> {
        tool::missing("network namespaces", &["ip", "nsenter", "nft"])
    }

    /// Creates the network. On an error it removes what it had created.
    pub fn new(token: &str, names: &[String]) -> Result<HostNetwork> {
        let hosts = HostNetwork { token: token.to_owned(), network: free_network()?, names: names.to_vec() };
        let switch = hosts.namespace("switch");
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "bridge", "up"])?;
        let cable = cable(token);
        ip(&["link", "add", &cable, "type", "veth", "peer", "name", "ours", "netns", &switch])?;
        ip(&["-n", &switch, "link", "set", "ours", "master", "bridge", "up"])?;
        ip(&["address", "add", &format!("{}/24", hosts.harness_address()), "dev", &cable])?;
        ip(&["link", "set", &cable, "up"])?;
        names.iter().try_for_each(|name| hosts.connect(&switch, name))?;
        Ok(hosts)
    }

    fn connect(&self, switch: &str, name: &str) -> Result<()> {
        let namespace = self.namespace(name);
        ip(&["netns", "add", &namespace])?;
        ip(&["link", "add", "cable", "netns", &namespace, "type", "veth", "peer", "name", name, "netns", switch])?;
        ip(&["-n", switch, "link", "set", "dev", name, "master", "bridge", "up"])?;
        ip(&["-n", &namespace, "address", "add", &format!("{}/24", self.address(name)?), "dev", "cable"])?;
        ip(&["-n", &namespace, "link", "set", "cable", "up"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    /// Returns the namespace of a node.
    pub fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", cable(&self.token))
    }

    /// Returns the address of a node.
    pub fn address(&self, name: &str) -> Result<Ipv4Addr> {
        let place = self.names.iter().position(|known| known == name).with_context(|| format!("no host {name}"))?;
        Ok(self.at(place as u8 + 1))
    }

    /// Returns the address of this process.
    pub fn harness_address(&self) -> Ipv4Addr {
        self.at(HARNESS)
    }

    fn at(&self, last: u8) -> Ipv4Addr {
        let [first, second, third] = self.network;
        Ipv4Addr::new(first, second, third, last)
    }

    /// Adds filter rules for packets that arrive at a node, as a table of their own.
    pub fn add_rules(&self, name: &str, table: &str, rules: &str) -> Result<()> {
        let table = format!(
            "table inet {table} {{\n  chain input {{\n    type filter hook input priority 0; policy accept;\n{rules}  }}\n}}\n"
        );
        self.nft(name, &["-f", "-"], &table).map(|_| ())
    }

    /// Removes a table of rules. Returns the number of packets that its rules counted.
    pub fn remove_rules(&self, name: &str, table: &str) -> Result<u64> {
        let rules = self.nft(name, &["list", "table", "inet", table], "")?;
        self.nft(name, &["delete", "table", "inet", table], "")?;
        Ok(counted_packets(&rules))
    }

    /// Forwards connections to this loopback port, on every host, to this process.
    pub fn forward_loopback(&self, port: u16) -> Result<()> {
        for name in &self.names {
            let (own, harness) = (self.address(name)?, self.harness_address());
            let namespace = format!("--net=/run/netns/{}", self.namespace(name));
            let allow = "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet";
            tool::run("nsenter", &[&namespace, "sh", "-c", allow])?;
            let table = format!(
                "table ip relay {{\n  chain output {{\n    type nat hook output priority -100; policy accept;\n    \
                 ip daddr 127.0.0.1 tcp dport {port} dnat to {harness}:{port}\n  }}\n  chain after {{\n    \
                 type nat hook postrouting priority 100; policy accept;\n    \
                 oif \"cable\" ip saddr 127.0.0.1 snat to {own}\n  }}\n}}\n"
            );
            self.nft(name, &["-f", "-"], &table)?;
        }
        Ok(())
    }

    fn nft(&self, name: &str, arguments: &[&str], input: &str) -> Result<String> {
        let namespace = format!("--net=/run/netns/{}", self.namespace(name));
        let nft = tool::find("nft")?;
        tool::feed("nsenter", &[&[namespace.as_str(), tool::text(&nft)?], arguments].concat(), input)
    }
}

impl Drop for HostNetwork {
    fn drop(&mut self) {
        remove(&self.token);
    }
}

/// Removes the namespaces of a token, and the veth pair that leads to them, if they exist.
fn remove(token: &str) {
    let cable = cable(token);
    let ours = format!("{cable}-");
    let spaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in spaces.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with(&ours)) {
        if let Err(error) = ip(&["netns", "delete", &name]) {
            eprintln!("{error:#}");
        }
    }
    // The veth pair usually disappears with the namespace of its other end.
    if std::path::Path::new("/sys/class/net").join(&cable).exists() {
        let _ = ip(&["link", "delete", &cable]);
    }
}

/// Returns the name of the harness's end of its veth pair. It has at most 15 letters, the kernel's limit.
fn cable(token: &str) -> String {
    format!("rvj-{token}")
}

fn ip(arguments: &[&str]) -> Result<()> {
    tool::run("ip", arguments)
}

/// Returns a network that no route of this machine covers.
fn free_network() -> Result<[u8; 3]> {
    let routes = std::fs::read_to_string("/proc/net/route").context("the routes of this machine")?;
    for _ in 0..NETWORK_TRIES {
        let network = [10, rand::rng().random_range(64..=254), rand::rng().random_range(0..=254)];
        if !is_routed(&routes, network) {
            return Ok(network);
        }
    }
    bail!("no network 10.x.y.0/24 is free on this machine")
}

/// Returns true if a route covers this network. The kernel writes destinations and masks with the first number last.
fn is_routed(routes: &str, [first, second, third]: [u8; 3]) -> bool {
    let wanted = u32::from_le_bytes([first, second, third, 0]);
    routes.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().map(|field| u32::from_str_radix(field, 16));
        let (destination, mask) = (fields.nth(1), fields.nth(5));
        matches!((destination, mask), (Some(Ok(destination)), Some(Ok(mask))) if mask != 0 && wanted & mask == destination)
    })
}

/// Sums the counters of rules that `nft` prints.
fn counted_packets(rules: &str) -> u64 {
    let counters = rules.split("counter packets ").skip(1);
    counters.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_counters_are_summed() {
        let rules = "ip saddr 10.1.1.1 counter packets 17 bytes 9 drop\n  ip saddr 10.1.1.2 meta l4proto tcp numgen \
                     random mod 1000 < 5 counter packets 4 bytes 1 reject\n";
        assert_eq!((counted_packets(rules), counted_packets("table inet fault1 {}")), (21, 0));
    }

    #[test]
    fn network_with_route_is_taken_and_default_route_is_ignored() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth0\t0001600A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert!(is_routed(routes, [10, 96, 1]));
        assert!(!is_routed(routes, [10, 96, 2]));
    }

    #[test]
    fn interface_name_fits_kernel_limit() {
        assert!(cable("0123abcd").len() <= 15);
    }

    #[test]
    fn hosts_are_connected_until_rule_cuts_them_and_are_removed() {
        if let Some(why) = HostNetwork::missing() {
            reveille_strict::skip(&why);
            return;
        }
        let token = format!("{:08x}", rand::random::<u32>());
        let hosts = HostNetwork::new(&token, &["n1".to_owned(), "n2".to_owned()]).unwrap();
        let listener = std::net::TcpListener::bind((hosts.harness_address(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let reaches = || {
            let line = format!("exec 3<>/dev/tcp/{}/{port}", hosts.harness_address());
            let namespace = format!("--net=/run/netns/{}", hosts.namespace("n2"));
            tool::run("nsenter", &[&namespace, "timeout", "2", "bash", "-c", &line]).is_ok()
        };
        assert!(reaches());
        let from_harness = format!("    ip saddr {}", hosts.harness_address());
        let narrow = format!("{from_harness} limit rate over 8000 bytes/second burst 16384 bytes counter drop\n");
        hosts.add_rules("n2", "narrow", &narrow).unwrap();
        assert!(reaches());
        hosts.add_rules("n2", "cut", &format!("{from_harness} counter drop\n")).unwrap();
        assert!(!reaches());
        assert!(hosts.remove_rules("n2", "cut").unwrap() > 0 && hosts.remove_rules("n2", "cut").is_err());
        hosts.remove_rules("n2", "narrow").unwrap();
        assert!(reaches(), "the former rules are gone");
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let namespace = format!("--net=/run/netns/{}", hosts.namespace("n1"));
        let by_loopback = || tool::run("nsenter", &[&namespace, "timeout", "2", "bash", "-c", &line]).is_ok();
        assert!(!by_loopback());
        hosts.forward_loopback(port.parse().unwrap()).unwrap();
        assert!(by_loopback());
        drop(hosts);
        let left = std::fs::read_dir("/run/netns").unwrap().flatten();
        assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(&token)));
    }
}

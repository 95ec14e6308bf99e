//! Every node a host of its own: a network namespace with one cable to a switch, which is a bridge in a
//! namespace too. This process has a cable to it as well; there the sink listens and the nodes are asked.
//!
//! Needs root, `ip`, `nsenter` and, to cut links, `nft`. Whatever is made bears the token of its [`Grounds`]
//! (`crate::grounds`) and goes when this is dropped.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};
use rand::Rng;

use crate::tool;

/// The last number of this process's own address.
const OURS: u8 = 254;
/// Draws of a network until one is free.
const DRAWS: u32 = 50;

/// Namespaces of some nodes and their switch.
pub struct Hosts {
    token: String,
    /// The first three numbers of every address.
    network: [u8; 3],
    names: Vec<String>,
}

impl Hosts {
    /// Why there can be none on this machine; none where there can.
    pub fn missing() -> Option<String> {
        if !tool::is_root() {
            return Some("network namespaces need root".to_owned());
        }
        let lacks = ["ip", "nsenter", "nft", "tc"].into_iter().find(|program| tool::find(program).is_none())?;
        Some(format!("there is no `{lacks}` on this machine"))
    }

    /// Makes them; what was made before an error is gone again.
    pub fn new(token: &str, names: &[String]) -> Result<Hosts> {
        let hosts = Hosts { token: token.to_owned(), network: free_network()?, names: names.to_vec() };
        let switch = hosts.namespace("switch");
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "bridge", "up"])?;
        let cable = cable(token);
        ip(&["link", "add", &cable, "type", "veth", "peer", "name", "ours", "netns", &switch])?;
        ip(&["-n", &switch, "link", "set", "ours", "master", "bridge", "up"])?;
        ip(&["address", "add", &format!("{}/24", hosts.ours()), "dev", &cable])?;
        ip(&["link", "set", &cable, "up"])?;
        names.iter().try_for_each(|name| hosts.plug_in(&switch, name))?;
        Ok(hosts)
    }

    fn plug_in(&self, switch: &str, name: &str) -> Result<()> {
        let namespace = self.namespace(name);
        ip(&["netns", "add", &namespace])?;
        ip(&["link", "add", "cable", "netns", &namespace, "type", "veth", "peer", "name", name, "netns", switch])?;
        ip(&["-n", switch, "link", "set", name, "master", "bridge", "up"])?;
        ip(&["-n", &namespace, "address", "add", &format!("{}/24", self.address(name)?), "dev", "cable"])?;
        ip(&["-n", &namespace, "link", "set", "cable", "up"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    /// The namespace of a node.
    pub fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", cable(&self.token))
    }

    /// The address of a node.
    pub fn address(&self, name: &str) -> Result<Ipv4Addr> {
        let place = self.names.iter().position(|known| known == name).with_context(|| format!("no host {name}"))?;
        Ok(self.at(place as u8 + 1))
    }

    /// The address of this process among them.
    pub fn ours(&self) -> Ipv4Addr {
        self.at(OURS)
    }

    fn at(&self, last: u8) -> Ipv4Addr {
        let [first, second, third] = self.network;
        Ipv4Addr::new(first, second, third, last)
    }

    /// Puts these rules for what comes in to a node in the place of its former ones, in one step.
    pub fn filter(&self, name: &str, rules: &str) -> Result<()> {
        let table = format!(
            "table inet reveille\ndelete table inet reveille\ntable inet reveille {{\n  chain input {{\n    \
             type filter hook input priority 0; policy accept;\n{rules}  }}\n}}\n"
        );
        self.nft(name, &["-f", "-"], &table).map(|_| ())
    }

    /// On every host, whatever goes to this port of loopback comes to this process.
    pub fn lead_from_loopback(&self, port: u16) -> Result<()> {
        for name in &self.names {
            let (own, ours) = (self.address(name)?, self.ours());
            let namespace = format!("--net=/run/netns/{}", self.namespace(name));
            let may = "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet";
            tool::run("nsenter", &[&namespace, "sh", "-c", may])?;
            let table = format!(
                "table ip relay {{\n  chain output {{\n    type nat hook output priority -100; policy accept;\n    \
                 ip daddr 127.0.0.1 tcp dport {port} dnat to {ours}:{port}\n  }}\n  chain after {{\n    \
                 type nat hook postrouting priority 100; policy accept;\n    \
                 oif \"cable\" ip saddr 127.0.0.1 snat to {own}\n  }}\n}}\n"
            );
            self.nft(name, &["-f", "-"], &table)?;
        }
        Ok(())
    }

    /// How many packets of each sender the rules of a node with a `counter` have struck since they were put there.
    pub fn struck(&self, name: &str) -> Result<BTreeMap<Ipv4Addr, u64>> {
        self.nft(name, &["list", "table", "inet", "reveille"], "").map(|rules| counted(&rules))
    }

    fn nft(&self, name: &str, arguments: &[&str], input: &str) -> Result<String> {
        let namespace = format!("--net=/run/netns/{}", self.namespace(name));
        let nft = tool::find("nft").context("there is no `nft` on this machine")?;
        tool::feed("nsenter", &[&[namespace.as_str(), tool::text(&nft)?], arguments].concat(), input)
    }

    /// Makes the cable of a node so narrow that what it sends waits; as wide as before with none. Kilobits.
    pub fn narrow(&self, name: &str, kbit_per_second: Option<u32>) -> Result<()> {
        let namespace = self.namespace(name);
        match kbit_per_second {
            Some(rate) => {
                let rate = format!("{rate}kbit");
                let bucket = ["rate", &rate, "burst", "16kb", "latency", "800ms"];
                let line = ["-n", &namespace, "qdisc", "replace", "dev", "cable", "root", "tbf"];
                tool::run("tc", &[&line[..], &bucket[..]].concat())
            }
            None => tool::run("tc", &["-n", &namespace, "qdisc", "delete", "dev", "cable", "root"]),
        }
    }

    /// How often packets had to wait since the cable of a node was made narrow.
    pub fn waited(&self, name: &str) -> Result<u64> {
        let line = ["-s", "-n", &self.namespace(name), "qdisc", "show", "dev", "cable"];
        Ok(overlimits(&tool::feed("tc", &line, "")?))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        remove(&self.token);
    }
}

/// Removes all namespaces of a token and the cable to them, as far as they are there.
pub fn remove(token: &str) {
    let cable = cable(token);
    let ours = format!("{cable}-");
    let spaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in spaces.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with(&ours)) {
        if let Err(error) = ip(&["netns", "delete", &name]) {
            eprintln!("{error:#}");
        }
    }
    // With its other end's namespace it usually went too.
    if std::path::Path::new("/sys/class/net").join(&cable).exists() {
        let _ = ip(&["link", "delete", &cable]);
    }
}

/// The end of the cable on our side; at most fifteen letters.
fn cable(token: &str) -> String {
    format!("rvj-{token}")
}

fn ip(arguments: &[&str]) -> Result<()> {
    tool::run("ip", arguments)
}

/// A network that no route of this machine knows.
fn free_network() -> Result<[u8; 3]> {
    let routes = std::fs::read_to_string("/proc/net/route").context("the routes of this machine")?;
    for _ in 0..DRAWS {
        let network = [10, rand::rng().random_range(64..=254), rand::rng().random_range(0..=254)];
        if !is_routed(&routes, network) {
            return Ok(network);
        }
    }
    bail!("no network 10.x.y.0/24 is free on this machine")
}

/// The kernel writes destinations and masks as it keeps them: the first number last.
fn is_routed(routes: &str, [first, second, third]: [u8; 3]) -> bool {
    let wanted = u32::from_le_bytes([first, second, third, 0]);
    routes.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().map(|field| u32::from_str_radix(field, 16));
        let (destination, mask) = (fields.nth(1), fields.nth(5));
        matches!((destination, mask), (Some(Ok(destination)), Some(Ok(mask))) if mask != 0 && wanted & mask == destination)
    })
}

/// Sums, by sender, what `nft` prints as `ip saddr 10.1.1.1 counter packets 17 bytes 4711 drop`.
fn counted(rules: &str) -> BTreeMap<Ipv4Addr, u64> {
    let mut struck = BTreeMap::new();
    for rule in rules.split("ip saddr ").skip(1) {
        let sender = rule.split_whitespace().next().and_then(|address| address.parse().ok());
        let packets =
            rule.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        if let (Some(sender), Some(packets)) = (sender, packets) {
            *struck.entry(sender).or_default() += packets;
        }
    }
    struck
}

/// What `tc -s` prints as `(dropped 0, overlimits 17 requeues 0)`.
fn overlimits(qdisc: &str) -> u64 {
    let counters = qdisc.split("overlimits ").skip(1);
    counters.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_by_sender() {
        let (one, other) = (Ipv4Addr::new(10, 1, 1, 1), Ipv4Addr::new(10, 1, 1, 2));
        let rules = "ip saddr 10.1.1.1 counter packets 17 bytes 9 drop\n  ip saddr 10.1.1.2 meta l4proto tcp numgen \
                     random mod 1000 < 5 counter packets 4 bytes 1 reject\n ip saddr 10.1.1.1 counter packets 3 bytes 1 drop";
        assert_eq!(counted(rules), BTreeMap::from([(one, 20), (other, 4)]));
        assert_eq!(counted("table inet reveille {}"), BTreeMap::new());
    }

    #[test]
    fn a_narrow_cable_tells_how_often_packets_waited() {
        let told = "qdisc tbf 8001: root refcnt 2 rate 64Kbit burst 16Kb lat 800ms\n Sent 9 bytes 1 pkt (dropped 2, \
                    overlimits 41 requeues 0)\n backlog 0b 0p requeues 0\n";
        assert_eq!((overlimits(told), overlimits("")), (41, 0));
    }

    #[test]
    fn a_network_with_a_route_is_taken_and_the_default_route_takes_none() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth0\t0001600A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert!(is_routed(routes, [10, 96, 1]));
        assert!(!is_routed(routes, [10, 96, 2]));
    }

    #[test]
    fn a_name_of_a_cable_fits() {
        assert!(cable("0123abcd").len() <= 15);
    }

    #[test]
    fn hosts_reach_each_other_until_a_rule_says_otherwise_and_leave_nothing_behind() {
        if let Some(why) = Hosts::missing() {
            reveille_strict::skip(&why);
            return;
        }
        let token = format!("{:08x}", rand::random::<u32>());
        let hosts = Hosts::new(&token, &["n1".to_owned(), "n2".to_owned()]).unwrap();
        let listener = std::net::TcpListener::bind((hosts.ours(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let reaches = || {
            let line = format!("exec 3<>/dev/tcp/{}/{port}", hosts.ours());
            let namespace = format!("--net=/run/netns/{}", hosts.namespace("n2"));
            tool::run("nsenter", &[&namespace, "timeout", "2", "bash", "-c", &line]).is_ok()
        };
        assert!(reaches());
        hosts.filter("n2", &format!("    ip saddr {} counter drop\n", hosts.ours())).unwrap();
        assert!(!reaches());
        assert!(
            hosts.struck("n2").unwrap().values().any(|packets| *packets > 0) && hosts.struck("n1").is_err(),
            "n1 has no rules at all"
        );
        hosts.filter("n2", "").unwrap();
        assert!(reaches(), "the former rules are gone");
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let namespace = format!("--net=/run/netns/{}", hosts.namespace("n1"));
        let by_loopback = || tool::run("nsenter", &[&namespace, "timeout", "2", "bash", "-c", &line]).is_ok();
        assert!(!by_loopback());
        hosts.lead_from_loopback(port.parse().unwrap()).unwrap();
        assert!(by_loopback());
        drop(hosts);
        let left = std::fs::read_dir("/run/netns").unwrap().flatten();
        assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(&token)));
    }
}

//! Puts what is bad between nodes in force, on hosts or on proxies, and tells what was seen of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use anyhow::Result;

use super::blows::{Undo, skipped};
use super::links::{self, BadLink};
use super::nemesis::{Nemesis, Skipped};
use super::plan::Bad;
use crate::hosts::Hosts;
use crate::proxies::Harm;
use crate::wires::Wires;

/// Of a hundred packets, in the place of a delay.
const LATE_BY_LOSS: u8 = 20;
/// All that is bad at the moment.
pub type BadLinks = Vec<BadLink>;

/// How often something was done on each link, by sender and receiver, since it was last put in force.
type Struck = BTreeMap<(usize, usize, Harm), u64>;

impl Nemesis {
    /// Makes these bad, on top of what is bad already.
    pub(super) fn add_links(&mut self, bad: &[BadLink]) -> Result<(), Skipped> {
        if let Err(why) = &self.stage.cluster.footing().wires {
            return Err(Skipped::Cannot(why.clone()));
        }
        let before = self.bad_links.clone();
        let put = self.put([&before, bad].concat());
        if put.is_err() {
            // None of it, rather than a part of it.
            self.put(before).map_err(skipped)?;
        }
        put.map_err(skipped)
    }

    /// Takes these away again: how often what they carried was struck, given what was counted before, and that in words.
    pub(super) fn remove_links(&mut self, bad: &[BadLink], struck: u64) -> Result<(u64, String)> {
        let struck = struck + of(bad, &self.struck());
        let mut left = self.bad_links.clone();
        for gone in bad {
            if let Some(place) = left.iter().position(|link| link == gone) {
                left.swap_remove(place);
            }
        }
        self.put(left)?;
        let wires = self.stage.cluster.footing().wires.as_ref();
        let how = bad.first().and_then(|link| link.how);
        Ok((struck, wires.map_or_else(Clone::clone, |wires| wires.told(how, struck))))
    }

    /// Puts this in the place of what is bad. Counters begin anew: what they said is told to the faults first.
    fn put(&mut self, bad: BadLinks) -> Result<()> {
        let seen = self.struck();
        for active in &mut self.active {
            if let Undo::Links { bad, struck } = &mut active.undo {
                *struck += of(bad, &seen);
            }
        }
        let names = self.stage.names();
        let before = std::mem::replace(&mut self.bad_links, bad);
        match &self.stage.cluster.footing().wires {
            Ok(wires) => wires.put(&names, &before, &self.bad_links),
            Err(_) => Ok(()),
        }
    }

    fn struck(&self) -> Struck {
        let wires = self.stage.cluster.footing().wires.as_ref();
        wires.map(|wires| wires.struck(&self.stage.names(), &self.bad_links)).unwrap_or_default()
    }
}

/// Of these links. Two faults of one link and kind are both told of what was struck there.
fn of(bad: &[BadLink], struck: &Struck) -> u64 {
    let keys: BTreeSet<_> = bad.iter().map(|link| (link.from, link.to, harm(link.how))).collect();
    keys.iter().filter_map(|key| struck.get(key)).sum()
}

fn harm(how: Option<Bad>) -> Harm {
    match how {
        None => Harm::Held,
        Some(Bad::Loss(_)) => Harm::Resent,
        Some(Bad::Reset(_)) => Harm::Reset,
        Some(Bad::Narrow(_)) => Harm::Waited,
        Some(Bad::Delay(_)) => Harm::Late,
    }
}

impl Wires {
    /// What is done to a link where this is asked for. Between hosts nothing can be made late but by losing it: what TCP
    /// sends again is.
    pub(super) fn instead_of(&self, how: Bad) -> Bad {
        match (self, how) {
            (Wires::Hosts(_), Bad::Delay(_)) => Bad::Loss(LATE_BY_LOSS),
            _ => how,
        }
    }

    /// Puts all that is bad now in the place of what was bad before.
    fn put(&self, names: &[String], before: &[BadLink], now: &[BadLink]) -> Result<()> {
        match self {
            Wires::Hosts(hosts) => put_on_hosts(hosts, names, before, now),
            Wires::Proxies(loopback) => {
                for (from, to) in pairs(names.len()) {
                    if let Some(link) = loopback.proxies.link(from, to) {
                        link.lay(links::law(from, to, now));
                        link.forget();
                    }
                }
                Ok(())
            }
        }
    }

    /// How often what was struck, given all that is bad.
    fn struck(&self, names: &[String], bad: &[BadLink]) -> Struck {
        match self {
            Wires::Hosts(hosts) => struck_on_hosts(hosts, names, bad),
            Wires::Proxies(loopback) => {
                let each = pairs(names.len()).flat_map(|(from, to)| Harm::ALL.map(|harm| (from, to, harm)));
                let counted = |(from, to, harm)| Some(((from, to, harm), loopback.proxies.link(from, to)?.count(harm)));
                each.filter_map(counted).collect()
            }
        }
    }

    /// What was seen of a fault, in words.
    fn told(&self, how: Option<Bad>, struck: u64) -> String {
        match (self, how) {
            (Wires::Hosts(_), Some(Bad::Narrow(_))) => format!("packets waited {struck} times"),
            (Wires::Hosts(_), _) => format!("{struck} packets were struck"),
            (Wires::Proxies(_), None) => format!("{struck} pieces were held"),
            (Wires::Proxies(_), Some(Bad::Reset(_))) => format!("{struck} connections were reset"),
            (Wires::Proxies(_), Some(Bad::Narrow(_))) => format!("pieces waited {struck} times"),
            (Wires::Proxies(_), Some(Bad::Loss(_) | Bad::Delay(_))) => format!("{struck} pieces were late"),
        }
    }
}

fn pairs(nodes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..nodes).flat_map(move |from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

fn put_on_hosts(hosts: &Hosts, names: &[String], before: &[BadLink], now: &[BadLink]) -> Result<()> {
    let addresses = names.iter().map(|name| hosts.address(name)).collect::<Result<Vec<_>>>()?;
    for (place, name) in names.iter().enumerate() {
        hosts.filter(name, &links::rules(place, &addresses, now))?;
    }
    for (place, name) in names.iter().enumerate() {
        // Also where it stays as it is: its counter begins anew like all others.
        if links::narrowest(place, before).is_some() {
            hosts.narrow(name, None)?;
        }
        if let Some(kbit) = links::narrowest(place, now) {
            hosts.narrow(name, Some(kbit))?;
        }
    }
    Ok(())
}

/// A filter counts packets, whatever it did to them. Of a narrow cable the first of its links tells.
fn struck_on_hosts(hosts: &Hosts, names: &[String], bad: &[BadLink]) -> Struck {
    let place_of =
        |address: Ipv4Addr| names.iter().position(|name| hosts.address(name).is_ok_and(|own| own == address));
    let mut struck = Struck::new();
    for (to, name) in names.iter().enumerate() {
        for (address, packets) in hosts.struck(name).unwrap_or_default() {
            if let Some(from) = place_of(address) {
                struck.extend([Harm::Held, Harm::Resent, Harm::Reset].map(|harm| ((from, to, harm), packets)));
            }
        }
    }
    for (from, name) in names.iter().enumerate() {
        let narrow = bad.iter().find(|link| link.from == from && matches!(link.how, Some(Bad::Narrow(_))));
        if let Some(link) = narrow {
            struck.insert((from, link.to, Harm::Waited), hosts.waited(name).unwrap_or_default());
        }
    }
    struck
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wires::Ground;

    #[test]
    fn what_is_bad_between_proxies_is_put_on_its_links_and_taken_away_again() {
        let names = ["n1", "n2", "n3"].map(str::to_owned);
        let wires = Wires::new(Ground::Proxy, "0000000c", &names, 7).unwrap();
        let Wires::Proxies(loopback) = &wires else { panic!("no proxies") };
        let link = |from, to| loopback.proxies.link(from, to).unwrap();
        let bad = [links::alone(3, 0), links::around(3, 0, Bad::Delay(Duration::from_millis(50)))].concat();
        assert!(bad.iter().all(|link| link.how.is_none_or(|how| wires.instead_of(how) == how)));
        wires.put(&names, &[], &bad).unwrap();
        assert!(link(0, 1).law().cut && link(2, 0).law().cut && link(1, 2).law().is_default());
        (0..3).for_each(|_| link(0, 1).note(Harm::Held));
        link(2, 0).note(Harm::Late);
        let struck = wires.struck(&names, &bad);
        assert_eq!((of(&links::alone(3, 0), &struck), of(&bad, &struck)), (3, 4), "each fault is told of its own");
        wires.put(&names, &bad, &[]).unwrap();
        assert!(link(0, 1).law().is_default() && of(&bad, &wires.struck(&names, &[])) == 0);
    }
}
